"""Whole stories through the public names. Every expected value is worked out from SPEC.md by hand.

"a/1" is https://a.example/1, a page of the queue a.example. The dice show 0, so there is no jitter.
"""

import asyncio

import pytest

from outrider import Again, Blocked, Done, Dropped, Failed, Link, Throttled, Unreachable

DONE = Done(200)


def link(name, **fields):
    """A link to "a/1"."""
    host, _, path = name.partition("/")
    return Link(f"https://{host}.example/{path}", **fields)


def name_of(lease):
    """The lease's page as "a/1"."""
    return lease.url.removeprefix("https://").replace(".example", "")


async def add(frontier, *names, **fields):
    """Add pages alike but for their names, in one batch."""
    report = await frontier.add([link(name, **fields) for name in names])
    assert report.added == len(names)


async def claimed(frontier, limit=1):
    """What a claim brings, by name."""
    return [name_of(lease) for lease in await frontier.claim(limit)]


async def visit(frontier, outcome=DONE):
    """Claim one page and finish it; its name."""
    (lease,) = await frontier.claim()
    assert await frontier.finish(lease, outcome)
    return name_of(lease)


async def drained(frontier):
    """Visit one after the other whatever can be visited now; the names in that order."""
    order = []
    while leases := await frontier.claim():
        order += [name_of(lease) for lease in leases]
        assert len(order) < 100, "it never ends"
        await frontier.finish_many([(lease, DONE) for lease in leases])
    return " ".join(order)


async def queue(frontier, host="a"):
    """How a queue looks."""
    return await frontier.queue(f"{host}.example").view()


async def state(frontier, host="a"):
    """A queue's state and reason."""
    view = await queue(frontier, host)
    return view.state, view.reason


@pytest.fixture
def crawl(opened):
    """Opens a frontier without delays, unless a test sets politeness."""

    async def opening(politeness=None, **sections):
        given = {"politeness": {"delay": 0.0, **(politeness or {})}, **sections}
        return await opened(given)

    return opening


# ---- budget rotation: E1, E2


async def three_hosts(frontier, pages):
    """Host a is wanted before b, and b before c; as many pages each."""
    for host, priority in (("a", 0), ("b", 10), ("c", 20)):
        await add(frontier, *(f"{host}/{n}" for n in range(1, pages + 1)), priority=priority)


async def test_a_balance_of_one_rotates_page_by_page(crawl):
    """E2: every visit ends its session, and the queue goes to the back of the inactive."""
    frontier = await crawl(budget={"balance": 1})
    await three_hosts(frontier, 3)

    assert await drained(frontier) == "a/1 b/1 c/1 a/2 b/2 c/2 a/3 b/3 c/3"


async def test_a_balance_of_three_rotates_three_by_three(crawl):
    """E2: a session of three, then the next host; a session cut short by emptiness ends, too."""
    frontier = await crawl(budget={"balance": 3})
    await three_hosts(frontier, 4)

    assert await drained(frontier) == "a/1 a/2 a/3 b/1 b/2 b/3 c/1 c/2 c/3 a/4 b/4 c/4"


async def test_a_balance_is_spent_page_by_page(crawl):
    """E2, E8: what is left of the session; then the queue is inactive."""
    frontier = await crawl(budget={"balance": 3})
    await three_hosts(frontier, 4)

    seen = []
    for _ in range(3):
        await visit(frontier)
        view = await queue(frontier)
        seen.append((view.state, view.spent, view.grant))

    assert seen == [("ready", 1, 3), ("ready", 2, 3), ("inactive", 3, 3)]


async def test_costs_are_what_a_session_spends(crawl):
    """E2, E4: pages of cost 2 against a balance of 3: over when ≥ 3, so after two."""
    frontier = await crawl(budget={"balance": 3, "cost": lambda _url, _via: 2})
    await three_hosts(frontier, 3)

    assert await drained(frontier) == "a/1 a/2 b/1 b/2 c/1 c/2 a/3 b/3 c/3"


async def test_spent_queue_without_competitors_is_activated_again(crawl):
    """E2: re-activated at once."""
    frontier = await crawl(budget={"balance": 1})
    await add(frontier, "a/1", "a/2", "a/3")

    assert await drained(frontier) == "a/1 a/2 a/3"


async def test_a_session_may_be_spent_within_one_claim(crawl):
    """E1: judged after every lease: of five slots a balance of 2 is used, then the next host."""
    frontier = await crawl({"max_in_flight": 5}, budget={"balance": 2})
    await three_hosts(frontier, 3)

    assert await claimed(frontier, 6) == ["a/1", "a/2", "b/1", "b/2", "c/1", "c/2"]
    assert await claimed(frontier, 6) == ["a/3", "b/3", "c/3"]


async def test_without_a_rotation_priority_rules_across_hosts(crawl):
    """E2: the default: a new queue opens its session at once."""
    frontier = await crawl()
    await add(frontier, "a/1", priority=0)
    await add(frontier, "a/2", priority=3)
    await add(frontier, "b/1", priority=1)
    await add(frontier, "b/2", priority=2)

    assert await drained(frontier) == "a/1 b/1 b/2 a/2"


# ---- site-first: E2


async def test_site_first_visits_one_host_after_the_other(crawl):
    """E2: hold_queues: b is wanted more, but a came first and is active."""
    frontier = await crawl(budget={"hold_queues": True})
    for n in (1, 2, 3):
        await add(frontier, f"a/{n}", priority=100)
        await add(frontier, f"b/{n}", priority=-100)
    assert [await state(frontier, host) for host in "ab"] == [("inactive", None)] * 2

    assert await drained(frontier) == "a/1 a/2 a/3 b/1 b/2 b/3"


