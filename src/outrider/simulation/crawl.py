"""A whole polite crawl through the public Frontier, in virtual time: what `outrider demo` shows.

One executor with many slots lives by a list of visits in flight: time jumps from one end of a visit
to the next, or to the instant a claim said. Every host keeps its own record of who came too soon.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

import msgspec

from outrider.clock import to_ms
from outrider.core.outcome import Done, Outcome
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease, Link
from outrider.frontier import Frontier
from outrider.simulation.record import Request, least_delay, patience
from outrider.simulation.web import Found, Response, Shape, Temper, Web, split
from outrider.testing.clock import FakeClock

# Two moments shown are so many virtual milliseconds apart, or so many visits, whatever comes first.
LOOK_EVERY: Final = 30_000
LOOK_AFTER: Final = 200
MINUTE: Final = 60_000
SETTINGS: Final[Mapping[str, Any]] = {
    "budget": {"total_budget": 400},
    "queue": {"max_depth": 8},
}
SHARES: Final[Mapping[Temper, float]] = {
    Temper.STEADY: 55,
    Temper.SLOW: 8,
    Temper.FLAKY: 10,
    Temper.BUSY: 8,
    Temper.GONE: 4,
    Temper.DOZING: 4,
    Temper.GUARDED: 2,
    Temper.MOVED: 3,
    Temper.ENDLESS: 3,
    Temper.STRICT: 3,
}


def demo_web(seed: int, *, hosts: int, pages: int) -> Web:
    """A web that is mostly well behaved, as most of the real one is."""
    return Web(seed, Shape(hosts=hosts, pages=pages, shares=SHARES, trouble=0.05))


class Moment(msgspec.Struct, frozen=True):
    """How the crawl stands at an instant."""

    elapsed: float  # virtual seconds
    known: int
    queued: int  # pending, in queues that are not retired
    in_flight: int
    done: int
    dead: int
    failed: int  # visits that went wrong, so far
    held: int
    visits: int
    rate: float  # visits a virtual second, over the last minute
    hosts: Mapping[str, int]  # by state
    pace: Sequence[int]  # visits in each virtual minute so far
    latest: Sequence[tuple[str, str]]  # url, outcome


class HostReport(msgspec.Struct):
    """One host, as it remembers its visitor."""

    name: str
    temper: str
    visits: int = 0
    done: int = 0
    seconds: float = 0.0  # in all
    last_at: float = 0.0  # when its last visit ended, virtual seconds
    reason: str | None = None  # why its queue is retired

    @property
    def mean(self) -> float:
        """Seconds a visit."""
        return self.seconds / self.visits if self.visits else 0.0


class CrawlReport(msgspec.Struct, frozen=True):
    """What the crawl came to."""

    status: str
    moment: Moment
    outcomes: Mapping[str, int]
    too_soon: int  # visits that came before their host's delay was over
    at_once: int  # most visits one host ever had at one time
    hosts: Sequence[HostReport]
    missed: Mapping[str, int]  # why pages were not crawled → how many


See: TypeAlias = Callable[[Moment], None]


class Doorkeeper:
    """The hosts' own record: when each may be visited again, and how many are inside."""

    def __init__(self) -> None:
        self._not_before: dict[str, int] = {}
        self._inside: Counter[str] = Counter()
        self.too_soon = 0
        self.at_once = 0

    def enters(self, request: Request) -> None:
        """A request arrives."""
        key = request.lease.key
        self.too_soon += request.started < self._not_before.get(key, 0)
        self._inside[key] += 1
        self.at_once = max(self.at_once, self._inside[key])

    def leaves(self, request: Request, outcome: Outcome) -> None:
        """A request is over; from now on its host counts."""
        key = request.lease.key
        self._inside[key] -= 1
        wait = to_ms(max(least_delay(request), patience(outcome)))
        self._not_before[key] = max(self._not_before.get(key, 0), request.ended + wait)


