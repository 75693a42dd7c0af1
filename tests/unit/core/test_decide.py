import math

import pytest
from msgspec.structs import replace

from outrider.core.decide import Policy, decide, outcome_error
from outrider.core.outcome import (
    Again,
    Answer,
    Blocked,
    Done,
    Dropped,
    Failed,
    Throttled,
    Unreachable,
)
from outrider.core.policy.lanes import Lanes
from outrider.core.policy.politeness import (
    Politeness,
    delay_after,
    delay_at_start,
    draws_at_start,
    leases_pace_requests,
)
from outrider.core.policy.retry import Backoff, Retry
from outrider.core.policy.rules import Budget, CrawlRules, QueueRules
from outrider.core.policy.score import explicit
from outrider.core.states import TaskState
from outrider.core.task import ACQUISITION, Lease, PolitenessState, Task

DAY = 86_400.0
PENDING, DONE = TaskState.PENDING, TaskState.DONE
DEAD, DROPPED = TaskState.DEAD, TaskState.DROPPED
UNMOVED = {
    "level": None,
    "throttles_in_row": None,
    "unreachable_in_row": None,
    "blocks_in_row": None,
    "calm": None,
}


def lease(*, manners=None, politeness=None, budget=None, failures=0, throttles=0, **about):
    """A lease of https://a.example/1, with what the queue and the task went through."""
    given = {"type": "page", "lane": 0, "depth": 0, "precedence": 1, "priority": 0.0, "cost": 1}
    task = Task("c", b"f" * 16, "https://a.example/1", "a.example", **{**given, **about})
    rules = QueueRules(Politeness(**politeness or {}), Budget(**budget or {}))
    seen = PolitenessState(**manners or {})
    return Lease("s", 7, 99, task, 1, "w", 60.0, failures, throttles, rules, seen)


def policy(**retry):
    """The default policy, but for retries; a refresh is worth 25 and its depth."""
    return Policy(Retry(**retry), Lanes(), lambda lent, _: explicit(25.0 + lent.depth))


def fields(verdict, names):
    """Only these fields of a verdict."""
    return {name: getattr(verdict, name) for name in names}


def check(lent, outcome, roll, expected, how=None):
    """Compare what was decided with what the rules say, field by field."""
    verdict = decide(lent, outcome, how or policy(), roll)

    assert fields(verdict, expected) == pytest.approx(expected)


def test_a_verdict_names_its_lease():
    """H3: crawl, task and token are what the store compares."""
    for outcome in (Done(200), Done(200, from_cache=True), Failed("x"), Throttled(), Blocked("x")):
        verdict = decide(lease(), outcome, policy(), 0.0)

        assert (verdict.crawl, verdict.task, verdict.token) == ("c", 7, 99)


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Done(200), "done"),
        (Done(200, from_cache=True), "done"),
        (Failed("x"), "failed"),
        (Throttled(), "throttled"),
        (Blocked("x"), "blocked"),
        (Unreachable("x"), "unreachable"),
        (Dropped("x"), "dropped"),
        (Again("x"), "again"),
    ],
)
def test_a_verdict_names_its_outcome(outcome, name):
    """O1: visits are counted by outcome."""
    assert decide(lease(), outcome, policy(), 0.0).outcome == name


# ---- Done


@pytest.mark.parametrize(
    ("politeness", "outcome", "roll", "delay"),
    [
        ({}, Done(200, seconds=0.3), 0.0, 1.5),
        ({}, Done(200), 0.0, 1.0),
        ({}, Done(200, seconds=10), 0.0, 30.0),
        ({"factor": 2.0, "min_delay": 0.0}, Done(200, seconds=3), 0.0, 6.0),
        ({"max_delay": 4.0}, Done(200, seconds=3), 0.0, 4.0),
        ({"delay": 2.0}, Done(200, seconds=10), 0.9, 2.0),
        ({"delay": 0.0}, Done(200, seconds=10), 0.0, 0.0),
        ({"delay": 5.0, "delay_to": 15.0}, Done(200), 0.5, 10.0),
        ({"visits_per_second": 0.5}, Done(200), 0.0, 2.0),
        ({"visits_per_second": 1e-300}, Done(200), 0.0, 1e9),
        ({"kb_per_second": 1e-300}, Done(200, bytes=10_000_000), 0.0, 1e9),
        ({"kb_per_second": 10.0}, Done(200, bytes=51_200), 0.0, 5.0),
        ({}, Done(200, crawl_delay=7.0), 0.0, 7.0),
        ({}, Done(200, crawl_delay=0.1), 0.0, 1.0),
        ({}, Done(200, crawl_delay=400.0), 0.0, 300.0),
        ({"respect_crawl_delay": 5.0}, Done(200, crawl_delay=400.0), 0.0, 5.0),
    ],
)
def test_the_delay_after_a_visit_is_the_politest_that_applies(politeness, outcome, roll, delay):
    """D1: clamp(factor × duration, min, max) or its options, raised to Crawl-delay."""
    check(lease(politeness=politeness), outcome, roll, {"delay": delay})