async def test_site_first_takes_up_the_next_host_while_the_first_is_left_alone(crawl, clock):
    """E2: no ready queue, so the next is activated; once awake, the active ones go on."""
    frontier = await crawl({"delay": 10.0}, budget={"hold_queues": True})
    for host in "abc":
        await add(frontier, f"{host}/1", f"{host}/2")

    assert await visit(frontier) == "a/1"
    clock.advance(1)
    assert await visit(frontier) == "b/1"
    clock.advance(9)
    assert await visit(frontier) == "a/2"
    assert await state(frontier, "c") == ("inactive", None)
    assert await visit(frontier) == "c/1"


async def test_site_first_with_a_balance_rotates_in_sessions(crawl):
    """E2: two of a, two of b, and so on, each from the back of the inactive."""
    frontier = await crawl(budget={"hold_queues": True, "balance": 2})
    for n in (1, 2, 3):
        await add(frontier, f"a/{n}", f"b/{n}")

    assert await drained(frontier) == "a/1 a/2 b/1 b/2 a/3 b/3"


async def test_a_refilled_queue_is_held_again(crawl):
    """E2: empty and nothing in flight ends the session: what comes later waits its turn."""
    frontier = await crawl(budget={"hold_queues": True})
    await add(frontier, "a/1", "b/1", "b/2")
    assert await visit(frontier) == "a/1"
    await add(frontier, "a/2")

    assert await drained(frontier) == "b/1 b/2 a/2"


async def test_a_page_that_finds_its_next_keeps_its_session(crawl):
    """E2, H6: links are added first, so the queue was never empty."""
    frontier = await crawl(budget={"hold_queues": True})
    await add(frontier, "a/1", "b/1")
    (lease,) = await frontier.claim()
    await frontier.finish(lease, DONE, links=[link("a/2")])

    assert await drained(frontier) == "a/2 b/1"


async def test_a_better_precedence_is_activated_first(crawl):
    """E2: the best inactive head is of the best precedence; C3: it also comes first when ready."""
    frontier = await crawl(budget={"hold_queues": True}, keys={"c.example": {"precedence": -1}})
    await add(frontier, "a/1", "b/1", "c/1", "c/2")

    assert await drained(frontier) == "c/1 c/2 a/1 b/1"


# ---- round-robin: C3


async def test_round_robin_goes_by_turns_alone(crawl):
    """C3: priority orders within a queue, never among queues."""
    frontier = await crawl(queue={"order": "round-robin"})
    await add(frontier, "a/1", "a/2", "a/3", priority=100)
    await add(frontier, "b/2", priority=5)
    await add(frontier, "b/1", priority=-5)
    await add(frontier, "c/1", priority=-100)

    assert await drained(frontier) == "a/1 b/1 c/1 a/2 b/2 a/3"


async def test_equal_priorities_take_turns_anyway(crawl):
    """C3: the turn is the last word, the tie never compares queues."""
    frontier = await crawl()
    await add(frontier, "a/1", "a/2", "a/3", "b/1", "b/2")

    assert await drained(frontier) == "a/1 b/1 a/2 b/2 a/3"


async def test_queue_precedence_comes_before_everything(crawl):
    """C3: an operator's; the priority of the tasks does not matter."""
    frontier = await crawl()
    await add(frontier, "a/1", "a/2", priority="critical")
    await add(frontier, "b/1", priority="low")
    await frontier.queue("b.example").set(precedence=-1)

    assert await drained(frontier) == "b/1 a/1 a/2"


# ---- retire and return: E1, E3, E5


async def test_a_spent_total_retires_and_a_raised_one_returns(crawl):
    """E5: its tasks are kept and held; raised, it resumes where it stopped."""
    frontier = await crawl(budget={"total_budget": 2})
    await add(frontier, "a/1", "a/2", "a/3", "a/4")

    assert await drained(frontier) == "a/1 a/2"
    assert await state(frontier) == ("retired", "budget")
    stats = await frontier.stats()
    assert (stats.pending, stats.held, stats.status) == (2, 2, "finished")

    view = await frontier.queue("a.example").set(total_budget=3)
    assert (view.state, view.total_budget) == ("ready", 3)
    assert ((await frontier.stats()).held, (await frontier.stats()).status) == (0, "running")
    assert await drained(frontier) == "a/3"
    assert await state(frontier) == ("retired", "budget")


async def test_a_retired_queue_still_receives(crawl):
    """E5: new tasks are kept and held; they return with it."""
    frontier = await crawl(budget={"total_budget": 1})
    await add(frontier, "a/1", "a/2")
    assert await drained(frontier) == "a/1"

    await add(frontier, "a/3")
    assert await claimed(frontier) == []
    assert (await frontier.stats()).held == 2

    await frontier.queue("a.example").set(total_budget=-1)
    assert await drained(frontier) == "a/2 a/3"


async def test_a_lowered_total_retires_at_once(crawl):
    """E5: at or under the spending."""
    frontier = await crawl()
    await add(frontier, "a/1", "a/2", "a/3")
    await visit(frontier)
    await visit(frontier)

    assert (await frontier.queue("a.example").set(total_budget=3)).state == "ready"
    view = await frontier.queue("a.example").set(total_budget=2)

    assert (view.state, view.reason, view.spent) == ("retired", "budget", 2)


async def test_a_balance_of_nothing_retires_and_of_something_returns(crawl):
    """E1, E5."""
    frontier = await crawl()
    await add(frontier, "a/1")

    assert (await frontier.queue("a.example").set(balance=0)).reason == "budget"
    assert await claimed(frontier) == []
    assert (await frontier.queue("a.example").set(balance=5)).state == "ready"
    assert await claimed(frontier) == ["a/1"]


