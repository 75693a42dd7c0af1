"""What is next in a queue, told without looking at the rest (C2, D5)."""

from __future__ import annotations

from outrider.core.queue_action import Set
from outrider.store.protocol import FullStore
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    add,
    configure,
    key,
    mark,
    named,
    one,
    steer,
    throttle,
)


class UpcomingConformance:
    """What is next in a queue."""

    async def test_it_tells_what_is_due_in_order(self, store: FullStore) -> None:
        """C2, D5: names and URLs, both lanes in one order, as many as asked for."""
        await add(store, "a/3", priority=3.0)
        await add(store, "a/1", priority=1.0, lane=1)
        await add(store, "a/2", priority=2.0)
        await add(store, "b/1")
        found = await store.upcoming(CRAWL, key("a"), limit=2)

        assert [tuple(task) for task in found] == [
            (mark("a/1"), "https://a.example/1"),
            (mark("a/2"), "https://a.example/2"),
        ]
        assert len(await store.upcoming(CRAWL, key("a"))) == 3

    async def test_it_tells_nothing_of_those_that_are_not_due(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C6: until they are, though nobody looked at the queue since."""
        await throttle(store, "a/0", "a/2")
        await add(store, "a/1", priority=-1.0, delay=5.0)
        before = await store.upcoming(CRAWL, key("a"))
        clock.advance(5)
        after = await store.upcoming(CRAWL, key("a"))

        assert [task.fingerprint for task in before] == [mark("a/0"), mark("a/2")]
        assert [task.fingerprint for task in after] == [mark("a/1"), mark("a/0"), mark("a/2")]

    async def test_it_tells_nothing_of_those_that_are_lent(self, store: FullStore) -> None:
        """H1: neither by name nor otherwise."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", "a/3")
        await one(store)
        await named(store, "a/2")

        found = await store.upcoming(CRAWL, key("a"))
        assert [task.fingerprint for task in found] == [mark("a/3")]

    async def test_a_long_line_is_told_in_order(self, store: FullStore) -> None:
        """C2: however many wait behind them."""
        wanted = [f"a/{number}" for number in range(400)]
        for number, page in enumerate(wanted):
            await add(store, page, priority=float(number * 7 % 400))
        order = sorted(range(400), key=lambda number: number * 7 % 400)
        found = await store.upcoming(CRAWL, key("a"), limit=100)

        assert [task.fingerprint for task in found] == [mark(wanted[n]) for n in order[:100]]

    async def test_nobody_knows_what_was_never_added(self, store: FullStore) -> None:
        """I1: neither a queue nor a crawl; and asking makes none."""
        assert await store.upcoming(CRAWL, key("a")) == []
        assert await store.crawls() == []

    async def test_a_paused_queue_is_told_of_too(self, store: FullStore) -> None:
        """E8: it only reads; keys are hosts, in lower case."""
        await add(store, "a/1")
        await steer(store, key("a"), Set({"paused": True}))

        assert [task.url for task in await store.upcoming(CRAWL, "A.example")] == [
            "https://a.example/1"
        ]
