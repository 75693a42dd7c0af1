"""The waiting room: the claims of this process that wait for work of one crawl of one store (C6).

One claim of a line asks the store, and the others wait for what it finds: an empty answer holds for
all of them. They ask in the order in which they came: when the store notifies, when the earliest
wake time has come, and once a second if notifications may be lost. Claims that are restricted in
different ways are in different lines, because an empty answer to one says nothing of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from heapq import heapify, heappop, heappush
from itertools import islice
from math import ceil, inf
from typing import Final, NamedTuple, final
from weakref import WeakKeyDictionary

from outrider.clock import Clock, is_virtual
from outrider.core.states import CrawlStatus
from outrider.errors import Closed, StoreError
from outrider.frontier.reports import Claim
from outrider.store.protocol import FullStore

POLL_INTERVAL: Final = 1.0  # seconds between two claims of a line if notifications may be lost
MAX_PARALLEL: Final = 32  # claims of one line at a time, while they find as much as they ask for


class WaitingClaim(NamedTuple):
    """A claim of a frontier that may wait."""

    owner: object
    ask: Callable[[], Awaitable[Claim]]  # claims once
    is_over: Callable[[Claim], bool]  # whether an empty answer says that waiting brings nothing
    limit: int
    wait: float  # seconds


@final
class Place:
    """The place of one waiting claim in its line."""

    __slots__ = ("answers_before", "claim", "is_gone", "line", "turn", "until")

    def __init__(self, line: Line, claim: WaitingClaim, until: float) -> None:
        self.line, self.claim = line, claim
        self.until = until  # milliseconds of the room's clock
        self.answers_before = line.answers
        self.is_gone = False
        # While it waits; the result is None (ask the store) or the answer.
        self.turn: asyncio.Future[Claim | None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it has neither its turn nor an answer."""
        return self.turn is not None and not self.turn.done()

    def answer(self, answer: Claim | Closed | None) -> None:
        """End its waiting; None: it is its turn to ask."""
        if self.turn is None or self.turn.done():
            return
        if isinstance(answer, Closed):
            self.turn.set_exception(answer)
        else:
            self.turn.set_result(answer)


@final
class Line:
    """Waiting claims that are restricted in the same way, in the order in which they came."""

    __slots__ = (
        "answers",
        "asked_at",
        "asking",
        "expired",
        "found_in_row",
        "is_due",
        "places",
        "polls",
        "rings",
        "status",
        "wake_at",
    )

    def __init__(self, *, polls: bool) -> None:
        self.polls = polls
        self.places: dict[Place, None] = {}
        self.asking: set[Place] = set()  # those whose turn it is
        self.expired: list[Place] = []  # their time is over, and no claim was made since they came
        self.rings = 0
        self.is_due = True  # whether a claim may find more than the last one left
        self.found_in_row = 0  # claims in a row that found as much as they asked for
        # of the last claim that left nothing:
        self.answers = 0  # how many there were
        self.asked_at = 0
        self.wake_at = inf  # when time alone makes a claim find more
        self.status = CrawlStatus.RUNNING

    def ring(self) -> None:
        """Let its claims ask again."""
        self.rings += 1
        self.is_due = True

    def next_at(self) -> float:
        """Return when it becomes due by itself."""
        if self.asking or self.is_due:
            return inf
        return min(self.wake_at, self.asked_at + POLL_INTERVAL * 1000 if self.polls else inf)

    def give_turns(self) -> None:
        """Let the first ones ask: one at a time, and more while the store has plenty."""
        free = min(max(1, self.found_in_row), MAX_PARALLEL) - len(self.asking)
        if self.is_due and free > 0:
            waiting = (place for place in self.places if place.is_waiting)
            for place in list(islice(waiting, free)):
                self.asking.add(place)
                place.answer(None)

    def expire(self, place: Place, now: int) -> None:
        """Answer a claim whose time is over, unless no claim was made since it came."""
        if self.answers > place.answers_before:
            place.answer(self.last_answer(now))
        else:
            self.expired.append(place)
            self.is_due = True

    def found_all(self) -> None:
        """Record that a claim found as much as it asked for: there may be more."""
        self.found_in_row += 1
        self.is_due = True

    def left_nothing(self, claim: Claim, now: int, *, is_rung: bool) -> None:
        """Record that there is nothing more, unless there was a notification meanwhile."""
        self.answers += 1
        self.found_in_row, self.is_due = 0, is_rung
        self.asked_at, self.status = now, claim.status
        self.wake_at = inf if claim.wake_in is None else now + ceil(claim.wake_in * 1000 - 1e-6)
        expired, self.expired = self.expired, []
        for place in expired:
            place.answer(self.last_answer(now))

    def failed(self, now: int, *, is_rung: bool) -> None:
        """Record that the store failed: the next claim tries again in a while."""
        self.found_in_row, self.asked_at, self.wake_at = 0, now, now + POLL_INTERVAL * 1000
        self.is_due = is_rung or any(not place.is_gone for place in self.expired)

    def last_answer(self, now: int) -> Claim:
        """Return the last empty answer, as it is now."""
        wake_in = None if self.wake_at == inf else max(0.0, self.wake_at - now) / 1000
        return Claim([], wake_in, self.status)


