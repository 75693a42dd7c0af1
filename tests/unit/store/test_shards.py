"""The sharded store: shards that disagree, that fail between two calls, and many workers."""

import asyncio
import random
from zlib import crc32

import pytest
from msgspec.structs import replace

from model_shard import ModelShard, sharded_model
from outrider.core.queue_action import Retire, Revive
from outrider.core.states import CrawlStatus
from outrider.errors import InvalidInput, StoreUnavailable
from outrider.store.delete_crawl import delete_crawl
from outrider.store.export_items import SavedTask
from outrider.store.protocol import (
    ClaimRequest,
    CursorPage,
    PriorityUpdate,
    SharedValueWrite,
    TaskFilter,
)
from outrider.store.shards import ShardedStore
from outrider.store.shards.ordered_pages import OrderedCursors, merge_pages
from outrider.store.shards.shard_set import global_number, shard_of, split_number
from outrider.testing.audit import everything
from outrider.testing.builders import done, rules, task
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import (
    CRAWL,
    add,
    ask,
    claim,
    configure,
    crawl,
    names,
    one,
    page,
    pages,
    status,
)
from outrider.testing.invariants import check
from outrider.testing.model import Model

RUNNING, FINISHED = CrawlStatus.RUNNING, CrawlStatus.FINISHED
COUNT = 3


def host_at(shard, count=COUNT):
    """Return a host whose queue is on that shard."""
    return next(
        h for h in map("host{}".format, range(1000)) if shard_of(f"{h}.example", count) == shard
    )


HOME, NEAR, FAR = (host_at(shard) for shard in range(COUNT))


@pytest.fixture
def clock():
    """A clock that only the test moves."""
    return FakeClock()


async def ordered(store, order, limit, prefix=""):
    """Return keys and wake times in an order, read in pages of that size."""
    found, after, cursors = [], "", []
    while after is not None:
        part = await store.queues_in_order(CRAWL, order, prefix=prefix, after=after, limit=limit)
        assert len(part.items) <= limit
        found += [(view.key, view.wakes_in) for view in part.items]
        cursors += part.cursors
        after = part.after
    return found, cursors


async def test_queues_of_all_shards_are_listed_in_one_order(clock):
    """E8: every queue once, also where many have one wake time; from every cursor on."""
    store = sharded_model(clock, COUNT)
    await configure(store)
    dice = random.Random(3)
    await store.add([page(f"h{n}/1", delay=float(dice.randint(1, 4))) for n in range(40)])

    keys, _ = await ordered(store, "key", 1000)
    wakes, cursors = await ordered(store, "wake", 1000)

    assert [key for key, _ in keys] == sorted(f"h{n}.example" for n in range(40))
    assert [wait for _, wait in wakes] == sorted(wait for _, wait in wakes)
    assert sorted(wakes) == sorted(keys)
    for limit in (1, 2, 7):
        assert await ordered(store, "key", limit) == await ordered(store, "key", 1000)
        assert await ordered(store, "wake", limit) == (wakes, cursors)
    for place, cursor in enumerate(cursors, 1):
        rest = await store.queues_in_order(CRAWL, "wake", after=cursor)
        assert [(view.key, view.wakes_in) for view in rest.items] == wakes[place:]


def test_page_ends_where_the_first_shard_stopped():
    """E8: a shard may return less than it has, and what follows there must not be passed over."""
    pages = [
        CursorPage(["a", "d"], [">a", ">d"], None),
        CursorPage(["b"], [">b"], ">b"),
        CursorPage([], [], None),
    ]

    merged = merge_pages(pages, OrderedCursors("key"), 10)

    assert merged == CursorPage(["a", "b"], [">a", ">b"], ">b")
    nothing = CursorPage([], [], "")  # its keys are being sorted
    assert merge_pages([*pages, nothing], OrderedCursors("key"), 10) == nothing


