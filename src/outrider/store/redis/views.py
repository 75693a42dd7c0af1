"""Rows as heads know them: what a reader sees of a queue and a task is told by the same code."""

from __future__ import annotations

from typing import Any, Final

from outrider.core.order import task_key
from outrider.core.policy.rules import QueueRules
from outrider.core.states import CrawlStatus
from outrider.core.task import PolitenessState, Task
from outrider.store.heads.records import Kind, Queue, Record, new_queue
from outrider.store.heads.views import Waiting
from outrider.store.redis.rows import CrawlRow, QueueRow, TaskRow
from outrider.store.redis.texts import STATES, answer_of, tie_of

# Of what is only read: it stands in no queue, and is counted nowhere.
_NOWHERE: Final = new_queue("", 0, 0, QueueRules())
_NO_KIND: Final = Kind("", None, "", 0, [])


def pairs(found: Any) -> list[tuple[Any, Any]]:
    """A hash as a script tells it."""
    return list(zip(found[::2], found[1::2], strict=True))


def by_state(row: CrawlRow, counted: dict[int, int], kind: int) -> dict[str, int]:
    """O5, I3: a cancelled crawl's pending and leased tasks read as dropped."""
    counts = {state.value: counted.get(kind * 8 + column, 0) for column, state in enumerate(STATES)}
    if row.status is CrawlStatus.CANCELLED:
        counts["dropped"] += counts["pending"] + counts["leased"]
        counts["pending"] = counts["leased"] = 0
    return {name: count for name, count in counts.items() if count}


def queue_of(row: QueueRow, rules: QueueRules, pending: int = 0) -> Queue:
    """A queue, but for its lines."""
    queue = new_queue(row.key, row.number, row.turn, rules)
    for name in _SHARED:
        setattr(queue, name, getattr(row, name))
    queue.retired, queue.pending = row.retired or None, pending
    queue.manners = PolitenessState(
        row.level,
        row.calm,
        row.throttles_in_row,
        row.unreachable_in_row,
        row.blocks_in_row,
        row.last_delay,
        row.crawl_delay,
    )
    return queue


_SHARED: Final = (  # fields both have, of one meaning
    "paused",
    "in_flight",
    "named",
    "lent",
    "standing",
    "place",
    "session",
    "spent",
    "next_ready",
    "why",
    "last_start",
    "last_end",
    "errors",
    "dones",
    "bytes",
    "done",
    "dead",
    "dropped",
    "last_cost",
    "cost_sum",
    "cost_count",
)


def waiting_of(row: QueueRow, delayed: int, url: str, now: int) -> Waiting:
    """What its lines would tell."""
    has_due = len(bytes(row.top0)) > 1 or len(bytes(row.top1)) > 1
    return Waiting(now if has_due or row.soon < 0 else row.soon, delayed, url or None)


def record_of(crawl: CrawlRow, number: int, row: TaskRow, task: Task) -> Record:
    """A task and its numbers, to read."""
    discovered = crawl.created + row.discovered
    return Record(
        number,
        task,
        _NOWHERE,
        _NO_KIND,
        task_key(task.precedence, task.priority, tie_of(row), number),
        row.due or discovered,
        discovered,
        STATES[row.state],
        row.token,
        row.attempts,
        row.failures,
        row.crashes,
        row.throttles,
        0,
        row.claimed,
        row.finished,
        None if row.reason is False else row.reason,
        row.worker,
        answer_of(row),
        tuple(row.history),
        answered=row.answered,
        named=row.named,
        lent=row.lent,
    )
