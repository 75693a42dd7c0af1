"""Entries made by the thousand are those made one by one."""

from random import Random

import msgspec

from outrider.core.order import DUE_BITS, LANE_BYTES, task_key
from outrider.core.task import Task
from outrider.store.embedded.loader import NewTasks
from outrider.store.engine.sorted_list import unpack


def born(dice, number):
    """A task, and its birth as a page has it."""
    key = f"{dice.choice('abc')}.example"
    priority = dice.choice((0.0, -0.0, -1e308, 5e-324, -3.5, dice.uniform(-9, 9)))
    task = Task(
        "c",
        dice.randbytes(16),
        f"https://{key}/{number}",
        key,
        "page",
        dice.randrange(2),
        0,
        dice.choice((0, 1, 65_535)),
        priority,
        1,
    )
    tie, due = dice.randrange(1 << 48), dice.randrange(2000)
    return task, tie, due, msgspec.msgpack.encode((task, tie, due, 0))


def test_entries_computed_for_many_equal_those_computed_singly():
    """Every order there is: signs, zeros, extremes, both lanes."""
    dice, new_tasks, expected, rest = Random(1), NewTasks(), {}, []
    for number in range(1, 500):
        task, tie, due, content = born(dice, number)
        left = new_tasks.read([(number, content)], 1000)
        if due > 1000:
            assert left == [(number, content)]
            rest.append(number)
            continue
        entry = task_key(task.precedence, task.priority, tie, number) << DUE_BITS | due
        expected.setdefault((task.key, task.lane), []).append(entry)
    found = {
        (key, lane): unpack(data, LANE_BYTES) for key, lane, data in new_tasks.entries_by_lane()
    }
    assert found == expected
    assert rest
    assert new_tasks.numbers == list(range(1, 500))


def test_no_new_tasks_give_no_entries():
    """Nothing to join."""
    assert list(NewTasks().entries_by_lane()) == []
