import asyncio
import math

import pytest

from loop_turns import cancelled, prompt, started, turns
from outrider import (
    Again,
    Closed,
    Done,
    Dropped,
    Failed,
    ForeignLease,
    Frontier,
    InvalidInput,
    Lease,
    Link,
    Throttled,
)
from outrider.core.queue_action import Set

A = "https://a.example/"
RUDE = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}


def urls(leases):
    """The URLs of the leases."""
    return [lease.url for lease in leases]


async def leased(frontier):
    """How many visits are in flight."""
    return (await frontier.stats()).leased


# ---- claim


async def test_claim_leases_the_best_first(rude):
    """C2, C3: lower is sooner, across queues."""
    await rude.add(
        [
            Link("https://b.example/", priority=2),
            Link(A + "1", priority=3),
            Link(A + "2", priority=1),
            Link("https://c.example/", priority="critical"),
        ]
    )

    assert urls(await rude.claim(10)) == [
        "https://c.example/",
        A + "2",
        "https://b.example/",
        A + "1",
    ]


async def test_lease_has_what_a_visit_needs(opened):
    """The stable names of a lease."""
    frontier = await opened(worker="me")
    await frontier.add([Link(A, type="nav", depth=3, meta={"x": 1}, tag="t", via="u", origin="o")])

    (lease,) = await frontier.claim()

    assert isinstance(lease, Lease)
    assert (lease.url, lease.key, lease.type, lease.depth) == (A, "a.example", "nav", 3)
    assert (lease.attempt, lease.meta, lease.worker) == (1, {"x": 1}, "me")
    assert (lease.tag, lease.via, lease.origin, lease.priority) == ("t", "u", "o", 13.0)
    assert lease.token


async def test_empty_claim_returns_when_to_ask_again(frontier, clock):
    """C6: 0 if its limit cut it short; else the seconds to the earliest that time can bring."""
    await frontier.add([A + "1", A + "2", Link("https://b.example/", delay=30.0)])

    claim = await frontier.claim(1)
    assert (claim.wake_in, claim.status) == (0.0, "running")
    empty = await frontier.claim(1)
    assert (list(empty), empty.wake_in) == ([], 30.0)

    await frontier.finish(claim[0], Done(200))
    assert (await frontier.claim()).wake_in == 1.0


async def test_a_claim_may_wait_for_a_lease_to_run_out(frontier):
    """C6: the earliest of every lease's deadline too."""
    await frontier.add([A])
    await frontier.claim()

    assert (await frontier.claim()).wake_in == 60.0


async def test_wake_in_is_none_if_time_brings_no_work(frontier):
    """C6: only an add, finish or person can bring work."""
    assert (await frontier.claim()).wake_in is None
    await frontier.add([A])
    await frontier.queue("a.example").pause()
    assert (await frontier.claim()).wake_in is None


async def test_per_queue_caps_what_one_queue_gives(rude):
    """C5: for this claim."""
    await rude.add([*(f"{A}{n}" for n in range(5)), "https://b.example/"])

    claim = await rude.claim(10, per_queue=2)

    assert sorted(lease.key for lease in claim) == ["a.example", "a.example", "b.example"]
    assert len(await rude.claim(10)) == 3


@pytest.mark.parametrize("limit", [-1, 1.5, "1", None, True, 10**9])
async def test_a_limit_is_a_whole_number(frontier, limit):
    """The caller's fault, by name."""
    with pytest.raises(InvalidInput, match="limit"):
        await frontier.claim(limit)


async def test_a_queue_can_be_borrowed_whole(frontier):
    """C7: many of its tasks at once, and no other worker gets it meanwhile."""
    await frontier.add([f"https://a.example/{n}" for n in range(4)])
    claim = await frontier.claim(10, per_queue=3, lend=True)

    assert len(claim) == 3
    assert (await frontier.queue("a.example").view()).lent == 3
    assert await frontier.claim(10) == []


@pytest.mark.parametrize("per_queue", [0, -1, 1.5, "1", True])
async def test_a_cap_is_a_whole_number(frontier, per_queue):
    """The caller's fault, by name."""
    with pytest.raises(InvalidInput, match="per_queue"):
        await frontier.claim(1, per_queue=per_queue)


