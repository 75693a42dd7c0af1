"""Metrics of whole crawls agree with a ledger beside the store: counts exactly, percentiles within
the width of a bucket. Time is virtual, so a crawl of minutes takes none.
"""

import asyncio
import random
from collections import Counter, defaultdict

import pytest

from outrider import Blocked, Done, Failed, Frontier
from outrider.errors import StoreUnavailable
from outrider.executor.executor import Executor
from outrider.executor.handlers import Handlers
from outrider.store.forwarding import ForwardingStore
from outrider.store.memory import MemoryStore

START_MS = 1_800_000_000_000
BUCKET = 0.0906  # relative width of half a bucket
SETTINGS = {
    "politeness": {"delay": 2.0, "blocks_to_snooze": 0},
    "retry": {"max_retries": 2, "base": 1.0, "jitter": 0.0},
    "lease": {"seconds": 20.0},
    "executor": {"slots": 5, "drain": 0.0},
}


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as nothing else is to be done."""

    def __init__(self):
        super().__init__()
        self.elapsed = 0.0

    def time(self):
        """Seconds that have passed."""
        return self.elapsed

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.elapsed = max(self.elapsed, self._scheduled[0]._when)
        super()._run_once()


class LoopClock:
    """The clock of the loop, as stores read it."""

    def now_ms(self):
        """Milliseconds since the epoch."""
        return START_MS + round(asyncio.get_running_loop().time() * 1000)

    async def sleep(self, seconds):
        """Wait by the loop."""
        await asyncio.sleep(seconds)


class Ledger:
    """What was leased and finished, as seen between the workers and their store."""

    def __init__(self, clock):
        self.clock = clock
        self.outcomes, self.retried = Counter(), 0
        self.waits, self.gaps = defaultdict(list), defaultdict(list)  # by worker
        self._due = {}  # by URL
        self._ended = {}  # by host: when its last visit ended
        self._held = {}  # by lease: worker, URL, host, wait, gap, deadline

    def expire(self):
        """A call that expires what is overdue."""
        now = self.clock.now_ms()
        for lease, held in list(self._held.items()):
            if held[-1] <= now:
                self._end(lease, now)
                self.outcomes["crashed"] += 1

    def _end(self, lease, now):
        held = self._held.pop(lease)
        self._ended[held[2]] = self._due[held[1]] = now
        return held

    def claimed(self, worker, leases):
        """The answer of a claim."""
        now = self.clock.now_ms()
        for lease in leases:
            ended = self._ended.get(lease.key)
            gap = None if ended is None else (now - ended) / 1000
            wait = (now - self._due.get(lease.url, START_MS)) / 1000
            held = (worker, lease.url, lease.key, wait, gap, now + round(lease.lease_for * 1000))
            self._held[lease.id] = held

    def finished(self, verdicts, answers):
        """The answer of a finish."""
        now = self.clock.now_ms()
        for verdict, answer in zip(verdicts, answers, strict=True):
            lease = next(one for one in self._held if one.token == verdict.token)
            assert answer.applied
            worker, url, _, wait, gap, _ = self._end(lease, now)
            self._due[url] = now + round(verdict.retry_in * 1000)
            self.outcomes[verdict.outcome] += 1
            self.retried += answer.state == "pending"
            self.waits[worker].append(wait)
            self.gaps[worker] += [] if gap is None else [gap]

    def extended(self, leases, seconds):
        """The answer of an extension."""
        for lease in leases:
            *held, _ = self._held[lease]
            self._held[lease] = (*held, self.clock.now_ms() + round(seconds * 1000))


class Observed(ForwardingStore):
    """A worker's way to the store: into the ledger, until the worker is killed."""

    def __init__(self, store, ledger, worker):
        self._store, self._ledger, self._worker = store, ledger, worker
        self.id, self.is_inline, self.notifies = store.id, False, store.notifies
        self.subscribe = store.subscribe
        self.is_dead, self.is_over = False, asyncio.Event()
        self.sent = None  # what the ledger had of this worker at its last heartbeat
        self.handled = []  # durations of its handler

    async def close(self):
        """The store is of the test."""

    async def _forward(self, verb, *args, **kwargs):
        if self.is_dead:
            await self.is_over.wait()
            raise StoreUnavailable("the process was killed")
        if verb in ("claim", "expire"):  # H4
            self._ledger.expire()
        answer = await getattr(self._store, verb)(*args, **kwargs)
        if verb == "claim":
            self._ledger.claimed(self._worker, answer.leases)
        elif verb == "finish":
            self._ledger.finished(args[0], answer)
        elif verb == "extend":
            self._ledger.extended(answer, kwargs["lease_for"])
        elif verb == "heartbeat":
            counts = args[1].totals.latency["handler"].count
            ended = self._ledger.waits[self._worker], self._ledger.gaps[self._worker]
            self.sent = (list(ended[0]), list(ended[1]), self.handled[:counts])
        return answer


async def work(observed, handle):
    """Run one worker until the crawl is finished."""
    clock, name = observed._ledger.clock, observed._worker
    async with Frontier.attach(observed, worker=name, clock=clock) as frontier:
        await Executor(frontier, Handlers(handle)).run()


