"""The loader of claims: overdue leases, waking queues, and the first ready and inactive queues.

It loads only queues that no other transaction has locked, and no more than a claim may lease: each
pick takes one queue off its list, so the first `limit` queues of a lane are all it can reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappush
from typing import Final, NamedTuple, final

from outrider.core.order import DUE_BITS, NUMBER_BITS, NUMBER_MASK, PRECEDENCE_LIMIT
from outrider.core.states import CrawlStatus
from outrider.store.engine.claim import EXPIRE_STEP, WAKE_STEP
from outrider.store.engine.records import Queue, TaskRecord
from outrider.store.engine.schedule import Schedule, inactive_key
from outrider.store.engine.state import CrawlState
from outrider.store.postgres import sql
from outrider.store.postgres.fast_path import PostgresFastPath
from outrider.store.postgres.journal import Counters
from outrider.store.postgres.lazy_list import END, LazyList
from outrider.store.postgres.pipeline import Result, number_array, storable, text_array
from outrider.store.postgres.queues import PostgresQueues
from outrider.store.postgres.session import Session
from outrider.store.postgres.tasks import PostgresTasks, Wanted
from outrider.store.postgres.writer import Writer
from outrider.store.protocol import ClaimRequest

LOCKED_RETRY: Final = 10  # milliseconds until a claim looks again at queues that were locked


class WaitInfo(NamedTuple):
    """A row of `wait_info`."""

    has_ready: bool
    has_inactive: bool
    wake_at: int | None
    deadline: int | None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to wait for."""
        return not (self.has_ready or self.has_inactive or self.wake_at or self.deadline)