UNIFORM = {"count_from": "start", "delay": 5.0, "delay_to": 15.0}


async def test_claim_brings_random_numbers_for_delays_from_the_start(opened):
    """D1: the frontier's own, one for each lease; finishes draw no others."""
    dice = iter([0.1, 0.9, 0.5, 0.5, 0.5])
    frontier = await opened({"politeness": UNIFORM}, dice=lambda: next(dice))
    await frontier.add(["https://a.example/1", "https://b.example/1", "https://b.example/2"])

    first, second = await frontier.claim(2)
    await frontier.finish(second, Done(200))

    assert (first.delay, second.delay) == (6.0, 14.0)
    assert (await frontier.queue("b.example").view()).wakes_in == 14.0


@pytest.mark.parametrize("politeness", [{}, {"delay": 5.0, "delay_to": 15.0}])
async def test_claim_brings_no_random_numbers_where_none_is_drawn(opened, politeness):
    """D1: other delays are decided after the visit."""
    frontier = await opened({"politeness": politeness}, dice=lambda: pytest.fail("drawn"))
    await frontier.add([A])

    (lease,) = await frontier.claim(5)

    assert lease.delay == -1.0


async def test_claim_learns_from_a_lease_that_delays_are_drawn(opened, store):
    """D1, E7: rules that another process set for one queue are in no settings of this one."""
    frontier = await opened({}, store=store, dice=lambda: 0.5)
    await frontier.add(["https://a.example/1", "https://b.example/1"])
    for key in ("a.example", "b.example"):
        await store.steer("default", key, Set(UNIFORM))

    (first,) = await frontier.claim()
    (second,) = await frontier.claim()

    assert (first.delay, second.delay) == (5.0, 10.0)


async def test_a_claim_by_keys_and_of_so_many_queues(opened):
    """C5: keys as `lease.key` has them."""
    frontier = await opened({"politeness": {"delay": 0.0, "max_in_flight": 9}})
    hosts = [f"https://{host}.example/" for host in "abc"]
    await frontier.add([f"{host}{n}" for host in hosts for n in range(2)])

    by_key = await frontier.claim(9, keys=["b.example", "c.example"], per_queue=1)
    of_one = await frontier.claim(9, max_queues=1)

    assert urls(by_key) == [hosts[1] + "0", hosts[2] + "0"]
    assert urls(of_one) == [hosts[0] + "0", hosts[0] + "1"]
    assert by_key[0].key == "b.example"


@pytest.mark.parametrize("keys", ["a.example", [], ["a.example"] * 101, 7])
async def test_keys_of_a_claim_are_a_list(frontier, keys):
    """C5: the caller's fault, by name; an empty list would mean all queues."""
    with pytest.raises(InvalidInput, match=r"claim\(keys="):
        await frontier.claim(1, keys=keys)


@pytest.mark.parametrize("max_queues", [0, -1, 1.5, "1", True])
async def test_a_number_of_queues_is_a_whole_number(frontier, max_queues):
    """C5: the caller's fault, by name."""
    with pytest.raises(InvalidInput, match="max_queues"):
        await frontier.claim(1, max_queues=max_queues)


async def test_claim_by_key_waits_for_its_queue_alone(frontier, clock):
    """C5, C6: what other queues have does not end the wait."""
    await frontier.add([A + "1", Link("https://b.example/", delay=5.0)])
    waiting = await started(frontier.claim(1, wait=60.0, keys=["b.example"]))
    for _ in range(4):
        clock.advance(1.0)
        await turns()
    assert not waiting.done()

    clock.advance(1.0)

    assert urls(await prompt(waiting)) == ["https://b.example/"]


@pytest.mark.parametrize("wait", [math.nan, "5", None])
async def test_a_wait_is_seconds(frontier, wait):
    """The caller's fault, by name: NaN would never end."""
    with pytest.raises(InvalidInput, match="wait"):
        await prompt(frontier.claim(1, wait=wait))


