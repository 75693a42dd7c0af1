"""Conformance of `export`: a restored crawl has the same claims, budgets and delays (I5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any, Final

import msgspec
import pytest

from outrider.core.outcome import Blocked, Done, Dropped, Failed, Outcome, Throttled, Unreachable
from outrider.core.pick import Streak
from outrider.core.queue_action import Pause, Retire, Set, Snooze
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import Lease
from outrider.store.export_items import (
    Saved,
    SavedQueue,
    SavedTask,
)
from outrider.store.protocol import ClaimRequest, FullStore, TaskFilter
from outrider.testing.audit import everything
from outrider.testing.builders import done, rules, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    RETIRED,
    add,
    ask,
    claim,
    configure,
    crawl,
    drained,
    key,
    lease_facts,
    mark,
    names,
    one,
    page,
    queue,
    steer,
    url,
    visit,
)

COPY: Final = "copy"
SAME: Final[tuple[Outcome, ...]] = (
    Done(status=200, seconds=0.3, bytes=500),
    Failed("HTTP 500"),
    Done(status=200, revisit_in=30.0),
    Throttled(retry_after=5.0),
    Done(status=200, crawl_delay=2.0),
    Blocked("challenge"),
    Unreachable("DNS"),
    Dropped("robots"),
)


async def export(store: FullStore, limit: int = 3, name: str = CRAWL) -> list[Saved]:
    """All of an export, by short pages."""
    return await everything(lambda after: store.export(name, after=after, limit=limit))


async def restore(store: FullStore, items: Sequence[Saved], size: int = 4, to: str = COPY) -> int:
    """Take it in by short batches; how many items were new."""
    batches = [items[at : at + size] for at in range(0, len(items), size)]
    return sum([await store.restore(to, batch) for batch in batches])


async def copied(store: FullStore) -> list[Saved]:
    """Export the crawl and restore it beside itself."""
    items = await export(store)
    assert await restore(store, items) == len(items)
    return items


async def portrait(store: FullStore, name: str) -> dict[str, Any]:
    """What two crawls alike show, but for their names."""
    tasks = await everything(lambda at: store.tasks(name, TaskFilter(), after=at, limit=500))
    return {
        "crawl": msgspec.structs.replace(await store.crawl(name), crawl=""),
        "queues": await everything(lambda at: store.queues(name, after=at, limit=500)),
        "tasks": tasks,
        "heat": await store.heatmap(name),
        "census": await everything(lambda at: store.queue_states(name, after=at, limit=500)),
        "places": [await store.position(name, task.number) for task in tasks],
    }


class Pair:
    """The saved crawl and the restored one, taken through the same visits."""

    def __init__(self, store: FullStore, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self.streaks = {CRAWL: Streak(), COPY: Streak()}
        self.outcomes = cycle(SAME)

    async def go_on(self, times: int) -> list[str]:
        """Claim, finish and wait, on both; complain at the first difference."""
        lent: list[str] = []
        for number in range(times):
            (leases, wake_in), other = (
                await self.claim(CRAWL, number),
                await self.claim(COPY, number),
            )
            assert (_facts(leases), wake_in) == (_facts(other[0]), other[1])
            await self.finish(leases, other[0])
            assert await portrait(self.store, CRAWL) == await portrait(self.store, COPY)
            lent += names(leases)
            self.clock.advance(wake_in or 0.1)
        return lent

    async def claim(self, name: str, number: int) -> tuple[list[Lease], float | None]:
        """One to three tasks."""
        request = ClaimRequest(name, "w", 1 + number % 3, streak=self.streaks[name])
        claimed = await self.store.claim(request)
        self.streaks[name] = claimed.streak
        return claimed.leases, claimed.wake_in

    async def finish(self, *both: list[Lease]) -> None:
        """The same outcomes, with one link now and then."""
        for lease, other in zip(*both, strict=True):
            outcome = next(self.outcomes)
            for one_of_both in (lease, other):
                found = page(f"{lease.key[0]}/found-{lease.task}", crawl=one_of_both.crawl)
                links = [found] if lease.task % 4 == 0 else []
                await self.store.finish([verdict(one_of_both, outcome, links=links)])


def _facts(leases: list[Lease]) -> list[dict[str, Any]]:
    facts = [lease_facts(lease) for lease in leases]
    return [fact | {"about": msgspec.structs.replace(fact["about"], crawl="")} for fact in facts]


async def rich_crawl(store: FullStore, clock: FakeClock) -> None:
    """Everything that can be said of queues and tasks, somewhere in it."""
    await configure(store, hold_queues=True, balance=2, total_budget=9, min_delay=0.5)
    for host in "abcdefghijk":
        await add(store, *[f"{host}/{n}" for n in range(4)], tag=f"tag-{host}", depth=2)
        await add(store, f"{host}/article", type="article", lane=1, priority=-1.0)
    await add(
        store,
        "a/meta",
        "b/meta",
        meta=b'{"a":[1,2.5,null]}',
        origin="sitemap",
        via=url("c/0"),
        text="\tas it was given",
        typed_by="types.rules.0",
    )
    await add(store, "c/late", delay=40.0)
    await steer(store, key("d"), Pause())
    await steer(store, key("e"), Retire())
    await steer(store, key("f"), Snooze(20.0))
    await steer(store, key("g"), Set({"precedence": 2, "delay": 3.0, "max_in_flight": 2}))
    await steer(store, ".h.example", Set({"total_budget": 1}))
    await store.drop(CRAWL, TaskFilter(url=url("a/3")), dry_run=False)
    outcomes = cycle(SAME)
    for _ in range(20):
        for lease in await claim(store, 2):
            await store.finish([verdict(lease, next(outcomes))])
        clock.advance(0.7)
    await steer(store, key("l"), Set({"hold_queues": False}))
    await add(store, "m/1", "l/1", "n/1", "m/2", "l/2")
    await store.add_roots(CRAWL, "host", ["a.example", "b.example"])


class SavingConformance:
    """Export, restore, and what comes of both."""

    async def test_a_restored_crawl_continues_as_the_exported_one(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I5: same leases, waits, stats, queues, places and heat, visit by visit."""
        await rich_crawl(store, clock)
        await copied(store)

        assert await portrait(store, CRAWL) == await portrait(store, COPY)
        lent = await Pair(store, clock).go_on(20)

        assert len(lent) > 15

    async def test_the_rich_crawl_is_rich(self, store: FullStore, clock: FakeClock) -> None:
        """What is never saved is not tested."""
        await rich_crawl(store, clock)
        items = await export(store)
        queues = [item for item in items if isinstance(item, SavedQueue)]
        tasks = [item for item in items if isinstance(item, SavedTask)]

        assert {item.standing for item in queues} == {None, "ready", "inactive"}
        assert {item.retired for item in queues} >= {None, "operator", "budget"}
        assert any(item.level for item in queues)
        assert {item.state for item in tasks} == {"pending", "done", "dropped"}
        assert any(item.attempts and item.state == "pending" for item in tasks)
        assert any(item.due for item in tasks)
        assert any(item.text for item in tasks)
        assert any(item.typed_by for item in tasks)

    async def test_later_is_the_same_as_now(self, store: FullStore, clock: FakeClock) -> None:
        """I5: instants stay what they were, however late the crawl is restored."""
        await rich_crawl(store, clock)
        items = await export(store)
        clock.advance(30.0)
        await restore(store, items, size=7)

        assert len(await Pair(store, clock).go_on(10)) > 5

    async def test_dead_letters_come_back_with_their_attempts(self, store: FullStore) -> None:
        """G2: reason, time and history; replayed as any other."""
        await configure(store, delay=0.0, max_retries=0)
        await add(store, "a/1")
        for _ in range(9):
            for lease in await claim(store):
                await store.finish([verdict(lease, Failed("HTTP 500", retry_in=0.0))])
        await copied(store)
        before, after = [await store.task(name, mark("a/1")) for name in (CRAWL, COPY)]

        assert before == after
        assert after is not None
        assert (after.state, len(after.history)) == (TaskState.DEAD, 4)
        assert (await store.replay(COPY, TaskFilter(), dry_run=False)).count == 1
        assert names(await claim(store, crawl=COPY)) == ["a/1"]

    async def test_a_lease_is_saved_as_if_it_were_released(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """H5, E3, D7: pending in its old place, refunded; the visit's end is now."""
        await configure(store, delay=2.0, total_budget=2)
        await add(store, "a/1", "a/2")
        lease = await one(store)
        clock.advance(1.0)
        await copied(store)
        await store.release([lease.id])

        assert await portrait(store, CRAWL) == await portrait(store, COPY)
        assert (await ask(store, crawl=COPY)).wake_in == 2.0
        clock.advance(2.0)
        assert names(await claim(store, crawl=COPY)) == ["a/1"]
        assert (await store.finish([done(lease)]))[0].applied is False

    async def test_a_refund_revives_an_exported_queue(self, store: FullStore) -> None:
        """E3: a lease that used the last of a total no longer does."""
        await configure(store, delay=0.0, max_in_flight=2, total_budget=1)
        await add(store, "a/1", "a/2")
        await one(store)
        assert (await queue(store)).state is QueueState.RETIRED
        await copied(store)

        assert (await store.queue(COPY, key("a"))).spent == 0
        assert names(await claim(store, 2, crawl=COPY)) == ["a/1"]

    async def test_inactive_queues_keep_their_order(self, store: FullStore) -> None:
        """E2: the FIFO, also for those that come later."""
        await configure(store, hold_queues=True, balance=1, **NO_DELAY)
        await add(store, "c/1", "a/1", "b/1", "c/2")
        await copied(store)
        await add(store, "d/1", crawl=COPY)

        lent = [names(await claim(store, crawl=COPY)) for _ in range(5)]
        assert lent == [["c/1"], ["a/1"], ["b/1"], ["d/1"], ["c/2"]]

    async def test_rules_set_at_run_time_come_back(self, store: FullStore) -> None:
        """A4: by key and by suffix, also for queues to come."""
        await configure(store, delay=1.0)
        await steer(store, ".example", Set({"balance": 7}))
        await steer(store, key("z"), Retire())
        await copied(store)

        await add(store, "z/1", crawl=COPY)
        view = await store.queue(COPY, key("z"))
        assert (view.grant, (view.state, view.reason)) == (7, RETIRED)
        assert await store.configure(COPY, (await export(store))[0].rules) is False  # type: ignore[union-attr]

    async def test_settings_come_back(self, store: FullStore) -> None:
        """I5: shared values are exported and restored."""
        await store.configure(CRAWL, rules(), '{"scope": {"mode": "host"}}')
        await add(store, "a/1")
        await copied(store)

        assert await store.settings(COPY) == '{"scope": {"mode": "host"}}'

    async def test_roots_come_back(self, store: FullStore) -> None:
        """A5: what seeds contributed to the scope, in order."""
        await store.add_roots(CRAWL, "host", ["b.example", "a.example"])
        await copied(store)

        assert await store.roots(COPY, "host") == ["b.example", "a.example"]

    async def test_what_was_known_is_known(self, store: FullStore) -> None:
        """B3: in whatever state it is."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        await visit(store)
        await copied(store)

        answers = await add(store, "a/1", "a/2", "a/3", crawl=COPY)
        assert [answer.reason for answer in answers] == ["duplicate", "duplicate", None]
        assert [a.added for a in await add(store, "a/1", crawl=COPY, known="revisit")] == [True]
        assert names(await claim(store, 9, crawl=COPY)) == ["a/2", "a/3", "a/1"]

    @pytest.mark.parametrize("end", [CrawlStatus.PAUSED, CrawlStatus.CANCELLED])
    async def test_a_turned_crawl_stays_turned(self, store: FullStore, end: CrawlStatus) -> None:
        """I1, I3: status, reason and timeline."""
        await add(store, "a/1")
        await store.set_status(CRAWL, end)
        await copied(store)

        assert await portrait(store, CRAWL) == await portrait(store, COPY)
        assert (await crawl(store, COPY)).status is end

    async def test_a_finished_crawl_stays_finished(self, store: FullStore) -> None:
        """I2: until there is work again, and then its next run is the second."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1")
        await drained(store)
        await copied(store)
        before = await crawl(store, COPY)
        await add(store, "a/2", crawl=COPY)
        lease = await one(store, crawl=COPY)
        await store.finish([done(lease)])
        after = await ask(store, crawl=COPY)

        assert (before.status, before.runs) == (CrawlStatus.FINISHED, 1)
        assert after.status is CrawlStatus.FINISHED
        assert (await crawl(store, COPY)).runs == 2

    async def test_a_pause_at_finish_is_remembered(self, store: FullStore) -> None:
        """I2: resumed with nothing freed, it finishes."""
        await configure(store, pause_at_finish=True, **NO_DELAY)
        await add(store, "a/1")
        await drained(store)
        await copied(store)
        await store.set_status(COPY, CrawlStatus.RUNNING)

        assert (await ask(store, crawl=COPY)).status is CrawlStatus.FINISHED

    async def test_an_export_of_what_was_restored_is_the_same(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """I5: nothing is lost on the way, however often."""
        await rich_crawl(store, clock)
        items = await copied(store)
        again = await export(store, limit=5, name=COPY)

        assert msgspec.structs.replace(again[0], crawl=CRAWL) == items[0]
        assert again[1:-1] == items[1:-1]
        assert msgspec.structs.replace(again[-1], logged=0) == (
            msgspec.structs.replace(items[-1], logged=0)
        )
