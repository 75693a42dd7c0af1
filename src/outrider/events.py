"""Events of a crawl, in order: values, subscribers, and a JSON Lines file (O3).

Without subscribers events cost nothing: callers check `has_listeners` before they build one.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import msgspec

GAP: Final = "gap"  # the name of what stands for events that a follower has missed
EVENT_NAMES: Final = frozenset(
    {
        # of tasks
        *("added", "refused", "claimed", "finished", "from-cache", "retried", "again"),
        *("throttled", "dropped", "died"),
        # of the store itself
        *("expired", "queue-retired", "queue-returned", "crawl-running", "crawl-paused"),
        *("crawl-finished", "crawl-restored", "crawl-cancelled"),
        # of operators
        *("config", "problem", "rescored", "operator-drop", "operator-forget", "operator-delete"),
        *("operator-replay", "operator-purge", "queue-set", "queue-pause", "queue-resume"),
        *("queue-retire", "queue-revive", "queue-snooze", "queue-wake"),
        # who did it
        *("act-queue-set", "act-queue-pause", "act-queue-resume", "act-queue-retire"),
        *("act-queue-revive", "act-queue-snooze", "act-queue-wake", "act-drop", "act-replay"),
        *("act-purge", "act-forget", "act-configure"),
        GAP,
    }
)
BACKLOG = 10_000  # events a slow reader may lag behind before the oldest are dropped


class Event(msgspec.Struct, frozen=True):
    """One event; `sequence` has no gaps within one frontier."""

    name: str
    crawl: str
    at: float
    sequence: int
    data: Mapping[str, Any] = {}


Listener: TypeAlias = Callable[[Event], None]


class EventBus:
    """Numbers events and passes them to listeners."""

    def __init__(self, crawl: str) -> None:
        self._crawl = crawl
        self._sequence = 0
        self._listeners: list[Listener] = []

    @property
    def has_listeners(self) -> bool:
        """Whether there are listeners."""
        return bool(self._listeners)

    def emit(self, name: str, at: float, **data: Any) -> None:
        """Call every listener; one that raises is removed, the others continue."""
        self._sequence += 1
        event = Event(name, self._crawl, at, self._sequence, data)
        for listener in tuple(self._listeners):
            self._tell(listener, event)

    def _tell(self, listener: Listener, event: Event) -> None:
        try:
            listener(event)
        except Exception:  # noqa: BLE001 - user code must not end the crawl
            self.unsubscribe(listener)

    def subscribe(self, listener: Listener) -> None:
        """Call this function with every event from now on."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling a listener; an unknown one is ignored."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def stream(self) -> AsyncIterator[Event]:
        """Iterate over events from now on, until the reader stops."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        reader = weakref.ref(queue)

        def put(event: Event) -> None:
            kept = reader()
            if kept is None:  # it was never read, or its reader is gone
                self.unsubscribe(put)
                return
            if kept.qsize() >= BACKLOG:
                kept.get_nowait()
            kept.put_nowait(event)

        self.subscribe(put)
        return self._drained(queue, put)

    async def _drained(
        self, queue: asyncio.Queue[Event], put: Listener
    ) -> AsyncGenerator[Event, None]:
        try:
            while True:
                yield await queue.get()
        finally:
            self.unsubscribe(put)


class JsonlSink:
    """Appends every event to a file, as one line of JSON."""

    def __init__(self, path: str) -> None:
        self._file: IO[bytes] = Path(path).open("ab")  # noqa: SIM115 - held until `close`
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, event: Event) -> None:
        """Write one line; the operating system has it when this returns."""
        self._file.write(self._line(event) + b"\n")
        self._file.flush()

    def _line(self, event: Event) -> bytes:
        try:
            return self._encode(event)
        except UnicodeEncodeError:  # text with lone surrogates is written as escapes
            return json.dumps(msgspec.to_builtins(event)).encode()

    def close(self) -> None:
        """Close the file, even if the disk is full."""
        with suppress(OSError):
            self._file.close()
