"""The six verbs: what is asked is cut into calls the server answers in a few milliseconds.

A page's finish and its links stay one call (H6); a batch of tasks is answered in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from outrider.clock import to_ms
from outrider.core.outcome import Last
from outrider.core.pick import Streak
from outrider.core.policy.rules import QueueRules
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, Lease, LeaseId, PolitenessState, Task
from outrider.core.verdict import Finished, Verdict
from outrider.store.protocol import MAX_FINGERPRINTS, ClaimRequest, ClaimResult
from outrider.store.redis.calling import encode
from outrider.store.redis.knowing import Knowing, queue_row_of
from outrider.store.redis.rows import QueueRow, TaskRow, VerdictRow, raw
from outrider.store.redis.ruling import Batch
from outrider.store.redis.texts import (
    STATES,
    answer_of,
    answer_text,
    breakdown_text,
    rank_of,
    row_of,
    task_of,
)

TASKS_A_CALL: Final = 500
LEASES_A_CALL: Final = 100
EXPIRE_MOST: Final = 1000  # overdue leases one claim takes back, in all its calls
WAKE_MOST: Final = 4096  # queues one claim wakes, in all its calls

_REASONS: Final = {"d": "duplicate", "f": "queue-full", "c": "cancelled"}
_COLUMNS: Final = {state: column for column, state in enumerate(STATES)}

_ARRAY: Final = 3  # bytes that tell how long an array is: scripts know that of a verdict

T = TypeVar("T")


class _Head(msgspec.Struct, array_like=True):
    status: CrawlStatus
    wake_in: int
    lane: int
    streak: int
    has_more: bool
    may_expire: int
    may_wake: int
    taken: list[tuple[int, int]]
    moment: int = 0


_head_of: Final = msgspec.msgpack.Decoder(_Head).decode


class Working(Knowing):
    """The hot path."""

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """See `protocol.Store`."""
        names = dict.fromkeys(task.crawl for task in tasks)
        if len(names) <= 1:
            return [answer for name in names for answer in await self._add_to(name, tasks)]
        answers = {
            n: iter(await self._add_to(n, [t for t in tasks if t.crawl == n])) for n in names
        }
        return [next(answers[task.crawl]) for task in tasks]

    async def _add_to(self, crawl: str, tasks: Sequence[Task]) -> list[Added]:
        answers: list[Added] = []
        for part in _parts(tasks, TASKS_A_CALL):
            letters = await self._add_some(crawl, part)
            answers += map(_added, part, letters)
        return answers

    async def _add_some(self, crawl: str, tasks: Sequence[Task]) -> str:
        while True:
            batch = Batch(book := self.book(crawl))
            told = batch.heads_and_texts(tasks)
            letters = await self.line.run("add", crawl, batch.written(), *told, epoch=book.epoch)
            if letters is not None:
                return str(letters, "ascii")
            await self.learn_rules(crawl)

    # ---- claim

    async def claim(self, request: ClaimRequest, *, closes: bool = True) -> ClaimResult:
        """See `protocol.Store`; without `closes` it leaves the run open, whatever it finds."""
        leases: list[Lease] = []
        head = _Head(CrawlStatus.RUNNING, 0, *request.streak, True, EXPIRE_MOST, WAKE_MOST, [])
        while head.has_more or len(leases) < request.limit:
            part = min(LEASES_A_CALL, request.limit - len(leases))
            head, found = await self._claim_some(request, head, part, closes=closes)
            leases += await self._lent(request, found, head.moment)
            if not head.has_more and len(found) < part * 3:
                break
        wake_in = None if head.wake_in < 0 else head.wake_in / 1000
        return ClaimResult(leases, wake_in, head.status, Streak(head.lane, head.streak))

    async def _claim_some(
        self, request: ClaimRequest, head: _Head, part: int, *, closes: bool
    ) -> tuple[_Head, list[Any]]:
        asked = [
            request.worker,
            part,
            to_ms(request.lease_for),
            request.per_queue,
            head.lane,
            head.streak,
            request.lend,
            closes,
            [raw(name) for name in request.fingerprints[:MAX_FINGERPRINTS]],
            head.taken,
            head.may_expire,
            head.may_wake,
        ]
        first, *found = await self.line.run("claim", request.crawl, encode(asked))
        return _head_of(first), found

    async def _lent(self, request: ClaimRequest, found: list[Any], now: int) -> list[Lease]:
        numbers = found[::3]
        rows = [row_of(row) for row in found[1::3]]
        queues = [queue_row_of(row) for row in found[2::3]]
        rules = await self.rulings(request.crawl, {queue.rules for queue in queues})
        await self.learn_kinds(request.crawl, {row.kind for row in rows})
        return [
            self._lease(request, number, row, queue, rules[queue.rules], now)
            for number, row, queue in zip(numbers, rows, queues, strict=True)
        ]

    def _lease(
        self,
        request: ClaimRequest,
        number: int,
        row: TaskRow,
        queue: QueueRow,
        rules: QueueRules,
        now: int,
    ) -> Lease:
        answer, kind = answer_of(row), self.kind(request.crawl, row.kind)
        return Lease(
            self.id,
            number,
            row.token,
            task_of(request.crawl, row, kind, queue.key),
            row.attempts + 1,
            request.worker,
            request.lease_for,
            row.failures,
            row.throttles,
            rules,
            PolitenessState(
                queue.level,
                queue.calm,
                queue.throttles_in_row,
                queue.unreachable_in_row,
                queue.blocks_in_row,
                queue.last_delay,
                queue.crawl_delay,
            ),
            last=None if answer is None else Last(answer, max(0, now - row.answered) / 1000),
        )

    # ---- leases

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._of_held("extend", leases, to_ms(lease_for))

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._of_held("release", leases)

    async def _of_held(self, verb: str, leases: Sequence[LeaseId], *args: int) -> set[LeaseId]:
        held: set[LeaseId] = set()
        for crawl in dict.fromkeys(lease.crawl for lease in leases):
            for part in _parts([lease for lease in leases if lease.crawl == crawl], TASKS_A_CALL):
                pairs = encode([(lease.task, lease.token) for lease in part])
                places = await self.line.run(verb, crawl, *args, pairs)
                held.update(part[place - 1] for place in places)
        return held

    async def expire(self, *, limit: int) -> int:
        """See `protocol.Store`."""
        count = 0
        for crawl in await self.crawls():
            while (step := min(LEASES_A_CALL, limit - count)) > 0:
                lost = await self.line.run("expire", crawl, step)
                count += lost
                if lost < step:
                    break
        return count

    # ---- finish

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """See `protocol.Store`."""
        answers: list[Finished] = []
        for part in _calls(verdicts):
            words = await self._finish_some(part)
            answers += map(_finished, part, words)
        return answers

    async def _finish_some(self, verdicts: Sequence[Verdict]) -> list[bytes]:
        crawl = verdicts[0].crawl
        rows = b"".join([encode(_row_of(verdict))[_ARRAY:] for verdict in verdicts])
        while True:
            batch = Batch(book := self.book(crawl))
            told = batch.heads_and_texts(task for verdict in verdicts for task in verdict.tasks)
            epoch = book.epoch if told[0] else None
            common = batch.written()
            words = await self.line.run("finish", crawl, common, rows, *told, epoch=epoch)
            if words is not None:
                return list(words)
            await self.learn_rules(crawl)


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _calls(verdicts: Iterable[Verdict]) -> Iterator[list[Verdict]]:
    """As many verdicts of one crawl as a call takes, in order; a page stays whole."""
    part: list[Verdict] = []
    size = 0
    for verdict in verdicts:
        more = 1 + len(verdict.tasks)
        if part and (verdict.crawl != part[0].crawl or size + more > TASKS_A_CALL):
            yield part
            part, size = [], 0
        part.append(verdict)
        size += more
    if part:
        yield part


def _added(task: Task, letter: str) -> Added:
    if letter == "a":
        return Added(task.url, True, None, task.priority)
    return Added(task.url, False, _REASONS[letter])


def _finished(verdict: Verdict, word: bytes) -> Finished:
    if word in (b"lost", b"again"):
        return Finished(word == b"again")
    answers = [*map(_added, verdict.tasks, str(word[1:], "ascii"))]
    return Finished(True, STATES[word[0] - ord("0")], answers)


def _row_of(verdict: Verdict) -> VerdictRow:
    answer, revisit = verdict.answer, verdict.revisit
    again: Any = None
    if revisit is not None:
        rank = raw(rank_of(revisit.precedence, revisit.priority))
        why = raw(breakdown_text(revisit.breakdown))
        again = (to_ms(revisit.after), revisit.type, revisit.lane, rank, why)
    return VerdictRow(
        verdict.task,
        verdict.token,
        verdict.outcome,
        _COLUMNS[verdict.state],
        len(verdict.tasks),
        to_ms(verdict.delay),
        verdict.delay,
        None if answer is None else raw(answer_text(answer)),
        0 if answer is None else answer.bytes,
        verdict.throttles_in_row,
        verdict.unreachable_in_row,
        verdict.blocks_in_row,
        verdict.calm,
        verdict.crawl_delay,
        verdict.level,
        verdict.counts,
        verdict.failed,
        verdict.throttled,
        to_ms(verdict.retry_in),
        verdict.reason,
        verdict.penalty,
        verdict.touched,
        to_ms(verdict.snooze),
        verdict.snooze_reason,
        verdict.retire,
        again,
    )
