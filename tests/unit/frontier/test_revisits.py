import msgspec
import pytest

from outrider import Done, Link
from outrider.core.outcome import Answer, Last
from outrider.core.policy.change_rate import updated_answer
from outrider.core.policy.revisit import Revisiting, first_price, interval
from outrider.frontier.policies import PRICE_SAMPLES, Revisits, revisits_for

A = "https://a.example/"
HOUR, DAY = 3600.0, 86_400.0


def page(*, planned=0.0, looks=20, changes=10, watched=15 * DAY):
    """What is remembered of a page that changes every other day or so."""
    return Answer(200, 0, "d", None, None, looks, changes, watched, planned)


async def visit(frontier, outcome):
    """Claim the one task that is due, and finish it."""
    (lease,) = await frontier.claim()
    assert await frontier.finish(lease, outcome)
    return lease


# ---- on a frontier


async def test_nothing_comes_again_unless_asked(frontier, clock):
    """G3: by default."""
    await frontier.add([A])
    await visit(frontier, Done(200))
    clock.advance(3650 * DAY)

    assert list(await frontier.claim()) == []


async def test_fixed_brings_every_page_back_as_often_as_set(opened, clock):
    """G3: as a refresh, with its last answer."""
    frontier = await opened({"revisit": {"policy": "fixed", "every": 100.0}})
    await frontier.add([A])
    await visit(frontier, Done(200, etag="e"))
    clock.advance(99.0)
    assert list(await frontier.claim()) == []
    clock.advance(1.0)

    lease = await visit(frontier, Done(304))

    assert (lease.type, lease.last.answer.etag, lease.last.age) == ("refresh", "e", 100.0)
    assert (await frontier.explain(A)).task.due_at == pytest.approx(clock.now() + 100.0)
    assert (await frontier.explain(A)).task.answer.etag == "e"


async def test_value_learns_from_visit_to_visit(opened, clock):
    """G3: the interval of an unchanged page grows, up to the maximum age."""
    frontier = await opened({"revisit": {"policy": "value", "max_age": 5 * DAY}})
    await frontier.add([A])
    waits = []
    for _ in range(40):
        await visit(frontier, Done(200, digest="same"))
        waits.append((await frontier.explain(A)).task.answer.planned)
        clock.advance(waits[-1] + 1.0)  # due instants are whole milliseconds

    assert waits[0] == DAY
    assert waits == sorted(waits)
    assert waits[-1] == 5 * DAY


@pytest.mark.parametrize("policy", ["fixed", "value"])
async def test_a_page_gone_twice_is_done(opened, clock, policy):
    """G3: the first time it may be an accident."""
    frontier = await opened({"revisit": {"policy": policy, "every": DAY}})
    await frontier.add([A])
    states = []
    for status in (200, 404, 200, 404, 410):
        await visit(frontier, Done(status))
        states.append((await frontier.explain(A)).task.state.value)
        clock.advance(DAY)

    assert states == ["pending"] * 4 + ["done"]


async def test_a_crawl_with_revisits_stays_open(opened, clock):
    """I2: waiting revisits count."""
    frontier = await opened({"revisit": {"policy": "fixed"}})
    await frontier.add([A])
    await visit(frontier, Done(200))
    claim = await frontier.claim()

    assert claim.wake_in == pytest.approx(DAY)
    assert (await frontier.stats()).status == "running"


async def test_the_visits_of_an_hour_are_shared_by_all_pages(opened, clock):
    """G3: the interval wanted is the number of pages, by the visits an hour."""
    settings = {
        "revisit": {"policy": "value", "visits_per_hour": 2.0},
        "politeness": {"delay": 0.0, "max_in_flight": 1000},
    }
    frontier = await opened(settings)
    await frontier.add([Link(f"{A}{number}") for number in range(100)])
    for _ in range(2):
        leases = await frontier.claim(100)
        for lease in leases:
            await frontier.finish(lease, Done(200, digest="d"))
        clock.advance(DAY)

    assert frontier._policies.revisits._wanted == pytest.approx(50 * HOUR, rel=0.1)


# ---- the price


def test_no_revisits_without_a_policy():
    """N1: without a policy, no plan is made at a finish."""
    assert revisits_for(Revisiting()) is None
    assert revisits_for(Revisiting("fixed")) is not None


def test_the_pages_are_counted_only_if_they_matter_and_now_and_then():
    """G3: after a tenth as many visits as there are pages, a thousand at most."""
    idle, counting = Revisits(Revisiting("value")), Revisits(Revisiting("value", visits_per_hour=9))
    assert (idle.wants_count, counting.wants_count) == (False, True)

    counting.set_page_count(100)
    asked = []
    for _ in range(10):
        asked.append(counting.wants_count)
        counting.plan(page(), None)

    assert asked == [False] * 10
    assert counting.wants_count


def test_a_new_worker_takes_over_the_price():
    """G3: from earlier plans of any worker."""
    how, price = Revisiting("value"), 0.05 * DAY
    new = Revisits(how)
    assert new.price == first_price(DAY)
    for looks in range(4, 4 + PRICE_SAMPLES):
        seen = page(looks=looks, changes=looks // 2, watched=looks * DAY)
        planned = interval(seen, Last(seen, 30 * DAY), how, price)
        last = Last(msgspec.structs.replace(seen, planned=planned), planned)
        new.plan(updated_answer(last, Done(200, digest="d")), last)

    assert new.price == pytest.approx(price, rel=0.05)


def test_worker_ignores_earlier_prices_after_enough_samples():
    """G3: what others paid no longer moves it, but for what it makes them do."""
    old = Revisits(Revisiting("value"))
    for _ in range(PRICE_SAMPLES):
        old.plan(page(), Last(page(planned=2 * DAY), 2 * DAY))
    before = old.price
    old.plan(page(), Last(page(planned=2 * HOUR), 2 * DAY))

    assert old.price == pytest.approx(before, rel=0.01)
