"""The tables of fields: every codec compiled from them keeps every value."""

from functools import reduce

import msgspec
import pytest

from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.states import TaskState
from outrider.core.task import PolitenessState
from outrider.store.embedded import log_pages
from outrider.store.engine import export, fields, restore
from outrider.store.engine.fields import QUEUE_FIELDS, TASK_FIELDS
from outrider.store.engine.records import COLUMNS, TaskCounts, TaskRecord, new_queue
from outrider.store.engine.state import CrawlState
from outrider.store.engine.views import task_view
from outrider.store.export_items import task_of
from outrider.testing.builders import task

POLITENESS = PolitenessState(2, 3, 4, 5, 6, 7.5, 8.5)


def value_of(record, name):
    """Read a field by its dotted name."""
    return reduce(getattr, name.split("."), record)


def build_queue():
    """Build a queue that has another value in every field."""
    queue = new_queue("a.example", 9, 11, QueueRules(paused=True))
    queue.politeness = POLITENESS
    for at, field in enumerate(QUEUE_FIELDS, 20):
        if "." not in field.name and isinstance(getattr(queue, field.name), int):
            setattr(queue, field.name, at)
    queue.paused, queue.retired, queue.wait_reason = True, "operator", "blocked"
    queue.number, queue.list_state = 9, 1
    return queue


def build_record(queue):
    """Build a task that has another value in every field."""
    described = msgspec.structs.replace(task("https://a.example/1"), tag="t", via="v", roll=5)
    counts = TaskCounts("page", None, "seed", 0, [0] * len(COLUMNS))
    record = TaskRecord(3, described, queue, counts, 3, 50, 40)
    for at, field in enumerate(TASK_FIELDS, 60):
        if "." not in field.name and isinstance(getattr(record, field.name), int):
            setattr(record, field.name, at)
    record.number, record.key = 3, 0
    record.state, record.named, record.loaned = TaskState.LEASED, True, False
    record.reason, record.worker, record.process = "why", "w", "p"
    record.history = ((1.0, "w", "e"),)
    return record


@pytest.mark.parametrize("field", QUEUE_FIELDS, ids=lambda field: field.name)
def test_queue_has_every_field_of_the_table(field):
    """A field that no record has could not be stored."""
    value_of(build_queue(), field.name)


@pytest.mark.parametrize("field", TASK_FIELDS, ids=lambda field: field.name)
def test_task_has_every_field_of_the_table(field):
    """The same, of tasks."""
    value_of(build_record(build_queue()), field.name)


@pytest.mark.parametrize("table", [QUEUE_FIELDS, TASK_FIELDS], ids=["queue", "task"])
def test_names_in_one_table_are_unique(table):
    """Two fields under one name would overwrite each other."""
    for names in (
        [field.name for field in table],
        [field.exported for field in table if field.exported],
        [(field.group == "lease", field.sql_name) for field in table],
    ):
        assert len(names) == len(set(names))


def test_row_of_the_file_keeps_every_paged_field_of_a_queue():
    """As a queue that is evicted and loaded again."""
    queue = build_queue()
    row = log_pages.decode_queue(log_pages.encode_queue(queue))
    again = log_pages.queue_from_row(row, QueueRules())
    filled = new_queue("a.example", 9, 0, QueueRules())
    log_pages.fill_queue(filled, row)

    for name in [field.name for field in QUEUE_FIELDS if field.paged]:
        assert value_of(again, name) == value_of(queue, name), name
        assert value_of(filled, name) == value_of(queue, name), name


def test_row_of_the_file_keeps_every_paged_field_of_a_task():
    """As a task that is written and read again."""
    record = build_record(build_queue())
    row = log_pages.decode_task(log_pages.encode_task(record))
    again = TaskRecord(3, record.task, record.queue, record.counts, 0, 0, 0)
    log_pages.fill_record(again, row, 17)

    for name in [field.name for field in TASK_FIELDS if field.paged]:
        assert value_of(again, name) == value_of(record, name), name
    assert (row.task, row.queue, again.body_page) == (record.task, 9, 17)


def test_export_keeps_every_exported_field_of_a_queue():
    """As a queue that is exported and restored."""
    queue, again = build_queue(), new_queue("a.example", 9, 0, QueueRules())
    restore._fill_queue(again, export.export_queue(queue, (), 0))

    for name in [field.name for field in QUEUE_FIELDS if field.exported]:
        assert value_of(again, name) == value_of(queue, name), name


def test_export_keeps_every_exported_field_of_a_task():
    """As a task that is exported and restored; a task that was leased is pending (H5)."""
    record = build_record(build_queue())
    record.state = TaskState.DEAD
    item = export.export_task(record, 0)
    again = restore._record_of(3, task_of("default", item), item, record.queue, record.counts)

    changed = {"key", "due"}  # the tie alone is exported, and the due time of pending tasks
    for name in [field.name for field in TASK_FIELDS if field.exported]:
        assert name in changed or value_of(again, name) == value_of(record, name), name


def test_view_of_a_task_has_its_own_values():
    """The number of the task, not that of its queue."""
    record = build_record(build_queue())
    view = task_view(CrawlState("c", "s", CrawlRules(), 0), record)

    assert (view.number, view.url, view.state) == (3, record.task.url, TaskState.LEASED)
    assert (view.attempts, view.failures, view.worker) == (record.attempts, record.failures, "w")


def test_struct_and_table_that_differ_are_refused():
    """A field that is forgotten in one of them fails at import."""
    with pytest.raises(TypeError, match="missing"):
        fields.arguments(("a", "missing"), {"a": "x.a"}, {})
    with pytest.raises(TypeError, match="unused"):
        fields.arguments(("a",), {"a": "x.a", "unused": "x.b"}, {})
