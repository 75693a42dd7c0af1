"""The six verbs, cut into calls of a size that the server answers in a few milliseconds.

A page's verdict and its links stay in one call (H6); tasks are answered in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from outrider.clock import to_ms
from outrider.core.outcome import Last
from outrider.core.pick import Streak
from outrider.core.policy.rules import QueueRules
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, Lease, LeaseId, Task
from outrider.core.verdict import Finished, Requeue, Revisit, Verdict
from outrider.store.byte_limits import (
    MAX_CALL_BYTES,
    MAX_RESULT_BYTES,
    parts_by_bytes,
    task_bytes,
)
from outrider.store.engine.fields import arguments, compile_function
from outrider.store.protocol import MAX_FINGERPRINTS, ClaimRequest, ClaimResult
from outrider.store.redis.rows import (
    STATE_NUMBERS,
    STATES,
    QueueRow,
    TaskRow,
    VerdictRow,
    decode_queue_row,
    decode_task_row,
    politeness_of,
    raw,
)
from outrider.store.redis.rules_cache import Batch, RulesCache, digest_of
from outrider.store.redis.script_client import ScriptClient, encode
from outrider.store.redis.task_codec import (
    add_checksum,
    decode_answer,
    decode_task,
    encode_answer,
    encode_breakdown,
    rank_bytes,
)
from outrider.store.validation import validate_claim, validate_links

TASKS_PER_CALL: Final = 500
LEASES_PER_CALL: Final = 100
MAX_EXPIRED: Final = 1000  # overdue leases one claim expires, in all its calls
MAX_WOKEN: Final = 4096  # queues one claim wakes, in all its calls

_CANCELLED: Final = "c"
_REASONS: Final = {"d": "duplicate", "f": "queue-full", _CANCELLED: "cancelled"}

_ARRAY_HEADER: Final = 3  # bytes with an array's length, which scripts know of a verdict
_VALUES_PER_LEASE: Final = 3  # that `claim` returns: number, task row, queue row

T = TypeVar("T")


class _ClaimHeader(msgspec.Struct, array_like=True):
    """What `claim` returns besides leases, and is sent again with the next call of one claim."""

    status: CrawlStatus
    wake_in: int
    lane: int
    streak: int
    has_more: bool
    may_expire: int
    may_wake: int
    taken: list[tuple[int, int]]  # leases of this claim by queue
    now: int = 0
    crawl: int = 0  # its number
    room: int = MAX_RESULT_BYTES  # bytes that the texts of its tasks still may have
    created: int = 0  # when its crawl was
    last_ends: list[int] = []  # for each lease: when a visit of its queue last ended; -1: never


_decode_header: Final = msgspec.msgpack.Decoder(_ClaimHeader).decode


class RedisVerbs:
    """Store: add, claim, extend, finish, release, expire."""

    def __init__(self, store_id: str, scripts: ScriptClient, cache: RulesCache) -> None:
        self._store_id = store_id
        self._scripts = scripts
        self._cache = cache

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
        for some in _parts(tasks, TASKS_PER_CALL):
            for part in parts_by_bytes(some, task_bytes, MAX_CALL_BYTES):
                letters = await self._add_some(crawl, part)
                answers += map(_added, part, letters)
        return answers

    async def _add_some(self, crawl: str, tasks: Sequence[Task]) -> str:
        while True:
            rules = self._cache.crawl_rules(crawl)
            batch = Batch(rules)
            heads, texts = batch.heads_and_texts(tasks)
            letters = await self._scripts.run(
                "add", crawl, batch.encode(), heads, texts, epoch=rules.epoch
            )
            if letters is not None:
                return str(letters, "ascii") or _CANCELLED * len(tasks)
            await self._cache.refresh_crawl_rules(crawl)

    # ---- claim

    async def claim(self, request: ClaimRequest, *, closes: bool = True) -> ClaimResult:
        """See `protocol.Store`; without `closes` the run stays open even if nothing is left."""
        validate_claim(request)
        leases: list[Lease] = []
        header = _ClaimHeader(
            CrawlStatus.RUNNING, 0, *request.streak, True, MAX_EXPIRED, MAX_WOKEN, []
        )
        while header.room > 0 and (header.has_more or len(leases) < request.limit):
            part = min(LEASES_PER_CALL, request.limit - len(leases))
            rolls = request.rolls[len(leases) : len(leases) + part]
            claimed = await self._claim_some(request, header, part, rolls, closes=closes)
            if claimed is None:
                return ClaimResult([], None, CrawlStatus.CANCELLED, request.streak)
            header, found = claimed
            self._cache.use_crawl(request.crawl, header.crawl)
            leases += await self._leases_of(request, found, header)
            if not header.has_more and len(found) < part * _VALUES_PER_LEASE:
                break
        wake_in = None if header.wake_in < 0 else header.wake_in / 1000
        return ClaimResult(leases, wake_in, header.status, Streak(header.lane, header.streak))

    async def _claim_some(
        self,
        request: ClaimRequest,
        header: _ClaimHeader,
        part: int,
        rolls: Sequence[float],
        *,
        closes: bool,
    ) -> tuple[_ClaimHeader, list[Any]] | None:
        """Run the script once; None: there is no such crawl."""
        sent: dict[str, Any] = {
            "worker": request.worker,
            "limit": part,
            "lease_for": to_ms(request.lease_for),
            "cap": request.per_queue,
            "lane": header.lane,
            "streak": header.streak,
            "loans": request.lend,
            "ends_run": closes,
            "fingerprints": [raw(name) for name in request.fingerprints[:MAX_FINGERPRINTS]],
            "taken": header.taken,
            "may_expire": header.may_expire,
            "may_wake": header.may_wake,
            "room": header.room,
        }
        if request.keys:
            sent["keys"] = [
                (raw(digest_of(key)), raw(digest_of(key.lower()))) for key in request.keys
            ]
        if request.max_queues:
            sent["max_queues"] = request.max_queues
        if rolls:
            sent["rolls"] = rolls
        answer = await self._scripts.run("claim", request.crawl, encode(sent))
        return None if answer is None else (_decode_header(answer[0]), answer[1:])

    async def _leases_of(
        self, request: ClaimRequest, found: list[Any], header: _ClaimHeader
    ) -> list[Lease]:
        numbers = found[::_VALUES_PER_LEASE]
        rows = [decode_task_row(row) for row in found[1::_VALUES_PER_LEASE]]
        queues = [decode_queue_row(row) for row in found[2::_VALUES_PER_LEASE]]
        rules = await self._cache.queue_rules(request.crawl, {queue.rules for queue in queues})
        await self._cache.load_kinds(request.crawl, {row.kind for row in rows})
        return [
            self._lease(request, *values, rules[values[2].rules], header)
            for values in zip(numbers, rows, queues, header.last_ends, strict=True)
        ]

    def _lease(
        self,
        request: ClaimRequest,
        number: int,
        row: TaskRow,
        queue: QueueRow,
        last_end: int,
        rules: QueueRules,
        header: _ClaimHeader,
    ) -> Lease:
        now, due = header.now, row.due or header.created + row.discovered
        has_gap = not row.named and last_end >= 0  # by name no visit begins (D5)
        answer, kind = decode_answer(row), self._cache.kind(request.crawl, row.kind)
        return Lease(
            store=self._store_id,
            task=number,
            token=row.token,
            about=decode_task(request.crawl, row, kind, queue.key),
            attempt=row.attempts + 1,
            worker=request.worker,
            lease_for=request.lease_for,
            failures=row.failures,
            throttles=row.throttles,
            rules=rules,
            manners=politeness_of(queue),
            last=None if answer is None else Last(answer, max(0, now - row.answered) / 1000),
            delay=row.drawn,
            waited=(now - due) / 1000,
            gap=(now - last_end) / 1000 if has_gap else -1.0,
        )

    # ---- leases

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._change_held("extend", leases, to_ms(lease_for))

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """See `protocol.Store`."""
        return await self._change_held("release", leases)

    async def _change_held(self, verb: str, leases: Sequence[LeaseId], *args: int) -> set[LeaseId]:
        held: set[LeaseId] = set()
        for crawl in dict.fromkeys(lease.crawl for lease in leases):
            for part in _parts([lease for lease in leases if lease.crawl == crawl], TASKS_PER_CALL):
                pairs = encode([(lease.task, lease.token) for lease in part])
                positions = await self._scripts.run(verb, crawl, *args, pairs)
                held.update(part[position - 1] for position in positions)
        return held

    async def expire(self, *, limit: int) -> int:
        """See `protocol.Store`."""
        count = 0
        for crawl in await self._scripts.crawl_names():
            while (step := min(LEASES_PER_CALL, limit - count)) > 0:
                expired = await self._scripts.run("expire", crawl, step)
                count += expired
                if expired < step:
                    break
        return count

    # ---- finish

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """See `protocol.Store`."""
        answers: list[Finished] = []
        for part in _parts_of_finish(verdicts):
            words = await self._finish_some(part)
            answers += map(_finished, part, words)
        return answers

    async def _finish_some(self, verdicts: Sequence[Verdict]) -> list[bytes]:
        crawl = verdicts[0].crawl
        rows = b"".join([encode(_row_of(verdict))[_ARRAY_HEADER:] for verdict in verdicts])
        while True:
            rules = self._cache.crawl_rules(crawl)
            batch = Batch(rules)
            links = (task for verdict in verdicts for task in verdict.tasks)
            heads, texts = batch.heads_and_texts(links)
            words = await self._scripts.run(
                "finish",
                crawl,
                batch.encode(),
                rows,
                heads,
                texts,
                epoch=rules.epoch if heads else None,
            )
            if words is not None:
                return list(words)
            await self._cache.refresh_crawl_rules(crawl)


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _parts_of_finish(verdicts: Iterable[Verdict]) -> Iterator[list[Verdict]]:
    """Yield as many verdicts of one crawl as a call takes, in order, with all their links.

    Raises InvalidInput before the first for a page whose links no call takes (H6).
    """
    verdicts = list(verdicts)
    sizes = [validate_links(verdict) for verdict in verdicts]
    part: list[Verdict] = []
    size = count = 0
    for verdict, long in zip(verdicts, sizes, strict=True):
        more = 1 + len(verdict.tasks)
        is_full = count + more > TASKS_PER_CALL or size + long > MAX_CALL_BYTES
        if part and (verdict.crawl != part[0].crawl or is_full):
            yield part
            part, size, count = [], 0, 0
        part.append(verdict)
        size, count = size + long, count + more
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


def _revisit_row(revisit: Revisit) -> tuple[int, str, int, msgspec.Raw, msgspec.Raw]:
    rank = raw(rank_bytes(revisit.precedence, revisit.priority))
    breakdown = raw(encode_breakdown(revisit.breakdown))
    return to_ms(revisit.after), revisit.type, revisit.lane, rank, breakdown


def _requeue_row(
    requeue: Requeue,
) -> tuple[int, str, int, msgspec.Raw, msgspec.Raw, msgspec.Raw | None, bool]:
    rank = raw(rank_bytes(requeue.precedence, requeue.priority))
    breakdown = raw(encode_breakdown(requeue.breakdown))
    meta = None if requeue.meta is None else raw(add_checksum(requeue.meta))
    after = to_ms(requeue.after)
    return after, requeue.type, requeue.lane, rank, breakdown, meta, requeue.front


# Fields of a verdict's row that are not the verdict's of the same name.
_COMPUTED: Final = {
    "state": "STATE_NUMBERS[verdict.state]",
    "links": "len(verdict.tasks)",
    "delay": "to_ms(verdict.delay)",
    "last_delay": "verdict.delay",
    "answer": "None if answer is None else raw(encode_answer(answer))",
    "size": "0 if answer is None else answer.bytes",
    "retry_in": "to_ms(verdict.retry_in)",
    "snooze": "to_ms(verdict.snooze)",
    "revisit": "None if verdict.revisit is None else revisit_row(verdict.revisit)",
    "requeue": "None if verdict.requeue is None else requeue_row(verdict.requeue)",
}
_COPIED: Final = {
    name: f"verdict.{name}" for name in VerdictRow.__struct_fields__ if name not in _COMPUTED
}
_VALUES: Final = arguments(VerdictRow.__struct_fields__, _COPIED, _COMPUTED)
# Compiled, since keyword arguments would take twice as long, and every visit needs it.
_row_of: Final[Callable[[Verdict], VerdictRow]] = compile_function(
    "row_of",
    "verdict",
    [
        "answer = verdict.answer",
        f"return VerdictRow({', '.join(_VALUES)})",
    ],
    {
        "VerdictRow": VerdictRow,
        "STATE_NUMBERS": STATE_NUMBERS,
        "encode_answer": encode_answer,
        "raw": raw,
        "revisit_row": _revisit_row,
        "requeue_row": _requeue_row,
        "to_ms": to_ms,
    },
)
