"""The object users hold: add, claim, finish, and everything to see and steer a crawl.

It parses at the edge, asks the core to decide and the store to apply, and only waits itself.
"""

from __future__ import annotations

import os
import random
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Self

from outrider.clock import Clock, SystemClock
from outrider.errors import InvalidInput
from outrider.events import Event, Listener
from outrider.frontier.explaining import Explaining
from outrider.frontier.finishing import Finishing
from outrider.frontier.saving import Saver
from outrider.frontier.steering import QueueHandle
from outrider.settings import AnySettings, Layers, layers_of
from outrider.store.protocol import FullStore

if TYPE_CHECKING:
    from types import TracebackType


class Frontier(Finishing, Explaining, Saver):
    """Decides which URL is visited next; opened with `async with Frontier.open(...)`."""

    @classmethod
    def open(
        cls,
        store: str | os.PathLike[str] | FullStore = "memory://",
        *,
        settings: AnySettings = None,
        crawl: str = "default",
        clock: Clock | None = None,
        worker: str | None = None,
        dice: Callable[[], float] = random.random,
    ) -> Frontier:
        """A frontier over a store: enter it with `async with`, or `await` it and `close` it.

        `store` is a URL, or an open store that several frontiers share (one per crawl or worker).
        """
        return cls(
            store,
            layers=layers_of(settings),
            is_attached=False,
            crawl=_checked_name(crawl),
            clock=clock or SystemClock(),
            worker=worker or _fresh_name(),
            dice=dice,
        )

    @classmethod
    def attach(
        cls,
        store: str | os.PathLike[str] | FullStore,
        *,
        settings: Mapping[str, Any] | Layers | None = None,
        crawl: str = "default",
        clock: Clock | None = None,
        worker: str | None = None,
        dice: Callable[[], float] = random.random,
    ) -> Frontier:
        """As `open`, but the crawl keeps the settings it has: for those who look, steer or join.

        `settings` are this process's own: of them `executor`, `fetch`, `output`, `events` and
        `store` are laid over the crawl's, and functions that the crawl's settings name: those are
        never imported because a store says so.
        """
        return cls(
            store,
            layers=layers_of(settings),
            is_attached=True,
            crawl=_checked_name(crawl),
            clock=clock or SystemClock(),
            worker=worker or _fresh_name(),
            dice=dice,
        )

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Frontier]:
        """`frontier = await Frontier.open(...)`; then close it yourself."""
        return self.__aenter__().__await__()

    def __repr__(self) -> str:
        state = "open" if self._store else "closed"
        return f"<Frontier crawl={self.crawl!r} worker={self.worker!r} {state}>"

    def queue(self, key: str) -> QueueHandle:
        """A queue by its key, or all queues of a suffix such as ".org"."""
        return QueueHandle(self, key)

    def events(self) -> AsyncIterator[Event]:
        """Everything that happens from now on, as it happens."""
        self._teller.listen()
        return self._events.stream()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event; answers with the function that ends it."""
        self._teller.listen()
        self._events.subscribe(listener)
        return lambda: self._events.unsubscribe(listener)


def _checked_name(crawl: str) -> str:
    if not isinstance(crawl, str) or not 0 < len(crawl) <= 255 or not crawl.isprintable():
        raise InvalidInput(f"crawl = {crawl!r} must be printable text, 1 to 255 long")
    return crawl


def _fresh_name() -> str:
    """An incarnation's: where it runs, and what no other has, were it the same process number."""
    host = "".join(letter for letter in socket.gethostname()[:64] if letter.isprintable())
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