async def test_a_claim_of_nothing_does_not_wait(frontier):
    """Nothing more can come of it."""
    await frontier.add([A])

    assert await prompt(frontier.claim(0, wait=10.0)) == []


async def test_claim_on_a_frontier_not_open_raises_closed(clock):
    """Before and after."""
    frontier = Frontier.open(clock=clock)
    with pytest.raises(Closed):
        await frontier.claim()
    async with frontier:
        assert await frontier.claim() == []
    with pytest.raises(Closed):
        await frontier.claim()


async def test_frontier_that_is_not_open_ends_no_lease(frontier, clock):
    """It knows no store yet, so every lease is foreign; this one is still held."""
    await frontier.add([A])
    (lease,) = await frontier.claim()
    unopened = Frontier.open(frontier.store, clock=clock)
    for work in (unopened.release([lease]), unopened.finish(lease, Done(200))):
        with pytest.raises(ForeignLease):
            await work

    assert await frontier.finish(lease, Done(200))


async def test_a_frontier_may_be_awaited_and_closed_by_hand(clock):
    """Closing twice is fine."""
    frontier = await Frontier.open(clock=clock)
    await frontier.add([A])
    await frontier.close()
    await frontier.close()

    assert "closed" in repr(frontier)


async def test_frontier_has_its_clock_and_opens_once(clock):
    """Entering an open one changes nothing."""
    async with Frontier.open(clock=clock) as frontier:
        store = frontier.store
        assert await frontier is frontier
        assert frontier.store is store
        assert frontier.clock is clock


# ---- claim(wait=)


async def test_waiting_claim_returns_when_a_task_becomes_due(frontier, clock):
    """C6: it long-polls by `wake_in`."""
    await frontier.add([Link(A, delay=5.0)])
    waiting = await started(frontier.claim(1, wait=60.0))

    for _ in range(4):
        clock.advance(1.0)
        await turns()
    assert not waiting.done()

    clock.advance(1.0)
    assert urls(await prompt(waiting)) == [A]


async def test_waiting_claim_returns_after_an_add(frontier):
    """Without the clock moving at all."""
    waiting = await started(frontier.claim(1, wait=60.0))

    await frontier.add([A])

    assert urls(await prompt(waiting)) == [A]


async def test_claim_waits_while_an_empty_crawl_stays_open(opened):
    """I2: with `crawl.stay_open` nothing left is no end; without it the claim returns."""
    frontier = await opened({"crawl": {"stay_open": True}})
    await frontier.add([A])
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Done(200))
    waiting = await started(frontier.claim(1, wait=60.0))
    assert not waiting.done()

    await frontier.add(["https://b.example/"])

    assert urls(await prompt(waiting)) == ["https://b.example/"]


async def test_claim_waits_for_work_of_a_finished_crawl_that_now_stays_open(opened):
    """I2: the crawl stays finished until work comes, and a waiting claim is there by then."""
    frontier = await opened({})
    await frontier.add([A])
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Done(200))
    assert (await frontier.claim()).status == "finished"
    await frontier.configure({"crawl": {"stay_open": True}})
    waiting = await started(frontier.claim(1, wait=60.0))
    assert not waiting.done()

    await frontier.add(["https://b.example/"])

    assert urls(await prompt(waiting)) == ["https://b.example/"]


async def test_waiting_claim_returns_after_a_finish(opened):
    """The slot that became free."""
    frontier = await opened({"politeness": {"delay": 0.0}})
    await frontier.add([A + "1", A + "2"])
    (lease,) = await frontier.claim()
    waiting = await started(frontier.claim(1, wait=60.0))

    await frontier.finish(lease, Done(200))

    assert urls(await prompt(waiting)) == [A + "2"]


