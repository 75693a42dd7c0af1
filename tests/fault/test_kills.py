"""A process that works on a file is killed, again and again; nothing acknowledged is lost."""

import os
import random

import pytest

from crash import kill_points
from crash.kill_rounds import rounds
from scale import ROUNDS

KILLS_OF_A_FILE = 6
CRASHES = int(os.environ.get("OUTRIDER_CRASHES", 18 * ROUNDS))  # noqa: TID251 - how long to search
FROM = int(os.environ.get("OUTRIDER_FROM", "0"))  # noqa: TID251 - where to begin
FILES = range(FROM, FROM + -(-CRASHES // KILLS_OF_A_FILE))


def chosen_points(seed):
    """Each file has its own walk through all the points; every second kill comes from outside."""
    dice = random.Random(seed)
    named = [*kill_points.POINTS]
    dice.shuffle(named)
    named.insert(0, kill_points.POINTS[seed % len(kill_points.POINTS)])
    return [named[place // 2] if place % 2 == 0 else "none" for place in range(KILLS_OF_A_FILE)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", FILES)
def test_file_of_repeatedly_killed_processes_keeps_what_was_acknowledged(seed, tmp_path):
    """Lost 0, doubled 0, half-applied 0, no visit too soon after reopening; counts add up."""
    durability = "sync" if seed % 3 == 2 else "process"
    done = rounds(tmp_path, seed, chosen_points(seed), durability)
    assert done.rounds == KILLS_OF_A_FILE
    assert done.tasks > 0
    assert done.visits > 0
