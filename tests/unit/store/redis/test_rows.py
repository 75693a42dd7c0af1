"""Rows hold every field of the engine's queues and tasks, so that none is forgotten here."""

from outrider.core.policy.rules import CrawlRules
from outrider.core.task import PolitenessState, Task
from outrider.store.engine.records import Queue, TaskRecord
from outrider.store.redis.export import _END_FIELDS, _QUEUE_FIELDS
from outrider.store.redis.inspector import _CONVERTED, _COPIED
from outrider.store.redis.rows import CrawlRow, QueueRow, TaskRow
from outrider.store.redis.rules_cache import crawl_numbers
from outrider.store.redis.task_codec import Kind, _Rest
from outrider.store.saved import SavedEnd, SavedQueue

# What a queue of the engine has besides its row.
FROM_RULES = {"precedence", "slots", "gap", "balance", "total", "hold", "has_quota", "from_start"}
IN_SORTED_SETS = {"lane0", "lane1", "delayed", "pending"}
IN_MEMORY_ONLY = {"epoch", "is_dirty", "is_used"}

# What a row has besides the engine's queue: places in lists, which the engine has in memory.
OF_LISTS = {"next_due", "top0", "top1", "inactive_key"}

# What a record of the engine has besides a task's row.
OF_OTHER_STORES = {"body_page", "stored_key", "deadline", "process"}  # deadlines: a sorted set


def fields(row):
    """The names of a struct's fields."""
    return set(row.__struct_fields__)


def test_row_of_a_queue_has_every_field_of_the_engine():
    """A field added to the engine must be stored, or be listed as derived here."""
    politeness = fields(PolitenessState)
    stored = fields(Queue) - FROM_RULES - IN_SORTED_SETS - IN_MEMORY_ONLY - {"politeness"}

    assert stored | politeness | OF_LISTS | {"version"} == fields(QueueRow)


def test_view_of_a_queue_takes_every_field_from_its_row():
    """Copied by name, converted, or part of the politeness state."""
    read = set(_COPIED) | _CONVERTED | fields(PolitenessState)

    assert read | OF_LISTS | {"version"} == fields(QueueRow)


def test_row_of_a_task_has_every_field_of_the_engine():
    """A field of a task or its record is in the row, in its text, in its kind, or its queue's."""
    of_record = fields(TaskRecord) - OF_OTHER_STORES - {"number", "task", "queue", "counts", "key"}
    in_text = fields(_Rest) | {"url", "breakdown"}
    in_order = {"precedence", "priority"}
    of_task = fields(Task) - in_text - in_order - set(Kind._fields) - {"crawl", "key"}

    stored = of_record | of_task | {"kind", "queue", "order", "split", "text"}
    assert stored | {"version"} == fields(TaskRow)


def test_restore_takes_every_field_of_an_exported_queue():
    """All but its key, the list it was on, and what its rules said, which are arguments."""
    assert fields(SavedQueue) - set(_QUEUE_FIELDS) == {"key", "standing", "said"}


def test_restore_takes_every_field_of_an_exports_end():
    """All but the outcomes, the timeline and the number of events, which are arguments."""
    assert fields(SavedEnd) - set(_END_FIELDS) == {"outcomes", "timeline", "logged"}


def test_numbers_of_a_crawls_rules_fill_the_fields_that_scripts_write():
    """`replace_rules` writes them by position, from the first to the last but one."""
    names = CrawlRow.__struct_fields__
    first, last = names.index("by_turn"), names.index("limit_seconds")

    assert len(crawl_numbers(CrawlRules())) == last - first + 2