@final
class PostgresLoader:
    """See `port.Loader`. `schedule` is the engine's, set once when the engine is built."""

    __slots__ = (
        "_counters",
        "_fast_path",
        "_inactive_after",
        "_locked_retry",
        "_pipeline",
        "_queues",
        "_request",
        "_session",
        "_state",
        "_tasks",
        "_writer",
        "schedule",
    )

    schedule: Schedule

    def __init__(
        self,
        session: Session,
        state: CrawlState,
        queues: PostgresQueues,
        tasks: PostgresTasks,
        counters: Counters,
        fast_path: PostgresFastPath,
        writer: Writer,
    ) -> None:
        self._session, self._state, self._pipeline = session, state, session.pipeline
        self._queues, self._tasks, self._counters = queues, tasks, counters
        self._fast_path, self._writer = fast_path, writer
        self._request = ClaimRequest("", "", 0)
        self._locked_retry = LOCKED_RETRY
        self._inactive_after = (-PRECEDENCE_LIMIT - 1, 0)  # precedence and place

    def load_totals(self) -> None:
        """See `port.Loader`."""
        self._counters.load_totals()

    def load_last_numbers(self) -> None:
        """See `port.Loader`."""
        self._counters.load_last_numbers()

    def load_leases(self, after: int, limit: int) -> None:
        """See `port.Loader`; an export changes nothing, and locks no queue."""
        self._session.writes = False
        first = (after >> 32) + 1
        queues = self._queues.read(range(first, first + limit + 1))
        self._tasks.load_leases(queues)

    def load_lease_page(self, after: int, limit: int) -> None:
        """See `port.Loader`."""
        self._tasks.load_lease_page(after, limit)

    # ---- the beginning of a claim

    def load_overdue(self, limit: int, now: int) -> None:  # noqa: ARG002 - the server's clock
        """See `port.Loader`."""
        params = (self._session.crawl, self._session.clock, limit)
        found = self._pipeline.rows(sql.OVERDUE_LEASES, params)
        self._tasks.load_unlocked([task & NUMBER_MASK for (task,) in found])

    def begin_claim(self, request: ClaimRequest, now: int) -> None:
        """See `port.Loader`."""
        self._locked_retry = 0 if request.fingerprints else LOCKED_RETRY
        if self._state.status is CrawlStatus.CANCELLED:
            return
        session = self._session
        params = (session.crawl, session.clock, EXPIRE_STEP)
        result = self._pipeline.send(sql.OVERDUE_LEASES, params)
        self._fast_path.look_ahead(request, now)
        overdue = [task & NUMBER_MASK for (task,) in result.fetchall()]
        self._tasks.load_unlocked(overdue)
        if overdue:
            self._fast_path.cancel_look_ahead()

    def load_candidates(self, request: ClaimRequest) -> None:
        """See `port.Loader`."""
        if request.keys:
            self._load_waking()
            return
        crawl, send, limit = self._session.crawl, self._pipeline.send, max(0, request.limit)
        waking = send(sql.WAKING_QUEUES, (crawl, self._session.clock, WAKE_STEP))
        first = send(sql.READY_QUEUES, (crawl, 0, limit))
        second = send(sql.READY_QUEUES, (crawl, 1, limit))
        inactive = send(sql.HAS_INACTIVE, (crawl,))
        self._add_wakeups(waking)
        self._queues.load_rows(first.fetchall())
        self._queues.load_rows(second.fetchall())
        ((has_inactive,),) = inactive.fetchall()
        self.schedule.inactive_edge = 0 if has_inactive else None

    def _load_waking(self) -> None:
        params = (self._session.crawl, self._session.clock, WAKE_STEP)
        self._add_wakeups(self._pipeline.send(sql.WAKING_QUEUES, params))

    def _add_wakeups(self, waking: Result) -> None:
        for queue in self._queues.load_rows(waking.fetchall()):
            heappush(self.schedule.wakeups, queue.wake_at << NUMBER_BITS | queue.number)

    def load_keys(self, keys: Sequence[str]) -> list[Queue]:
        """See `port.Loader`: those that no other transaction has locked."""
        numbers = self._numbers_of(keys)
        self._queues.load_unlocked(numbers)
        found = self._queues.by_number
        queues = [found[number] for number in numbers if number in found]
        self._load_tasks(queue for queue in queues if queue.list_state)
        return queues

    def _numbers_of(self, keys: Sequence[str]) -> list[int]:
        """C5: return the numbers of the queues of keys, or of the same in lower case."""
        names = list(dict.fromkeys((*keys, *map(str.lower, keys))))
        found = dict(
            self._pipeline.rows(sql.QUEUES_OF_KEYS, (self._session.crawl, text_array(names)))
        )
        numbers = (found.get(storable(key)) or found.get(storable(key.lower())) for key in keys)
        return list(dict.fromkeys(number & NUMBER_MASK for number in numbers if number))

    def load_named(self, fingerprints: Sequence[bytes]) -> Iterable[TaskRecord]:
        """See `port.Loader`: those whose queues no other transaction has locked."""
        self._tasks.look_up(fingerprints)
        known = [number for name in fingerprints if (number := self._tasks.find_known(name))]
        self._tasks.load_unlocked(known)
        return self._tasks.loaded(known)

    # ---- picking

    def load_first_tasks(self, request: ClaimRequest) -> None:
        """See `port.Loader`."""
        self._request = request
        if request.keys:
            return  # `load_keys` does
        limit = max(0, request.limit)
        keys = [key for ready in self.schedule.ready for key in ready.first(limit)]
        self._load_tasks(self._queues.by_number[key & NUMBER_MASK] for key in keys)
        if self.schedule.inactive_edge is not None:
            self._load_inactive(1)

    def load_inactive(self) -> None:
        """See `port.Loader`."""
        self._load_inactive(max(1, self._request.limit))

    def _load_inactive(self, count: int) -> None:
        params = (self._session.crawl, *self._inactive_after, count)
        found = self._queues.load_rows(self._pipeline.rows(sql.INACTIVE_QUEUES, params))
        for queue in found:
            heappush(self.schedule.inactive, inactive_key(queue))
        if len(found) < count:
            self.schedule.inactive_edge = None
        else:
            last = found[-1]
            self.schedule.inactive_edge = inactive_key(last)
            self._inactive_after = (last.precedence, last.inactive_turn)
        self._load_tasks(found)

    def _max_leases(self, queue: Queue) -> int:
        """C5, C7: return how many tasks of a queue this claim may lease."""
        request = self._request
        most = request.limit if request.lend else queue.slots - queue.in_flight
        return min(most, request.per_queue or most, request.limit)

    def _load_tasks(self, queues: Iterable[Queue]) -> None:
        """Load the first tasks of each lane, and the entry after them, which is first then."""
        tasks, firsts = self._tasks, []
        wanted: Wanted = []
        for queue in {queue.number: queue for queue in queues}.values():
            most = self._max_leases(queue)
            for lane in (queue.lane0, queue.lane1):
                if isinstance(lane, LazyList) and lane.head:
                    firsts.append(lane.head[0] >> DUE_BITS & NUMBER_MASK)
                    if lane.edge < END and len(lane.head) <= most:
                        wanted.append((lane, most))
        entries, first = tasks.ask_entries(wanted), tasks.ask_first(firsts)
        tasks.take_entries(wanted, entries)
        more = [e >> DUE_BITS & NUMBER_MASK for lane, most in wanted for e in lane.head[1:most]]
        rest = tasks.ask_first(more)
        tasks.take_first(first)
        tasks.take_first(rest)

    # ---- listings

    def wakes_after(self, at: int, number: int, limit: int) -> list[tuple[int, int]]:
        """See `port.Loader`."""
        params = (self._session.crawl, at, self._session.base | number, limit)
        return [(at, q & NUMBER_MASK) for at, q in self._pipeline.rows(sql.WAKES_AFTER, params)]

    # ---- the end of a claim

    def may_be_over(self) -> bool:
        """See `port.Loader`."""
        if not self._wait_info().is_empty:
            return False
        self.load_totals()
        return True

    def wake_in(self, request: ClaimRequest, now: int) -> float | None:
        """See `port.Loader`."""
        if request.keys:
            numbers = self._numbers_of(request.keys)
            loaded = [self._queues.by_number.get(number) for number in numbers]
            is_listed = any(queue is not None and queue.list_state for queue in loaded)
            return self._seconds_to(self._wait_info_of(numbers), now, is_listed=is_listed)
        info = self._wait_info()
        return self._seconds_to(info, now, is_listed=bool(self.schedule.listed))

    def _seconds_to(self, info: WaitInfo, now: int, *, is_listed: bool) -> float | None:
        if is_listed:
            return 0.0
        times = [at for at in (info.wake_at, info.deadline) if at is not None]
        if info.has_ready or info.has_inactive:  # locked by other transactions
            times.append(now + self._locked_retry)
        return max(0, min(times) - now) / 1000 if times else None

    def _wait_info(self) -> WaitInfo:
        """Return what there is to wait for, after what this claim has changed."""
        self._writer.flush()
        (row,) = self._pipeline.rows(sql.WAIT_INFO, (self._session.crawl,) * 4)
        return WaitInfo._make(row)

    def _wait_info_of(self, numbers: Iterable[int]) -> WaitInfo:
        """Return what a claim of some queues can wait for: them, and every deadline (C6)."""
        self._writer.flush()
        base = self._session.base
        params = (self._session.crawl, number_array(base | number for number in numbers))
        (row,) = self._pipeline.rows(sql.WAIT_INFO_OF_QUEUES, params)
        return WaitInfo._make(row)
