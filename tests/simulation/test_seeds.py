"""S1, S3: simulated crawls, each from one integer; OUTRIDER_SEEDS sets their number."""

import os
import re
import subprocess
import sys
from collections import Counter
from itertools import count

import pytest
from msgspec.structs import replace

from outrider.simulation.run import BOUND, simulate
from outrider.store.embedded import EmbeddedStore
from outrider.testing.model import Model
from scale import ROUNDS

SEEDS = int(os.environ.get("OUTRIDER_SEEDS", 200 * ROUNDS))  # noqa: TID251 - scales the suite only
CHUNK = 50
SERVED = {"postgres": 40, "redis": 40}  # they take so much longer: one seed in so many
SERVED_CHUNK = 5


def told(broken):
    """What a reader needs: the promise, and the command that shows it again."""
    return "\n".join(
        f"seed {result.seed}: {result.violation}\n  {result.command}" for result in broken
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept_whatever_goes_wrong(first):
    """Safety at every call and by the servers' record; healed, the crawl ends; nothing is lost."""
    results = [simulate(seed) for seed in range(first, min(first + CHUNK, SEEDS))]
    broken = [result for result in results if result.violation is not None]

    assert not broken, told(broken)
    assert all(result.finished_in <= BOUND for result in results)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS // 4, CHUNK))
def test_every_promise_is_kept_by_a_file(first, tmp_path):
    """The same seeds on the embedded store."""
    numbers = count()

    async def opened(clock):
        return EmbeddedStore.open(tmp_path / f"{next(numbers)}.outrider", clock)

    results = [simulate(seed, opener=opened) for seed in range(first, first + CHUNK)]
    broken = [result for result in results if result.violation is not None]

    assert not broken, told(broken)
    assert all(result.finished_in <= BOUND for result in results)


def without_tokens(result):
    """The same, but for the names of leases: any will do, and a set is told in their order."""
    lines = [sorted(re.sub(r"(#|token=)\d+", "", line).split()) for line in result.trace]
    return replace(result, trace=lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first"),
    [(kind, at) for kind in SERVED for at in range(0, SEEDS // SERVED[kind], SERVED_CHUNK)],
)
def test_every_promise_is_kept_by_a_server(kind, first, served):
    """The same seeds on real servers: call by call, every answer is the one memory gives."""
    for seed in range(first, first + SERVED_CHUNK):
        here, there = simulate(seed, trace=True), simulate(seed, trace=True, opener=served(kind))

        assert there.violation is None, told([there])
        assert without_tokens(there) == without_tokens(here), f"seed {seed} differs"


@pytest.mark.slow
def test_everything_that_can_go_wrong_does():
    """A hundred seeds meet every fault, every outcome, operators, and more than one run."""
    results = [simulate(seed) for seed in range(100)]
    faults = sum((Counter(result.faults) for result in results), Counter())
    outcomes = sum((Counter(result.outcomes) for result in results), Counter())

    assert set(faults) == {"late", "slow", "drop", "unknown", "duplicate"}
    assert set(outcomes) == {
        "blocked",
        "crashed",
        "done",
        "dropped",
        "failed",
        "throttled",
        "unreachable",
    }
    assert sum(result.acts for result in results) > 100
    assert any(result.view.runs > 1 for result in results)
    assert any(result.view.held for result in results)


async def naive(clock):
    """The model in place of a store."""
    return Model(clock)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 40 * ROUNDS, 20))
def test_the_naive_model_gives_the_same_answers(first):
    """Call by call, answer by answer, through all faults: the trace of a whole crawl is equal."""
    for seed in range(first, first + 20):
        fast, plain = simulate(seed, trace=True), simulate(seed, trace=True, opener=naive)

        assert fast == plain, told([fast]) if fast.violation else f"seed {seed} differs"


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_repeats_itself_exactly(seed):
    """Clock, dice, web and faults come from the seed: the same calls at the same instants."""
    first, second = simulate(seed, trace=True), simulate(seed, trace=True)

    assert first == second
    assert first.trace


def test_a_seed_is_the_same_in_another_process():
    """The order of sets and the hashes of strings must not matter."""
    code = "from outrider.simulation.run import simulate; print(simulate(5, trace=True))"
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    ]

    assert told[0] == told[1]
    assert b"violation=None" in told[0]
