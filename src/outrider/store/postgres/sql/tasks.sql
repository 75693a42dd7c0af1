-- Tasks and leases.

-- name: known_tasks
-- Which of some URL identities are known, and which of those are forgotten (C10).
-- in: crawl, fingerprints uuid[]
-- out: fingerprint (bytes), id, is_forgotten
select uuid_send(fingerprint), id, state = 'dropped' and reason is not distinct from 'forgotten'
from task
where crawl = %s and fingerprint = any(%s::uuid[])

-- name: load_tasks
-- Tasks to change, with their leases, and whether they are in their lane.
-- in: ids bigint[]
-- out: {read task}, is_in_lane, {names held}
select {read task t}, p.task is not null, {names held l}
from task t
left join lease l on l.task = t.id
left join pending p on l.task is null and t.state = 'pending'
    and p.queue = t.queue and p.lane = t.lane and p.precedence = t.precedence
    and p.priority = t.priority and p.tie = t.tie and p.task = t.id
where t.id = any(%s::bigint[]) order by t.id

-- name: first_tasks
-- Tasks that are known to be first in their lanes, to lease them: up to the one whose texts reach
-- so many bytes; others are loaded one by one if they are leased.
-- in: ids bigint[], bytes
-- out: {read task}, bytes_before
select f.* from (
    select {read task t}, coalesce(sum(octet_length(meta) + octet_length(url) + octet_length(text))
        over (order by id rows between unbounded preceding and 1 preceding), 0) as bytes_before
    from task t where t.id = any(%s::bigint[])
) as f where bytes_before < %s

-- name: read_tasks
-- Tasks to read only, with the keys of their queues and their leases.
-- in: ids bigint[]
-- out: {read task}, key, {names held}
select {read task t}, q.key, {names held l}
from task t join queue q on q.id = t.queue left join lease l on l.task = t.id
where t.id = any(%s::bigint[]) order by t.id

-- name: read_tasks_between
-- Tasks to read only, after one number, up to another.
-- in: after, last
-- out: {read task}, key, {names held}
select {read task t}, q.key, {names held l}
from task t join queue q on q.id = t.queue left join lease l on l.task = t.id
where t.id > %s and t.id <= %s order by t.id

-- name: tasks_in_queue
-- The first tasks of a queue after one of them.
-- in: queue, after, limit
-- out: id
select id from task where queue = %s and id > %s order by id limit %s

-- name: task_states_in_queue
-- The same, with their states.
-- in: queue, after, limit
-- out: id, state
select t.id, case when l.task is null then t.state else 'leased' end
from (
    select id, state from task where queue = %s and id > %s order by id limit %s
) t left join lease l on l.task = t.id order by t.id

-- name: filling_task
-- The task with which the texts of those after one number, up to another, reach so many bytes.
-- in: after, last, bytes
-- out: id
select id from (
    select id, sum(octet_length(meta) + octet_length(url) + octet_length(text)) over (order by id)
        as bytes
    from task where id > %s and id <= %s
) as t where bytes >= %s order by id limit 1

-- name: filling_task_of
-- The task with which the texts of some tasks, in order of their ids, reach so many bytes.
-- in: ids bigint[], bytes
-- out: id
select id from (
    select id, sum(octet_length(meta) + octet_length(url) + octet_length(text)) over (order by id)
        as bytes
    from task where id = any(%s::bigint[])
) as t where bytes >= %s order by id limit 1

-- name: task_url
-- in: id
-- out: url
select url from task where id = %s

-- name: insert_new_tasks
-- New tasks without any history, and their places in lanes if they are due. In one order: two
-- transactions that bring the same ones never wait in a circle.
-- in: {rows new_task}, now
-- out: nothing
with arrived as materialized (
    select {names new_task} from {rows new_task} order by fingerprint
), inserted as (
    insert into task ({names new_task}) select {names new_task} from arrived
)
insert into pending ({names pending})
select queue, lane, precedence, priority, tie, id, due_at from arrived where due_at <= %s

-- name: insert_tasks
-- New tasks with a history (restored), and their places in lanes if they are pending and due.
-- in: {rows task}, now
-- out: nothing
with arrived as materialized (
    select {names task} from {rows task} order by fingerprint
), inserted as (
    insert into task ({names task}) select {names task} from arrived
)
insert into pending ({names pending})
select queue, lane, precedence, priority, tie, id, due_at from arrived
where due_at <= %s and state = 'pending'

-- name: update_task_descriptions
-- What tasks are, after new links to them.
-- in: {rows description}
-- out: nothing
update task t set {set description} from {rows description} where t.id = v.id

-- name: update_tasks
-- Some groups of columns of what visits made of tasks; {set}, {rows} are filled when it is known
-- which.
-- in: ids bigint[], one array for each column
-- out: nothing
update task t set {set} from {rows} where t.id = v.id

-- name: insert_leases
-- in: {rows lease}
-- out: nothing
insert into lease ({names lease}) select {names lease} from {rows lease}

-- name: delete_leases
-- By task, not by where they lie: extensions move the rows without the lock of their queue.
-- in: tasks bigint[]
-- out: nothing
delete from lease where task = any (%s::bigint[])

-- name: overdue_leases
-- Leases whose deadline has passed, in queues that no other transaction has locked.
-- in: crawl, now (milliseconds; null: the server's clock), limit
-- out: task
select l.task from lease l join queue q on q.id = l.queue
where l.crawl = %s
    and l.deadline_at <= coalesce(%s::bigint, (extract(epoch from now()) * 1000)::bigint)
order by l.deadline_at, l.task limit %s for update of l, q skip locked

-- name: leases_of_queues
-- What queues need to know of their leases to release them.
-- in: crawl, queues bigint[]
-- out: task, queue, cost, claimed_at, named, lent
select l.task, l.queue, t.cost, l.claimed_at, l.named, l.lent
from lease l join task t on t.id = l.task where l.crawl = %s and l.queue = any(%s::bigint[])

-- name: lease_page
-- The next leases after a turn.
-- in: crawl, turn, limit
-- out: task
select task from lease where crawl = %s and turn > %s order by turn limit %s

-- name: extend_leases
-- H2: a new deadline for those of some leases that are held.
-- in: tasks bigint[], tokens bigint[], deadline_at
-- out: task, token
with held as (
    select l.task from lease l
    join unnest(%s::bigint[], %s::bigint[]) as w (task, token) using (task, token)
    order by l.task for update of l
)
update lease l set deadline_at = %s from held where l.task = held.task
returning l.task, l.token