def test_done_ends_every_row_of_troubles():
    """D3, D4: and says nothing of the level but that one more was calm."""
    manners = {"throttles_in_row": 3, "unreachable_in_row": 2, "blocks_in_row": 1}
    expected = {"throttles_in_row": 0, "unreachable_in_row": 0, "blocks_in_row": 0}

    check(lease(manners=manners), Done(200), 0.0, expected | {"calm": 10, "level": None})


def test_done_counts_and_is_over():
    """E3, B2: the attempt counts, the task is done, nothing is snoozed or retired."""
    expected = {"state": DONE, "counts": True, "failed": 0, "snooze": 0.0, "retire": None}

    check(lease(), Done(404), 0.0, expected | {"penalty": 0, "revisit": None, "reason": None})


def test_done_remembers_the_answer():
    """B1: status, size, digest and validators."""
    outcome = Done(200, bytes=9, digest="d", etag="e", last_modified="m")

    assert decide(lease(), outcome, policy(), 0.0).answer == Answer(200, 9, "d", "e", "m")


@pytest.mark.parametrize(
    ("level", "calm", "delay"), [(1, 0, 2.0), (2, 8, 4.0), (3, 0, 8.0), (0, 9, 1.0)]
)
def test_the_delay_doubles_with_each_throttle_level(level, calm, delay):
    """D3: the delay is multiplied by 2^L meanwhile."""
    check(lease(manners={"level": level, "calm": calm}), Done(200), 0.0, {"delay": delay})


def test_even_a_high_level_delays_no_longer_than_a_day():
    """D3: 2^L grows without bound; patience must not."""
    check(lease(manners={"level": 60}), Done(200), 0.0, {"delay": DAY})


def test_crawl_delay_of_an_earlier_visit_stays():
    """D1: what robots.txt said once holds until it says something else."""
    check(lease(manners={"crawl_delay": 8.0}), Done(200), 0.0, {"delay": 8.0, "crawl_delay": None})
    check(
        lease(manners={"crawl_delay": 8.0}),
        Done(200, crawl_delay=3.0),
        0.0,
        {"delay": 3.0, "crawl_delay": 3.0},
    )


def test_a_revisit_comes_back_as_refresh():
    """G3: after its time, in the acquisition lane, scored anew, of its own cost."""
    verdict = decide(lease(depth=2, cost=4), Done(200, revisit_in=100.0), policy(), 0.0)

    revisit = verdict.revisit
    assert verdict.state is PENDING
    assert (revisit.after, revisit.type, revisit.lane) == (100.0, "refresh", ACQUISITION)
    assert (revisit.precedence, revisit.priority) == (4, 27.0)
    assert revisit.breakdown.total == 27.0


def test_a_revisit_of_a_free_or_forced_task_is_not_forced():
    """C2: precedence 0 is forced; a cost of 0 still has precedence 1."""
    verdict = decide(lease(cost=0, precedence=0), Done(200, revisit_in=1.0), policy(), 0.0)

    assert verdict.revisit.precedence == 1


# ---- from the cache


def test_a_visit_from_the_cache_leaves_the_host_alone():
    """D5, E3: done and refunded; no delay, no count moves."""
    expected = {"state": DONE, "counts": False, "touched": False, "delay": 0.0, "snooze": 0.0}

    check(lease(), Done(200, from_cache=True), 0.0, expected | UNMOVED)


def test_a_throttled_visit_answered_from_the_cache_still_throttles():
    """D5: the task is done, the queue snoozes and its level rises."""
    outcome = Done(200, from_cache=True, throttled=0.0)
    expected = {"state": DONE, "counts": False, "touched": True, "snooze": 30.0, "level": 1}

    check(lease(), outcome, 0.0, expected | {"snooze_reason": "throttled", "throttles_in_row": 1})


def test_a_cached_visit_may_be_revisited_too():
    """G3."""
    verdict = decide(lease(), Done(200, from_cache=True, revisit_in=5.0), policy(), 0.0)

    assert verdict.state is PENDING
    assert verdict.revisit.after == 5.0


