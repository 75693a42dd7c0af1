"""Conformance of `Inspect`: states, counters, pages, positions, events (C1, D5, E8, O2 to O5)."""

from __future__ import annotations

import pytest

from outrider.core.outcome import Done, Failed
from outrider.core.queue_action import Pause, Retire, Set, Snooze
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import ACQUISITION
from outrider.store.protocol import FullStore, TaskFilter
from outrider.testing.builders import done, dropped, failed, policy, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    claim,
    configure,
    crawl,
    finish,
    key,
    mark,
    named,
    one,
    page,
    queue,
    record,
    state,
    steer,
    throttle,
    url,
    visit,
)
from outrider.testing.invariants import check


class InspectConformance:
    """Views."""

    async def test_a_key_without_tasks_is_an_empty_queue(self, store: FullStore) -> None:
        """E8: under the rules it would have."""
        await configure(store, balance=7, total_budget=70, delay=2.0, max_in_flight=3)

        view = await queue(store)

        assert (view.key, view.state, view.reason) == (key("a"), QueueState.EMPTY, None)
        assert (view.pending, view.in_flight, view.done, view.spent) == (0, 0, 0, 0)
        assert (view.balance, view.grant, view.total_budget) == (0, 7, 70)
        assert (view.delay, view.max_in_flight) == (2.0, 3)
        assert (view.wakes_in, view.next_url, view.last_visit_at) == (None, None, None)
        assert (await store.queues(CRAWL)).items == []

    async def test_a_queue_is_ready(self, store: FullStore) -> None:
        """C1: something is due and nothing is in the way."""
        await add(store, "a/1")

        view = await queue(store)

        assert (view.state, view.reason, view.wakes_in) == (QueueState.READY, None, 0.0)

    async def test_a_queue_is_busy_with_nothing_left_but_visits(self, store: FullStore) -> None:
        """C1: at its limit, or with nothing left but visits."""
        await configure(store, delay=0.0, max_in_flight=2)
        await add(store, "a/1")
        await one(store)

        view = await queue(store)

        assert (view.state, view.wakes_in) == (QueueState.BUSY, None)
        assert (view.pending, view.in_flight) == (0, 1)

    async def test_busy_comes_before_snoozed(self, store: FullStore) -> None:
        """C1: the first that holds."""
        await add(store, "a/1", "a/2")
        await one(store)
        await steer(store, key("a"), Snooze(60.0))

        assert await state(store) == (QueueState.BUSY, None)

    async def test_paused_comes_before_empty(self, store: FullStore) -> None:
        """C1: the first that holds."""
        await add(store, "a/1")
        await visit(store)
        assert await state(store) == (QueueState.EMPTY, None)
        await steer(store, key("a"), Pause())

        assert await state(store) == (QueueState.PAUSED, "operator")

    async def test_an_inactive_queue_could_be_served_now(self, store: FullStore) -> None:
        """C1, E1."""
        await configure(store, hold_queues=True)
        await add(store, "a/1")

        view = await queue(store)

        assert (view.state, view.wakes_in, view.balance) == (QueueState.INACTIVE, 0.0, 0)

    async def test_a_queue_whose_time_has_come_reads_as_ready(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C1: the state is derived; no claim is needed to see it."""
        await add(store, "a/1", delay=10.0)
        assert await state(store) == (QueueState.SNOOZED, "waiting")
        clock.advance(10)

        assert await state(store) == (QueueState.READY, None)

    async def test_delayed_tasks_are_counted(self, store: FullStore, clock: FakeClock) -> None:
        """E8: those not yet due, among the pending."""
        await store.add([page("a/1"), page("a/2", delay=10.0), page("a/3", delay=20.0)])
        seen = []
        for _ in range(3):
            seen.append(((await queue(store)).pending, (await queue(store)).delayed))
            clock.advance(10)

        assert seen == [(3, 2), (3, 1), (3, 0)]

    async def test_the_next_url_is_the_best_that_is_due(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E8: whatever its lane; else the one that is due first."""
        await store.add([page("a/1", delay=20.0, priority=-9.0), page("a/2", delay=10.0)])
        assert (await queue(store)).next_url == url("a/2")
        await store.add([page("a/3", priority=2.0), page("a/4", priority=1.0, lane=ACQUISITION)])
        assert (await queue(store)).next_url == url("a/4")
        clock.advance(20)

        assert (await queue(store)).next_url == url("a/1")

    async def test_a_queue_counts_its_tasks_by_state(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E8: done, dead, dropped; what was spent; the last visit."""
        await configure(store, **NO_DELAY)
        await store.add([page(f"a/{n}", cost=n) for n in (1, 2, 3, 6)])
        first, second, third = await claim(store, 3)
        clock.advance(2)
        await store.finish([done(first, bytes=9), dropped(second)])
        await finish(store, verdict(third, Failed("HTTP 500"), policy=policy(max_retries=0)))

        view = await queue(store)

        assert (view.done, view.dead, view.dropped, view.pending) == (1, 1, 1, 1)
        assert (view.spent, view.last_cost, view.average_cost) == (4, 3, 2.0)
        assert (view.bytes, view.last_visit_at) == (9, clock.now())

    async def test_queues_come_in_pages(self, store: FullStore) -> None:
        """E8: in order of their numbers, with a cursor; `queue_states` has their states only."""
        await add(store, "c/1", "a/1", "b/1")
        await steer(store, key("a"), Pause())

        first = await store.queues(CRAWL, limit=2)
        assert first.after is not None
        second = await store.queues(CRAWL, after=first.after, limit=2)
        census = await store.queue_states(CRAWL, limit=2)
        assert census.after is not None
        rest = await store.queue_states(CRAWL, after=census.after, limit=2)

        assert [view.key for view in first.items] == [key("c"), key("a")]
        assert ([view.key for view in second.items], second.after) == ([key("b")], None)
        assert list(census.items) == [QueueState.READY, QueueState.PAUSED]
        assert (list(rest.items), rest.after) == ([QueueState.READY], None)

    async def test_a_full_last_page_is_the_last(self, store: FullStore) -> None:
        """Inspect: the cursor is None when nothing follows."""
        await add(store, "a/1", "b/1")

        assert (await store.queues(CRAWL, limit=2)).after is None
        assert (await store.queue_states(CRAWL, limit=2)).after is None
        assert (await store.tasks(CRAWL, TaskFilter(), limit=2)).after is None

    async def test_tasks_come_in_pages(self, store: FullStore) -> None:
        """Inspect: `limit` bounds the tasks looked at, so a page may hold fewer."""
        await store.add([page(f"a/{n}", tag="even" if n % 2 == 0 else "odd") for n in range(5)])
        found, after, sizes = [], 0, []
        while True:
            part = await store.tasks(CRAWL, TaskFilter(tag="odd"), after=after, limit=2)
            found += [view.url for view in part.items]
            sizes.append(len(part.items))
            if part.after is None:
                break
            after = part.after

        assert found == [url("a/1"), url("a/3")]
        assert sizes == [1, 1, 0]

    async def test_tasks_may_be_chosen_by_state(self, store: FullStore) -> None:
        """Inspect: as they read, so a cancelled crawl's are dropped."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3")
        await visit(store)
        await one(store)

        chosen = {
            state: [
                view.url[-1] for view in (await store.tasks(CRAWL, TaskFilter(state=state))).items
            ]
            for state in TaskState
        }
        await store.set_status(CRAWL, CrawlStatus.CANCELLED)
        gone = await store.tasks(CRAWL, TaskFilter(state=TaskState.DROPPED))

        assert chosen == {
            TaskState.PENDING: ["3"],
            TaskState.LEASED: ["2"],
            TaskState.DONE: ["1"],
            TaskState.DEAD: [],
            TaskState.DROPPED: [],
        }
        assert [view.url[-1] for view in gone.items] == ["2", "3"]

    async def test_an_unknown_task_is_none(self, store: FullStore) -> None:
        """B3: every URL ever seen has an answer, others none."""
        await add(store, "a/1")

        assert await store.task(CRAWL, mark("a/2")) is None

    async def test_a_place_counts_those_before_it(self, store: FullStore) -> None:
        """O4: within its queue and lane, by the order of C2, due or not."""
        await store.add(
            [
                page("a/1", priority=5.0),
                page("a/2", priority=1.0),
                page("a/3", priority=5.0),
                page("a/4", priority=0.0, delay=60.0),
                page("a/5", priority=-9.0, lane=ACQUISITION),
                page("b/1", priority=-9.0),
            ]
        )

        ahead = [(await store.position(CRAWL, number)).ahead for number in range(1, 7)]

        assert ahead == [2, 1, 3, 0, 0, 0]
        assert (await store.position(CRAWL, 6)).queue == await queue(store, "b")

    async def test_a_task_that_is_not_pending_has_no_position(self, store: FullStore) -> None:
        """O4: no task is ahead of one that is leased or done."""
        await configure(store, **NO_DELAY)
        await store.add([page("a/1", priority=5.0), page("a/2", priority=1.0), page("a/3")])
        await visit(store)
        await one(store)

        ahead = [(await store.position(CRAWL, number)).ahead for number in (1, 2, 3)]

        assert ahead == [0, 0, 0]

    async def test_a_crawl_counts_by_type_and_tag(self, store: FullStore) -> None:
        """I1: by state each; tasks without a tag are in no tag."""
        await configure(store, **NO_DELAY)
        await store.add([page("a/1", type="nav", tag="x"), page("a/2", tag="x"), page("a/3")])
        await visit(store)
        await one(store)

        view = await crawl(store)

        assert view.types == {"nav": {"done": 1}, "page": {"leased": 1, "pending": 1}}
        assert view.tags == {"x": {"done": 1, "leased": 1}}

    async def test_held_tasks_are_pending_tasks(self, store: FullStore) -> None:
        """E5: `pending` includes tasks of retired queues; `held` counts those."""
        await add(store, "a/1", "a/2", "b/1")
        await steer(store, key("a"), Retire())

        view = await crawl(store)

        assert (view.pending, view.held) == (3, 2)

    async def test_the_heatmap_groups_what_is_pending(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """O2: by origin and group, and by depth."""
        kinds = ("article", "hub", "hub-seed", "nav", "page", "refresh")
        await store.add([page(f"a/{kind}", type=kind, depth=n) for n, kind in enumerate(kinds)])
        await store.add([page("b/1", type="nav", origin="sitemap", depth=1)])

        heat = await store.heatmap(CRAWL)

        assert heat.total == 7
        assert heat.cells == {
            "opportunistic": {"article": 1, "hub": 3, "other": 2},
            "sitemap": {"article": 0, "hub": 1, "other": 0},
        }
        assert heat.depth == {"0": 1, "1": 2, "2": 1, "3+": 3, "unknown": 0}
        assert heat.updated_at == clock.now()

    async def test_the_heatmap_follows_every_move(self, store: FullStore) -> None:
        """O2: only pending tasks are hot: not leased, done, dropped; released and retried are."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2", "a/3", "a/4")
        totals = [(await store.heatmap(CRAWL)).total]
        first, second, third = await claim(store, 3)
        totals.append((await store.heatmap(CRAWL)).total)
        await store.finish([done(first), failed(second)])
        await store.release([third.id])
        totals.append((await store.heatmap(CRAWL)).total)
        await store.drop(CRAWL, TaskFilter(url=url("a/3")), dry_run=False)
        totals.append((await store.heatmap(CRAWL)).total)

        assert totals == [4, 1, 3, 2]

    async def test_a_revisit_is_hot_as_what_it_became(self, store: FullStore) -> None:
        """O2, G3: counted under its new type."""
        await add(store, "a/1", type="article", lane=ACQUISITION)
        await visit(store, Done(status=200, revisit_in=60.0))

        assert (await store.heatmap(CRAWL)).cells == {
            "opportunistic": {"article": 0, "hub": 0, "other": 1}
        }

    async def test_changes_are_numbered(self, store: FullStore, clock: FakeClock) -> None:
        """O3: read on from any number, a few at a time."""
        await add(store, "a/1", "b/1")
        await steer(store, key("a"), Retire())
        clock.advance(1)
        await steer(store, key("b"), Retire())
        await claim(store)

        everything = await store.events_since(CRAWL)
        part = await store.events_since(CRAWL, after=1, limit=1)

        assert [(change.sequence, change.name, change.detail) for change in everything] == [
            (1, "queue-retired", "operator"),
            (2, "queue-retired", "operator"),
            (3, "crawl-finished", "run 1"),
        ]
        assert [change.at for change in everything] == [clock.now() - 1, clock.now(), clock.now()]
        assert part == everything[1:2]
        assert await store.events_since(CRAWL, after=3) == []

    async def test_status_changes_of_a_crawl_are_events(self, store: FullStore) -> None:
        """O3: pauses, resumptions, ends."""
        await add(store, "a/1")
        for status in (CrawlStatus.PAUSED, CrawlStatus.RUNNING, CrawlStatus.CANCELLED):
            await store.set_status(CRAWL, status, "me")

        assert [(c.name, c.subject, c.detail) for c in await store.events_since(CRAWL)] == [
            ("crawl-paused", CRAWL, "me"),
            ("crawl-running", CRAWL, "me"),
            ("crawl-cancelled", CRAWL, "me"),
        ]

    async def test_a_leased_task_shows_its_worker(self, store: FullStore) -> None:
        """B1: not before, not after."""
        await add(store, "a/1")
        before = (await record(store, "a/1")).worker
        lease = await one(store, worker="w1")
        during = (await record(store, "a/1")).worker
        await finish(store, done(lease))

        assert (before, during, (await record(store, "a/1")).worker) == (None, "w1", None)

    @pytest.mark.parametrize("status", [None, CrawlStatus.PAUSED, CrawlStatus.CANCELLED])
    async def test_reports_add_up(
        self, store: FullStore, clock: FakeClock, status: CrawlStatus | None
    ) -> None:
        """O5: known = pending + leased + done + dead + dropped, by type, tag, queue and task."""
        await configure(store, delay=0.0, max_in_flight=2, total_budget=9)
        await store.add([page(f"{h}/{n}", tag=h, depth=n) for h in "abc" for n in range(6)])
        for rounds in range(4):
            leases = await claim(store, 5, lease_for=5.0)
            await store.finish([done(leases[0]), failed(leases[1]), dropped(leases[2])])
            await store.release([leases[3].id])
            clock.advance(3 * rounds)
            await check(store, CRAWL)
        await store.drop(CRAWL, TaskFilter(key=key("b")), dry_run=False)
        await steer(store, key("c"), Retire())
        if status:
            await store.set_status(CRAWL, status)

        await check(store, CRAWL)

    async def test_reading_changes_nothing(self, store: FullStore, clock: FakeClock) -> None:
        """Inspect: however often, whatever is asked."""
        await add(store, "a/1", "a/2", "b/1", delay=1.0)
        clock.advance(1)
        await visit(store, Failed("HTTP 500"))

        async def everything() -> list[object]:
            number = (await record(store, "a/2")).number
            return [
                await crawl(store),
                (await store.queues(CRAWL)).items,
                (await store.tasks(CRAWL, TaskFilter())).items,
                await store.position(CRAWL, number),
                await store.heatmap(CRAWL),
                await store.events_since(CRAWL),
                (await store.queue_states(CRAWL)).items,
            ]

        assert await everything() == await everything()


class UpcomingConformance:
    """What is next in a queue."""

    async def test_upcoming_lists_due_tasks_in_order(self, store: FullStore) -> None:
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

    async def test_upcoming_lists_no_delayed_tasks(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C6: until they are, though the queue was not rescheduled since."""
        await throttle(store, "a/0", "a/2")
        await add(store, "a/1", priority=-1.0, delay=5.0)
        before = await store.upcoming(CRAWL, key("a"))
        clock.advance(5)
        after = await store.upcoming(CRAWL, key("a"))

        assert [task.fingerprint for task in before] == [mark("a/0"), mark("a/2")]
        assert [task.fingerprint for task in after] == [mark("a/1"), mark("a/0"), mark("a/2")]

    async def test_upcoming_lists_no_leased_tasks(self, store: FullStore) -> None:
        """H1: neither by name nor otherwise."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", "a/3")
        await one(store)
        await named(store, "a/2")

        found = await store.upcoming(CRAWL, key("a"))
        assert [task.fingerprint for task in found] == [mark("a/3")]

    async def test_upcoming_of_a_long_queue_is_in_order(self, store: FullStore) -> None:
        """C2: however many wait behind them."""
        wanted = [f"a/{number}" for number in range(400)]
        for number, name in enumerate(wanted):
            await add(store, name, priority=float(number * 7 % 400))
        order = sorted(range(400), key=lambda number: number * 7 % 400)
        found = await store.upcoming(CRAWL, key("a"), limit=100)

        assert [task.fingerprint for task in found] == [mark(wanted[n]) for n in order[:100]]

    async def test_upcoming_of_an_unknown_queue_is_empty(self, store: FullStore) -> None:
        """I1: neither a queue nor a crawl; and asking makes none."""
        assert await store.upcoming(CRAWL, key("a")) == []
        assert await store.upcoming("nobody", key("a")) == []
        assert await store.crawls() == [CRAWL]

    async def test_upcoming_lists_tasks_of_paused_queues(self, store: FullStore) -> None:
        """E8: it only reads; keys are hosts, in lower case."""
        await add(store, "a/1")
        await steer(store, key("a"), Set({"paused": True}))

        assert [task.url for task in await store.upcoming(CRAWL, "A.example")] == [
            "https://a.example/1"
        ]
