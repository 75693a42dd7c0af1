import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.order import discounted, queue_key
from outrider.core.pick import ACTIVATE, NOTHING, Streak, pick
from outrider.core.task import ACQUISITION, DISCOVERY

NOBODY = 0  # what a lane says where nobody stands
BURST = 5


def stands(precedence=0):
    """The key of a queue of this precedence that stands ready; of None: nobody."""
    return 0 if precedence is None else queue_key(precedence, discounted(1, 0.0), 1, 1)


@pytest.mark.parametrize(
    ("first", "second", "lane", "count", "expected"),
    [
        # the lane whose turn it is
        (0, 0, DISCOVERY, 0, (DISCOVERY, 1)),
        (0, 0, DISCOVERY, 4, (DISCOVERY, 5)),
        (0, 0, ACQUISITION, 2, (ACQUISITION, 3)),
        # after a burst, the other
        (0, 0, DISCOVERY, 5, (ACQUISITION, 1)),
        (0, 0, ACQUISITION, 5, (DISCOVERY, 1)),
        (0, 0, ACQUISITION, 6, (DISCOVERY, 1)),
        # an empty lane is passed at once, and the count restarts
        (None, 0, DISCOVERY, 3, (ACQUISITION, 1)),
        (0, None, ACQUISITION, 3, (DISCOVERY, 1)),
        # after a burst with nobody in the other lane: this one again, from 1
        (0, None, DISCOVERY, 5, (DISCOVERY, 1)),
        (None, 0, ACQUISITION, 5, (ACQUISITION, 1)),
    ],
)
def test_lanes_take_turns(first, second, lane, count, expected):
    """C4: up to a burst from one, then the other; an empty lane is passed at once."""
    assert pick(stands(first), stands(second), None, lane, count, BURST) == expected


@pytest.mark.parametrize("lane", [DISCOVERY, ACQUISITION])
@pytest.mark.parametrize("count", [0, 3, 5])
def test_no_ready_and_no_inactive_queue_ends_the_claim(lane, count):
    """C4: when neither lane has a ready active queue there is nothing to lease."""
    step, _ = pick(NOBODY, NOBODY, None, lane, count, BURST)

    assert step == NOTHING


@pytest.mark.parametrize("count", [0, 3, 4])
def test_the_end_of_a_claim_leaves_the_count(count):
    """C4: lane and count stay."""
    assert pick(NOBODY, NOBODY, None, ACQUISITION, count, BURST) == (NOTHING, count)


@pytest.mark.parametrize(
    ("first", "second", "head", "activates"),
    [
        (None, None, 0, True),
        (0, None, 0, False),
        (None, 0, 0, False),
        (1, 1, 0, True),
        (1, 0, 0, False),
        (-1, None, 0, False),
        (0, 0, -1, True),
        (5, None, 5, False),
    ],
)
def test_the_best_inactive_head_is_activated_unless_one_as_good_is_ready(
    first, second, head, activates
):
    """E2: looked for in both lanes, before the lanes have their turn."""
    step, _ = pick(stands(first), stands(second), head, DISCOVERY, 2, BURST)

    assert (step == ACTIVATE) is activates


def test_activation_does_not_count_for_the_lanes():
    """C4: no lease, so the count stays."""
    assert pick(NOBODY, NOBODY, 0, DISCOVERY, 3, BURST) == (ACTIVATE, 3)


@given(
    st.booleans(),
    st.booleans(),
    st.sampled_from([DISCOVERY, ACQUISITION]),
    st.integers(0, 20),
    st.integers(1, 10),
)
def test_lane_without_ready_queue_is_not_leased_from(first, second, lane, count, burst):
    """C4: and somebody is chosen whenever somebody stands anywhere; never above the burst."""
    keys = (stands() if first else NOBODY, stands() if second else NOBODY)

    step, after = pick(*keys, None, lane, count, burst)

    assert (step == NOTHING) is not (first or second)
    if step != NOTHING:
        assert keys[step] != NOBODY
        assert 1 <= after <= burst


def test_a_claimer_begins_with_discovery():
    """C4: discovery first, nothing counted."""
    assert Streak() == (DISCOVERY, 0)
