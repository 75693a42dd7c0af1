"""Every store answers as the naive model does, step by step, whatever is done to it (M1).

The same crawls on every run; `make soak` tries fresh ones. OUTRIDER_EXAMPLES says how many are
tried, OUTRIDER_FROM where to begin; OUTRIDER_SEED=N repeats one.
"""

import os
from collections import Counter

import pytest

from differential import DifferentialTest, Disagreement, shrink
from outrider.core.states import RETIRED_REASONS, SNOOZED_REASONS, CrawlStatus, QueueState
from outrider.testing.clock import FakeClock
from outrider.testing.invariants import CheckedStore
from outrider.testing.model import Model
from random_operations import random_ops
from scale import ROUNDS

EXAMPLES = int(os.environ.get("OUTRIDER_EXAMPLES", 64 * ROUNDS))  # noqa: TID251 - the runner's choice
SEED = os.environ.get("OUTRIDER_SEED")  # noqa: TID251 - the runner's choice
FROM = int(os.environ.get("OUTRIDER_FROM", "0"))  # noqa: TID251 - the runner's choice
BATCHES = 4  # so that several cores share the work

REPEAT = "OUTRIDER_SEED={seed} .venv/bin/pytest -p no:randomly tests/property/test_model.py"


async def failure_of(ops, make_store):
    """What goes wrong in this case, or None."""
    clock = FakeClock()
    model, store = CheckedStore(Model(clock), clock), make_store(clock)
    try:
        await DifferentialTest([model, store], clock).run(ops)
        for crawl in await model.crawls():
            await model.check(crawl)
    except Exception as error:  # noqa: BLE001 - a store may fail in any way; all are to be told
        return error
    finally:
        await store.close()
    return None


async def explained(seed, error, make_store):
    """The least case that fails alike, as it can be pasted into a test."""

    async def fails(ops):
        return type(await failure_of(ops, make_store)) is type(error)

    least = await shrink(random_ops(seed), fails)
    lines = "\n".join(f"    {op}," for op in least)
    reason = await failure_of(least, make_store)
    repeat = REPEAT.format(seed=seed)
    return f"{type(reason).__name__}: {reason}\n\nops = [\n{lines}\n]\nrepeat: {repeat}"


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
async def test_a_store_answers_as_the_model_does(make_store, one_in, batch):
    """M1: same adds, leases, waits, verdicts, acts and views; and the invariants hold meanwhile."""
    seeds = range(FROM + batch, FROM + max(EXAMPLES // one_in, BATCHES), BATCHES)
    for seed in [int(SEED)] if SEED else seeds:
        error = await failure_of(random_ops(seed), make_store)
        if error is not None:
            pytest.fail(await explained(seed, error, make_store), pytrace=False)


@pytest.mark.slow
async def test_the_random_crawls_reach_deep_states():
    """What is never reached is not tested: every state, reason and end turns up in 300 crawls."""
    seen = Counter()
    for seed in range(300):
        clock = FakeClock()
        model = Model(clock)
        duel = DifferentialTest([model], clock)
        for op in random_ops(seed):
            await duel.do(op)
            for crawl in await model.crawls():
                seen.update([(await model.crawl(crawl)).status])
                for queue in (await model.queues(crawl)).items:
                    seen.update([queue.state, (queue.state, queue.reason)])
                    seen.update([("named", queue.state)] if queue.named else [])
                    seen.update([("lent", queue.state)] if queue.lent else [])
        for crawl in await model.crawls():
            seen.update({("runs", (await model.crawl(crawl)).runs): 1})
            seen.update((change.name, change.detail) for change in await model.events_since(crawl))

    wanted = {*QueueState, *CrawlStatus, ("runs", 2)}
    wanted |= {(QueueState.RETIRED, reason) for reason in RETIRED_REASONS}
    wanted |= {(QueueState.SNOOZED, reason) for reason in SNOOZED_REASONS}
    wanted |= {("named", QueueState.SNOOZED), ("named", QueueState.BUSY)}
    wanted |= {("lent", QueueState.BUSY), ("lent", QueueState.RETIRED)}
    wanted |= {("queue-returned", "budget"), ("crawl-paused", "finish"), ("died", "w0")}
    assert wanted - seen.keys() == set()


async def test_a_disagreement_is_explained():
    """A failing case is shrunk, and says how to repeat it."""

    async def release(self, leases):
        freed = await Model.release(self, leases)
        return set(list(freed)[1:])

    forgetful = type("Forgetful", (Model,), {"release": release})
    seed = 0
    while not isinstance(await failure_of(random_ops(seed), forgetful), Disagreement):
        seed += 1
    text = await explained(seed, Disagreement(), forgetful)

    assert f"OUTRIDER_SEED={seed} " in text
    assert text.count("\n    ") <= 5
    assert "Release(" in text