async def test_a_crawl_wide_raise_returns_all(crawl):
    """E5: all of them, if the change is crawl-wide; but none that an operator retired."""
    frontier = await crawl(budget={"total_budget": 1})
    await add(frontier, "a/1", "a/2", "b/1", "b/2", "c/1")
    await frontier.queue("c.example").retire()
    assert await drained(frontier) == "a/1 b/1"

    await frontier.configure({"budget": {"total_budget": 2}})

    assert await state(frontier, "c") == ("retired", "operator")
    assert await drained(frontier) == "a/2 b/2"


async def test_a_refund_returns_a_queue_over_its_budget(crawl):
    """E3: two leases spend the total of 2 and retire it; one given back, it returns."""
    frontier = await crawl({"max_in_flight": 3}, budget={"total_budget": 2})
    await add(frontier, "a/1", "a/2", "a/3")
    leases = await frontier.claim(3)
    assert [name_of(lease) for lease in leases] == ["a/1", "a/2"]
    assert await state(frontier) == ("retired", "budget")

    await frontier.release([leases[1]])

    view = await queue(frontier)
    assert (view.state, view.spent) == ("ready", 1)
    assert await claimed(frontier) == ["a/2"]


async def test_capped_sites_with_pause_at_finish(crawl):
    """E9: two pages of each, look at them, then one more."""
    frontier = await crawl(budget={"total_budget": 2}, crawl={"pause_at_finish": True})
    await add(frontier, *(f"{host}/{n}" for host in "ab" for n in (1, 2, 3, 4)))

    assert await drained(frontier) == "a/1 b/1 a/2 b/2"
    assert (await frontier.stats()).status == "paused"

    await frontier.configure({"budget": {"total_budget": 3}})
    await frontier.resume()
    assert await drained(frontier) == "a/3 b/3"
    stats = await frontier.stats()
    assert (stats.status, stats.held) == ("paused", 2)


# ---- refunds, penalties, quotas: E3, E6


@pytest.mark.parametrize(
    ("outcome", "spent"),
    [
        (DONE, 3),
        (Failed("x"), 3),
        (Blocked("x"), 3),
        (Throttled(), 0),
        (Unreachable("x"), 0),
        (Dropped("x"), 0),
        (Again("x"), 3),
        (Again("x", visited=False), 0),
        (Done(200, from_cache=True), 0),
        ("release", 0),
        ("crash", 3),
    ],
)
async def test_a_charge_stays_when_the_attempt_counts(crawl, clock, outcome, spent):
    """E3: to the total; charged at the claim, refunded at the end."""
    frontier = await crawl(budget={"cost": lambda _url, _via: 3})
    await add(frontier, "a/1")
    (lease,) = await frontier.claim()
    assert (await queue(frontier)).spent == 3

    if outcome == "release":
        await frontier.release([lease])
    elif outcome == "crash":
        clock.advance(60)
        await frontier.expire()
    else:
        await frontier.finish(lease, outcome)

    assert (await queue(frontier)).spent == spent


async def test_a_refund_is_the_sessions_too(crawl):
    """E3: two dropped pages cost a session of two nothing."""
    frontier = await crawl(budget={"balance": 2})
    await add(frontier, "a/1", "a/2", "a/3", "a/4", priority=0)
    await add(frontier, "b/1", priority=9)

    order = [await visit(frontier, Dropped("robots")) for _ in range(2)]
    order += [await visit(frontier) for _ in range(3)]

    assert order == ["a/1", "a/2", "a/3", "a/4", "b/1"]


async def test_a_failure_costs_its_penalty(crawl, clock):
    """E3: 1 + 5 a failure; the second passes the total of 10; E1: it is judged late."""
    frontier = await crawl(budget={"total_budget": 10, "error_penalty": 5})
    await add(frontier, "a/1", "a/2")

    assert await visit(frontier, Failed("x")) == "a/1"
    assert (await queue(frontier)).spent == 6
    assert await visit(frontier, Failed("x")) == "a/2"
    view = await queue(frontier)
    assert (view.spent, view.state, view.reason, view.wakes_in) == (12, "snoozed", "waiting", 1.0)

    clock.advance(1)
    assert await claimed(frontier) == []
    assert await state(frontier) == ("retired", "budget")


async def test_a_penalty_is_spent_by_the_session_too(crawl):
    """E2, E3: 1 + 2 ≥ 3: one failure ends a's session."""
    frontier = await crawl(budget={"balance": 3, "error_penalty": 2})
    await add(frontier, "a/1", "a/2", priority=0)
    await add(frontier, "b/1", priority=9)

    assert await visit(frontier, Failed("x")) == "a/1"
    assert await state(frontier) == ("inactive", None)
    assert await drained(frontier) == "b/1 a/2"


async def test_a_quota_of_pages_retires(crawl):
    """E6, E5: only a revive returns it, not a higher budget."""
    frontier = await crawl(budget={"max_done": 2})
    await add(frontier, "a/1", "a/2", "a/3", "a/4")

    assert await visit(frontier, Failed("x")) == "a/1"
    assert await visit(frontier) == "a/2"
    assert await visit(frontier) == "a/3"
    assert await state(frontier) == ("retired", "quota")

    await frontier.queue("a.example").set(total_budget=100)
    assert await state(frontier) == ("retired", "quota")
    assert (await frontier.queue("a.example").revive()).state == "ready"
    assert await visit(frontier) == "a/4"


async def test_a_quota_of_bytes_retires(crawl):
    """E6: reached, not passed."""
    frontier = await crawl(budget={"max_bytes": 1000})
    await add(frontier, "a/1", "a/2", "a/3")

    await visit(frontier, Done(200, bytes=999))
    assert await state(frontier) == ("ready", None)
    await visit(frontier, Done(200, bytes=1))
    assert await state(frontier) == ("retired", "quota")


# ---- lanes: C4


async def two_lanes(frontier, pages, articles):
    """Pages p/1… in discovery, articles x/1… in acquisition."""
    await add(frontier, *(f"p/{n}" for n in range(1, pages + 1)))
    await add(frontier, *(f"x/{n}" for n in range(1, articles + 1)), type="article")


