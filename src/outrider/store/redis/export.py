"""Export and restore of a crawl, in calls of bounded size (I5).

An export's cursor counts the exported queues in its upper half and the tasks in its lower half: a
queue that is created during the export comes before the remaining tasks, so before all its own.

A batch to restore is checked whole before its first call. Items that are already there are left
alone, so that an interrupted restore can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from outrider.core.outcome import Answer
from outrider.core.states import CrawlStatus, TaskState
from outrider.errors import InvalidInput
from outrider.store.byte_limits import (
    MAX_CALL_BYTES,
    MAX_RESULT_BYTES,
    parts_by_bytes,
    saved_bytes,
)
from outrider.store.engine.export import (
    QUEUE_SHIFT,
    TASK_MASK,
    HeldLease,
    export_queue,
    export_task,
    or_none,
)
from outrider.store.engine.fields import QUEUE_FIELDS
from outrider.store.export_items import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    plain_rules,
    task_of,
    validate_items,
)
from outrider.store.protocol import ResultPage
from outrider.store.redis.inspector import RedisInspector, decode_moment, queue_of, record_of
from outrider.store.redis.keys import CRAWL_KEYS
from outrider.store.redis.rows import (
    LIST_STATES,
    ROW,
    STATE_NUMBERS,
    CrawlRow,
    QueueRow,
    TaskRow,
    decode_crawl_row,
    decode_queue_row,
    raw,
)
from outrider.store.redis.rules_cache import (
    Batch,
    RulesCache,
    VersionedRules,
    crawl_numbers,
    decode_rules,
    digest_of,
    encode_rules,
)
from outrider.store.redis.script_client import ScriptClient, encode, pairs
from outrider.store.redis.task_codec import encode_answer, encode_text, kind_of, rank_bytes

ITEMS_PER_CALL: Final = 250
MAX_NUMBER: Final = 2**53  # Lua's numbers are exact up to here

_QUEUE_POSITIONS: Final = {name: at for at, name in enumerate(QueueRow.__struct_fields__, 1)}
_CRAWL_POSITIONS: Final = {name: at for at, name in enumerate(CrawlRow.__struct_fields__, 1)}
# Fields of an item that are copied into a row: their names there, and their positions in the row.
_QUEUE_NAMES: Final = {
    **{field.exported: field.last_name for field in QUEUE_FIELDS if field.exported},
    "place": "inactive_turn",
}
_END_NAMES: Final = {
    "counter": "last_turn",
    "arrivals": "last_arrival",
    "dones": "visits_done",
    "first": "started",
}
_QUEUE_FIELDS: Final = {
    name: _QUEUE_POSITIONS[_QUEUE_NAMES[name]]
    for name in SavedQueue.__struct_fields__
    if name not in ("key", "standing", "said")
}
_END_FIELDS: Final = {
    name: _CRAWL_POSITIONS[_END_NAMES.get(name, name)]
    for name in SavedEnd.__struct_fields__
    if name not in ("logged", "outcomes", "timeline")
}
_LIST_STATES: Final = {
    None: LIST_STATES["UNLISTED"],
    "ready": LIST_STATES["READY"],
    "inactive": LIST_STATES["INACTIVE"],
}
_decode_lease: Final = msgspec.msgpack.Decoder(tuple[int, int, int, bool, bool]).decode
_NONE: Final = {"retired": "", "session": -1, "last_delay": -1.0, "reason": False}


# ---- export


class ExportPart(NamedTuple):
    """What one call reads of an export."""

    row: CrawlRow | None  # None: there is no such crawl
    items: list[Saved]  # queues and tasks
    after: int
    first: Sequence[Any]  # at the beginning: rules, settings and roots
    last: Sequence[Any]  # at the end: outcomes and timeline


class RedisExport:
    """Exports a crawl."""

    def __init__(self, scripts: ScriptClient, cache: RulesCache, inspector: RedisInspector) -> None:
        self._scripts = scripts
        self._cache = cache
        self._inspector = inspector

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """See `protocol.Inspect`."""
        part = await self._read(crawl, after, limit)
        if part.row is None:
            now = await self._now(crawl)
            return ResultPage([SavedCrawl(crawl, now), SavedEnd()], None)
        first: list[Saved] = [_saved_crawl(part.row, part.first)] if part.first else []
        if part.last:
            return ResultPage([*first, *part.items, _saved_end(part.row, *part.last)], None)
        return ResultPage([*first, *part.items], part.after)

    async def export_items(self, crawl: str, *, after: int, limit: int) -> ResultPage[Any]:
        """See `shards.Shard`."""
        part = await self._read(crawl, after, limit)
        return ResultPage(part.items, part.after)

    async def _read(self, crawl: str, after: int, limit: int) -> ExportPart:
        exported = (after >> QUEUE_SHIFT, after & TASK_MASK)
        found, now, *rest = await self._scripts.run(
            "read_export", crawl, *exported, max(1, limit), MAX_RESULT_BYTES
        )
        if found is None:
            return ExportPart(None, [], after, (), ())
        queues_to, tasks_to, queues, leases, tasks, first, last = rest
        row = decode_crawl_row(found)
        self._cache.use_crawl(crawl, row.id)
        items = await self._saved_queues(crawl, queues, leases, now)
        decoded = await self._inspector.decode_tasks(crawl, tasks[1::2])
        items += [export_task(record_of(row, 0, *one), now) for one in decoded]
        return ExportPart(row, items, queues_to << QUEUE_SHIFT | tasks_to, first, last)

    async def _now(self, crawl: str) -> int:
        _, now, *_ = await self._scripts.run("read", crawl, "EXISTS", CRAWL_KEYS["crawl"])
        return int(now)

    async def _saved_queues(
        self, crawl: str, rows: Sequence[bytes], leases: Sequence[bytes], now: int
    ) -> list[Saved]:
        queues = [decode_queue_row(row) for row in rows]
        rules = await self._cache.queue_rules(crawl, {queue.rules for queue in queues})
        leased: dict[int, list[HeldLease]] = {}
        for queue, cost, claimed, named, loaned in map(_decode_lease, leases):
            leased.setdefault(queue, []).append(HeldLease(cost, claimed, named, loaned))
        return [
            export_queue(queue_of(one, rules[one.rules]), leased.get(one.number, ()), now)
            for one in queues
        ]


def _saved_crawl(row: CrawlRow, first: Sequence[Any]) -> SavedCrawl:
    rules, settings, *roots = first
    return SavedCrawl(
        crawl=row.name,
        created=row.created,
        rules=plain_rules(decode_rules(rules)),
        is_told=row.rules_applied,
        roots={mode.decode(): [root.decode() for root in some] for mode, some in pairs(roots)},
        settings=settings.decode(),
    )


def _saved_end(row: CrawlRow, outcomes: Sequence[bytes], timeline: Sequence[bytes]) -> SavedEnd:
    return SavedEnd(
        status=row.status,
        reason=None if row.reason is False else row.reason,
        at_finish=row.at_finish,
        counter=row.last_turn,
        arrivals=row.last_arrival,
        dones=row.visits_done,
        bytes=row.bytes,
        runs=row.runs,
        first=or_none(row.started),
        finished=or_none(row.finished),
        logged=row.last_event,
        outcomes={name.decode(): int(count) for name, count in pairs(outcomes)},
        timeline=tuple(map(decode_moment, timeline)),
        recovered=row.recovered,
    )


# ---- restore


class RedisRestore:
    """Restores a crawl from an export."""

    def __init__(self, scripts: ScriptClient, cache: RulesCache) -> None:
        self._scripts = scripts
        self._cache = cache

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """See `protocol.Admin`."""
        validate_items(saved)
        if not saved:
            return 0
        fault, is_open = await self._check(crawl, saved)
        if fault is not None:
            raise InvalidInput(fault)
        if not is_open:  # all of it is already there
            return 0
        return sum([await self._restore_some(crawl, part) for part in _parts(saved)])

    async def _check(self, crawl: str, saved: Sequence[Saved]) -> tuple[str | None, bool]:
        """Return what is wrong with a batch, or None; and whether the crawl is being restored."""
        keys = {item.key for item in saved if isinstance(item, SavedQueue | SavedTask)}
        fingerprints = {item.fingerprint for item in saved if isinstance(item, SavedTask)}
        row, known = await self._known(crawl, sorted(keys), sorted(fingerprints))
        begins, is_restoring = isinstance(saved[0], SavedCrawl), _is_restoring(row)
        fault = _fault_of_beginning(row, saved[0]) if isinstance(saved[0], SavedCrawl) else None
        fault = fault or _fault_of_order(saved) or _fault_of_queues(saved, known)
        is_open = begins or is_restoring
        if fault is None and not is_open and any(_is_new(item, known) for item in saved):
            fault = f"crawl {crawl!r} is not being restored: its SavedCrawl comes first"
        return fault, is_open

    async def _known(
        self, crawl: str, keys: list[str], fingerprints: list[bytes]
    ) -> tuple[CrawlRow, set[str | bytes]]:
        """Return the crawl's row, and which of these keys and fingerprints it has."""
        known: set[str | bytes] = set()
        wanted: list[str | bytes] = [*keys, *fingerprints]
        row = CrawlRow(name=crawl)
        for start in range(0, max(1, len(wanted)), ITEMS_PER_CALL):
            part = wanted[start : start + ITEMS_PER_CALL]
            digests = [digest_of(one) for one in part if isinstance(one, str)]
            ids = [one for one in part if isinstance(one, bytes)]
            found, _, *flags = await self._scripts.run(
                "read_known", crawl, len(digests), *digests, *ids
            )
            row = row if found is None else decode_crawl_row(found)
            known.update(one for one, is_known in zip(part, flags, strict=False) if is_known)
        return row, known

    async def _restore_some(self, crawl: str, saved: Sequence[Saved]) -> int:
        while True:
            rules = await self._cache.refresh_crawl_rules(crawl)
            batch = Batch(rules)
            tasks: list[bytes] = []
            items = [_item_row(item, batch, rules) for item in saved]
            for item in saved:
                if isinstance(item, SavedTask):
                    tasks += (item.fingerprint, encode(_task_row(crawl, item, batch)))
            count = await self._scripts.run(
                "restore", crawl, batch.encode(), encode(items), *tasks, epoch=rules.epoch
            )
            if count is not None and count < 0:
                raise InvalidInput(
                    f"crawl {crawl!r} is not being restored any more: another process ended it"
                )
            if count is not None:
                return int(count)


