-- The transaction, advisory locks, crawls with their rules and numbers, and the schema itself.

-- name: open_transaction
-- Read the clock and set what the other statements rely on, for this transaction only: only plans
-- that use indexes, kept whatever the parameters are; locks and idle time are bounded.
-- in: now (milliseconds; null: the server's clock), schema
-- out: now, then the settings
select coalesce(%s::bigint, (extract(epoch from now()) * 1000)::bigint),
    set_config('search_path', %s, true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('jit', 'off', true),
    set_config('idle_in_transaction_session_timeout', '15s', true),
    set_config('lock_timeout', '10s', true)

-- name: commit_lazily
-- Let the commit of this transaction return before it is on disk.
-- in:
-- out: the setting
select set_config('synchronous_commit', 'off', true)

-- name: lock_shared
-- Wait for a shared advisory lock, held until the transaction ends.
-- in: lock
-- out: nothing of use
select pg_advisory_xact_lock_shared(%s)

-- name: lock_exclusive
-- Wait for an exclusive advisory lock, held until the transaction ends.
-- in: lock
-- out: nothing of use
select pg_advisory_xact_lock(%s)

-- name: try_lock
-- Take an exclusive advisory lock if it is free.
-- in: lock
-- out: is_taken
select pg_try_advisory_xact_lock(%s)

-- name: notify
-- Send a notification when the transaction commits.
-- in: channel, payload
-- out: nothing of use
select pg_notify(%s, %s)

-- name: read_crawl
-- One crawl by its name.
-- in: name
-- out: id, status, reason, settings, version, epoch, is_told, at_finish, is_idle, runs, created_at,
--   first_at, finished_at, timeline (JSON text)
select id, status, reason, settings, version, epoch, is_told, at_finish, is_idle, runs,
    created_at, first_at, finished_at, timeline::text
from crawl where name = %s

-- name: crawl_names
-- The names of all crawls, in the order they were created.
-- in:
-- out: name
select name from crawl order by id

-- name: crawls_with_overdue_leases
-- The names of the crawls that have leases to expire.
-- in: now (milliseconds; null: the server's clock)
-- out: name
select c.name from crawl c
where exists (
    select from lease l where l.crawl = c.id and l.deadline_at <=
        coalesce(%s::bigint, (extract(epoch from now()) * 1000)::bigint)
) order by c.id

-- name: insert_crawl
-- A new crawl.
-- in: name, created_at
-- out: id
insert into crawl (name, created_at) values (%s, %s) returning id

-- name: create_sequence
-- One of the sequences of a new crawl; {sequence} is filled in when it is sent.
-- in:
-- out: nothing
create sequence {sequence} minvalue 0 start 1

-- name: update_crawl
-- All that is kept of a crawl in its own row.
-- in: status, reason, settings, version, epoch, is_told, at_finish, is_idle, runs, created_at,
--   first_at, finished_at, timeline (JSON text), id
-- out: nothing
update crawl set status = %s, reason = %s, settings = %s, version = %s, epoch = %s, is_told = %s,
    at_finish = %s, is_idle = %s, runs = %s, created_at = %s, first_at = %s, finished_at = %s,
    timeline = %s
where id = %s

-- name: read_rules
-- The rules of a crawl by epoch, in one version.
-- in: crawl, version
-- out: rules (JSON text)
select rules::text from rules where crawl = %s and version = %s

-- name: insert_rules
-- A new version of the rules of a crawl.
-- in: crawl, version, rules (JSON text)
-- out: nothing
insert into rules (crawl, version, rules) values (%s, %s, %s)

-- name: delete_old_rules
-- The versions before one.
-- in: crawl, version
-- out: nothing
delete from rules where crawl = %s and version < %s

-- name: next_numbers
-- New numbers of four sequences, so many of each.
-- in: tasks (sequence), count, queues (sequence), count, turns (sequence), count,
--   arrivals (sequence), count
-- out: tasks, queues, turns, arrivals (arrays)
select array(select nextval(%s::regclass) from generate_series(1, %s)),
    array(select nextval(%s::regclass) from generate_series(1, %s)),
    array(select nextval(%s::regclass) from generate_series(1, %s)),
    array(select nextval(%s::regclass) from generate_series(1, %s))

-- name: next_event_numbers
-- New numbers of events.
-- in: events (sequence), count
-- out: numbers (array)
select array(select nextval(%s::regclass) from generate_series(1, %s))

-- name: last_arrival
-- The last number a sequence gave; 0: none.
-- in: arrivals (sequence)
-- out: arrival
select coalesce(pg_sequence_last_value(%s::regclass), 0)

-- name: last_numbers
-- The last number that each sequence of a crawl gave; 0: none.
-- in: tasks (sequence), queues (sequence), turns (sequence), arrivals (sequence), events (sequence)
-- out: tasks, queues, turns, arrivals, events
select coalesce(pg_sequence_last_value(%s::regclass), 0),
    coalesce(pg_sequence_last_value(%s::regclass), 0),
    coalesce(pg_sequence_last_value(%s::regclass), 0),
    coalesce(pg_sequence_last_value(%s::regclass), 0),
    coalesce(pg_sequence_last_value(%s::regclass), 0)

-- name: set_last_number
-- Numbers were given by a process that has the crawl locked exclusively.
-- in: sequence, number
-- out: number
select setval(%s::regclass, %s)

-- name: server_settings
-- Whether the server's database can be used.
-- in:
-- out: encoding, is_read_only (on, off)
select current_setting('server_encoding'), current_setting('transaction_read_only')

-- name: durability_settings
-- What a crash of the server may lose.
-- in:
-- out: fsync (on, off), synchronous_commit (off: the last second may be lost)
select current_setting('fsync'), current_setting('synchronous_commit')

-- name: server_instant
-- The server's time, to be compared with that of this machine: of a transaction of its own.
-- in:
-- out: milliseconds since 1970
select extract(epoch from now())::float8 * 1000

-- name: connection_limits
-- How many connections there are, and may be: of the server, and of this role (-1: no limit).
-- in:
-- out: connections, limit, connections of the role, limit of the role
select (select coalesce(sum(numbackends), 0)::int from pg_stat_database),
    current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int,
    (select count(*)::int from pg_stat_activity where usename = current_user),
    (select rolconnlimit from pg_roles where rolname = current_user)

-- name: use_schema
-- Name tables without their schema until the transaction ends.
-- in: schema
-- out: the setting
select set_config('search_path', %s, true)

-- name: schema_exists
-- Whether there is such a schema.
-- in: schema
-- out: exists
select to_regnamespace(%s) is not null

-- name: schema_rights
-- Whether the role may make schemas, whether there is this one, and what the role may do in it:
-- use it, and make tables in it.
-- in: schema
-- out: role, database, makes_schemas, exists, uses, creates
select current_user::text, current_database()::text,
    has_database_privilege(current_database(), 'CREATE'), n.oid is not null,
    coalesce(has_schema_privilege(n.oid, 'USAGE'), false),
    coalesce(has_schema_privilege(n.oid, 'CREATE'), false)
from (values (%s::text)) wanted (name) left join pg_namespace n on n.nspname = wanted.name

-- name: look_at_schema
-- Whether a schema has been migrated, and how many relations it has. It reads the catalog itself:
-- what was looked up by name may have been cached wrongly.
-- in: schema
-- out: is_migrated, relations
select coalesce(bool_or(c.relname = 'migration'), false), count(*)
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s

-- name: create_migrations
-- The table of applied migrations; is_breaking: older releases cannot work with the result.
-- in:
-- out: nothing
create table migration (
    version integer primary key,
    name text not null,
    checksum text not null,
    is_breaking boolean not null,
    applied_at timestamptz not null default now()
)

-- name: applied_migrations
-- The migrations that were applied.
-- in:
-- out: version, name, checksum, is_breaking
select version, name, checksum, is_breaking from migration order by version

-- name: insert_migration
-- One more migration was applied.
-- in: version, name, checksum, is_breaking
-- out: nothing
insert into migration (version, name, checksum, is_breaking) values (%s, %s, %s, %s)

-- name: insert_store
-- The id of a new store.
-- in: id
-- out: nothing
insert into store (id) values (%s)

-- name: read_store
-- The id of the store.
-- in:
-- out: id
select id from store

-- name: delete_rows_of_crawl
-- Some rows of one table that name a crawl; {table} is filled in when it is sent.
-- in: crawl, limit
-- out: how many were deleted
with deleted as (
    delete from {table} where ctid = any(array(
        select ctid from {table} where crawl = %s limit %s
    )) returning 1
) select count(*) from deleted

-- name: delete_rows_between
-- Some rows of one table with the ids of a crawl; {table} and {column} are filled in when it is
-- sent.
-- in: after, last, limit
-- out: how many were deleted
with deleted as (
    delete from {table} where ctid = any(array(
        select ctid from {table} where {column} > %s and {column} <= %s limit %s
    )) returning 1
) select count(*) from deleted

-- name: drop_sequences
-- All sequences of a crawl; {sequences} are filled in when it is sent.
-- in:
-- out: nothing
drop sequence if exists {sequences}

-- name: delete_crawl
-- The row of a crawl.
-- in: id
-- out: nothing
delete from crawl where id = %s
