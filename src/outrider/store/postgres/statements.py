"""Every statement of the store, in one place; the clock is a parameter of those that ask for time.

Without one given it is `now()`, the instant the transaction began: never a function that is
evaluated row by row, which no index can serve.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from outrider.store.postgres.columns import (
    BIRTH_COLUMNS,
    FATE_PARTS,
    LEASE_COLUMNS,
    QUEUE_COLUMNS,
    QUEUE_NAMES,
    QUEUE_PARTS,
    TASK_ABOUT,
    TASK_COLUMNS,
    TASK_NAMES,
    Columns,
)

NOW: Final = "coalesce(%s::bigint, (extract(epoch from now()) * 1000)::bigint)"
_ORDER: Final = "precedence, priority, tie, task"


def _names(columns: Columns, table: str = "") -> str:
    return ", ".join(f"{table}{name}" for name, _ in columns)


def read_as(columns: Columns, table: str) -> str:
    """Columns as they are read: a fingerprint as its bytes, JSON as its text."""
    return ", ".join(
        f"uuid_send({table}{name}) as {name}"
        if kind == "uuid"
        else f"{table}{name}::text"
        if kind == "json"
        else f"{table}{name}"
        for name, kind in columns
    )


def _unnested(columns: Columns) -> str:
    arrays = ", ".join(f"%s::{kind}[]" for _, kind in columns)
    return f"unnest({arrays}) as v ({_names(columns)})"


def _insert(table: str, columns: Columns, order: str = "") -> str:
    names = _names(columns)
    return f"insert into {table} ({names}) select {names} from {_unnested(columns)} {order}"  # noqa: S608


def _update(table: str, columns: Columns) -> str:
    key, *rest = columns
    changes = ", ".join(f"{name} = v.{name}" for name, _ in rest)
    return (
        f"update {table} t set {changes} from {_unnested(columns)} "  # noqa: S608
        f"where t.{key[0]} = v.{key[0]}"
    )


def _delete(table: str, columns: Columns) -> str:
    """Looked up one by one: a plan made while the table was empty would read all of it."""
    same = " and ".join(f"t.{name} = v.{name}" for name, _ in columns)
    rows = f"(select ctid from {table} t where {same} limit 1)"  # noqa: S608
    found = f"select t.ctid from {_unnested(columns)} cross join lateral {rows} as t"  # noqa: S608
    return f"delete from {table} where ctid = any (array({found}))"  # noqa: S608


# ---- beginning

OPEN: Final = f"""
select {NOW},
    set_config('search_path', %s, true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('jit', 'off', true),
    set_config('idle_in_transaction_session_timeout', '15s', true),
    set_config('lock_timeout', '10s', true)
"""
SHARE: Final = "select pg_advisory_xact_lock_shared(%s)"
HOLD: Final = "select pg_advisory_xact_lock(%s)"
STORE: Final = "select id from store"

# ---- crawls

CRAWL: Final = """
select id, status, reason, settings, version, epoch, is_told, at_finish, is_idle, runs,
    created_at, first_at, finished_at, timeline::text
from crawl where name = %s
"""
EXPIRING: Final = f"""
select c.name from crawl c
where exists (select from lease l where l.crawl = c.id and l.deadline_at <= {NOW}) order by c.id
"""  # noqa: S608
CRAWLS: Final = "select name from crawl order by id"
NEW_CRAWL: Final = "insert into crawl (name, created_at) values (%s, %s) returning id"
SEQUENCES: Final = ("tasks", "queues", "turns", "arrivals", "events")
NEW_SEQUENCE: Final = "create sequence {name}_{crawl} minvalue 0 start 1"
WRITE_CRAWL: Final = """
update crawl set status = %s, reason = %s, settings = %s, version = %s, epoch = %s, is_told = %s,
    at_finish = %s, is_idle = %s, runs = %s, created_at = %s, first_at = %s, finished_at = %s,
    timeline = %s
where id = %s
"""
RULES: Final = "select rules::text from rules where crawl = %s and version = %s"
WRITE_RULES: Final = "insert into rules (crawl, version, rules) values (%s, %s, %s)"
DROP_RULES: Final = "delete from rules where crawl = %s and version < %s"
ROOTS: Final = """
select root from root where crawl = %s and mode = %s and place > %s order by place
"""
ALL_ROOTS: Final = "select mode, root from root where crawl = %s order by mode, place"
ADD_ROOTS: Final = """
insert into root (crawl, mode, place, root)
select %s, %s, (select coalesce(max(place), 0) from root where crawl = %s and mode = %s) + place,
    root
from (
    select n.root, row_number() over (order by min(n.place)) as place
    from unnest(%s::text[]) with ordinality as n (root, place)
    where not exists (
        select from root r where r.crawl = %s and r.mode = %s and md5(r.root) = md5(n.root)
    )
    group by n.root
) as new
"""

# ---- numbers

TAKE: Final = """
select array(select nextval(%s::regclass) from generate_series(1, %s)),
    array(select nextval(%s::regclass) from generate_series(1, %s)),
    array(select nextval(%s::regclass) from generate_series(1, %s)),
    array(select nextval(%s::regclass) from generate_series(1, %s))
"""
ARRIVED: Final = "select coalesce(pg_sequence_last_value(%s::regclass), 0)"
TAKE_EVENTS: Final = "select array(select nextval(%s::regclass) from generate_series(1, %s))"
LAST: Final = """
select coalesce(pg_sequence_last_value(%s::regclass), 0),
    coalesce(pg_sequence_last_value(%s::regclass), 0),
    coalesce(pg_sequence_last_value(%s::regclass), 0),
    coalesce(pg_sequence_last_value(%s::regclass), 0),
    coalesce(pg_sequence_last_value(%s::regclass), 0)
"""
SET_LAST: Final = "select setval(%s::regclass, %s)"

# ---- queues

_QUEUE: Final = _names(QUEUE_COLUMNS, "q.")
QUEUES_BY_KEY: Final = f"""
select {_QUEUE} from queue q where q.crawl = %s and q.key = any(%s::text[]) order by q.id
"""  # noqa: S608
QUEUES_BY_ID: Final = f"select {_QUEUE} from queue q where q.id = any(%s::bigint[]) order by q.id"  # noqa: S608
# The queues of some tasks, and those of some keys.
WANTED: Final = """
with wanted as (
    select t.queue as id from task t where t.id = any(%s::bigint[])
    union select k.id from queue k where k.crawl = %s and k.key = any(%s::text[])
)
"""
QUEUES_OF_TASKS: Final = f"""{WANTED}
select {_QUEUE} from wanted w join queue q on q.id = w.id order by q.id
"""  # noqa: S608
QUEUES_BETWEEN: Final = f"""
select {_QUEUE} from queue q where q.id > %s and q.id <= %s order by q.id
"""  # noqa: S608
KEYS_AFTER: Final = """
select q.id, q.key from queue q where q.id > %s and q.id <= %s order by q.id limit %s
"""
LOCKED: Final = " for update of q"
UNLESS_LOCKED: Final = " for update of q skip locked"
INSERT_QUEUES: Final = _insert("queue", QUEUE_COLUMNS, "order by key")


@cache
def update_queues(parts: tuple[int, ...]) -> tuple[str, Columns]:
    """The statement that writes some parts of queues, and what it takes."""
    told = (QUEUE_NAMES[0], *(column for part in parts for column in QUEUE_PARTS[part]))
    return _update("queue", told), told


# ---- lines

_PENDING: Final[Columns] = (
    ("queue", "bigint"),
    ("lane", "smallint"),
    ("precedence", "integer"),
    ("priority", "double precision"),
    ("tie", "bigint"),
    ("task", "bigint"),
)
_DELAYED: Final[Columns] = (
    ("queue", "bigint"),
    ("due_at", "bigint"),
    ("precedence", "integer"),
    ("priority", "double precision"),
    ("tie", "bigint"),
    ("task", "bigint"),
    ("lane", "smallint"),
)
PENDING_COLUMNS: Final[Columns] = (*_PENDING, ("due_at", "bigint"))
DELAYED_COLUMNS: Final = _DELAYED
INSERT_PENDING: Final = _insert("pending", PENDING_COLUMNS)
DELETE_PENDING: Final = _delete("pending", _PENDING)
PENDING_KEY: Final = _PENDING
INSERT_DELAYED: Final = _insert("delayed", _DELAYED)
DELETE_DELAYED: Final = _delete("delayed", _DELAYED[:6])
DELAYED_KEY: Final = _DELAYED[:6]
LANE_AFTER: Final = f"""
select {_ORDER}, due_at from pending
where queue = %s and lane = %s and ({_ORDER}) > (%s, %s, %s, %s)
order by {_ORDER} limit %s
"""  # noqa: S608
DELAYED_AFTER: Final = f"""
select lane, {_ORDER}, due_at from delayed
where queue = %s and (due_at, {_ORDER}) > (%s, %s, %s, %s, %s)
order by due_at, {_ORDER} limit %s
"""  # noqa: S608
# C5: the r-th task of a queue in a claim.
CANDIDATES: Final = f"""
select p.queue, p.lane, p.precedence, p.priority, p.tie, p.task, p.due_at,
    row_number() over (
        partition by p.queue, p.lane order by p.precedence, p.priority, p.tie, p.task
    ) as r
from unnest(%s::bigint[], %s::smallint[], %s::integer[], %s::integer[])
    as w (queue, lane, most, known)
cross join lateral (
    select queue, lane, {_ORDER}, due_at from pending
    where queue = w.queue and lane = w.lane order by {_ORDER} limit w.most offset w.known
) as p
order by p.queue, p.lane, r
"""  # noqa: S608

# ---- where queues stand

READY_COLUMNS: Final[Columns] = (
    ("crawl", "integer"),
    ("lane", "smallint"),
    ("queue_precedence", "integer"),
    ("precedence", "integer"),
    ("priority", "double precision"),
    ("turn", "bigint"),
    ("queue", "bigint"),
)
INACTIVE_COLUMNS: Final[Columns] = (
    ("crawl", "integer"),
    ("queue_precedence", "integer"),
    ("place", "bigint"),
    ("queue", "bigint"),
)
SNOOZE_COLUMNS: Final[Columns] = (("crawl", "integer"), ("at", "bigint"), ("queue", "bigint"))
INSERT_READY: Final = _insert("ready", READY_COLUMNS)
DELETE_READY: Final = _delete("ready", READY_COLUMNS)
INSERT_INACTIVE: Final = _insert("inactive", INACTIVE_COLUMNS)
DELETE_INACTIVE: Final = _delete("inactive", INACTIVE_COLUMNS)
INSERT_SNOOZE: Final = _insert("snooze", SNOOZE_COLUMNS)
DELETE_SNOOZE: Final = _delete("snooze", SNOOZE_COLUMNS)
# What is read with a lock may be newer than the row that led there, so the queue is asked as well.
READY: Final = f"""
select {_QUEUE} from ready r join queue q on q.id = r.queue
where r.crawl = %s and r.lane = %s and q.standing = 1 and q.turn = r.turn
order by r.queue_precedence, r.precedence, r.priority, r.turn, r.queue
limit %s for update of q skip locked
"""  # noqa: S608
WOKEN: Final = f"""
select {_QUEUE} from snooze s join queue q on q.id = s.queue
where s.crawl = %s and s.at <= {NOW} and q.alarm_at = s.at
order by s.at, s.queue limit %s for update of q skip locked
"""  # noqa: S608
HEADS: Final = f"""
select {_QUEUE} from inactive i join queue q on q.id = i.queue
where i.crawl = %s and (i.queue_precedence, i.place) > (%s, %s)
    and q.standing = 2 and q.place = i.place
order by i.queue_precedence, i.place, i.queue limit %s for update of q skip locked
"""  # noqa: S608
BY_TURN: Final = "update ready set precedence = 0, priority = 0 where crawl = %s"
BY_PRIORITY: Final = """
update ready r set
    precedence = case r.lane when 0 then q.discovery_precedence else q.acquisition_precedence end,
    priority = case r.lane when 0 then q.discovery_priority else q.acquisition_priority end
from queue q where q.id = r.queue and r.crawl = %s
"""
IS_PARKED: Final = "select exists (select from inactive where crawl = %s)"
PROBE: Final = """
select exists (select from ready where crawl = %s),
    exists (select from inactive where crawl = %s),
    (select min(at) from snooze where crawl = %s),
    (select min(deadline_at) from lease where crawl = %s)
"""

# ---- tasks

_TASK: Final = read_as(TASK_COLUMNS, "t.")
_LEASE: Final = "l.token, l.worker, l.claimed_at, l.deadline_at, l.named, l.lent"
KNOWN: Final = """
select uuid_send(fingerprint), id from task
where crawl = %s and fingerprint = any(%s::uuid[])
"""
TASKS: Final = f"""
select {_TASK}, p.task is not null, {_LEASE}
from task t
left join lease l on l.task = t.id
left join pending p on l.task is null and t.state = 'pending'
    and p.queue = t.queue and p.lane = t.lane and p.precedence = t.precedence
    and p.priority = t.priority and p.tie = t.tie and p.task = t.id
where t.id = any(%s::bigint[]) order by t.id
"""  # noqa: S608
TASKS_DUE: Final = f"select {_TASK} from task t where t.id = any(%s::bigint[])"  # noqa: S608
TASKS_SEEN: Final = f"""
select {_TASK}, q.key, {_LEASE}
from task t join queue q on q.id = t.queue left join lease l on l.task = t.id
where t.id = any(%s::bigint[]) order by t.id
"""  # noqa: S608
TASKS_BETWEEN: Final = f"""
select {_TASK}, q.key, {_LEASE}
from task t join queue q on q.id = t.queue left join lease l on l.task = t.id
where t.id > %s and t.id <= %s order by t.id
"""  # noqa: S608
URL: Final = "select url from task where id = %s"


def _births(told: Columns, waits: str = "due_at <= %s") -> str:
    """New tasks, and with them their places in lanes, if they wait there."""
    return f"""
with born as materialized (select {_names(told)} from {_unnested(told)} order by fingerprint),
known as (insert into task ({_names(told)}) select {_names(told)} from born)
insert into pending ({_names(PENDING_COLUMNS)})
select queue, lane, precedence, priority, tie, id, due_at from born where {waits}
"""  # noqa: S608


INSERT_BIRTHS: Final = _births(BIRTH_COLUMNS)
INSERT_TASKS: Final = _births(TASK_COLUMNS, "due_at <= %s and state = 'pending'")
UPDATE_ABOUTS: Final = _update("task", (("id", "bigint"), *TASK_ABOUT))


@cache
def update_fates(parts: tuple[int, ...]) -> tuple[str, Columns]:
    """The statement that writes some parts of the fates of tasks, and what it takes."""
    told = (TASK_NAMES[0], *(column for part in parts for column in FATE_PARTS[part]))
    return _update("task", told), told


# ---- leases

INSERT_LEASES: Final = _insert("lease", LEASE_COLUMNS)
# Extensions move rows without the queue's lock, so not by where they lie.
DELETE_LEASES: Final = "delete from lease where task = any (%s::bigint[])"
OVERDUE: Final = f"""
select l.task from lease l join queue q on q.id = l.queue
where l.crawl = %s and l.deadline_at <= {NOW}
order by l.deadline_at, l.task limit %s for update of l, q skip locked
"""  # noqa: S608
LEASED_OF: Final = "select task from lease where crawl = %s and queue = any(%s::bigint[])"
EXTEND: Final = """
with held as (
    select l.task from lease l
    join unnest(%s::bigint[], %s::bigint[]) as w (task, token) using (task, token)
    order by l.task for update of l
)
update lease l set deadline_at = %s from held where l.task = held.task
returning l.task, l.token
"""
LAZY_COMMIT: Final = "select set_config('synchronous_commit', 'off', true)"

# ---- counters

ADD_DELTAS: Final = """
insert into delta (crawl, name, n) select %s, * from unnest(%s::text[], %s::bigint[])
"""
COUNTERS: Final = """
select name, sum(n)::bigint from (
    select name, n from counter where crawl = %s
    union all select name, n from delta where crawl = %s
) as both_parts group by name
"""
FOLDING: Final = "select pg_try_advisory_xact_lock(%s)"
FOLD: Final = """
with taken as (delete from delta where crawl = %s returning name, n)
insert into counter (crawl, name, n)
select %s, name, sum(n) from taken group by name order by name
on conflict (crawl, name) do update set n = counter.n + excluded.n
"""

# ---- events and workers

ADD_EVENTS: Final = """
insert into event (crawl, sequence, at, name, subject, detail)
select %s, * from unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[])
"""
TRIM_EVENTS: Final = "delete from event where crawl = %s and sequence <= %s"
EVENTS: Final = """
select sequence, at, name, subject, detail from event
where crawl = %s and sequence > %s order by sequence limit %s
"""
BEAT: Final = """
insert into worker (crawl, worker, state, host, pid, slots, busy, visits, lasts, first_at, last_at)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
on conflict (crawl, worker) do update set
    state = excluded.state, host = excluded.host, pid = excluded.pid, slots = excluded.slots,
    busy = excluded.busy, visits = excluded.visits, lasts = excluded.lasts,
    first_at = case when excluded.last_at - worker.last_at >= %s
        then excluded.first_at else worker.first_at end,
    last_at = excluded.last_at
