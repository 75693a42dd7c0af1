"""What was exported and restored goes on as the crawl it was, whatever was done to it (I5).

A random crawl is exported, restored into fresh stores, and all of them go on side by side.
OUTRIDER_EXAMPLES, OUTRIDER_FROM and OUTRIDER_SEED as in test_model.py.
"""

import os
from itertools import islice
from random import Random

import msgspec
import pytest

from differential import DifferentialTest, quick_view, shrink, steps
from operations import PutValue, SendHeartbeat
from outrider.core.queue_action import Set
from outrider.core.states import CrawlStatus, TaskState
from outrider.store.export_items import SavedEnd
from outrider.testing.audit import everything
from outrider.testing.clock import FakeClock
from outrider.testing.invariants import CheckedStore, check
from outrider.testing.model import Model
from random_operations import random_ops
from scale import ROUNDS

EXAMPLES = int(os.environ.get("OUTRIDER_EXAMPLES", 8 * ROUNDS))  # noqa: TID251 - the runner's choice
SEED = os.environ.get("OUTRIDER_SEED")  # noqa: TID251 - the runner's choice
FROM = int(os.environ.get("OUTRIDER_FROM", "0"))  # noqa: TID251 - the runner's choice
BATCHES = 2  # so that several cores share the work

REPEAT = "OUTRIDER_SEED={seed} .venv/bin/pytest -p no:randomly tests/property/test_saving.py"


async def exported(store, crawl, limit):
    """All of an export, by short pages."""
    return await everything(lambda after: store.export(crawl, after=after, limit=limit))


async def restored(store, crawl, items, size):
    """Take an export in by short batches, each of them twice; how many items were new."""
    rest, count = iter(items), 0
    while batch := list(islice(rest, size)):
        count += await store.restore(crawl, batch)
        if not isinstance(batch[-1], SavedEnd):
            assert await store.restore(crawl, batch) == 0
    return count


def without_log(items):
    """An export, but for how many changes were told: a restore tells one more."""
    *rest, end = items
    return [*rest, msgspec.structs.replace(end, logged=0)]


async def look(store, crawl):
    """What must be the same of both; the log of changes begins anew."""
    views = await quick_view(store, crawl)
    waiting = [task.number for task in views["tasks"] if task.state is TaskState.PENDING]
    views["places"] = [await store.position(crawl, number) for number in waiting]
    views["census"] = await everything(
        lambda after: store.queue_states(crawl, after=after, limit=2)
    )
    return views


async def crawled(ops, clock, make_store):
    """A store with busy crawls, nothing of them lent, and every queue told of its rules."""
    store = make_store(clock)
    duel = DifferentialTest([store], clock)
    for op in ops:
        await duel.do(op)
    await store.release([lease.id for lease in duel.hands[0].held])
    for crawl in await store.crawls():
        await steps(lambda at, crawl=crawl: store.steer(crawl, "", Set({}), after=at))
    return store


async def copied(exports, dice, copy):
    """A store into which all was restored; what it exports is what it was given."""
    for crawl, items in exports.items():
        assert await restored(copy, crawl, items, dice.randint(1, 9)) == len(items)
        assert without_log(await exported(copy, crawl, 4)) == without_log(items)
    return copy


async def saved_and_gone_on(before, after, seed, make_store):
    """Run, export, restore elsewhere, and run on side by side."""
    clock, dice = FakeClock(), Random(seed)
    source = await crawled(before, clock, make_store)
    crawls = await source.crawls()
    exports = {crawl: await exported(source, crawl, dice.randint(1, 9)) for crawl in crawls}
    clock.advance(dice.choice((0.0, 0.0, 1.0, 100.0)))
    copies = [await copied(exports, dice, copy) for copy in (make_store(clock), Model(clock))]
    duel = DifferentialTest([source, *copies], clock)
    await duel.look(crawls, look)
    await go_on(duel, after, crawls)
    for crawl in crawls:
        await check(copies[0], crawl)
    for store in (source, copies[0]):
        await store.close()


