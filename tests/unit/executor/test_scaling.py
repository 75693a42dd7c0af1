from itertools import pairwise

from outrider.core.worker_totals import MAX_DECISIONS
from outrider.executor.slots import SCALING_INTERVAL, Scaler, SlotReading


def replay(scaler, slots, minutes, load, *, start=0.0, lag=0.0, memory=0):
    """Readings every five seconds while so many visits want to run; the slots after each."""
    counts = []
    for step in range(int(minutes * 60 / SCALING_INTERVAL)):
        idle, has_ready = max(0, slots - load), load > slots
        slots = scaler.decide(
            SlotReading(
                start + step * SCALING_INTERVAL, slots, idle, has_ready, lag=lag, memory=memory
            )
        )
        counts.append(slots)
    return counts


def test_a_load_step_is_followed_up_and_down_without_flapping():
    """J3: up by half and one each half minute, down by a quarter each two; never to and fro."""
    scaler = Scaler(4, 64)
    up = replay(scaler, 4, 5, load=100)
    down = replay(scaler, up[-1], 30, load=5, start=300.0)

    assert up[0] == 7  # 4 + half + 1, at once
    assert max(up) == up[-1] == 64
    assert all(a <= b for a, b in pairwise(up))
    assert all(b - a <= a // 2 + 1 for a, b in pairwise(up))
    assert down[23] == up[-1]  # not before two minutes of idleness
    assert all(a >= b for a, b in pairwise(down))
    assert all(a - b <= max(1, a // 4) for a, b in pairwise(down))
    assert 5 <= down[-1] <= 7
    reasons = [decision.reason for decision in scaler.decisions]
    assert reasons[0] == "ready work, no idle slot"
    assert "59 idle, for 120 s" in reasons


def test_slots_settle_a_little_above_a_steady_load():
    """No flapping: what was added too many goes once, and then nothing changes."""
    counts = replay(Scaler(4, 64), 4, 60, load=50)
    changes = [(a, b) for a, b in pairwise(counts) if a != b]

    assert counts[-1] == 50
    assert [a < b for a, b in changes] == [True] * 5 + [False]


def test_a_second_step_waits_for_the_cooldown():
    """J3: thirty seconds between two steps up."""
    counts = replay(Scaler(1, 100), 10, 1, load=1000)

    assert counts[:6] == [16] * 6
    assert counts[6] == 25


def test_it_stays_between_least_and_most():
    """Neither load nor rest leaves the bounds."""
    scaler = Scaler(3, 12)

    assert replay(scaler, 10, 3, load=99)[-1] == 12
    assert replay(scaler, 12, 60, load=0, start=1000.0)[-1] == 3


def test_a_late_loop_and_full_memory_hold_it_back_and_say_so():
    """J3: what cannot be served is not asked for; the reason is kept, once."""
    for held, word in ({"lag": 1.0}, "late"), ({"memory": 200}, "bytes of memory"):
        scaler = Scaler(4, 64, max_memory=100)

        assert set(replay(scaler, 4, 2, load=50, **held)) == {4}
        (decision,) = scaler.decisions
        assert word in decision.reason


def test_equal_bounds_never_change_anything():
    """Without autoscaling there is nothing to decide."""
    scaler = Scaler(8, 8)

    assert set(replay(scaler, 8, 10, load=99)) == {8}
    assert not scaler.decisions


def test_only_the_last_hundred_decisions_are_kept():
    """A crawl of months does not grow."""
    scaler, at = Scaler(1, 10**6), 0.0
    for step in range(3 * MAX_DECISIONS):
        slots = 10 + step % 2  # as if somebody else changed them
        scaler.decide(SlotReading(at, slots, 0, has_ready=True))
        at += 31.0

    assert len(scaler.decisions) == MAX_DECISIONS