class ImaginedCrawl:
    """A frontier, a web, and an executor that visits one with the leases of the other."""

    def __init__(
        self, web: Web, *, slots: int = 64, settings: Mapping[str, Any] = SETTINGS
    ) -> None:
        self.web = web
        self._slots = slots
        self._settings = settings
        self._clock = FakeClock()
        self._start = self._clock.now_ms()
        self._door = Doorkeeper()
        self._visits: list[tuple[int, int, Request, Response]] = []
        self._began = 0
        self._looked_at = self._looked_after = 0
        self._ends: deque[int] = deque()
        self._pace: list[int] = []
        self._latest: deque[tuple[str, str]] = deque(maxlen=6)
        self._failed = 0
        self._hosts = {h.name: HostReport(h.name, h.temper.value) for h in web.hosts}

    async def run(self, see: See) -> CrawlReport:
        """Crawl to the end; `see` is called with a moment now and then."""
        frontier = Frontier.open(
            "memory://",
            settings=self._settings,
            crawl="demo",
            clock=self._clock,
            worker="demo",
            dice=random.Random(self.web.seed).random,
        )
        async with frontier:
            await frontier.add(Link(url, type=kind) for url, kind in self.web.seeds())
            while await self._step(frontier):
                await self._look(frontier, see)
            see(await self._moment(frontier))
            return await self._report(frontier)

    # ---- the executor

    async def _step(self, frontier: Frontier) -> bool:
        """Fill the slots, go to the next instant at which something happens, report what ended."""
        free = self._slots - len(self._visits)
        claim = await frontier.claim(free)
        for lease in claim:
            self._begin(lease)
        instants = [self._visits[0][0]] if self._visits else []
        if claim.wake_in is not None and free > len(claim):
            instants.append(self._clock.now_ms() + to_ms(claim.wake_in))
        if not instants:
            return claim.status is CrawlStatus.RUNNING
        self._clock.advance(max(0, min(instants) - self._clock.now_ms()) / 1000)
        await self._end_visits(frontier)
        return True

    def _begin(self, lease: Lease) -> None:
        now = self._clock.now_ms()
        request = Request(lease, now)
        response = self.web.visit(lease.url, self._elapsed())
        self._door.enters(request)
        self._began += 1
        heappush(self._visits, (now + to_ms(response.seconds), self._began, request, response))

    async def _end_visits(self, frontier: Frontier) -> None:
        ended = []
        while self._visits and self._visits[0][0] <= self._clock.now_ms():
            _, _, request, response = heappop(self._visits)
            self._end(request, response)
            ended.append((request.lease, response.outcome, _links(request.lease, response.found)))
        if ended:
            await frontier.finish_many(ended)

    def _end(self, request: Request, response: Response) -> None:
        now = request.ended = self._clock.now_ms()
        request.outcome = response.outcome
        self._door.leaves(request, response.outcome)
        self._count(request.lease, response)
        minute = (now - self._start) // MINUTE
        self._pace += [0] * (minute + 1 - len(self._pace))
        self._pace[minute] += 1
        self._ends.append(now)

    def _count(self, lease: Lease, response: Response) -> None:
        host = self._hosts[split(lease.url)[0]]
        is_done = isinstance(response.outcome, Done)
        host.visits += 1
        host.done += is_done
        host.seconds += response.seconds
        host.last_at = self._elapsed()
        self._failed += not is_done
        self._latest.append((lease.url, type(response.outcome).__name__.lower()))

    # ---- looking

    def _elapsed(self) -> float:
        return (self._clock.now_ms() - self._start) / 1000

    async def _look(self, frontier: Frontier, see: See) -> None:
        now = self._clock.now_ms()
        if now - self._looked_at >= LOOK_EVERY or self._began - self._looked_after >= LOOK_AFTER:
            self._looked_at, self._looked_after = now, self._began
            see(await self._moment(frontier))

    async def _moment(self, frontier: Frontier) -> Moment:
        stats = await frontier.stats()
        return Moment(
            elapsed=self._elapsed(),
            known=stats.known,
            queued=stats.pending - stats.held,
            in_flight=stats.leased,
            done=stats.done,
            dead=stats.dead,
            failed=self._failed,
            held=stats.held,
            visits=stats.visits,
            rate=self._rate(),
            hosts=stats.queues,
            pace=tuple(self._pace),
            latest=tuple(self._latest),
        )

    def _rate(self) -> float:
        while self._ends and self._ends[0] < self._clock.now_ms() - MINUTE:
            self._ends.popleft()
        return len(self._ends) / min(60.0, max(1.0, self._elapsed()))

    async def _report(self, frontier: Frontier) -> CrawlReport:
        stats = await frontier.stats()
        return CrawlReport(
            status=stats.status.value,
            moment=await self._moment(frontier),
            outcomes=stats.outcomes,
            too_soon=self._door.too_soon,
            at_once=self._door.at_once,
            hosts=tuple(self._hosts.values()),
            missed=await self._missed(frontier),
        )

    async def _missed(self, frontier: Frontier) -> dict[str, int]:
        """Why pages were not crawled: their host was retired, they died, or were not admitted."""
        missed: Counter[str] = Counter()
        async for queue in frontier.queues(state="retired"):
            missed[f"held: its host is retired ({queue.reason})"] += queue.pending
        for reason, count in (await frontier.dead_by_reason()).items():
            missed[f"dead: {reason}"] += count
        for reason, count in (await frontier.stats()).refused.items():
            if reason != "duplicate":
                missed[f"refused: {reason}"] += count
        return {reason: count for reason, count in missed.most_common() if count}


def _links(lease: Lease, found: Sequence[Found]) -> list[Link]:
    return [
        Link(url, type=kind, depth=lease.depth + 1, origin="link-discovery") for url, kind in found
    ]