async def test_lanes_take_turns_in_bursts(crawl):
    """C4: two and two, discovery first; an empty lane is passed at once."""
    frontier = await crawl(lanes={"burst": 2})
    await two_lanes(frontier, 5, 5)

    assert await drained(frontier) == "p/1 p/2 x/1 x/2 p/3 p/4 x/3 x/4 p/5 x/5"


async def test_the_burst_is_five_and_travels_with_the_claims(crawl):
    """C4: however the leases are spread over claims."""
    frontier = await crawl({"max_in_flight": 100})
    await two_lanes(frontier, 8, 8)

    order = [name for limit in (3, 4, 5, 4) for name in await claimed(frontier, limit)]

    assert "".join(name[0] for name in order) == "pppppxxxxxpppxxx"


async def test_a_passed_lane_restarts_the_count(crawl):
    """C4: three of acquisition after the one page, then discovery, which came meanwhile."""
    frontier = await crawl(lanes={"burst": 3})
    await two_lanes(frontier, 1, 6)

    order = [await visit(frontier) for _ in range(3)]
    await add(frontier, "p/2", "p/3")
    order += [await visit(frontier) for _ in range(6)]

    assert " ".join(order) == "p/1 x/1 x/2 x/3 p/2 p/3 x/4 x/5 x/6"


async def test_the_count_belongs_to_the_claimer(opened, store):
    """C4: two workers each begin with discovery."""
    settings = {"politeness": {"delay": 0.0, "max_in_flight": 100}, "lanes": {"burst": 1}}
    one, other = await opened(settings, store), await opened(settings, store)
    await two_lanes(one, 4, 4)

    order = [await claimed(worker) for worker in (one, other, one, other)]

    assert order == [["p/1"], ["p/2"], ["x/1"], ["x/2"]]


async def test_queue_may_be_ready_in_both_lanes(crawl):
    """C4: a ready queue is in each lane where it has due tasks."""
    frontier = await crawl(lanes={"burst": 1})
    await add(frontier, "a/1", "a/2")
    await add(frontier, "a/3", "a/4", type="article")

    assert await drained(frontier) == "a/1 a/3 a/2 a/4"


# ---- breadth discount: C5


async def discounted(crawl, discount):
    """Host a is wanted at 0, 1 and 2, b at 5, c at 15; as many slots as one likes."""
    frontier = await crawl({"max_in_flight": 9}, queue={"breadth_discount": discount})
    for n in range(3):
        await add(frontier, f"a/{n}", priority=n)
    await add(frontier, "b/0", priority=5)
    await add(frontier, "c/0", priority=15)
    return frontier


async def test_a_discount_spreads_a_claim_over_hosts(crawl):
    """C5: with c = 10, a/1 competes at 11 and a/2 at 22."""
    frontier = await discounted(crawl, 10.0)

    assert await claimed(frontier, 9) == ["a/0", "b/0", "a/1", "c/0", "a/2"]


async def test_without_a_discount_the_best_host_takes_it_all(crawl):
    """C5: 0 is off."""
    frontier = await discounted(crawl, 0.0)

    assert await claimed(frontier, 9) == ["a/0", "a/1", "a/2", "b/0", "c/0"]


async def test_a_discount_is_of_one_claim(crawl):
    """C5: the r-th task taken of it in this claim."""
    frontier = await discounted(crawl, 10.0)

    order = [name for _ in range(5) for name in await claimed(frontier)]

    assert order == ["a/0", "a/1", "a/2", "b/0", "c/0"]


async def test_a_discount_counts_leases_of_both_lanes(crawl):
    """C5: the r-th task taken of the queue, whatever its lane."""
    frontier = await crawl(
        {"max_in_flight": 9}, queue={"breadth_discount": 10.0}, lanes={"burst": 1}
    )
    await add(frontier, "a/1", priority=0)
    await add(frontier, "a/2", type="article", priority=0)
    await add(frontier, "b/1", type="article", priority=5)

    assert await claimed(frontier, 3) == ["a/1", "b/1", "a/2"]


# ---- zombies: H3, H4


async def test_a_zombie_changes_nothing(crawl, clock):
    """H3: its lease ran out, another has the page; the other's answer is the one that counts."""
    frontier = await crawl()
    await add(frontier, "a/1")
    (zombie,) = await frontier.claim()
    clock.advance(61)
    (heir,) = await frontier.claim()
    assert (heir.url, heir.attempt) == (zombie.url, 2)

    assert not await frontier.finish(zombie, Done(200, bytes=7), links=[link("a/2")])
    stats = await frontier.stats()
    assert (stats.known, stats.leased, stats.done, stats.bytes) == (1, 1, 0, 0)

    assert await frontier.finish(heir, DONE)
    assert not await frontier.finish(zombie, DONE)
    assert await frontier.release([zombie]) == set()
    assert (await frontier.stats()).done == 1


async def test_a_page_that_kills_three_workers_is_dead(crawl, clock):
    """H4: crashes ≥ 3; each counted as an attempt."""
    frontier = await crawl()
    await add(frontier, "a/1")
    for _ in range(3):
        await frontier.claim()
        clock.advance(60)

    assert await claimed(frontier) == []
    (letter,) = [letter async for letter in frontier.dead()]
    assert (letter.url, len(letter.attempts)) == ("https://a.example/1", 3)


# ---- politeness: D1, D2, D7


