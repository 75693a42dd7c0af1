"""Rows of queues, tasks and leases become the records they were made of."""

import msgspec
import pytest

from outrider.core.outcome import Answer
from outrider.core.policy.rules import QueueRules
from outrider.core.states import TaskState
from outrider.core.task import PolitenessState
from outrider.store.engine.records import EMPTY_LIST, TaskRecord, new_queue
from outrider.store.postgres import columns, rows
from outrider.testing.builders import task

NAMES = [column.name for column in columns.TASK_COLUMNS]
NOT_STORED = {"ready_key0", "ready_key1", "lane0", "lane1", "delayed", "is_dirty", "is_used"}
NOT_STORED |= {"counted_as"}


def filled(record, skipped):
    """The same record with another number in each field that holds one."""
    for number, field in enumerate(record.__struct_fields__, 10):
        value = getattr(record, field)
        if field not in skipped and type(value) in (int, float):
            setattr(record, field, type(value)(number))
    return record


@pytest.fixture
def queue():
    """A queue that has another value in each of its fields."""
    queue = filled(new_queue("h.example", 7, 3, QueueRules()), NOT_STORED)
    queue.politeness = PolitenessState(*range(1, 8))
    queue.gap = -1
    return queue


def test_queue_comes_back_from_its_row(queue):
    """M4: every stored field; what follows from rules is taken of another queue under them."""
    row = (*rows.queue_names(queue.number, 1, queue.key), *rows.queue_values(queue))
    row += (None,) * (len(columns.QUEUE_COLUMNS) - len(row))

    found = rows.queue_from_row(row, queue, EMPTY_LIST, EMPTY_LIST, EMPTY_LIST)

    for field in set(queue.__struct_fields__) - NOT_STORED:
        assert getattr(found, field) == getattr(queue, field), field
    assert rows.first_entries(row) == (0, 0, 0)


def test_task_comes_back_from_its_row(queue):
    """M4: what it is, its place in its queue, and what visits made of it."""
    of_task = task(key=queue.key, priority=-1.5, meta=b'{"a":1}')
    record = TaskRecord(5, of_task, queue, None, 0, 11, 12, TaskState.DEAD, 13, 14, 15, 16, 17)
    record.claimed, record.finished, record.answered, record.reason = 18, 19, 20, "gone"
    record.answer, record.history = Answer(200, 9, None, "e", None), ((1.5, "w", "500"),)
    record.key = rows.task_key(of_task.precedence, of_task.priority, 21, 5)
    written = dict(zip(NAMES, rows.whole_task(record, 5, 1, 7, 21), strict=True))
    row = tuple((written | {"fingerprint": of_task.fingerprint}).values())  # as it is read

    found = rows.record_from_row(row, of_task.crawl, queue.key, queue, lambda _: None)

    assert msgspec.structs.astuple(found) == msgspec.structs.astuple(record)


def test_lease_comes_back_from_its_row(queue):
    """H1: token, worker, start, deadline, and which kind of lease it is."""
    record = TaskRecord(5, task(), queue, None, 0, 0, 0)
    values = {"token": 9, "worker": "w", "claimed": 10, "deadline": 20}
    values |= {"named": True, "loaned": False, "drawn": 1.5}
    values |= {"lease_turn": 3, "leased": 11, "lasts": 60_000}
    lease = tuple(values[column.field] for column in columns.HELD_LEASE)

    rows.set_lease(record, lease)

    assert record.state is TaskState.LEASED
    assert {name: getattr(record, name) for name in values} == values
    assert rows.lease_values(record) == lease
    assert rows.lease_row(record, 3, 0, 1) == (5, 1, queue.number, *lease)


def test_every_column_is_written_once():
    """M4: parts of rows are compared and written by their slices, so they must not overlap."""
    for table in columns.TABLES.values():
        names = [column.name for column in table]
        assert len(names) == len(set(names))
    assert sum(map(len, columns.QUEUE_PARTS)) + len(columns.QUEUE_NAMES) == len(
        columns.QUEUE_COLUMNS
    )