async def test_links_are_looked_up_one_by_one_only_where_identities_have_no_url(clock):
    """B3: elsewhere there is no copy to make way, and a look-up would cost a call per link."""
    shards, asked = [ModelShard(clock) for _ in range(COUNT)], []
    for shard in shards:
        shard.task = counted(shard.task, asked)
    store = ShardedStore(shards)
    links = [page(f"{host}/1", known="set") for host in "abcd"]

    await configure(store)
    await store.add(links)
    assert asked == []
    await store.add([task("", key="(no-url)", fingerprint=bytes(16), done=True)])
    await store.add(links)
    assert len(asked) == len(links)


def counted(call, asked):
    """Return a call that notes its arguments in a list."""

    async def noted(*arguments):
        asked.append(arguments)
        return await call(*arguments)

    return noted


class Fickle(ModelShard):
    """A shard that runs a callback, or fails, before the calls a test names."""

    def __init__(self, clock):
        super().__init__(clock)
        self.before = {}

    async def _first(self, verb):
        wanted = self.before.pop(verb, None)
        if wanted is not None:
            await wanted()

    async def claim(self, request, *, closes=True):  # noqa: D102 - as its parent
        await self._first("claim")
        return await super().claim(request, closes=closes)

    async def summary(self, crawl):  # noqa: D102 - as its parent
        await self._first("summary")
        return await super().summary(crawl)

    async def finish(self, verdicts):  # noqa: D102 - as its parent
        await self._first("finish")
        return await super().finish(verdicts)

    async def apply_totals(self, crawl, totals, end):  # noqa: D102 - as its parent
        if end is not None:
            await self._first("apply_totals")
        return await super().apply_totals(crawl, totals, end)

    async def start_run(self, crawl, by=""):  # noqa: D102 - as its parent
        await self._first("start_run")
        await super().start_run(crawl, by)

    async def set_status(  # noqa: D102 - as its parent
        self, crawl, status, reason="operator", *, by=""
    ):
        await self._first("set_status")
        return await super().set_status(crawl, status, reason, by=by)

    async def restore(self, crawl, saved):  # noqa: D102 - as its parent
        await self._first("restore")
        return await super().restore(crawl, saved)


async def gone():
    """Raise what a dead server raises."""
    raise StoreUnavailable("gone")


@pytest.fixture
def shards(clock):
    """The shards themselves, to make them fail."""
    return [Fickle(clock) for _ in range(COUNT)]


@pytest.fixture
async def store(shards):
    """One store over them; its views are checked after the test."""
    store = ShardedStore(shards)
    await configure(store, delay=0.0)
    yield store
    for name in await store.crawls():
        await check(store, name)


async def ends(store):
    """Return the details of the events that ended runs."""
    return [c.detail for c in await store.events_since(CRAWL) if c.name == "crawl-finished"]


async def drain(store):
    """Visit all tasks."""
    while leases := await claim(store):
        await store.finish([done(lease) for lease in leases])


def test_key_keeps_its_shard():
    """Another release must look for a queue where this one stored it."""
    assert [shard_of(f"host{n}.example", 16) for n in range(8)] == [10, 2, 4, 11, 6, 13, 6, 5]
    assert shard_of("HOST1.example", 16) == shard_of("host1.example", 16)


def test_global_number_contains_its_shard():
    """`split_number` undoes `global_number`."""
    assert split_number(global_number(5, 17)) == (5, 17)
    assert global_number(0, 17) == 17
    assert global_number(1, 1) > global_number(0, 2**40)


def test_store_without_a_shard_is_refused():
    """At most as many are allowed as numbers have bits for."""
    with pytest.raises(InvalidInput, match="shards = 0"):
        ShardedStore([])


# ---- links for other shards


async def test_links_for_another_shard_are_added_with_the_page(store):
    """H6: answered in the order they were found."""
    await add(store, f"{NEAR}/1")
    lease = await one(store)
    links = pages(f"{FAR}/1", f"{NEAR}/2", f"{NEAR}/1", f"{HOME}/1")
    (finished,) = await store.finish([done(lease, links=links)])

    assert [(a.added, a.reason) for a in finished.answers] == [
        (True, None),
        (True, None),
        (False, "duplicate"),
        (True, None),
    ]
    assert (await crawl(store)).known == 4


