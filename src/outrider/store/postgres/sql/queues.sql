-- Queues, their lists of tasks, and the lists of the schedule they are on.
--
-- A queue's row carries the first entry of each of its lists. Rows of the small tables that change
-- all the time (ready, inactive, snooze, pending, delayed) are deleted by where they lie, each
-- looked up by itself: a plan made while the table was empty would read all of it.
-- {lock} is filled with nothing, "for update of q" or "for update of q skip locked".

-- name: queues_by_key
-- Queues of some keys, in the order in which all transactions lock them.
-- in: crawl, keys text[]
-- out: {names queue}
select {names queue q} from queue q where q.crawl = %s and q.key = any(%s::text[])
order by q.id {lock}

-- name: queues_by_id
-- Queues of some numbers, in the order in which all transactions lock them.
-- in: ids bigint[]
-- out: {names queue}
select {names queue q} from queue q where q.id = any(%s::bigint[]) order by q.id {lock}

-- name: queues_of_keys
-- The numbers of the queues of some keys; locks nothing.
-- in: crawl, keys text[]
-- out: key, id
select q.key, q.id from queue q where q.crawl = %s and q.key = any(%s::text[])

-- name: queues_of_tasks
-- The queues of some tasks and those of some keys, in the order in which all transactions lock them.
-- in: tasks bigint[], crawl, keys text[]
-- out: {names queue}
with wanted as (
    select t.queue as id from task t where t.id = any(%s::bigint[])
    union select k.id from queue k where k.crawl = %s and k.key = any(%s::text[])
)
select {names queue q} from wanted w join queue q on q.id = w.id order by q.id {lock}

-- name: queues_between
-- Queues after one number, up to another.
-- in: after, last
-- out: {names queue}
select {names queue q} from queue q where q.id > %s and q.id <= %s order by q.id {lock}

-- name: keys_after
-- Keys of queues after one number, up to another.
-- in: after, last, limit
-- out: id, key
select q.id, q.key from queue q where q.id > %s and q.id <= %s order by q.id limit %s

-- name: keys_between
-- The first keys from one on, up to another, by code points.
-- in: crawl, low, high, limit
-- out: id, key
select q.id, q.key from queue q
where q.crawl = %s and q.key collate "C" >= %s and q.key collate "C" < %s
order by q.key collate "C" limit %s

-- name: wakes_after
-- The first wake times after one and its queue.
-- in: crawl, at, queue, limit
-- out: at, queue
select at, queue from snooze where crawl = %s and (at, queue) > (%s, %s) order by at, queue limit %s

-- name: insert_queues
-- New queues, in one order: two transactions that bring the same ones never wait in a circle.
-- in: {rows queue}
-- out: nothing
insert into queue ({names queue}) select {names queue} from {rows queue} order by key

-- name: update_queues
-- Some groups of columns of queues; {set}, {rows} are filled when it is known which.
-- in: ids bigint[], one array for each column
-- out: nothing
update queue t set {set} from {rows} where t.id = v.id

-- name: ready_queues
-- The first queues of a lane's ready list that no other transaction has locked. What is read with a
-- lock may be newer than the row that led to it, so the queue itself is asked as well.
-- in: crawl, lane, limit
-- out: {names queue}
select {names queue q} from ready r join queue q on q.id = r.queue
where r.crawl = %s and r.lane = %s and q.standing = 1 and q.turn = r.turn
order by r.queue_precedence, r.precedence, r.priority, r.turn, r.queue
limit %s for update of q skip locked