def _parts(saved: Sequence[Saved]) -> Iterator[Sequence[Saved]]:
    """Yield the SavedCrawl alone, since it changes the rules, then as many as a call takes."""
    start = 0
    if isinstance(saved[0], SavedCrawl):
        yield saved[:1]
        start = 1
    for at in range(start, len(saved), ITEMS_PER_CALL):
        yield from parts_by_bytes(saved[at : at + ITEMS_PER_CALL], saved_bytes, MAX_CALL_BYTES)


def _is_restoring(row: CrawlRow) -> bool:
    return row.status == CrawlStatus.PAUSED and row.reason == RESTORING


def _fault_of_beginning(row: CrawlRow, saved: SavedCrawl) -> str | None:
    if _is_restoring(row):
        if saved.created == row.created:
            return None
        what = "is being restored from another export"
    elif row.status == CrawlStatus.CANCELLED:
        what = "was cancelled"
    elif row.last_task:
        what = f"has {row.last_task} tasks"
    else:
        return None
    return f"crawl {row.name!r} {what}: restore into one that has none, by another name"


def _fault_of_order(saved: Sequence[Saved]) -> str | None:
    if any(isinstance(item, SavedCrawl) for item in saved[1:]):
        return "saved: a SavedCrawl comes first, and once"
    if any(isinstance(item, SavedEnd) for item in saved[:-1]):
        return "saved: a SavedEnd comes last"
    return None


