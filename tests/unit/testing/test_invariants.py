"""Every invariant bites: a store that lies in one way is caught under the rule it breaks."""

import asyncio

import msgspec
import pytest

from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Added
from outrider.core.verdict import Finished
from outrider.errors import StoreUnavailable
from outrider.store.protocol import ClaimRequest
from outrider.testing.builders import done, failed, rules, task
from outrider.testing.clock import FakeClock
from outrider.testing.invariants import CheckedStore, InvariantBroken, check
from outrider.testing.model import Model

replace = msgspec.structs.replace


class Watched:
    """A store that lies in some methods, under a checked, and a few words to drive it."""

    def __init__(self, lies):
        self.clock = FakeClock()
        liar = type("Liar", (Model,), lies)(self.clock)
        liar.crawl_of("default")  # opened under default rules
        self.store = CheckedStore(liar, self.clock)

    async def add(self, *urls, **fields):
        """Add pages of one host."""
        return await self.store.add([task(f"https://a.example/{url}", **fields) for url in urls])

    async def claim(self, limit=1, lease_for=60.0, **how):
        """The leases of a claim."""
        request = ClaimRequest("default", "w", limit, lease_for, **how)
        return (await self.store.claim(request)).leases

    async def configure(self, **fields):
        """Open the crawl under these rules."""
        await self.store.configure("default", rules(**fields))


async def broken_by(lies, story):
    """The rule that the checked sees broken."""
    with pytest.raises(InvariantBroken) as caught:
        await story(Watched(lies))
    return caught.value.rule


def _lends_twice(self, c, q, t, request, roll):
    lease = Model.lease(self, c, q, t, request, roll)
    t.state = TaskState.PENDING
    return lease


async def test_a_task_lent_twice_is_seen():
    """A task has at most one valid lease."""

    async def story(it):
        await it.configure(delay=0.0, max_in_flight=9)
        await it.add("1")
        await it.claim()
        await it.claim()

    assert await broken_by({"lease": _lends_twice}, story) == "H1"


def _old_tokens(self):
    return 7


async def test_a_token_used_again_is_seen():
    """The token changes at every claim."""

    async def story(it):
        await it.configure(delay=0.0)
        await it.add("1")
        (lease,) = await it.claim()
        await it.store.finish([failed(lease, retry_in=0.0)])
        await it.claim()

    assert await broken_by({"token": _old_tokens}, story) == "H1"


def _crowded(self, q):
    return bool(q.due(self.clock.now_ms()))


async def test_too_many_visits_are_seen():
    """No queue exceeds its concurrency."""

    async def story(it):
        await it.add("1", "2")
        await it.claim(2)

    assert await broken_by({"servable": _crowded}, story) == "D2"


def _hasty(self, q, t, delay):
    q.last_end = self.clock.now_ms()


@pytest.mark.parametrize("way", ["finish", "release", "expire", "crash"])
async def test_a_visit_too_early_is_seen(way):
    """Nothing is leased before its queue's next-ready, however the last visit ended."""

    async def story(it):
        await it.add("1", "2")
        (lease,) = await it.claim()
        if way == "finish":
            await it.store.finish([done(lease)])
        if way == "release":
            await it.store.release([lease.id])
        if way in ("expire", "crash"):
            it.clock.advance(60)
        if way == "expire":
            await it.store.expire(limit=9)
        await it.claim()

    assert await broken_by({"visit_ended": _hasty}, story) == "D1"


def _unspaced(self, q, until, why):
    pass


async def test_slots_taken_at_once_are_seen():
    """With several slots every lease postpones the next."""

    async def story(it):
        await it.configure(min_delay=5.0, max_in_flight=2)
        await it.add("1", "2")
        await it.claim(2)

    assert await broken_by({"postpone": _unspaced}, story) == "D1"


def _unfair(self, c, q, t, request, roll):
    last = q.due(self.clock.now_ms(), t.task.lane)[-1]
    return Model.lease(self, c, q, last, request, roll)


@pytest.mark.parametrize("priority", [0.0, 1.0])
async def test_an_unfair_order_is_seen(priority):
    """Order within queue and lane follows the order key; among equals, arrival."""

    async def story(it):
        await it.add("1")
        await it.add("2", priority=priority)
        await it.claim()

    assert await broken_by({"lease": _unfair}, story) == "C2"


def _spendthrift(self, c, q, reason):
    q.session, q.list_state = 0, "ready"


async def test_a_spent_budget_is_seen():
    """No queue exceeds its total budget by more than one task's cost and penalty."""

    async def story(it):
        await it.configure(delay=0.0, total_budget=2)
        await it.add("1", "2", "3")
        for _ in range(3):
            await it.store.finish([done(lease) for lease in await it.claim()])

    assert await broken_by({"retire": _spendthrift}, story) == "E1"


