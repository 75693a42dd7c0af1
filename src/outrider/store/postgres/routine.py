"""Routine visits: most queues need no judge, so their visits begin and end in one statement each.

What is not routine is left to `heads`, in the same transaction. Only a queue that is not at hand
may go this way: nobody else may know something of it that its row does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from outrider.clock import to_ms
from outrider.core.order import NUMBER_MASK, PRECEDENCE_LIMIT, QUEUE_PRECEDENCE_SHIFT
from outrider.core.pick import ACTIVATE, NOTHING, Streak, pick
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Lease, PolitenessState
from outrider.core.verdict import Verdict
from outrider.store.heads.claiming import WAKE_STEP
from outrider.store.heads.naming import recall
from outrider.store.heads.records import COLUMNS, Kind
from outrider.store.postgres import rows, sql
from outrider.store.postgres.arrays import number_array, storable, text_array
from outrider.store.postgres.pipeline import Result
from outrider.store.postgres.provisional_ids import LAST_TASK
from outrider.store.postgres.writing import Writing
from outrider.store.protocol import ClaimRequest

_P, _L, _D = (COLUMNS[s] for s in (TaskState.PENDING, TaskState.LEASED, TaskState.DONE))
_TASK_AT: Final = 12  # in what a visit's beginning tells, after its queue's manners,
_ABOUT_AT: Final = 18  # and after the task's fingerprint


class Begun(NamedTuple):
    """What a claim came to so far; whether there is nothing else it could lend."""

    leases: list[Lease]
    streak: Streak
    is_all: bool


class Looked(NamedTuple):
    """What was asked for at the beginning of a claim."""

    woken: Result
    outlook: Result
    lanes: tuple[Result, Result]


class Routine(Writing):
    """How most visits begin and end."""

    # ---- claims

    def look(self, limit: int, now: int) -> Looked:
        """Wake whom time alone brought, and lock the first of each lane."""
        send, by_turn = self.wire.send, self.by_turn
        return Looked(
            send(sql.FAST_WAKE, (self.id, now, WAKE_STEP, by_turn, by_turn)),
            send(sql.FAST_LIMITS, (self.id, now, WAKE_STEP, self.id)),
            (send(sql.FAST_READY, (self.id, 0, limit)), send(sql.FAST_READY, (self.id, 1, limit))),
        )

    def begin(self, looked: Looked, request: ClaimRequest, now: int) -> Begun:
        """Lend what is routine, up to the first that is not."""
        ((is_strange, parked),) = looked.outlook.fetchall()
        if is_strange:
            return Begun([], request.streak, False)
        lines = [iter(answer.fetchall()) for answer in looked.lanes]
        picked, streak, is_all = self._picked(lines, parked, request)
        leases = self._moved(picked, request, now)
        ((woken,),) = looked.woken.fetchall()
        self.stirs = self.stirs or woken > len(leases)
        return Begun(leases, streak, is_all)

    def _picked(
        self, lines: list[Iterator[rows.Row]], parked: int | None, request: ClaimRequest
    ) -> tuple[list[tuple[int, int]], Streak, bool]:
        """C3, C4: lane and queue of each lease to be; whether nothing else stands anywhere."""
        picked: list[tuple[int, int]] = []
        (lane, count), burst = request.streak, self.rules.burst
        taken: set[int] = set()
        tops = [next(line, None) for line in lines]
        while len(picked) < request.limit:
            first, second = (_standing(top) for top in tops)
            step, after = pick(first, second, parked, lane, count, burst)
            if step in (ACTIVATE, NOTHING):
                return picked, Streak(lane, count), step == NOTHING
            queue, is_routine, _ = tops[step] or (0, False, 0)
            if not is_routine:
                return picked, Streak(lane, count), False
            lane, count = step, after
            picked.append((lane, queue))
            taken.add(queue)
            for at, top in enumerate(tops):
                if top is not None and top[0] in taken:
                    tops[at] = next((row for row in lines[at] if row[0] not in taken), None)
        return picked, Streak(lane, count), True

    def _moved(self, picked: list[tuple[int, int]], request: ClaimRequest, now: int) -> list[Lease]:
        """In their order, for each takes the next turn."""
        if not picked:
            return []
        lanes, queues = zip(*picked, strict=True)
        tokens = range(self.tokens + 1, self.tokens + 1 + len(picked))
        self.tokens += len(picked)
        turns = (self.sequence("turns"), self.by_turn)
        given = (storable(request.worker), now, now + to_ms(request.lease_for), now)
        params = (*turns, number_array(queues), number_array(lanes), number_array(tokens), *given)
        return [self._lease_in(row, request, now) for row in self.wire.rows(sql.FAST_LEASE, params)]

    def _lease_in(self, row: rows.Row, request: ClaimRequest, now: int) -> Lease:
        number, token, key, *ruled = row[:6]
        attempts, failures, throttles, answer, answered, fingerprint = row[_TASK_AT:_ABOUT_AT]
        task = rows.task_of(self.name, key, fingerprint, row[_ABOUT_AT:])
        self._count_moved(self._kind(task), _P, _L)
        self.pending -= 1
        self.leased += 1
        lease = Lease(
            self.store,
            number & NUMBER_MASK,
            token,
            task,
            attempts + 1,
            request.worker,
            request.lease_for,
            failures,
            throttles,
            self.like(key, tuple(ruled)).rules,
            PolitenessState(0, *row[6:_TASK_AT]),
        )
        if answer is not None:
            recall(lease, rows.answer_of(answer), now - answered)
        return lease

    def _count_moved(self, kind: Kind, before: int, after: int) -> None:
        """O5."""
        kind.counts[before] -= 1
        kind.counts[after] += 1

    # ---- finishes

    def end(self, verdicts: Sequence[Verdict], now: int) -> set[tuple[int, int]]:
        """Apply what is routine of these; the tasks and tokens it was applied to."""
        if self.is_held or self.is_limited or self.status is CrawlStatus.CANCELLED:
            return set()
        told = {verdict.task: verdict for verdict in reversed(verdicts)}  # each at its first
        if not all(map(_is_routine, told.values())) or len(told) < len(verdicts):
            return set()
        self.wire.send(
            sql.LOCK_QUEUES_OF_LEASES, (number_array(self.base | task for task in told),)
        )
        ended = self.wire.rows(sql.FAST_FINISH, self._params(told.values(), now))
        self._count_ended(ended)
        return {(row[0] & NUMBER_MASK, row[1]) for row in ended}

    def _params(self, verdicts: Iterable[Verdict], now: int) -> list[object]:
        found = [
            (
                self.base | v.task,
                v.token,
                rows.answer_text(v.answer),
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
        told = [
            number_array(task),
            number_array(token),
            text_array(answer),
            *map(number_array, others),
        ]
        return [*told, *[now] * 7, self.by_turn, self.by_turn, now, now]

    def _count_ended(self, ended: list[rows.Row]) -> None:
        for _, _, size, type_, tag, origin, depth, stirs in ended:
            self._count_moved(self._kind(Kind(type_, tag, origin, depth, [])), _L, _D)
            self.bytes += size
            self.stirs = self.stirs or stirs
        self.leased -= len(ended)
        self.visits += len(ended)
        self.dones += len(ended)
        self.outcomes["done"] += len(ended)


def _standing(top: rows.Row | None) -> int:
    """The key of a queue that stands in a lane, as far as `pick` looks at it; 0: nobody does."""
    return 0 if top is None else (top[2] + PRECEDENCE_LIMIT) << QUEUE_PRECEDENCE_SHIFT | 1


def _is_routine(verdict: Verdict) -> bool:
    """Done, and nothing else: no links, no punishment, nothing learnt but the delay."""
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
        and 0 < verdict.token < 1 << 62
    )
