"""C4, as a property of the frontier: no lane is served longer than the burst while the other waits,
and no claim idles while either lane has something.
"""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider import Done, Frontier, Link
from outrider.testing import FakeClock

moves = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["article", "nav"]), st.integers(1, 6)),
        st.tuples(st.just("claim"), st.integers(1, 12)),
    ),
    max_size=25,
)


async def served(burst, told):
    """Which lane each lease was of, and what both lanes had before it."""
    free = {"politeness": {"delay": 0.0, "max_in_flight": 1000}, "lanes": {"burst": burst}}
    waiting, seen, number = {"article": 0, "nav": 0}, [], 0
    async with Frontier.open("memory://", settings=free, clock=FakeClock()) as frontier:
        for what, count in told:
            if what in waiting:
                pages = range(number, number + count)
                links = [Link(f"https://h{page % 3}.example/{page}", type=what) for page in pages]
                number += count
                waiting[what] += (await frontier.add(links)).added
                continue
            claim = await frontier.claim(count)
            assert len(claim) == min(count, sum(waiting.values())), "it idled"
            for lease in claim:
                seen.append((lease.type, dict(waiting)))
                waiting[lease.type] -= 1
            await frontier.finish_many([(lease, Done(200)) for lease in claim])
    return seen


@settings(deadline=None)
@given(st.integers(1, 6), moves)
def test_lanes_take_turns_and_never_idle(burst, told):
    """However work comes and however much is claimed at a time."""
    row, last = 0, None
    for lane, waiting in asyncio.run(served(burst, told)):
        other = "nav" if lane == "article" else "article"
        row = (row if lane == last else 0) + 1 if waiting[other] else 0
        last = lane
        assert row <= burst
