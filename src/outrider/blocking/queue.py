"""A queue in an operator's hand, without `await`."""

from __future__ import annotations

from typing import Any, TypeAlias

from outrider.blocking.loop import Loop
from outrider.frontier.reports import SuffixView
from outrider.frontier.steering import QueueHandle as AsyncQueueHandle
from outrider.store.protocol import QueueView

View: TypeAlias = QueueView | SuffixView


class QueueHandle:
    """A queue, or all of a suffix, in an operator's hand; every act answers with the new view."""

    def __init__(self, loop: Loop, handle: AsyncQueueHandle) -> None:
        self.key = handle.key
        self._loop = loop
        self._handle = handle

    def set(self, **changes: Any) -> View:
        """Change what holds; acts at once."""
        return self._loop.run(self._handle.set(**changes))

    def pause(self) -> View:
        """Lend nothing of it until resumed."""
        return self._loop.run(self._handle.pause())

    def resume(self) -> View:
        """End a pause."""
        return self._loop.run(self._handle.resume())

    def retire(self) -> View:
        """Set it aside with its tasks."""
        return self._loop.run(self._handle.retire())

    def revive(self) -> View:
        """End a retirement."""
        return self._loop.run(self._handle.revive())

    def snooze(self, seconds: float) -> View:
        """Leave it alone for so long."""
        return self._loop.run(self._handle.snooze(seconds))

    def wake(self) -> View:
        """End a snooze."""
        return self._loop.run(self._handle.wake())

    def view(self) -> View:
        """How it stands."""
        return self._loop.run(self._handle.view())