# ---- Failed


@pytest.mark.parametrize(
    ("before", "roll", "wait"),
    [(0, 0.0, 1.0), (1, 0.0, 2.0), (2, 0.0, 4.0), (0, 1.0, 1.5), (2, 0.5, 5.0)],
)
def test_a_failed_task_waits_twice_as_long_each_time(before, roll, wait):
    """G1: min(base·2ⁿ⁻¹, cap) plus 0–50 % jitter."""
    expected = {"state": PENDING, "retry_in": wait, "failed": 1, "counts": True, "reason": "x"}

    check(lease(failures=before), Failed("x"), roll, expected)


def test_the_wait_is_capped_before_the_jitter():
    """G1: cap 5 min, plus its half."""
    how = policy(max_retries=99)

    check(lease(failures=9), Failed("x"), 0.0, {"retry_in": 300.0}, how)
    check(lease(failures=80), Failed("x"), 1.0, {"retry_in": 450.0}, how)


def test_one_failure_more_than_the_retries_is_death():
    """G1: 3 retries, so the fourth failure."""
    check(lease(failures=2), Failed("x"), 0.0, {"state": PENDING})
    check(lease(failures=3), Failed("x"), 0.0, {"state": DEAD})


def test_the_wait_that_was_asked_for_wins():
    """G1: Retry-After wins."""
    check(lease(failures=2), Failed("x", retry_in=77.0), 0.9, {"retry_in": 77.0})
    check(lease(), Failed("x", retry_in=0.0), 0.9, {"retry_in": 0.0})


def test_a_type_may_have_a_policy_of_its_own():
    """G1: policy per type and outcome."""
    how = policy(types={"article": Backoff(max_retries=0, base=9.0, jitter=0.0)})

    check(lease(type="article"), Failed("x"), 0.9, {"state": DEAD, "retry_in": 9.0}, how)
    check(lease(type="page"), Failed("x"), 0.0, {"state": PENDING, "retry_in": 1.0}, how)


def test_a_failure_costs_its_penalty():
    """E3."""
    check(lease(budget={"error_penalty": 5}), Failed("x"), 0.0, {"penalty": 5})


def test_a_failing_task_never_holds_its_queue():
    """D4: the usual delay, no snooze; the host answered, so it is reachable."""
    manners = {"unreachable_in_row": 3, "blocks_in_row": 2, "throttles_in_row": 4}
    expected = {"delay": 10.0, "snooze": 0.0, "retire": None, "unreachable_in_row": 0}
    expected |= {"throttles_in_row": None, "calm": 0, "level": None}

    check(lease(manners=manners), Failed("x", seconds=2.0), 0.0, expected)


def test_a_long_reason_is_cut():
    """A dead letter is for people."""
    for outcome in (Failed("x" * 5000), Blocked("x" * 5000), Unreachable("x" * 5000)):
        assert decide(lease(), outcome, policy(), 0.0).reason == "x" * 1000


# ---- Throttled


@pytest.mark.parametrize(
    ("level", "retry_after", "roll", "snooze"),
    [
        (0, None, 0.0, 30.0),
        (1, None, 0.0, 60.0),
        (2, None, 0.0, 120.0),
        (4, None, 0.0, 480.0),
        (5, None, 0.0, 900.0),
        (70, None, 0.0, 900.0),
        (0, 0, 0.0, 30.0),
        (0, 120.0, 0.0, 120.0),
        (0, 120.0, 0.5, 126.0),
        (2, 100.0, 0.0, 120.0),
        (0, 2 * DAY, 0.0, DAY),
    ],
)
def test_a_throttled_queue_snoozes(level, retry_after, roll, snooze):
    """D3: max(Retry-After, min(30·2^(L−1), 900)) × U(1, 1.1), L the new level."""
    expected = {"snooze": snooze, "snooze_reason": "throttled", "level": level + 1}

    check(lease(manners={"level": level}), Throttled(retry_after), roll, expected)


def test_a_throttled_task_keeps_its_attempts_four_times():
    """D3: then each counts; and as a failure it may be the last."""
    free = {"counts": False, "failed": 0, "throttled": 1, "state": PENDING}

    check(lease(throttles=0), Throttled(), 0.0, free)
    check(lease(throttles=3), Throttled(), 0.0, free)
    check(lease(throttles=4), Throttled(), 0.0, free | {"counts": True, "failed": 1})
    check(lease(throttles=7, failures=3), Throttled(), 0.0, {"state": DEAD, "failed": 1})