def _lends_others(self, c, request):
    return [self.lease_named(c, t.queue, t, request) for t in c.tasks]


async def test_a_task_lent_by_name_that_was_not_named_is_seen():
    """By name means those and no others."""

    async def story(it):
        await it.add("1", "2")
        await it.claim(2, fingerprints=[task("https://a.example/2").fingerprint])

    assert await broken_by({"claim_named": _lends_others}, story) == "D5"


async def test_a_slot_lost_to_a_name_is_seen():
    """A lease by name takes no slot; the others still do."""

    async def story(it):
        await it.add("1", "2", "3")
        await it.claim(fingerprints=[task("https://a.example/1").fingerprint])
        await it.claim(2)

    assert await broken_by({"servable": _crowded}, story) == "D2"


async def test_a_name_that_overspends_is_seen():
    """A lease by name is charged like any other."""

    async def story(it):
        await it.configure(total_budget=1)
        await it.add("1", "2")
        await it.claim(2, fingerprints=[task(f"https://a.example/{n}").fingerprint for n in (1, 2)])

    assert await broken_by({"claim_named": _lends_others}, story) == "E1"


@pytest.mark.parametrize("way", ["finish", "expire"])
async def test_a_visit_of_a_name_is_held_to_its_delay(way):
    """What was visited after all is spaced, and what was lent by name before changes nothing."""

    async def story(it):
        await it.add("1", "2", "3")
        (lease,) = await it.claim(fingerprints=[task("https://a.example/3").fingerprint])
        if way == "finish":
            await it.store.finish([done(lease)])
        else:
            await it.claim()
            it.clock.advance(60)
            await it.store.expire(limit=9)
        await it.claim()

    assert await broken_by({"visit_ended": _hasty}, story) == "D1"


def _open_handed(self, q):
    taken = [t for t in q.of(TaskState.LEASED) if not t.lent]
    return not (q.paused or q.retired or taken) and bool(q.due(self.clock.now_ms()))


async def test_a_lent_queue_served_to_others_is_seen():
    """C7: whoever borrowed a queue has it alone."""

    async def story(it):
        await it.configure(delay=0.0, max_in_flight=9)
        await it.add("1", "2", "3")
        await it.claim(2, lend=True)
        await it.claim()

    assert await broken_by({"servable": _open_handed}, story) == "C7"


def _careless(self, q):
    return bool(q.due(self.clock.now_ms()))


async def test_a_loan_beyond_the_budget_is_seen():
    """C7, E1: each task of a loan is charged as it is taken."""

    async def story(it):
        await it.configure(delay=0.0, total_budget=2)
        await it.add("1", "2", "3")
        await it.claim(3, lend=True)

    assert await broken_by({"may_lend_more": _careless}, story) == "E1"


def _counts_all(self, c, limit):
    overdue = [t for t in c.all(TaskState.LEASED) if t.deadline <= self.clock.now_ms()]
    for t in overdue:
        self.crash(c, t)
    return len(overdue)


async def test_a_lost_loan_that_counts_too_many_crashes_is_seen():
    """C7, H4: of one loan no more than its queue has slots."""

    async def story(it):
        await it.configure(delay=0.0, max_in_flight=2)
        await it.add("1", "2", "3")
        await it.claim(3, lease_for=5.0, lend=True)
        it.clock.advance(5)
        await it.store.expire(limit=9)
        await it.store.check("default")

    assert await broken_by({"expire_overdue": _counts_all}, story) == "C7"


async def test_a_loan_is_believed():
    """C7: whatever comes of it, an honest store is not accused."""
    it = Watched({})
    await it.configure(delay=0.0, max_in_flight=2, total_budget=4)
    await it.add("1", "2", "3", "4", "5")
    for ending in ("lost", "released", "finished"):
        leases = await it.claim(9, lease_for=5.0, lend=True)
        assert leases
        if ending == "lost":
            it.clock.advance(5)
            assert await it.store.expire(limit=9) == 4
        elif ending == "released":
            await it.store.release([lease.id for lease in leases])
        else:
            await it.store.finish([done(lease) for lease in leases])
    await it.store.check("default")


def _applies_again(self, v):
    for t in self.all[v.crawl].tasks:
        t.state = TaskState.LEASED
    return Model.finish_one(self, v)


async def test_a_verdict_applied_twice_is_seen():
    """An applied verdict is applied once."""

    async def story(it):
        await it.add("1")
        (lease,) = await it.claim()
        await it.store.finish([done(lease), done(lease)])

    assert await broken_by({"finish_one": _applies_again}, story) == "H3"


