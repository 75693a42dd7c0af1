"""Logged calls of processes are checked by the same invariants as live ones."""

import pytest

from call_log import Answered, Asked, LogFile, LoggedStore, Replay, read
from outrider.errors import StoreUnavailable
from outrider.store.protocol import ClaimRequest
from outrider.testing.builders import done, rules, task
from outrider.testing.clock import FakeClock
from outrider.testing.faults import NO_FAULT, Fate, Fault, FaultyStore
from outrider.testing.invariants import InvariantBroken, InvariantChecker
from outrider.testing.model import Model


class Process:
    """A process with its own log, on a store that it may share."""

    def __init__(self, path, clock, store):
        self.path = path
        self.clock = clock
        self.store = LoggedStore(store, LogFile(path).write, clock.now_ms)

    async def visit(self, *urls):
        """Add, claim and finish; time passes between the calls."""
        await self.store.configure("default", rules(delay=0.0))
        await self.store.add([task(url) for url in urls])
        self.clock.advance(0.1)
        for _ in urls:
            result = await self.store.claim(ClaimRequest("default", "w", 1))
            self.clock.advance(0.1)
            await self.store.finish([done(lease) for lease in result.leases])
            self.clock.advance(0.1)


@pytest.fixture
def process(tmp_path):
    """A process on the model."""
    clock = FakeClock()
    return Process(tmp_path / "calls", clock, Model(clock))


def replayed(lines, **options):
    """Replay lines into a checker."""
    replay = Replay(InvariantChecker(), **options)
    for line in lines:
        replay.follow(line)
    return replay


async def test_logged_calls_of_a_correct_store_replay_without_a_violation(process):
    """Arguments and answers come back from the file as they were."""
    await process.visit("https://a.example/1", "https://a.example/2")
    lines = [*read(process.path)]

    assert not replayed(lines).in_flight()
    assert [line.verb for line in lines if isinstance(line, Asked)] == [
        "configure",
        "add",
        *["claim", "finish"] * 2,
    ]


async def test_task_leased_to_two_processes_is_found_in_their_logs(process):
    """H1: the logs of several processes are one history."""
    await process.visit("https://a.example/1")
    lines = [*read(process.path)]
    claim = next(line for line in lines if isinstance(line, Asked) and line.verb == "claim")
    until = lines.index(claim) + 2  # with its answer
    replay = Replay(InvariantChecker(), overlapping=True)
    for line in lines[:until]:
        replay.follow(line, "one")
    asked, answered = lines[until - 2 : until]
    other = Answered(answered.at, answered.number, raw(answered, b'"token":1', b'"token":2'))
    assert other.raw != answered.raw

    replay.follow(asked, "other")
    with pytest.raises(InvariantBroken, match="H1"):
        replay.follow(other, "other")


def raw(line, old, new):
    """The raw answer of a line, with some bytes replaced."""
    return type(line.raw)(bytes(line.raw).replace(old, new))


async def test_call_without_an_answer_is_not_held_against_the_store(tmp_path):
    """It may have been applied: the repeated add is a duplicate, and that is no lie."""
    clock = FakeClock()
    faults = iter([Fault(Fate.UNKNOWN)])
    model = Model(clock)
    await model.configure("default", rules())
    faulty = FaultyStore(model, clock, lambda _verb: next(faults, NO_FAULT))
    process = Process(tmp_path / "calls", clock, faulty)
    with pytest.raises(StoreUnavailable):
        await process.store.add([task()])
    (again,) = await process.store.add([task()])

    assert again.reason == "duplicate"
    assert not replayed(read(process.path)).in_flight()