@pytest.mark.parametrize(
    ("seconds", "delay"), [(0.0, 1.0), (0.1, 1.0), (0.4, 2.0), (2.0, 10.0), (60.0, 30.0)]
)
async def test_delay_is_five_times_the_duration_of_the_visit(frontier, clock, seconds, delay):
    """D1: clamp(5 × duration, 1, 30), counted from the end."""
    await add(frontier, "a/1", "a/2")
    (lease,) = await frontier.claim()
    clock.advance(seconds)
    await frontier.finish(lease, Done(200, seconds=seconds))

    claim = await frontier.claim()
    assert (list(claim), claim.wake_in) == ([], delay)
    assert await state(frontier) == ("snoozed", "delay")
    clock.advance(delay)
    assert await claimed(frontier) == ["a/2"]


async def test_counted_from_the_end_a_delay_begins_at_the_end(crawl, clock):
    """D1: the default: 10 s after the visit of 4 s."""
    frontier = await crawl({"delay": 10.0})
    await add(frontier, "a/1", "a/2")
    (lease,) = await frontier.claim()
    clock.advance(4)
    await frontier.finish(lease, Done(200, seconds=4.0))

    assert (await queue(frontier)).wakes_in == 10.0


async def test_counted_from_the_start_a_delay_begins_at_the_start(crawl, clock):
    """D1: 10 s from the start, of which 4 are over."""
    frontier = await crawl({"delay": 10.0, "count_from": "start"})
    await add(frontier, "a/1", "a/2", "a/3")
    (lease,) = await frontier.claim()
    clock.advance(4)
    await frontier.finish(lease, Done(200, seconds=4.0))

    assert (await queue(frontier)).wakes_in == 6.0


async def test_counted_from_the_start_a_long_visit_is_followed_at_once(crawl, clock):
    """D1: 25 s later the 10 s are long over."""
    frontier = await crawl({"delay": 10.0, "count_from": "start"})
    await add(frontier, "a/1", "a/2")
    (lease,) = await frontier.claim()
    clock.advance(25)
    await frontier.finish(lease, Done(200, seconds=25.0))

    assert await claimed(frontier) == ["a/2"]


async def test_counted_from_the_start_a_lease_itself_keeps_the_host_alone(crawl, clock):
    """D1: at least now + 10; a release under a shorter delay does not move that back."""
    frontier = await crawl({"delay": 10.0, "count_from": "start"})
    await add(frontier, "a/1")
    (lease,) = await frontier.claim()
    await frontier.queue("a.example").set(delay=0.0)
    clock.advance(4)

    await frontier.release([lease])

    assert (await queue(frontier)).wakes_in == 6.0


async def test_with_several_slots_leases_are_spaced_by_the_least_delay(crawl, clock):
    """D1, D2: at a lease, at least now + the delay; at a finish, at least its end + the delay."""
    frontier = await crawl({"delay": 10.0, "max_in_flight": 2})
    await add(frontier, "a/1", "a/2", "a/3")

    (first,) = await frontier.claim(9)
    clock.advance(9.999)
    assert await claimed(frontier) == []
    clock.advance(0.001)
    assert await claimed(frontier, 9) == ["a/2"]
    assert await state(frontier) == ("busy", None)
    clock.advance(15)
    assert await claimed(frontier) == []
    await frontier.finish(first, Done(200, seconds=25.0))
    assert (await queue(frontier)).wakes_in == 10.0


async def test_one_host_has_one_visit_at_a_time(crawl):
    """D2: others go on."""
    frontier = await crawl()
    await add(frontier, "a/1", "a/2", "b/1")

    assert await claimed(frontier, 9) == ["a/1", "b/1"]
    assert await state(frontier) == ("busy", None)


async def test_a_crawl_delay_is_respected_and_remembered(frontier, clock):
    """D1: raised to 7; also after the next visit, which brings no crawl delay."""
    await add(frontier, "a/1", "a/2", "a/3", "a/4")

    await visit(frontier, Done(200, crawl_delay=7.0))
    assert (await queue(frontier)).wakes_in == 7.0
    clock.advance(7)
    await visit(frontier)
    assert (await queue(frontier)).wakes_in == 7.0
    clock.advance(7)
    await visit(frontier, Done(200, seconds=4.0))
    assert (await queue(frontier)).wakes_in == 20.0


async def test_a_crawl_delay_is_respected_up_to_a_limit(frontier):
    """D1: 300 s."""
    await add(frontier, "a/1", "a/2")

    await visit(frontier, Done(200, crawl_delay=100_000.0))

    assert (await queue(frontier)).wakes_in == 300.0


async def test_a_crawl_delay_is_the_least_delay_between_leases(crawl, clock):
    """D1: the least delay is raised to Crawl-delay, when counted from the start too."""
    frontier = await crawl({"delay": 1.0, "count_from": "start"})
    await add(frontier, "a/1", "a/2", "a/3")
    await visit(frontier, Done(200, crawl_delay=8.0))
    clock.advance(8)
    (lease,) = await frontier.claim()
    clock.advance(2)
    await frontier.finish(lease, DONE)

    assert (await queue(frontier)).wakes_in == 6.0


async def test_a_release_counts_as_the_visits_end(frontier, clock):
    """D7: it may have sent a request; so the delay applies from now."""
    await add(frontier, "a/1", "a/2")
    (lease,) = await frontier.claim()
    clock.advance(3)
    await frontier.release([lease])

    assert (await queue(frontier)).wakes_in == 1.0


async def test_a_dropped_visit_keeps_the_delay(frontier):
    """D7: after a robots.txt fetch the delay applies."""
    await add(frontier, "a/1", "a/2")

    await visit(frontier, Dropped("robots"))

    assert (await queue(frontier)).wakes_in == 1.0


async def test_politeness_state_of_an_empty_queue_is_kept(crawl, clock):
    """C1: a page added to a queue just emptied waits for its delay."""
    frontier = await crawl({"delay": 10.0})
    await add(frontier, "a/1")
    await visit(frontier)
    assert await state(frontier) == ("empty", None)
    clock.advance(4)

    await add(frontier, "a/2")

    assert (await queue(frontier)).wakes_in == 6.0