async def test_crash_between_links_and_page_loses_and_repeats_nothing(store, shards, clock):
    """H6: the page is visited again, and its links are known."""
    await configure(store, delay=0.0)
    await add(store, f"{NEAR}/1")
    lease = await one(store, lease_for=10.0)
    shards[1].before["finish"] = gone
    with pytest.raises(StoreUnavailable):
        await store.finish([done(lease, links=pages(f"{FAR}/1", f"{NEAR}/2"))])

    clock.advance(100.0)
    again = [x for x in await claim(store, 9) if x.url == lease.url]
    (finished,) = await store.finish([done(again[0], links=pages(f"{FAR}/1", f"{NEAR}/2"))])
    assert [a.added for a in finished.answers] == [False, True]
    assert (await crawl(store)).known == 3


async def test_finish_without_an_answer_may_be_repeated(store):
    """H3: True again, changing nothing."""
    await add(store, f"{NEAR}/1")
    verdict = done(await one(store), links=pages(f"{FAR}/1"))
    first, again = (await store.finish([verdict]))[0], (await store.finish([verdict]))[0]

    assert (first.applied, again.applied, again.state) == (True, True, None)
    assert (await crawl(store)).known == 2


async def test_page_whose_lease_was_lost_adds_nothing(store, clock):
    """H3: the token is checked before links are added."""
    await add(store, f"{NEAR}/1")
    lease = await one(store)
    await store.release([lease.id])
    (finished,) = await store.finish([done(lease, links=pages(f"{FAR}/1"))])

    assert not finished.applied
    assert (await crawl(store)).known == 1


async def test_lease_lost_between_links_and_page_has_added_its_links(store, shards):
    """H6: documented for clusters; the links are visited nevertheless."""
    await add(store, f"{NEAR}/1")
    lease = await one(store)
    shards[1].before["finish"] = lambda: store.release([lease.id])
    (finished,) = await store.finish([done(lease, links=pages(f"{FAR}/1"))])

    assert not finished.applied
    assert (await crawl(store)).known == 2


async def test_one_lease_finished_twice_in_a_batch_adds_its_links_once(store):
    """H3: the second verdict is a repetition, whatever it contains."""
    await add(store, f"{NEAR}/1")
    lease = await one(store)
    answers = await store.finish(
        [done(lease, links=pages(f"{FAR}/1")), done(lease, links=pages(f"{FAR}/2"))]
    )

    assert [(a.applied, a.state is None) for a in answers] == [(True, False), (True, True)]
    assert (await crawl(store)).known == 2


async def test_two_pages_of_a_batch_may_have_the_same_link(store):
    """B3: the first of them adds it, whichever shard it is on."""
    await add(store, f"{NEAR}/1", f"{FAR}/1")
    near, far = sorted(await claim(store, 2), key=lambda lease: lease.url != page(f"{NEAR}/1").url)
    answers = await store.finish(
        [done(near, links=pages(f"{NEAR}/9")), done(far, links=pages(f"{NEAR}/9"))]
    )

    assert [[a.added for a in answer.answers] for answer in answers] == [[True], [False]]


async def test_number_of_no_shard_is_no_lease(store):
    """H3: a lease of another store changes nothing."""
    await add(store, f"{NEAR}/1")
    lease = await one(store)
    foreign = lease.id._replace(task=global_number(77, 1))

    assert await store.extend([foreign], lease_for=1.0) == set()
    verdict = done(lease)
    (finished,) = await store.finish([type(verdict)(CRAWL, foreign.task, 1, "done", verdict.state)])
    assert not finished.applied


async def test_url_under_two_keys_is_known_on_each_shard(clock):
    """B3: documented for clusters; a link that brings its own key is known by it."""
    store = sharded_model(clock, COUNT)
    await configure(store)
    await store.add([task("https://x.example/", key=f"{NEAR}.example")])
    (same,) = await store.add([task("https://x.example/", key=f"{NEAR}.example")])
    (other,) = await store.add([task("https://x.example/", key=f"{FAR}.example")])

    assert (same.reason, other.added) == ("duplicate", True)
    assert len(await claim(store, 2)) == 2


# ---- the end of a run


