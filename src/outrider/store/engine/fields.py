"""The stored fields of queues and tasks, declared once: names in memory, in SQL and in exports.

`QUEUE_FIELDS` and `TASK_FIELDS` drive the rows of the embedded file and of PostgreSQL, the items
of an export and the views. Codecs are compiled from them when their module is imported, as
`dataclasses` does, to the code one would write by hand: every queue and task passes through them,
so they must not loop over names. A name with a dot is a field of a part of the record
(`politeness`, `rules`, `task`).

To add a field: add it to the record and here; the structs of rows and export items that must have
it fail at import until they do. The rows of the embedded file are durable and positional: a field
is added at their end, with a default, and never removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

# Which columns a SQL store writes together: a visit changes few of them.
Group: TypeAlias = Literal["identity", "about", "order", "always", "start", "end", "rare", "lease"]

_INT, _LONG, _SHORT = "integer", "bigint", "smallint"
_TEXT, _BOOL, _REAL, _JSON = "text", "boolean", "double precision", "json"


class Field(NamedTuple):
    """One stored field."""

    name: str  # of the record
    sql: str  # its type in PostgreSQL
    group: Group
    column: str = ""  # in PostgreSQL, if another name
    paged: bool = True  # False: the embedded file derives it from lists, leases or the task
    exported: str = ""  # in an export; "": not there
    none: bool = False  # in an export, a value below 0 is None

    @property
    def sql_name(self) -> str:
        """Its column in PostgreSQL."""
        return self.column or self.last_name

    @property
    def last_name(self) -> str:
        """Its name without the part it belongs to."""
        return self.name.rpartition(".")[2]


QUEUE_FIELDS: Final = (
    Field("key", _TEXT, "identity", exported="key"),
    Field("number", _LONG, "identity", "id"),
    Field("turn", _LONG, "start", exported="turn"),
    Field("paused", _BOOL, "rare", exported="paused"),
    Field("retired", _TEXT, "rare", exported="retired"),
    Field("session", _LONG, "always", exported="session", none=True),
    Field("spent", _LONG, "always", exported="spent"),
    Field("next_ready", _LONG, "always", "next_ready_at", exported="next_ready"),
    Field("wait_reason", _TEXT, "rare", "why", exported="why"),
    Field("last_start", _LONG, "start", "last_start_at", exported="last_start", none=True),
    Field("last_end", _LONG, "end", "last_end_at", exported="last_end", none=True),
    Field("politeness.level", _LONG, "rare", exported="level"),
    Field("politeness.calm", _LONG, "end", exported="calm"),
    Field("politeness.throttles_in_row", _LONG, "rare", exported="throttles_in_row"),
    Field("politeness.unreachable_in_row", _LONG, "rare", exported="unreachable_in_row"),
    Field("politeness.blocks_in_row", _LONG, "rare", exported="blocks_in_row"),
    Field("politeness.last_delay", _REAL, "end", exported="last_delay", none=True),
    Field("politeness.crawl_delay", _REAL, "rare", exported="crawl_delay"),
    Field("errors_in_row", _LONG, "rare", exported="errors"),
    Field("visits_done", _LONG, "end", exported="dones"),
    Field("bytes", _LONG, "end", exported="bytes"),
    Field("done", _LONG, "end"),
    Field("dead", _LONG, "rare"),
    Field("dropped", _LONG, "rare"),
    Field("last_cost", _LONG, "start", exported="last_cost"),
    Field("cost_sum", _LONG, "start", exported="cost_sum"),
    Field("cost_count", _LONG, "start", exported="cost_count"),
    Field("list_state", _SHORT, "always", "standing"),
    Field("inactive_turn", _LONG, "rare", "place"),
    Field("epoch", _LONG, "rare"),
    Field("rules.paused", _BOOL, "rare", "said_paused"),
    Field("rules.retired", _BOOL, "rare", "said_retired"),
    Field("loan_crashes", _INT, "rare", "crashed"),
    Field("pending", _LONG, "always", paged=False),
    Field("in_flight", _INT, "always", paged=False),
    Field("wake_at", _LONG, "always", "alarm_at", paged=False),
    Field("precedence", _INT, "rare", paged=False),
    Field("named", _INT, "rare", paged=False),
    Field("loaned", _INT, "rare", "lent", paged=False),
)

TASK_FIELDS: Final = (
    Field("number", _LONG, "identity", "id", paged=False),
    Field("task.fingerprint", "uuid", "identity", paged=False, exported="fingerprint"),
    Field("discovered", _LONG, "identity", "discovered_at", exported="discovered"),
    Field("queue.number", _LONG, "about", "queue", paged=False),
    Field("task.url", _TEXT, "about", paged=False, exported="url"),
    Field("task.type", _TEXT, "about", paged=False, exported="type"),
    Field("task.lane", _SHORT, "about", paged=False, exported="lane"),
    Field("task.depth", _LONG, "about", paged=False, exported="depth"),
    Field("task.precedence", _INT, "about", paged=False, exported="precedence"),
    Field("task.priority", _REAL, "about", paged=False, exported="priority"),
    Field("task.cost", _INT, "about", paged=False, exported="cost"),
    Field("task.delay", _REAL, "about", paged=False, exported="delay"),
    Field("task.known", _TEXT, "about", paged=False, exported="known"),
    Field("task.roll", _LONG, "about", paged=False, exported="roll"),
    Field("task.origin", _TEXT, "about", paged=False, exported="origin"),
    Field("task.via", _TEXT, "about", paged=False, exported="via"),
    Field("task.tag", _TEXT, "about", paged=False, exported="tag"),
    Field("task.meta", _TEXT, "about", paged=False, exported="meta"),
    Field("task.breakdown", _JSON, "about", paged=False, exported="breakdown"),
    Field("task.text", _TEXT, "about", paged=False, exported="text"),
    Field("task.typed_by", _TEXT, "about", paged=False, exported="typed_by"),
    Field("key", _LONG, "order", "tie", exported="tie"),
    Field("due", _LONG, "order", "due_at", exported="due"),
    Field("state", _TEXT, "always", exported="state"),
    Field("token", _LONG, "always"),
    Field("attempts", _INT, "always", exported="attempts"),
    Field("claimed", _LONG, "always", "claimed_at", exported="claimed", none=True),
    Field("finished", _LONG, "always", "finished_at", exported="finished", none=True),
    Field("answer", _JSON, "always", exported="answer"),
    Field("answered", _LONG, "always", "answered_at", exported="answered", none=True),
    Field("failures", _INT, "rare", exported="failures"),
    Field("crashes", _INT, "rare", exported="crashes"),
    Field("throttles", _INT, "rare", exported="throttles"),
    Field("blocks", _INT, "rare", exported="blocks"),
    Field("reason", _TEXT, "rare", exported="reason"),
    Field("history", _JSON, "rare", exported="history"),
    Field("worker", _TEXT, "lease"),
    Field("deadline", _LONG, "lease", "deadline_at"),
    Field("lease_turn", _LONG, "lease", "turn"),
    Field("leased", _LONG, "lease", "leased_at"),
    Field("lasts", _LONG, "lease"),
    Field("named", _BOOL, "lease"),
    Field("loaned", _BOOL, "lease", "lent"),
    Field("process", _TEXT, "lease"),
    Field("drawn", _REAL, "lease"),
)


# ---- compiling


def compile_function(
    name: str, parameters: str, body: Iterable[str], scope: Mapping[str, Any]
) -> Any:
    """Return a function of these lines, as `dataclasses` makes its own."""
    source = f"def {name}({parameters}):\n" + "\n".join(f"    {line}" for line in body)
    namespace: dict[str, Any] = dict(scope)
    exec(compile(source, f"<{name}>", "exec"), namespace)  # noqa: S102 - made of the tables above
    function = namespace[name]
    function.__source__ = source
    return function


def load_parts(fields: Iterable[Field], record: str) -> list[str]:
    """Return lines that bind the parts of a record to locals, so each is read once."""
    parts = dict.fromkeys(f.name.partition(".")[0] for f in fields if "." in f.name)
    return [f"{part} = {record}.{part}" for part in parts]


def read(field: Field, record: str) -> str:
    """Return the expression that reads a field, after `load_parts`."""
    return field.name if "." in field.name else f"{record}.{field.name}"


def arguments(
    names: Sequence[str], values: Mapping[str, str], computed: Mapping[str, str]
) -> list[str]:
    """Return an expression for each name, in order: computed, or from the table.

    Raises `TypeError` for a name without an expression and for one that is in no position, so that
    a struct and a table that differ fail at import.
    """
    missing = [name for name in names if name not in values and name not in computed]
    unused = [name for name in (*values, *computed) if name not in names]
    if missing or unused:
        raise TypeError(f"fields that only one of struct and table has: {missing + unused}")
    return [computed.get(name) or values[name] for name in names]


def exported_values(fields: Iterable[Field], record: str) -> dict[str, str]:
    """Return the expressions of an export item by the item's field names."""
    values = {}
    for field in fields:
        if field.exported:
            value = read(field, record)
            values[field.exported] = f"None if {value} < 0 else {value}" if field.none else value
    return values


def imported_values(fields: Iterable[Field], item: str) -> dict[str, str]:
    """Return the expressions of record fields, by their names, read from an export item."""
    values = {}
    for field in fields:
        if field.exported:
            value, never = f"{item}.{field.exported}", "-1.0" if field.sql == _REAL else "-1"
            values[field.name] = f"{never} if {value} is None else {value}" if field.none else value
    return values