# ---- throttling: D3


async def test_a_throttled_queue_backs_off_further_each_time(crawl, clock):
    """D3: 30, 60, 120 … 900 s; the dice show 0."""
    frontier = await crawl()
    await add(frontier, *(f"a/{n}" for n in range(9)))
    waits = []

    for _ in range(7):
        (lease,) = await frontier.claim()
        await frontier.finish(lease, Throttled())
        assert await state(frontier) == ("snoozed", "throttled")
        waits.append((await queue(frontier)).wakes_in)
        clock.advance(waits[-1])

    assert waits == [30, 60, 120, 240, 480, 900, 900]


@pytest.mark.parametrize(
    ("retry_after", "roll", "wait"),
    [(120.0, 0.0, 120.0), (10.0, 0.0, 30.0), (0.0, 0.0, 30.0), (120.0, 0.5, 126.0)],
)
async def test_retry_after_is_never_shortened(opened, retry_after, roll, wait):
    """D3: max(Retry-After, 30) × U(1, 1.1); 0 still backs off."""
    frontier = await opened(dice=lambda: roll)
    await add(frontier, "a/1", "a/2", "b/1")
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Throttled(retry_after))

    assert (await queue(frontier)).wakes_in == wait
    assert await claimed(frontier, 9) == ["b/1"]


async def test_concurrent_throttles_count_once(crawl, clock):
    """D3: the verdict sets level = the lease's + 1."""
    frontier = await crawl({"max_in_flight": 3})
    await add(frontier, *(f"a/{n}" for n in range(5)))
    leases = await frontier.claim(3)
    await asyncio.gather(*(frontier.finish(lease, Throttled()) for lease in leases))
    assert (await queue(frontier)).wakes_in == 30.0

    clock.advance(30)
    await visit(frontier, Throttled())
    assert (await queue(frontier)).wakes_in == 60.0


async def test_ten_done_in_a_row_lower_the_level(crawl, clock):
    """D3: the delay is doubled meanwhile."""
    frontier = await crawl({"delay": 4.0})
    await add(frontier, *(f"a/{n}" for n in range(20)))
    await visit(frontier, Throttled())
    clock.advance(30)
    waits = []

    for _ in range(12):
        await visit(frontier)
        waits.append((await queue(frontier)).wakes_in)
        clock.advance(waits[-1])

    assert waits[:9] == [8.0] * 9
    assert waits[10:] == [4.0] * 2


async def test_what_is_not_done_ends_the_row(crawl, clock):
    """D3: nine Done and a failure lower nothing."""
    frontier = await crawl({"delay": 4.0})
    await add(frontier, *(f"a/{n}" for n in range(30)))
    await visit(frontier, Throttled())
    clock.advance(30)
    for outcome in (*[DONE] * 9, Failed("x"), *[DONE] * 9):
        await visit(frontier, outcome)
        clock.advance(8)

    await visit(frontier, Failed("x"))
    assert (await queue(frontier)).wakes_in == 8.0


async def test_a_throttled_page_keeps_its_attempts_four_times(crawl, clock):
    """D3: then each counts: the eighth is the fourth failure, one more than the retries."""
    frontier = await crawl()
    await add(frontier, "a/1")
    attempts = []

    for _ in range(8):
        (lease,) = await frontier.claim()
        attempts.append(lease.attempt)
        await frontier.finish(lease, Throttled())
        clock.advance(1000)

    assert attempts == [1, 1, 1, 1, 1, 2, 3, 4]
    stats = await frontier.stats()
    assert (stats.dead, stats.pending) == (1, 0)


async def test_ten_throttles_in_a_row_retire(crawl, clock):
    """D3: and only a revive returns it, with its counts cleared."""
    frontier = await crawl()
    await add(frontier, *(f"a/{n}" for n in range(5)))
    for n in range(10):
        assert (await state(frontier))[0] == "ready", n
        await visit(frontier, Throttled())
        clock.advance(1000)
        await frontier.claim(0)

    assert await state(frontier) == ("retired", "throttled")
    assert await claimed(frontier) == []
    await frontier.queue("a.example").revive()
    await visit(frontier, Throttled())
    assert (await state(frontier))[0] == "snoozed"


async def test_one_done_among_the_throttles_saves_the_queue(crawl, clock):
    """D3: ten in a row without a Done; a failure between does not help."""
    frontier = await crawl()
    await add(frontier, *(f"a/{n}" for n in range(9)))
    for outcome in (*[Throttled()] * 9, DONE, *[Throttled()] * 5, Failed("x"), *[Throttled()] * 4):
        await visit(frontier, outcome)
        clock.advance(4000)
        await frontier.claim(0)
    assert (await state(frontier))[0] == "ready"

    await visit(frontier, Throttled())
    assert await state(frontier) == ("retired", "throttled")


async def test_a_throttle_from_the_cache_is_done_and_throttles(crawl):
    """D5."""
    frontier = await crawl()
    await add(frontier, "a/1", "a/2")

    await visit(frontier, Done(200, from_cache=True, throttled=90.0))

    assert (await queue(frontier)).wakes_in == 90.0
    assert (await frontier.stats()).done == 1


# ---- unreachable and blocked: D4, G1


async def test_an_unreachable_host_is_tried_five_times_then_retired(crawl, clock):
    """D4: 30, 60, 120, 240 s, ≈ 7.5 min in all; the page keeps its attempts."""
    frontier = await crawl()
    await add(frontier, "a/1")
    waits = []

    for _ in range(4):
        (lease,) = await frontier.claim()
        assert lease.attempt == 1
        await frontier.finish(lease, Unreachable("DNS"))
        assert await state(frontier) == ("snoozed", "unreachable")
        waits.append((await queue(frontier)).wakes_in)
        clock.advance(waits[-1])

    assert waits == [30, 60, 120, 240]
    await visit(frontier, Unreachable("DNS"))
    assert await state(frontier) == ("retired", "unreachable")
    stats = await frontier.stats()
    assert (stats.pending, stats.held, stats.dead) == (1, 1, 0)


