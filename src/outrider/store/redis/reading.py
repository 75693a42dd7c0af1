"""Readers: rows become views here; the server is asked for bounded pages and changes nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from outrider.clock import to_ms
from outrider.core.policy.politeness import least_delay
from outrider.core.policy.rules import QueueRules, covers
from outrider.core.policy.score import breakdown_of
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import LANES, Task
from outrider.errors import InvalidInput
from outrider.store.protocol import (
    WORKER_KEPT,
    Beat,
    Change,
    CrawlView,
    Heat,
    Page,
    Place,
    QueueView,
    TaskView,
    Upcoming,
    Which,
    WorkerView,
)
from outrider.store.redis.keys import OF_A_CRAWL
from outrider.store.redis.knowing import crawl_row_of, queue_row_of
from outrider.store.redis.rows import ROW, CrawlRow, QueueRow, TaskRow
from outrider.store.redis.ruling import digest_of
from outrider.store.redis.texts import STATES, Kind, answer_of, read_kind, row_of, task_of
from outrider.store.redis.working import Working

QUEUES_SEEN: Final = 250  # of one call
TASKS_SEEN: Final = 500

_HUBS: Final = frozenset({"hub", "hub-seed", "nav"})
_DEPTHS: Final = ("0", "1", "2", "3+", "unknown")
_OPEN: Final = (TaskState.PENDING, TaskState.LEASED)
_INACTIVE: Final = 2

moment_of: Final = msgspec.msgpack.Decoder(tuple[float, str, str]).decode
_change_of: Final = msgspec.msgpack.Decoder(tuple[int, int, str, str, str]).decode
_heard_of: Final = msgspec.msgpack.Decoder(tuple[int, int, str]).decode
_beat_of: Final = msgspec.json.Decoder(Beat).decode

Seen: TypeAlias = tuple[int, TaskRow, Task]  # a task: its number, what happened to it, what it is


class Reading(Working):
    """Inspect."""

    # ---- crawls

    async def crawl(self, crawl: str) -> CrawlView:
        """See `protocol.Inspect`."""
        row, kinds, outcomes, timeline, _ = await self._counted(crawl)
        totals: Counter[str] = Counter({state.value: 0 for state in TaskState})
        types: dict[str, Counter[str]] = {}
        tags: dict[str, Counter[str]] = {}
        for kind, counts in kinds:
            totals.update(counts)
            types.setdefault(kind.type, Counter()).update(counts)
            if kind.tag is not None:
                tags.setdefault(kind.tag, Counter()).update(counts)
        return CrawlView(
            crawl=crawl,
            status=CrawlStatus(row.status),
            reason=None if row.reason is False else row.reason,
            known=row.count,
            **totals,
            held=0 if row.status == CrawlStatus.CANCELLED else row.held,
            visits=row.visits,
            bytes=row.bytes,
            outcomes=outcomes,
            types={name: dict(counts) for name, counts in types.items() if counts},
            tags={name: dict(counts) for name, counts in tags.items() if counts},
            runs=row.runs,
            created_at=row.created / 1000,
            finished_at=_instant(row.finished),
            timeline=timeline,
        )

    async def _counted(self, crawl: str) -> tuple[CrawlRow, list[Any], dict[str, int], Any, int]:
        """A crawl's row, its counts by kind, its outcomes, its timeline, and the moment."""
        found, now, *rest = await self.line.run("see_crawl", crawl)
        if found is None:
            return CrawlRow(name=crawl, created=now), [], {}, (), now
        row = crawl_row_of(found)
        kinds, counts, outcomes, timeline = rest
        counted = {int(field): int(count) for field, count in pairs(counts)}
        by_kind = [
            (read_kind(kind), _by_state(row, counted, int(number))) for kind, number in pairs(kinds)
        ]
        told = {name.decode(): int(count) for name, count in pairs(outcomes)}
        return row, by_kind, told, tuple(map(moment_of, timeline)), now

    async def heatmap(self, crawl: str) -> Heat:
        """See `protocol.Inspect`."""
        _, kinds, _, _, now = await self._counted(crawl)
        cells: dict[str, dict[str, int]] = {}
        depth = dict.fromkeys(_DEPTHS, 0)
        for kind, counts in kinds:
            pending = counts.get("pending", 0)
            if pending:
                row = cells.setdefault(kind.origin, {"article": 0, "hub": 0, "other": 0})
                row[_group(kind)] += pending
                depth[_DEPTHS[kind.depth]] += pending
        return Heat(sum(depth.values()), cells, depth, now / 1000)

    async def settings(self, crawl: str) -> str:
        """See `protocol.Inspect`."""
        _, _, *text = await self.line.run("see", crawl, "GET", OF_A_CRAWL["settings"])
        return text[0].decode() if text and text[0] else ""

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """See `protocol.Inspect`."""
        key = OF_A_CRAWL["roots"] + mode
        _, _, *found = await self.line.run("see", crawl, "ZRANGE", key, after, -1)
        return [root.decode() for root in found[0]] if found else []

    async def workers(self, crawl: str) -> list[WorkerView]:
        """See `protocol.Inspect`."""
        _, now, *found = await self.line.run("see", crawl, "HVALS", OF_A_CRAWL["workers"])
        heard = [_heard_of(one) for one in (found[0] if found else ())]
        kept = [(first, last, _beat_of(beat)) for first, last, beat in heard]
        kept = [one for one in kept if now - one[1] < to_ms(WORKER_KEPT)]
        kept.sort(key=lambda one: (one[0], one[2].worker))
        return [_worker_view(*one, now) for one in kept]

    async def changes(self, crawl: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """See `protocol.Inspect`."""
        found = await self.line.run("see_changes", crawl, after, limit)
        log = [_change_of(one) for one in found]
        return [Change(sequence, at / 1000, *rest) for sequence, at, *rest in log]

    # ---- queues

    async def census(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        page = await self.queues(crawl, after=after, limit=limit)
        return Page([view.state for view in page.items], page.after)

    async def queues(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        views: list[QueueView] = []
        while True:
            upto = min(after + QUEUES_SEEN, after + limit - len(views))
            row, now, shown = await self._shown(crawl, "", after + 1, upto)
            views += await self._views(crawl, row, now, shown)
            after = upto
            if upto >= row.queues:
                return Page(views, None)
            if len(views) >= limit:
                return Page(views, upto)

    async def queue(self, crawl: str, key: str) -> QueueView:
        """See `protocol.Inspect`."""
        row, now, shown = await self._shown(crawl, digest_of(key))
        if not shown and key != key.lower():
            row, now, shown = await self._shown(crawl, digest_of(key.lower()))
        if shown:
            return (await self._views(crawl, row, now, shown))[0]
        return await self._unborn_view(crawl, key, row, now)

    async def _unborn_view(self, crawl: str, key: str, row: CrawlRow, now: int) -> QueueView:
        rules = (await self.learn_rules(crawl)).rules.of(key)
        retired = "operator" if rules.retired else ""
        unborn = QueueRow(ROW, key, 0, 0, 0, rules.paused, retired)
        return queue_view(row, unborn, rules, Waiting(0, 0, ""), now)

    async def _shown(
        self, crawl: str, digest: bytes | str, first: int = 0, last: int = 0
    ) -> tuple[CrawlRow, int, list[Any]]:
        found, now, *shown = await self.line.run("see_queues", crawl, digest, first, last)
        row = CrawlRow(name=crawl, created=now) if found is None else crawl_row_of(found)
        return row, now, shown

    async def _views(
        self, crawl: str, row: CrawlRow, now: int, shown: list[Any]
    ) -> list[QueueView]:
        rows = [queue_row_of(one) for one in shown[::4]]
        rules = await self.rulings(crawl, {one.rules for one in rows})
        return [
            queue_view(row, one, rules[one.rules], Waiting(pending, delayed, url.decode()), now)
            for one, pending, delayed, url in zip(
                rows, shown[1::4], shown[2::4], shown[3::4], strict=True
            )
        ]

    async def queue_rows(
        self, crawl: str, first: int, last: int
    ) -> tuple[CrawlRow, list[QueueRow]]:
        """The rows of a page of queues, and of their crawl."""
        row, _, shown = await self._shown(crawl, "", first, last)
        return row, [queue_row_of(one) for one in shown[::4]]

    async def find_queue(self, crawl: str, key: str) -> list[QueueRow]:
        """The queue of that key, or of the same in lower case; or none."""
        for name in dict.fromkeys((key, key.lower())):
            _, _, shown = await self._shown(crawl, digest_of(name))
            if shown:
                return [queue_row_of(shown[0])]
        return []

    # ---- tasks

    async def tasks(self, crawl: str, which: Which, *, after: int = 0, limit: int = 1000) -> Page:
        """See `protocol.Inspect`."""
        row, now, seen = await self._seen(crawl, after + 1, after + limit)
        fits = matcher(row, which, now)
        chosen = [
            task_view(row, *one)
            for one in seen
            if which.state in (None, reads_as(row, one[1])[0]) and fits(one)
        ]
        return Page(chosen, after + limit if after + limit < row.count else None)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`."""
        row, _, seen = await self._named(crawl, fingerprint)
        return next((task_view(row, *one) for one in seen), None)

    async def matching(
        self, crawl: str, which: Which, state: TaskState, *, after: int, limit: int
    ) -> tuple[list[int], int | None]:
        """The numbers of one step over tasks; one named task is found without a search."""
        if which.fingerprint is not None:
            row, now, seen = await self._named(crawl, which.fingerprint)
            more = None
        else:
            row, now, seen = await self._seen(crawl, after + 1, after + limit)
            more = after + limit if after + limit < row.count else None
        if row.status == CrawlStatus.CANCELLED or which.state not in (None, state):
            return [], more
        fits = matcher(row, which, now)
        return [one[0] for one in seen if STATES[one[1].state] is state and fits(one)], more

    async def _seen(self, crawl: str, first: int, last: int) -> tuple[CrawlRow, int, list[Seen]]:
        found: list[Any] = []
        while True:
            upto = min(last, first + TASKS_SEEN - 1)
            row, now, *some = await self.line.run("see_tasks", crawl, "", first, upto)
            found += some
            first = upto + 1
            if first > last or len(some) < 2 * TASKS_SEEN:
                return await self._read(crawl, row, now, found)

    async def _named(self, crawl: str, fingerprint: bytes) -> tuple[CrawlRow, int, list[Seen]]:
        row, now, *found = await self.line.run("see_tasks", crawl, fingerprint)
        return await self._read(crawl, row, now, found)

    async def _read(
        self, crawl: str, found: bytes | None, now: int, some: Sequence[Any]
    ) -> tuple[CrawlRow, int, list[Seen]]:
        row = CrawlRow(name=crawl, created=now) if found is None else crawl_row_of(found)
        rows = await self.read_tasks(crawl, some[1::2])
        seen = [(number, *one) for number, one in zip(some[::2], rows, strict=True)]
        return row, now, seen

    async def read_tasks(self, crawl: str, rows: Sequence[bytes]) -> list[tuple[TaskRow, Task]]:
        """Tasks behind their rows."""
        read = [row_of(row) for row in rows]
        await self.learn_kinds(crawl, {row.kind for row in read})
        keys = await self.keys_of(crawl, {row.queue for row in read})
        return [
            (row, task_of(crawl, row, self.kind(crawl, row.kind), keys[row.queue])) for row in read
        ]

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """See `protocol.Inspect`."""
        for name in dict.fromkeys((key, key.lower())):
            rows = await self.line.run("see_upcoming", crawl, digest_of(name), limit)
            if rows:
                found = await self.read_tasks(crawl, rows)
                return [Upcoming(task.fingerprint, task.url) for _, task in found]
        return []

    async def place(self, crawl: str, number: int) -> Place:
        """See `protocol.Inspect`."""
        found, now, *rest = await self.line.run("see_place", crawl, number)
        if found is None:
            raise InvalidInput(f"crawl {crawl!r} has no task {number}")
        ahead, *shown = rest
        views = await self._views(crawl, crawl_row_of(found), now, shown)
        return Place(ahead, views[0])


def pairs(found: Any) -> list[tuple[Any, Any]]:
    """A hash as a script tells it."""
    return list(zip(found[::2], found[1::2], strict=True))


def _by_state(row: CrawlRow, counted: dict[int, int], kind: int) -> dict[str, int]:
    """O5, I3: a cancelled crawl's pending and leased tasks read as dropped."""
    counts = {state.value: counted.get(kind * 8 + column, 0) for column, state in enumerate(STATES)}
    if row.status == CrawlStatus.CANCELLED:
        counts["dropped"] += counts["pending"] + counts["leased"]
        counts["pending"] = counts["leased"] = 0
    return {name: count for name, count in counts.items() if count}


def _group(kind: Kind) -> str:
    if kind.type == "article":
        return "article"
    return "hub" if kind.type in _HUBS else "other"


def _worker_view(first: int, last: int, beat: Beat, now: int) -> WorkerView:
    said = msgspec.structs.asdict(beat)
    if now - last >= to_ms(said.pop("lasts")):
        said["state"] = "gone"
    return WorkerView(**said, started_at=first / 1000, seen_at=last / 1000)


# ---- a queue


class Waiting(NamedTuple):
    """What waits in a queue: how many, how many of them are not due, and where the next leads."""

    pending: int
    delayed: int
    url: str


def state_of(
    row: CrawlRow, queue: QueueRow, slots: int, pending: int, now: int
) -> tuple[QueueState, str | None]:
    """C1: the first that holds."""
    if queue.retired:
        return QueueState.RETIRED, queue.retired
    if queue.paused:
        return QueueState.PAUSED, "operator"
    is_over = row.status == CrawlStatus.CANCELLED
    if is_over or not (pending or queue.in_flight or queue.named):
        return QueueState.EMPTY, None
    if queue.lent or queue.in_flight >= slots or not pending:
        return QueueState.BUSY, None
    if _first_due(queue, now) > max(now, queue.next_ready):
        return QueueState.SNOOZED, "waiting"
    if queue.next_ready > now:
        return QueueState.SNOOZED, queue.why
    return QueueState.INACTIVE if queue.standing == _INACTIVE else QueueState.READY, None


def _first_due(queue: QueueRow, now: int) -> int:
    """When the earliest task is due; anything up to now is as good as now."""
    has_due = len(bytes(queue.top0)) > 1 or len(bytes(queue.top1)) > 1
    return now if has_due or queue.soon < 0 else queue.soon


def queue_view(
    row: CrawlRow, queue: QueueRow, rules: QueueRules, waiting: Waiting, now: int
) -> QueueView:
    """E8."""
    manners, budget = rules.politeness, rules.budget
    state, reason = state_of(row, queue, manners.max_in_flight, waiting.pending, now)
    is_over, in_flight = row.status == CrawlStatus.CANCELLED, queue.in_flight + queue.named
    return QueueView(
        key=queue.key,
        state=state,
        reason=reason,
        pending=0 if is_over else waiting.pending,
        delayed=0 if is_over else waiting.delayed,
        in_flight=0 if is_over else in_flight,
        named=0 if is_over else queue.named,
        precedence=rules.precedence,
        balance=max(0, budget.balance - queue.session) if queue.session >= 0 else 0,
        grant=budget.balance,
        spent=queue.spent,
        total_budget=budget.total_budget,
        last_cost=queue.last_cost,
        average_cost=queue.cost_sum / queue.cost_count if queue.cost_count else 0.0,
        done=queue.done,
        dead=queue.dead,
        dropped=queue.dropped + (waiting.pending + in_flight if is_over else 0),
        bytes=queue.bytes,
        errors_in_row=queue.errors,
        level=queue.level,
        delay=delay_ms(queue, rules) / 1000,
        max_in_flight=manners.max_in_flight,
        last_visit_at=_instant(queue.last_end),
        wakes_in=_wakes_in(queue, state, now),
        next_url=None if is_over else waiting.url or None,
        lent=0 if is_over else queue.lent,
    )


def delay_ms(queue: QueueRow, rules: QueueRules) -> int:
    """D7: the last delay, or the least if none."""
    if queue.last_delay >= 0:
        return to_ms(queue.last_delay)
    return to_ms(least_delay(rules.politeness, queue.crawl_delay))


def _wakes_in(queue: QueueRow, state: QueueState, now: int) -> float | None:
    if state in (QueueState.READY, QueueState.INACTIVE):
        return 0.0
    if state is not QueueState.SNOOZED:
        return None
    return (max(queue.next_ready, _first_due(queue, now)) - now) / 1000


# ---- a task


def reads_as(row: CrawlRow, task: TaskRow) -> tuple[TaskState, str | None]:
    """I3: a cancelled crawl's pending and leased tasks read as dropped."""
    state = STATES[task.state]
    if row.status == CrawlStatus.CANCELLED and state in _OPEN:
        return TaskState.DROPPED, "cancelled"
    return state, None if task.reason is False else task.reason


def task_view(row: CrawlRow, number: int, kept: TaskRow, task: Task) -> TaskView:
    """B1."""
    state, reason = reads_as(row, kept)
    discovered = row.created + kept.discovered
    return TaskView(
        number=number,
        url=task.url,
        key=task.key,
        fingerprint=task.fingerprint,
        state=state,
        type=task.type,
        lane=LANES[task.lane],
        depth=task.depth,
        precedence=task.precedence,
        priority=task.priority,
        breakdown=breakdown_of(task),
        cost=task.cost,
        origin=task.origin,
        via=task.via,
        tag=task.tag,
        meta=msgspec.json.decode(task.meta) if task.meta else {},
        attempts=kept.attempts,
        failures=kept.failures,
        crashes=kept.crashes,
        reason=reason,
        worker=kept.worker if state is TaskState.LEASED else None,
        discovered_at=discovered / 1000,
        due_at=(kept.due or discovered) / 1000 if state in _OPEN else None,
        claimed_at=_instant(kept.claimed),
        finished_at=_instant(kept.finished),
        answer=answer_of(kept),
        history=tuple(kept.history),
    )


def matcher(row: CrawlRow, which: Which, now: int) -> Callable[[Seen], bool]:
    """C10: all that match every field given, as they read (I3)."""
    tests = list(_tests(row, which, now))
    return lambda seen: all(test(seen) for test in tests)


def _tests(row: CrawlRow, which: Which, now: int) -> Iterator[Callable[[Seen], bool]]:
    if which.key is not None:
        key = which.key
        yield lambda seen: covers(key, seen[2].key)
    for name in ("fingerprint", "url", "type", "tag"):
        wanted = getattr(which, name)
        if wanted is not None:
            yield lambda seen, name=name, wanted=wanted: getattr(seen[2], name) == wanted  # type: ignore[misc] # a lambda's defaults have no types
    if which.reason is not None:
        yield lambda seen: reads_as(row, seen[1])[1] == which.reason
    if which.pattern is not None:
        search = re.compile(which.pattern).search
        yield lambda seen: search(seen[2].url) is not None
    if which.older_than is not None:
        oldest = now - which.older_than * 1000
        yield lambda seen: row.created + seen[1].discovered < oldest


def _instant(at: int) -> float | None:
    return None if at < 0 else at / 1000
