"""The inspector: reads rows in bounded pages and makes views of them; nothing is changed.

A queue's or a task's row becomes the engine's record of it, so that all stores share the code that
makes a view of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from outrider.core.order import NUMBER_BITS, task_key
from outrider.core.policy.rules import QueueRules
from outrider.core.states import UNKNOWN, CrawlStatus, QueueState, TaskState
from outrider.core.task import Task
from outrider.core.worker_totals import WorkerTotals, sum_of_totals
from outrider.errors import InvalidInput
from outrider.store.byte_limits import MAX_RESULT_BYTES, count_within, task_bytes
from outrider.store.engine.admin import matcher
from outrider.store.engine.fields import QUEUE_FIELDS
from outrider.store.engine.journal import LastHeartbeat, worker_views
from outrider.store.engine.records import Queue, TaskCounts, TaskRecord, new_queue
from outrider.store.engine.state import CrawlEvent
from outrider.store.engine.views import (
    PendingTasks,
    add_counts,
    group_of,
    instant,
    lease_matcher,
    lease_view,
    show_queue,
    shown_bands,
    shown_queues,
    shown_state,
    task_view,
)
from outrider.store.event_ring import NumberedBatch, log_page
from outrider.store.protocol import (
    ALL_LEASES,
    CrawlView,
    CursorPage,
    EventBatch,
    EventPage,
    Heartbeat,
    Heat,
    LeaseFilter,
    LeaseView,
    Pending,
    QueuePosition,
    QueueView,
    ResultPage,
    StoreEvent,
    TaskFilter,
    TaskView,
    Upcoming,
    WorkerView,
)
from outrider.store.queue_order import (
    QueueOrder,
    key_cursor,
    key_range,
    validate_order,
    wake_cursor,
    wake_of_cursor,
)
from outrider.store.redis.keys import CRAWL_KEYS
from outrider.store.redis.rows import (
    STATE_NUMBERS,
    STATES,
    CrawlRow,
    QueueRow,
    TaskRow,
    bytes_of,
    decode_crawl_row,
    decode_queue_row,
    decode_task_row,
    politeness_of,
    queue_counts,
)
from outrider.store.redis.rules_cache import RulesCache, digest_of
from outrider.store.redis.script_client import ScriptClient, pairs
from outrider.store.redis.task_codec import Kind, decode_answer, decode_kind, decode_task, tie_of
from outrider.store.validation import validate_limit, validate_page

QUEUES_PER_CALL: Final = 250
TASKS_PER_CALL: Final = 500
MAX_EXAMINED: Final = 10_000  # tasks of a queue whose states one step of a listing compares

LEASES_PER_CALL: Final = 250

_VALUES_PER_LEASE: Final = 5  # that `read_leases` returns: number, task, queue, turn, deadline
_VALUES_PER_QUEUE: Final = 4  # that `read_queues` returns: row, pending, delayed, next URL
_DEPTHS: Final = ("0", "1", "2", "3+", "unknown")

decode_moment: Final = msgspec.msgpack.Decoder(tuple[float, str, str]).decode
_decode_row: Final = msgspec.msgpack.Decoder(tuple[int, str, int, int, int, str]).decode
_decode_batch: Final = msgspec.json.Decoder(EventBatch).decode
_decode_event: Final = msgspec.msgpack.Decoder(CrawlEvent).decode
_decode_worker: Final = msgspec.msgpack.Decoder(tuple[int, int, str]).decode
decode_heartbeat: Final = msgspec.json.Decoder(Heartbeat).decode


def decode_worker(stored: bytes) -> Heartbeat:
    """Return the heartbeat in what is stored of a worker."""
    return decode_heartbeat(_decode_worker(stored)[2])


class Counters(NamedTuple):
    """What is counted of a crawl."""

    row: CrawlRow
    now: int
    kinds: list[tuple[Kind, dict[str, int]]]  # tasks by state, without zeros
    outcomes: dict[str, int]
    timeline: tuple[tuple[float, str, str], ...]


class RedisInspector:
    """Inspect, without `export` and `values_since`; also reads rows for the other parts."""

    def __init__(self, store_id: str, scripts: ScriptClient, cache: RulesCache) -> None:
        self._store_id = store_id
        self._scripts = scripts
        self._cache = cache

    # ---- crawls

    async def crawls(self) -> list[str]:
        """See `protocol.Inspect`."""
        return await self._scripts.crawl_names()

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`."""
        row, _, kinds, outcomes, timeline = await self._counters(crawl)
        totals = {state.value: 0 for state in TaskState}
        types: dict[str, dict[str, int]] = {}
        tags: dict[str, dict[str, int]] = {}
        for kind, counts in kinds:
            add_counts(totals, counts)
            add_counts(types.setdefault(kind.type, {}), counts)
            if kind.tag is not None:
                add_counts(tags.setdefault(kind.tag, {}), counts)
        return CrawlView(
            crawl=crawl,
            status=row.status,
            reason=None if row.reason is False else row.reason,
            known=row.last_task,
            **totals,
            held=0 if row.status is CrawlStatus.CANCELLED else row.retired_pending,
            visits=row.visits,
            bytes=row.bytes,
            outcomes=outcomes,
            types={name: counts for name, counts in types.items() if counts},
            tags={name: counts for name, counts in tags.items() if counts},
            runs=row.runs,
            created_at=row.created / 1000,
            finished_at=instant(row.finished),
            timeline=timeline,
            queues=shown_queues(row, queue_counts(row)),
            bands=shown_bands(row, row.pending, row.critical, row.high, row.low),
            recovered=row.recovered,
        )

    async def _counters(self, crawl: str) -> Counters:
        found, now, *rest = await self._scripts.run("read_crawl", crawl)
        if found is None:
            row = CrawlRow(name=crawl, created=now, status=CrawlStatus.CANCELLED, reason=UNKNOWN)
            return Counters(row, now, [], {}, ())
        row = decode_crawl_row(found)
        kinds, counts, outcomes, timeline = rest
        counted = {int(field): int(count) for field, count in pairs(counts)}
        by_kind = [
            (decode_kind(kind), _counts_by_state(row, counted, int(number)))
            for kind, number in pairs(kinds)
        ]
        by_outcome = {name.decode(): int(count) for name, count in pairs(outcomes)}
        return Counters(row, now, by_kind, by_outcome, tuple(map(decode_moment, timeline)))

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        counters = await self._counters(crawl)
        cells: dict[str, dict[str, int]] = {}
        depth = dict.fromkeys(_DEPTHS, 0)
        for kind, counts in counters.kinds:
            pending = counts.get("pending", 0)
            if pending:
                row = cells.setdefault(kind.origin, {"article": 0, "hub": 0, "other": 0})
                row[group_of(kind.type)] += pending
                depth[_DEPTHS[kind.depth]] += pending
        return Heat(sum(depth.values()), cells, depth, counters.now / 1000)

    async def settings(self, crawl: str) -> str:
        """See `protocol.Inspect`."""
        _, _, *text = await self._scripts.run("read", crawl, "GET", CRAWL_KEYS["settings"])
        return text[0].decode() if text and text[0] else ""

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        key = CRAWL_KEYS["roots"] + mode
        _, _, *found = await self._scripts.run("read", crawl, "ZRANGE", key, after, -1)
        return [root.decode() for root in found[0]] if found else []

    async def workers(self, crawl: str) -> list[WorkerView]:
        """See `protocol.Inspect`."""
        _, now, *found = await self._scripts.run("read", crawl, "HVALS", CRAWL_KEYS["workers"])
        workers = [_decode_worker(one) for one in (found[0] if found else ())]
        return worker_views(
            (LastHeartbeat(decode_heartbeat(text), first, last) for first, last, text in workers),
            now,
        )

    async def worker_totals(self, crawl: str) -> WorkerTotals:
        """See `protocol.Inspect`."""
        workers, gone = await self.stored_workers(crawl)
        heartbeats = [*map(decode_worker, workers), *map(decode_heartbeat, gone)]
        return sum_of_totals(one.totals for one in heartbeats)

    async def stored_worker(self, crawl: str, worker: str) -> bytes:
        """Return what is stored of a worker; empty: nothing."""
        found = await self._scripts.run("read", crawl, "HGET", CRAWL_KEYS["workers"], worker)
        return (found[2] if len(found) > 2 else None) or b""

    async def stored_workers(self, crawl: str) -> tuple[list[bytes], list[bytes]]:
        """Return what is stored of workers, and the heartbeats of removed ones."""
        found = await self._scripts.run("read_workers", crawl)
        return ([], []) if found is None else (found[0], found[1])

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """See `protocol.Inspect`."""
        events = map(_decode_event, await self._scripts.run("read_events", crawl, after, limit))
        return [event.view() for event in events]

    async def event_log(self, crawl: str, *, after: int = 0, limit: int = 1000) -> EventPage:
        """See `protocol.Inspect`."""
        validate_page(after, limit)
        last, own, rows = await self._scripts.run("read_event_log", crawl, after, limit)
        published = [NumberedBatch(row[0], _decode_batch(row[5])) for row in map(_decode_row, rows)]
        return log_page(after, limit, [_decode_event(one).view() for one in own], published, last)

    # ---- queues

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Any]:
        """See `protocol.Inspect`."""
        page = await self.queues(crawl, after=after, limit=limit)
        return ResultPage([view.state for view in page.items], page.after)

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        """See `protocol.Inspect`."""
        views: list[QueueView] = []
        while True:
            upto = min(after + QUEUES_PER_CALL, after + limit - len(views))
            row, now, found = await self._read_queues(crawl, "", after + 1, upto)
            views += await self._queue_views(crawl, row, now, found)
            after = upto
            if upto >= row.last_queue:
                return ResultPage(views, None)
            if len(views) >= limit:
                return ResultPage(views, upto)

    async def queues_in_order(
        self,
        crawl: str,
        order: QueueOrder,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> CursorPage[QueueView]:
        """See `protocol.Inspect`."""
        validate_order(order, prefix, after)
        validate_limit(limit)
        views: list[QueueView] = []
        cursors: list[str] = []
        left = limit + QUEUES_PER_CALL  # of which some may not only wait for time
        more: str | None = after
        while more is not None and len(views) < limit and left > 0:
            span = key_range(prefix, more) if order == "key" else wake_of_cursor(more)
            most = min(QUEUES_PER_CALL, limit - len(views))
            found, now, *rest = await self._scripts.run(
                "read_queues_in_order", crawl, most, order, *span
            )
            if found is None:
                return CursorPage([], [], None)
            more, left = None, left - most
            rows = [decode_queue_row(one) for one in rest[1::_VALUES_PER_QUEUE]]
            shown = await self._queue_views(crawl, decode_crawl_row(found), now, rest[1:])
            for row, view in zip(rows, shown, strict=True):
                more = _cursor_of(row, order)
                if order == "key" or view.state is QueueState.SNOOZED:
                    views.append(view)
                    cursors.append(more)
            more = more if rest[0] else None
        return CursorPage(views, cursors, more)

    async def queue(self, crawl: str, key: str) -> QueueView:
        """See `protocol.Inspect`."""
        row, now, found = await self._read_queues(crawl, digest_of(key))
        if not found and key != key.lower():
            row, now, found = await self._read_queues(crawl, digest_of(key.lower()))
        if found:
            (view,) = await self._queue_views(crawl, row, now, found)
            return view
        return await self._view_of_no_queue(crawl, key, row, now)

    async def _view_of_no_queue(self, crawl: str, key: str, row: CrawlRow, now: int) -> QueueView:
        """Return the view of a key without a queue: an empty queue under its rules."""
        rules = (await self._cache.refresh_crawl_rules(crawl)).rules.of(key)
        return show_queue(row, new_queue(key, 0, 0, rules), PendingTasks(now, 0, None), now)

    async def _read_queues(
        self, crawl: str, digest: bytes | str, first: int = 0, last: int = 0
    ) -> tuple[CrawlRow, int, list[Any]]:
        """Return the crawl's row, the time, and `_VALUES_PER_QUEUE` values per queue."""
        found, now, *values = await self._scripts.run("read_queues", crawl, digest, first, last)
        return self._row_of(crawl, found, now), now, values

    def _row_of(self, crawl: str, found: bytes | None, now: int) -> CrawlRow:
        if found is None:
            return CrawlRow(name=crawl, created=now)
        row = decode_crawl_row(found)
        self._cache.use_crawl(crawl, row.id)
        return row

    async def _queue_views(
        self, crawl: str, row: CrawlRow, now: int, values: list[Any]
    ) -> list[QueueView]:
        rows, *counts = (values[place::_VALUES_PER_QUEUE] for place in range(_VALUES_PER_QUEUE))
        queues = [decode_queue_row(one) for one in rows]
        rules = await self._cache.queue_rules(crawl, {one.rules for one in queues})
        return [
            show_queue(
                row,
                queue_of(one, rules[one.rules], pending),
                _pending_tasks_of(one, delayed, url.decode(), now),
                now,
            )
            for one, pending, delayed, url in zip(queues, *counts, strict=True)
        ]

    async def queue_rows(
        self, crawl: str, first: int, last: int
    ) -> tuple[CrawlRow, list[QueueRow]]:
        """Return the rows of queues by number, and of their crawl."""
        row, _, found = await self._read_queues(crawl, "", first, last)
        return row, [decode_queue_row(one) for one in found[::_VALUES_PER_QUEUE]]

    async def find_queue(self, crawl: str, key: str) -> list[QueueRow]:
        """Return the queue of that key, or of the same in lower case; or none."""
        for name in dict.fromkeys((key, key.lower())):
            _, _, found = await self._read_queues(crawl, digest_of(name))
            if found:
                return [decode_queue_row(found[0])]
        return []

    # ---- tasks

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """See `protocol.Inspect`."""
        row, now, records, more = await self._read_range(crawl, after, limit)
        fits = matcher(row, which, now)
        chosen = [
            task_view(row, one)
            for one in records
            if which.state in (None, shown_state(row, one)[0]) and fits(one)
        ]
        return ResultPage(chosen, more)

    async def queue_tasks(
        self,
        crawl: str,
        key: str,
        *,
        state: TaskState | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[TaskView]:
        """See `protocol.Inspect`."""
        validate_page(after, limit)
        for name in dict.fromkeys((key, key.lower())):
            page = await self._queue_tasks(crawl, digest_of(name), state, after, limit)
            if page is not None:
                return page
        return ResultPage([], None)

    async def _queue_tasks(
        self, crawl: str, digest: bytes, state: TaskState | None, after: int, limit: int
    ) -> ResultPage[TaskView] | None:
        """Return a page of the tasks of a queue; None if there is no such queue."""
        views: list[TaskView] = []
        wanted, left = -1 if state is None else STATE_NUMBERS[state], MAX_EXAMINED
        room = MAX_RESULT_BYTES
        while True:
            span = (after, limit - len(views), wanted, min(left, TASKS_PER_CALL), room)
            found, now, *rest = await self._scripts.run("read_queue_tasks", crawl, digest, *span)
            if not rest or rest[0] < 0:
                return None
            row, _, records = await self._records(crawl, found, now, rest[3:])
            shown = [task_view(row, one) for one in records]
            views += [view for view in shown if state in (None, view.state)]
            after, left, room = rest[1], left - rest[0], rest[2]
            if not after or len(views) >= limit or left <= 0 or room <= 0:
                return ResultPage(views, after or None)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`."""
        row, _, records = await self._read_one(crawl, fingerprint)
        return next((task_view(row, one) for one in records), None)

    async def matching(
        self, crawl: str, which: TaskFilter, state: TaskState | None, *, after: int, limit: int
    ) -> tuple[list[int], int | None]:
        """Return the numbers of matching tasks of one step, and its cursor.

        `state` is the one they must have; None: any, but those that are forgotten already (C10).
        """
        if which.fingerprint is not None:
            row, now, records = await self._read_one(crawl, which.fingerprint)
            more = None
        else:
            row, now, records, more = await self._read_range(crawl, after, limit)
        if row.status is CrawlStatus.CANCELLED or which.state not in (None, state):
            return [], more
        fits = matcher(row, which, now)
        chosen = [one for one in records if (state or one.state) is one.state and fits(one)]
        return [one.number for one in chosen if not one.is_forgotten()], more

    async def _read_range(
        self, crawl: str, after: int, limit: int
    ) -> tuple[CrawlRow, int, list[TaskRecord], int | None]:
        """Return the crawl's row, the time, tasks, at most a page (M2), and the next cursor."""
        found: list[Any] = []
        last, room = after + limit, MAX_RESULT_BYTES
        while True:
            span = (after + 1, min(last, after + TASKS_PER_CALL), room)
            content, now, room, *some = await self._scripts.run("read_tasks", crawl, "", *span)
            found += some
            after = some[-2] if some and room <= 0 else span[1]
            if after >= last or room <= 0 or len(some) < 2 * TASKS_PER_CALL:
                row, now, records = await self._records(crawl, content, now, found)
                return row, now, records, after if after < row.last_task else None

    async def _read_one(
        self, crawl: str, fingerprint: bytes
    ) -> tuple[CrawlRow, int, list[TaskRecord]]:
        """Return the crawl's row, the time, and the task of that fingerprint, if there is one."""
        row, now, _, *found = await self._scripts.run("read_tasks", crawl, fingerprint)
        return await self._records(crawl, row, now, found)

    async def _records(
        self, crawl: str, found: bytes | None, now: int, some: Sequence[Any]
    ) -> tuple[CrawlRow, int, list[TaskRecord]]:
        row = self._row_of(crawl, found, now)
        rows = await self.decode_tasks(crawl, some[1::2])
        numbered = zip(some[::2], rows, strict=True)
        return row, now, [record_of(row, number, *one) for number, one in numbered]

    async def decode_tasks(self, crawl: str, rows: Sequence[bytes]) -> list[tuple[TaskRow, Task]]:
        """Return tasks and their rows; their kinds and keys are read if they are not cached."""
        decoded = [decode_task_row(row) for row in rows]
        await self._cache.load_kinds(crawl, {row.kind for row in decoded})
        keys = await self._cache.keys(crawl, {row.queue for row in decoded})
        return [
            (row, decode_task(crawl, row, self._cache.kind(crawl, row.kind), keys[row.queue]))
            for row in decoded
        ]

    async def leases(
        self,
        crawl: str,
        which: LeaseFilter = ALL_LEASES,
        *,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[LeaseView]:
        """See `protocol.Inspect`."""
        validate_page(after, limit)
        if which.task is not None or which.fingerprint is not None:
            if which.task is not None and not 0 < which.task < 1 << NUMBER_BITS:
                return ResultPage([], None)
            now, found = await self._read_leases(
                crawl, "" if which.task is None else which.task, which.fingerprint or b""
            )
            views, more = [view for _, view in found], None
        else:
            now, views, more = await self._lease_page(crawl, after, limit)
        fits = lease_matcher(which, now)
        return ResultPage([view for view in views if fits(view)], more)

    async def _lease_page(
        self, crawl: str, after: int, limit: int
    ) -> tuple[int, list[LeaseView], int | None]:
        """Return the time, the next leases, and the turn to go on from; None: no more."""
        views: list[LeaseView] = []
        room = MAX_RESULT_BYTES
        while True:
            most = min(LEASES_PER_CALL, limit - len(views))
            now, found = await self._read_leases(crawl, "", b"", after, most + 1)
            count = count_within((task_bytes(view.lease.about) for _, view in found[:most]), room)
            views += [view for _, view in found[:count]]
            room -= sum(task_bytes(view.lease.about) for _, view in found[:count])
            if count < len(found) and room <= 0:
                return now, views, found[count - 1][0]
            if len(found) <= most:
                return now, views, None
            after, _ = found[most - 1]
            if len(views) == limit:
                return now, views, after

    async def _read_leases(
        self, crawl: str, task: int | str, fingerprint: bytes, after: int = 0, limit: int = 0
    ) -> tuple[int, list[tuple[int, LeaseView]]]:
        """Return the time, and leases with their turns."""
        args = (task, fingerprint, after, limit)
        row, now, *found = await self._scripts.run("read_leases", crawl, *args)
        if not found:
            return now, []
        parts = [found[place::_VALUES_PER_LEASE] for place in range(_VALUES_PER_LEASE)]
        numbers, tasks, queues, turns, deadlines = parts
        decoded, crawl_row = await self.decode_tasks(crawl, tasks), decode_crawl_row(row)
        queue_rows = [decode_queue_row(queue) for queue in queues]
        rules = await self._cache.queue_rules(crawl, {queue.rules for queue in queue_rows})
        leases = []
        for place, (number, queue) in enumerate(zip(numbers, queue_rows, strict=True)):
            record = record_of(crawl_row, number, *decoded[place])
            record.deadline = int(deadlines[place])
            manners = politeness_of(queue)
            view = lease_view(self._store_id, record, rules[queue.rules], manners, now)
            leases.append((int(turns[place]), view))
        return now, leases

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Pending]:
        """See `protocol.Inspect`."""
        row, now, records, more = await self._read_range(crawl, after, limit)
        fits = matcher(row, which, now)
        chosen = [
            Pending(one.number, one.task)
            for one in records
            if shown_state(row, one)[0] is TaskState.PENDING
            and which.state in (None, TaskState.PENDING)
            and fits(one)
        ]
        return ResultPage(chosen, more)

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """See `protocol.Inspect`."""
        for name in dict.fromkeys((key, key.lower())):
            number, *rows = await self._scripts.run("read_upcoming", crawl, digest_of(name), limit)
            if rows:
                self._cache.use_crawl(crawl, number)
                found = await self.decode_tasks(crawl, rows)
                return [Upcoming(task.fingerprint, task.url) for _, task in found]
        return []

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """See `protocol.Inspect`."""
        found, now, *rest = await self._scripts.run("read_position", crawl, number)
        if found is None:
            raise InvalidInput(f"crawl {crawl!r} has no task {number}")
        ahead, *values = rest
        (view,) = await self._queue_views(crawl, self._row_of(crawl, found, now), now, values)
        return QueuePosition(ahead, view)


def _cursor_of(row: QueueRow, order: QueueOrder) -> str:
    return key_cursor(row.key) if order == "key" else wake_cursor(row.wake_at, row.number)


def _counts_by_state(row: CrawlRow, counted: dict[int, int], kind: int) -> dict[str, int]:
    """O5, I3: a cancelled crawl's pending and leased tasks are reported as dropped."""
    counts = {state.value: counted.get(kind * 8 + number, 0) for number, state in enumerate(STATES)}
    if row.status is CrawlStatus.CANCELLED:
        counts["dropped"] += counts["pending"] + counts["leased"]
        counts["pending"] = counts["leased"] = 0
    return {name: count for name, count in counts.items() if count}


# ---- rows as the engine's records

# Fields that `queue_of` sets otherwise than by copying them.
_CONVERTED: Final = {"key", "number", "turn", "retired"}
_COPIED: Final = tuple(
    field.name
    for field in QUEUE_FIELDS
    if field.name in QueueRow.__struct_fields__ and field.name not in _CONVERTED
)
# Of a record that is only read: it is in no queue, and counted nowhere.
_NO_QUEUE: Final = new_queue("", 0, 0, QueueRules())
_NO_COUNTS: Final = TaskCounts("", None, "", 0, [])


def queue_of(row: QueueRow, rules: QueueRules, pending: int = 0) -> Queue:
    """Return the engine's queue of a row, without its tasks."""
    queue = new_queue(row.key, row.number, row.turn, rules)
    for name in _COPIED:
        setattr(queue, name, getattr(row, name))
    queue.retired, queue.pending = row.retired or None, pending
    queue.politeness = politeness_of(row)
    return queue


def _pending_tasks_of(row: QueueRow, delayed: int, url: str, now: int) -> PendingTasks:
    """Return what the sorted sets of a queue hold, as far as a view shows it."""
    has_due = bytes_of(row.top0) or bytes_of(row.top1)
    return PendingTasks(now if has_due or row.next_due < 0 else row.next_due, delayed, url or None)


def record_of(crawl: CrawlRow, number: int, row: TaskRow, task: Task) -> TaskRecord:
    """Return the engine's record of a task, to read."""
    discovered = crawl.created + row.discovered
    return TaskRecord(
        number=number,
        task=task,
        queue=_NO_QUEUE,
        counts=_NO_COUNTS,
        key=task_key(task.precedence, task.priority, tie_of(row), number),
        due=row.due or discovered,
        discovered=discovered,
        state=STATES[row.state],
        token=row.token,
        attempts=row.attempts,
        failures=row.failures,
        crashes=row.crashes,
        throttles=row.throttles,
        claimed=row.claimed,
        finished=row.finished,
        reason=None if row.reason is False else row.reason,
        worker=row.worker,
        answer=decode_answer(row),
        history=tuple(row.history),
        answered=row.answered,
        drawn=row.drawn,
        leased=row.leased,
        lasts=row.lasts,
        lease_turn=row.lease_turn,
        named=row.named,
        loaned=row.loaned,
        blocks=row.blocks,
    )