def _fault_of_queues(saved: Sequence[Saved], known: set[str | bytes]) -> str | None:
    """Return what is wrong if a task comes before its queue."""
    keys: set[str] = set()
    for item in saved:
        if isinstance(item, SavedQueue):
            keys.add(item.key)
        elif isinstance(item, SavedTask) and item.key not in keys and item.key not in known:
            return f"task {item.url}: its queue {item.key!r} comes before it"
    return None


def _is_new(item: Saved, known: set[str | bytes]) -> bool:
    if isinstance(item, SavedTask):
        return item.fingerprint not in known
    return isinstance(item, SavedQueue) and item.key not in known


# ---- items as the script reads them


def _item_row(item: Saved, batch: Batch, rules: VersionedRules) -> list[Any]:
    if isinstance(item, SavedTask):
        return ["task"]
    if isinstance(item, SavedQueue):
        return _queue_item(item, batch, rules)
    if isinstance(item, SavedCrawl):
        numbers, text = crawl_numbers(item.rules), encode_rules(item.rules).decode()
        roots = [[mode, list(found)] for mode, found in item.roots.items()]
        return ["crawl", item.created, item.is_told, numbers, text, item.settings, roots]
    return _end_item(item)


def _queue_item(item: SavedQueue, batch: Batch, rules: VersionedRules) -> list[Any]:
    paused, retired = item.said
    current, _ = rules.of(item.key)
    own = msgspec.structs.replace(current, paused=paused, retired=retired)
    fields: list[Any] = []
    for name, position in _QUEUE_FIELDS.items():
        fields += (position, _plain(name, getattr(item, name)))
    return ["queue", batch.key(item.key), fields, _LIST_STATES[item.standing], batch.rules(own)]


