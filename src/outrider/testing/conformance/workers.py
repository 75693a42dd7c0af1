"""Conformance of workers: heartbeats, silence and departure (M6)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from outrider.core.histogram import Histogram, Window
from outrider.core.worker_totals import MAX_DECISIONS, ScalingDecision, WorkerTotals
from outrider.errors import InvalidInput
from outrider.store.protocol import FullStore, Heartbeat
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import CRAWL, add, claim

ONE: Final = Heartbeat("one", "busy", "north", 17, slots=8, busy=3, visits=40, lasts=30.0)
DAY: Final = 86_400.0
NONE: Final = WorkerTotals()


def counted(done: int, seconds: dict[int, int] | None = None, **more: Any) -> WorkerTotals:
    """Totals of so many visits; `seconds` by bucket."""
    fetch = Histogram(seconds or {3: done}, 0.25 * done, 0.5)
    fields: dict[str, Any] = {
        "outcomes": {"done": done},
        "latency": {"fetch": fetch},
        "gaps": fetch,
    }
    return WorkerTotals(**(fields | more))


async def beat(store: FullStore, worker: str = "one", **said: Any) -> None:
    """A worker says how it is."""
    await store.heartbeat(CRAWL, msgspec.structs.replace(ONE, worker=worker, **said))


async def states(store: FullStore) -> list[tuple[str, str]]:
    """Who is there, and how."""
    return [(one.worker, one.state) for one in await store.workers(CRAWL)]


class WorkersConformance:
    """Workers, seen by all."""

    async def test_a_beat_is_seen_by_all(self, store: FullStore, clock: FakeClock) -> None:
        """M6: the worker's last heartbeat, and the times of its first and last one."""
        began = clock.now_ms() / 1000
        await beat(store, visits=1)
        clock.advance(5)
        await beat(store)

        (view,) = await store.workers(CRAWL)
        said = msgspec.structs.asdict(ONE)
        del said["lasts"]
        seen = msgspec.structs.asdict(view)
        assert (seen.pop("started_at"), seen.pop("seen_at")) == (began, began + 5)
        assert seen == said

    async def test_a_crawl_without_heartbeats_has_no_workers(self, store: FullStore) -> None:
        """M6: a claim alone is no beat, and another crawl's workers are its own."""
        await add(store, "a/1")
        await claim(store)
        await store.heartbeat("another", ONE)

        assert await store.workers(CRAWL) == []
        assert await store.workers("unheard-of") == []
        assert "unheard-of" not in await store.crawls()

    async def test_workers_come_in_order_of_their_first_beats(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """M6: by name if their first heartbeats were at the same instant."""
        await beat(store, "late")
        clock.advance(1)
        for worker in ("b", "a", "late", "c"):
            await beat(store, worker)

        assert [name for name, _ in await states(store)] == ["late", "a", "b", "c"]

    async def test_a_silent_worker_is_shown_as_gone(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """M6: as long as its own beat lasts; one more beat brings it back."""
        await beat(store, "one", lasts=30.0)
        await beat(store, "two", state="idle", lasts=10.0)
        clock.advance(9.999)
        before = await states(store)
        clock.advance(0.001)
        after = await states(store)
        await beat(store, "two", state="draining")

        assert before == [("one", "busy"), ("two", "idle")]
        assert after == [("one", "busy"), ("two", "gone")]
        assert await states(store) == [("one", "busy"), ("two", "draining")]

    async def test_goodbye_is_seen_at_once(self, store: FullStore) -> None:
        """M6: a worker that ends sends a last heartbeat, and is shown as gone at once."""
        await beat(store)
        await beat(store, state="gone", busy=0)

        assert await states(store) == [("one", "gone")]

    async def test_a_day_of_silence_is_forgotten(self, store: FullStore, clock: FakeClock) -> None:
        """M6: and a worker that returns after that is new."""
        await beat(store, "one")
        clock.advance(1)
        await beat(store, "two")
        clock.advance(DAY - 1.001)
        assert [name for name, _ in await states(store)] == ["one", "two"]
        clock.advance(0.001)
        assert [name for name, _ in await states(store)] == ["two"]

        await beat(store, "one")
        assert [name for name, _ in await states(store)] == ["two", "one"]

    async def test_many_workers_are_all_listed(self, store: FullStore) -> None:
        """M6: as many workers as a crawl may have in practice."""
        for number in range(60):
            await beat(store, f"worker-{number:02d}", pid=number)

        seen = await store.workers(CRAWL)
        assert [one.pid for one in seen] == list(range(60))

    async def test_totals_come_with_heartbeats(self, store: FullStore) -> None:
        """M6, O1: each worker's own, and the sum over all without their decisions."""
        decided = ScalingDecision(7.5, 4, 7, "ready work, no idle slot")
        one = counted(3, refusals={"off-scope": 2}, decisions=(decided,))
        other = counted(5, {3: 1, 9: 4}, outcomes={"done": 5, "failed": 1})
        await beat(store, "one", totals=one)
        await beat(store, "other", totals=other)

        first, second = await store.workers(CRAWL)
        assert (first.totals, second.totals) == (one, other)
        both = Histogram({3: 4, 9: 4}, 2.0, 0.5)
        assert await store.worker_totals(CRAWL) == WorkerTotals(
            {"done": 8, "failed": 1}, {"off-scope": 2}, {"fetch": both}, both
        )
        assert await store.worker_totals("unheard-of") == NONE

    async def test_later_totals_replace_earlier_ones(self, store: FullStore) -> None:
        """M6: they are cumulative, so nothing is counted twice."""
        for done in (1, 4, 9):
            await beat(store, totals=counted(done))
            await beat(store, totals=counted(done))  # repeated

        (view,) = await store.workers(CRAWL)
        assert view.totals == counted(9) == await store.worker_totals(CRAWL)

    async def test_late_heartbeat_lowers_no_total(self, store: FullStore) -> None:
        """M6: totals only grow, so the higher of each number is the later one."""
        await beat(store, totals=counted(9, {3: 5, 4: 4}))
        await beat(store, totals=counted(4, {3: 3, 5: 1}))
        await beat(store, state="gone")  # without totals

        (view,) = await store.workers(CRAWL)
        expected = counted(9, {3: 5, 4: 4, 5: 1})
        assert view.totals == expected == await store.worker_totals(CRAWL)

    async def test_windows_and_slots_are_the_last_ones(self, store: FullStore) -> None:
        """O1: of each worker; in no sum, for those of workers that are gone mean nothing."""
        last = counted(9, windows={"fetch": Window({3: 9}, 0.5, 60.0)}, slots={"busy": 2})
        await beat(store, totals=counted(4, windows={"fetch": Window({3: 4}, 0.5, 9.0)}, retried=1))
        await beat(store, totals=last)
        await beat(store, totals=counted(4, windows={"fetch": Window({3: 4}, 0.5, 9.0)}))  # late
        await beat(store, "other", totals=counted(1, retried=2, slots={"idle": 1}))

        one, _ = await store.workers(CRAWL)
        assert one.totals == msgspec.structs.replace(last, retried=1)
        together = await store.worker_totals(CRAWL)
        assert (together.retried, together.windows, together.slots) == (3, {}, {})

    async def test_decisions_are_kept_once_and_the_last_hundred(self, store: FullStore) -> None:
        """J3: heartbeats bring those since the last one; a repeated heartbeat adds none."""
        decided = tuple(ScalingDecision(float(n), n, n + 1, "more") for n in range(150))
        for start in (0, 0, 60, 120):
            await beat(store, totals=WorkerTotals(decisions=decided[start : start + 60]))

        (view,) = await store.workers(CRAWL)
        assert view.totals.decisions == decided[-MAX_DECISIONS:]

    async def test_sum_keeps_forgotten_workers(self, store: FullStore, clock: FakeClock) -> None:
        """M6: a worker silent for a day is forgotten, what it counted is not."""
        await beat(store, "one", totals=counted(3))
        clock.advance(DAY)
        await beat(store, "two", totals=counted(5))

        assert [name for name, _ in await states(store)] == ["two"]
        assert (await store.worker_totals(CRAWL)).outcomes == {"done": 8}
        clock.advance(1)
        await beat(store, "one", pid=18, totals=counted(1))  # another process of that name
        assert (await store.worker_totals(CRAWL)).outcomes == {"done": 9}
        assert (await store.workers(CRAWL))[1].totals.outcomes == {"done": 1}

    async def test_worker_that_comes_back_is_counted_once(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """M6: a process that could not reach the store for a day is listed as new; it counts on."""
        await beat(store, "one", totals=counted(3))
        clock.advance(DAY)
        await beat(store, "two", totals=counted(5))
        clock.advance(1)
        await beat(store, "one", totals=counted(4))

        assert (await store.worker_totals(CRAWL)).outcomes == {"done": 9}
        two, one = await store.workers(CRAWL)
        assert one.started_at == two.started_at + 1
        assert (one.worker, one.totals.outcomes) == ("one", {"done": 4})

    async def test_names_are_bounded(self, store: FullStore) -> None:
        """M6: however many names a worker invents, sixty-four are kept of it."""
        for start in (0, 60):
            names = {f"n{number}": 1 for number in range(start, start + 60)}
            await beat(store, totals=WorkerTotals(outcomes=names))
        await beat(store, "other", totals=WorkerTotals(outcomes={"much": 1000}))

        first, _ = await store.workers(CRAWL)
        assert len(first.totals.outcomes) == 64
        together = (await store.worker_totals(CRAWL)).outcomes
        assert len(together) == 64
        assert (sum(together.values()), together["much"]) == (1064, 1000)

    @pytest.mark.parametrize(
        "totals",
        [
            WorkerTotals(outcomes={"x" * 65: 1}),
            WorkerTotals(outcomes={f"n{n}": 1 for n in range(65)}),
            WorkerTotals(outcomes={"done": -1}),
            WorkerTotals(refusals={"a\0b": 1}),
            WorkerTotals(latency={"fetch": Histogram({137: 1})}),
            WorkerTotals(gaps=Histogram({1: 1}, float("nan"))),
            WorkerTotals(windows={"fetch": Window({3: 1001})}),
            WorkerTotals(windows={"fetch": Window({137: 1})}),
            WorkerTotals(windows={"fetch": Window({3: 1}, 1.0, float("inf"))}),
            WorkerTotals(windows={f"n{n}": Window() for n in range(17)}),
            WorkerTotals(slots={"busy": -1}),
            WorkerTotals(slots={f"n{n}": 1 for n in range(9)}),
            WorkerTotals(retried=2**53 + 1),
            WorkerTotals(decisions=(ScalingDecision(float("inf"), 1, 2, "x"),)),
            WorkerTotals(decisions=(ScalingDecision(1.0, 1, 2, "x"),) * 101),
        ],
    )
    async def test_unbounded_totals_are_refused(
        self, store: FullStore, totals: WorkerTotals
    ) -> None:
        """N2: before anything is changed."""
        await beat(store, totals=counted(1))
        with pytest.raises(InvalidInput):
            await beat(store, visits=99, totals=totals)

        (view,) = await store.workers(CRAWL)
        assert (view.visits, view.totals) == (40, counted(1))

    @pytest.mark.parametrize(
        "said",
        [
            {"worker": "x" * 1025},
            {"worker": "a\0b"},
            {"worker": "\ud800"},
            {"host": "north\0"},
            {"state": "asleep"},
            {"pid": -1},
            {"visits": 2**70},
            {"lasts": float("inf")},
            {"lasts": -1.0},
        ],
        ids=str,
    )
    async def test_heartbeats_that_no_store_can_keep_are_refused(
        self, store: FullStore, said: dict[str, Any]
    ) -> None:
        """N2: one that was stored could not be read again, nor could those of other workers."""
        await beat(store)
        with pytest.raises(InvalidInput):
            await beat(store, **said)

        assert await states(store) == [("one", "busy")]

    async def test_a_watch_may_end_at_any_time(self, store: FullStore) -> None:
        """C6: a notification is a hint; unsubscribing may be repeated."""
        end = store.subscribe(CRAWL, lambda: None)
        await add(store, "a/1")
        end()
        end()

        assert [lease.url for lease in await claim(store)] == ["https://a.example/1"]