@pytest.mark.parametrize("host", [HOME, NEAR, FAR])
async def test_run_ends_on_whichever_shard_its_last_task_was(store, host):
    """I2: once, with an event."""
    await add(store, f"{HOME}/1", f"{host}/2")
    await drain(store)

    assert (await ask(store)).status is FINISHED
    assert (await ask(store)).status is FINISHED
    assert await ends(store) == ["run 1"]


@pytest.mark.parametrize("host", [HOME, NEAR, FAR])
async def test_task_added_on_any_shard_starts_another_run(store, host):
    """I2: the add starts it at home."""
    await add(store, f"{HOME}/1")
    await drain(store)
    await add(store, f"{host}/2")

    assert await status(store) == (RUNNING, "work")
    await drain(store)
    assert await ends(store) == ["run 1", "run 2"]


async def test_task_added_while_a_run_ends_is_seen(store, shards):
    """I2: the call that ended the run looks once more."""
    await add(store, f"{NEAR}/1")
    await store.finish([done(await one(store))])
    shards[0].before["apply_totals"] = lambda: shards[2].add(pages(f"{FAR}/1"))

    assert (await ask(store)).status is RUNNING
    await drain(store)
    assert await ends(store) == ["run 1", "run 2"]


async def test_task_of_an_add_that_died_before_starting_a_run_is_found(store, shards):
    """I2: a claim on a finished crawl reads all shards."""
    await add(store, f"{NEAR}/1")
    await drain(store)
    assert (await ask(store)).status is FINISHED
    shards[0].before["start_run"] = gone
    with pytest.raises(StoreUnavailable):
        await add(store, f"{FAR}/1")

    assert names(await claim(store)) == [f"{FAR}/1"]
    assert await status(store) == (RUNNING, "work")


async def test_run_whose_last_task_moves_between_readings_does_not_end(store, shards):
    """I2: at every instant a task was open, so the run stays; that is why shards are read twice."""
    await add(store, f"{NEAR}/1")
    worker = next(w for w in map(str, range(99)) if crc32(w.encode()) % COUNT == COUNT - 1)
    held = [await one(store)]  # the first claim; the second begins at home

    async def move(host):
        await store.finish([done(held.pop(), links=pages(f"{host}/{len(host)}"))])
        number = shard_of(f"{host}.example", COUNT)
        (lease,) = (await Model.claim(shards[number], ClaimRequest(CRAWL, "x", 1))).leases
        held.append(replace(lease, task=global_number(number, lease.task)))

    async def flee_from_home():
        await move(FAR)
        shards[2].before["summary"] = lambda: move(NEAR)

    async def flee_from_near():
        await move(HOME)
        shards[0].before["summary"] = flee_from_home

    shards[1].before["claim"] = flee_from_near
    claimed = await ask(store, worker=worker)

    assert not any(shard.before for shard in shards)
    assert claimed.status is RUNNING
    assert await ends(store) == []


async def test_stale_end_of_a_run_ends_nothing(store, shards):
    """I2: by compare-and-set; a stale reading ends no later run."""
    await add(store, f"{NEAR}/1")
    await store.finish([done(await one(store))])

    async def another_closes_and_work_begins():
        await ask(store)
        await shards[2].add(pages(f"{FAR}/1"))
        await store.add(pages(f"{HOME}/1"))

    shards[0].before["apply_totals"] = another_closes_and_work_begins
    claimed = await ask(store)

    assert (claimed.status, claimed.wake_in) == (RUNNING, 0.0)
    assert await ends(store) == ["run 1"]


async def test_revived_queue_starts_another_run(store):
    """I2: with its pending tasks."""
    await add(store, f"{NEAR}/1", f"{FAR}/1")
    await store.steer(CRAWL, f"{FAR}.example", Retire())
    await drain(store)
    assert (await ask(store)).status is FINISHED
    await store.steer(CRAWL, f"{FAR}.example", Revive())

    assert await status(store) == (RUNNING, "work")


async def test_pause_at_finish_pauses_all_shards(store):
    """I2: resuming resumes all of them."""
    await configure(store, pause_at_finish=True)
    await add(store, f"{NEAR}/1")
    await drain(store)
    assert await status(store) == (CrawlStatus.PAUSED, "finish")
    await add(store, f"{FAR}/1")
    assert await claim(store) == []
    await store.set_status(CRAWL, RUNNING)

    assert names(await claim(store)) == [f"{FAR}/1"]


