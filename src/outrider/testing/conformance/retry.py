"""Conformance of retries and revisits: failed, dead, and revisited tasks (G1, G2, G3)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Answer, Blocked, Done, Dropped, Failed, Throttled, Unreachable
from outrider.core.states import TaskState
from outrider.core.task import ACQUISITION
from outrider.store.protocol import FullStore
from outrider.testing.builders import done, policy
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    add,
    ask,
    claim,
    configure,
    crawl,
    finish,
    names,
    one,
    queue,
    record,
    visit,
)


class RetryingConformance:
    """Retries, dead letters, revisits."""

    @pytest.mark.parametrize(("failures", "wait"), [(1, 1.0), (2, 2.0), (3, 4.0)])
    async def test_a_retry_waits(
        self, store: FullStore, clock: FakeClock, failures: int, wait: float
    ) -> None:
        """G1: the verdict's seconds, from the finish on; it holds no slot and no queue."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        for _ in range(failures):
            clock.advance(600)
            await visit(store, Failed("HTTP 500"))

        view = await record(store, "a/1")
        assert view.due_at == clock.now() + wait
        assert (view.attempts, view.failures) == (failures, failures)
        assert (await ask(store)).wake_in == wait
        assert (await queue(store)).in_flight == 0

    async def test_a_task_dies_of_its_failures(self, store: FullStore, clock: FakeClock) -> None:
        """G1, G2: after three retries, kept with every attempt's time, worker and error."""
        await configure(store, delay=0.0)
        await add(store, "a/1", meta=b'{"n":1}')
        times = []
        for reason in ("one", "two", "three", "four"):
            clock.advance(60)
            times.append(clock.now())
            await visit(store, Failed(reason))

        view = await record(store, "a/1")
        assert (view.state, view.reason, view.attempts) == (TaskState.DEAD, "four", 4)
        assert (view.finished_at, view.meta) == (clock.now(), {"n": 1})
        assert [at for at, _, _ in view.history] == times
        assert [(w, e) for _, w, e in view.history] == [
            ("w", "one"),
            ("w", "two"),
            ("w", "three"),
            ("w", "four"),
        ]

    async def test_the_verdict_alone_says_when_to_give_up(self, store: FullStore) -> None:
        """G1: a store knows no policy."""
        await configure(store, max_retries=0)
        await add(store, "a/1", "b/1")
        await visit(store, Failed("HTTP 500"), policy=policy(max_retries=9))
        await visit(store, Failed("HTTP 500"), policy=policy(max_retries=0))

        assert (await record(store, "a/1")).state is TaskState.PENDING
        assert (await record(store, "b/1")).state is TaskState.DEAD

    async def test_success_clears_the_reason(self, store: FullStore, clock: FakeClock) -> None:
        """B1: the last error is gone, the history stays."""
        await add(store, "a/1")
        await visit(store, Failed("HTTP 500"))
        clock.advance(10)
        await visit(store)

        view = await record(store, "a/1")
        assert (view.reason, view.attempts, view.failures) == (None, 2, 1)
        assert [error for _, _, error in view.history] == ["HTTP 500"]

    async def test_a_dropped_task_keeps_its_reason(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """G0: dropped is no failure: nothing in its history, no attempt."""
        await add(store, "a/1")
        await visit(store, Dropped("robots"))

        view = await record(store, "a/1")
        assert (view.state, view.reason, view.attempts) == (TaskState.DROPPED, "robots", 0)
        assert (tuple(view.history), view.finished_at) == ((), clock.now())

    async def test_a_throttled_task_is_due_with_its_queue(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D3: the queue snoozes, the task does not wait beyond it."""
        await add(store, "a/1")
        await visit(store, Throttled(retry_after=50.0))

        assert (await record(store, "a/1")).due_at == clock.now()
        clock.advance(50)
        assert names(await claim(store)) == ["a/1"]

    async def test_an_unreachable_task_is_due_with_its_queue(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D4: likewise."""
        await add(store, "a/1")
        await visit(store, Unreachable("DNS"))

        assert (await record(store, "a/1")).due_at == clock.now()
        clock.advance(30)
        assert names(await claim(store)) == ["a/1"]

    async def test_a_blocked_task_cools_down(self, store: FullStore, clock: FakeClock) -> None:
        """G1: 15 min, then twice that; it counts as an attempt."""
        await add(store, "a/1")
        await visit(store, Blocked("challenge"))

        view = await record(store, "a/1")
        assert (view.due_at, view.attempts, view.failures) == (clock.now() + 900.0, 1, 1)

    async def test_a_visit_may_ask_to_come_again(self, store: FullStore, clock: FakeClock) -> None:
        """G3: pending, as `refresh`, attempts at 0, due when asked; the answer is kept."""
        await add(store, "a/1", type="page", priority=1.0, depth=2)
        lease = await one(store)

        answer = await finish(store, done(lease, revisit_in=3600.0, etag="e"))

        view = await record(store, "a/1")
        assert answer.state is TaskState.PENDING
        assert (view.state, view.type, view.lane) == (TaskState.PENDING, "refresh", "acquisition")
        assert (view.attempts, view.priority, view.precedence) == (0, 27.0, 1)
        assert view.due_at == clock.now() + 3600.0
        assert (view.answer, view.finished_at) == (Answer(200, 0, None, "e", None), clock.now())

    async def test_a_revisit_counts_as_done_and_as_pending(self, store: FullStore) -> None:
        """G3, O5: the visit was one, the task is not at its end."""
        await add(store, "a/1", tag="t")
        await visit(store, Done(status=200, revisit_in=60.0, bytes=7))

        view = await crawl(store)
        assert (view.pending, view.done, view.visits, view.bytes) == (1, 0, 1, 7)
        assert dict(view.types) == {"refresh": {"pending": 1}}
        assert dict(view.tags) == {"t": {"pending": 1}}

    async def test_a_revisit_comes_when_it_is_due(self, store: FullStore, clock: FakeClock) -> None:
        """G3: as its first attempt, in its new lane, with no past."""
        await add(store, "a/1")
        await visit(store, Failed("HTTP 500"))
        clock.advance(10)
        await visit(store, Done(status=200, revisit_in=60.0))
        assert (await ask(store)).wake_in == 60.0
        clock.advance(60)

        lease = await one(store)

        assert (lease.type, lease.about.lane, lease.attempt) == ("refresh", ACQUISITION, 1)
        assert (lease.failures, lease.throttles) == (0, 0)
        assert tuple((await record(store, "a/1")).history) == ()

    async def test_a_revisit_is_behind_its_equals(self, store: FullStore, clock: FakeClock) -> None:
        """C2: it is inserted again."""
        await configure(store, delay=0.0)
        await add(store, "a/1")
        lease = await one(store)
        await add(store, "a/2", lane=ACQUISITION, priority=25.0)
        await finish(store, done(lease, revisit_in=1.0))
        clock.advance(1)

        assert names(await claim(store)) == ["a/2"]

    async def test_a_cached_answer_counts_no_attempt(self, store: FullStore) -> None:
        """D5, E3: done, and refunded."""
        await add(store, "a/1")
        await visit(store, Done(status=200, from_cache=True))

        view = await record(store, "a/1")
        assert (view.state, view.attempts) == (TaskState.DONE, 0)
        assert (await queue(store)).spent == 0
