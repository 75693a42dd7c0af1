"""The columns of the tables, in the order in which rows are read and written."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, chain, pairwise, starmap
from typing import Final, NamedTuple, TypeAlias


class Column(NamedTuple):
    """One column: its name and its type in PostgreSQL."""

    name: str
    type: str


Columns: TypeAlias = tuple[Column, ...]

# Of a queue: what names it, its numbers in the order of `numbers_of`, and its first tasks.
QUEUE_NAMES: Final[Columns] = (
    Column("id", "bigint"),
    Column("crawl", "integer"),
    Column("key", "text"),
)

_ALWAYS: Final[Columns] = (
    Column("pending", "bigint"),
    Column("in_flight", "integer"),
    Column("standing", "smallint"),
    Column("alarm_at", "bigint"),
    Column("session", "bigint"),
    Column("spent", "bigint"),
    Column("next_ready_at", "bigint"),
)
_LENT: Final[Columns] = (
    Column("turn", "bigint"),
    Column("last_start_at", "bigint"),
    Column("last_cost", "bigint"),
    Column("cost_sum", "bigint"),
    Column("cost_count", "bigint"),
)
_ENDED: Final[Columns] = (
    Column("last_end_at", "bigint"),
    Column("last_delay", "double precision"),
    Column("calm", "bigint"),
    Column("visits_done", "bigint"),
    Column("bytes", "bigint"),
    Column("done", "bigint"),
)
_SELDOM: Final[Columns] = (
    Column("epoch", "bigint"),
    Column("said_paused", "boolean"),
    Column("said_retired", "boolean"),
    Column("precedence", "integer"),
    Column("paused", "boolean"),
    Column("retired", "text"),
    Column("place", "bigint"),
    Column("why", "text"),
    Column("delayed", "bigint"),
    Column("named", "integer"),
    Column("lent", "integer"),
    Column("crashed", "integer"),
    Column("level", "bigint"),
    Column("throttles_in_row", "bigint"),
    Column("unreachable_in_row", "bigint"),
    Column("blocks_in_row", "bigint"),
    Column("crawl_delay", "double precision"),
    Column("errors_in_row", "bigint"),
    Column("dead", "bigint"),
    Column("dropped", "bigint"),
    Column("routine_below", "bigint"),
)
_TOP: Final[Columns] = (
    Column("precedence", "integer"),
    Column("priority", "double precision"),
    Column("tie", "bigint"),
    Column("task", "bigint"),
    Column("due_at", "bigint"),
)
# What is written together: a visit that begins or ends touches few of them.
QUEUE_PARTS: Final[tuple[Columns, ...]] = (
    _ALWAYS,
    _LENT,
    _ENDED,
    _SELDOM,
    tuple(Column(f"discovery_{name}", kind) for name, kind in _TOP),
    tuple(Column(f"acquisition_{name}", kind) for name, kind in _TOP),
    (Column("delayed_lane", "smallint"), *(Column(f"delayed_{name}", kind) for name, kind in _TOP)),
)
DELAYED_PART: Final = 6
NUMBER_PARTS: Final = 4  # of those parts; the others are a queue's first tasks
TOP_PARTS: Final = range(NUMBER_PARTS, len(QUEUE_PARTS))
QUEUE_COLUMNS: Final[Columns] = (*QUEUE_NAMES, *chain.from_iterable(QUEUE_PARTS))
_PARTS_AT: Final = tuple(accumulate(map(len, QUEUE_PARTS), initial=0))
PARTS: Final = tuple(starmap(slice, pairwise(_PARTS_AT)))  # where each is, behind the names
NUMBERS: Final = slice(len(QUEUE_NAMES), len(QUEUE_NAMES) + _PARTS_AT[NUMBER_PARTS])
TURN_AT: Final = 7  # among the numbers
PLACE_AT: Final = 24
EPOCH_AT: Final = NUMBERS.start + PARTS[3].start
RULED: Final = slice(EPOCH_AT, EPOCH_AT + 3)  # which rules a queue obeys
DISCOVERY: Final = slice(NUMBERS.stop, NUMBERS.stop + len(_TOP))
ACQUISITION: Final = slice(DISCOVERY.stop, DISCOVERY.stop + len(_TOP))

# Of a task: what it is, and what its visits made of it.
TASK_NAMES: Final[Columns] = (
    Column("id", "bigint"),
    Column("crawl", "integer"),
    Column("fingerprint", "uuid"),
    Column("discovered_at", "bigint"),
)
TASK_ABOUT: Final[Columns] = (
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
# Of its fate, what is written together: its place in line, what every visit changes, the rest.
TASK_PARTS: Final[tuple[Columns, ...]] = (
    (Column("tie", "bigint"), Column("due_at", "bigint")),
    (
        Column("state", "text"),
        Column("token", "bigint"),
        Column("attempts", "integer"),
        Column("claimed_at", "bigint"),
        Column("finished_at", "bigint"),
        Column("answer", "json"),
        Column("answered_at", "bigint"),
    ),
    (
        Column("failures", "integer"),
        Column("crashes", "integer"),
        Column("throttles", "integer"),
        Column("reason", "text"),
        Column("history", "json"),
    ),
)
FATES: Final = tuple(starmap(slice, pairwise(accumulate(map(len, TASK_PARTS), initial=0))))
TASK_FATE: Final[Columns] = tuple(chain.from_iterable(TASK_PARTS))
TASK_COLUMNS: Final[Columns] = (*TASK_NAMES, *TASK_ABOUT, *TASK_FATE)
BIRTH_COLUMNS: Final[Columns] = (*TASK_NAMES, *TASK_ABOUT, *TASK_PARTS[0])  # nothing happened yet
LEASE_COLUMNS: Final[Columns] = (
    Column("task", "bigint"),
    Column("crawl", "integer"),
    Column("queue", "bigint"),
    Column("token", "bigint"),
    Column("worker", "text"),
    Column("claimed_at", "bigint"),
    Column("deadline_at", "bigint"),
    Column("named", "boolean"),
    Column("lent", "boolean"),
)

# ---- lists of tasks and of queues

PENDING_KEY: Final[Columns] = (
    Column("queue", "bigint"),
    Column("lane", "smallint"),
    Column("precedence", "integer"),
    Column("priority", "double precision"),
    Column("tie", "bigint"),
    Column("task", "bigint"),
)
PENDING_COLUMNS: Final[Columns] = (*PENDING_KEY, Column("due_at", "bigint"))
DELAYED_KEY: Final[Columns] = (
    Column("queue", "bigint"),
    Column("due_at", "bigint"),
    Column("precedence", "integer"),
    Column("priority", "double precision"),
    Column("tie", "bigint"),
    Column("task", "bigint"),
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
DESCRIPTION_COLUMNS: Final[Columns] = (TASK_NAMES[0], *TASK_ABOUT)
HELD_COLUMNS: Final[Columns] = LEASE_COLUMNS[3:]

# ---- what a visit that begins on the fast path returns

_LEASED_QUEUE_NAMES: Final = (
    "key",
    "epoch",
    "said_paused",
    "said_retired",
    "calm",
    "throttles_in_row",
    "unreachable_in_row",
    "blocks_in_row",
    "last_delay",
    "crawl_delay",
)
_LEASED_TASK_NAMES: Final = ("attempts", "failures", "throttles", "answer", "answered_at")


def _pick(columns: Columns, names: tuple[str, ...]) -> Columns:
    by_name = {column.name: column for column in columns}
    return tuple(by_name[name] for name in names)


LEASED_QUEUE: Final = _pick(QUEUE_COLUMNS, _LEASED_QUEUE_NAMES)
LEASED_ABOUT: Final[Columns] = tuple(
    column for column in (TASK_NAMES[2], *TASK_ABOUT) if column.name not in ("queue", "lane")
)
LEASED_TASK: Final[Columns] = (
    Column("task", "bigint"),
    Column("token", "bigint"),
    *LEASED_QUEUE,
    *_pick(TASK_COLUMNS, _LEASED_TASK_NAMES),
    TASK_NAMES[2],
    *TASK_ABOUT,
)

# By the names the statements use (see `sql`).
TABLES: Final[Mapping[str, Columns]] = {
    "queue": QUEUE_COLUMNS,
    "task": TASK_COLUMNS,
    "new_task": BIRTH_COLUMNS,
    "description": DESCRIPTION_COLUMNS,
    "lease": LEASE_COLUMNS,
    "held": HELD_COLUMNS,
    "pending": PENDING_COLUMNS,
    "pending_key": PENDING_KEY,
    "delayed": DELAYED_COLUMNS,
    "delayed_key": DELAYED_KEY,
    "ready": READY_COLUMNS,
    "inactive": INACTIVE_COLUMNS,
    "snooze": SNOOZE_COLUMNS,
    "leased_queue": LEASED_QUEUE,
    "leased_about": LEASED_ABOUT,
    "leased_task": LEASED_TASK,
}