def _end_item(item: SavedEnd) -> list[Any]:
    visits = min(sum(item.outcomes.values()), MAX_NUMBER)
    fields: list[Any] = [_CRAWL_POSITIONS["visits"], visits]
    for name, position in _END_FIELDS.items():
        fields += (position, _plain(name, getattr(item, name)))
    outcomes = [part for name, n in item.outcomes.items() for part in (name, min(n, MAX_NUMBER))]
    return ["end", fields, outcomes, item.timeline, item.logged]


def _plain(name: str, value: Any) -> Any:
    """Return a value as a row has it: no None, and no number that Lua would round."""
    if value is None:
        return _NONE.get(name, -1)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return min(value, MAX_NUMBER) if is_number else value


def _task_row(crawl: str, saved: SavedTask, batch: Batch) -> TaskRow:
    task = task_of(crawl, saved)
    text, split = encode_text(task)
    order = rank_bytes(saved.precedence, saved.priority) + saved.tie.to_bytes(6, "big")
    answer = None if saved.answer is None else Answer(**msgspec.structs.asdict(saved.answer))
    return TaskRow(
        version=ROW,
        state=STATE_NUMBERS[TaskState(saved.state)],
        lane=saved.lane,
        kind=batch.kind(kind_of(task)),
        queue=batch.key(saved.key),
        cost=saved.cost,
        discovered=saved.discovered,
        due=0 if saved.due in (None, saved.discovered) else saved.due,
        roll=saved.roll,
        order=raw(order),
        split=split,
        text=raw(text),
        claimed=_instant(saved.claimed),
        finished=_instant(saved.finished),
        answered=_instant(saved.answered),
        attempts=min(saved.attempts, MAX_NUMBER),
        failures=min(saved.failures, MAX_NUMBER),
        crashes=min(saved.crashes, MAX_NUMBER),
        throttles=min(saved.throttles, MAX_NUMBER),
        reason=False if saved.reason is None else saved.reason,
        history=list(saved.history),
        answer=raw(encode_answer(answer)),
        blocks=min(saved.blocks, MAX_NUMBER),
    )


def _instant(at: int | None) -> int:
    return -1 if at is None else at