def _gullible(self, lease):
    t = self.all[lease.crawl].tasks[lease.task - 1]
    t.state = TaskState.LEASED
    return t


@pytest.mark.parametrize(("verb", "rule"), [("finish", "H3"), ("extend", "H2"), ("release", "H5")])
async def test_a_lease_that_was_given_back_is_seen(verb, rule):
    """A lost lease can do nothing."""

    async def story(it):
        await it.add("1")
        (lease,) = await it.claim()
        await it.store.release([lease.id])
        if verb == "finish":
            await it.store.finish([done(lease)])
        if verb == "extend":
            await it.store.extend([lease.id], lease_for=9.0)
        if verb == "release":
            await it.store.release([lease.id])

    assert await broken_by({"held": _gullible}, story) == rule


def _refuses(self, v):
    return Finished(applied=False)


async def test_a_valid_lease_refused_is_seen():
    """A lease that holds can be finished."""

    async def story(it):
        await it.add("1")
        await it.store.finish([done(lease) for lease in await it.claim()])

    assert await broken_by({"finish_one": _refuses}, story) == "H3"


def _impatient(self, c, limit):
    for t in c.all(TaskState.LEASED):
        t.deadline = 0
    return Model.expire_overdue(self, c, limit)


async def test_a_lease_taken_back_too_soon_is_seen():
    """Only overdue leases expire."""

    async def story(it):
        await it.add("1")
        await it.claim()
        await it.store.expire(limit=9)

    assert await broken_by({"expire_overdue": _impatient}, story) == "H4"


def _forgets(self, c, task):
    return Added(task.url, added=True, priority=task.priority)


async def test_a_lost_task_is_seen():
    """Nothing added is lost."""

    async def story(it):
        await it.add("1")
        await it.store.check("default")

    assert await broken_by({"add_one": _forgets}, story) == "B3"


def _amnesiac(self, c, task):
    c.known.clear()
    return Model.add_one(self, c, task)


async def test_a_task_known_twice_is_seen():
    """Nothing known is added twice."""

    async def story(it):
        await it.add("1")
        await it.add("1")

    assert await broken_by({"add_one": _amnesiac}, story) == "B3"


def _suspicious(self, c, task):
    return Added(task.url, added=False, reason="duplicate")


async def test_a_stranger_called_a_duplicate_is_seen():
    """Only what was added is known."""
    assert await broken_by({"add_one": _suspicious}, lambda it: it.add("1")) == "B3"


def _ends_early(self, c):
    self.set_crawl_status(c, CrawlStatus.FINISHED, "run 1")


@pytest.mark.parametrize("is_leased", [True, False])
async def test_a_run_closed_too_early_is_seen(is_leased):
    """A run finishes only when nothing unretired is left."""

    async def story(it):
        await it.add("1", delay=0.0 if is_leased else 9.0)
        await it.claim()

    assert await broken_by({"close_run": _ends_early}, story) == "I2"


def _forgets_its_draw(self, q, t, roll):
    Model.draw(self, q, t, roll)
    q.next_ready = self.clock.now_ms()


async def test_a_drawn_delay_that_is_not_waited_for_is_seen():
    """D1: next-ready is the start and what the lease drew."""

    async def story(it):
        await it.configure(count_from="start", delay=5.0, delay_to=15.0, max_in_flight=2)
        await it.add("1", "2")
        await it.claim(rolls=[0.5])
        it.clock.advance(6)
        await it.claim()

    assert await broken_by({"draw": _forgets_its_draw}, story) == "D1"


async def test_a_lease_that_draws_nothing_is_seen():
    """D1: its verdict would draw, and the greater of two draws is not uniform."""

    async def story(it):
        await it.configure(count_from="start", delay=5.0, delay_to=15.0)
        await it.add("1")
        await it.claim(rolls=[0.5])

    assert await broken_by({"draw": lambda self, q, t, roll: None}, story) == "D1"


def _takes_any(self, c, request):
    return list(c.queues.values())


@pytest.mark.parametrize("how", [{"keys": ["b.example"]}, {"max_queues": 1}])
async def test_a_lease_of_a_queue_that_was_not_asked_for_is_seen(how):
    """C5: by key, or of more queues than asked for."""

    async def story(it):
        await it.add("1")
        await it.store.add([task("https://b.example/1")])
        await it.claim(2, **how)

    lies = {"named_queues": _takes_any, "may_take": lambda self, request, q, taken: True}
    assert await broken_by(lies, story) == "C5"


def _ends_once_asked_twice(self, c):
    if self.tokens > 1:
        _ends_early(self, c)


