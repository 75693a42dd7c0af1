"""Conformance of crawls: running, paused, finished, run by run, beside others (I1, I2)."""

from __future__ import annotations

from outrider.core.outcome import Done, Failed
from outrider.core.queue_action import Pause, Resume, Retire, Revive, Set
from outrider.core.states import CrawlStatus, QueueState
from outrider.store.protocol import (
    FullStore,
    PriorityUpdate,
    SharedValueWrite,
    Step,
    TaskFilter,
)
from outrider.testing.builders import done, policy, rules
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    add,
    ask,
    claim,
    configure,
    crawl,
    drained,
    finish,
    key,
    names,
    one,
    open_crawls,
    page,
    status,
    steer,
    visit,
)

RUNNING, PAUSED = CrawlStatus.RUNNING, CrawlStatus.PAUSED
FINISHED, CANCELLED = CrawlStatus.FINISHED, CrawlStatus.CANCELLED


async def finished(store: FullStore) -> None:
    """Bring the crawl, with one page done, to its end."""
    await add(store, "a/1")
    await visit(store)
    assert (await ask(store)).status is FINISHED


class CrawlConformance:
    """Runs and pauses."""

    async def test_a_crawl_is_created_by_opening_it(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I1: listed in the order of their creation."""
        await store.configure("y", rules())
        clock.advance(5)
        await store.configure("x", rules())
        await store.configure("y", rules())

        assert await store.crawls() == [CRAWL, "y", "x"]
        assert (await crawl(store, "x")).created_at == clock.now()
        assert (await crawl(store, "y")).status is RUNNING

    async def test_a_crawl_may_be_opened_only_if_it_is_new(self, store: FullStore) -> None:
        """I1: or only if it is known; any other is left alone."""
        await store.configure("x", rules(balance=7), "seven", only="known")
        assert await store.crawls() == [CRAWL]

        await store.configure("x", rules(balance=8), "eight", only="new")
        await store.configure("x", rules(balance=9), "nine", only="new")
        assert (await store.settings("x"), (await store.queue("x", "a")).grant) == ("eight", 8)

        await store.configure("x", rules(balance=10), "ten", only="known")
        assert (await store.settings("x"), (await store.queue("x", "a")).grant) == ("ten", 10)

    async def test_only_opening_and_restoring_create_a_crawl(self, store: FullStore) -> None:
        """I1: an add is refused as by a cancelled crawl; acts and values change nothing."""
        added = await store.add([page("a/1", crawl="x"), page("a/2", crawl="x"), page("a/1")])
        assert [one.reason for one in added] == ["cancelled", "cancelled", None]

        for act in (Pause(), Set({"delay": 5.0})):
            assert await store.steer("x", key("a"), act, by="ann") == Step(0, None)
        assert await store.set_status("x", PAUSED, by="ann") is CANCELLED
        for change in (store.drop, store.replay, store.purge, store.forget):
            assert await change("x", TaskFilter(), dry_run=False, by="ann") == Step(0, None)
        assert await store.update_priorities("x", [PriorityUpdate(1, 0.0, 1.0)]) == 0
        values = [SharedValueWrite("t", name, "x") for name in "ab"]
        assert await store.put_values("x", values) == [0, 0]
        await store.add_roots("x", "host", ["a.example"])

        assert await store.crawls() == [CRAWL]
        assert (await store.values_since("x"), await store.roots("x", "host")) == ([], [])
        assert (await store.add([page("a/1", crawl="x")]))[0].reason == "cancelled"

    async def test_reading_opens_no_crawl(self, store: FullStore) -> None:
        """I1: a crawl that does not exist is shown as empty and cancelled, and is not created."""
        view = await crawl(store, "nobody")
        page_ = await store.tasks("nobody", TaskFilter())

        assert (view.known, list(page_.items)) == (0, [])
        assert (view.status, view.reason, list(view.timeline)) == (CANCELLED, "unknown", [])
        assert await store.crawls() == [CRAWL]

    async def test_an_operator_cannot_finish_a_crawl(self, store: FullStore) -> None:
        """I2: only a claim closes a run."""
        await add(store, "a/1")

        assert await store.set_status(CRAWL, FINISHED) is RUNNING
        assert (await crawl(store)).runs == 0

    async def test_a_cancelled_crawls_tasks_are_found_as_they_read(self, store: FullStore) -> None:
        """I3: by the state and the reason that a reader sees."""
        await add(store, "a/1", "a/2")
        await store.set_status(CRAWL, CANCELLED)

        by_reason = await store.tasks(CRAWL, TaskFilter(reason="cancelled"))

        assert len(by_reason.items) == 2

    async def test_a_crawl_that_never_had_a_task_is_not_finished(self, store: FullStore) -> None:
        """I2: it waits for its first."""
        await configure(store)

        assert (await ask(store)).status is RUNNING

    async def test_only_a_claim_closes_a_run(self, store: FullStore, clock: FakeClock) -> None:
        """I2: the last finish does not; the next claim does, and says when."""
        await add(store, "a/1")
        await visit(store)
        assert (await crawl(store)).status is RUNNING
        clock.advance(3)

        claimed = await ask(store)

        assert (claimed.status, claimed.leases, claimed.wake_in) == (FINISHED, [], None)
        view = await crawl(store)
        assert (view.runs, view.finished_at) == (1, clock.now())
        assert await status(store) == (FINISHED, "run 1")

    async def test_a_run_finishes_once(self, store: FullStore) -> None:
        """I2: later claims find it finished and close nothing."""
        await finished(store)
        for _ in range(3):
            assert (await ask(store)).status is FINISHED

        events = [
            change for change in await store.events_since(CRAWL) if change.name == "crawl-finished"
        ]
        assert [(event.subject, event.detail) for event in events] == [(CRAWL, "run 1")]
        assert (await crawl(store)).runs == 1

    async def test_end_of_a_run_reports_counts_by_state(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I2, O3: what the run left; a later run counts the tasks of the crawl so far."""
        await configure(store, delay=0.0)
        await add(store, "a/1", "a/2", "b/1", "c/1", "d/1", "d/2")
        await visit(store)
        await visit(store, Failed("HTTP 500"), policy=policy(max_retries=0))
        await store.drop(CRAWL, TaskFilter(key=key("c")), dry_run=False)
        await steer(store, key("d"), Retire())
        clock.advance(1)
        await drained(store)
        await add(store, "b/2")
        await drained(store)

        log = await store.events_since(CRAWL)
        first = {"known": 6, "done": 2, "dead": 1, "dropped": 1, "held": 2, "visits": 3}
        assert [event.counts for event in log if event.name == "crawl-finished"] == [
            first,
            {**first, "known": 7, "done": 3, "visits": 4},
        ]
        assert all(event.counts == {} for event in log if event.name != "crawl-finished")

    async def test_end_of_a_run_counts_task_that_died_in_the_same_claim(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I2, H4: the claim that finds the last lease overdue ends the run."""
        await configure(store, delay=0.0, max_crashes=1)
        await add(store, "a/1")
        await one(store, lease_for=5.0)
        clock.advance(10)
        assert (await ask(store)).status is FINISHED

        (event,) = [one for one in await store.events_since(CRAWL) if one.counts]
        assert (event.counts["dead"], event.counts["visits"]) == (1, (await crawl(store)).visits)

    async def test_a_leased_task_keeps_a_crawl_open(self, store: FullStore) -> None:
        """I2: nothing is leased anywhere, or it is not finished."""
        await add(store, "a/1")
        await one(store)

        assert (await ask(store)).status is RUNNING

    async def test_a_waiting_task_keeps_a_crawl_open(self, store: FullStore) -> None:
        """I2: retries and revisits to come count."""
        await add(store, "a/1", "b/1", "c/1")
        await visit(store, Failed("HTTP 500"))
        await visit(store, Done(status=200, revisit_in=3600.0))
        await visit(store)

        assert (await ask(store)).status is RUNNING

    async def test_a_paused_queue_keeps_a_crawl_open(self, store: FullStore) -> None:
        """I2: paused queues count; when resumed, the crawl continues."""
        await add(store, "a/1")
        await steer(store, key("a"), Pause())
        assert (await ask(store)).status is RUNNING
        await steer(store, key("a"), Resume())

        assert await drained(store) == ["a/1"]

    async def test_a_retired_queue_does_not_hold_up_a_crawl(self, store: FullStore) -> None:
        """I2, E5: whatever is pending in it."""
        await add(store, "a/1", "b/1", "b/2")
        await steer(store, key("b"), Retire())
        await visit(store)

        assert (await ask(store)).status is FINISHED
        assert (await crawl(store)).held == 2

    async def test_a_crawl_may_finish_with_nothing_but_retired_queues(
        self, store: FullStore
    ) -> None:
        """I2: the claim that retires the last one closes the run."""
        await configure(store, total_budget=0)
        await add(store, "a/1")

        assert (await ask(store)).status is FINISHED

    async def test_a_crawl_finishes_when_all_is_dropped(self, store: FullStore) -> None:
        """I2: nothing pending is left, however it went."""
        await add(store, "a/1", "a/2")
        await store.drop(CRAWL, TaskFilter(), dry_run=False)

        assert (await ask(store)).status is FINISHED

    async def test_an_added_task_opens_the_next_run(self, store: FullStore) -> None:
        """I2: the crawl runs again, and its end has the next number."""
        await finished(store)
        await add(store, "b/1")
        assert await status(store) == (RUNNING, "work")
        await visit(store)

        assert (await ask(store)).status is FINISHED
        assert ((await crawl(store)).runs, (await crawl(store)).reason) == (2, "run 2")

    async def test_a_task_added_to_a_retired_queue_opens_a_run(self, store: FullStore) -> None:
        """I2: it runs, and the next claim ends it again."""
        await finished(store)
        await steer(store, key("b"), Retire())

        await add(store, "b/1")

        assert (await crawl(store)).status is RUNNING
        assert (await ask(store)).status is FINISHED
        assert (await crawl(store)).runs == 2

    async def test_a_refused_task_opens_nothing(self, store: FullStore) -> None:
        """I2: a duplicate or a full queue brings no work."""
        await configure(store, max_pending=1, **NO_DELAY)
        await add(store, "a/1", "b/1")
        await visit(store)
        await ask(store)

        await add(store, "a/1")

        assert (await crawl(store)).status is FINISHED

    async def test_a_revisit_opens_a_run(self, store: FullStore) -> None:
        """I2, B3."""
        await finished(store)

        await add(store, "a/1", known="revisit")

        assert await status(store) == (RUNNING, "work")

    async def test_a_replay_opens_a_run(self, store: FullStore) -> None:
        """I2, G2: unless it was but a preview."""
        await add(store, "a/1")
        await visit(store, Failed("HTTP 500"), policy=policy(max_retries=0))
        await ask(store)
        await store.replay(CRAWL, TaskFilter(), dry_run=True)
        assert (await crawl(store)).status is FINISHED

        await store.replay(CRAWL, TaskFilter(), dry_run=False)

        assert await status(store) == (RUNNING, "work")

    async def test_a_queue_returned_with_tasks_opens_a_run(self, store: FullStore) -> None:
        """I2: revived, or with a larger budget; without pending tasks it does not."""
        await configure(store, total_budget=1, delay=0.0)
        await add(store, "a/1", "a/2", "b/1")
        await steer(store, key("b"), Retire())
        await store.drop(CRAWL, TaskFilter(key=key("b")), dry_run=False)
        await drained(store)
        await ask(store)

        await steer(store, key("b"), Revive())
        assert (await crawl(store)).status is FINISHED
        await steer(store, key("a"), Set({"total_budget": 5}))

        assert await status(store) == (RUNNING, "work")
        assert await drained(store) == ["a/2"]

    async def test_a_finished_crawl_takes_changes_of_budget(self, store: FullStore) -> None:
        """I2: an act that frees nothing opens nothing."""
        await finished(store)
        for act in (Set({"balance": 5}), Pause(), Resume(), Retire(), Revive()):
            await steer(store, key("a"), act)

        assert (await crawl(store)).status is FINISHED

    async def test_pause_at_finish_pauses_instead(self, store: FullStore) -> None:
        """I2: with the reason `finish`, and no run is closed."""
        await configure(store, pause_at_finish=True)
        await add(store, "a/1")
        await visit(store)

        assert (await ask(store)).status is PAUSED
        assert await status(store) == (PAUSED, "finish")
        assert ((await crawl(store)).runs, (await crawl(store)).finished_at) == (0, None)

    async def test_resumed_with_nothing_freed_it_finishes(self, store: FullStore) -> None:
        """I2: pause_at_finish pauses once a run."""
        await configure(store, pause_at_finish=True)
        await add(store, "a/1")
        await visit(store)
        await ask(store)
        await store.set_status(CRAWL, RUNNING)

        assert (await ask(store)).status is FINISHED
        assert (await crawl(store)).runs == 1

    async def test_resumed_with_work_it_pauses_again(self, store: FullStore) -> None:
        """I2: whatever was freed starts a new run, which pauses at its own finish."""
        await configure(store, pause_at_finish=True, **NO_DELAY)
        await add(store, "a/1")
        await visit(store)
        await ask(store)
        await add(store, "a/2")
        assert (await crawl(store)).status is PAUSED
        await store.set_status(CRAWL, RUNNING)
        assert await drained(store) == ["a/2"]

        assert await status(store) == (PAUSED, "finish")

    async def test_every_run_pauses_at_its_finish(self, store: FullStore) -> None:
        """I2: the second run as the first."""
        await configure(store, pause_at_finish=True, **NO_DELAY)
        seen = []
        for name in ("a/1", "a/2"):
            await add(store, name)
            await visit(store)
            seen.append((await ask(store)).status)
            await store.set_status(CRAWL, RUNNING)
            seen.append((await ask(store)).status)

        assert seen == [PAUSED, FINISHED, PAUSED, FINISHED]
        assert (await crawl(store)).runs == 2

    async def test_a_crawl_that_stays_open_does_not_finish(self, store: FullStore) -> None:
        """I2: with `stay_open` it neither finishes nor pauses, and an add is leased at once."""
        await configure(store, stay_open=True, pause_at_finish=True, **NO_DELAY)
        await add(store, "a/1")
        await visit(store)

        claimed = await ask(store)
        assert (claimed.leases, claimed.wake_in, claimed.status) == ([], None, RUNNING)
        view = await crawl(store)
        assert (view.status, view.runs, view.finished_at) == (RUNNING, 0, None)
        assert len(view.timeline) == 0
        await add(store, "a/2")
        assert names(await claim(store)) == ["a/2"]

    async def test_a_crawl_opened_for_good_finishes_when_that_is_undone(
        self, store: FullStore
    ) -> None:
        """I2: without `stay_open`, the next claim ends the run."""
        await configure(store, stay_open=True)
        await add(store, "a/1")
        await visit(store)
        assert (await ask(store)).status is RUNNING

        await configure(store)

        assert (await ask(store)).status is FINISHED
        assert (await crawl(store)).runs == 1

    async def test_a_finished_crawl_stays_finished_until_work_comes(self, store: FullStore) -> None:
        """I2: `stay_open` opens no run by itself, and keeps the next one open."""
        await finished(store)
        await configure(store, stay_open=True)
        assert (await ask(store)).status is FINISHED

        await add(store, "b/1")
        await visit(store)

        assert (await ask(store)).status is RUNNING

    async def test_a_crawl_that_stays_open_pauses_at_its_limits(self, store: FullStore) -> None:
        """I4: it stays open for work, not beyond its limits."""
        await configure(store, stay_open=True, limits={"done": 1})
        await add(store, "a/1")
        await visit(store)

        assert await status(store) == (PAUSED, "limit-done")

    async def test_a_paused_crawl_leases_no_task(self, store: FullStore) -> None:
        """I1: until it is resumed; adds are taken."""
        await add(store, "a/1")

        assert await store.set_status(CRAWL, PAUSED, "lunch") is PAUSED
        claimed = await ask(store)
        (answer,) = await add(store, "b/1")

        assert (claimed.leases, claimed.wake_in, claimed.status) == ([], None, PAUSED)
        assert await status(store) == (PAUSED, "lunch")
        assert answer.added
        assert await store.set_status(CRAWL, RUNNING) is RUNNING
        assert names(await claim(store, 2)) == ["a/1", "b/1"]

    async def test_a_paused_crawl_does_not_finish(self, store: FullStore) -> None:
        """I2: a run is closed by a claim of a running crawl."""
        await add(store, "a/1")
        await visit(store)
        await store.set_status(CRAWL, PAUSED)

        assert (await ask(store)).status is PAUSED
        assert (await crawl(store)).runs == 0

    async def test_an_illegal_move_changes_nothing(self, store: FullStore) -> None:
        """B2, I1: and the answer is the status as it is."""
        await add(store, "a/1")
        assert await store.set_status(CRAWL, RUNNING) is RUNNING
        await visit(store)
        await ask(store)
        before = await crawl(store)

        assert await store.set_status(CRAWL, RUNNING) is FINISHED
        assert await store.set_status(CRAWL, PAUSED) is FINISHED
        assert await crawl(store) == before

    async def test_pausing_twice_is_pausing_once(self, store: FullStore) -> None:
        """I1: repeated without harm."""
        await add(store, "a/1")
        await store.set_status(CRAWL, PAUSED, "first")
        before = await crawl(store)

        assert await store.set_status(CRAWL, PAUSED, "second") is PAUSED
        assert await crawl(store) == before

    async def test_crawls_do_not_touch_each_other(self, store: FullStore, clock: FakeClock) -> None:
        """I1: not their queues, politeness, budgets, settings, or ends."""
        await open_crawls(store, "y")
        await store.configure("x", rules(balance=7))
        await store.add([page(name, crawl=c) for c in ("x", "y") for name in ("a/1", "a/2")])
        await store.steer("x", key("a"), Set({"delay": 60.0}))
        lease = await one(store, crawl="x")
        assert names(await claim(store, crawl="y")) == ["a/1"]
        await finish(store, done(lease))
        await store.set_status("x", CANCELLED)
        clock.advance(1)

        views = [await store.queue(name, key("a")) for name in ("x", "y")]

        assert [view.spent for view in views] == [1, 1]
        assert [view.delay for view in views] == [60.0, 1.0]
        assert [view.grant for view in views] == [7, 3000]
        assert [view.state for view in views] == [QueueState.EMPTY, QueueState.BUSY]
        assert (await crawl(store, "y")).status is RUNNING
        assert (await crawl(store, "y")).leased == 1

    async def test_a_token_is_good_for_its_own_crawl(self, store: FullStore) -> None:
        """H3: the same task number in another crawl is another task."""
        await open_crawls(store, "x", "y")
        await store.add([page("a/1", crawl=name) for name in ("x", "y")])
        lease = await one(store, crawl="x")
        await one(store, crawl="y")

        assert await store.release([lease.id._replace(crawl="y", token=lease.token + 99)]) == set()
        assert ((await crawl(store, "x")).leased, (await crawl(store, "y")).leased) == (1, 1)

    async def test_the_timeline_has_every_status_change(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I1: when, to which status, and why."""
        start = clock.now()
        await finished(store)
        for way in ("b/1", PAUSED, RUNNING, CANCELLED):
            clock.advance(1)
            if isinstance(way, CrawlStatus):
                await store.set_status(CRAWL, way, "me")
            else:
                await add(store, way)

        assert [tuple(entry) for entry in (await crawl(store)).timeline] == [
            (start, "finished", "run 1"),
            (start + 1, "running", "work"),
            (start + 2, "paused", "me"),
            (start + 3, "running", "me"),
            (start + 4, "cancelled", "me"),
        ]
