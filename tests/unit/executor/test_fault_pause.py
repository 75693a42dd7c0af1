"""Faults of this machine: visits are released unpunished, claims wait, nothing is lost."""

import asyncio
import errno
from functools import partial
from math import inf

import pytest

from outrider import Done, Frontier, LocalFault, OutputFull, wiring
from outrider.executor import fault_pause
from outrider.executor.executor import Ending, Executor
from outrider.executor.fault_pause import OUTPUT, FaultPause
from outrider.executor.handlers import Handlers
from outrider.executor.run_counts import RunCounts
from outrider.executor.running_visits import MAX_HANDLER_FAULTS

FAST = {"politeness": {"delay": 0.0, "max_in_flight": 100}, "retry": {"base": 0.0, "jitter": 0.0}}
POLLS = {"poll_min": 0.0, "poll_check": 0.001}
URLS = [f"https://h{n}.example/" for n in range(20)]
FILES = LocalFault("too many open files; raise the limit", "local: emfile")
NETWORK = LocalFault("no network; connect it", "local: network")


class TestPause:
    """The pause alone, at instants that are said."""

    def test_waits_grow_to_half_a_minute_and_begin_small_again(self):
        """Each try that fails doubles them; one that goes well resets them."""
        pause, now, waits = FaultPause(print, dice=lambda: 1.0), 0.0, []
        for _ in range(9):
            pause.met(NETWORK, 1, now)
            waits.append(pause.wait(now))
            now += pause.wait(now)
        pause.visited(now + 1, 64, now + 2)
        pause.met(NETWORK, 1, now + 3)

        assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
        assert pause.wait(now + 3) == 0.5

    def test_faults_of_visits_that_were_under_way_count_as_one(self):
        """Sixty-four visits that fail together wait as long as one."""
        pause = FaultPause(print, dice=lambda: 1.0)
        for _ in range(64):
            pause.met(NETWORK, 64, 0.0)

        assert (pause.wait(0.0), pause.counts) == (0.5, {"local: network": 64})

    def test_nothing_is_claimed_while_it_waits_then_for_one_then_for_all(self):
        """One visit tries whether it is over."""
        pause = FaultPause(print, dice=lambda: 1.0)
        rooms = [pause.claimable(3, 9, 0.0)]
        pause.met(NETWORK, 3, 0.0)
        rooms += [
            pause.claimable(0, 9, 0.1),
            pause.claimable(0, 9, 0.6),
            pause.claimable(1, 9, 0.6),
        ]
        pause.visited(0.7, 12, 0.8)
        rooms.append(pause.claimable(3, 9, 0.8))

        assert rooms == [9, 0, 1, 0, 9]

    def test_visits_that_began_before_it_do_not_end_it(self):
        """They may have had what others lack."""
        pause = FaultPause(print)
        pause.met(FILES, 3, 5.0)
        pause.visited(4.0, 64, 6.0)
        before = pause.is_on, pause.seconds(5.75)
        pause.visited(5.5, 64, 6.0)

        assert (before, pause.is_on, pause.seconds(9.0)) == ((True, 0.75), False, 1.0)

    def test_after_a_shortage_fewer_visits_run_and_slowly_more_again(self):
        """Half of those that met it, then one more a round, until all slots are used."""
        pause = FaultPause(print, dice=lambda: 0.0)
        pause.met(FILES, 20, 0.0)
        pause.visited(1.0, 13, 2.0)
        rooms = [pause.claimable(0, 64, 2.0)]
        for _ in range(10):
            pause.visited(2.0, 13, 3.0)
        rooms.append(pause.claimable(0, 64, 3.0))
        for _ in range(30):
            pause.visited(3.0, 13, 4.0)
        rooms.append(pause.claimable(0, 64, 4.0))

        assert rooms == [10, 11, 64]

    def test_one_visit_at_a_time_is_always_tried(self):
        """However short things are."""
        pause = FaultPause(print, dice=lambda: 0.0)
        for at in range(9):
            pause.met(FILES, 1, 100.0 * at)

        assert pause.claimable(0, 64, 1e6) == 1

    def test_beginning_and_end_are_reported_once_a_minute(self):
        """A shortage that comes and goes does not fill a log."""
        said = []
        pause = FaultPause(said.append)
        for at in (0.0, 10.0, 20.0, 70.0):
            pause.met(FILES, 1, at)
            pause.visited(at + 1, 64, at + 2)

        assert len(said) == 4
        assert said[0].startswith("too many open files; raise the limit. No page is charged")
        assert said[1] == "visits resume after 2.0 s"

    def test_what_is_kept_open_is_closed_in_a_shortage(self):
        """Of descriptors, not of network."""
        closed, pause = [], FaultPause(print)
        pause.relieve = lambda: closed.append(1)
        pause.met(NETWORK, 1, 0.0)
        pause.met(FILES, 1, 0.0)

        assert closed == [1]

    def test_only_a_write_ends_a_pause_for_output(self):
        """And only a visit ends others."""
        pause = FaultPause(print)
        pause.met(LocalFault("full", OUTPUT), 1, 0.0)
        pause.visited(1.0, 64, 2.0)
        pause.met(NETWORK, 1, 3.0)
        pause.written(4.0)

        assert pause.message == str(NETWORK)