def test_ten_throttles_in_a_row_retire_the_queue():
    """D3: counted from what the lease saw, so N at once count once."""
    row = "throttles_in_row"

    check(lease(manners={row: 8}), Throttled(), 0.0, {"retire": None, row: 9})
    check(lease(manners={row: 9}), Throttled(), 0.0, {"retire": "throttled", row: 10})


@pytest.mark.parametrize(
    ("outcome", "least", "reason"),
    [
        (Throttled(), 900.0, "throttled"),
        (Throttled(retry_after=5.0), 900.0, "throttled"),
        (Throttled(retry_after=5000.0), 5000.0, "throttled"),
        (Unreachable("dns"), 900.0, "dns"),
    ],
)
def test_every_failure_fails_its_task_and_leaves_its_queue_alone(outcome, least, reason):
    """G1, D3, D4: for queues of many hosts; even the tenth in a row neither snoozes nor retires."""
    how = policy(base=900.0, cap=DAY, jitter=0.0, every_failure=True)
    rows = {"throttles_in_row": 9, "unreachable_in_row": 4, "level": 2, "calm": 3}
    expected = {
        "state": PENDING,
        "counts": True,
        "failed": 1,
        "retry_in": least,
        "reason": reason,
        "snooze": 0.0,
        "retire": None,
        "level": None,
    }
    check(lease(manners=rows), outcome, 0.0, expected, how)
    check(lease(failures=3), outcome, 0.0, {"state": DEAD}, how)
    assert decide(lease(), outcome, how, 0.0).outcome == type(outcome).__name__.lower()


def test_throttled_visit_answered_from_the_cache_leaves_a_queue_of_many_hosts_alone():
    """D5, G1: with `every_failure` no host speaks for the others."""
    outcome = Done(200, from_cache=True, throttled=60.0)
    expected = {"touched": False, "snooze": 0.0, "state": DONE}

    check(lease(), outcome, 0.0, expected, policy(every_failure=True))


def test_a_throttle_is_an_answer():
    """D4: it ends the row of unreachable visits, of blocks, and of Done."""
    manners = {"unreachable_in_row": 3, "blocks_in_row": 2, "calm": 9}
    expected = {"unreachable_in_row": 0, "blocks_in_row": 0, "calm": 0}

    check(lease(manners=manners), Throttled(), 0.0, expected)


# ---- delays drawn as a visit began


@pytest.mark.parametrize(
    "outcome", [Done(200), Failed("x"), Blocked("x"), Unreachable("x"), Dropped("x")]
)
def test_verdict_uses_the_delay_that_its_lease_drew(outcome):
    """D1: whatever the visit came to; the roll is not used for another draw."""
    lent = lease(politeness={"count_from": "start", "delay": 5.0, "delay_to": 15.0})

    check(replace(lent, delay=7.0), outcome, 0.9, {"delay": 7.0})
    assert decide(lent, Done(200), policy(), 0.9).delay == 14.0


def test_drawn_delay_is_raised_as_any_other():
    """D1, D3: to the Crawl-delay, by the size of the page, and per throttle level."""
    uniform = {"count_from": "start", "delay": 5.0, "delay_to": 15.0, "kb_per_second": 1.0}
    lent = replace(lease(politeness=uniform, manners={"level": 1}), delay=6.0)

    check(lent, Done(200), 0.9, {"delay": 12.0})
    check(lent, Done(200, bytes=8192), 0.9, {"delay": 16.0})
    check(lent, Done(200, crawl_delay=9.0), 0.9, {"delay": 18.0})
    check(lent, Throttled(), 0.9, {"delay": 24.0})


@pytest.mark.parametrize(
    ("drawn", "crawl_delay", "level", "delay"),
    [
        (6.0, 0.0, 0, 6.0),
        (6.0, 9.0, 0, 9.0),
        (6.0, 99.0, 0, 20.0),
        (6.0, 0.0, 2, 24.0),
        (6.0, 9.0, 1, 18.0),
        (6.0, 0.0, 50, 86_400.0),
        (86_400.0, 0.0, 3, 86_400.0),
        (0.0, 0.0, 9, 0.0),
    ],
)
def test_delay_from_the_start_is_as_after_a_visit(drawn, crawl_delay, level, delay):
    """D1: a lease and its verdict come to the same, but for what only the visit tells."""
    rules = Politeness(count_from="start", delay=0.0, delay_to=86_400.0, respect_crawl_delay=20.0)

    assert delay_at_start(rules, drawn, crawl_delay, level) == delay
    assert delay_after(rules, 3.0, 10, crawl_delay, level, 0.5, drawn) == delay


