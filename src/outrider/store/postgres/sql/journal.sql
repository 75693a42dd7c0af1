-- What a crawl keeps beside tasks and queues: roots, counters, events, workers, shared values.

-- name: read_roots
-- Roots of one mode, after a place in their order.
-- in: crawl, mode, after
-- out: root
select root from root where crawl = %s and mode = %s and place > %s order by place

-- name: read_all_roots
-- Roots of every mode.
-- in: crawl
-- out: mode, root
select mode, root from root where crawl = %s order by mode, place

-- name: add_roots
-- Those that are new, behind the others in the order given.
-- in: crawl, mode, crawl, mode, roots text[], crawl, mode
-- out: nothing
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

-- name: add_counter_deltas
-- Differences of counters are appended: no transaction waits for another to count.
-- in: crawl, names text[], differences bigint[]
-- out: nothing
insert into delta (crawl, name, n) select %s, * from unnest(%s::text[], %s::bigint[])

-- name: read_counters
-- All counters, with the differences that were not added up yet.
-- in: crawl, crawl
-- out: name, count
select name, sum(n)::bigint from (
    select name, n from counter where crawl = %s
    union all select name, n from delta where crawl = %s
) as both_parts group by name

-- name: fold_counters
-- Add up the differences; only under the lock that is for this.
-- in: crawl, crawl
-- out: nothing
with taken as (delete from delta where crawl = %s returning name, n)
insert into counter (crawl, name, n)
select %s, name, sum(n) from taken group by name order by name
on conflict (crawl, name) do update set n = counter.n + excluded.n

-- name: add_events
-- Events, as they can be read from now on.
-- in: crawl, sequences bigint[], at bigint[], names text[], subjects text[], details text[],
--   by text[], counts text[] (JSON)
-- out: nothing
insert into event (crawl, sequence, at, name, subject, detail, by, counts)
select %s, *
from unnest(
    %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[]
)

-- name: delete_old_events
-- Events up to a number.
-- in: crawl, sequence
-- out: nothing
delete from event where crawl = %s and sequence <= %s

-- name: events_since
-- Events after a number, in their order.
-- in: crawl, after, limit
-- out: sequence, at (milliseconds), name, subject, detail, by, counts (JSON)
select sequence, at, name, subject, detail, by, counts from event
where crawl = %s and sequence > %s order by sequence limit %s

-- name: read_worker
-- One worker. The caller holds the lock of the crawl's workers.
-- in: crawl, worker
-- out: as read_workers
select worker, state, host, pid, slots, busy, visits, lasts, totals, first_at, last_at
from worker where crawl = %s and worker = %s

-- name: write_heartbeat
-- The last heartbeat of a worker.
-- in: crawl, worker, state, host, pid, slots, busy, visits, lasts, totals (JSON), first_at, last_at
-- out: nothing
insert into worker (
    crawl, worker, state, host, pid, slots, busy, visits, lasts, totals, first_at, last_at
)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
on conflict (crawl, worker) do update set
    state = excluded.state, host = excluded.host, pid = excluded.pid, slots = excluded.slots,
    busy = excluded.busy, visits = excluded.visits, lasts = excluded.lasts,
    totals = excluded.totals, first_at = excluded.first_at, last_at = excluded.last_at

-- name: delete_old_workers
-- All but the workers that were active last.
-- in: crawl, crawl, kept
-- out: totals (JSON)
delete from worker where crawl = %s and worker in (
    select worker from worker where crawl = %s order by last_at desc, worker desc offset %s
)
returning totals

-- name: read_worker_total
-- The totals of the workers that were removed.
-- in: crawl
-- out: totals (JSON)
select totals from worker_total where crawl = %s

-- name: write_worker_total
-- The same, replaced.
-- in: crawl, totals (JSON)
-- out: nothing
insert into worker_total (crawl, totals) values (%s, %s)
on conflict (crawl) do update set totals = excluded.totals

-- name: read_workers
-- The workers of a crawl.
-- in: crawl
-- out: worker, state, host, pid, slots, busy, visits, lasts, totals (JSON), first_at, last_at
select worker, state, host, pid, slots, busy, visits, lasts, totals, first_at, last_at
from worker where crawl = %s

-- name: values_since
-- Shared values after a number, in their order.
-- in: crawl, after, limit
-- out: number, at (milliseconds), topic, name, text
select n.number, n.at, n.topic, n.name, n.text from note n
where n.crawl = %s and n.number > %s order by n.number limit %s

-- name: values_at
-- The shared values under some topics and names, and the last one of all.
-- in: topics text[], names text[], crawl, crawl
-- out: number, at (milliseconds), topic, name, text
select n.number, n.at, n.topic, n.name, n.text
from unnest(%s::text[], %s::text[]) as w (topic, name) cross join lateral (
    select * from note n
    where n.crawl = %s and n.topic = w.topic and md5(n.name) = md5(w.name) and n.name = w.name
    limit 1
) as n
union
(select n.number, n.at, n.topic, n.name, n.text from note n
    where n.crawl = %s order by n.number desc limit 1) order by number

-- name: delete_values
-- Shared values that others replace.
-- in: crawl, numbers bigint[]
-- out: nothing
delete from note where crawl = %s and number = any(%s::bigint[])

-- name: insert_values
-- New shared values.
-- in: crawl, numbers bigint[], at bigint[], topics text[], names text[], texts text[]
-- out: nothing
insert into note (crawl, number, at, topic, name, text)
select %s, * from unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[])

-- name: published_state
-- Whether a batch of a publisher, or a later one of it, is in the ring; and the bytes so far. The
-- caller holds the lock of the crawl's events.
-- in: crawl, publisher, serial, crawl
-- out: is known, bytes
select
    exists (select from published where crawl = %s and publisher = %s and serial >= %s),
    coalesce((select bytes from published where crawl = %s order by last desc limit 1), 0)

-- name: add_published
-- A batch.
-- in: crawl, last, publisher, serial, worker, bytes, events (JSON)
-- out: nothing
insert into published (crawl, last, publisher, serial, worker, bytes, events)
values (%s, %s, %s, %s, %s, %s, %s)

-- name: delete_old_published
-- Batches after which too many numbers or bytes came.
-- in: crawl, last, crawl, bytes
-- out: nothing
delete from published where (crawl = %s and last <= %s) or (crawl = %s and bytes <= %s)

-- name: published_since
-- Batches that have events after a number, in their order.
-- in: crawl, after, limit
-- out: last, publisher, serial, worker, events (JSON)
select last, publisher, serial, worker, events from published
where crawl = %s and last > %s order by last limit %s

-- name: last_logged
-- The highest number of an event that was committed.
-- in: crawl, crawl
-- out: number
select greatest(
    coalesce((select max(sequence) from event where crawl = %s), 0),
    coalesce((select max(last) from published where crawl = %s), 0)
)
