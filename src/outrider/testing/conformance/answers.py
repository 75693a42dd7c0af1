"""Conformance of answers: a revisit's lease has the page's last answer (B1, G3)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Answer, Dropped, Failed, Last, Throttled
from outrider.core.task import Lease
from outrider.core.verdict import Verdict
from outrider.store.protocol import FullStore, TaskFilter
from outrider.testing.builders import done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.export import COPY, export, restore
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    claim,
    configure,
    finish,
    one,
    record,
    visit,
)

LEARNED = Answer(200, 7, "d", '"e"', "then", looks=3, changes=2, watched=86_400.5, planned=3600.25)


def learned(lease: Lease, answer: Answer = LEARNED, revisit_in: float = 50.0) -> Verdict:
    """A visit whose answer has every field, with a revisit."""
    decided = done(lease, revisit_in=revisit_in)
    fields = {name: getattr(decided, name) for name in decided.__struct_fields__}
    return Verdict(**fields | {"answer": answer})


class AnswersConformance:
    """The last answer, and how old it is."""

    async def test_a_first_visit_has_no_last_answer(self, store: FullStore) -> None:
        """G3: there was no answer yet; a retry without an answer has none either."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        first = await visit(store, Failed("HTTP 500", retry_in=0.0))
        second = await one(store)

        assert (first.last, second.last) == (None, None)

    async def test_a_revisit_knows_the_last_answer(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """G3: all of it, and the seconds since that visit ended."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        lease = await one(store)
        clock.advance(2)
        await finish(store, learned(lease))
        clock.advance(60.25)

        assert (await one(store)).last == Last(LEARNED, 60.25)

    async def test_a_view_shows_the_whole_answer(self, store: FullStore) -> None:
        """B1: also what the visits taught of how the page changes."""
        await add(store, "a/1")
        await finish(store, learned(await one(store)))

        assert (await record(store, "a/1")).answer == LEARNED

    async def test_a_link_that_asks_for_a_revisit_keeps_the_answer(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B3, G3: `known="revisit"`, however long the task was done."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        decided = done(await one(store), etag="e")
        await finish(store, decided)
        clock.advance(90)
        await add(store, "a/1", known="revisit")
        clock.advance(10)

        last = (await one(store)).last
        assert last is not None
        assert (last.answer, last.answer.etag, last.age) == (decided.answer, "e", 100.0)

    @pytest.mark.parametrize(
        "outcome",
        [Failed("HTTP 500", retry_in=0.0), Throttled(), Dropped("robots")],
        ids=["failed", "throttled", "dropped"],
    )
    async def test_a_revisit_that_brought_nothing_loses_nothing(
        self, store: FullStore, clock: FakeClock, outcome: Failed | Throttled | Dropped
    ) -> None:
        """G3: neither the answer nor its age: it is as old as the visit that brought it."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        await finish(store, learned(await one(store)))
        clock.advance(100)
        await visit(store, outcome)
        clock.advance(400)
        await add(store, "a/1", known="revisit")

        assert (await one(store)).last == Last(LEARNED, 500.0)

    async def test_releases_and_crashes_lose_nothing(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H4, H5: a lease that ends otherwise brings no answer, and takes none."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        await finish(store, learned(await one(store)))
        clock.advance(100)
        await store.release([(await one(store)).id])
        await one(store, lease_for=5.0)
        clock.advance(5)

        assert (await one(store)).last == Last(LEARNED, 105.0)

    async def test_a_replayed_revisit_keeps_the_answer(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """G2, G3: also when it died in between."""
        await configure(store, delay=0.0, max_crashes=1)
        await add(store, "a/1")
        await finish(store, learned(await one(store), revisit_in=0.0))
        await one(store, lease_for=5.0)
        clock.advance(5)
        await store.expire(limit=1)
        await store.replay(CRAWL, TaskFilter(), dry_run=False)

        assert (await one(store)).last == Last(LEARNED, 5.0)

    async def test_the_next_answer_replaces_it(self, store: FullStore, clock: FakeClock) -> None:
        """G3: the last one counts, from its own end on."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        await finish(store, learned(await one(store), revisit_in=10.0))
        clock.advance(10)
        newer = Answer(304, 0, None, "f", None, looks=4)
        await finish(store, learned(await one(store), newer, revisit_in=20.0))
        clock.advance(30)

        assert (await one(store)).last == Last(newer, 30.0)

    async def test_an_export_keeps_it(self, store: FullStore, clock: FakeClock) -> None:
        """I5: the whole answer with its age; also of a leased task."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await store.finish([learned(lease, revisit_in=5.0) for lease in await claim(store, 2)])
        clock.advance(10)
        await one(store)
        await restore(store, await export(store))
        clock.advance(10)

        leases = await claim(store, 2, crawl=COPY)
        assert [lease.last for lease in leases] == [Last(LEARNED, 20.0)] * 2
