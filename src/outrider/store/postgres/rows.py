"""What tables tell of a task, and how it stands in a line; and back."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from outrider.core.breakdown import Breakdown
from outrider.core.order import (
    DELAYED_SHIFT,
    DUE_BITS,
    DUE_MASK,
    KEY_MASK,
    NUMBER_BITS,
    NUMBER_MASK,
    TASK_RANK_SHIFT,
    TIE_MASK,
    task_key,
    unordered,
)
from outrider.core.outcome import Answer
from outrider.core.states import TaskState
from outrider.core.task import Task
from outrider.store.heads.records import Kind, Queue, Record

Row: TypeAlias = tuple[Any, ...]
Entry: TypeAlias = tuple[int, float, int, int, int]  # precedence, priority, tie, number, due

_BITS_64: Final = (1 << 64) - 1
_PRECEDENCE_SHIFT: Final = TASK_RANK_SHIFT + 64

_encode = msgspec.json.Encoder().encode
answer_of = msgspec.json.Decoder(Answer).decode
_breakdown_of = msgspec.json.Decoder(Breakdown).decode
_history_of = msgspec.json.Decoder(tuple[tuple[float, str, str], ...]).decode
_STATES: Final = {state.value: state for state in TaskState}


# ---- entries of lines


def lane_entry(precedence: int, priority: float, tie: int, task: int, due: int) -> int:
    """A row of `pending` as an entry of its lane."""
    return task_key(precedence, priority, tie, task & NUMBER_MASK) << DUE_BITS | due


def delayed_entry(
    lane: int, precedence: int, priority: float, tie: int, task: int, due: int
) -> int:
    """A row of `delayed` as an entry of its line."""
    key = task_key(precedence, priority, tie, task & NUMBER_MASK)
    return due << DELAYED_SHIFT | key << 1 | lane


def parts_of_key(key: int, due: int) -> Entry:
    """An order key and an instant as the columns of a row."""
    return (
        key >> _PRECEDENCE_SHIFT,
        unordered(key >> TASK_RANK_SHIFT & _BITS_64),
        key >> NUMBER_BITS & TIE_MASK,
        key & NUMBER_MASK,
        due,
    )


def lane_parts(entry: int) -> Entry:
    """An entry of a lane as columns."""
    return parts_of_key(entry >> DUE_BITS, entry & DUE_MASK)


def delayed_parts(entry: int) -> tuple[int, Entry]:
    """An entry of the delayed as its lane, and columns."""
    return entry & 1, parts_of_key(entry >> 1 & KEY_MASK, entry >> DELAYED_SHIFT)


# ---- tasks


def about_of(task: Task, queue: int) -> Row:
    """What a task is, in the order of `columns.TASK_ABOUT`."""
    breakdown = task.breakdown
    return (
        queue,
        task.url,
        task.type,
        task.lane,
        task.depth,
        task.precedence,
        task.priority + 0.0,
        task.cost,
        task.delay,
        task.known,
        task.roll,
        task.origin,
        task.via,
        task.tag,
        task.meta.decode(),
        None if breakdown is None else _encode(breakdown).decode(),
    )


def answer_text(answer: Answer) -> str:
    """An answer as it is kept."""
    return _encode(answer).decode()


def fate_of(record: Record, tie: int) -> Row:
    """What visits made of a task, in the order of `columns.TASK_FATE`."""
    state = TaskState.PENDING if record.state is TaskState.LEASED else record.state
    answer = record.answer
    return (
        tie,
        record.due,
        state.value,
        record.token,
        record.attempts,
        record.claimed,
        record.finished,
        None if answer is None else answer_text(answer),
        record.answered,
        record.failures,
        record.crashes,
        record.throttles,
        record.reason,
        _encode(record.history).decode() if record.history else "[]",
    )


def task_of(crawl: str, key: str, fingerprint: bytes, about: Row) -> Task:
    """The description of a task from its row."""
    (
        _,
        url,
        type_,
        lane,
        depth,
        precedence,
        priority,
        cost,
        delay,
        known,
        roll,
        origin,
        via,
        tag,
        meta,
        breakdown,
    ) = about
    return Task(
        crawl,
        fingerprint,
        url,
        key,
        type_,
        lane,
        depth,
        precedence,
        priority,
        cost,
        delay,
        known,
        roll,
        origin,
        via,
        tag,
        meta.encode(),
        None if breakdown is None else _breakdown_of(breakdown),
    )


def record_of(
    number: int, task: Task, queue: Queue, kind: Kind, discovered: int, fate: Row
) -> Record:
    """A task and its numbers from its row."""
    (
        tie,
        due,
        state,
        token,
        attempts,
        claimed,
        finished,
        answer,
        answered,
        failures,
        crashes,
        throttles,
        reason,
        history,
    ) = fate
    return Record(
        number,
        task,
        queue,
        kind,
        task_key(task.precedence, task.priority, tie, number),
        due,
        discovered,
        _STATES[state],
        token,
        attempts,
        failures,
        crashes,
        throttles,
        0,
        claimed,
        finished,
        reason,
        None,
        None if answer is None else answer_of(answer),
        _history_of(history) if history != "[]" else (),
        answered=answered,
    )


def lend(record: Record, lease: Row) -> None:
    """Let a record be leased, as its row of `lease` tells."""
    token, worker, claimed, deadline, named, lent = lease
    record.state, record.token, record.worker = TaskState.LEASED, token, worker
    record.claimed, record.deadline = claimed, deadline
    record.named, record.lent = named, lent


def lease_row(record: Record, base: int, crawl: int) -> Row:
    """The row of `lease` of a leased record."""
    return (
        base | record.number,
        crawl,
        base | record.queue.number,
        record.token,
        record.worker or "",
        record.claimed,
        record.deadline,
        record.named,
        record.lent,
    )