async def go_on(duel, ops, crawls):
    """The same ops on all; leases of a cancelled crawl are void for good, and restored as none.

    Notes are exported by the frontier, not by its store: here nobody takes any. Workers are not.
    """
    source = duel.hands[0].store
    over = {name for name in crawls if (await source.crawl(name)).status is CrawlStatus.CANCELLED}
    for op in (op for op in ops if not isinstance(op, PutValue | SendHeartbeat)):
        if getattr(op, "crawl", None) not in over:
            await duel.do(op)
    await duel.look([name for name in crawls if name not in over], look)


async def failure_of(before, after, seed, make_store):
    """What goes wrong in this case, or None."""
    try:
        await saved_and_gone_on(before, after, seed, make_store)
    except Exception as error:  # noqa: BLE001 - a store may fail in any way; all are to be told
        return error
    return None


async def explained(seed, error, make_store):
    """The least case that fails alike, as it can be pasted into a test."""
    onward = random_ops(seed + 10**9)

    async def fails(before):
        return type(await failure_of(before, onward, seed, make_store)) is type(error)

    before = await shrink(random_ops(seed), fails)

    async def still_fails(after):
        return type(await failure_of(before, after, seed, make_store)) is type(error)

    onward = await shrink(onward, still_fails)
    reason = await failure_of(before, onward, seed, make_store)
    lines = "\n".join(f"    {op}," for op in [*before, "# exported, restored", *onward])
    return f"{type(reason).__name__}: {reason}\n\n{lines}\nrepeat: {REPEAT.format(seed=seed)}"


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
async def test_a_restored_crawl_goes_on_as_the_one_that_was_saved(make_store, saved_one_in, batch):
    """I5: the same claims, waits, budgets, manners and views, in another store of any kind."""
    seeds = range(FROM + batch, FROM + max(EXAMPLES // saved_one_in, BATCHES), BATCHES)
    for seed in [int(SEED)] if SEED else seeds:
        ops = random_ops(seed), random_ops(seed + 10**9)
        error = await failure_of(*ops, seed, make_store)
        if error is not None:
            pytest.fail(await explained(seed, error, make_store), pytrace=False)


async def saved_under_way(ops, seed, make_store):
    """Export while ops go on; what is restored is sound, and stores agree on what it is."""
    clock, dice = FakeClock(), Random(seed)
    source = make_store(clock)
    duel, exports, known = DifferentialTest([source], clock), {}, {}
    for number, op in enumerate(ops):
        await duel.do(op)
        for crawl in await source.crawls() if number >= len(ops) // 2 else ():
            known.setdefault(crawl, (await source.crawl(crawl)).known)
            items, after = exports.setdefault(crawl, ([], 0))
            if after is not None:
                page = await source.export(crawl, after=after, limit=dice.randint(1, 3))
                exports[crawl] = ([*items, *page.items], page.after)
    copies = [CheckedStore(copy, clock) for copy in (make_store(clock), Model(clock))]
    for crawl, (items, after) in exports.items():
        rest = [] if after is None else (await source.export(crawl, after=after)).items
        for copy in copies:
            await restored(copy, crawl, [*items, *rest], dice.randint(1, 9))
            await copy.check(crawl)
            assert (await copy.crawl(crawl)).known >= known[crawl]
    await go_on(DifferentialTest(copies, clock), random_ops(seed + 10**9), exports)
    for store in (source, copies[0]):
        await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
async def test_what_was_saved_under_way_is_sound(make_store, saved_one_in, batch):
    """I5: nothing is missing, the books balance, and every store makes the same of it."""
    seeds = range(FROM + batch, FROM + max(EXAMPLES // saved_one_in, BATCHES), BATCHES)
    for seed in [int(SEED)] if SEED else seeds:
        await saved_under_way(random_ops(seed), seed, make_store)