# ---- the status at home


async def test_pause_interrupted_after_home_holds(store, shards):
    """I1: home's status counts, and the next claim propagates it."""
    await add(store, f"{NEAR}/1", f"{FAR}/1")
    shards[1].before["set_status"] = gone
    with pytest.raises(StoreUnavailable):
        await store.set_status(CRAWL, CrawlStatus.PAUSED)

    assert await claim(store, 9) == []
    assert {(await shard.summary(CRAWL)).status for shard in shards} == {CrawlStatus.PAUSED}


async def test_resume_interrupted_after_home_holds(store, shards):
    """I1: a shard that is still paused is resumed by the claim that finds it."""
    await add(store, f"{NEAR}/1", f"{FAR}/1")
    await store.set_status(CRAWL, CrawlStatus.PAUSED)
    shards[1].before["set_status"] = gone
    with pytest.raises(StoreUnavailable):
        await store.set_status(CRAWL, RUNNING)

    assert len(await claim(store, 9)) == 2


async def test_limits_count_all_shards(store):
    """I4: two visits of two shards are two visits."""
    await configure(store, limits={"done": 2}, delay=0.0)
    await add(store, *(f"{host}/1" for host in (HOME, NEAR, FAR)))
    await drain(store)

    assert await status(store) == (CrawlStatus.PAUSED, "limit-done")
    assert (await crawl(store)).done == 2


async def test_pending_tasks_of_all_shards_are_counted(store):
    """B4: new tasks are added up to the limit; known ones are reported as duplicates."""
    await configure(store, max_pending=3)
    await add(store, f"{HOME}/1", f"{NEAR}/1")
    answers = await add(store, f"{FAR}/1", f"{NEAR}/1", f"{FAR}/2", f"{HOME}/2", f"{FAR}/1")

    assert [a.reason for a in answers] == [
        None,
        "duplicate",
        "queue-full",
        "queue-full",
        "duplicate",
    ]


async def test_links_count_towards_max_pending(store):
    """B4: over all shards, not only the page's."""
    await configure(store, max_pending=2)
    await add(store, f"{NEAR}/1", f"{FAR}/1")
    near = next(x for x in await claim(store, 2) if x.key.startswith(NEAR))
    (finished,) = await store.finish(
        [done(near, links=pages(*(f"{NEAR}/{n}" for n in range(2, 6))))]
    )

    assert [a.added for a in finished.answers] == [True, True, False, False]


# ---- a shard that does not answer


async def test_dead_shard_does_not_stop_claims_from_the_others(store, shards):
    """M6: tasks of the other shards are leased."""
    await add(store, f"{NEAR}/1", f"{FAR}/1")
    shards[1].before["claim"] = gone

    assert names(await claim(store, 9)) == [f"{FAR}/1"]
    assert names(await claim(store, 9)) == [f"{NEAR}/1"]


async def test_empty_claim_raises_the_error_of_a_dead_shard(store, shards):
    """M6: a store that cannot lease must not look idle."""
    await add(store, f"{NEAR}/1")
    shards[1].before["claim"] = gone

    with pytest.raises(StoreUnavailable):
        await claim(store)
    assert await status(store) == (RUNNING, None)


# ---- export and restore


async def test_export_of_a_running_crawl_has_the_links_of_done_pages(store):
    """I5: a link added to a shard that was exported already comes before the end."""
    await configure(store, delay=0.0)
    await add(store, f"{HOME}/1", f"{FAR}/1")
    items, after, visited = [], 0, False
    while after is not None:
        told = await store.export(CRAWL, after=after, limit=1)
        items += told.items
        after = told.after
        if any(isinstance(item, SavedTask) for item in items) and not visited:
            far = next(x for x in await claim(store, 2) if x.key.startswith(FAR))
            await store.finish([done(far, links=pages(f"{HOME}/2", f"{NEAR}/1"))])
            visited = True

    urls = {item.url for item in items if isinstance(item, SavedTask)}
    assert urls == {page(name).url for name in (f"{HOME}/1", f"{FAR}/1", f"{HOME}/2", f"{NEAR}/1")}