@pytest.mark.parametrize("how", ["release", "resume", "revive", "replay"])
async def test_waiting_claim_returns_after_any_verb_that_brings_work(opened, how):
    """A release or an operator's command ends the wait before the next poll."""
    frontier = await opened({"politeness": {"delay": 0.0}, "retry": {"max_retries": 0}})
    await frontier.add([A, Link("https://z.example/", delay=1000.0)])
    queue = frontier.queue("a.example")
    (lease,) = await frontier.claim()
    if how == "replay":
        await frontier.finish(lease, Failed("x"))
    elif how != "release":
        await frontier.release([lease])
        await {"resume": queue.pause, "revive": queue.retire}[how]()
    waiting = await started(frontier.claim(1, wait=60.0))
    assert not waiting.done()

    acts = {"resume": queue.resume, "revive": queue.revive}
    acts |= {"release": lambda: frontier.release([lease]), "replay": lambda: frontier.replay(A)}
    await acts[how]()

    assert urls(await prompt(waiting)) == [A]


async def test_waiting_claim_notices_work_of_other_frontiers(opened, store, clock):
    """Another frontier on the same store cannot wake it, so it looks again by itself."""
    one, other = await opened(store=store), await opened(store=store)
    waiting = await started(one.claim(1, wait=60.0))

    await other.add([A])
    await turns()
    clock.advance(1.0)

    assert urls(await prompt(waiting)) == [A]


async def test_a_wait_ends(frontier, clock):
    """Empty-handed, when the time is over."""
    await frontier.add([Link(A, delay=100.0)])
    waiting = await started(frontier.claim(1, wait=3.0))

    for _ in range(3):
        clock.advance(1.0)
        await turns()

    claim = await prompt(waiting)
    assert (list(claim), claim.wake_in) == ([], 97.0)


async def test_claim_does_not_wait_for_a_finished_crawl(rude):
    """I2: only an add could bring work, and the caller wants to know."""
    await rude.add([A])
    (lease,) = await rude.claim()
    await rude.finish(lease, Done(200))

    claim = await prompt(rude.claim(1, wait=1000.0))

    assert (list(claim), claim.status) == ([], "finished")


async def test_claim_does_not_wait_for_a_cancelled_crawl(frontier):
    """I3: one write ends every wait."""
    await frontier.add([Link(A, delay=100.0)])
    waiting = await started(frontier.claim(1, wait=1000.0))

    await frontier.cancel()

    assert (await prompt(waiting)).status == "cancelled"


async def test_a_paused_crawl_is_waited_for(frontier):
    """I1: it may be resumed."""
    await frontier.add([A])
    await frontier.pause()
    waiting = await started(frontier.claim(1, wait=1000.0))
    assert not waiting.done()

    await frontier.resume()

    assert urls(await prompt(waiting)) == [A]


async def test_a_waiting_claim_sleeps(opened, resting):
    """It does not spin while nothing happens."""
    clock = resting
    frontier = await opened(clock=clock)
    await frontier.add([Link(A, delay=100.0)])

    waiting = await started(frontier.claim(1, wait=50.0))
    await turns(200)
    rests = clock.rests
    waiting.cancel()

    assert rests == 1


# ---- finish


async def test_a_finish_is_true_and_true_again(rude):
    """H3: current and already finished: True again, changing nothing."""
    await rude.add([A])
    (lease,) = await rude.claim()

    assert await rude.finish(lease, Done(200), links=[A + "1"])
    assert await rude.finish(lease, Failed("x"), links=[A + "2"])

    stats = await rude.stats()
    assert (stats.done, stats.dead, stats.pending, stats.visits) == (1, 0, 1, 1)
    assert (await rude.explain(A + "2")).admission == "admissible"


async def test_a_zombies_finish_is_false(frontier, clock):
    """H3: the lease ran out; nothing changes, its links are not added."""
    await frontier.add([A])
    (lease,) = await frontier.claim()
    clock.advance(61)
    await frontier.expire()

    assert not await frontier.finish(lease, Done(200), links=[A + "1"])

    stats = await frontier.stats()
    assert (stats.known, stats.pending, stats.done) == (1, 1, 0)


async def test_a_released_lease_cannot_finish(rude):
    """H1: the token changes at release."""
    await rude.add([A])
    (lease,) = await rude.claim()
    await rude.release([lease])

    assert not await rude.finish(lease, Done(200))