async def test_revived_host_has_no_failures(crawl, clock):
    """D4: `revive` clears counts."""
    frontier = await crawl()
    await add(frontier, "a/1")
    for _ in range(5):
        await visit(frontier, Unreachable("DNS"))
        clock.advance(300)

    await frontier.queue("a.example").revive()
    await visit(frontier, Unreachable("DNS"))

    assert (await queue(frontier)).wakes_in == 30.0


@pytest.mark.parametrize(
    ("between", "wait"),
    [(DONE, 30), (Failed("x"), 30), (Blocked("x"), 30), (Throttled(), 30), (Dropped("x"), 60)],
)
async def test_what_the_host_answers_ends_the_row(crawl, clock, between, wait):
    """D4: Done, Failed, Throttled, Blocked reset it; Dropped does not."""
    frontier = await crawl()
    await add(frontier, "a/1", "a/2", "a/3")
    for outcome in (Unreachable("DNS"), between):
        await visit(frontier, outcome)
        clock.advance(60)

    await visit(frontier, Unreachable("DNS"))

    assert (await queue(frontier)).wakes_in == wait


async def test_concurrent_unreachable_visits_count_once(crawl):
    """D4: as in D3, the verdict sets the lease's count + 1."""
    frontier = await crawl({"max_in_flight": 5})
    await add(frontier, *(f"a/{n}" for n in range(5)))
    leases = await frontier.claim(5)

    await frontier.finish_many([(lease, Unreachable("DNS")) for lease in leases])

    assert (await queue(frontier)).wakes_in == 30.0


async def test_three_blocks_in_a_row_cool_the_queue_down(crawl, clock):
    """D4, G1: 15 min; after one or two the others may still be visited."""
    frontier = await crawl()
    await add(frontier, "a/1", "a/2", "a/3", "a/4")

    assert await visit(frontier, Blocked("captcha")) == "a/1"
    assert await visit(frontier, Blocked("captcha")) == "a/2"
    assert (await state(frontier))[0] == "ready"
    assert await visit(frontier, Blocked("captcha")) == "a/3"
    view = await queue(frontier)
    assert (view.state, view.reason, view.wakes_in) == ("snoozed", "blocked", 900.0)

    clock.advance(899.999)
    assert await claimed(frontier) == []
    clock.advance(0.001)
    assert await claimed(frontier) == ["a/1"]


async def test_a_done_between_blocks_keeps_the_queue_warm(crawl):
    """D4: three in a row."""
    frontier = await crawl()
    await add(frontier, *(f"a/{n}" for n in range(6)))

    for outcome in (Blocked("x"), Blocked("x"), DONE, Blocked("x"), Blocked("x")):
        await visit(frontier, outcome)

    assert (await state(frontier))[0] == "ready"


async def test_a_blocked_page_cools_down_by_itself(crawl, clock):
    """G1: 15, 30 and 60 min, then it is dead."""
    frontier = await crawl()
    await add(frontier, "a/1")
    waits = []

    for _ in range(3):
        await visit(frontier, Blocked("captcha"))
        task = (await frontier.explain("https://a.example/1")).task
        waits.append(task.due_at - clock.now())
        clock.advance(8000)
    await visit(frontier, Blocked("captcha"))

    assert waits == pytest.approx([900, 1800, 3600])
    assert (await frontier.stats()).dead == 1


# ---- retries and dead letters: G1, G2


async def test_a_failing_page_is_tried_four_times(crawl, clock):
    """G1: after 1, 2 and 4 s; the dead letter has every attempt."""
    frontier = await crawl()
    await add(frontier, "a/1", meta={"x": 1})
    start, times = clock.now(), []

    for n in range(4):
        (lease,) = await frontier.claim()
        times.append(clock.now() - start)
        assert lease.attempt == n + 1
        await frontier.finish(lease, Failed(f"error {n}"))
        clock.advance((await frontier.claim()).wake_in or 0)

    assert times == [0, 1, 3, 7]
    (letter,) = [letter async for letter in frontier.dead()]
    assert (letter.url, letter.type, letter.meta) == ("https://a.example/1", "page", {"x": 1})
    assert (letter.reason, letter.died_at) == ("error 3", start + 7)
    assert [(attempt.at - start, attempt.error) for attempt in letter.attempts] == [
        (0, "error 0"),
        (1, "error 1"),
        (3, "error 2"),
        (7, "error 3"),
    ]
    assert {attempt.worker for attempt in letter.attempts} == {frontier.worker}


async def test_waiting_retry_does_not_block_its_queue(crawl, clock):
    """G1: it holds no worker, slot or queue; due again, it has its old place."""
    frontier = await crawl()
    await add(frontier, "a/1", "a/2", "a/3")

    assert await visit(frontier, Failed("x")) == "a/1"
    assert await visit(frontier) == "a/2"
    clock.advance(1)
    assert await visit(frontier) == "a/1"


async def test_jitter_is_up_to_half(opened):
    """G1: plus 0–50 %."""
    frontier = await opened({"politeness": {"delay": 0.0}}, dice=lambda: 0.5)
    await add(frontier, "a/1")
    await visit(frontier, Failed("x"))

    assert (await frontier.claim()).wake_in == 1.25


# ---- revisits: G3


