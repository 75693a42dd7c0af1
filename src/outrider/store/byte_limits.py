"""The limits in bytes of calls, result pages and claims: counts alone do not bound memory (M2, C6).

A task is counted by its texts that may be long. What ends at a limit ends behind the item that
reaches it, so every page and every claim has at least one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, TypeVar

import msgspec

from outrider.core.task import Task
from outrider.core.verdict import Verdict
from outrider.store.export_items import Saved, SavedTask
from outrider.store.protocol import TaskView

MAX_RESULT_BYTES: Final = 4 << 20  # of the tasks in a result page, in a claim, in one step
MAX_CALL_BYTES: Final = 4 << 20  # of the tasks in one call of a store
MAX_SHORT_URL: Final = 2048  # characters; so many such URLs, and no more, are within a claim
MAX_LINKS_BYTES: Final = 48 << 20  # of the links of one page: they are one step with its finish

Item = TypeVar("Item")
_encode = msgspec.json.Encoder().encode


def task_bytes(task: Task) -> int:
    """Return the size of a task's long texts, in bytes if they are ASCII."""
    return len(task.meta) + len(task.url) + len(task.text)


def tasks_bytes(tasks: Sequence[Task]) -> int:
    """Return the sum of `task_bytes`: every link that is added is counted."""
    return sum([len(one.meta) + len(one.url) + len(one.text) for one in tasks])


def view_bytes(view: TaskView) -> int:
    """Return the size of a task's long texts, from its view."""
    return (len(_encode(view.meta)) if view.meta else 0) + len(view.url) + len(view.text)


def verdict_bytes(verdict: Verdict) -> int:
    """Return the size of the links of a verdict, and of the meta with which its task comes back."""
    size = 0
    for task in verdict.tasks:  # `task_bytes` written out: every link of every page passes here
        size += len(task.meta) + len(task.url) + len(task.text)
    if verdict.requeue is not None:
        size += len(verdict.requeue.meta or b"")
    return size


def verdicts_bytes(verdicts: Sequence[Verdict]) -> int:
    """Return the sum of `verdict_bytes`: most visits of a batch bring nothing."""
    return sum([verdict_bytes(one) for one in verdicts if one.tasks or one.requeue is not None])


def saved_bytes(item: Saved) -> int:
    """Return the size of an item of an export."""
    if isinstance(item, SavedTask):
        return len(item.meta) + len(item.url) + len(item.text)
    return 0


def parts_by_bytes(
    items: Sequence[Item], size_of: Callable[[Item], int], most: int
) -> Iterator[Sequence[Item]]:
    """Yield the items in parts, in order: each ends behind the item that reaches `most` bytes."""
    if sum(map(size_of, items)) <= most:
        yield items
        return
    start, size = 0, 0
    for place, item in enumerate(items, 1):
        size += size_of(item)
        if size >= most:
            yield items[start:place]
            start, size = place, 0
    if start < len(items):
        yield items[start:]


def count_within(sizes: Iterable[int], most: int) -> int:
    """Return how many items come up to, and with, the one that reaches `most` bytes."""
    count = 0
    for total in accumulate(sizes):
        count += 1
        if total >= most:
            break
    return count