@final
class WaitingRoom:
    """The lines of one crawl; open while it has members, which are frontiers."""

    def __init__(self, store: FullStore, crawl: str, clock: Clock) -> None:
        self._clock = clock
        self._polls = store.notifies != "always"
        self._lines: dict[Hashable, Line] = {}
        self._members: set[object] = set()
        self._ends: list[tuple[float, int, Place]] = []  # a heap of when claims stop waiting
        self._arrivals = 0
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = inf
        self._unsubscribe = store.subscribe(crawl, self.ring)

    # ---- members

    def join(self, member: object) -> None:
        """Keep the room open for a frontier."""
        self._members.add(member)

    def leave(self, member: object) -> bool:
        """End the waiting of a frontier's claims; return whether the room has closed."""
        self._members.discard(member)
        for place in [place for line in self._lines.values() for place in line.places]:
            if place.claim.owner is member:
                place.answer(Closed("the frontier was closed while this claim waited"))
        if self._members:
            return False
        self._unsubscribe()
        self._stop_alarm()
        return True

    # ---- claims

    async def claim(
        self, restriction: Hashable, claim: WaitingClaim, *, polls: bool = False
    ) -> Claim:
        """Claim in turn, until something is found, the crawl has ended, or the wait is over.

        `restriction`: what the claim is limited to, besides its number of tasks. `polls`: the store
        may not notify of all that such a claim can find.
        """
        line = self._lines.get(restriction)
        if line is None:
            line = self._lines[restriction] = Line(polls=polls or self._polls)
        place = Place(line, claim, self._clock.now_ms() + claim.wait * 1000)
        line.places[place] = None
        try:
            while True:
                answer = await self._wait_for_turn(line, place)
                if answer is None:
                    answer = await self._ask(line, place)
                if answer is not None:
                    return answer
        finally:
            self._remove(restriction, line, place)

    async def _wait_for_turn(self, line: Line, place: Place) -> Claim | None:
        """Return None once it is this claim's turn to ask, or an answer without asking."""
        place.turn = turn = asyncio.get_running_loop().create_future()
        line.give_turns()
        if not turn.done():
            self._keep_end(place)
            self._set_alarm()
        answer: Claim | None = await turn
        return answer

    async def _ask(self, line: Line, place: Place) -> Claim | None:
        """Ask the store; return the answer, or None if the claim waits on."""
        if not line.is_due:  # the answer of another one came first, and left nothing
            line.asking.discard(place)
            return None
        rings = line.rings
        try:
            claim = await place.claim.ask()
        except StoreError:
            line.failed(self._clock.now_ms(), is_rung=line.rings != rings)
            raise
        except BaseException:  # unknown what it left
            line.found_in_row, line.is_due = 0, True
            raise
        if len(claim) >= place.claim.limit:
            line.found_all()
            return claim
        now, is_rung = self._clock.now_ms(), line.rings != rings
        line.left_nothing(claim, now, is_rung=is_rung)
        if not claim and not is_rung:
            self._end_all(claim)
        if claim or place.claim.is_over(claim) or now >= place.until:
            return claim
        line.asking.discard(place)
        return None

    def _end_all(self, claim: Claim) -> None:
        """Answer all claims that wait, if this answer says that the crawl has ended."""
        if claim.status is CrawlStatus.RUNNING:
            return
        for line in self._lines.values():
            for place in line.places:
                if place.claim.is_over(claim):
                    place.answer(Claim([], None, claim.status))

    def _remove(self, restriction: Hashable, line: Line, place: Place) -> None:
        """Take a claim out of its line, and pass its turn on if it has one."""
        place.is_gone = True
        del line.places[place]
        line.asking.discard(place)
        if line.places:
            line.give_turns()
            self._set_alarm()
            return
        del self._lines[restriction]
        if not self._lines:
            self._stop_alarm()
            self._ends.clear()

    # ---- notifications and time

    def ring(self) -> None:
        """Let the first claim of every line ask: the store may have something for it."""
        for line in self._lines.values():
            line.ring()
            line.give_turns()

    def _keep_end(self, place: Place) -> None:
        if place.until < inf:
            self._arrivals += 1
            heappush(self._ends, (place.until, self._arrivals, place))
            if len(self._ends) > 2 * sum(len(line.places) for line in self._lines.values()) + 64:
                self._ends = [end for end in self._ends if not end[2].is_gone]
                heapify(self._ends)

    def _set_alarm(self) -> None:
        """Sleep until the first line is due by itself, or the first wait is over."""
        while self._ends and self._ends[0][2].is_gone:
            heappop(self._ends)
        at = min((line.next_at() for line in self._lines.values()), default=inf)
        if self._ends:
            at = min(at, self._ends[0][0])
        if at < self._alarm_at:
            self._stop_alarm()
            self._alarm_at = at
            self._alarm = asyncio.get_running_loop().create_task(self._sleep_until(at))

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, inf

    async def _sleep_until(self, at: float) -> None:
        await self._clock.sleep(max(0.0, at - self._clock.now_ms()) / 1000)
        self._alarm, self._alarm_at = None, inf
        now = self._clock.now_ms()
        for line in self._lines.values():
            line.is_due = line.is_due or now >= line.next_at()
        while self._ends and self._ends[0][0] <= now:
            place = heappop(self._ends)[2]
            if place.is_waiting:
                place.line.expire(place, now)
        for line in self._lines.values():
            line.give_turns()
        self._set_alarm()


class WaitingRooms:
    """The open waiting rooms of this process: one for each store, crawl and event loop.

    Frontiers that share a store share its rooms. Those under a virtual clock share only with those
    under the same one.
    """

    def __init__(self) -> None:
        self._by_store: WeakKeyDictionary[FullStore, dict[Hashable, WaitingRoom]] = (
            WeakKeyDictionary()
        )

    def join(self, store: FullStore, crawl: str, clock: Clock, member: object) -> WaitingRoom:
        """Return the room of a crawl, with one more member."""
        rooms = self._by_store.setdefault(store, {})
        name = self._name(crawl, clock)
        if name not in rooms:
            rooms[name] = WaitingRoom(store, crawl, clock)
        rooms[name].join(member)
        return rooms[name]

    def leave(self, store: FullStore, room: WaitingRoom, member: object) -> None:
        """End a membership."""
        if room.leave(member):
            rooms = self._by_store.get(store, {})
            for name in [name for name, one in rooms.items() if one is room]:
                del rooms[name]

    def _name(self, crawl: str, clock: Clock) -> Hashable:
        return crawl, asyncio.get_running_loop(), id(clock) if is_virtual(clock) else None


ROOMS: Final = WaitingRooms()
