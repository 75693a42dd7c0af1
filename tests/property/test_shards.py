"""The sharded store over one shard answers as the naive model does."""

import os

import pytest

from differential import DifferentialTest
from model_shard import sharded_model
from outrider.testing.clock import FakeClock
from outrider.testing.model import Model
from random_operations import random_ops
from scale import ROUNDS

EXAMPLES = int(os.environ.get("OUTRIDER_EXAMPLES", 240 * ROUNDS)) // 12  # noqa: TID251 - as beside it
BATCHES = 2  # so that several cores share the work


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
async def test_one_shard_answers_as_the_model_does(batch):
    """M1: same adds, leases, waits, verdicts, acts and views."""
    for seed in range(batch, EXAMPLES, BATCHES):
        clock = FakeClock()
        await DifferentialTest([Model(clock), sharded_model(clock, 1)], clock).run(random_ops(seed))