async def test_late_finish_before_the_expiry_counts(frontier, clock):
    """H3: token current and leased."""
    await frontier.add([A])
    (lease,) = await frontier.claim()
    clock.advance(61)

    assert await frontier.finish(lease, Done(200))


async def test_links_are_added_before_the_queue_is_rescheduled(frontier):
    """H6: so a page that finds another does not end its crawl."""
    await frontier.add([A])
    (lease,) = await frontier.claim()

    await frontier.finish(lease, Done(200), links=iter([Link(A + "1", depth=1), A + "1", "bad"]))

    assert (await frontier.claim()).status == "running"
    assert (await frontier.stats()).known == 2


async def test_many_are_finished_at_once_with_an_answer_each(rude, clock):
    """In order; with links or without."""
    await rude.add([f"{A}{n}" for n in range(4)])
    leases = await rude.claim(4)
    await rude.release([leases[1]])

    answers = await rude.finish_many(
        [
            (leases[0], Done(200), [A + "x"]),
            (leases[1], Done(200)),
            (leases[2], Failed("x"), ()),
            (leases[3], Dropped("robots")),
        ]
    )

    assert answers == [True, False, True, True]
    stats = await rude.stats()
    assert (stats.done, stats.dropped, stats.pending) == (1, 1, 3)


async def test_nothing_to_finish_is_fine(rude):
    """An empty list has an empty answer."""
    assert await rude.finish_many([]) == []


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (lambda lease: (lease, Done(200, seconds=math.nan)), "seconds"),
        (lambda lease: (lease, Done(200, seconds="0.3")), "seconds"),
        (lambda lease: (lease, Throttled("120")), "retry_after"),
        (lambda lease: (lease, Failed("x", retry_in=-1)), "retry_in"),
        (lambda lease: (lease, Failed(None)), "reason"),
        (lambda lease: (lease, "done"), "str"),
        (lambda lease: (lease, None), "NoneType"),
        (lambda lease: (lease.url, Done(200)), "str"),
        (lambda lease: (None, Done(200)), "NoneType"),
        (lambda lease: (lease,), "visit"),
        (lambda lease: (lease, Done(200), [], 4), "visit"),
        (lambda lease: lease, "visit"),
        (lambda lease: None, "visit"),
        (lambda lease: (lease, Done(200), 5), "links"),
        (lambda lease: (lease, Done(200), None), "links"),
    ],
)
async def test_a_bad_visit_is_refused_and_the_rest_applied(rude, bad, named):
    """The error names the argument; an invalid visit does not affect the others."""
    await rude.add([f"{A}{n}" for n in range(3)])
    leases = await rude.claim(3)

    with pytest.raises(InvalidInput, match=named):
        await rude.finish_many([(leases[0], Done(200)), bad(leases[1]), (leases[2], Done(200))])

    stats = await rude.stats()
    assert (stats.done, stats.leased) == (2, 1)


async def test_a_bad_outcome_changes_nothing(rude):
    """The lease is still good."""
    await rude.add([A])
    (lease,) = await rude.claim()

    with pytest.raises(InvalidInput, match="seconds"):
        await rude.finish(lease, Done(200, seconds=-1.0))

    assert await rude.finish(lease, Done(200, seconds=1.0))


async def test_too_much_meta_leaves_lease_and_attempts_as_they_are(opened):
    """B1, J6: the limit is the crawl's, in force when the visit is finished."""
    frontier = await opened({**RUDE, "queue": {"max_meta": 100}})
    await frontier.add([f"{A}{n}" for n in range(2)])
    first, second = await frontier.claim(2)
    long = Again(meta={"x": "y" * 93})

    with pytest.raises(InvalidInput, match=r"Again: meta: 101 bytes of JSON, over 100"):
        await frontier.finish(first, long)
    with pytest.raises(InvalidInput, match=r"queue\.max_meta"):
        await frontier.finish_many([(first, long), (second, Done(200)), (first, long, [])])
    stats = await frontier.stats()
    assert (stats.leased, stats.done) == (1, 1)

    await frontier.configure({"queue": {"max_meta": 101}})
    assert await frontier.finish(first, long)
    (again,) = await frontier.claim(2)
    assert (again.meta, again.failures) == (long.meta, 0)