@pytest.fixture
def quick(monkeypatch):
    """Waits of a moment."""
    monkeypatch.setattr(fault_pause, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(fault_pause, "MAX_WAIT", 0.004)


class Machine:
    """A handler on a machine that lacks something for a number of visits."""

    def __init__(self, fault, times):
        self.fault, self.times = fault, times
        self.running = self.most = self.faults = 0
        self.attempts, self.failures = set(), set()

    async def __call__(self, visit):
        """One visit."""
        self.attempts.add(visit.lease.attempt)
        self.failures.add(visit.lease.manners.unreachable_in_row)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if self.faults < self.times:
            self.faults += 1
            raise self.fault
        return Done(200)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("workbench", [False, True])
@pytest.mark.parametrize("fault", [FILES, NETWORK, OSError(errno.EMFILE, "Too many open files")])
async def test_visits_that_met_a_local_fault_are_repeated_unpunished(fault, workbench):
    """H5, D4: no attempt, no failure of the host, no retry; all pages are done in the end."""
    said, tally, machine = [], RunCounts(), Machine(fault, 50)
    settings = FAST | {"executor": POLLS | {"workbench": workbench}, "retry": {"max_retries": 0}}
    how = wiring.Working(tally=tally, pause=FaultPause(said.append))
    async with wiring.opened(settings=settings, handlers={"*": machine}, how=how) as crawling:
        await crawling.frontier.add(URLS)
        ending = await crawling.run()
        stats = await crawling.frontier.stats()
        counts = crawling.executor.pause.counts

    assert ending == Ending("finished")
    assert (stats.done, stats.dead, stats.visits, tally.outcomes) == (20, 0, 20, {"done": 20})
    assert (machine.faults, counts.total()) == (50, 50)
    assert (machine.attempts, machine.failures) == ({1}, {0})
    assert len(said) == 2
    assert "No page is charged" in said[0]


@pytest.mark.usefixtures("quick")
async def test_claims_wait_while_a_fault_lasts():
    """No hot loop: after the first visits, one at a time tries, ever more rarely."""
    pause, machine = FaultPause(print, dice=lambda: 1.0), Machine(NETWORK, 20 + 9)
    claims, waits = 0, []
    async with Frontier.open("memory://", settings=FAST) as frontier:
        await frontier.add(URLS)
        claim, met = frontier.claim, pause.met

        async def counted(limit):
            nonlocal claims
            claims += 1
            return await claim(limit)

        def noted(fault, busy, now):
            met(fault, busy, now)
            waits.append(pause.wait(now))

        frontier.claim, pause.met = counted, noted
        await Executor(frontier, Handlers(machine), pause=pause).run()

    assert waits[-3:] == pytest.approx([0.004] * 3)
    assert claims <= 29 + 20 + 5


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("times", [1, 2])
async def test_stop_ends_a_crawl_whose_fault_never_ends(times):
    """J4: at the first signal as at the second; nothing is held, nothing is charged."""
    pause, machine = FaultPause(print), Machine(NETWORK, inf)
    async with Frontier.open("memory://", settings=FAST) as frontier:
        await frontier.add(URLS)
        executor = Executor(frontier, Handlers(machine), pause=pause)
        met = pause.met

        def stopping(fault, busy, now):
            met(fault, busy, now)
            if machine.faults == 30:
                for _ in range(times):
                    executor.stop()

        pause.met = stopping
        ending = await asyncio.wait_for(executor.run(), 60)
        stats = await frontier.stats()

    assert ending.how == "stopped"
    assert (stats.pending, stats.leased, stats.dead) == (20, 0, 0)
    assert machine.attempts == {1}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "x"), OSError(errno.ENOSPC, "x"), MemoryError("x")]
)
async def test_page_for_which_a_handler_always_lacks_something_fails_in_the_end(error):
    """Else it would never end; other pages are not held up."""
    tally, calls = RunCounts(), 0

    async def handle(visit):
        nonlocal calls
        if visit.url != URLS[3]:
            return Done(200)
        calls += 1
        raise error

    async with Frontier.open(
        "memory://", settings=FAST | {"retry": {"max_retries": 0}}
    ) as frontier:
        await frontier.add(URLS)
        await Executor(frontier, Handlers(handle), observer=tally).run()
        stats = await frontier.stats()

    assert (stats.done, stats.dead, calls) == (19, 1, MAX_HANDLER_FAULTS)
    assert list(tally.reasons) == [("failed", f"handler: {type(error).__name__}: {error}")]


