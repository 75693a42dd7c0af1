"""A crawl comes back from what was saved of it, in calls of bounded size (I5).

A batch is judged whole before the first of its calls; what is known is left alone, so a restore
that was cut off may be begun again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from outrider.core.outcome import Answer
from outrider.core.states import CrawlStatus
from outrider.errors import InvalidInput
from outrider.store.redis.calling import encode
from outrider.store.redis.knowing import crawl_row_of
from outrider.store.redis.rows import ROW, CrawlRow, QueueRow, TaskRow, raw
from outrider.store.redis.ruling import Batch, Rulebook, crawl_numbers, digest_of, rules_text
from outrider.store.redis.saving import Saving
from outrider.store.redis.texts import STATES, answer_text, kind_of, rank_of, text_of
from outrider.store.saved import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
    checked,
    task_of,
)

ITEMS_A_CALL: Final = 250
MOST: Final = 2**53  # Lua's numbers are exact up to here

_STOOD: Final = {None: 0, "ready": 1, "inactive": 2}
_COLUMNS: Final = {state.value: column for column, state in enumerate(STATES)}
_QUEUE_FIELDS: Final = {name: place for place, name in enumerate(QueueRow.__struct_fields__, 1)}
_CRAWL_FIELDS: Final = {name: place for place, name in enumerate(CrawlRow.__struct_fields__, 1)}
_SAME_OF_A_QUEUE: Final = tuple(
    name
    for name in SavedQueue.__struct_fields__
    if name in _QUEUE_FIELDS and name not in ("key", "standing")
)
_SAME_OF_A_CRAWL: Final = (
    *("status", "reason", "at_finish", "counter", "arrivals", "dones", "bytes", "runs"),
    *("first", "finished"),
)
_NONE: Final = {"retired": "", "session": -1, "last_delay": -1.0, "reason": False}


class Restoring(Saving):
    """How a crawl comes back."""

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """See `protocol.Admin`."""
        checked(saved)
        if not saved:
            return 0
        refusal, is_open = await self._judged(crawl, saved)
        if refusal is not None:
            raise InvalidInput(refusal)
        if not is_open:  # all of it is there
            return 0
        return sum([await self._restore_some(crawl, part) for part in _parts(saved)])

    async def _judged(self, crawl: str, saved: Sequence[Saved]) -> tuple[str | None, bool]:
        """Why this cannot be taken in, or None; and whether the crawl takes anything in."""
        keys = {item.key for item in saved if isinstance(item, SavedQueue | SavedTask)}
        names = {item.fingerprint for item in saved if isinstance(item, SavedTask)}
        row, known = await self._known(crawl, sorted(keys), sorted(names))
        begins, is_restoring = isinstance(saved[0], SavedCrawl), _is_restoring(row)
        fault = _fault_of_beginning(row, saved[0]) if isinstance(saved[0], SavedCrawl) else None
        fault = fault or _fault_of_order(saved) or _fault_of_strangers(saved, known)
        is_open = begins or is_restoring
        if fault is None and not is_open and any(_is_strange(item, known) for item in saved):
            fault = f"crawl {crawl!r} is not being restored: its SavedCrawl comes first"
        return fault, is_open

    async def _known(
        self, crawl: str, keys: list[str], names: list[bytes]
    ) -> tuple[CrawlRow, set[str | bytes]]:
        """The crawl's row, and which of these keys and fingerprints it knows."""
        known: set[str | bytes] = set()
        wanted: list[str | bytes] = [*keys, *names]
        row = CrawlRow(name=crawl)
        for start in range(0, max(1, len(wanted)), ITEMS_A_CALL):
            part = wanted[start : start + ITEMS_A_CALL]
            digests = [digest_of(one) for one in part if isinstance(one, str)]
            ids = [one for one in part if isinstance(one, bytes)]
            found, _, *told = await self.line.run("see_known", crawl, len(digests), *digests, *ids)
            row = row if found is None else crawl_row_of(found)
            known.update(one for one, is_known in zip(part, told, strict=False) if is_known)
        return row, known

    async def _restore_some(self, crawl: str, saved: Sequence[Saved]) -> int:
        while True:
            book = await self.learn_rules(crawl)
            batch = Batch(book)
            pairs: list[bytes] = []
            items = [_item(item, batch, book) for item in saved]
            for item in saved:
                if isinstance(item, SavedTask):
                    pairs += (item.fingerprint, encode(_task_row(crawl, item, batch)))
            common = batch.written()
            count = await self.line.run(
                "restore", crawl, common, encode(items), *pairs, epoch=book.epoch
            )
            if count is not None and count < 0:
                raise InvalidInput(f"crawl {crawl!r} is not being restored any more")
            if count is not None:
                return int(count)