async def test_restore_interrupted_at_its_end_can_be_repeated(store, shards):
    """I5: shards that ended are left alone, and home leases nothing until it has ended."""
    await add(store, f"{HOME}/1", f"{NEAR}/1", f"{FAR}/1")
    items = await everything(lambda after: store.export(CRAWL, after=after))
    *most, end = items
    await store.restore("copy", most)
    shards[0].before["restore"] = gone
    with pytest.raises(StoreUnavailable):
        await store.restore("copy", [end])
    assert await claim(store, crawl="copy") == []

    assert await store.restore("copy", items) == 1
    assert len(await claim(store, 9, crawl="copy")) == 3


async def test_restore_into_a_crawl_with_tasks_on_another_shard_is_refused(store):
    """I5: although home has none."""
    await add(store, f"{FAR}/1")
    items = await everything(lambda after: store.export(CRAWL, after=after))

    with pytest.raises(InvalidInput, match=r"has 1 tasks.*another name"):
        await store.restore(CRAWL, items)


# ---- many at a time


class Slow(ModelShard):
    """A shard that lets others go first, before and after every verb."""

    def __init__(self, clock, dice):
        super().__init__(clock)
        self.is_inline = False
        self._dice = dice


def _slowed(name):
    async def verb(self, *args, **kwargs):
        for _ in range(self._dice.randrange(3)):
            await asyncio.sleep(0)
        answer = await getattr(super(Slow, self), name)(*args, **kwargs)
        for _ in range(self._dice.randrange(3)):
            await asyncio.sleep(0)
        return answer

    return verb


for _verb in (
    "add",
    "claim",
    "extend",
    "finish",
    "summary",
    "apply_totals",
    "start_run",
    "set_status",
):
    setattr(Slow, _verb, _slowed(_verb))


@pytest.mark.parametrize("seed", range(10))
async def test_many_workers_end_each_run_once_and_lose_nothing(clock, seed):
    """I2, H6: in any order of their calls, with links between shards and late tasks."""
    dice = random.Random(seed)
    store = ShardedStore([Slow(clock, dice) for _ in range(COUNT)])
    await store.configure(CRAWL, rules(delay=0.0, max_in_flight=5))
    hosts = (HOME, NEAR, FAR)
    await store.add(pages(f"{HOME}/0"))
    wanted, visited = {page(f"{HOME}/0").url}, []

    async def work(number):
        idle = 0
        while idle < 20:
            claimed = await ask(store, 2, worker=f"w{number}")
            idle = 0 if claimed.leases else idle + 1
            for lease in claimed.leases:
                links = pages(*(f"{dice.choice(hosts)}/{dice.randrange(30)}" for _ in range(3)))
                wanted.update(link.url for link in links)
                (finished,) = await store.finish([done(lease, links=links)])
                visited.extend([lease.url] * finished.applied)
            await asyncio.sleep(0)

    async def bring():
        for number in range(5):
            for _ in range(dice.randrange(60)):
                await asyncio.sleep(0)
            late = pages(f"{dice.choice(hosts)}/late{number}")
            wanted.update(link.url for link in late)
            await store.add(late)

    await asyncio.gather(bring(), *(work(number) for number in range(4)))
    view = await crawl(store)

    assert sorted(visited) == sorted(wanted)
    assert view.status is FINISHED
    assert await ends(store) == [f"run {n + 1}" for n in range(view.runs)]
    await check(store, CRAWL)


async def test_priority_updates_go_to_the_shards_of_their_tasks(store):
    """C8: one call for all of them; a number of no shard is ignored."""
    await store.add(pages(f"{HOME}/1", f"{NEAR}/1", f"{FAR}/1", f"{FAR}/2"))
    seen = [task.number for task in (await store.tasks(CRAWL, TaskFilter())).items]
    prices = [PriorityUpdate(number, 0.0, float(place)) for place, number in enumerate(seen, 1)]
    strange = [
        PriorityUpdate(global_number(COUNT, 1), 0.0, 9.0),
        PriorityUpdate(global_number(-1, 1), 0.0, 9.0),
        PriorityUpdate(0, 0.0, 9.0),
    ]

    assert await store.update_priorities(CRAWL, [*strange, *prices]) == len(seen)
    again = (await store.tasks(CRAWL, TaskFilter())).items
    assert [task.priority for task in again] == [1.0, 2.0, 3.0, 4.0]


