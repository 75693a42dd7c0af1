import asyncio

import pytest

from outrider.fetch import child_pool as module
from outrider.fetch.child_main import ANSWER
from outrider.fetch.child_pool import MAX_KEYS, ChildPool, FairSlots, Fault, FaultRecord


class Bench:
    """Calls that hold a slot until they are told to end; the order in which they began."""

    def __init__(self, count):
        self.faults = FaultRecord()
        self.slots = FairSlots(count, self.faults)
        self.begun = []
        self._ends = {}
        self._tasks = {}

    async def ask(self, *names):
        """Begin calls; a name is its key and a number."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._call(name))
        await settled()

    async def _call(self, name):
        async with self.slots.slot(name[0]):
            self.begun.append(name)
            await self._ends[name].wait()

    async def end(self, *names):
        """End calls that hold a slot."""
        for name in names:
            self._ends[name].set()
            await self._tasks[name]
        await settled()

    async def give_up(self, name):
        """Cancel a call, wherever it is."""
        self._tasks[name].cancel()
        await settled()


async def settled():
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_keys_take_turns():
    """However many calls of one key came first, another waits for one of them."""
    bench = Bench(1)
    await bench.ask("a1", "a2", "a3", "a4", "b1", "c1")
    for name in ("a1", "b1", "c1", "a2", "a3"):
        await bench.end(name)

    assert bench.begun == ["a1", "b1", "c1", "a2", "a3", "a4"]


async def test_key_holds_a_second_slot_only_while_no_other_waits():
    """It may use what is free, and gets no more as soon as another key comes."""
    bench = Bench(2)
    await bench.ask("a1", "a2", "a3", "b1", "b2")
    assert bench.begun == ["a1", "a2"]
    await bench.end("a1")
    assert bench.begun[-1] == "b1"
    await bench.end("a2")

    assert bench.begun[-1] == "a3"


async def test_key_with_faults_is_served_last():
    """Those that exhausted limits wait behind all others, the worst longest."""
    bench = Bench(1)
    for key, count in (("a", 2), ("b", 1)):
        for _ in range(count):
            bench.faults.add(key)
    await bench.ask("x1", "a1", "b1", "c1", "x2")
    for name in ("x1", "c1", "x2", "b1"):
        await bench.end(name)

    assert bench.begun == ["x1", "c1", "x2", "b1", "a1"]


async def test_cancelled_call_leaves_its_slot_to_the_next():
    """Whether it waited or held one; nothing is left of it."""
    bench = Bench(1)
    await bench.ask("a1", "b1", "c1")
    await bench.give_up("b1")
    await bench.give_up("a1")
    await bench.end("c1")
    await bench.ask("d1")

    assert bench.begun == ["a1", "c1", "d1"]
    assert not bench.slots._waiting


async def test_slot_given_to_a_call_that_is_cancelled_meanwhile_is_not_lost():
    """The slot came and the caller went in the same turn of the loop."""
    slots = FairSlots(1, FaultRecord())
    first, second = slots.slot("a"), slots.slot("b")
    await first.__aenter__()
    waiting = asyncio.create_task(second.__aenter__())
    await settled()
    await first.__aexit__(None, None, None)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    async with slots.slot("c", 60.0):
        pass


async def test_wait_is_bounded():
    """A call that found no slot in time says so, and waits no longer."""
    slots = FairSlots(1, FaultRecord())
    async with slots.slot("a"):
        with pytest.raises(TimeoutError):
            async with slots.slot("b", 0.0):
                pass
        assert not slots._waiting


def test_faults_of_many_keys_are_forgotten_in_their_order():
    """The record is bounded, and a success clears it."""
    record = FaultRecord()
    for number in range(MAX_KEYS + 1):
        record.add(str(number))
    record.clear("7")

    assert (record["0"], record["7"], record["8"]) == (0, 0, 1)


class FakeChild:
    """A child that answers "good" at once, and hangs for everything else."""

    log: list[str]
    process = None

    async def ask(self, request):
        """One request."""
        asked = request[5:].decode()
        self.log.append(asked)
        if asked.startswith("good"):
            return ANSWER
        await asyncio.Event().wait()
        raise AssertionError

    def kill(self):
        """Nothing is left of it."""


@pytest.fixture
def pool(monkeypatch):
    """A pool of fake children, and what each was asked, in order."""
    log = []

    async def started(self):
        child = FakeChild()
        child.log = log
        self._alive.add(child)
        return child

    monkeypatch.setattr(ChildPool, "_start", started)
    monkeypatch.setattr(ChildPool, "_end", lambda self, child: self._alive.discard(child))
    monkeypatch.setattr(module, "_decode_answer", lambda data, answer: "answered")
    made = ChildPool("any:function", seconds=0.2, children=2, quick=0.01, max_wait=60.0)
    return made, log


async def test_good_page_waits_for_one_bad_page_of_each_other_host(pool):
    """Twelve bad pages of one host and one of each of ten others: the good one is read at once."""
    pool, log = pool
    bad = [asyncio.create_task(pool.call(f"bad{n}", key="evil")) for n in range(12)]
    bad += [asyncio.create_task(pool.call(f"bad{n}", key=f"evil{n}")) for n in range(10)]
    await settled()

    assert await pool.call("good", key="fine") == "answered"
    # Each bad host had one quick try at most before it, and one page the whole limit beside it.
    assert log.index("good") <= 11 + 3
    for task in bad:
        task.cancel()
    await asyncio.gather(*bad, return_exceptions=True)


async def test_page_that_needs_more_than_the_quick_limit_is_run_again_with_the_whole(pool):
    """And the next of its host at once with the whole, until one succeeds."""
    pool, log = pool
    first = await pool.call("bad1", key="evil")
    second = await pool.call("bad2", key="evil")
    assert first == second == Fault("time", "took longer than 0.2 s")
    assert log == ["bad1", "bad1", "bad2"]

    await pool.call("good1", key="evil")
    assert not pool._faults["evil"]


async def test_host_with_bad_pages_does_not_delay_the_quick_ones(pool):
    """Its pages wait for the one slow child; those of others never do."""
    pool, log = pool
    await pool.call("bad0", key="evil")
    bad = [asyncio.create_task(pool.call(f"bad{n}", key="evil")) for n in range(1, 9)]
    await settled()
    before = len(log)
    for number in range(5):
        await pool.call(f"good{number}", key="fine")

    assert log[before:] == [f"good{number}" for number in range(5)]
    for task in bad:
        task.cancel()
    await asyncio.gather(*bad, return_exceptions=True)


async def test_call_that_finds_no_child_in_time_is_a_fault(pool):
    """The wait is bounded, so that a visit ends before its lease and its time are over."""
    pool, _ = pool
    pool._max_wait = 0.0
    pool._faults.add("evil")
    running = asyncio.create_task(pool._call(pool._slow_slots, "other", b"xxxxxbad", 60.0))
    pool._max_wait = None
    await settled()
    pool._max_wait = 0.0

    told = await pool.call("bad", key="evil")
    assert told.kind == "busy"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
