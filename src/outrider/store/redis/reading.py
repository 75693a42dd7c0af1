"""Readers: rows become views here; the server is asked for bounded pages and changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Task
from outrider.errors import InvalidInput
from outrider.store.heads.operate import matcher
from outrider.store.heads.records import Record, new_queue
from outrider.store.heads.views import Waiting, group_of, instant, reads_as, shown, task_view
from outrider.store.heads.workers import Heard, views_of
from outrider.store.protocol import (
    CrawlView,
    Heartbeat,
    Heat,
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
from outrider.store.redis.keys import OF_A_CRAWL
from outrider.store.redis.knowing import crawl_row_of, queue_row_of
from outrider.store.redis.rows import CrawlRow, QueueRow, TaskRow
from outrider.store.redis.ruling import digest_of
from outrider.store.redis.texts import read_kind, row_of, task_of
from outrider.store.redis.views import by_state, pairs, queue_of, record_of, waiting_of
from outrider.store.redis.working import Working

QUEUES_SEEN: Final = 250  # of one call
TASKS_SEEN: Final = 500

_DEPTHS: Final = ("0", "1", "2", "3+", "unknown")

moment_of: Final = msgspec.msgpack.Decoder(tuple[float, str, str]).decode
_change_of: Final = msgspec.msgpack.Decoder(tuple[int, int, str, str, str]).decode
_heard_of: Final = msgspec.msgpack.Decoder(tuple[int, int, str]).decode
_beat_of: Final = msgspec.json.Decoder(Heartbeat).decode


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
            status=row.status,
            reason=None if row.reason is False else row.reason,
            known=row.count,
            **totals,
            held=0 if row.status is CrawlStatus.CANCELLED else row.held,
            visits=row.visits,
            bytes=row.bytes,
            outcomes=outcomes,
            types={name: dict(counts) for name, counts in types.items() if counts},
            tags={name: dict(counts) for name, counts in tags.items() if counts},
            runs=row.runs,
            created_at=row.created / 1000,
            finished_at=instant(row.finished),
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
            (read_kind(kind), by_state(row, counted, int(number))) for kind, number in pairs(kinds)
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
                row[group_of(kind.type)] += pending
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
        return views_of((Heard(_beat_of(beat), first, last) for first, last, beat in heard), now)

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """See `protocol.Inspect`."""
        found = await self.line.run("see_changes", crawl, after, limit)
        log = [_change_of(one) for one in found]
        return [StoreEvent(sequence, at / 1000, *rest) for sequence, at, *rest in log]

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
            upto = min(after + QUEUES_SEEN, after + limit - len(views))
            row, now, shown = await self._shown(crawl, "", after + 1, upto)
            views += await self._views(crawl, row, now, shown)
            after = upto
            if upto >= row.queues:
                return ResultPage(views, None)
            if len(views) >= limit:
                return ResultPage(views, upto)

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
        return shown(row, new_queue(key, 0, 0, rules), Waiting(now, 0, None), now)

    async def _shown(
        self, crawl: str, digest: bytes | str, first: int = 0, last: int = 0
    ) -> tuple[CrawlRow, int, list[Any]]:
        found, now, *shown = await self.line.run("see_queues", crawl, digest, first, last)
        row = CrawlRow(name=crawl, created=now) if found is None else crawl_row_of(found)
        return row, now, shown

    async def _views(self, crawl: str, row: CrawlRow, now: int, told: list[Any]) -> list[QueueView]:
        rows = [queue_row_of(one) for one in told[::4]]
        rules = await self.rulings(crawl, {one.rules for one in rows})
        counts = zip(rows, told[1::4], told[2::4], told[3::4], strict=True)
        return [
            shown(
                row,
                queue_of(one, rules[one.rules], pending),
                waiting_of(one, delayed, url.decode(), now),
                now,
            )
            for one, pending, delayed, url in counts
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

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """See `protocol.Inspect`."""
        row, now, seen = await self._seen(crawl, after + 1, after + limit)
        fits = matcher(row, which, now)
        chosen = [
            task_view(row, one)
            for one in seen
            if which.state in (None, reads_as(row, one)[0]) and fits(one)
        ]
        return ResultPage(chosen, after + limit if after + limit < row.count else None)

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """See `protocol.Inspect`."""
        row, _, seen = await self._named(crawl, fingerprint)
        return next((task_view(row, one) for one in seen), None)

    async def matching(
        self, crawl: str, which: TaskFilter, state: TaskState, *, after: int, limit: int
    ) -> tuple[list[int], int | None]:
        """The numbers of one step over tasks; one named task is found without a search."""
        if which.fingerprint is not None:
            row, now, seen = await self._named(crawl, which.fingerprint)
            more = None
        else:
            row, now, seen = await self._seen(crawl, after + 1, after + limit)
            more = after + limit if after + limit < row.count else None
        if row.status is CrawlStatus.CANCELLED or which.state not in (None, state):
            return [], more
        fits = matcher(row, which, now)
        return [one.number for one in seen if one.state is state and fits(one)], more

    async def _seen(self, crawl: str, first: int, last: int) -> tuple[CrawlRow, int, list[Record]]:
        found: list[Any] = []
        while True:
            upto = min(last, first + TASKS_SEEN - 1)
            row, now, *some = await self.line.run("see_tasks", crawl, "", first, upto)
            found += some
            first = upto + 1
            if first > last or len(some) < 2 * TASKS_SEEN:
                return await self._read(crawl, row, now, found)

    async def _named(self, crawl: str, fingerprint: bytes) -> tuple[CrawlRow, int, list[Record]]:
        row, now, *found = await self.line.run("see_tasks", crawl, fingerprint)
        return await self._read(crawl, row, now, found)

    async def _read(
        self, crawl: str, found: bytes | None, now: int, some: Sequence[Any]
    ) -> tuple[CrawlRow, int, list[Record]]:
        row = CrawlRow(name=crawl, created=now) if found is None else crawl_row_of(found)
        rows = await self.read_tasks(crawl, some[1::2])
        seen = [record_of(row, n, *one) for n, one in zip(some[::2], rows, strict=True)]
        return row, now, seen

    async def read_tasks(self, crawl: str, rows: Sequence[bytes]) -> list[tuple[TaskRow, Task]]:
        """Tasks behind their rows."""
        read = [row_of(row) for row in rows]
        await self.learn_kinds(crawl, {row.kind for row in read})
        keys = await self.keys_of(crawl, {row.queue for row in read})
        return [
            (row, task_of(crawl, row, self.kind(crawl, row.kind), keys[row.queue])) for row in read
        ]

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Pending]:
        """See `protocol.Inspect`."""
        row, now, seen = await self._seen(crawl, after + 1, after + limit)
        fits = matcher(row, which, now)
        chosen = [
            Pending(one.number, one.task)
            for one in seen
            if reads_as(row, one)[0] is TaskState.PENDING
            and which.state in (None, TaskState.PENDING)
            and fits(one)
        ]
        return ResultPage(chosen, after + limit if after + limit < row.count else None)

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """See `protocol.Inspect`."""
        for name in dict.fromkeys((key, key.lower())):
            rows = await self.line.run("see_upcoming", crawl, digest_of(name), limit)
            if rows:
                found = await self.read_tasks(crawl, rows)
                return [Upcoming(task.fingerprint, task.url) for _, task in found]
        return []

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """See `protocol.Inspect`."""
        found, now, *rest = await self.line.run("see_place", crawl, number)
        if found is None:
            raise InvalidInput(f"crawl {crawl!r} has no task {number}")
        ahead, *shown = rest
        views = await self._views(crawl, crawl_row_of(found), now, shown)
        return QueuePosition(ahead, views[0])