async def test_a_run_closed_although_it_stays_open_is_seen():
    """I2: with `stay_open`, though nothing is left."""

    async def story(it):
        await it.configure(stay_open=True, delay=0.0)
        await it.add("1", "2")
        for _ in range(3):
            await it.store.finish([done(lease) for lease in await it.claim()])

    assert await broken_by({"close_run": _ends_once_asked_twice}, story) == "I2"


def _ends_twice(self, c, status, reason, *counts):
    Model.set_crawl_status(self, c, status, reason, *counts)
    Model.set_crawl_status(self, c, status, reason, *counts)


async def test_a_run_closed_twice_is_seen():
    """Each run finishes exactly once."""

    async def story(it):
        await it.add("1")
        await it.store.finish([done(lease) for lease in await it.claim()])
        await it.claim()
        await it.store.check("default")

    assert await broken_by({"set_crawl_status": _ends_twice}, story) == "I2"


@pytest.mark.parametrize(
    ("field", "rule"),
    [("known", "O5"), ("done", "O5"), ("held", "E5"), ("visits", "O1"), ("runs", "I2")],
)
async def test_a_false_counter_is_seen(field, rule):
    """Known = pending + leased + done + dead + dropped, and so on."""

    async def miscounted(self, crawl):
        view = await Model.crawl(self, crawl)
        return replace(view, **{field: getattr(view, field) + 1})

    store = type("Liar", (Model,), {"crawl": miscounted})(FakeClock())
    with pytest.raises(InvariantBroken) as caught:
        await check(store, "default")

    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("lie", "rule"),
    [
        ({"pending": 5}, "E8"),
        ({"state": "empty"}, "C1"),
        ({"wakes_in": 9.0}, "C1 ready"),
        ({"balance": 99_999}, "E2 balance"),
        ({"spent": -1}, "E3 spent"),
        ({"next_url": None}, "E8 next"),
        ({"delayed": 1}, "C1 ready"),
        ({"in_flight": 1}, "E8"),
    ],
)
async def test_a_false_view_is_seen(lie, rule):
    """What a queue tells of itself agrees with its tasks, and with itself."""

    def misreported(self, c, q):
        return replace(Model.view(self, c, q), **lie)

    store = type("Liar", (Model,), {"view": misreported})(FakeClock())
    await store.configure("default", rules())
    await store.add([task()])
    with pytest.raises(InvariantBroken) as caught:
        await check(store, "default")

    assert caught.value.rule.startswith(rule)


async def test_an_answer_that_got_lost_is_not_held_against_the_store():
    """Applied, and the connection broke: repeated, the finish is True again, and that is no lie."""
    lost = []

    async def finish(self, verdicts):
        answers = await Model.finish(self, verdicts)
        if not lost:
            lost.append(answers)
            raise StoreUnavailable("unknown whether applied")
        return answers

    it = Watched({"finish": finish})
    await it.add("1")
    (lease,) = await it.claim()
    with pytest.raises(StoreUnavailable):
        await it.store.finish([done(lease)])

    (answer,) = await it.store.finish([done(lease)])

    assert (answer.applied, answer.state) == (True, None)


async def test_overlapping_claims_are_not_compared():
    """Whose lease came first is not known, so order among them proves nothing."""
    turnstile = asyncio.Event()

    async def claim(self, request):
        claimed = await Model.claim(self, request)
        if request.worker == "slow":
            await turnstile.wait()
        return claimed

    it = Watched({"claim": claim})
    await it.configure(delay=0.0, max_in_flight=2)
    await it.add("1", "2")
    slow = asyncio.create_task(it.store.claim(ClaimRequest("default", "slow", 1)))
    await asyncio.sleep(0)
    (second,) = await it.claim()
    turnstile.set()

    assert second.url.endswith("/2")
    assert (await slow).leases[0].url.endswith("/1")


async def test_an_honest_store_is_believed():
    """The model itself breaks nothing, and what a checked did not see it does not judge."""
    clock = FakeClock()
    model = Model(clock)
    await model.configure("default", rules())
    await model.add([task()])
    checked = CheckedStore(model, clock)

    (lease,) = (await checked.claim(ClaimRequest("default", "w", 1))).leases
    await checked.add([task()])
    await checked.finish([done(lease)])

    await checked.check("default")


async def test_reopening_ends_no_lease_that_outlives_its_process():
    """H4: the checker takes back the others; a finish of either is judged by that."""
    it = Watched({})
    await it.configure(delay=0.0, max_in_flight=9)
    await it.add("1", "2")
    (lasting,) = await it.claim(outlives_process=True)
    (other,) = await it.claim()
    checker = it.store.checker
    checker.reopened("default", it.clock.now_ms())

    await it.store.finish([done(lasting)])
    with pytest.raises(InvariantBroken, match="H3"):
        await it.store.finish([done(other)])
