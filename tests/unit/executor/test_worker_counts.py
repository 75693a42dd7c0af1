"""What a worker counts, and how it reaches the store with its heartbeats (M6, O1)."""

from outrider import Done, Dropped, Failed, Frontier
from outrider.clock import SystemClock
from outrider.core.worker_totals import OTHER, ScalingDecision
from outrider.executor.executor import Executor
from outrider.executor.handlers import Handlers
from outrider.executor.visit import Visit
from outrider.executor.worker_counts import WorkerCounts, bounded
from outrider.store.memory import MemoryStore

FAST = {"politeness": {"delay": 0.0}, "retry": {"max_retries": 0}}


class LeaseOf:
    """A lease whose task and queue waited so long."""

    def __init__(self, waited=-1.0, gap=-1.0):
        self.waited, self.gap = waited, gap


def visit(outcome, began, *, parked_for=0.0, **waits):
    """A visit that ended."""
    made = Visit(LeaseOf(**waits))
    made.outcome, made.began, made.parked_for = outcome, began, parked_for
    return made


def sums(totals):
    """Count and sum of each series that recorded anything."""
    return {name: (s.count, s.sum) for name, s in totals.latency.items() if s.count}


def test_durations_and_gaps_of_visits():
    """O1: requests apart from the rest, and waits apart from both; unknown ones are left out."""
    counts = WorkerCounts()
    counts.ended(visit(Done(200, seconds=1.0), 10.0, waited=4.0), 13.0)
    counts.ended(visit(Dropped("robots"), 11.0, waited=0.5, gap=2.5), 12.0)
    counts.ended(visit(Done(200, seconds=0.5), 15.0, parked_for=7.0, gap=0.5), 24.0)
    counts.finished([visit(Done(200), 0.0), visit(Failed("x"), 0.0)])
    totals = counts.totals({"off-scope": 2}, (), 0.0, 24.0)

    assert totals.outcomes == {"done": 1, "failed": 1}
    assert totals.refusals == {"off-scope": 2}
    assert sums(totals) == {"queue_wait": (2, 4.5), "fetch": (2, 1.5), "handler": (3, 4.5)}
    assert (totals.gaps.count, totals.gaps.sum) == (2, 3.0)


def test_windows_stand_for_the_time_since_the_worker_started():
    """O1: so a worker with few samples has a rate as well."""
    counts = WorkerCounts()
    counts.start(5.0)
    for now in (10.0, 20.0):
        counts.ended(visit(Done(200, seconds=1.0), now - 2, waited=3.0), now)
    window = counts.totals({}, (), 0.0, 25.0).windows["fetch"]

    assert (window.count, window.max, window.seconds, window.per_second) == (2, 1.0, 20.0, 0.1)


async def test_calls_of_the_store_have_a_series_each():
    """O1: also a call that took no time at all."""
    counts = WorkerCounts()
    for verb, seconds in (("claim", 0.25), ("claim", 0.5), ("finish", 0.0)):
        counts.called(verb, seconds)

    assert sums(counts.totals({}, (), 0.0, 1e9)) == {
        "store_claim": (2, 0.75),
        "store_finish": (1, 0.0),
    }


def test_decisions_are_sent_until_they_arrived():
    """J3: in seconds since the epoch; a heartbeat that failed is no reason to lose one."""
    counts, decided = WorkerCounts(), [ScalingDecision(5.0, 1, 2, "more")]
    first = counts.totals({}, decided, 1000.0, 0.0)
    again = counts.totals({}, decided, 1000.0, 0.0)
    counts.sent(decided)
    decided.append(ScalingDecision(6.0, 2, 3, "more"))

    assert first.decisions == again.decisions == (ScalingDecision(1005.0, 1, 2, "more"),)
    assert [one.at for one in counts.totals({}, decided, 1000.0, 0.0).decisions] == [1006.0]


def test_names_fit_into_a_heartbeat():
    """M6: a user's own reasons may be long and many."""
    found = bounded({f"{number:03d}" + "x" * 100: 1 for number in range(100)} | {"a\0b": 1})

    assert len(found) == 64
    assert (sum(found.values()), found[OTHER]) == (101, 38)
    assert all(len(name) <= 64 and "\0" not in name for name in found)


async def test_last_heartbeat_of_a_worker_has_its_totals():
    """M6: also when it is gone, its visits are known."""
    store = MemoryStore(SystemClock())

    async def handle(one):
        return Done(200) if one.url.endswith("1") else Failed("x")

    async with Frontier.open(store, settings=FAST) as frontier:
        await frontier.add([f"https://h{number}.example/{number}" for number in range(3)])
        await frontier.add(["ftp://h.example/"])
        await Executor(frontier, Handlers(handle)).run()
        (view,) = await frontier.workers()
        together = await frontier.worker_totals()

    assert (view.state, view.visits) == ("gone", 3)
    assert view.totals.outcomes == together.outcomes == {"done": 1, "failed": 2}
    assert view.totals.refusals == {"scheme": 1}
    assert sums(view.totals).keys() == {"queue_wait", "handler", "store_claim", "store_finish"}
    assert view.totals.windows["handler"].count == 3
    assert view.totals.slots == {"idle": 64, "busy": 0, "draining": 0, "parked": 0}
