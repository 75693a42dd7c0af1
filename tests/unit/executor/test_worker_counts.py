"""What a worker counts, and how it reaches the store with its heartbeats (M6, O1)."""

from outrider import Done, Failed, Frontier
from outrider.clock import SystemClock
from outrider.core.worker_totals import OTHER, ScalingDecision
from outrider.executor.executor import Executor
from outrider.executor.handlers import Handlers
from outrider.executor.visit import Visit
from outrider.executor.worker_counts import MAX_HOSTS, WorkerCounts, bounded
from outrider.store.memory import MemoryStore

FAST = {"politeness": {"delay": 0.0}, "retry": {"max_retries": 0}}


class LeaseOf:
    """A lease of one queue."""

    def __init__(self, key):
        self.key = key


def visit(key, outcome, began):
    """A visit that ended."""
    made = Visit(LeaseOf(key))
    made.outcome, made.began = outcome, began
    return made


def test_durations_and_gaps_of_visits():
    """O1: requests apart from the rest; a gap lies between two visits of one queue."""
    counts = WorkerCounts()
    for key, began, now in (("a", 10.0, 13.0), ("b", 11.0, 12.0), ("a", 15.0, 16.0)):
        counts.ended(visit(key, Done(200, seconds=1.0), began), now)
    counts.finished([visit("a", Done(200), 0.0), visit("b", Failed("x"), 0.0)], 0.5)
    totals = counts.totals({"off-scope": 2}, (), 0.0)

    assert totals.outcomes == {"done": 1, "failed": 1}
    assert totals.refusals == {"off-scope": 2}
    assert {name: (s.count, s.sum) for name, s in totals.latency.items()} == {
        "fetch": (3, 3.0),
        "handler": (3, 2.0),
        "store": (1, 0.5),
    }
    assert (totals.gaps.count, totals.gaps.sum) == (1, 2.0)


def test_remembered_hosts_are_bounded():
    """M3: the one that ended first is forgotten."""
    counts = WorkerCounts()
    for number in range(MAX_HOSTS + 1):
        counts.ended(visit(f"h{number}", Done(200), 1.0), 1.0)
    counts.ended(visit("h0", Done(200), 5.0), 5.0)
    counts.ended(visit("h9", Done(200), 5.0), 5.0)

    assert counts.totals({}, (), 0.0).gaps.count == 1


def test_decisions_are_sent_until_they_arrived():
    """J3: in seconds since the epoch; a heartbeat that failed is no reason to lose one."""
    counts, decided = WorkerCounts(), [ScalingDecision(5.0, 1, 2, "more")]
    first = counts.totals({}, decided, 1000.0)
    again = counts.totals({}, decided, 1000.0)
    counts.sent(decided)
    decided.append(ScalingDecision(6.0, 2, 3, "more"))

    assert first.decisions == again.decisions == (ScalingDecision(1005.0, 1, 2, "more"),)
    assert [one.at for one in counts.totals({}, decided, 1000.0).decisions] == [1006.0]


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
    assert view.totals.latency["fetch"].count == 3
