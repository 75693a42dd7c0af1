"""The profile `paced` on a frontier: one pace, lists first, mixed, and long cooldowns (003, L1)."""

from itertools import pairwise
from random import Random

import pytest

from outrider import Blocked, Done, Failed, Frontier, Link, Throttled, Unreachable
from outrider.testing import FakeClock

PACED = {"profile": "paced"}
MINUTE = 60.0


def link(path, kind, **fields):
    """A link of a type, of one of several hosts."""
    return Link(f"https://{path}", type=kind, **fields)


async def next_lease(frontier, clock):
    """The next task and the seconds until it was leased; it stays in flight."""
    waited = 0.0
    while not (claim := await frontier.claim(10, lease_for=3600.0)):
        waited += claim.wake_in
        clock.advance(claim.wake_in)
    (lease,) = claim  # never two at once, however many are asked for
    return lease, waited


async def test_whole_crawl_has_one_queue_and_one_pace():
    """D1: 5 to 15 s between two starts, over all hosts, however long the visits take."""
    clock = FakeClock()
    async with Frontier.open(settings=PACED, clock=clock, dice=Random(1).random) as frontier:
        await frontier.add([link(f"h{n}.example/{n}", "product") for n in range(60)])
        found = [await next_lease(frontier, clock) for _ in range(60)]
        queues = [view async for view in frontier.queues()]
        waits = [waited for _, waited in found[1:]]

    assert [(view.key, view.in_flight) for view in queues] == [("bucket-0000", 60)]
    assert found[0][1] == 0.0
    assert all(5.0 <= waited <= 15.01 for waited in waits)
    assert 8.0 < sum(waits) / len(waits) < 12.0
    assert max(waits) - min(waits) > 5.0


async def test_pace_holds_across_workers_and_a_restart(tmp_path):
    """D1, M3: the store paces it, not the process that claims."""
    path, clock = tmp_path / "crawl.outrider", FakeClock()
    async with Frontier.open(path, settings=PACED, clock=clock, worker="one") as frontier:
        await frontier.add([link(f"h{n}.example/", "product") for n in range(3)])
        await next_lease(frontier, clock)
        async with Frontier.attach(frontier.store, clock=clock, worker="two") as other:
            assert await other.claim(5) == []
        clock.advance(4.9)
    async with Frontier.open(path, settings=PACED, clock=clock, worker="three") as frontier:
        assert await frontier.claim(5) == []
        _, waited = await next_lease(frontier, clock)

    assert 0.1 - 0.01 <= waited <= 10.11


async def test_lists_come_before_goods_at_any_depth():
    """F10: by type alone: search and pagination 1, product 2; depth and origin do not matter."""
    clock = FakeClock()
    async with Frontier.open(settings=PACED, clock=clock) as frontier:
        await frontier.add(
            [
                link("a.example/p/1", "product", depth=1, origin="sitemap"),
                link("a.example/p/2", "product", depth=0),
                link("a.example/list?page=99", "pagination", depth=99),
                link("a.example/search", "search", depth=0),
                link("a.example/list?page=5000", "pagination", depth=5000),
                link("a.example/other", "page", depth=0),
            ]
        )
        kinds = [(await next_lease(frontier, clock))[0].type for _ in range(6)]
        pages = {task.type: task.priority async for task in frontier.tasks()}
        explained = await frontier.explain("https://a.example/search")

    assert sorted(kinds[:3]) == ["pagination", "pagination", "search"]
    assert kinds[3:] == ["product", "product", "page"]
    assert pages == {"pagination": 1.0, "search": 1.0, "product": 2.0, "page": 12.0}
    (term,) = explained.terms
    assert (term.name, term.value, term.setting, term.weight) == (
        *("type", 1.0, "scoring.weights.search", 1.0),
    )


