"""The columns of the tables: their order is that of the rows that are read and written."""

from __future__ import annotations

from itertools import accumulate, chain, pairwise, starmap
from typing import Final, TypeAlias

Columns: TypeAlias = tuple[tuple[str, str], ...]

# Of a queue: what names it, its numbers in the order of `numbers_of`, and its first tasks.
QUEUE_NAMES: Final[Columns] = (("id", "bigint"), ("crawl", "integer"), ("key", "text"))

_ALWAYS: Final[Columns] = (
    ("pending", "bigint"),
    ("in_flight", "integer"),
    ("standing", "smallint"),
    ("alarm_at", "bigint"),
    ("session", "bigint"),
    ("spent", "bigint"),
    ("next_ready_at", "bigint"),
)
_LENT: Final[Columns] = (
    ("turn", "bigint"),
    ("last_start_at", "bigint"),
    ("last_cost", "bigint"),
    ("cost_sum", "bigint"),
    ("cost_count", "bigint"),
)
_ENDED: Final[Columns] = (
    ("last_end_at", "bigint"),
    ("last_delay", "double precision"),
    ("calm", "bigint"),
    ("visits_done", "bigint"),
    ("bytes", "bigint"),
    ("done", "bigint"),
)
_SELDOM: Final[Columns] = (
    ("epoch", "bigint"),
    ("said_paused", "boolean"),
    ("said_retired", "boolean"),
    ("precedence", "integer"),
    ("paused", "boolean"),
    ("retired", "text"),
    ("place", "bigint"),
    ("why", "text"),
    ("delayed", "bigint"),
    ("named", "integer"),
    ("lent", "integer"),
    ("crashed", "integer"),
    ("level", "bigint"),
    ("throttles_in_row", "bigint"),
    ("unreachable_in_row", "bigint"),
    ("blocks_in_row", "bigint"),
    ("crawl_delay", "double precision"),
    ("errors_in_row", "bigint"),
    ("dead", "bigint"),
    ("dropped", "bigint"),
    ("routine_below", "bigint"),
)
_TOP: Final[Columns] = (
    ("precedence", "integer"),
    ("priority", "double precision"),
    ("tie", "bigint"),
    ("task", "bigint"),
    ("due_at", "bigint"),
)
# What is written together: a visit that begins or ends touches few of them.
QUEUE_PARTS: Final[tuple[Columns, ...]] = (
    _ALWAYS,
    _LENT,
    _ENDED,
    _SELDOM,
    tuple((f"discovery_{name}", kind) for name, kind in _TOP),
    tuple((f"acquisition_{name}", kind) for name, kind in _TOP),
    (("delayed_lane", "smallint"), *((f"delayed_{name}", kind) for name, kind in _TOP)),
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
    ("id", "bigint"),
    ("crawl", "integer"),
    ("fingerprint", "uuid"),
    ("discovered_at", "bigint"),
)
TASK_ABOUT: Final[Columns] = (
    ("queue", "bigint"),
    ("url", "text"),
    ("type", "text"),
    ("lane", "smallint"),
    ("depth", "bigint"),
    ("precedence", "integer"),
    ("priority", "double precision"),
    ("cost", "integer"),
    ("delay", "double precision"),
    ("known", "text"),
    ("roll", "bigint"),
    ("origin", "text"),
    ("via", "text"),
    ("tag", "text"),
    ("meta", "text"),
    ("breakdown", "json"),
)
# Of its fate, what is written together: its place in line, what every visit changes, the rest.
FATE_PARTS: Final[tuple[Columns, ...]] = (
    (("tie", "bigint"), ("due_at", "bigint")),
    (
        ("state", "text"),
        ("token", "bigint"),
        ("attempts", "integer"),
        ("claimed_at", "bigint"),
        ("finished_at", "bigint"),
        ("answer", "json"),
        ("answered_at", "bigint"),
    ),
    (
        ("failures", "integer"),
        ("crashes", "integer"),
        ("throttles", "integer"),
        ("reason", "text"),
        ("history", "json"),
    ),
)
FATES: Final = tuple(starmap(slice, pairwise(accumulate(map(len, FATE_PARTS), initial=0))))
TASK_FATE: Final[Columns] = tuple(chain.from_iterable(FATE_PARTS))
TASK_COLUMNS: Final[Columns] = (*TASK_NAMES, *TASK_ABOUT, *TASK_FATE)
BIRTH_COLUMNS: Final[Columns] = (*TASK_NAMES, *TASK_ABOUT, *FATE_PARTS[0])  # nothing happened yet
LEASE_COLUMNS: Final[Columns] = (
    ("task", "bigint"),
    ("crawl", "integer"),
    ("queue", "bigint"),
    ("token", "bigint"),
    ("worker", "text"),
    ("claimed_at", "bigint"),
    ("deadline_at", "bigint"),
    ("named", "boolean"),
    ("lent", "boolean"),
)
