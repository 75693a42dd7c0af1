"""Visits that asked nothing of their host, and what robots.txt said in any other (D1, D7)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Dropped, Throttled
from outrider.core.states import TaskState
from outrider.store.protocol import FullStore
from outrider.testing.builders import verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    add,
    claim,
    configure,
    one,
    queue,
    record,
    visit,
    wakes_in,
)


class UntouchedConformance:
    """Visits that asked nothing of their host."""

    async def test_a_drop_without_a_request_begins_no_delay(self, store: FullStore) -> None:
        """D7: robots.txt of before forbade it; the next may be visited at once."""
        await add(store, "a/1", "a/2")
        await visit(store, Dropped("robots", crawl_delay=9.0, visited=False))

        assert (await record(store, "a/1")).state is TaskState.DROPPED
        view = await queue(store)
        assert (view.wakes_in, view.last_visit_at, view.spent) == (0.0, None, 0)
        assert (await one(store)).manners.crawl_delay == 0.0

    async def test_a_drop_with_a_request_begins_one(self, store: FullStore) -> None:
        """D1, D7: by what it took, and by what robots.txt said in it."""
        await add(store, "a/1", "a/2", "b/1", "b/2")
        first, second = await claim(store, 2)
        slow = verdict(first, Dropped("size", seconds=2.0))
        await store.finish([slow, verdict(second, Dropped("robots", crawl_delay=9.0))])

        assert (await wakes_in(store, "a"), await wakes_in(store, "b")) == (10.0, 9.0)

    @pytest.mark.parametrize("fields", [{"max_in_flight": 2}, {"count_from": "start"}])
    async def test_a_lease_that_was_spaced_stays_so(
        self, store: FullStore, fields: dict[str, object]
    ) -> None:
        """D1: next-ready moved when it was lent, and never moves back."""
        await configure(store, min_delay=3.0, **fields)  # type: ignore[arg-type] # two of them
        await add(store, "a/1", "a/2")
        await visit(store, Dropped("robots", visited=False))

        assert await wakes_in(store) == 3.0

    async def test_the_crawl_delay_of_a_visit_that_failed_is_kept(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D1: robots.txt was read, whatever became of the page."""
        await add(store, "a/1", "a/2")
        await visit(store, Throttled(crawl_delay=40.0))
        assert (await queue(store)).delay == 80.0
        clock.advance(200)

        assert (await one(store)).manners.crawl_delay == 40.0