async def test_equals_are_shuffled_so_that_keywords_mix():
    """C2: not in the order in which their pages were found, keyword by keyword."""
    clock, dice = FakeClock(), Random(3)
    words = ("tea", "cups", "pots")
    async with Frontier.open(settings=PACED, clock=clock, dice=dice.random) as frontier:
        for word in words:
            await frontier.add(
                [link(f"a.example/{word}/{n}", "product", tag=word) for n in range(9)]
            )
        tags = [(await next_lease(frontier, clock))[0].tag for _ in range(27)]

    assert sorted(tags) == sorted(words * 9)
    assert all(set(tags[start : start + 9]) == set(words) for start in (0, 9, 18))
    assert sum(one != other for one, other in pairwise(tags)) > 10


@pytest.mark.parametrize(
    "outcome",
    [
        Failed("HTTP 500"),
        Blocked("captcha"),
        Unreachable("connect"),
        Throttled(),
        Throttled(retry_after=3.0),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
async def test_every_failure_waits_out_a_cooldown_and_the_fourth_is_dead(outcome):
    """G1: 15 to 20, 30 to 35 and 60 to 65 minutes; the queue goes on meanwhile."""
    clock = FakeClock()
    async with Frontier.open(settings=PACED, clock=clock) as frontier:
        await frontier.add([link("bad.example/", "search")])
        waits = []
        for failures in range(4):
            lease, _ = await next_lease(frontier, clock)
            assert lease.attempt == failures + 1
            began = clock.now_ms()
            await frontier.finish(lease, outcome)
            if failures == 0:
                await frontier.add([link("good.example/", "product")])
                good, waited = await next_lease(frontier, clock)
                assert good.url == "https://good.example/"
                assert waited <= 15.01
                await frontier.finish(good, Done(200))
            if failures < 3:
                view = (await frontier.explain("https://bad.example/")).task
                waits.append((view.due_at - began / 1000) / MINUTE)
        (dead,) = [letter async for letter in frontier.dead()]
        (queue,) = [view async for view in frontier.queues()]

    for waited, (least, most) in zip(waits, ((15, 20), (30, 35), (60, 65)), strict=True):
        assert least <= waited <= most
    assert (dead.url, len(dead.attempts)) == ("https://bad.example/", 4)
    assert queue.state == "empty"


@pytest.mark.parametrize(
    ("settings", "retried"),
    [
        (PACED, [1, 2, 3, 3]),
        ({"profile": "polite"}, [0, 0, 0, 0, 1, 2, 3, 3]),
    ],
)
async def test_throttled_visits_count_as_retried_where_they_fail_their_task(settings, retried):
    """G1, D3, O1: all with `every_failure`, else from the fifth on; the last one makes it dead."""
    clock, counts = FakeClock(), []
    async with Frontier.open(settings=settings, clock=clock) as frontier:
        await frontier.add([link("bad.example/", "search")])
        for _ in retried:
            lease, _ = await next_lease(frontier, clock)
            await frontier.finish(lease, Throttled())
            counts.append(frontier.retried)
        stats = await frontier.stats()

    assert (counts, stats.dead) == (retried, 1)


async def test_retry_after_is_never_shortened():
    """D3: of the task alone, since the other hosts of its queue did not ask for it."""
    clock = FakeClock()
    async with Frontier.open(settings=PACED, clock=clock) as frontier:
        await frontier.add([link("a.example/", "search")])
        (lease,) = await frontier.claim()
        await frontier.finish(lease, Throttled(retry_after=7200.0))
        view = (await frontier.explain("https://a.example/")).task

    assert view.due_at - clock.now_ms() / 1000 >= 7200.0 - 0.01


async def test_hosts_that_fail_in_a_row_do_not_hold_or_retire_the_crawl():
    """D3, D4: ten of each, and the eleventh task is leased at the usual pace."""
    clock = FakeClock()
    async with Frontier.open(settings=PACED, clock=clock) as frontier:
        await frontier.add([link(f"h{n}.example/", "product") for n in range(31)])
        for n in range(30):
            lease, waited = await next_lease(frontier, clock)
            assert waited <= 15.01
            outcome = (Unreachable("dns"), Throttled(), Blocked("captcha"))[n // 10]
            await frontier.finish(lease, outcome)
        _, waited = await next_lease(frontier, clock)
        (queue,) = [view async for view in frontier.queues()]

    assert waited <= 15.01
    assert queue.state in ("busy", "snoozed")
