"""The columns of the tables, in the order in which rows are read and written.

The columns of queues and tasks come from `engine.fields`; here are those that only this store has,
and the tables of lists. `rows` compiles from them how records become rows and rows become records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise, starmap
from typing import Final, NamedTuple, TypeAlias

from outrider.store.engine.fields import QUEUE_FIELDS, TASK_FIELDS, Field, Group


class Column(NamedTuple):
    """One column: its name, its type in PostgreSQL, and the field of the record it stores."""

    name: str
    type: str
    field: str = ""  # "": it stores no field


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


def _group(fields: Iterable[Field], group: Group) -> Columns:
    """Return the columns of the fields that are written together."""
    return tuple(
        Column(field.sql_name, field.sql, field.name) for field in fields if field.group == group
    )


_CRAWL: Final = Column("crawl", "integer")

# ---- queues

QUEUE_NAMES: Final[Columns] = (*_group(QUEUE_FIELDS, "identity"), _CRAWL)
_DELAYED_COUNT: Final = Column("delayed", "bigint")
_FAST_PATH_BELOW: Final = Column("routine_below", "bigint")
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
VALUE_PARTS: Final[tuple[Columns, ...]] = (
    _group(QUEUE_FIELDS, "always"),
    _group(QUEUE_FIELDS, "start"),
    _group(QUEUE_FIELDS, "end"),
    (*_group(QUEUE_FIELDS, "rare"), _DELAYED_COUNT, _FAST_PATH_BELOW),
)
DISCOVERY: Final = _first_entry("discovery")
ACQUISITION: Final = _first_entry("acquisition")
DELAYED: Final = _first_entry("delayed", (Column("lane", "smallint"), *_ENTRY))
QUEUE_PARTS: Final[tuple[Columns, ...]] = (*VALUE_PARTS, DISCOVERY, ACQUISITION, DELAYED)
QUEUE_VALUES: Final[Columns] = tuple(chain.from_iterable(VALUE_PARTS))
QUEUE_COLUMNS: Final[Columns] = (*QUEUE_NAMES, *chain.from_iterable(QUEUE_PARTS))

# ---- tasks

TASK_NAMES: Final[Columns] = (*_group(TASK_FIELDS, "identity"), _CRAWL)
TASK_DESCRIPTION: Final = _group(TASK_FIELDS, "about")
# Columns that are written together: the place in a list, what every visit changes, the rest.
TASK_PARTS: Final[tuple[Columns, ...]] = (
    _group(TASK_FIELDS, "order"),
    _group(TASK_FIELDS, "always"),
    _group(TASK_FIELDS, "rare"),
)
TASK_HISTORY: Final[Columns] = tuple(chain.from_iterable(TASK_PARTS))
TASK_COLUMNS: Final[Columns] = (*TASK_NAMES, *TASK_DESCRIPTION, *TASK_HISTORY)
NEW_TASK: Final[Columns] = (*TASK_NAMES, *TASK_DESCRIPTION, *TASK_PARTS[0])  # without a history
DESCRIPTION_UPDATE: Final[Columns] = (*select(TASK_NAMES, ("id",)), *TASK_DESCRIPTION)

# ---- leases

HELD_LEASE: Final[Columns] = (
    *select(TASK_HISTORY, ("token", "claimed_at")),
    *(column for column in _group(TASK_FIELDS, "lease") if column.name != "process"),
)
LEASE_KEY: Final[Columns] = (Column("task", "bigint"),)
LEASE_COLUMNS: Final[Columns] = (*LEASE_KEY, _CRAWL, Column("queue", "bigint"), *HELD_LEASE)

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
    _CRAWL,
    Column("lane", "smallint"),
    Column("queue_precedence", "integer"),
    Column("precedence", "integer"),
    Column("priority", "double precision"),
    Column("turn", "bigint"),
    Column("queue", "bigint"),
)
INACTIVE_COLUMNS: Final[Columns] = (
    _CRAWL,
    Column("queue_precedence", "integer"),
    Column("place", "bigint"),
    Column("queue", "bigint"),
)
SNOOZE_COLUMNS: Final[Columns] = (
    _CRAWL,
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
FAST_QUEUE: Final[Columns] = (
    *(Column("key", "text"), *RULES_KEY, *_FAST_POLITENESS),
    *select(QUEUE_COLUMNS, ("last_end_at",)),
)
FAST_DESCRIPTION: Final[Columns] = (
    *select(TASK_NAMES, ("fingerprint",)),
    *(column for column in TASK_DESCRIPTION if column.name not in ("queue", "lane")),
)
FAST_LEASE: Final[Columns] = (
    Column("task", "bigint"),
    Column("token", "bigint"),
    *FAST_QUEUE,
    *select(TASK_COLUMNS, ("attempts", "failures", "throttles", "answer", "answered_at", "lane")),
    *select(_ENTRY, ("due_at",)),
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