"""
FORGET_WORKERS: Final = """
delete from worker where crawl = %s and worker in (
    select worker from worker where crawl = %s order by last_at desc, worker desc offset %s
)
"""
WORKERS: Final = """
select worker, state, host, pid, slots, busy, visits, lasts, first_at, last_at
from worker where crawl = %s
"""
NOTIFY: Final = "select pg_notify(%s, %s)"

# ---- notes

_NOTE: Final = "n.number, n.at, n.topic, n.name, n.text"
NOTES: Final = f"""
select {_NOTE} from note n where n.crawl = %s and n.number > %s order by n.number limit %s
"""  # noqa: S608
# Those of some topics and names, and the last one of all.
NOTES_AT: Final = f"""
select {_NOTE} from unnest(%s::text[], %s::text[]) as w (topic, name) cross join lateral (
    select * from note n
    where n.crawl = %s and n.topic = w.topic and md5(n.name) = md5(w.name) and n.name = w.name
    limit 1
) as n
union
(select {_NOTE} from note n where n.crawl = %s order by n.number desc limit 1) order by number
"""  # noqa: S608
DROP_NOTES: Final = "delete from note where crawl = %s and number = any(%s::bigint[])"
ADD_NOTES: Final = """
insert into note (crawl, number, at, topic, name, text)
select %s, * from unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[])
"""
