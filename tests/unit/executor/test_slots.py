import asyncio

from outrider.executor.slots import Slots


class Someone:
    """As much of a visit as a slot sees."""

    def __init__(self, url="https://a.example/"):
        self.url = url


def states(slots):
    """Ids and states."""
    return [(view.id, view.state) for view in slots.views()]


def test_the_lowest_idle_slot_is_given_and_ids_stay():
    """J2: an id names the same place for as long as it exists."""
    slots, first, second = Slots(3), Someone(), Someone()
    slots.take(first)
    slots.take(second)
    slots.give(first)

    assert states(slots) == [(0, "idle"), (1, "busy"), (2, "idle")]
    assert (slots.busy, slots.free) == (1, 2)


def test_slots_taken_away_drain_first():
    """A busy slot beyond the count is draining, and gone when its visit is over."""
    slots, visits = Slots(3), [Someone() for _ in range(3)]
    for visit in visits:
        slots.take(visit)
    slots.resize(1)

    assert states(slots) == [(0, "busy"), (1, "draining"), (2, "draining")]

    for visit in visits:
        slots.give(visit)

    assert states(slots) == [(0, "idle")]


def test_a_slot_that_comes_back_while_draining_is_not_doubled():
    """Down and up again: every id once."""
    slots, visit = Slots(2), Someone()
    slots.take(Someone())
    slots.take(visit)
    slots.resize(1)
    slots.resize(3)

    assert states(slots) == [(0, "busy"), (1, "busy"), (2, "idle")]

    slots.give(visit)

    assert states(slots) == [(0, "busy"), (1, "idle"), (2, "idle")]


async def test_who_was_parked_goes_before_new_claims():
    """A visit that waited has the next slot; until then nothing is free."""
    slots, first, second = Slots(1), Someone(), Someone()
    slots.take(first)
    back = asyncio.ensure_future(slots.take_again(second))
    await asyncio.sleep(0)

    assert not back.done()

    slots.give(first)
    await back

    assert (slots.busy, slots.free) == (1, 0)


async def test_who_stops_waiting_leaves_no_trace():
    """A cancelled visit does not keep a slot."""
    slots, first = Slots(1), Someone()
    slots.take(first)
    back = asyncio.ensure_future(slots.take_again(Someone()))
    await asyncio.sleep(0)
    back.cancel()
    await asyncio.gather(back, return_exceptions=True)
    slots.give(first)

    assert (slots.busy, slots.free) == (0, 1)


def test_giving_twice_gives_once():
    """Whoever says so first."""
    slots, visit = Slots(1), Someone()
    slots.take(visit)
    slots.give(visit)
    slots.give(visit)

    assert (slots.busy, slots.free) == (0, 1)


async def test_slots_of_a_claim_under_way_are_not_given_away():
    """A claim takes its time: whoever comes back meanwhile waits for another slot, or for it."""
    slots, busy, back, claimed = Slots(3), Someone(), Someone(), Someone()
    slots.take(busy)
    with slots.reserved(2):
        waiting = asyncio.ensure_future(slots.take_again(back))
        await asyncio.sleep(0)
        assert not waiting.done()
        slots.take(claimed)
    await waiting

    assert (slots.busy, slots.free) == (3, 0)


async def test_a_slot_that_falls_free_during_a_claim_goes_to_who_waits():
    """It is none of those that were claimed for."""
    slots, busy, back = Slots(2), Someone(), Someone()
    slots.take(busy)
    with slots.reserved(1):
        waiting = asyncio.ensure_future(slots.take_again(back))
        await asyncio.sleep(0)
        slots.give(busy)
        await waiting
        assert slots.free == 1


def test_a_slot_taken_away_during_a_claim_drains():
    """J3: what was claimed for it is visited all the same."""
    slots, one = Slots(1), Someone()
    with slots.reserved(1):
        slots.resize(0)
        slots.take(one)

    assert states(slots) == [(0, "draining")]
    slots.give(one)
    assert states(slots) == []
