"""Rows hold every stored field of the engine's queues and tasks, so that none is forgotten here."""

from outrider.core.policy.rules import CrawlRules
from outrider.store.engine.fields import QUEUE_FIELDS, TASK_FIELDS
from outrider.store.export_items import SavedEnd, SavedQueue
from outrider.store.redis.export import _END_FIELDS, _QUEUE_FIELDS
from outrider.store.redis.inspector import _CONVERTED, _COPIED
from outrider.store.redis.rows import CrawlRow, QueueRow, TaskRow
from outrider.store.redis.rules_cache import crawl_numbers
from outrider.store.redis.task_codec import Kind, _Rest

# Stored fields of a queue that are not in its row: in its rules, or counted by its sorted sets.
QUEUE_FIELDS_ELSEWHERE = {"rules.paused", "rules.retired", "precedence", "pending", "epoch"}
# What only the row of a queue has: the number of its rules, and its entries in lists.
QUEUE_ROW_ONLY = {
    *("version", "rules", "next_due", "top0", "top1"),
    *("ready_key0", "ready_key1", "inactive_key", "counted_as"),
}
# Stored fields of a task that are not in its row: its number is the row's, deadlines are a sorted
# set, and processes are told apart by the embedded file only.
TASK_FIELDS_ELSEWHERE = {"number", "deadline", "process"}
# What only the row of a task has: numbers and bytes that hold several fields, and new meta.
TASK_ROW_ONLY = {"version", "kind", "order", "split", "text", "meta"}
IN_ORDER = {"task.precedence", "task.priority", "key"}


def fields(row):
    """The names of a struct's fields."""
    return set(row.__struct_fields__)


def test_row_of_a_queue_has_every_stored_field():
    """A field added to the table must be added to the row, or be listed above."""
    stored = {f.last_name for f in QUEUE_FIELDS if f.name not in QUEUE_FIELDS_ELSEWHERE}

    assert stored | QUEUE_ROW_ONLY == fields(QueueRow)


def test_view_of_a_queue_takes_every_field_from_its_row():
    """Each is copied by name, converted, or part of the politeness state."""
    politeness = {f.last_name for f in QUEUE_FIELDS if f.name.startswith("politeness.")}

    assert {*_COPIED} | _CONVERTED | politeness | QUEUE_ROW_ONLY == fields(QueueRow)


def test_row_of_a_task_has_every_stored_field():
    """A field is in the row itself, or in its order key, its text or its kind."""
    in_text = {f"task.{name}" for name in fields(_Rest) | {"url", "breakdown", *Kind._fields}}
    elsewhere = TASK_FIELDS_ELSEWHERE | IN_ORDER | in_text
    stored = {f.name for f in TASK_FIELDS if f.name not in elsewhere}
    names = {"queue" if name == "queue.number" else name.rpartition(".")[2] for name in stored}

    assert names | TASK_ROW_ONLY == fields(TaskRow)


def test_restore_takes_every_field_of_an_exported_queue():
    """All but its key, the list it was on, and what its rules said, which are arguments."""
    assert fields(SavedQueue) - set(_QUEUE_FIELDS) == {"key", "standing", "said"}


def test_restore_takes_every_field_of_an_exports_end():
    """All but the outcomes, the timeline and the number of events, which are arguments."""
    assert fields(SavedEnd) - set(_END_FIELDS) == {"outcomes", "timeline", "logged"}


def test_numbers_of_a_crawls_rules_fill_the_fields_that_scripts_write():
    """`replace_rules` writes them by position; the last two are `opens_below` and `stay_open`."""
    names = CrawlRow.__struct_fields__
    first, last = names.index("by_turn"), names.index("limit_seconds")

    assert len(crawl_numbers(CrawlRules())) == last - first + 3