async def test_links_that_cannot_be_read_leave_the_visit_unfinished(rude):
    """H6: whole or not at all."""

    def links():
        yield A + "1"
        raise RuntimeError("the page was cut")

    await rude.add([A])
    (lease,) = await rude.claim()

    with pytest.raises(RuntimeError, match="cut"):
        await rude.finish(lease, Done(200), links=links())

    assert (await rude.stats()).known == 1
    assert await rude.finish(lease, Done(200))


async def test_one_link_as_text_is_one_link(rude):
    """As with add: not a link a letter."""
    await rude.add([A])
    (lease,) = await rude.claim()

    await rude.finish(lease, Done(200), links=A + "1")

    assert (await rude.stats()).pending == 1


# ---- leases of others


async def test_a_lease_of_another_store_is_foreign(opened):
    """The error names the lease and has the fix."""
    one, other = await opened(RUDE), await opened(RUDE)
    await one.add([A])
    (lease,) = await one.claim()

    with pytest.raises(ForeignLease, match=r"another store") as caught:
        await other.finish(lease, Done(200))

    assert A in str(caught.value)
    assert await leased(one) == 1


async def test_a_lease_of_another_crawl_is_foreign(opened, store):
    """Though the store is the same."""
    one, other = await opened(RUDE, store, crawl="one"), await opened(RUDE, store, crawl="two")
    await one.add([A])
    (lease,) = await one.claim()

    with pytest.raises(ForeignLease, match=r"'one'.*'two'"):
        await other.finish(lease, Done(200))


async def test_workers_of_one_crawl_may_finish_for_each_other(opened, store):
    """The token is what counts."""
    one, other = await opened(RUDE, store), await opened(RUDE, store)
    await one.add([A])
    (lease,) = await one.claim()

    assert await other.finish(lease, Done(200))


async def test_the_rest_of_a_batch_with_a_foreign_lease_is_applied(opened, store):
    """`answers` holds what the call would have returned."""
    one, other = await opened(RUDE, store, crawl="one"), await opened(RUDE, store, crawl="two")
    await one.add([A + "1", A + "2", A + "3"])
    await other.add([A])
    mine, (foreign,) = await one.claim(3), await other.claim()
    await one.release([mine[2]])
    visits = [
        (mine[0], Done(200)),
        (foreign, Done(200)),
        (mine[1], Done(200)),
        (mine[2], Done(200)),
    ]

    with pytest.raises(ForeignLease) as caught:
        await one.finish_many(visits)

    assert caught.value.answers == [True, False, True, False]
    assert (await one.stats()).done == 2
    assert await leased(other) == 1


@pytest.mark.parametrize("verb", ["extend", "release"])
async def test_extend_and_release_know_foreign_leases_too(opened, store, verb):
    """The rest of the batch goes through."""
    one, other = await opened(RUDE, store, crawl="one"), await opened(RUDE, store, crawl="two")
    await one.add([A])
    await other.add([A])
    (mine,), (foreign,) = await one.claim(), await other.claim()

    with pytest.raises(ForeignLease) as caught:
        await getattr(one, verb)([foreign, mine])

    assert caught.value.answers == {mine}
    assert await leased(other) == 1


@pytest.mark.parametrize("verb", ["extend", "release"])
async def test_finish_of_something_else_than_a_lease_is_refused(rude, verb):
    """The caller's fault."""
    await rude.add([A])
    (lease,) = await rude.claim()

    with pytest.raises(InvalidInput, match="int"):
        await getattr(rude, verb)([5, lease])


# ---- async with lease


async def test_a_lease_is_released_on_an_exception(rude):
    """H5: given back unpunished."""
    await rude.add([A])
    (lease,) = await rude.claim()

    with pytest.raises(RuntimeError, match="mine"):
        async with lease:
            raise RuntimeError("mine")

    assert await leased(rude) == 0
    assert (await rude.claim())[0].attempt == 1


