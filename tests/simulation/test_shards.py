"""Simulated crawls over several shards: the same seeds, faults and promises, by the shard (M1)."""

import os

import pytest

from model_shard import sharded_model
from outrider.simulation.run import BOUND, simulate
from scale import ROUNDS

SEEDS = int(os.environ.get("OUTRIDER_SEEDS", 500 * ROUNDS)) // 20  # noqa: TID251 - scales the suite only
CHUNK = 25


async def sharded(clock):
    """Three models as one store."""
    return sharded_model(clock, 3)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept_over_several_shards(first):
    """Nothing lost, nothing doubled, each run ended once; healed, every seed finishes."""
    results = [simulate(seed, opener=sharded) for seed in range(first, first + CHUNK)]
    broken = [(result.seed, result.violation) for result in results if result.violation]

    assert not broken
    assert all(result.finished_in <= BOUND for result in results)
