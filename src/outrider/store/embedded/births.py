"""Tasks born since a snapshot, on their way back into their lines: all of a queue's join at once.

Finding a queue and its line again for every task would be most of what a reopening takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.core.order import LANE_BYTES
from outrider.store.embedded import pages

_LANES = 2


class Births:
    """Those that were due as they were born, in the order of their pages."""

    def __init__(self) -> None:
        self.names: list[bytes] = []  # fingerprints, of the others as well
        self.numbers: list[int] = []
        self._homes: dict[str, int] = {}  # queues, in the order they were first met
        self._due: list[tuple[int, int, float, int, int, int]] = []

    def read(self, births: Sequence[tuple[int, bytes]], now: int) -> list[tuple[int, bytes]]:
        """All are known, and those due wait in a lane; the rest are left to the caller."""
        names, numbers, homes, due = self.names, self.numbers, self._homes, self._due
        rest = []
        for number, content in births:
            birth = pages.birth_of(content)
            task = birth.task
            names.append(task.fingerprint)
            numbers.append(number)
            if birth.due <= now:
                home = homes.setdefault(task.key, len(homes)) * _LANES + task.lane
                due.append((home, task.precedence, task.priority, birth.tie, number, birth.due))
            else:
                rest.append((number, content))
        return rest

    def lines(self) -> Iterator[tuple[str, int, bytes]]:
        """By queue and lane: its entries, as `Line.extend` takes them."""
        if not self._due:
            return
        homes, *columns = zip(*self._due, strict=True)
        places = np.fromiter(homes, np.int64, len(homes))
        order = np.argsort(places, kind="stable")
        places, entries = places[order], _entries(*columns)[order]
        starts = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        keys = list(self._homes)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(places)], strict=True):
            home, lane = divmod(int(places[start]), _LANES)
            yield keys[home], lane, entries[start:end].tobytes()


def _entries(
    precedences: tuple[int, ...],
    priorities: tuple[float, ...],
    ties: tuple[int, ...],
    numbers: tuple[int, ...],
    dues: tuple[int, ...],
) -> NDArray[np.uint8]:
    """`order.task_key`, and the instant below it, for many: a row of bytes each."""
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