@pytest.mark.parametrize(
    ("fields", "draws"),
    [
        ({"count_from": "start", "delay": 5.0, "delay_to": 15.0}, True),
        ({"count_from": "start", "delay": 0.0, "delay_to": 0.1}, True),
        ({"count_from": "end", "delay": 5.0, "delay_to": 15.0}, False),
        ({"count_from": "start", "delay": 5.0, "delay_to": 5.0}, False),
        ({"count_from": "start", "delay": 5.0}, False),
        ({"count_from": "start", "delay_to": 15.0}, False),
    ],
)
def test_uniform_delays_from_the_start_are_drawn_by_leases(fields, draws):
    """D1: all others are decided after the visit."""
    assert draws_at_start(Politeness(**fields)) is draws
    assert CrawlRules(QueueRules(Politeness(**fields))).may_draw_at_start or not draws


@pytest.mark.parametrize(
    ("fields", "crawl_delay", "paced"),
    [
        ({"delay": 5.0}, 0.0, True),
        ({"delay": 0.0}, 0.0, False),
        ({"delay": 0.0}, 5.0, True),
        ({"delay": 0.0, "delay_to": 5.0}, 0.0, True),
        ({"delay": 0.0, "visits_per_second": 5.0}, 0.0, True),
        ({"delay": 5.0, "max_in_flight": 1}, 0.0, False),
        ({"delay": 5.0, "count_from": "end"}, 0.0, False),
    ],
)
def test_leases_pace_requests_of_several_visits_that_count_from_the_start(
    fields, crawl_delay, paced
):
    """D1, D7: a second request of one visit would come at any distance from the others."""
    rules = Politeness(**{"count_from": "start", "max_in_flight": 2} | fields)

    assert leases_pace_requests(rules, crawl_delay) is paced


def test_a_queue_may_get_either_half_of_a_drawn_delay_from_any_layer():
    """D1, A4: so the rules of a whole crawl only say whether some lease may draw."""
    start, uniform = {"count_from": "start"}, {"delay": 1.0, "delay_to": 2.0}

    assert CrawlRules(keys={".org": start}, said={"a.org": uniform}).may_draw_at_start
    assert CrawlRules(runtime={"a.org": {**start, **uniform}}).may_draw_at_start
    assert not CrawlRules(keys={".org": start, "a.org": {"delay_to": None}}).may_draw_at_start
    assert not CrawlRules(keys={".org": uniform}).may_draw_at_start


# ---- Blocked


@pytest.mark.parametrize(
    ("before", "roll", "wait"),
    [(0, 0.0, 900.0), (1, 0.0, 1800.0), (2, 0.0, 3600.0), (0, 0.5, 1050.0), (1, 1.0, 2100.0)],
)
def test_a_blocked_task_cools_down(before, roll, wait):
    """G1: 15 min·2ⁿ⁻¹ + U(0, 5 min)."""
    expected = {"state": PENDING, "retry_in": wait, "failed": 1, "counts": True, "reason": "x"}

    check(lease(failures=before), Blocked("x"), roll, expected)


def test_a_task_blocked_too_often_is_dead():
    """G1: 3 retries."""
    check(lease(failures=3), Blocked("x"), 0.0, {"state": DEAD})


@pytest.mark.parametrize(("row", "snooze", "why"), [(0, 0.0, None), (1, 0.0, None)])
def test_one_or_two_blocks_leave_the_queue_to_others(row, snooze, why):
    """D4: only the third in a row is the host's, not the page's."""
    expected = {"snooze": snooze, "snooze_reason": why, "blocks_in_row": row + 1}

    check(lease(manners={"blocks_in_row": row}), Blocked("x"), 0.0, expected)


def test_three_blocks_in_a_row_snooze_the_queue():
    """D4: by the cooldown."""
    expected = {"snooze": 1050.0, "snooze_reason": "blocked", "blocks_in_row": 3, "retire": None}

    check(lease(manners={"blocks_in_row": 2}), Blocked("x"), 0.5, expected)


@pytest.mark.parametrize(
    ("allowed", "row", "snooze"),
    [(1, 0, 900.0), (1, 1, 1800.0), (5, 3, 0.0), (5, 4, 900.0), (0, 0, 0.0), (0, 50, 0.0)],
)
def test_the_blocks_that_snooze_a_queue_are_a_setting(allowed, row, snooze):
    """D4: politeness.blocks_to_snooze; 0: never."""
    lent = lease(politeness={"blocks_to_snooze": allowed}, manners={"blocks_in_row": row})

    check(lent, Blocked("x"), 0.0, {"snooze": snooze, "blocks_in_row": row + 1})


