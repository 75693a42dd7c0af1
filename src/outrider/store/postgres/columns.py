"""The columns of the tables, in the order in which rows are read and written.

A column stores one field of a record: `field` names it if it is not the column's own name, with a
dot if it is in a part of the record (`politeness.level`). `rows` compiles from these tables how
records become rows and rows become records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise, starmap
from typing import Final, NamedTuple, TypeAlias


class Column(NamedTuple):
    """One column: its name, its type in PostgreSQL, and the field of the record it stores."""

    name: str
    type: str
    field: str = ""

    @property
    def source(self) -> str:
        """The field it stores."""
        return self.field or self.name


Columns: TypeAlias = tuple[Column, ...]


def select(columns: Columns, names: Iterable[str]) -> Columns:
    """Return the columns of these names."""
    by_name = {column.name: column for column in columns}
    return tuple(by_name[name] for name in names)


def index_of(columns: Sequence[Column], name: str) -> int:
    """Return where a column is in a row of these."""
    return [column.name for column in columns].index(name)


def slices_of(parts: Iterable[Columns]) -> tuple[slice, ...]:
    """Return where each part is in a row of all of them."""
    return tuple(starmap(slice, pairwise(accumulate(map(len, parts), initial=0))))


# ---- queues

QUEUE_NAMES: Final[Columns] = (
    Column("id", "bigint", "number"),
    Column("crawl", "integer"),
    Column("key", "text"),
)
_EVERY_VERB: Final[Columns] = (
    Column("pending", "bigint"),
    Column("in_flight", "integer"),
    Column("standing", "smallint", "list_state"),
    Column("alarm_at", "bigint", "wake_at"),
    Column("session", "bigint"),
    Column("spent", "bigint"),
    Column("next_ready_at", "bigint", "next_ready"),
)
_LEASE_STARTS: Final[Columns] = (
    Column("turn", "bigint"),
    Column("last_start_at", "bigint", "last_start"),
    Column("last_cost", "bigint"),
    Column("cost_sum", "bigint"),
    Column("cost_count", "bigint"),
)
_VISIT_ENDS: Final[Columns] = (
    Column("last_end_at", "bigint", "last_end"),
    Column("last_delay", "double precision", "politeness.last_delay"),
    Column("calm", "bigint", "politeness.calm"),
    Column("visits_done", "bigint"),
    Column("bytes", "bigint"),
    Column("done", "bigint"),
)
_SELDOM: Final[Columns] = (
    Column("epoch", "bigint"),
    Column("said_paused", "boolean", "rules.paused"),
    Column("said_retired", "boolean", "rules.retired"),
    Column("precedence", "integer"),
    Column("paused", "boolean"),
    Column("retired", "text"),
    Column("place", "bigint", "inactive_turn"),
    Column("why", "text", "wait_reason"),
    Column("delayed", "bigint"),
    Column("named", "integer"),
    Column("lent", "integer", "loaned"),
    Column("crashed", "integer", "loan_crashes"),
    Column("level", "bigint", "politeness.level"),
    Column("throttles_in_row", "bigint", "politeness.throttles_in_row"),
    Column("unreachable_in_row", "bigint", "politeness.unreachable_in_row"),
    Column("blocks_in_row", "bigint", "politeness.blocks_in_row"),
    Column("crawl_delay", "double precision", "politeness.crawl_delay"),
    Column("errors_in_row", "bigint"),
    Column("dead", "bigint"),
    Column("dropped", "bigint"),
    Column("routine_below", "bigint"),
)
_ENTRY: Final[Columns] = (
    Column("precedence", "integer"),
    Column("priority", "double precision"),
    Column("tie", "bigint"),
    Column("task", "bigint"),
    Column("due_at", "bigint"),
)


def _first_entry(prefix: str, columns: Columns = _ENTRY) -> Columns:
    return tuple(Column(f"{prefix}_{column.name}", column.type) for column in columns)


# Columns that are written together: a visit that begins or ends touches few of them.
VALUE_PARTS: Final[tuple[Columns, ...]] = (_EVERY_VERB, _LEASE_STARTS, _VISIT_ENDS, _SELDOM)
DISCOVERY: Final = _first_entry("discovery")
ACQUISITION: Final = _first_entry("acquisition")
DELAYED: Final = _first_entry("delayed", (Column("lane", "smallint"), *_ENTRY))
QUEUE_PARTS: Final[tuple[Columns, ...]] = (*VALUE_PARTS, DISCOVERY, ACQUISITION, DELAYED)
QUEUE_VALUES: Final[Columns] = tuple(chain.from_iterable(VALUE_PARTS))
QUEUE_COLUMNS: Final[Columns] = (*QUEUE_NAMES, *chain.from_iterable(QUEUE_PARTS))

# ---- tasks

TASK_NAMES: Final[Columns] = (
    Column("id", "bigint", "number"),
    Column("crawl", "integer"),
    Column("fingerprint", "uuid"),
    Column("discovered_at", "bigint", "discovered"),
)
TASK_DESCRIPTION: Final[Columns] = (
    Column("queue", "bigint"),
    Column("url", "text"),
    Column("type", "text"),
    Column("lane", "smallint"),
    Column("depth", "bigint"),
    Column("precedence", "integer"),
    Column("priority", "double precision"),
    Column("cost", "integer"),
    Column("delay", "double precision"),
    Column("known", "text"),
    Column("roll", "bigint"),
    Column("origin", "text"),
    Column("via", "text"),
    Column("tag", "text"),
    Column("meta", "text"),
    Column("breakdown", "json"),
)
# Columns that are written together: the place in a list, what every visit changes, the rest.
TASK_PARTS: Final[tuple[Columns, ...]] = (
    (Column("tie", "bigint"), Column("due_at", "bigint", "due")),
    (
        Column("state", "text"),
        Column("token", "bigint"),
        Column("attempts", "integer"),
        Column("claimed_at", "bigint", "claimed"),
        Column("finished_at", "bigint", "finished"),
        Column("answer", "json"),
        Column("answered_at", "bigint", "answered"),
    ),
    (
        Column("failures", "integer"),
        Column("crashes", "integer"),
        Column("throttles", "integer"),
        Column("reason", "text"),
        Column("history", "json"),
    ),
)
TASK_HISTORY: Final[Columns] = tuple(chain.from_iterable(TASK_PARTS))
TASK_COLUMNS: Final[Columns] = (*TASK_NAMES, *TASK_DESCRIPTION, *TASK_HISTORY)
NEW_TASK: Final[Columns] = (*TASK_NAMES, *TASK_DESCRIPTION, *TASK_PARTS[0])  # without a history
DESCRIPTION_UPDATE: Final[Columns] = (TASK_NAMES[0], *TASK_DESCRIPTION)

# ---- leases

HELD_LEASE: Final[Columns] = (
    Column("token", "bigint"),
    Column("worker", "text"),
    Column("claimed_at", "bigint", "claimed"),
    Column("deadline_at", "bigint", "deadline"),
    Column("named", "boolean"),
    Column("lent", "boolean", "loaned"),
)
LEASE_COLUMNS: Final[Columns] = (
    Column("task", "bigint"),
    Column("crawl", "integer"),
    Column("queue", "bigint"),
    *HELD_LEASE,
)
LEASE_KEY: Final[Columns] = LEASE_COLUMNS[:1]

# ---- lists of tasks and of queues

PENDING_COLUMNS: Final[Columns] = (
    Column("queue", "bigint"),
    Column("lane", "smallint"),
    *_ENTRY,
)
PENDING_KEY: Final[Columns] = PENDING_COLUMNS[:-1]
DELAYED_KEY: Final[Columns] = (
    Column("queue", "bigint"),
    *select(_ENTRY, ("due_at", "precedence", "priority", "tie", "task")),
)
DELAYED_COLUMNS: Final[Columns] = (*DELAYED_KEY, Column("lane", "smallint"))
READY_COLUMNS: Final[Columns] = (
    Column("crawl", "integer"),
    Column("lane", "smallint"),
    Column("queue_precedence", "integer"),
    Column("precedence", "integer"),
    Column("priority", "double precision"),
    Column("turn", "bigint"),
    Column("queue", "bigint"),
)
INACTIVE_COLUMNS: Final[Columns] = (
    Column("crawl", "integer"),
    Column("queue_precedence", "integer"),
    Column("place", "bigint"),
    Column("queue", "bigint"),
)
SNOOZE_COLUMNS: Final[Columns] = (
    Column("crawl", "integer"),
    Column("at", "bigint"),
    Column("queue", "bigint"),
)

# ---- what the fast path returns of a lease

RULES_KEY: Final = select(QUEUE_COLUMNS, ("epoch", "said_paused", "said_retired"))
_FAST_POLITENESS: Final = select(
    QUEUE_COLUMNS,
    (
        "calm",
        "throttles_in_row",
        "unreachable_in_row",
        "blocks_in_row",
        "last_delay",
        "crawl_delay",
    ),
)
FAST_QUEUE: Final[Columns] = (Column("key", "text"), *RULES_KEY, *_FAST_POLITENESS)
FAST_DESCRIPTION: Final[Columns] = (
    *select(TASK_NAMES, ("fingerprint",)),
    *(column for column in TASK_DESCRIPTION if column.name not in ("queue", "lane")),
)
FAST_LEASE: Final[Columns] = (
    Column("task", "bigint"),
    Column("token", "bigint"),
    *FAST_QUEUE,
    *select(TASK_COLUMNS, ("attempts", "failures", "throttles", "answer", "answered_at", "lane")),
    *FAST_DESCRIPTION,
)

# By the names that the statements use (see `sql`).
TABLES: Final[Mapping[str, Columns]] = {
    "queue": QUEUE_COLUMNS,
    "task": TASK_COLUMNS,
    "new_task": NEW_TASK,
    "description": DESCRIPTION_UPDATE,
    "lease": LEASE_COLUMNS,
    "held": HELD_LEASE,
    "pending": PENDING_COLUMNS,
    "pending_key": PENDING_KEY,
    "delayed": DELAYED_COLUMNS,
    "delayed_key": DELAYED_KEY,
    "ready": READY_COLUMNS,
    "inactive": INACTIVE_COLUMNS,
    "snooze": SNOOZE_COLUMNS,
    "fast_queue": FAST_QUEUE,
    "fast_description": FAST_DESCRIPTION,
    "fast_lease": FAST_LEASE,
}
