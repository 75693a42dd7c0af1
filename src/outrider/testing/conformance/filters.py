"""Conformance of task filters: drop, replay and purge in steps, with a dry run (C10, G2)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Failed
from outrider.core.queue_action import Pause
from outrider.core.states import QueueState, TaskState
from outrider.errors import InvalidInput
from outrider.store.protocol import FullStore, Step, TaskFilter
from outrider.testing.builders import done, policy, task
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    claim,
    configure,
    crawl,
    drained,
    finish,
    key,
    mark,
    names,
    one,
    open_crawls,
    page,
    queue,
    record,
    state,
    steer,
    url,
    visit,
)

FILTERS: dict[str, tuple[TaskFilter, set[str]]] = {
    "all": (TaskFilter(), {"a/1", "a/2", "b/1", "b/x"}),
    "key": (TaskFilter(key=key("a")), {"a/1", "a/2"}),
    "suffix": (TaskFilter(key=".example"), {"a/1", "a/2", "b/1", "b/x"}),
    "longer suffix": (TaskFilter(key=".b.example"), {"b/1", "b/x"}),
    "no key": (TaskFilter(key="nobody"), set()),
    "url": (TaskFilter(url=url("a/1")), {"a/1"}),
    "pattern": (TaskFilter(pattern=r"/\d$"), {"a/1", "a/2", "b/1"}),
    "host pattern": (TaskFilter(pattern=r"^https://b\."), {"b/1", "b/x"}),
    "type": (TaskFilter(type="nav"), {"b/x"}),
    "tag": (TaskFilter(tag="t"), {"a/2", "b/1"}),
    "identity": (TaskFilter(fingerprint=mark("b/1")), {"b/1"}),
    "no identity": (TaskFilter(fingerprint=mark("nobody/1")), set()),
    "key and tag": (TaskFilter(key=key("b"), tag="t"), {"b/1"}),
    "type and tag": (TaskFilter(type="nav", tag="t"), set()),
    "age": (TaskFilter(older_than=5.0), {"a/1"}),
    "reason": (TaskFilter(reason="HTTP 500"), set()),
}


async def killed(store: FullStore, *names: str, reason: str = "HTTP 500") -> None:
    """Add pages and let each die of one failure."""
    await add(store, *names, priority=-99.0)
    for _ in names:
        await visit(store, Failed(reason), policy=policy(max_retries=0))


async def drop(store: FullStore, which: TaskFilter) -> int:
    """Drop what matches; how many they were."""
    step = await store.drop(CRAWL, which, dry_run=False)
    assert step.after is None
    return step.count


class FiltersConformance:
    """Dropping, replaying, purging."""

    @pytest.mark.parametrize("filter_", FILTERS)
    async def test_a_filter_matches_every_field_given(
        self, store: FullStore, clock: FakeClock, filter_: str
    ) -> None:
        """C10: key, URL, pattern, type, tag, age, reason, identity; a dry run counts alike."""
        which, gone = FILTERS[filter_]
        await add(store, "a/1")
        clock.advance(5.001)
        await store.add([page("a/2", tag="t"), page("b/1", tag="t"), page("b/x", type="nav")])

        preview = await store.drop(CRAWL, which, dry_run=True)
        assert (await crawl(store)).pending == 4
        assert await store.drop(CRAWL, which, dry_run=False) == preview

        everything = {name: await record(store, name) for name in ("a/1", "a/2", "b/1", "b/x")}
        assert preview.count == len(gone)
        assert {name for name, t in everything.items() if t.state is TaskState.DROPPED} == gone

    async def test_pattern_that_would_backtrack_is_answered(self, store: FullStore) -> None:
        """C10: any pattern takes linear time, in URLs that hosts choose."""
        await add(store, f"a/{'x' * 1000}", "a/xxy")

        assert await drop(store, TaskFilter(pattern="(x+x+)+y")) == 1

    async def test_pattern_that_looks_ahead_is_refused(self, store: FullStore) -> None:
        """C10: nothing is dropped, and the error names the construct."""
        await add(store, "a/1")

        with pytest.raises(InvalidInput, match=r"\(\?!"):
            await drop(store, TaskFilter(pattern="^(?!.*2)"))
        assert (await crawl(store)).pending == 1

    async def test_age_is_counted_since_discovery(self, store: FullStore, clock: FakeClock) -> None:
        """C10: older than, not as old as."""
        await add(store, "a/1")
        clock.advance(5)

        assert await drop(store, TaskFilter(older_than=5.0)) == 0
        clock.advance(0.001)
        assert await drop(store, TaskFilter(older_than=5.0)) == 1

    async def test_dropped_tasks_say_who_dropped_them(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C10: `operator`, and when."""
        await add(store, "a/1")
        clock.advance(3)
        await drop(store, TaskFilter())

        view = await record(store, "a/1")
        assert (view.state, view.reason) == (TaskState.DROPPED, "operator")
        assert (view.finished_at, view.due_at) == (clock.now(), None)
        assert ((await queue(store)).dropped, (await crawl(store)).dropped) == (1, 1)

    async def test_only_pending_tasks_are_dropped(self, store: FullStore) -> None:
        """C10: waiting ones too; those leased, done or dead are left alone."""
        await configure(store, **NO_DELAY)
        await killed(store, "a/dead")
        await add(store, "a/done", "a/leased")
        await visit(store)
        lease = await one(store)
        await add(store, "a/1")
        await add(store, "a/late", delay=60.0)

        assert await drop(store, TaskFilter()) == 2

        view = await crawl(store)
        assert (view.leased, view.done, view.dead, view.dropped) == (1, 1, 1, 2)
        assert (await finish(store, done(lease))).applied

    async def test_a_dropped_task_is_never_leased(self, store: FullStore) -> None:
        """C10: and those behind it move up."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")
        await drop(store, TaskFilter(url=url("a/1")))

        assert names(await claim(store, 9)) == ["a/2", "a/3"]

    async def test_a_dropped_task_speaks_no_longer_for_its_queue(self, store: FullStore) -> None:
        """C3: its queue is compared by what is left."""
        await configure(store, **NO_DELAY)
        await store.add([page("a/1", priority=-9.0), page("a/2", priority=9.0), page("b/1")])
        await drop(store, TaskFilter(url=url("a/1")))

        assert names(await claim(store, 9)) == ["b/1", "a/2"]

    async def test_an_emptied_queue_is_empty(self, store: FullStore) -> None:
        """C1, E2: its session is over; the next task opens another."""
        await configure(store, balance=5, delay=0.0)
        await add(store, "a/1", "a/2")
        await visit(store)
        await drop(store, TaskFilter())
        assert await state(store) == (QueueState.EMPTY, None)

        await add(store, "a/3")

        assert (await queue(store)).balance == 5

    async def test_an_emptied_inactive_queue_loses_its_place(self, store: FullStore) -> None:
        """E1: it could not be served; refilled it is at the back."""
        await configure(store, hold_queues=True, delay=0.0)
        await add(store, "a/1", "b/1")
        await drop(store, TaskFilter(key=key("a")))
        await add(store, "a/2")

        assert await drained(store) == ["b/1", "a/2"]

    async def test_dropping_twice_drops_once(self, store: FullStore) -> None:
        """C10: repeated it finds nothing and changes nothing."""
        await add(store, "a/1")
        await drop(store, TaskFilter())
        before = await record(store, "a/1"), await crawl(store)

        assert await drop(store, TaskFilter()) == 0
        assert before == (await record(store, "a/1"), await crawl(store))

    @pytest.mark.parametrize("verb", ["drop", "replay", "purge"])
    async def test_a_filter_works_in_bounded_steps(self, store: FullStore, verb: str) -> None:
        """C10, G2: a step reads `limit` tasks, and returns the cursor of the next."""
        await configure(store, **NO_DELAY)
        await add(store, "a/0")
        await visit(store)
        if verb == "drop":
            await add(store, "a/1", "a/2", "a/3", "a/4")
        else:
            await killed(store, "a/1", "a/2", "a/3", "a/4")
        act = getattr(store, verb)
        steps: list[Step] = [await act(CRAWL, TaskFilter(), dry_run=False, limit=2)]
        while steps[-1].after is not None:
            steps.append(
                await act(CRAWL, TaskFilter(), dry_run=False, limit=2, after=steps[-1].after)
            )

        assert [step.count for step in steps] == [1, 2, 1]

    async def test_a_cursor_ends_with_the_last_task(self, store: FullStore) -> None:
        """C10: no empty step at the end."""
        await add(store, "a/1", "a/2")

        assert await store.drop(CRAWL, TaskFilter(), dry_run=True, limit=2) == Step(2, None)

    async def test_replay_makes_dead_tasks_pending(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """G2, B2: pending and due, attempts at 0, not finished."""
        await configure(store, delay=0.0)
        await killed(store, "a/1")
        clock.advance(5)

        assert await store.replay(CRAWL, TaskFilter(), dry_run=False) == Step(1, None)

        view = await record(store, "a/1")
        assert (view.state, view.attempts, view.failures) == (TaskState.PENDING, 0, 0)
        assert (view.due_at, view.finished_at) == (clock.now(), None)
        assert (await one(store)).attempt == 1

    async def test_replay_forgives_crashes(self, store: FullStore, clock: FakeClock) -> None:
        """B2: a task that died of its third may crash twice more."""
        await configure(store, delay=0.0, max_crashes=1)
        await add(store, "a/1")
        await one(store)
        clock.advance(60)
        await store.expire(limit=9)
        await store.replay(CRAWL, TaskFilter(), dry_run=False)

        assert (await record(store, "a/1")).crashes == 0

    async def test_replay_keeps_the_place(self, store: FullStore) -> None:
        """C2: the tie is as it was."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await visit(store, Failed("HTTP 500"), policy=policy(max_retries=0))
        await store.replay(CRAWL, TaskFilter(), dry_run=False)

        assert names(await claim(store, 2)) == ["a/1", "a/2"]

    async def test_replay_may_be_previewed_and_filtered(self, store: FullStore) -> None:
        """G2: by reason, and counted before it is done."""
        await configure(store, **NO_DELAY)
        await killed(store, "a/1", "a/2", reason="HTTP 500")
        await killed(store, "a/3", reason="timeout")

        preview = await store.replay(CRAWL, TaskFilter(reason="HTTP 500"), dry_run=True)
        assert ((await crawl(store)).dead, preview.count) == (3, 2)
        await store.replay(CRAWL, TaskFilter(reason="HTTP 500"), dry_run=False)

        assert ((await crawl(store)).dead, (await crawl(store)).pending) == (1, 2)

    async def test_a_filter_for_another_state_finds_nothing(self, store: FullStore) -> None:
        """C10: drop is of pending tasks; asked for others, it drops none."""
        await add(store, "a/1")

        step = await store.drop(CRAWL, TaskFilter(state=TaskState.DONE), dry_run=False)

        assert (step.count, await drained(store)) == (0, ["a/1"])

    async def test_a_dropped_task_that_is_revisited_waits_until_it_is_due(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C6, C10: even if it comes back to the very place it was dropped from."""
        await configure(store, tie="shuffle", **NO_DELAY)
        await add(store, "a/1", priority=5.0, roll=7)
        await add(store, "a/2", priority=1.0, roll=8)
        await store.drop(CRAWL, TaskFilter(url=url("a/1")), dry_run=False)

        await add(store, "a/1", priority=5.0, roll=7, known="revisit", delay=50.0)

        assert await drained(store) == ["a/2"]
        clock.advance(50)
        assert await drained(store) == ["a/1"]

    async def test_replay_touches_dead_tasks_only(self, store: FullStore) -> None:
        """B2: done and dropped ones come back by a revisit; twice is once."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await visit(store)
        await drop(store, TaskFilter())
        await killed(store, "a/3")

        counts = [(await store.replay(CRAWL, TaskFilter(), dry_run=False)).count for _ in range(2)]

        assert counts == [1, 0]

    async def test_replayed_tasks_wait_for_a_claim_to_judge_their_queue(
        self, store: FullStore
    ) -> None:
        """E1: behind the queues that are listed already."""
        await configure(store, hold_queues=True, delay=0.0)
        await killed(store, "a/1")
        await add(store, "b/1")
        await store.replay(CRAWL, TaskFilter(), dry_run=False)
        await add(store, "c/1")

        assert await drained(store) == ["b/1", "c/1", "a/1"]

    async def test_a_finished_lease_stays_finished_after_a_replay(self, store: FullStore) -> None:
        """H3: repeating the deadly finish is True again and kills nothing."""
        await add(store, "a/1")
        lease = await one(store)
        deadly = done(lease)
        await finish(store, deadly)
        await store.replay(CRAWL, TaskFilter(), dry_run=False)

        answer = await finish(store, deadly)

        assert (answer.applied, answer.state) == (True, None)

    async def test_purge_drops_dead_tasks(self, store: FullStore) -> None:
        """G2, B2: with the reason `purged`; the URL stays known."""
        await configure(store, **NO_DELAY)
        await killed(store, "a/1", "a/2")
        await add(store, "a/3")

        preview = await store.purge(CRAWL, TaskFilter(url=url("a/1")), dry_run=True)
        assert ((await crawl(store)).dead, preview.count) == (2, 1)
        await store.purge(CRAWL, TaskFilter(url=url("a/1")), dry_run=False)

        view = await record(store, "a/1")
        assert (view.state, view.reason) == (TaskState.DROPPED, "purged")
        assert ((await crawl(store)).dead, (await crawl(store)).dropped) == (1, 1)
        assert ((await queue(store)).dead, (await queue(store)).dropped) == (1, 1)
        (answer,) = await add(store, "a/1")
        assert answer.reason == "duplicate"

    async def test_a_purged_task_is_not_replayed(self, store: FullStore) -> None:
        """B2: dead → dropped; only a revisit brings it back. Twice is once."""
        await killed(store, "a/1")
        counts = [(await store.purge(CRAWL, TaskFilter(), dry_run=False)).count for _ in range(2)]

        assert counts == [1, 0]
        assert (await store.replay(CRAWL, TaskFilter(), dry_run=False)).count == 0

    async def test_filters_see_paused_queues(self, store: FullStore) -> None:
        """C10: what a person holds back can be dropped, too."""
        await add(store, "a/1")
        await steer(store, key("a"), Pause())

        assert await drop(store, TaskFilter(key=key("a"))) == 1

    async def test_filters_see_one_crawl(self, store: FullStore) -> None:
        """I1: the same URL in another is another task."""
        await open_crawls(store, "x", "y")
        await store.add([task(url("a/1"), crawl=name) for name in ("x", "y")])

        await store.drop("x", TaskFilter(), dry_run=False)

        assert ((await crawl(store, "x")).pending, (await crawl(store, "y")).pending) == (0, 1)