def test_a_block_is_an_answer():
    """D4: it ends the row of unreachable visits and of Done, and of throttles it says nothing."""
    manners = {"unreachable_in_row": 3, "calm": 9, "throttles_in_row": 2}
    expected = {"unreachable_in_row": 0, "calm": 0, "throttles_in_row": None}

    check(lease(manners=manners), Blocked("x"), 0.0, expected)


# ---- Unreachable


@pytest.mark.parametrize(
    ("row", "snooze", "retire"),
    [
        (0, 30.0, None),
        (1, 60.0, None),
        (2, 120.0, None),
        (3, 240.0, None),
        (4, 300.0, "unreachable"),
        (90, 300.0, "unreachable"),
    ],
)
def test_an_unreachable_queue_snoozes_then_retires(row, snooze, retire):
    """D4: 30 s doubling to 5 min, the fifth retires; dice play no part."""
    expected = {"snooze": snooze, "snooze_reason": "unreachable", "retire": retire}

    check(
        lease(manners={"unreachable_in_row": row}),
        Unreachable("DNS"),
        0.9,
        expected | {"unreachable_in_row": row + 1},
    )


def test_an_unreachable_task_keeps_its_attempts():
    """D4, E3: refunded and pending; throttles in a row are neither ended nor lengthened."""
    expected = {"state": PENDING, "counts": False, "failed": 0, "reason": "DNS", "penalty": 0}

    check(lease(), Unreachable("DNS"), 0.0, expected | {"throttles_in_row": None, "level": None})


# ---- Dropped


def test_a_dropped_visit_says_nothing_of_the_host():
    """D4, E3: refunded; no count of the queue moves."""
    expected = {"state": DROPPED, "counts": False, "reason": "robots", "snooze": 0.0}

    check(lease(), Dropped("robots"), 0.0, expected | UNMOVED | {"retire": None, "penalty": 0})


@pytest.mark.parametrize(
    ("politeness", "outcome", "roll", "delay"),
    [
        ({}, Dropped("size"), 0.0, 1.0),
        ({}, Dropped("size", seconds=2.0), 0.0, 10.0),
        ({"delay": 5.0, "delay_to": 15.0}, Dropped("size"), 0.5, 10.0),
    ],
)
def test_a_visit_that_was_dropped_under_way_is_a_visit(politeness, outcome, roll, delay):
    """D7: the host was asked, so its duration counts as any other's."""
    check(lease(politeness=politeness), outcome, roll, {"delay": delay, "touched": True})


def test_a_visit_that_was_dropped_before_it_began_leaves_the_host_alone():
    """D7: no request was made, so nothing begins anew; the task is dropped and refunded."""
    expected = {"state": DROPPED, "counts": False, "touched": False, "reason": "robots"}

    check(lease(), Dropped("robots", visited=False), 0.0, expected | UNMOVED)


# ---- robots.txt, whatever became of the visit


@pytest.mark.parametrize(
    "outcome",
    [
        Failed("x", crawl_delay=9.0),
        Throttled(crawl_delay=9.0),
        Blocked("x", crawl_delay=9.0),
        Unreachable("x", crawl_delay=9.0),
        Dropped("x", crawl_delay=9.0),
        Done(200, from_cache=True, throttled=0.0, crawl_delay=9.0),
    ],
)
def test_crawl_delay_read_in_a_visit_applies_from_that_visit_on(outcome):
    """D1: for its own delay, raised by the level it leaves behind, and for those to come."""
    before = lease(manners={"crawl_delay": 4.0})
    doubled = 2.0 if decide(before, outcome, policy(), 0.0).level else 1.0

    check(before, outcome, 0.0, {"crawl_delay": 9.0, "delay": 9.0 * doubled})


@pytest.mark.parametrize(
    "outcome",
    [Failed("x"), Throttled(), Blocked("x"), Unreachable("x"), Dropped("x")],
)
def test_visit_without_robots_keeps_the_known_crawl_delay(outcome):
    """D1: a crawl delay of before holds for this visit's delay too."""
    before = lease(manners={"crawl_delay": 4.0})
    doubled = 2.0 if decide(before, outcome, policy(), 0.0).level else 1.0

    check(before, outcome, 0.0, {"crawl_delay": None, "delay": 4.0 * doubled})


# ---- what somebody handed in


