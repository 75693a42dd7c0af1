"""The counters of one crawl: a verb appends differences, and reads totals only if it needs them.

The state's totals begin at 0, so they are the differences that the verb made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple, final

import msgspec

from outrider.core.states import TaskState
from outrider.store.engine.records import COLUMNS, TaskCounts
from outrider.store.engine.state import CrawlState
from outrider.store.postgres import sql
from outrider.store.postgres.arrays import number_array, text_array
from outrider.store.postgres.session import Session

_OUTCOME: Final = "outcome "
# The names of counters in the tables, and the totals of the state they are.
_TOTALS: Final[Mapping[str, str]] = {
    "held": "retired_pending",
    "visits": "visits",
    "dones": "visits_done",
    "bytes": "bytes",
}
_encode = msgspec.json.Encoder().encode
_decode_counts = msgspec.json.Decoder(tuple[str, str | None, str, int]).decode


class LastNumbers(NamedTuple):
    """A row of `last_numbers`, in the order of `sql.SEQUENCES`."""

    tasks: int = 0
    queues: int = 0
    turns: int = 0
    arrivals: int = 0
    events: int = 0


@final
class Counters:
    """The totals of the state, of which only the differences are loaded."""

    __slots__ = ("_base", "_has_totals", "_last", "_session", "_state")

    def __init__(self, session: Session, state: CrawlState) -> None:
        self._session, self._state = session, state
        self._has_totals = False
        self._base: dict[str, int] = {}
        self._last = LastNumbers()

    # ---- last numbers

    def load_last_numbers(self) -> None:
        """Load the numbers that all processes gave, for a verb that reads or is exclusive."""
        session, state = self._session, self._state
        names = [session.sequence(name) for name in sql.SEQUENCES]
        (row,) = session.pipeline.rows(sql.LAST_NUMBERS, names)
        self._last = last = LastNumbers._make(row)
        state.count_offset += last.tasks - state.last_task
        state.last_task, state.last_queue = last.tasks, last.queues
        if session.is_exclusive or not session.writes:
            state.last_turn, state.last_arrival = last.turns, last.arrivals
            state.last_event = last.events

    def write_last_numbers(self) -> None:
        """Set the sequences to the numbers that an exclusive verb gave by itself."""
        session, state = self._session, self._state
        now = LastNumbers(
            state.last_task,
            state.last_queue,
            state.last_turn,
            state.last_arrival,
            state.last_event,
        )
        for name, before, after in zip(sql.SEQUENCES, self._last, now, strict=True):
            if after > before:
                session.pipeline.send(sql.SET_LAST_NUMBER, (session.sequence(name), after))

    # ---- totals

    def load_totals(self) -> None:
        """Complete the totals of the state."""
        if self._has_totals:
            return
        session, state = self._session, self._state
        self._has_totals = True
        params = (session.crawl, session.crawl)
        self._base = dict(session.pipeline.rows(sql.READ_COUNTERS, params))
        by_state = _sum_by_state(self._base)
        state.count_offset -= sum(by_state.values())
        state.pending += by_state[TaskState.PENDING]
        state.leased += by_state[TaskState.LEASED]
        for name, total in _TOTALS.items():
            setattr(state, total, getattr(state, total) + self._base.get(name, 0))
        state.outcomes.update(_outcomes(self._base))

    def load_task_counts(self) -> None:
        """Complete the counts by type, tag, origin and depth, for a verb that reads."""
        for name, count in self._base.items():
            state, _, counts = name.partition(" ")
            if counts.startswith("["):
                found = self._state.counts_of(TaskCounts(*_decode_counts(counts), []))
                found.by_state[COLUMNS[TaskState(state)]] += count

    # ---- writing

    def write(self) -> int:
        """Append the differences that the verb made; return how many rows they are."""
        changes = {name: count for name, count in self._differences().items() if count}
        if changes:
            params = (self._session.crawl, text_array(changes), number_array(changes.values()))
            self._session.pipeline.send(sql.ADD_COUNTER_DELTAS, params)
        return len(changes)

    def _differences(self) -> dict[str, int]:
        changes = self._total_differences()
        for name, counts in self._state.task_counts.items():
            text = _encode(name).decode()
            for state, column in COLUMNS.items():
                changes[f"{state.value} {text}"] = counts.by_state[column]
        return changes

    def _total_differences(self) -> dict[str, int]:
        base, state = self._base, self._state
        now = {name: getattr(state, total) for name, total in _TOTALS.items()}
        now.update({f"{_OUTCOME}{name}": count for name, count in state.outcomes.items()})
        names = now.keys() | {name for name in base if name.startswith(_OUTCOME)}
        return {name: now.get(name, 0) - base.get(name, 0) for name in names}


def _sum_by_state(counters: dict[str, int]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for name, count in counters.items():
        state, _, counts = name.partition(" ")
        if counts.startswith("["):
            totals[state] += count
    return totals


def _outcomes(counters: dict[str, int]) -> dict[str, int]:
    return {
        name.removeprefix(_OUTCOME): count
        for name, count in counters.items()
        if name.startswith(_OUTCOME) and count
    }
