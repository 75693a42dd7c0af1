"""The handle of a queue without `await`: generated from outrider/frontier/admin.py; do not edit.

After a change there, run `make twin`.
"""

from __future__ import annotations

from typing import Any

from outrider.blocking.loop_thread import LoopThread
from outrider.frontier.admin import QueueHandle as AsyncQueueHandle
from outrider.frontier.reports import SuffixView
from outrider.store.protocol import QueueView


class QueueHandle:
    """A queue, or all queues of a suffix: every action is durable and returns the new view."""

    def __init__(self, loop: LoopThread, handle: AsyncQueueHandle) -> None:
        self.key = handle.key
        self._loop = loop
        self._handle = handle

    def set(self, **changes: Any) -> QueueView | SuffixView:
        """Change balance, total_budget, delay, max_in_flight, precedence, …; acts at once (E5)."""
        return self._loop.run(self._handle.set(**changes))

    def pause(self) -> QueueView | SuffixView:
        """Lease none of its tasks until resumed."""
        return self._loop.run(self._handle.pause())

    def resume(self) -> QueueView | SuffixView:
        """End a pause."""
        return self._loop.run(self._handle.resume())

    def retire(self) -> QueueView | SuffixView:
        """Exclude it from the crawl with its tasks; the crawl can finish without it."""
        return self._loop.run(self._handle.retire())

    def revive(self) -> QueueView | SuffixView:
        """End a retirement, whatever its reason."""
        return self._loop.run(self._handle.revive())

    def snooze(self, seconds: float) -> QueueView | SuffixView:
        """Lease none of its tasks for so many seconds."""
        return self._loop.run(self._handle.snooze(seconds))

    def wake(self) -> QueueView | SuffixView:
        """End a snooze; the delay after the last visit still applies."""
        return self._loop.run(self._handle.wake())

    def view(self) -> QueueView | SuffixView:
        """Return its view (E8); for a suffix, or a host with several queues, their sums."""
        return self._loop.run(self._handle.view())
