"""A crawl's counters: what a verb adds to them is appended, what they are is read only if needed.

In the working set they begin at 0, so what they come to is the difference a verb made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Task
from outrider.store.heads.records import COLUMNS, Kind
from outrider.store.postgres import sql
from outrider.store.postgres.arrays import number_array, text_array
from outrider.store.postgres.growing import Growing

_OUTCOME: Final = "outcome "
_COUNTED: Final = ("held", "visits", "dones", "bytes")
_encode = msgspec.json.Encoder().encode
_kind_of = msgspec.json.Decoder(tuple[str, str | None, str, int]).decode


class Counting(Growing):
    """The books of which only the differences are at hand."""

    _has_totals = False
    _known_before = 0  # tasks known, but for those born in this verb

    @property
    def known_count(self) -> int:
        """How many tasks are known, once totals were loaded."""
        return self._known_before + self.born_count

    def counters(self) -> dict[str, int]:
        """All of them, by name."""
        return dict(self.wire.rows(sql.READ_COUNTERS, (self.id, self.id)))

    def load_totals(self) -> None:
        """From now on the crawl's own counters are what they are, differences included."""
        if self._has_totals:
            return
        self._has_totals, self._base = True, self.counters()
        totals = _by_state(self._base)
        self._known_before = sum(totals.values())
        self.pending += totals[TaskState.PENDING]
        self.leased += totals[TaskState.LEASED]
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + self._base.get(name, 0))
        self.outcomes.update(_outcomes(self._base))

    def load_kinds(self) -> None:
        """To read: what is counted by type, tag, origin and depth."""
        for name, count in self._base.items():
            state, _, kind = name.partition(" ")
            if kind.startswith("["):
                type_, tag, origin, depth = _kind_of(kind)
                found = self._kind(Kind(type_, tag, origin, depth, []))
                found.counts[COLUMNS[TaskState(state)]] += count

    def differences(self) -> dict[str, int]:
        """What this verb adds to the counters."""
        changes = self._own_differences()
        for name, kind in self.kinds.items():
            text = _encode(name).decode()
            for state, column in COLUMNS.items():
                changes[f"{state.value} {text}"] = kind.counts[column]
        return {name: count for name, count in changes.items() if count}

    def _own_differences(self) -> dict[str, int]:
        base = self._base if self._has_totals else {}
        now = {name: getattr(self, name) for name in _COUNTED}
        now.update({f"{_OUTCOME}{name}": count for name, count in self.outcomes.items()})
        names = now.keys() | {name for name in base if name.startswith(_OUTCOME)}
        return {name: now.get(name, 0) - base.get(name, 0) for name in names}

    def write_differences(self) -> int:
        """Append them; how many rows that are."""
        changes = self.differences()
        if changes:
            params = (self.id, text_array(changes), number_array(changes.values()))
            self.wire.send(sql.ADD_COUNTER_DELTAS, params)
        return len(changes)

    def expect_ends(self, numbers: Iterable[int], tasks: list[Task]) -> None:
        """See `Loading`."""
        if self.rules.max_pending and tasks:
            self.load_totals()
        super().expect_ends(numbers, tasks)

    def check_limits(self, now: int) -> None:
        """See `Ledger`: how many tasks are known is counted, for their numbers may have gaps."""
        if not self.is_limited or self.status is not CrawlStatus.RUNNING:
            return
        self.load_totals()
        count, self.count = self.count, self.known_count
        super().check_limits(now)
        self.count = count


def _by_state(counters: dict[str, int]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for name, count in counters.items():
        state, _, kind = name.partition(" ")
        if kind.startswith("["):
            totals[state] += count
    return totals


def _outcomes(counters: dict[str, int]) -> dict[str, int]:
    return {
        name.removeprefix(_OUTCOME): count
        for name, count in counters.items()
        if name.startswith(_OUTCOME) and count
    }
