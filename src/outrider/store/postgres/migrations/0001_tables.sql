-- Small rows move, wide rows stay: a task is written when it comes and when a visit ends; whatever
-- happens in between moves rows of pending, delayed, ready, snooze, inactive and lease.
--
-- The id of a task or queue is its crawl's id * 2^40 + its number within the crawl. Instants are
-- milliseconds since 1970; -1 means never. Every change of a queue's rows happens under a lock on
-- its row in "queue", which knows the first task of each of its lines.

create table store (
    id text not null
);

create table crawl (
    id integer generated always as identity primary key,
    name text not null unique,
    status text not null default 'running'
        check (status in ('running', 'paused', 'finished', 'cancelled')),
    reason text,
    settings text not null default '',
    version bigint not null default 0, -- of its rules
    epoch bigint not null default 0, -- which of its rules hold
    is_told boolean not null default true, -- no queue waits to hear of a change of them
    at_finish boolean not null default false,
    is_idle boolean not null default true,
    runs bigint not null default 0,
    created_at bigint not null,
    first_at bigint not null default -1,
    finished_at bigint not null default -1,
    timeline json not null default '[]'
);

create table rules (
    crawl integer not null,
    version bigint not null,
    rules json not null, -- by epoch: queues that were not told go by older ones
    primary key (crawl, version)
);

create table root (
    crawl integer not null,
    mode text not null,
    place bigint not null,
    root text not null,
    primary key (crawl, mode, place)
);
create unique index root_known on root (crawl, mode, md5(root));

create table task (
    id bigint primary key,
    crawl integer not null,
    queue bigint not null,
    fingerprint uuid not null,
    url text not null,
    state text not null default 'pending'  -- one with a row in "lease" is leased
        check (state in ('pending', 'done', 'dead', 'dropped')),
    type text not null,
    lane smallint not null,
    depth bigint not null,
    precedence integer not null,
    priority double precision not null,
    tie bigint not null,
    cost integer not null,
    due_at bigint not null,
    discovered_at bigint not null,
    delay double precision not null,
    known text not null,
    roll bigint not null,
    origin text not null,
    via text,
    tag text,
    meta text not null,
    breakdown json,
    token bigint not null default 0,
    attempts integer not null default 0,
    failures integer not null default 0,
    crashes integer not null default 0,
    throttles integer not null default 0,
    claimed_at bigint not null default -1,
    finished_at bigint not null default -1,
    reason text,
    answer json,
    answered_at bigint not null default -1,
    history json not null default '[]'
) with (fillfactor = 85);
create unique index task_known on task (crawl, fingerprint);

create table queue (
    id bigint primary key,
    crawl integer not null,
    key text not null,
    turn bigint not null,
    epoch bigint not null,
    precedence integer not null,
    paused boolean not null,
    retired text check (retired in ('budget', 'quota', 'unreachable', 'throttled', 'operator')),
    said_paused boolean not null, -- what its rules last said of it
    said_retired boolean not null,
    pending bigint not null,
    delayed bigint not null,
    in_flight integer not null,
    named integer not null,
    lent integer not null,
    crashed integer not null,
    standing smallint not null, -- 0 nowhere, 1 ready, 2 inactive
    place bigint not null,
    alarm_at bigint not null, -- 0: none
    session bigint not null, -- -1: none open
    spent bigint not null,
    next_ready_at bigint not null,
    why text not null
        check (why in ('delay', 'throttled', 'unreachable', 'blocked', 'waiting', 'operator')),
    last_start_at bigint not null,
    last_end_at bigint not null,
    level bigint not null,
    calm bigint not null,
    throttles_in_row bigint not null,
    unreachable_in_row bigint not null,
    blocks_in_row bigint not null,
    last_delay double precision not null,
    crawl_delay double precision not null,
    errors_in_row bigint not null,
    visits_done bigint not null,
    bytes bigint not null,
    done bigint not null,
    dead bigint not null,
    dropped bigint not null,
    last_cost bigint not null,
    cost_sum bigint not null,
    cost_count bigint not null,
    routine_below bigint not null, -- while its session is below that, its visits need no judge
    -- the first due task of each lane, and the first that is not due
    discovery_precedence integer,
    discovery_priority double precision,
    discovery_tie bigint,
    discovery_task bigint,
    discovery_due_at bigint,
    acquisition_precedence integer,
    acquisition_priority double precision,
    acquisition_tie bigint,
    acquisition_task bigint,
    acquisition_due_at bigint,
    delayed_lane smallint,
    delayed_precedence integer,
    delayed_priority double precision,
    delayed_tie bigint,
    delayed_task bigint,
    delayed_due_at bigint
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);
create unique index queue_known on queue (crawl, key);