def handler(observed, dice, typical):
    """A handler that takes its time, fails now and then, and keeps its own record."""

    async def handle(visit):
        seconds = typical * dice.lognormvariate(0.0, 0.8)
        await asyncio.sleep(seconds)
        observed.handled.append(seconds)
        wrong = [Failed("x")] * 2 + [Blocked("y")]
        return dice.choice([Done(200), Done(200), Done(200), *wrong])

    return handle


async def crawl_with_three_workers():
    """A quick worker, a slow one, and one that is killed; and what metrics say, twice."""
    clock, dice = LoopClock(), random.Random(11)
    store = MemoryStore(clock)
    ledger = Ledger(clock)
    async with Frontier.open(store, settings=SETTINGS, clock=clock) as frontier:
        await frontier.add([f"https://h{n % 60}.example/{n}" for n in range(900)])
        workers = [Observed(store, ledger, name) for name in ("quick", "slow", "killed")]
        tasks = [
            asyncio.create_task(work(one, handler(one, dice, typical)))
            for one, typical in zip(workers, (0.2, 4.0, 0.5), strict=True)
        ]
        try:
            await asyncio.sleep(33.0)
            workers[2].is_dead = True
            early = await frontier.metrics()
            await asyncio.sleep(5.0)
            later = await frontier.metrics(since=early)
            await asyncio.gather(*tasks[:2])
        finally:
            workers[2].is_over.set()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        end = await frontier.metrics()
        return ledger, workers, (early, later, end), await frontier.stats()


def on_virtual_time(work):
    """Run a coroutine by a loop of virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


@pytest.fixture(scope="module")
def crawled():
    """The crawl that the tests of this module look at."""
    return on_virtual_time(crawl_with_three_workers())


def exact(values, share):
    """The percentile of the values themselves."""
    return sorted(values)[max(1, -int(-share * len(values) // 1)) - 1]


def test_counters_are_those_of_the_ledger(crawled):
    """O1: visits are counted by the store, also the last ones of a worker that was killed."""
    ledger, _, (_, _, end), stats = crawled

    assert dict(end.visits_total) == dict(ledger.outcomes)
    assert sum(end.visits_total.values()) == stats.visits > 900
    assert end.tasks == {name: getattr(stats, name) for name in end.tasks}
    assert end.blocked_ratio == ledger.outcomes["blocked"] / ledger.outcomes.total()
    assert end.recovered_total == stats.recovered > 0
    assert end.recovered_ratio == stats.recovered / ledger.outcomes["blocked"]


def test_histograms_have_every_visit_until_the_last_heartbeat(crawled):
    """O1, M6: of each worker; waits and gaps are those over all workers."""
    ledger, workers, (_, _, end), _ = crawled
    waits, gaps, handled = ([x for w in workers for x in w.sent[part]] for part in range(3))
    lost = len(ledger.waits["killed"]) - len(workers[2].sent[0])

    assert (end.queue_wait_seconds.count, end.host_gap_seconds.count) == (len(waits), len(gaps))
    assert len(waits) == ledger.outcomes.total() - ledger.outcomes["crashed"] - lost
    assert 0 < len(workers[2].sent[0]) <= len(ledger.waits["killed"])
    for found, values in (
        (end.queue_wait_seconds, waits),
        (end.host_gap_seconds, gaps),
        (end.handler_seconds, handled),
    ):
        assert found.sum == pytest.approx(sum(values), rel=0.02)
        assert found.max == pytest.approx(max(values), rel=0.02)
        assert found.buckets[-1][1] == found.count
        assert not found.is_recent
        for share, shown in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99)):
            assert shown == pytest.approx(exact(values, share), rel=BUCKET + 0.02)
    assert min(gaps) >= 2.0  # the delay, whichever worker made the visit before


def test_retries_are_those_of_the_ledger(crawled):
    """O1: but for those that the killed worker did not tell any more."""
    ledger, workers, (_, _, end), _ = crawled
    untold = len(ledger.waits["killed"]) - len(workers[2].sent[0])

    assert ledger.retried - untold <= end.retries_total <= ledger.retried
    assert end.retries_total > 100


def test_percentiles_of_live_workers_are_of_their_windows(crawled):
    """O1: a worker that was killed is there until its heartbeat has expired."""
    _, _, (early, _, end), _ = crawled

    assert early.handler_seconds.is_recent
    assert early.handler_seconds.samples == early.handler_seconds.count > 100
    assert early.workers == {"busy": 3}
    assert (sum(early.slots.values()), early.slots["busy"] > 0) == (15, True)
    assert set(end.workers) == {"gone"}
    assert end.slots == {}
    assert end.status == "finished"


def test_rates_are_differences_between_samples(crawled):
    """O1: by outcome; without an earlier reading those of the last minute of activity."""
    _, _, (early, later, _), _ = crawled

    assert later.interval_seconds == 5.0
    for outcome, count in later.visits_total.items():
        before = early.visits_total.get(outcome, 0)
        assert later.visits_per_second[outcome] * 5.0 == pytest.approx(count - before)
    assert sum(later.visits_per_second.values()) > 1.0
    assert 0 < early.interval_seconds <= 60.0


def test_calls_of_the_store_are_counted_by_verb(crawled):
    """O1: by verb, also those that took no time."""
    _, _, (_, _, end), _ = crawled

    assert end.store_seconds["claim"].count > 100
    assert end.store_seconds["finish"].count > 100
    assert end.store_seconds["extend"].count > 0
    assert end.store_seconds["add"].count == 0  # before the workers started