async def test_a_lease_is_released_on_cancellation(rude):
    """A worker that is stopped holds nothing."""
    await rude.add([A])
    (lease,) = await rude.claim()

    async def work():
        async with lease:
            await asyncio.Event().wait()

    await cancelled(await started(work()))

    assert await leased(rude) == 0


async def test_a_finished_lease_stays_finished(rude):
    """Whatever happens after."""
    await rude.add([A])
    (lease,) = await rude.claim()

    async def work():
        async with lease as same:
            await rude.finish(same, Done(200))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await work()

    assert (await rude.stats()).done == 1


async def test_lease_is_kept_after_a_block_without_exception(rude):
    """A lease need not be finished inside the block."""
    await rude.add([A])
    (lease,) = await rude.claim()

    async with lease:
        pass

    assert await leased(rude) == 1


# ---- extend, release, expire


async def test_extended_lease_does_not_expire(frontier, clock):
    """H2: renewed from now."""
    await frontier.add([A])
    (lease,) = await frontier.claim()
    clock.advance(50)

    assert await frontier.extend([lease]) == {lease}
    clock.advance(50)
    assert await frontier.expire() == 0
    clock.advance(10.001)
    assert await frontier.expire() == 1


async def test_a_lost_lease_is_not_extended(frontier, clock):
    """Those not in the answer were lost."""
    await frontier.add([A, "https://b.example/"])
    leases = await frontier.claim(2)
    await frontier.finish(leases[0], Done(200))

    assert await frontier.extend(leases) == {leases[1]}
    clock.advance(61)
    await frontier.expire()
    assert await frontier.extend(leases) == set()


async def test_released_task_is_pending_without_an_attempt(rude):
    """H5, E3: in its old place, attempts as before, refunded."""
    await rude.add([A + "1", A + "2"])
    (lease,) = await rude.claim()

    assert await rude.release([lease]) == {lease}
    assert await rude.release([lease]) == set()

    (again,) = await rude.claim()
    assert (again.url, again.attempt) == (A + "1", 1)
    assert again.token != lease.token
    assert (await rude.queue("a.example").view()).spent == 1


@pytest.mark.parametrize("verb", ["extend", "release"])
async def test_one_lease_may_be_given_alone(rude, verb):
    """Or any iterable of them, or none."""
    await rude.add([A])
    (lease,) = await rude.claim()

    assert await getattr(rude, verb)([]) == set()
    assert await getattr(rude, verb)(lease) == {lease}


async def test_an_expired_lease_is_a_crash(frontier, clock):
    """H4: it counts as an attempt, the task is due at once, and after 3 it is dead."""
    await frontier.add([A])
    for attempt in (1, 2, 3):
        (lease,) = await frontier.claim()
        assert lease.attempt == attempt
        clock.advance(60)
        assert await frontier.expire() == 1
        clock.advance(1)

    stats = await frontier.stats()
    assert (stats.dead, stats.pending) == (1, 0)


async def test_expire_is_bounded(rude, clock):
    """H4: in (deadline, arrival) order, so many at a time."""
    await rude.add([f"{A}{n}" for n in range(5)])
    await rude.claim(5)
    clock.advance(60)

    assert [await rude.expire(limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_claim_expires_overdue_leases(frontier, clock):
    """H4: without a sweeper; D7: the visit ends now, so the delay is kept."""
    await frontier.add([A])
    await frontier.claim()
    clock.advance(60)

    assert list(await frontier.claim()) == []
    clock.advance(1)
    (again,) = await frontier.claim()
    assert again.attempt == 2


async def test_the_seconds_of_a_lease_are_configurable(opened, clock):
    """H1."""
    frontier = await opened({"lease": {"seconds": 5.0}})
    await frontier.add([A])
    await frontier.claim()

    assert (await frontier.claim()).wake_in == 5.0


async def test_repeated_empty_claims_let_other_tasks_run(frontier):
    """An inline store never suspends: the loop would not serve its sockets."""
    ran: list[bool] = []
    asyncio.get_running_loop().call_soon(ran.append, True)
    assert not await frontier.claim(1)
    assert ran