create table pending (
    queue bigint not null,
    lane smallint not null,
    precedence integer not null,
    priority double precision not null,
    tie bigint not null,
    task bigint not null,
    due_at bigint not null,
    primary key (queue, lane, precedence, priority, tie, task)
) with (autovacuum_vacuum_scale_factor = 0.02);

create table delayed (
    queue bigint not null,
    due_at bigint not null,
    precedence integer not null,
    priority double precision not null,
    tie bigint not null,
    task bigint not null,
    lane smallint not null,
    primary key (queue, due_at, precedence, priority, tie, task)
) with (autovacuum_vacuum_scale_factor = 0.02);

create table ready (
    crawl integer not null,
    lane smallint not null,
    queue_precedence integer not null,
    precedence integer not null, -- of its first task, and so is its priority
    priority double precision not null,
    turn bigint not null,
    queue bigint not null,
    primary key (crawl, lane, queue_precedence, precedence, priority, turn, queue)
) with (autovacuum_vacuum_scale_factor = 0.02);

create table inactive (
    crawl integer not null,
    queue_precedence integer not null,
    place bigint not null,
    queue bigint not null,
    primary key (crawl, queue_precedence, place, queue)
) with (autovacuum_vacuum_scale_factor = 0.02);

create table snooze (
    crawl integer not null,
    at bigint not null,
    queue bigint not null,
    primary key (crawl, at, queue)
) with (autovacuum_vacuum_scale_factor = 0.02);

create table lease (
    task bigint primary key,
    crawl integer not null,
    queue bigint not null,
    token bigint not null,
    worker text not null,
    claimed_at bigint not null,
    deadline_at bigint not null,
    named boolean not null,
    lent boolean not null
) with (autovacuum_vacuum_scale_factor = 0.02);
create index lease_deadline on lease (crawl, deadline_at, task);

-- Counters without a hot row: every transaction appends what it changed, and now and then somebody
-- folds that into "counter". What holds is the sum of both.
create table counter (
    crawl integer not null,
    name text not null,
    n bigint not null,
    primary key (crawl, name)
);

create table delta (
    crawl integer not null,
    name text not null,
    n bigint not null
) with (autovacuum_vacuum_scale_factor = 0.02);
create index delta_crawl on delta (crawl);

create table event (
    crawl integer not null,
    sequence bigint not null,
    at bigint not null,
    name text not null,
    subject text not null,
    detail text not null,
    primary key (crawl, sequence)
);

create table worker (
    crawl integer not null,
    worker text not null,
    state text not null check (state in ('idle', 'busy', 'draining', 'gone')),
    host text not null,
    pid bigint not null,
    slots bigint not null,
    busy bigint not null,
    visits bigint not null,
    lasts double precision not null,
    first_at bigint not null,
    last_at bigint not null,
    primary key (crawl, worker)
);

-- The tasks as people know them from a queue in a table.
create view crawl_queue as
select
    t.id,
    c.name as job,
    t.url,
    t.type,
    t.tag,
    t.priority,
    case
        when c.status = 'cancelled' and t.state = 'pending' then 'dropped'
        when l.task is not null then 'leased'
        else t.state
    end as status,
    t.failures as retry_count,
    case when t.state = 'pending' and l.task is null and c.status <> 'cancelled'
        then to_timestamp(t.due_at / 1000.0) end as next_attempt,
    to_timestamp(t.discovered_at / 1000.0) as created,
    case when coalesce(l.claimed_at, t.claimed_at) >= 0
        then to_timestamp(coalesce(l.claimed_at, t.claimed_at) / 1000.0) end as submitted,
    case when t.finished_at >= 0 then to_timestamp(t.finished_at / 1000.0) end as completed,
    t.reason as error
from task t
join crawl c on c.id = t.crawl
left join lease l on l.task = t.id;