async def test_a_revisit_is_a_refresh(crawl, clock):
    """G3: due in 100 s as `refresh`, in the acquisition lane, at 25 + depth, attempts at 0."""
    frontier = await crawl()
    await add(frontier, "a/1", depth=2)
    await visit(frontier, Done(200, revisit_in=100.0))

    task = (await frontier.explain("https://a.example/1")).task
    assert (task.state, task.type, task.lane) == ("pending", "refresh", "acquisition")
    assert (task.priority, task.attempts) == (27.0, 0)
    claim = await frontier.claim()
    assert (list(claim), claim.wake_in, claim.status) == ([], 100.0, "running")

    clock.advance(100)
    (lease,) = await frontier.claim()
    assert (name_of(lease), lease.type, lease.attempt) == ("a/1", "refresh", 1)
    assert (await frontier.stats()).known == 1


# ---- finishing: I2


def finishes(frontier):
    """The completion events from now on."""
    heard = []

    def listen(event):
        if event.name == "crawl-finished":
            heard.append(event)

    frontier.subscribe(listen)
    return heard


async def test_each_run_ends_in_one_numbered_event(crawl):
    """I2: only a claim closes a run; an added task starts the next."""
    frontier = await crawl()
    heard = finishes(frontier)

    for run in (1, 2, 3):
        await add(frontier, f"a/{run}")
        assert await visit(frontier) == f"a/{run}"
        assert (await frontier.stats()).status == "running"
        for _ in range(3):
            assert (await frontier.claim()).status == "finished"
        assert (await frontier.stats()).runs == run

    assert [event.data["detail"] for event in heard] == ["run 1", "run 2", "run 3"]


async def test_a_crawl_that_never_had_a_task_is_not_finished(crawl):
    """I2."""
    frontier = await crawl()

    assert (await frontier.claim()).status == "running"


async def test_an_add_after_the_finish_makes_it_run(crawl):
    """I2: at once, not with the next claim."""
    frontier = await crawl()
    await add(frontier, "a/1")
    await drained(frontier)
    assert (await frontier.stats()).status == "finished"

    await add(frontier, "a/2")

    assert (await frontier.stats()).status == "running"
    assert await drained(frontier) == "a/2"


async def test_duplicate_after_the_finish_does_not_make_the_crawl_run(crawl):
    """I2: an *added* task."""
    frontier = await crawl()
    await add(frontier, "a/1")
    await drained(frontier)

    await frontier.add(["https://a.example/1", "nonsense"])

    assert (await frontier.stats()).status == "finished"


async def test_a_task_for_a_retired_queue_makes_it_run_and_finish_again(crawl):
    """I2: an added task (in a retired queue too)."""
    frontier = await crawl(budget={"total_budget": 1})
    heard = finishes(frontier)
    await add(frontier, "a/1")
    await drained(frontier)
    await add(frontier, "a/2")
    assert (await frontier.claim()).status == "finished"

    await add(frontier, "a/3")
    assert (await frontier.stats()).status == "running"
    assert (await frontier.claim()).status == "finished"
    assert [event.data["detail"] for event in heard] == ["run 1", "run 2", "run 3"]


@pytest.mark.parametrize("how", ["retry", "revisit", "paused", "leased"])
async def test_whatever_may_come_back_keeps_a_crawl_open(crawl, how):
    """I2: waiting retries and revisits count, paused queues count, leases count."""
    frontier = await crawl()
    await add(frontier, "a/1")
    if how == "paused":
        await frontier.queue("a.example").pause()
    else:
        (lease,) = await frontier.claim()
        if how != "leased":
            outcome = Failed("x") if how == "retry" else Done(200, revisit_in=1000.0)
            await frontier.finish(lease, outcome)

    assert (await frontier.claim()).status == "running"
    assert len(await frontier.why()) == 1


async def test_retired_queues_do_not_keep_a_crawl_open(crawl):
    """E5, I2: they count neither as queued nor against finishing."""
    frontier = await crawl()
    await add(frontier, "a/1", "b/1")
    await frontier.queue("a.example").retire()

    assert await drained(frontier) == "b/1"
    assert (await frontier.stats()).status == "finished"
    assert await frontier.why() == []


async def test_pause_at_finish_pauses_then_finishes_if_nothing_was_freed(crawl):
    """I2: resumed with nothing freed, it finishes."""
    frontier = await crawl(crawl={"pause_at_finish": True})
    heard = finishes(frontier)
    await add(frontier, "a/1")

    assert await drained(frontier) == "a/1"
    stats = await frontier.stats()
    assert (stats.status, heard) == ("paused", [])

    assert await frontier.resume() == "running"
    assert (await frontier.claim()).status == "finished"
    assert [event.data["detail"] for event in heard] == ["run 1"]


async def test_pause_at_finish_pauses_again_if_something_was(crawl):
    """I2: each time work runs out."""
    frontier = await crawl(crawl={"pause_at_finish": True})
    await add(frontier, "a/1")
    await drained(frontier)
    await add(frontier, "a/2")
    await frontier.resume()

    assert await drained(frontier) == "a/2"
    assert (await frontier.stats()).status == "paused"


async def test_a_replay_makes_a_finished_crawl_run(crawl):
    """I2."""
    frontier = await crawl(retry={"max_retries": 0})
    await add(frontier, "a/1")
    await visit(frontier, Failed("x"))
    assert (await frontier.claim()).status == "finished"

    assert await frontier.replay(all=True) == 1

    assert (await frontier.stats()).status == "running"
    assert await drained(frontier) == "a/1"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"tasks": 3}, "tasks"),
        ({"done": 1}, "done"),
        ({"bytes": 100}, "bytes"),
        ({"seconds": 60.0}, "seconds"),
    ],
)
async def test_a_limit_reached_pauses_with_its_reason(crawl, clock, limits, reason):
    """I4."""
    frontier = await crawl(limits=limits)
    await add(frontier, "a/1", "a/2")
    assert await visit(frontier, Done(200, bytes=100)) == "a/1"
    clock.advance(60)
    await add(frontier, "a/3")

    claim = await frontier.claim()

    assert (list(claim), claim.status) == ([], "paused")
    assert reason in (await frontier.stats()).reason
