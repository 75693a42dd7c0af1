"""The event follower: reads a crawl's event log on and on, and has its workers publish to it (O3).

A follower writes a shared value now and then. Workers publish their events as long as there is a
recent one: see `event_publisher`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from outrider.clock import Clock
from outrider.core.policy.rules import covers
from outrider.core.states import CrawlStatus
from outrider.errors import InvalidInput, StoreUnavailable
from outrider.events import EVENT_NAMES, GAP, Event
from outrider.frontier.event_publisher import FOLLOWED, FOLLOWED_MS, WITH_BREAKDOWN
from outrider.store.protocol import FullStore, LoggedEvent, SharedValueWrite

PAGE: Final = 1000  # events read at a time
POLL_INTERVAL: Final = 0.25  # seconds between two reads that found nothing
RECONNECT_INTERVAL: Final = 1.0
RENEW_MS: Final = FOLLOWED_MS // 3
_ENDS: Final = (CrawlStatus.FINISHED, CrawlStatus.CANCELLED)

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class EventFollower:
    """Reads the event log of a crawl from one place on.

    `since` is the number of the last event that was read; None: from now on. A worker publishes
    within about a second after the first read.
    """

    def __init__(
        self,
        crawl: str,
        clock: Clock,
        *,
        since: int | None = None,
        names: Collection[str] = (),
        key: str | None = None,
        breakdown: bool = False,
    ) -> None:
        _check_arguments(since, names, key)
        self._crawl, self._clock = crawl, clock
        self.since = since
        self._names, self._key = frozenset(names), key
        self._value_name = WITH_BREAKDOWN if breakdown else ""
        self._id = uuid4().hex
        self._renewals = 0
        self._renewed_ms: int | None = None

    async def read(self, store: FullStore) -> list[Event] | None:
        """Return the next events that pass the filters, and gaps; None: there is nothing new.

        The first read makes the workers publish, and later ones now and then.
        """
        await self._renew(store)
        if self.since is None:
            self.since = (await store.event_log(self._crawl, limit=1)).last
            return None
        return await self.read_kept(store)

    async def read_kept(self, store: FullStore) -> list[Event] | None:
        """As `read`, but have no worker publish."""
        page = await store.event_log(self._crawl, after=self.since or 0, limit=PAGE)
        if not page.events:
            return None
        self.since = page.events[-1].sequence
        return list(self._shown(page.events))

    async def is_crawl_over(self, store: FullStore) -> bool:
        """Tell whether the crawl is finished or cancelled."""
        return (await store.crawl(self._crawl)).status in _ENDS

    async def _renew(self, store: FullStore) -> None:
        now = self._clock.now_ms()
        if self._renewed_ms is not None and now - self._renewed_ms < RENEW_MS:
            return
        self._renewals += 1  # another text each time: the store keeps the time of a change
        text = f"{self._id} {self._renewals}"
        write = SharedValueWrite(FOLLOWED, self._value_name, text)
        (number,) = await store.put_values(self._crawl, [write])
        self._renewed_ms = now if number else None  # 0: the crawl does not exist yet, or any more

    def _shown(self, events: Collection[LoggedEvent]) -> Iterator[Event]:
        for one in events:
            data = _data_of(one)
            if one.name == GAP or (self._wants(one.name) and self._is_about_key(data)):
                at = one.at or self._clock.now_ms() / 1000
                yield Event(one.name, self._crawl, at, one.sequence, data)

    def _wants(self, name: str) -> bool:
        return not self._names or name in self._names

    def _is_about_key(self, data: dict[str, Any]) -> bool:
        if self._key is None:
            return True
        key = data.get("key") or data.get("target") or _key_of_subject(data.get("subject"))
        return isinstance(key, str) and covers(self._key, key)


def _check_arguments(since: object, names: Collection[str], key: object) -> None:
    if since is not None and not (type(since) is int and since >= 0):
        raise InvalidInput(f"since = {since!r}: the number of an event, a whole number ≥ 0")
    wrong = [names] if isinstance(names, str) else [n for n in names if n not in EVENT_NAMES]
    if wrong:
        raise InvalidInput(f"names: no event is named {wrong[0]!r}; see docs/reference/events.md")
    if key is not None and not (isinstance(key, str) and key):
        raise InvalidInput(f"key = {key!r}: the key of a queue, or a suffix such as '.org'")


def _key_of_subject(subject: object) -> str | None:
    """Return the key that an event of the store is about: its subject is a key or a URL."""
    if not isinstance(subject, str):
        return None
    try:
        return urlsplit(subject).hostname or subject
    except ValueError:
        return subject


def _data_of(event: LoggedEvent) -> dict[str, Any]:
    """Decode what a worker published; it may be anything."""
    try:
        data = _decode(event.data)
    except (msgspec.DecodeError, RecursionError):
        data = {}
    if event.worker:
        data.setdefault("worker", event.worker)
    return data


async def follow(follower: EventFollower, store: FullStore) -> AsyncIterator[Event]:
    """Yield events as they come, until the reader stops; wait while the store is unavailable."""
    while True:
        try:
            events = await follower.read(store)
        except StoreUnavailable:
            await asyncio.sleep(RECONNECT_INTERVAL)
            continue
        for event in events or ():
            yield event
        if events is None:
            await asyncio.sleep(POLL_INTERVAL)
