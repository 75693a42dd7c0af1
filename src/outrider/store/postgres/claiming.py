"""What a claim looks at: overdue leases, alarms that are over, the first of the ready and parked.

Only queues nobody else has locked, and no more of them than the claim may lend: each pick takes one
queue out of its line, so the first `limit` of a lane are all it can come to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappush
from typing import Final, NamedTuple

import msgspec

from outrider.core.order import DUE_BITS, NUMBER_BITS, NUMBER_MASK, PRECEDENCE_LIMIT
from outrider.core.pick import Streak
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease
from outrider.store.heads.claiming import EXPIRE_STEP, WAKE_STEP
from outrider.store.heads.records import Queue, Record
from outrider.store.heads.standing import parked_key
from outrider.store.postgres import sql
from outrider.store.postgres.arrays import number_array
from outrider.store.postgres.lazy_list import END, Shelf
from outrider.store.postgres.pipeline import Result
from outrider.store.postgres.routine import Begun, Looked, Routine
from outrider.store.protocol import MAX_FINGERPRINTS, ClaimRequest, ClaimResult

LOCKED_FOR: Final = 10  # milliseconds until a queue that somebody has locked is looked at again


class Outlook(NamedTuple):
    """What is there to wait for."""

    is_ready: bool
    is_parked: bool
    alarm: int | None
    deadline: int | None


class Claiming(Routine):
    """How tasks go out."""

    clock: int | None = None  # milliseconds; None: the server's
    _limit = _shut_for = 0
    _looked: Looked | None = None
    _parked_edge = 0
    _parked_from: tuple[int, int] = (-PRECEDENCE_LIMIT - 1, 0)

    def claim(self, request: ClaimRequest, now: int) -> ClaimResult:
        """See `heads.claiming`."""
        self._limit = max(0, request.limit)
        self._shut_for = 0 if request.fingerprints else LOCKED_FOR
        if self.status is not CrawlStatus.CANCELLED:
            self._prepare(request, now)
        return super().claim(request, now)

    def _prepare(self, request: ClaimRequest, now: int) -> None:
        overdue = self.wire.send(sql.OVERDUE_LEASES, (self.id, self.clock, EXPIRE_STEP))
        looked = self.look(self._limit, now) if self._may_be_routine(request) else None
        late = [task & NUMBER_MASK for (task,) in overdue.fetchall()]
        self.load_free(late)
        self._looked = None if late else looked

    def _may_be_routine(self, request: ClaimRequest) -> bool:
        is_whole = self.is_held or self.is_limited or self.status is not CrawlStatus.RUNNING
        return not (is_whole or request.fingerprints or request.lend)

    def _lend(self, request: ClaimRequest, now: int) -> tuple[list[Lease], Streak]:
        if request.fingerprints:
            self._prepare_names(request)
            return super()._lend(request, now)
        begun = Begun([], request.streak, False)
        if self._looked is not None:
            begun = self.begin(self._looked, request, now)
        if not begun.is_all:
            return self._lend_rest(request, begun, now)
        if not begun.leases:
            self._close_run(now)
        return begun.leases, begun.streak

    def _lend_rest(
        self, request: ClaimRequest, begun: Begun, now: int
    ) -> tuple[list[Lease], Streak]:
        """Whom the judge is to look at."""
        self._limit -= len(begun.leases)
        self._take_lines(self._ask_for_lines())
        rest = msgspec.structs.replace(request, limit=self._limit, streak=begun.streak)
        leases, streak = super()._lend(rest, now)
        return begun.leases + leases, streak

    def _ask_for_lines(self) -> list[Result]:
        send = self.wire.send
        return [
            send(sql.WAKING_QUEUES, (self.id, self.clock, WAKE_STEP)),
            send(sql.READY_QUEUES, (self.id, 0, self._limit)),
            send(sql.READY_QUEUES, (self.id, 1, self._limit)),
            send(sql.HAS_INACTIVE, (self.id,)),
        ]

    def _take_lines(self, answers: list[Result]) -> None:
        woken, first, second, parked = answers
        for row in woken.fetchall():
            queue = self.seat(row)
            heappush(self.alarms, queue.alarm << NUMBER_BITS | queue.number)
        for row in (*first.fetchall(), *second.fetchall()):
            self.seat(row)
        ((is_parked,),) = parked.fetchall()
        self._parked_edge = 0 if is_parked else END

    def _prepare_names(self, request: ClaimRequest) -> None:
        names = request.fingerprints[:MAX_FINGERPRINTS]
        self.look_up(names)
        self.load_free([self._known_now[name] for name in names if name in self._known_now])

    def _known_by(self, names: Sequence[bytes]) -> Iterator[Record]:
        """See `Naming`: of those that could be had."""
        numbers = (self._known_now.get(name, 0) for name in names)
        return (self.records[number] for number in numbers if number in self.records)

    def take_back(self, limit: int, now: int) -> int:
        """See `heads.ending`; of a sweep, those of this crawl."""
        if not self._limit and self.status is not CrawlStatus.CANCELLED:
            overdue = self.wire.rows(sql.OVERDUE_LEASES, (self.id, self.clock, limit))
            self.load_free([task & NUMBER_MASK for (task,) in overdue])
        return super().take_back(limit, now)

    # ---- picking

    def _pick(self, request: ClaimRequest, now: int) -> tuple[list[Lease], Streak]:
        self._request = request
        ranks = [rank for line in self.ready for rank in line.first(self._limit)]
        self._fetch_tasks(self._held[rank & NUMBER_MASK] for rank in ranks)
        if self._parked_edge < END:
            self._fetch_heads(1)
        return super()._pick(request, now)

    def _share(self, queue: Queue) -> int:
        """C5, C7: how many tasks of a queue this claim may come to."""
        request = self._request
        most = request.limit if request.lend else queue.slots - queue.in_flight
        return min(most, request.per_queue or most, request.limit)

    def _fetch_tasks(self, queues: Iterable[Queue]) -> None:
        """The first tasks of each lane, and the one after them, which will be first then."""
        wanted, first = [], []
        for queue in {queue.number: queue for queue in queues}.values():
            share = self._share(queue)
            for line in (queue.lane0, queue.lane1):
                if isinstance(line, Shelf) and line.head:
                    first.append(line.head[0] >> DUE_BITS & NUMBER_MASK)
                    if line.edge < END and len(line.head) <= share:
                        wanted.append((line, share))
        lines = self.ask_for_entries(wanted)
        tasks = self._ask_for_tasks(first)
        self.put_on(wanted, lines)
        more = [e >> DUE_BITS & NUMBER_MASK for line, share in wanted for e in line.head[1:share]]
        for answer in (tasks, self._ask_for_tasks(more)):
            for row in answer.fetchall() if answer else ():
                self.take_due(row)

    def _ask_for_tasks(self, numbers: Iterable[int]) -> Result | None:
        ids = number_array(self.base | n for n in numbers if n not in self.records)
        return None if ids == "{}" else self.wire.send(sql.FIRST_TASKS, (ids,))

    # ---- parked queues

    def _best_parked(self, taken: dict[int, int], cap: int, skipped: list[Queue]) -> Queue | None:
        best = super()._best_parked(taken, cap, skipped)
        while self._parked_edge < END and (best is None or parked_key(best) > self._parked_edge):
            self._fetch_heads(max(1, self._limit))
            best = super()._best_parked(taken, cap, skipped)
        return best

    def _activate(self, now: int) -> None:
        super()._activate(now)
        if not self.parked and self._parked_edge < END:
            self._fetch_heads(max(1, self._limit))

    def _fetch_heads(self, count: int) -> None:
        """The next of the inactive FIFOs."""
        found = self.wire.rows(sql.INACTIVE_QUEUES, (self.id, *self._parked_from, count))
        heads = [self.seat(row) for row in found]
        for queue in heads:
            heappush(self.parked, parked_key(queue))
        if len(heads) < count:
            self._parked_edge = END
        else:
            self._parked_edge = parked_key(heads[-1])
            self._parked_from = (heads[-1].precedence, heads[-1].place)
        self._fetch_tasks(heads)

    # ---- the end of a claim

    def _close_run(self, now: int) -> None:
        if self.leases:
            return
        outlook = self._outlook()
        if outlook.is_ready or outlook.is_parked or outlook.alarm or outlook.deadline:
            return
        self.load_totals()
        if self.known_count:
            super()._close_run(now)

    def _wake_in(self, now: int) -> float | None:
        if self.status is not CrawlStatus.RUNNING:
            return None
        outlook = self._outlook()
        if self.standing:
            return 0.0
        times = [at for at in (outlook.alarm, outlook.deadline) if at is not None]
        if outlook.is_ready or outlook.is_parked:
            times.append(now + self._shut_for)
        return max(0, min(times) - now) / 1000 if times else None

    def _outlook(self) -> Outlook:
        """What there is, with all that this claim changed."""
        self.remember(self.write())
        return Outlook(*self.wire.rows(sql.WAIT_INFO, (self.id,) * 4)[0])