-- name: waking_queues
-- Queues whose wake time has come and that no other transaction has locked.
-- in: crawl, now (milliseconds; null: the server's clock), limit
-- out: {names queue}
select {names queue q} from snooze s join queue q on q.id = s.queue
where s.crawl = %s and s.at <= coalesce(%s::bigint, (extract(epoch from now()) * 1000)::bigint)
    and q.alarm_at = s.at
order by s.at, s.queue limit %s for update of q skip locked

-- name: inactive_queues
-- The next queues of the inactive list that no other transaction has locked.
-- in: crawl, after precedence, after place, limit
-- out: {names queue}
select {names queue q} from inactive i join queue q on q.id = i.queue
where i.crawl = %s and (i.queue_precedence, i.place) > (%s, %s)
    and q.standing = 2 and q.place = i.place
order by i.queue_precedence, i.place, i.queue limit %s for update of q skip locked

-- name: has_inactive
-- Whether the inactive list has any queue.
-- in: crawl
-- out: has_inactive
select exists (select from inactive where crawl = %s)

-- name: wait_info
-- What a claim can wait for.
-- in: crawl, crawl, crawl, crawl
-- out: has_ready, has_inactive, wake_at, deadline_at (null: none)
select exists (select from ready where crawl = %s),
    exists (select from inactive where crawl = %s),
    (select min(at) from snooze where crawl = %s),
    (select min(deadline_at) from lease where crawl = %s)

-- name: wait_info_of_queues
-- What a claim of some queues can wait for.
-- in: crawl, queues bigint[]
-- out: has_ready, has_inactive, wake_at, deadline_at (null: none)
select coalesce(bool_or(q.standing = 1), false), coalesce(bool_or(q.standing = 2), false),
    min(q.alarm_at) filter (where q.alarm_at > 0),
    (select min(deadline_at) from lease where crawl = %s)
from queue q where q.id = any(%s::bigint[])

-- name: order_ready_by_turn
-- The order among ready queues became their turns alone.
-- in: crawl
-- out: nothing
update ready set precedence = 0, priority = 0 where crawl = %s

-- name: order_ready_by_priority
-- The order among ready queues became that of their first tasks.
-- in: crawl
-- out: nothing
update ready r set
    precedence = case r.lane when 0 then q.discovery_precedence else q.acquisition_precedence end,
    priority = case r.lane when 0 then q.discovery_priority else q.acquisition_priority end
from queue q where q.id = r.queue and r.crawl = %s

-- name: insert_ready
-- in: {rows ready}
-- out: nothing
insert into ready ({names ready}) select {names ready} from {rows ready}

-- name: delete_ready
-- in: {rows ready}
-- out: nothing
delete from ready where ctid = any (array(
    select t.ctid from {rows ready}
    cross join lateral (select ctid from ready t where {match ready} limit 1) as t))

-- name: insert_inactive
-- in: {rows inactive}
-- out: nothing
insert into inactive ({names inactive}) select {names inactive} from {rows inactive}

-- name: delete_inactive
-- in: {rows inactive}
-- out: nothing
delete from inactive where ctid = any (array(
    select t.ctid from {rows inactive}
    cross join lateral (select ctid from inactive t where {match inactive} limit 1) as t))

-- name: insert_snooze
-- Wake times.
-- in: {rows snooze}
-- out: nothing
insert into snooze ({names snooze}) select {names snooze} from {rows snooze}

-- name: delete_snooze
-- in: {rows snooze}
-- out: nothing
delete from snooze where ctid = any (array(
    select t.ctid from {rows snooze}
    cross join lateral (select ctid from snooze t where {match snooze} limit 1) as t))

-- name: insert_pending
-- Entries of lanes.
-- in: {rows pending}
-- out: nothing
insert into pending ({names pending}) select {names pending} from {rows pending}

-- name: delete_pending
-- in: {rows pending_key}
-- out: nothing
delete from pending where ctid = any (array(
    select t.ctid from {rows pending_key}
    cross join lateral (select ctid from pending t where {match pending_key} limit 1) as t))

-- name: insert_delayed
-- Entries of lists of delayed tasks.
-- in: {rows delayed}
-- out: nothing
insert into delayed ({names delayed}) select {names delayed} from {rows delayed}

-- name: delete_delayed
-- in: {rows delayed_key}
-- out: nothing
delete from delayed where ctid = any (array(
    select t.ctid from {rows delayed_key}
    cross join lateral (select ctid from delayed t where {match delayed_key} limit 1) as t))

-- name: lane_after
-- The entries of one lane of one queue, after an entry.
-- in: queue, lane, precedence, priority, tie, task, limit
-- out: precedence, priority, tie, task, due_at
select precedence, priority, tie, task, due_at from pending
where queue = %s and lane = %s and (precedence, priority, tie, task) > (%s, %s, %s, %s)
order by precedence, priority, tie, task limit %s

-- name: delayed_after
-- The entries of one queue's list of delayed tasks, after an entry.
-- in: queue, due_at, precedence, priority, tie, task, limit
-- out: lane, precedence, priority, tie, task, due_at
select lane, precedence, priority, tie, task, due_at from delayed
where queue = %s and (due_at, precedence, priority, tie, task) > (%s, %s, %s, %s, %s)
order by due_at, precedence, priority, tie, task limit %s

-- name: lane_entries
-- C5: more entries of many lanes, in their order: so many, after those that are loaded.
-- in: queues bigint[], lanes smallint[], limits integer[], loaded integer[]
-- out: queue, lane, precedence, priority, tie, task, due_at, r (place among those of its lane)
select p.queue, p.lane, p.precedence, p.priority, p.tie, p.task, p.due_at,
    row_number() over (
        partition by p.queue, p.lane order by p.precedence, p.priority, p.tie, p.task
    ) as r
from unnest(%s::bigint[], %s::smallint[], %s::integer[], %s::integer[])
    as w (queue, lane, most, known)
cross join lateral (
    select queue, lane, precedence, priority, tie, task, due_at from pending
    where queue = w.queue and lane = w.lane
    order by precedence, priority, tie, task limit w.most offset w.known
) as p
order by p.queue, p.lane, r