@pytest.mark.parametrize(
    "outcome",
    [
        Done(200),
        Done(200, 0.3, 5120, "d", "e", "m", 1.0, 2.0, -3.5, from_cache=True, throttled=0.0),
        Failed(""),
        Failed("x", 0.0, 0.0),
        Throttled(),
        Throttled(DAY, 1),
        Blocked("x"),
        Unreachable("x"),
        Unreachable("x", 5.0),
        Dropped("x"),
        Dropped("x", 0.5, 2.0, visited=False),
    ],
)
def test_valid_outcome_has_no_error(outcome):
    """Whatever the types allow and makes sense."""
    assert outcome_error(outcome) is None


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        (None, "NoneType"),
        ("done", "str"),
        (Done, "outcome"),
        (Done(200, seconds=-1.0), "Done.seconds"),
        (Done(200, seconds=math.nan), "Done.seconds"),
        (Done(200, seconds=math.inf), "Done.seconds"),
        (Done(200, crawl_delay=-0.1), "Done.crawl_delay"),
        (Done(200, revisit_in=1e300), "Done.revisit_in"),
        (Done(200, throttled=-1), "Done.throttled"),
        (Done("200"), "status"),
        (Done(200, bytes=1.5), "bytes"),
        (Done(200, bytes=-1), "Done.bytes"),
        (Done(200, bytes=2**53), "Done.bytes"),
        (Done(200, reward=math.nan), "Done.reward"),
        (Failed(None), "reason"),
        (Failed("x", seconds=-1), "Failed.seconds"),
        (Failed("x", retry_in=math.inf), "Failed.retry_in"),
        (Throttled(-1), "Throttled.retry_after"),
        (Throttled(seconds=math.nan), "Throttled.seconds"),
        (Blocked(5), "reason"),
        (Unreachable(b"x"), "reason"),
        (Unreachable("x", -1.0), "Unreachable.crawl_delay"),
        (Dropped(None), "reason"),
        (Dropped("x", seconds=-1.0), "Dropped.seconds"),
        (Dropped("x", crawl_delay=math.nan), "Dropped.crawl_delay"),
        (Dropped("x", visited=None), "Dropped.visited"),
    ],
)
def test_error_names_the_field(outcome, named):
    """Bad input is refused by name, before anything is decided."""
    assert named in outcome_error(outcome)


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        (Done(200, seconds="0.3"), "seconds"),
        (Done(200, seconds=None), "seconds"),
        (Done(200, crawl_delay="5"), "crawl_delay"),
        (Done(200, revisit_in="1 day"), "revisit_in"),
        (Done(200, reward="much"), "reward"),
        (Failed("x", seconds="2"), "seconds"),
        (Failed("x", retry_in="2"), "retry_in"),
        (Throttled("120"), "retry_after"),
        (Throttled(seconds=None), "seconds"),
        (Blocked("x", seconds="1"), "seconds"),
    ],
)
def test_duration_that_is_not_a_number_is_an_error(outcome, named):
    """A header's text handed on unread is refused by name: deciding on it would raise."""
    assert named in outcome_error(outcome)


# ---- tasks that go back


def test_task_that_goes_back_is_no_failure_and_no_sign_of_the_host():
    """G1, D3, D4: an attempt and a delay, nothing else; whatever the task went through."""
    lent = lease(failures=9, throttles=9, budget={"error_penalty": 3}, manners={"level": 0})
    verdict = decide(lent, Again("busy", seconds=2.0, crawl_delay=7.0), policy(), 0.0)

    assert (verdict.state, verdict.reason, verdict.penalty) == (PENDING, "busy", 0)
    assert (verdict.counts, verdict.failed, verdict.throttled) == (True, 0, 0)
    assert (verdict.touched, verdict.delay, verdict.crawl_delay) == (True, 10.0, 7.0)
    assert (verdict.snooze, verdict.retire, verdict.answer, verdict.revisit) == (0.0, *[None] * 3)
    assert fields(verdict, UNMOVED) == UNMOVED


def test_task_goes_back_as_it_was():
    """G1, C2: forced or not, it keeps rank, lane, type, breakdown and meta."""
    lent = lease(precedence=0, priority=-3.5, lane=1, type="odd", meta=b'{"a":1}')
    requeue = decide(lent, Again(delay=4.0), policy(), 0.0).requeue

    assert (requeue.after, requeue.type, requeue.lane) == (4.0, "odd", 1)
    assert (requeue.precedence, requeue.priority, requeue.breakdown) == (0, -3.5, None)
    assert (requeue.meta, requeue.front) == (None, False)