def _parts(saved: Sequence[Saved]) -> Iterator[Sequence[Saved]]:
    """The crawl alone, since other rules hold from then on."""
    start = 0
    if isinstance(saved[0], SavedCrawl):
        yield saved[:1]
        start = 1
    for at in range(start, len(saved), ITEMS_A_CALL):
        yield saved[at : at + ITEMS_A_CALL]


def _is_restoring(row: CrawlRow) -> bool:
    return row.status == CrawlStatus.PAUSED and row.reason == RESTORING


def _fault_of_beginning(row: CrawlRow, saved: SavedCrawl) -> str | None:
    if _is_restoring(row):
        if saved.created == row.created:
            return None
        what = "is being restored from another export"
    elif row.status == CrawlStatus.CANCELLED:
        what = "was cancelled"
    elif row.count:
        what = f"has {row.count} tasks"
    else:
        return None
    return f"crawl {row.name!r} {what}: restore into one that has none, by another name"


def _fault_of_order(saved: Sequence[Saved]) -> str | None:
    if any(isinstance(item, SavedCrawl) for item in saved[1:]):
        return "saved: a SavedCrawl comes first, and once"
    if any(isinstance(item, SavedEnd) for item in saved[:-1]):
        return "saved: a SavedEnd comes last"
    return None


def _fault_of_strangers(saved: Sequence[Saved], known: set[str | bytes]) -> str | None:
    """A queue comes before its tasks."""
    keys: set[str] = set()
    for item in saved:
        if isinstance(item, SavedQueue):
            keys.add(item.key)
        elif isinstance(item, SavedTask) and item.key not in keys and item.key not in known:
            return f"task {item.url}: its queue {item.key!r} comes before it"
    return None


def _is_strange(item: Saved, known: set[str | bytes]) -> bool:
    if isinstance(item, SavedTask):
        return item.fingerprint not in known
    return isinstance(item, SavedQueue) and item.key not in known


# ---- as scripts read it


def _item(item: Saved, batch: Batch, book: Rulebook) -> list[Any]:
    if isinstance(item, SavedTask):
        return ["task"]
    if isinstance(item, SavedQueue):
        return _queue_item(item, batch, book)
    if isinstance(item, SavedCrawl):
        numbers, text = crawl_numbers(item.rules), rules_text(item.rules).decode()
        roots = [[mode, list(found)] for mode, found in item.roots.items()]
        return ["crawl", item.created, item.is_told, numbers, text, item.settings, roots]
    return _end_item(item)


def _queue_item(item: SavedQueue, batch: Batch, book: Rulebook) -> list[Any]:
    paused, retired = item.said
    said = msgspec.structs.replace(book.of(item.key)[0], paused=paused, retired=retired)
    pairs: list[Any] = []
    for name in _SAME_OF_A_QUEUE:
        pairs += (_QUEUE_FIELDS[name], _plain(name, getattr(item, name)))
    return ["queue", batch.key(item.key), pairs, _STOOD[item.standing], batch.ruling(said)]


def _end_item(item: SavedEnd) -> list[Any]:
    pairs: list[Any] = [_CRAWL_FIELDS["visits"], min(sum(item.outcomes.values()), MOST)]
    for name in _SAME_OF_A_CRAWL:
        pairs += (_CRAWL_FIELDS[name], _plain(name, getattr(item, name)))
    outcomes = [part for name, n in item.outcomes.items() for part in (name, min(n, MOST))]
    return ["end", pairs, outcomes, item.timeline, item.logged]


def _plain(name: str, value: Any) -> Any:
    if value is None:
        return _NONE.get(name, -1)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return min(value, MOST) if is_number else value


def _task_row(crawl: str, saved: SavedTask, batch: Batch) -> TaskRow:
    task = task_of(crawl, saved)
    text, split = text_of(task)
    order = rank_of(saved.precedence, saved.priority) + saved.tie.to_bytes(6, "big")
    answer = None if saved.answer is None else Answer(*msgspec.structs.astuple(saved.answer))
    return TaskRow(
        ROW,
        _COLUMNS[saved.state],
        saved.lane,
        batch.kind(kind_of(task)),
        batch.key(saved.key),
        saved.cost,
        saved.discovered,
        0 if saved.due in (None, saved.discovered) else saved.due,
        saved.roll,
        raw(order),
        split,
        raw(text),
        0,
        _instant(saved.claimed),
        _instant(saved.finished),
        _instant(saved.answered),
        min(saved.attempts, MOST),
        min(saved.failures, MOST),
        min(saved.crashes, MOST),
        min(saved.throttles, MOST),
        False,
        False,
        False if saved.reason is None else saved.reason,
        "",
        list(saved.history),
        raw(answer_text(answer)),
    )


def _instant(at: int | None) -> int:
    return -1 if at is None else at