async def page(_):
    """A page that was fetched."""
    return Done(200)


ROOM = partial(FaultPause, print, waits_for_space=True)


class Disk:
    """A sink without room for a while."""

    def __init__(self, refusals, error=OutputFull):
        self.refusals, self.error = refusals, error
        self.asked, self.pages = [], []
        self.unsettled = 0

    def write(self, visits):
        """Before they are finished."""
        self.asked.append(len(visits))
        if len(self.asked) <= self.refusals:
            raise self.error("no room; make some")
        self.pages += [visit.url for visit in visits]

    def settle(self, answers):
        """After."""
        assert all(answers)
        if self.unsettled:
            self.unsettled -= 1
            raise self.error("no room; make some")

    def close(self):
        """No more."""


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("workbench", [False, True])
async def test_batch_without_room_waits_and_no_page_is_visited_twice(workbench):
    """K4: it is written as soon as there is room, and finished once."""
    said, visits, disk = [], [], Disk(40)

    async def handle(visit):
        visits.append(visit.url)
        return Done(200)

    settings = FAST | {"executor": POLLS | {"workbench": workbench}}
    how = wiring.Working(pause=FaultPause(said.append, waits_for_space=True))
    async with wiring.opened(settings=settings, handlers={"*": handle}, sink=disk, how=how) as one:
        await one.frontier.add(URLS)
        ending = await one.run()
        stats = await one.frontier.stats()

    assert ending == Ending("finished")
    assert sorted(disk.pages) == sorted(visits) == sorted(URLS)
    assert (stats.done, stats.visits) == (20, 20)
    assert said[0].startswith("no room; make some")


@pytest.mark.usefixtures("quick")
async def test_leases_of_a_batch_without_room_are_renewed():
    """H2: the batch is held as long as it waits."""
    disk, extended = Disk(inf), asyncio.Event()
    async with Frontier.open("memory://", settings=FAST) as frontier:
        await frontier.add(URLS[:3])
        extend = frontier.extend

        async def noted(leases, **how):
            kept = await extend(leases, **how)
            if {lease.url for lease in kept} == set(URLS[:3]):
                extended.set()
                disk.refusals = 0
            return kept

        frontier.extend = noted
        await asyncio.wait_for(
            Executor(frontier, Handlers(page), sink=disk, pause=ROOM()).run(), 60
        )

    assert extended.is_set()
    assert sorted(disk.pages) == URLS[:3]


@pytest.mark.usefixtures("quick")
async def test_stop_without_room_raises_and_gives_all_back():
    """The error says what to do, and the next run visits these pages again."""
    disk = Disk(inf)
    async with Frontier.open("memory://", settings=FAST | {"executor": {"drain": 0.0}}) as frontier:
        await frontier.add(URLS)
        executor, write = Executor(frontier, Handlers(page), sink=disk, pause=ROOM()), disk.write

        def stopping(visits):
            if len(disk.asked) == 5:
                executor.stop()
            write(visits)

        disk.write = stopping
        with pytest.raises(OutputFull, match="make some"):
            await asyncio.wait_for(executor.run(), 60)
        stats = await frontier.stats()

    assert (stats.pending, stats.leased) == (20, 0)


async def test_output_without_room_ends_a_run_that_does_not_wait_for_it():
    """A program is told, and decides; nothing is held or charged."""
    async with Frontier.open("memory://", settings=FAST) as frontier:
        await frontier.add(URLS)
        with pytest.raises(OutputFull, match="make some"):
            await Executor(frontier, Handlers(page), sink=Disk(inf)).run()
        stats = await frontier.stats()

    assert (stats.pending, stats.leased, stats.done) == (20, 0, 0)


@pytest.mark.usefixtures("quick")
async def test_output_that_cannot_be_settled_for_want_of_room_is_settled_later():
    """K4: what was finished is not visited again."""
    disk, tally = Disk(0), RunCounts()
    disk.unsettled = 5
    async with Frontier.open("memory://", settings=FAST) as frontier:
        await frontier.add(URLS)
        executor = Executor(frontier, Handlers(page), sink=disk, observer=tally, pause=ROOM())
        await asyncio.wait_for(executor.run(), 60)

    assert (disk.unsettled, tally.visits, executor.pause.counts) == (0, 20, {OUTPUT: 5})
