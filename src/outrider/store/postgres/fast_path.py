"""The fast path: ordinary visits begin and end in one statement each, without loading their queue.

The statements are in `fast_path.sql`; `rows.fast_path_below` says which queues they may serve, and
`_is_ordinary` which verdicts. All else is left to the engine, in the same transaction. Only a queue
that is not loaded may go this way: no object in memory may know more of it than its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, final

from outrider.clock import to_ms
from outrider.core.order import NUMBER_BITS, NUMBER_MASK, PRECEDENCE_LIMIT, QUEUE_PRECEDENCE_SHIFT
from outrider.core.pick import ACTIVATE, NOTHING, Streak, pick
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import Lease, LeaseId
from outrider.core.verdict import Verdict
from outrider.store.byte_limits import MAX_RESULT_BYTES
from outrider.store.engine.claim import WAKE_STEP, set_last_answer
from outrider.store.engine.port import FastLeases
from outrider.store.engine.records import COLUMNS, QUEUE_COLUMNS, TaskCounts
from outrider.store.engine.state import CrawlState
from outrider.store.postgres import rows, sql
from outrider.store.postgres.pipeline import Result, number_array, storable, text_array
from outrider.store.postgres.queues import PostgresQueues
from outrider.store.postgres.session import LAST_TASK, Session
from outrider.store.protocol import ClaimRequest

_PENDING, _LEASED, _DONE = (
    COLUMNS[state] for state in (TaskState.PENDING, TaskState.LEASED, TaskState.DONE)
)
_BUSY, _SNOOZED, _READY = (
    QUEUE_COLUMNS[state] for state in (QueueState.BUSY, QueueState.SNOOZED, QueueState.READY)
)
_MAX_TOKEN = 1 << 62


class ReadyQueue(NamedTuple):
    """A row of `fast_ready`."""

    id: int
    is_fast: bool
    precedence: int

    @property
    def key(self) -> int:
        """Its key in the ready list, as far as `pick` compares it."""
        return (self.precedence + PRECEDENCE_LIMIT) << QUEUE_PRECEDENCE_SHIFT | 1


class FinishedTask(NamedTuple):
    """A row of `fast_finish`."""

    task: int
    token: int
    size: int
    type: str
    tag: str | None
    origin: str
    depth: int
    has_pending: bool
    standing: str  # the state of its queue afterwards


class Lookahead(NamedTuple):
    """What was asked at the beginning of a claim."""

    woken: Result
    limits: Result
    ready: tuple[Result, Result]


class Picks(NamedTuple):
    """Lanes and queues to lease from, in order; whether the engine has nothing to add.

    `counts` are those of the streak after each lease, which may end early.
    """

    lanes: list[int]
    counts: list[int]
    queues: list[int]
    streak: Streak
    is_complete: bool


@final
class PostgresFastPath:
    """See `port.FastPath`."""

    __slots__ = ("_lookahead", "_pipeline", "_queues", "_session", "_state")

    def __init__(self, session: Session, state: CrawlState, queues: PostgresQueues) -> None:
        self._session, self._state, self._queues = session, state, queues
        self._pipeline = session.pipeline
        self._lookahead: Lookahead | None = None

    # ---- claims

    def look_ahead(self, request: ClaimRequest, now: int) -> None:
        """Wake queues and lock the first ready ones, without waiting for the answers."""
        state = self._state
        needs_engine = self._session.is_exclusive or state.is_limited
        is_limited = bool(request.keys) or request.max_queues > 0  # C5
        is_special = bool(request.fingerprints) or request.lend or is_limited
        if needs_engine or is_special or state.status is not CrawlStatus.RUNNING:
            return
        crawl, send, by_turn = self._session.crawl, self._pipeline.send, state.by_turn
        limit = max(0, request.limit)
        self._lookahead = Lookahead(
            send(sql.FAST_WAKE, (crawl, now, WAKE_STEP, by_turn, by_turn)),
            send(sql.FAST_LIMITS, (crawl, now, WAKE_STEP, crawl)),
            (send(sql.FAST_READY, (crawl, 0, limit)), send(sql.FAST_READY, (crawl, 1, limit))),
        )

    def cancel_look_ahead(self) -> None:
        """Leave this claim to the engine."""
        if self._lookahead is not None:
            self._count_woken(self._lookahead)
        self._lookahead = None

    def _count_woken(self, lookahead: Lookahead) -> int:
        """C1: count the queues that were woken, and return how many there are."""
        ((woken,),) = lookahead.woken.fetchall()
        self._count_queues(woken, _SNOOZED, _READY)
        return int(woken)

    def _count_queues(self, count: int, before: int, after: int) -> None:
        counts = self._state.queue_counts
        counts[before] -= count
        counts[after] += count

    def lease(self, request: ClaimRequest, now: int) -> FastLeases:
        """See `port.FastPath`: up to the first queue that the engine must reschedule."""
        lookahead = self._lookahead
        if lookahead is None:
            return FastLeases([], request.streak, False)
        woken = self._count_woken(lookahead)
        ((needs_engine, inactive_precedence),) = lookahead.limits.fetchall()
        if needs_engine:
            return FastLeases([], request.streak, False)
        ready = [map(ReadyQueue._make, result.fetchall()) for result in lookahead.ready]
        picks = self._pick(ready, inactive_precedence, request)
        leases = self._lease_picked(picks, request, now)
        self._session.wakes_waiters = self._session.wakes_waiters or woken > len(leases)
        count = len(leases)
        if count < len(picks.queues):  # C6: these fill the claim
            streak = Streak(picks.lanes[count - 1], picks.counts[count - 1])
            return FastLeases(leases, streak, is_complete=True, is_cut=True)
        return FastLeases(leases, picks.streak, picks.is_complete)

    def _pick(
        self,
        ready: Sequence[Iterator[ReadyQueue]],
        inactive_precedence: int | None,
        request: ClaimRequest,
    ) -> Picks:
        """C3, C4: choose lane and queue of each lease."""
        lanes: list[int] = []
        counts: list[int] = []
        queues: list[int] = []
        (lane, count), burst = request.streak, self._state.rules.burst
        taken: set[int] = set()
        firsts = [next(found, None) for found in ready]
        while len(queues) < request.limit:
            first, second = (0 if queue is None else queue.key for queue in firsts)
            step, after = pick(first, second, inactive_precedence, lane, count, burst)
            picked = None if step in (ACTIVATE, NOTHING) else firsts[step]
            if picked is None or not picked.is_fast:
                return Picks(lanes, counts, queues, Streak(lane, count), step == NOTHING)
            lane, count = step, after
            lanes.append(lane)
            counts.append(count)
            queues.append(picked.id)
            taken.add(picked.id)
            for at, queue in enumerate(firsts):
                if queue is not None and queue.id in taken:
                    firsts[at] = next((one for one in ready[at] if one.id not in taken), None)
        return Picks(lanes, counts, queues, Streak(lane, count), True)

    def _lease_picked(self, picks: Picks, request: ClaimRequest, now: int) -> list[Lease]:
        """Lease in order: each lease takes the next turn."""
        lanes, _, queues, _, _ = picks
        if not queues:
            return []
        state = self._state
        tokens = range(state.last_token + 1, state.last_token + 1 + len(queues))
        state.last_token += len(queues)
        params = (
            self._session.sequence("turns"),
            state.by_turn,
            number_array(queues),
            number_array(lanes),
            number_array(tokens),
            MAX_RESULT_BYTES,
            storable(request.worker),
            now,
            now + to_ms(request.lease_for),
            to_ms(request.lease_for),
            now,
        )
        found = self._pipeline.rows(sql.FAST_LEASE, params)
        self._count_queues(len(found), _READY, _BUSY)
        return [self._lease_of(row, request, now) for row in found]

    def _lease_of(self, row: rows.Row, request: ClaimRequest, now: int) -> Lease:
        state, worker, lasts = self._state, request.worker, request.lease_for
        lease, answer, answered = rows.fast_lease(
            row, state.name, state.store, worker, lasts, self._queues.with_rules, now
        )
        _count_move(state.counts_of(lease.about), _PENDING, _LEASED)
        state.pending -= 1
        state.leased += 1
        state.count_priority(lease.about.priority, -1)
        if answer is not None:
            set_last_answer(lease, rows.decode_answer(answer), now - answered)
        return lease

    # ---- finishes

    def finish(self, verdicts: Sequence[Verdict], now: int) -> set[tuple[int, int]]:
        """See `port.FastPath`: all of them are ordinary, or none is applied here."""
        session, state = self._session, self._state
        if session.is_exclusive or state.is_limited or state.status is CrawlStatus.CANCELLED:
            return set()
        by_task = {verdict.task: verdict for verdict in verdicts}
        if len(by_task) < len(verdicts) or not all(map(_is_ordinary, verdicts)):
            return set()
        base, pipeline = session.base, self._pipeline
        pipeline.send(sql.LOCK_QUEUES_OF_LEASES, (number_array(base | task for task in by_task),))
        found = pipeline.rows(sql.FAST_FINISH, self._finish_params(verdicts, now))
        finished = [FinishedTask._make(row) for row in found]
        self._count_finished(finished)
        return {(one.task & NUMBER_MASK, one.token) for one in finished}

    def _finish_params(self, verdicts: Iterable[Verdict], now: int) -> list[object]:
        found = [
            (
                self._session.base | v.task,
                v.token,
                rows.encode_answer(v.answer),
                v.answer.bytes,
                to_ms(v.delay),
                v.delay,
                v.crawl_delay,
                v.calm,
            )
            for v in verdicts
            if v.answer is not None
        ]
        task, token, answer, *others = zip(*found, strict=True)
        arrays = [
            number_array(task),
            number_array(token),
            text_array(answer),
            *map(number_array, others),
        ]
        by_turn = self._state.by_turn
        return [*arrays, *[now] * 7, by_turn, by_turn, *[now] * 3]

    def _count_finished(self, finished: list[FinishedTask]) -> None:
        state, session = self._state, self._session
        for one in finished:
            _count_move(state.counts_of(one), _LEASED, _DONE)
            state.bytes += one.size
            self._count_queues(1, _BUSY, QUEUE_COLUMNS[QueueState(one.standing)])
            session.wakes_waiters = session.wakes_waiters or one.has_pending
        count = len(finished)
        state.leased -= count
        state.visits += count
        state.visits_done += count
        state.outcomes["done"] += count

    # ---- extensions

    def extend(self, leases: Sequence[LeaseId], deadline: int) -> set[LeaseId]:
        """H2; a lost extension is as one that was not asked for."""
        if self._state.status is CrawlStatus.CANCELLED:
            return set()
        self._pipeline.send(sql.COMMIT_LAZILY)
        valid = [lease for lease in leases if _is_valid(lease)]
        tasks = number_array(self._session.base | lease.task for lease in valid)
        tokens = number_array(lease.token for lease in valid)
        found = self._pipeline.rows(sql.EXTEND_LEASES, (tasks, tokens, deadline))
        name = self._state.name
        return {LeaseId(name, task & NUMBER_MASK, token) for task, token in found}


def _count_move(counts: TaskCounts, before: int, after: int) -> None:
    """O5."""
    counts.by_state[before] -= 1
    counts.by_state[after] += 1


def _is_valid(lease: LeaseId) -> bool:
    return 0 < lease.task < 1 << NUMBER_BITS and 0 < lease.token < _MAX_TOKEN


def _is_ordinary(verdict: Verdict) -> bool:
    """Return whether a task is done, and nothing else: no links, penalty or other delay."""
    return (
        verdict.state is TaskState.DONE
        and verdict.outcome == "done"
        and verdict.answer is not None
        and verdict.touched
        and verdict.counts
        and bool(verdict.calm)
        and verdict.throttles_in_row == 0
        and verdict.unreachable_in_row == 0
        and verdict.blocks_in_row == 0
        and verdict.reason is None
        and verdict.level is None
        and verdict.retire is None
        and not (verdict.tasks or verdict.snooze or verdict.penalty)
        and not (verdict.failed or verdict.throttled)
        and 0 < verdict.task < LAST_TASK
        and 0 < verdict.token < _MAX_TOKEN
    )