async def test_one_invalid_priority_refuses_the_updates_of_all_shards(store):
    """C2: refused whole, before any shard is called."""
    await store.add(pages(f"{HOME}/1", f"{FAR}/1"))
    first, last = [task.number for task in (await store.tasks(CRAWL, TaskFilter())).items]

    with pytest.raises(InvalidInput):
        await store.update_priorities(
            CRAWL, [PriorityUpdate(first, 0.0, 1.0), PriorityUpdate(last, 0.0, float("inf"))]
        )
    assert [task.priority for task in (await store.tasks(CRAWL, TaskFilter())).items] == [0.0, 0.0]


async def test_shared_values_are_stored_at_home(store, shards):
    """N1: with one sequence of numbers for all workers."""
    assert await store.put_values(
        CRAWL, [SharedValueWrite("t", "a", "x"), SharedValueWrite("t", "b", "y")]
    ) == [1, 2]

    assert [note.name for note in await shards[0].values_since(CRAWL)] == ["a", "b"]
    assert await shards[2].values_since(CRAWL) == []
    assert [note.text for note in await store.values_since(CRAWL, after=1)] == ["y"]


async def test_link_for_another_shard_gathers_there(store):
    """F10, H6: it is added before the verdict, and gathers nevertheless."""
    await store.add(pages(f"{NEAR}/1", f"{FAR}/1"))
    lease = next(one for one in await claim(store, 2) if NEAR in one.url)
    await store.add(pages(f"{FAR}/2"))
    link = page(f"{FAR}/2", priority=-2.0, known="gather")
    (answer,) = await store.finish([done(lease, links=[link, link])])

    assert [one.reason for one in answer.answers] == ["duplicate", "duplicate"]
    assert (await store.task(CRAWL, link.fingerprint)).priority == -4.0


async def test_filters_reach_every_shard(clock):
    """C10: a step ends at its limit, and the next one continues there."""
    store = sharded_model(clock, COUNT)
    await configure(store)
    await add(store, *(f"{host}/{n}" for host in (HOME, NEAR, FAR) for n in range(4)))
    counts, after = [], 0
    while after is not None:
        step = await store.drop(CRAWL, TaskFilter(), dry_run=False, after=after, limit=5)
        counts.append(step.count)
        after = step.after

    assert (sum(counts), max(counts)) == (12, 5)


async def test_a_claim_by_keys_asks_the_shards_that_have_them_first(store):
    """C5: the others are asked only if these lease nothing."""
    await add(store, f"{HOME}/1", f"{NEAR}/1", f"{FAR}/1")

    for host in (FAR, HOME, NEAR):
        assert names(await claim(store, 9, keys=[f"{host.upper()}.EXAMPLE"])) == [f"{host}/1"]


async def test_a_claim_of_so_many_queues_counts_over_all_shards(store):
    """C5: each shard may lease from as many as are left."""
    await configure(store, delay=0.0, max_in_flight=9)
    hosts = [f"host{n}" for n in range(12)]
    await add(store, *(f"{host}/{n}" for host in hosts for n in range(2)))

    claimed = await ask(store, 99, max_queues=5)

    assert len({lease.key for lease in claimed.leases}) == 5
    assert len(claimed.leases) == 10
    assert claimed.wake_in == 0.0


async def test_claim_during_a_removal_begins_the_crawl_on_no_shard(store, shards):
    """I1: the removal may end between its two looks; a new crawl would be refused there."""
    await add(store, f"{HOME}/1", f"{NEAR}/1", f"{FAR}/1")
    await store.delete(CRAWL)

    async def remove():
        await delete_crawl(store, CRAWL)

    async def look_once():
        shards[0].before["summary"] = remove

    shards[0].before["summary"] = look_once
    await ask(store)
    await configure(store)
    answers = await store.add(pages(f"{HOME}/2", f"{NEAR}/2", f"{FAR}/2"))

    assert [answer.reason for answer in answers] == [None] * COUNT
