"""New tasks of the pages after a snapshot, grouped by queue and lane to be inserted at once.

Finding a queue and its lane for every single task would be most of the time of a reopening.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.core.order import LANE_BYTES
from outrider.store.embedded import log_pages

_LANES = 2


class NewTasks:
    """New tasks in the order of their pages; those that are due are grouped."""

    def __init__(self) -> None:
        self.fingerprints: list[bytes] = []  # of delayed tasks as well
        self.numbers: list[int] = []
        self._queues: dict[str, int] = {}  # indexes of queues, by key
        self._due: list[tuple[int, int, float, int, int, int]] = []

    def read(self, rows: Sequence[tuple[int, bytes]], now: int) -> list[tuple[int, bytes]]:
        """Read the rows of a page; return the delayed ones, which the caller inserts."""
        fingerprints, numbers, queues, due = (
            self.fingerprints,
            self.numbers,
            self._queues,
            self._due,
        )
        delayed = []
        for number, content in rows:
            row = log_pages.decode_new_task(content)
            task = row.task
            fingerprints.append(task.fingerprint)
            numbers.append(number)
            if row.due <= now:
                queue = queues.setdefault(task.key, len(queues)) * _LANES + task.lane
                due.append((queue, task.precedence, task.priority, row.tie, number, row.due))
            else:
                delayed.append((number, content))
        return delayed

    def entries_by_lane(self) -> Iterator[tuple[str, int, bytes]]:
        """Return queue key, lane and entries, as `SortedList.extend` takes them."""
        if not self._due:
            return
        queues, *columns = zip(*self._due, strict=True)
        lanes = np.fromiter(queues, np.int64, len(queues))
        order = np.argsort(lanes, kind="stable")
        lanes, entries = lanes[order], _entries(*columns)[order]
        starts = np.flatnonzero(np.append(True, lanes[1:] != lanes[:-1]))
        keys = list(self._queues)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(lanes)], strict=True):
            queue, lane = divmod(int(lanes[start]), _LANES)
            yield keys[queue], lane, entries[start:end].tobytes()


def _entries(
    precedences: tuple[int, ...],
    priorities: tuple[float, ...],
    ties: tuple[int, ...],
    numbers: tuple[int, ...],
    dues: tuple[int, ...],
) -> NDArray[np.uint8]:
    """Compute `order.task_key` with the due time below it for many tasks: a row of bytes each."""
    bits = (np.array(priorities, np.float64) + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    ranks = np.where(bits & sign, ~bits, bits | sign)
    columns = [
        _bytes(np.array(precedences, np.uint64), 2),
        _bytes(ranks, 8),
        _bytes(np.array(ties, np.uint64), 6),
        _bytes(np.array(numbers, np.uint64), 5),
        _bytes(np.array(dues, np.uint64), 6),
    ]
    entries = np.concatenate(columns, axis=1)
    assert entries.shape[1] == LANE_BYTES  # noqa: S101
    return entries


def _bytes(values: NDArray[np.uint64], width: int) -> NDArray[np.uint8]:
    return values.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]
