"""The statements of the PostgreSQL store: loaded from the `.sql` files beside this module.

A file holds named statements. Each begins with `-- name:`, then says in comments what it is for,
its parameters (`-- in:`, in their order) and the columns it returns (`-- out:`); comments are not
sent. Lists of columns are not written out but filled in from the tables of `columns`:

- `{names TABLE}`, `{names TABLE ALIAS}`: the columns' names, behind an alias.
- `{read TABLE ALIAS}`: as they are read: a fingerprint as its bytes, JSON as its text.
- `{rows TABLE}`: the rows of one array parameter for each column, as `v`.
- `{set TABLE}`: `name = v.name` for each column but the first.
- `{match TABLE}`: `t.name = v.name` for each column.

All other placeholders (`{lock}`, `{lane}` …) are filled by the constants below, or when it is known
which columns are written. The clock is a parameter of the statements that ask for time: it is never
a function that is evaluated row by row, which no index can serve.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from outrider.store.postgres.columns import QUEUE_PARTS, TABLES, TASK_PARTS, Column, Columns

FILES: Final = ("crawls", "queues", "tasks", "fast_path", "journal")
SEQUENCES: Final = ("tasks", "queues", "turns", "arrivals", "events")
_LANES: Final = ("discovery", "acquisition")
_ID: Final = Column("id", "bigint")

_find_placeholders = re.compile(r"\{(\w+)(?: (\w+))?(?: (\w+))?\}")


class Statement(NamedTuple):
    """One statement of a file: its contract, and its text."""

    contract: str
    text: str


class Lockable(NamedTuple):
    """A statement that reads queues: as it is, with their locks, and of those that are unlocked."""

    read: str
    lock: str
    lock_free: str


# ---- loading


def _names(columns: Columns, alias: str = "") -> str:
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + column.name for column in columns)


def _read(columns: Columns, alias: str) -> str:
    return ", ".join(_read_one(column, f"{alias}.{column.name}") for column in columns)


def _read_one(column: Column, name: str) -> str:
    if column.type == "uuid":
        return f"uuid_send({name}) as {column.name}"
    return f"{name}::text" if column.type == "json" else name


def _rows(columns: Columns, _: str = "") -> str:
    arrays = ", ".join(f"%s::{column.type}[]" for column in columns)
    return f"unnest({arrays}) as v ({_names(columns)})"


def _set(columns: Columns, _: str = "") -> str:
    return ", ".join(f"{column.name} = v.{column.name}" for column in columns[1:])


def _match(columns: Columns, _: str = "") -> str:
    return " and ".join(f"t.{column.name} = v.{column.name}" for column in columns)


_FILLERS: Final[Mapping[str, Callable[[Columns, str], str]]] = {
    "names": _names,
    "read": _read,
    "rows": _rows,
    "set": _set,
    "match": _match,
}


def _fill_columns(text: str) -> str:
    """Fill the placeholders that name a table, and leave the others."""

    def fill(found: re.Match[str]) -> str:
        kind, table, alias = found.groups()
        return _FILLERS[kind](TABLES[table], alias or "") if table else found[0]

    return _find_placeholders.sub(fill, text)


def parse_statements(text: str) -> dict[str, Statement]:
    """Parse a file into its statements by name."""
    found = {}
    for part in text.split("-- name: ")[1:]:
        name, _, rest = part.partition("\n")
        lines = rest.strip().splitlines()
        contract = [line[2:].strip() for line in lines if line.startswith("--")]
        body = [line for line in lines if not line.startswith("--")]
        found[name.strip()] = Statement("\n".join(contract), "\n".join(body).strip())
    return found


def _load() -> dict[str, Statement]:
    found: dict[str, Statement] = {}
    for name in FILES:
        file = resources.files(__name__) / f"{name}.sql"
        found.update(parse_statements(file.read_text(encoding="utf-8")))
    return found


STATEMENTS: Final = _load()


def _text(name: str, **filled: object) -> str:
    text = _fill_columns(STATEMENTS[name].text)
    for placeholder, value in filled.items():
        text = text.replace(f"{{{placeholder}}}", str(value))
    return text.strip()


def _lockable(name: str) -> Lockable:
    locks = ("", "for update of q", "for update of q skip locked")
    return Lockable(*(_text(name, lock=lock) for lock in locks))


# ---- crawls.sql

OPEN_TRANSACTION: Final = _text("open_transaction")
COMMIT_LAZILY: Final = _text("commit_lazily")
LOCK_SHARED: Final = _text("lock_shared")
LOCK_EXCLUSIVE: Final = _text("lock_exclusive")
TRY_LOCK: Final = _text("try_lock")
NOTIFY: Final = _text("notify")
READ_CRAWL: Final = _text("read_crawl")
CRAWL_NAMES: Final = _text("crawl_names")
CRAWLS_WITH_OVERDUE_LEASES: Final = _text("crawls_with_overdue_leases")
INSERT_CRAWL: Final = _text("insert_crawl")
UPDATE_CRAWL: Final = _text("update_crawl")
READ_RULES: Final = _text("read_rules")
INSERT_RULES: Final = _text("insert_rules")
DELETE_OLD_RULES: Final = _text("delete_old_rules")
NEXT_NUMBERS: Final = _text("next_numbers")
NEXT_EVENT_NUMBERS: Final = _text("next_event_numbers")
LAST_ARRIVAL: Final = _text("last_arrival")
LAST_NUMBERS: Final = _text("last_numbers")
SET_LAST_NUMBER: Final = _text("set_last_number")
SERVER_SETTINGS: Final = _text("server_settings")
DURABILITY_SETTINGS: Final = _text("durability_settings")
SERVER_INSTANT: Final = _text("server_instant")
CONNECTION_LIMITS: Final = _text("connection_limits")
USE_SCHEMA: Final = _text("use_schema")
SCHEMA_EXISTS: Final = _text("schema_exists")
SCHEMA_RIGHTS: Final = _text("schema_rights")
LOOK_AT_SCHEMA: Final = _text("look_at_schema")
CREATE_MIGRATIONS: Final = _text("create_migrations")
APPLIED_MIGRATIONS: Final = _text("applied_migrations")
INSERT_MIGRATION: Final = _text("insert_migration")
INSERT_STORE: Final = _text("insert_store")
READ_STORE: Final = _text("read_store")
DELETE_CRAWL: Final = _text("delete_crawl")


@cache
def delete_rows_of_crawl(table: str) -> str:
    """Return the statement that deletes some rows of a table by their crawl."""
    return _text("delete_rows_of_crawl", table=table)


@cache
def delete_rows_between(table: str, column: str) -> str:
    """Return the statement that deletes some rows of a table by ids of tasks or queues."""
    return _text("delete_rows_between", table=table, column=column)


@cache
def drop_sequences(crawl: int) -> str:
    """Return the statement that drops the sequences of a crawl."""
    names = ", ".join(f"{sequence}_{crawl}" for sequence in SEQUENCES)
    return _text("drop_sequences", sequences=names)


@cache
def create_sequence(name: str) -> str:
    """Return the statement that creates a sequence."""
    return _text("create_sequence", sequence=name)


# ---- queues.sql

QUEUES_BY_KEY: Final = _lockable("queues_by_key")
QUEUES_BY_ID: Final = _lockable("queues_by_id")
QUEUES_OF_KEYS: Final = _text("queues_of_keys")
QUEUES_OF_TASKS: Final = _lockable("queues_of_tasks")
QUEUES_BETWEEN: Final = _lockable("queues_between")
KEYS_AFTER: Final = _text("keys_after")
KEYS_BETWEEN: Final = _text("keys_between")
WAKES_AFTER: Final = _text("wakes_after")
INSERT_QUEUES: Final = _text("insert_queues")
READY_QUEUES: Final = _text("ready_queues")
WAKING_QUEUES: Final = _text("waking_queues")
INACTIVE_QUEUES: Final = _text("inactive_queues")
HAS_INACTIVE: Final = _text("has_inactive")
WAIT_INFO: Final = _text("wait_info")
WAIT_INFO_OF_QUEUES: Final = _text("wait_info_of_queues")
ORDER_READY_BY_TURN: Final = _text("order_ready_by_turn")
ORDER_READY_BY_PRIORITY: Final = _text("order_ready_by_priority")
INSERT_READY: Final = _text("insert_ready")
DELETE_READY: Final = _text("delete_ready")
INSERT_INACTIVE: Final = _text("insert_inactive")
DELETE_INACTIVE: Final = _text("delete_inactive")
INSERT_SNOOZE: Final = _text("insert_snooze")
DELETE_SNOOZE: Final = _text("delete_snooze")
INSERT_PENDING: Final = _text("insert_pending")
DELETE_PENDING: Final = _text("delete_pending")
INSERT_DELAYED: Final = _text("insert_delayed")
DELETE_DELAYED: Final = _text("delete_delayed")
LANE_AFTER: Final = _text("lane_after")
DELAYED_AFTER: Final = _text("delayed_after")
LANE_ENTRIES: Final = _text("lane_entries")


@cache
def update_queues(parts: tuple[int, ...]) -> tuple[str, Columns]:
    """Return the statement that writes some parts of queues, and the columns it takes."""
    return _update("update_queues", [column for part in parts for column in QUEUE_PARTS[part]])


def _update(name: str, changed: list[Column]) -> tuple[str, Columns]:
    columns = (_ID, *changed)
    return _text(name, set=_set(columns), rows=_rows(columns)), columns


# ---- tasks.sql

KNOWN_TASKS: Final = _text("known_tasks")
LOAD_TASKS: Final = _text("load_tasks")
FIRST_TASKS: Final = _text("first_tasks")
READ_TASKS: Final = _text("read_tasks")
READ_TASKS_BETWEEN: Final = _text("read_tasks_between")
TASKS_IN_QUEUE: Final = _text("tasks_in_queue")
TASK_STATES_IN_QUEUE: Final = _text("task_states_in_queue")
FILLING_TASK: Final = _text("filling_task")
FILLING_TASK_OF: Final = _text("filling_task_of")
TASK_URL: Final = _text("task_url")
INSERT_NEW_TASKS: Final = _text("insert_new_tasks")
INSERT_TASKS: Final = _text("insert_tasks")
UPDATE_TASK_DESCRIPTIONS: Final = _text("update_task_descriptions")
INSERT_LEASES: Final = _text("insert_leases")
DELETE_LEASES: Final = _text("delete_leases")
OVERDUE_LEASES: Final = _text("overdue_leases")
LEASES_OF_QUEUES: Final = _text("leases_of_queues")
LEASE_PAGE: Final = _text("lease_page")
EXTEND_LEASES: Final = _text("extend_leases")


@cache
def update_tasks(parts: tuple[int, ...]) -> tuple[str, Columns]:
    """Return the statement that writes some parts of tasks, and the columns it takes."""
    return _update("update_tasks", [column for part in parts for column in TASK_PARTS[part]])


# ---- fast_path.sql

FAST_WAKE: Final = _text("fast_wake")
FAST_LIMITS: Final = _text("fast_limits")
FAST_READY: Final = _text("fast_ready")
FAST_LEASE: Final = _text("fast_lease")
LOCK_QUEUES: Final = _text("lock_queues")
FAST_ADD: Final = tuple(
    _text("fast_add", lane=lane, top=_LANES[lane], other=_LANES[1 - lane]) for lane in (0, 1)
)
LOCK_QUEUES_OF_LEASES: Final = _text("lock_queues_of_leases")
FAST_FINISH: Final = _text("fast_finish")

# ---- journal.sql

READ_ROOTS: Final = _text("read_roots")
READ_ALL_ROOTS: Final = _text("read_all_roots")
ADD_ROOTS: Final = _text("add_roots")
ADD_COUNTER_DELTAS: Final = _text("add_counter_deltas")
READ_COUNTERS: Final = _text("read_counters")
FOLD_COUNTERS: Final = _text("fold_counters")
ADD_EVENTS: Final = _text("add_events")
DELETE_OLD_EVENTS: Final = _text("delete_old_events")
EVENTS_SINCE: Final = _text("events_since")
PUBLISHED_STATE: Final = _text("published_state")
ADD_PUBLISHED: Final = _text("add_published")
DELETE_OLD_PUBLISHED: Final = _text("delete_old_published")
PUBLISHED_SINCE: Final = _text("published_since")
LAST_LOGGED: Final = _text("last_logged")
WRITE_HEARTBEAT: Final = _text("write_heartbeat")
DELETE_OLD_WORKERS: Final = _text("delete_old_workers")
READ_WORKER: Final = _text("read_worker")
READ_WORKER_TOTAL: Final = _text("read_worker_total")
WRITE_WORKER_TOTAL: Final = _text("write_worker_total")
READ_WORKERS: Final = _text("read_workers")
VALUES_SINCE: Final = _text("values_since")
VALUES_AT: Final = _text("values_at")
DELETE_VALUES: Final = _text("delete_values")
INSERT_VALUES: Final = _text("insert_values")