def test_task_goes_back_as_another_type():
    """F8, C4: in the lane of that type, scored with its new meta unless a priority is given."""
    seen = []

    def score(lent, kind):
        seen.append((lent.meta, kind))
        return explicit(9.0)

    how = Policy(Retry(), Lanes(), score)
    outcome = Again(type="article", meta={"b": 2})
    requeue = decide(lease(meta=b'{"a":1}'), outcome, how, 0.0).requeue
    assert (requeue.type, requeue.lane, requeue.priority) == ("article", ACQUISITION, 9.0)
    assert (requeue.precedence, requeue.meta) == (1, b'{"b":2}')
    assert seen == [({"b": 2}, "article")]

    given = decide(lease(), Again(type="article", priority="low"), how, 0.0).requeue
    assert (given.lane, given.priority, given.breakdown.source) == (ACQUISITION, 100.0, "explicit")
    assert len(seen) == 1


def test_task_goes_to_the_front_as_a_forced_one():
    """C2: precedence 0; its priority stays."""
    requeue = decide(lease(priority=5.0, precedence=3), Again(front=True), policy(), 0.0).requeue

    assert (requeue.front, requeue.precedence, requeue.priority) == (True, 0, 5.0)


@pytest.mark.parametrize(("size", "fails"), [(100, False), (101, True)])
def test_a_visit_fails_that_gives_its_task_more_meta_than_the_crawl_admits(size, fails):
    """B1, G1: the bound of a link's meta; what is there stays."""
    how = replace(policy(), max_meta=100)
    verdict = decide(lease(), Again(meta={"x": "y" * (size - 8)}), how, 0.0)

    assert (verdict.outcome == "failed") == fails
    assert (verdict.requeue is None) == fails
    assert not fails or "101 bytes of JSON, over 100" in verdict.reason


def test_other_crawlers_names_in_new_meta_are_understood():
    """F6, F7: as in a link's meta."""
    outcome = Again(meta={"knowledgeReuse": 0.5, "estimatedCostMs": 20, "discoveryMethod": None})

    assert outcome_error(outcome) is None
    assert decide(lease(), outcome, policy(), 0.0).requeue.meta == (
        b'{"knowledge_reuse":0.5,"estimated_cost_ms":20}'
    )


def test_empty_meta_replaces_what_was_there():
    """G1: None leaves it alone."""
    assert decide(lease(), Again(meta={}), policy(), 0.0).requeue.meta == b""
    assert decide(lease(), Again(priority=-0.0), policy(), 0.0).requeue.priority == 0.0


def test_task_that_goes_back_without_a_visit_leaves_the_host_alone():
    """D7, E3: refunded, and no attempt."""
    verdict = decide(lease(), Again(visited=False), policy(), 0.0)

    assert (verdict.touched, verdict.counts, verdict.reason) == (False, False, None)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Again(5), "reason"),
        (Again(seconds=None), "Again.seconds"),
        (Again(seconds=math.nan), "Again.seconds"),
        (Again(delay=-1), "Again.delay"),
        (Again(delay=None), "Again.delay"),
        (Again(delay=1e12), "Again.delay"),
        (Again(crawl_delay="x"), "Again.crawl_delay"),
        (Again(visited=None), "Again.visited"),
        (Again(front=1), "Again: front"),
        (Again(type=""), "Again: type"),
        (Again(type="x" * 65), "Again: type"),
        (Again(type="\ud800"), "Again: type"),
        (Again(priority=math.inf), "Again: priority"),
        (Again(priority="urgent"), "Again: priority"),
        (Again(priority=True and "x"), "Again: priority"),
        (Again(meta=[1]), "Again: meta must be a dict"),
        (Again(meta={"a": math.nan}), "Again: meta is not JSON"),
        (Again(meta={"a": "x" * 1_100_000}), "Again: meta: "),
        (Again(meta={"discoveryMethod": "sitemap"}), "Again: meta.discoveryMethod"),
        (Again(meta={"knowledgeReuse": 1, "knowledge_reuse": 0}), "meta.knowledge_reuse = 0 and"),
    ],
)
def test_invalid_fields_of_a_task_that_goes_back_are_named(outcome, error):
    """J6: each with its place; they have the limits of a link's fields."""
    assert error in outcome_error(outcome)


def test_valid_fields_of_a_task_that_goes_back_are_accepted():
    """All of them at once."""
    outcome = Again("r", 1, 2.0, {"a": 1}, "article", "high", front=True, crawl_delay=3)

    assert outcome_error(outcome) is None
    assert outcome_error(Again()) is None
