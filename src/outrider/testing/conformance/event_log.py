"""Conformance of the event log: the store's events and those of workers, numbered together (O3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.core.queue_action import Retire
from outrider.core.states import CrawlStatus
from outrider.errors import InvalidInput
from outrider.store.event_ring import RING_BYTES, RING_EVENTS
from outrider.store.protocol import (
    MAX_EVENT_CHARS,
    MAX_PUBLISHED,
    EventBatch,
    EventPage,
    FullStore,
    LoggedEvent,
    PublishedEvent,
)
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import CRAWL, add, claim, configure, key, open_crawls, steer


def batch(serial: int, *names: str, publisher: str = "p1", **fields: Any) -> EventBatch:
    """Make a batch of events with these names, by the worker "w1"."""
    data = fields.get("data", '{"url":"https://a.example/"}')
    events = [PublishedEvent(name, 7.5, data) for name in names]
    return EventBatch(publisher, serial, "w1", events)


async def log(store: FullStore, after: int = 0, limit: int = 1000) -> EventPage:
    """Return a part of the log."""
    return await store.event_log(CRAWL, after=after, limit=limit)


def names(page: EventPage) -> list[str]:
    """Return what happened, in order; of a gap, how many events are missing."""
    return [_name(event) for event in page.events]


def _name(event: LoggedEvent) -> str:
    return f"gap {json.loads(event.data)['missing']}" if event.name == "gap" else event.name


def sizes_of_gaps(found: list[str]) -> set[str]:
    """Return the gaps among names; a cluster may tell one for each of its shards."""
    return {name for name in found if name.startswith("gap ")}


class EventLogConformance:
    """Publishing, reading on, gaps."""

    async def test_published_events_are_read_in_order(self, store: FullStore) -> None:
        """O3: with number, time, data and worker, as they were published."""
        await add(store, "a/1")
        await store.publish(CRAWL, batch(1, "claimed", "finished"))
        await store.publish(CRAWL, batch(2, "claimed"))

        page = await log(store)

        assert page.last == 3
        assert names(page) == ["claimed", "finished", "claimed"]
        data = '{"url":"https://a.example/"}'
        assert page.events[0] == LoggedEvent(1, 7.5, "claimed", data, "w1")
        assert [event.sequence for event in page.events] == [1, 2, 3]

    async def test_events_of_store_and_workers_have_one_numbering(self, store: FullStore) -> None:
        """O3: both kinds are in one list; `events_since` has the store's alone."""
        await add(store, "a/1", "b/1")
        await steer(store, key("a"), Retire())
        await store.publish(CRAWL, batch(1, "claimed", "finished"))
        await steer(store, key("b"), Retire())
        await store.publish(CRAWL, batch(2, "claimed"))
        await claim(store)

        page = await log(store)

        assert names(page) == [
            *("queue-retired", "claimed", "finished", "queue-retired", "claimed"),
            "crawl-finished",
        ]
        own = await store.events_since(CRAWL)
        assert [event.sequence for event in own] == [1, 4, 6]
        assert [event.worker for event in page.events] == ["", "w1", "w1", "", "w1", ""]
        end = json.loads(page.events[-1].data)
        assert (end["subject"], end["detail"]) == (CRAWL, "run 1")
        assert end["counts"]["held"] == 2

    async def test_store_events_are_read_on_from_any_number(self, store: FullStore) -> None:
        """O3: `events_since` also from a number that a worker's event has."""
        await add(store, "a/1", "b/1")
        await steer(store, key("a"), Retire())
        await store.publish(CRAWL, batch(1, "claimed", "finished"))
        await steer(store, key("b"), Retire())

        found = [await store.events_since(CRAWL, after=after) for after in range(5)]

        assert [[event.sequence for event in one] for one in found] == [
            *([1, 4], [4], [4], [4], []),
        ]

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    async def test_log_is_read_in_pages(self, store: FullStore, limit: int) -> None:
        """O3: each event exactly once, those of a worker in order, whatever the pages cut."""
        await add(store, "a/1", "b/1")
        await store.publish(CRAWL, batch(1, "e1", "e2", "e3"))
        await steer(store, key("a"), Retire())
        await store.publish(CRAWL, batch(2, "e5"))

        found: list[str] = []
        after = 0
        while (page := await log(store, after, limit)).events:
            assert len(page.events) <= limit
            found += names(page)
            after = page.events[-1].sequence

        assert [name for name in found if name != "queue-retired"] == ["e1", "e2", "e3", "e5"]
        assert len(found) == 5
        assert after == page.last

    async def test_repeated_batch_is_published_once(self, store: FullStore) -> None:
        """M2: also if a later one of the same publisher came first; others have own serials."""
        await add(store, "a/1")
        await store.publish(CRAWL, batch(1, "e1"))
        await store.publish(CRAWL, batch(3, "e3"))
        await store.publish(CRAWL, batch(1, "e1"))
        await store.publish(CRAWL, batch(3, "e3"))
        await store.publish(CRAWL, batch(2, "late"))
        await store.publish(CRAWL, batch(1, "other", publisher="p2"))

        assert names(await log(store)) == ["e1", "e3", "other"]

    async def test_forgotten_events_are_told_as_a_gap(self, store: FullStore) -> None:
        """O3: the ring has the last events only; a reader that lags is told how many it missed."""
        await add(store, "a/1", "b/1")
        await store.publish(CRAWL, batch(1, "early", "early"))
        await steer(store, key("a"), Retire())
        for serial in range(2, RING_EVENTS // MAX_PUBLISHED + 3):
            await store.publish(CRAWL, batch(serial, *["e"] * MAX_PUBLISHED, data="{}"))

        page = await log(store, 1, 2)

        kept = page.last - RING_EVENTS
        assert names(page) == ["gap 1", "queue-retired", f"gap {kept - 3}", "e"]
        assert [event.sequence for event in page.events] == [2, 3, kept, kept + 1]
        gap = page.events[0]
        assert (gap.at, gap.worker) == (0.0, "")
        rest = await log(store, kept, 10_000)
        assert len(rest.events) == RING_EVENTS

    async def test_ring_is_bounded_in_bytes(self, store: FullStore) -> None:
        """O3: long events are forgotten before so many came."""
        await add(store, "a/1")
        count = 2 * RING_BYTES // (MAX_EVENT_CHARS * 500)
        for serial in range(1, count + 1):
            data = '{"url":"' + "x" * (MAX_EVENT_CHARS - 10) + '"}'
            await store.publish(CRAWL, batch(serial, *["e"] * 500, data=data))

        gap, *events = (await log(store, limit=10_000)).events

        assert gap.name == "gap"
        assert RING_BYTES <= sum(len(event.data) + 101 for event in events) < 1.5 * RING_BYTES
        assert gap.sequence + len(events) == count * 500

    async def test_publishing_changes_nothing_else(self, store: FullStore) -> None:
        """O3: no status, no counts, no queue."""
        await add(store, "a/1")
        before = [await store.crawl(CRAWL), await store.queue(CRAWL, key("a"))]
        await store.publish(CRAWL, batch(1, "e1"))

        assert [await store.crawl(CRAWL), await store.queue(CRAWL, key("a"))] == before

    async def test_unknown_crawl_has_no_log(self, store: FullStore) -> None:
        """I1: publishing creates no crawl."""
        await store.publish("nobody", batch(1, "e1"))

        page = await store.event_log("nobody")
        assert (list(page.events), page.last) == ([], 0)
        assert await store.crawls() == [CRAWL]

    async def test_removed_crawl_loses_its_events(self, store: FullStore, clock: FakeClock) -> None:
        """I1: nothing is published while it is removed, nor is left for one of that name."""
        await add(store, "a/1")
        await store.publish(CRAWL, batch(1, "e1"))
        await store.delete(CRAWL)
        await store.publish(CRAWL, batch(2, "e2"))
        assert "e2" not in names(await log(store))
        while (await store.delete(CRAWL)).after is not None:
            clock.advance(1)

        await configure(store)

        assert "e1" not in names(await log(store))
        await store.publish(CRAWL, batch(1, "again"))
        assert names(await log(store))[-1] == "again"

    async def test_reader_of_a_removed_crawl_reads_its_successor_from_the_beginning(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """O3: its number is behind the end of the new log; a gap says so, and no event is lost."""
        await add(store, "a/1", "b/1")
        await store.publish(CRAWL, batch(1, *["old"] * 20))
        await steer(store, key("b"), Retire())
        read = (await log(store)).last
        while (await store.delete(CRAWL)).after is not None:
            clock.advance(1)
        await configure(store)
        await add(store, "a/1")
        await store.publish(CRAWL, batch(1, "e1", "e2"))

        found: list[str] = []
        while (page := await log(store, read, 1)).events:
            found += names(page)
            read = page.events[-1].sequence

        assert sizes_of_gaps(found) == {"gap None"}
        assert found[0] == "gap None"
        assert [name for name in found if not name.startswith("gap ")] == ["e1", "e2"]
        assert read == page.last

    async def test_reader_of_a_removed_crawl_is_told_once(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """O3: also before there is another crawl of that name, or while that has no events."""
        await add(store, "a/1")
        await store.publish(CRAWL, batch(1, "old"))
        read = (await log(store)).last
        while (await store.delete(CRAWL)).after is not None:
            clock.advance(1)

        page = await log(store, read)
        assert sizes_of_gaps(names(page)) == {"gap None"}
        read = page.events[-1].sequence
        await configure(store)
        await add(store, "a/1")
        assert list((await log(store, read)).events) == []
        await store.publish(CRAWL, batch(1, "e1"))
        assert names(await log(store, read)) == ["e1"]

    async def test_reader_of_all_events_is_told_of_no_gap(self, store: FullStore) -> None:
        """O3: its number is that of the last event."""
        await add(store, "a/1", "b/1")
        await steer(store, key("b"), Retire())
        await store.publish(CRAWL, batch(1, "e1"))
        last = (await log(store)).last

        assert await log(store, last) == EventPage([], last)

    async def test_crawls_have_logs_of_their_own(self, store: FullStore) -> None:
        """I1: also serials."""
        await add(store, "a/1")
        await open_crawls(store, "other")
        await store.publish(CRAWL, batch(1, "e1"))
        await store.publish("other", batch(1, "e2"))

        assert names(await log(store)) == ["e1"]
        assert names(await store.event_log("other")) == ["e2"]

    async def test_paused_and_cancelled_crawls_have_logs(self, store: FullStore) -> None:
        """O3: visits end after a crawl did."""
        await add(store, "a/1")
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)
        await store.publish(CRAWL, batch(1, "finished"))

        assert names(await log(store)) == ["crawl-cancelled", "finished"]

    @pytest.mark.parametrize(
        "wrong",
        [
            batch(1),
            batch(0, "e"),
            batch(1, "e", publisher=""),
            batch(1, ""),
            batch(1, "x" * 65),
            batch(1, *["e"] * (MAX_PUBLISHED + 1)),
            batch(1, "e", data="x" * (MAX_EVENT_CHARS + 1)),
            batch(1, "e", data="\0"),
            batch(1, "e", data="\ud800"),
            EventBatch("p", 1, "w", [PublishedEvent("e", float("nan"), "{}")]),
        ],
    )
    async def test_batch_out_of_bounds_is_refused(
        self, store: FullStore, wrong: EventBatch
    ) -> None:
        """M3: whole; nothing of it is in the log."""
        await add(store, "a/1")

        with pytest.raises(InvalidInput):
            await store.publish(CRAWL, wrong)
        assert names(await log(store)) == []
