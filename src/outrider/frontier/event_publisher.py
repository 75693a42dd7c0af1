"""The event publisher: sends a frontier's events to the crawl's log while it is followed (O3).

Who follows a crawl writes a shared value now and then, so every worker learns of it with the next
read of shared values, and stops once it is too old. Publishing never blocks or fails the frontier:
events wait in a bounded buffer, and what does not fit into it is counted, and told as a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import msgspec

from outrider.clock import Clock
from outrider.errors import StoreError
from outrider.events import GAP
from outrider.logs import logger_of
from outrider.store.protocol import (
    MAX_EVENT_CHARS,
    MAX_EVENT_NAME_CHARS,
    MAX_PUBLISHED,
    EventBatch,
    FullStore,
    PublishedEvent,
)

FOLLOWED: Final = "followed"  # the topic of the shared values that followers write
WITH_BREAKDOWN: Final = "breakdown"  # the name of the value of those who want the breakdown
FOLLOWED_MS: Final = 60_000  # after the last such value, events are not published any more
PUBLISH_INTERVAL: Final = 0.2  # seconds for which events are collected
RETRY_INTERVAL: Final = 1.0  # seconds after a failed attempt
CLOSE_TIMEOUT: Final = 2.0
LINGER_SECONDS: Final = 1.0  # four times the interval at which followers read
MAX_BUFFERED: Final = 5000  # events
MAX_BATCH_CHARS: Final = 1 << 18  # of the data of one batch
MAX_CUT_CHARS: Final = 300  # of a text in data that are too long

_encode = msgspec.json.Encoder().encode
_log = logger_of(__name__)


class EventPublisher:
    """Publishes events of one frontier; `is_active` while it is followed the crawl."""

    def __init__(self, crawl: str, worker: str, clock: Clock) -> None:
        self.is_active = False
        self._crawl, self._worker, self._clock = crawl, worker, clock
        self._store: FullStore | None = None
        self._name = uuid4().hex
        self._serial = 0
        self._until = self._breakdown_until = 0  # milliseconds of the clock
        self._buffer: deque[PublishedEvent] = deque()
        self._unsent: EventBatch | None = None  # may have been published: the answer was lost
        self._missing: int | None = 0  # events that were not buffered since the last; None: unknown
        self._sending: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def use(self, store: FullStore) -> None:
        """Publish to this store."""
        self._store = store

    @property
    def wants_breakdown(self) -> bool:
        """Whether a follower asked for the terms of priorities."""
        return self.is_active and self._clock.now_ms() < self._breakdown_until

    def follow_for(self, ms: int, *, with_breakdown: bool) -> None:
        """Publish events for so long from now on, at least."""
        until = self._clock.now_ms() + ms
        self._until = max(self._until, until)
        if with_breakdown:
            self._breakdown_until = max(self._breakdown_until, until)
        if not self.is_active:
            self.is_active, self._missing = True, None

    def put(self, name: str, at: float, data: Mapping[str, Any]) -> None:
        """Take an event over, to be published soon; never waits."""
        if len(self._buffer) >= MAX_BUFFERED:
            self._missing = None if self._missing is None else self._missing + 1
            return
        if self._missing != 0:
            gap = _text_of({"missing": self._missing, "worker": self._worker})
            self._buffer.append(PublishedEvent(GAP, at, gap))
            self._missing = 0
        self._buffer.append(PublishedEvent(name[:MAX_EVENT_NAME_CHARS], at, _text_of(data)))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self) -> None:
        """Publish what is left, unless that takes too long, and let followers read it.

        The events of a file are in the memory of the process that holds it, which may end now.
        """
        self._hurry.set()
        was_active = self.is_active
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=CLOSE_TIMEOUT)
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        self.is_active = False
        if was_active and self._clock.now_ms() < self._until:
            await asyncio.sleep(LINGER_SECONDS)

    async def _send_all(self) -> None:
        interval = PUBLISH_INTERVAL
        try:
            while self._buffer or self._unsent is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(interval):
                        await self._hurry.wait()
                is_reached = await self._send_batch()
                interval = PUBLISH_INTERVAL if is_reached else RETRY_INTERVAL
                if not is_reached and self._hurry.is_set():
                    return
        except Exception:  # noqa: BLE001 - a crawl continues without followers
            _log.exception("crawl %r: events could not be published", self._crawl)
            self._forget()
        finally:
            self._sending = None

    async def _send_batch(self) -> bool:
        """Publish the next events; return False if the store cannot be reached at the moment."""
        if self._clock.now_ms() >= self._until:
            self._forget()
            return True
        if self._unsent is None:
            self._unsent = self._next_batch()
        assert self._store is not None  # noqa: S101 - events come from an open frontier
        try:
            await self._store.publish(self._crawl, self._unsent)
        except StoreError:
            return False
        self._unsent = None
        return True

    def _next_batch(self) -> EventBatch:
        self._serial += 1
        events: list[PublishedEvent] = []
        size = 0
        while self._buffer and len(events) < MAX_PUBLISHED and size < MAX_BATCH_CHARS:
            event = self._buffer.popleft()
            events.append(event)
            size += len(event.data)
        return EventBatch(self._name, self._serial, self._worker, events)

    def _forget(self) -> None:
        """Stop publishing: no one follows, or it is not possible."""
        self.is_active, self._unsent = False, None
        self._buffer.clear()


def _text_of(data: Mapping[str, Any]) -> str:
    """Encode the data of an event; texts are cut if it is too long."""
    text = _json_of(data)
    if len(text) <= MAX_EVENT_CHARS:
        return text
    short = {
        name: value[:MAX_CUT_CHARS] if isinstance(value, str) else value
        for name, value in data.items()
        if isinstance(value, str | int | float | None)
    }
    text = _json_of({**short, "is_cut": True})
    return text if len(text) <= MAX_EVENT_CHARS else _json_of({"is_cut": True})


def _json_of(data: Mapping[str, Any]) -> str:
    try:
        return _encode(data).decode()
    except (TypeError, ValueError):  # ValueError: lone surrogates, which UTF-8 can't encode
        return _encode({name: _escaped(value) for name, value in data.items()}).decode()


def _escaped(value: object) -> str:
    return str(value).encode("utf-8", "backslashreplace").decode()
