-- The fast path: ordinary visits in SQL. A queue wakes, leases its first task, and the visit is done.
--
-- `queue.routine_below` is written whenever the engine has rescheduled a queue (see
-- `rows.fast_path_below`): while the queue's session is below it, these statements do what the
-- engine would do, and touch nothing else. A row that is read with a lock may be newer than what the
-- statement saw before it waited; so one statement locks, and the next one reads and changes.
--
-- Plans are made when tables are small and kept when they are large, and the small tables of moving
-- rows may be empty at any time: a row of those is looked up by itself (`lateral … limit 1`), and
-- deleted by where it lies, for no other transaction moves it while its queue is locked.

-- name: fast_wake
-- E1: queues whose wake time has come go to the ready list, if the fast path may serve them.
-- in: crawl, now, limit, by_turn, by_turn (the order among queues is their turns alone)
-- out: count of woken queues
with woken as materialized (
    select q.id, q.crawl, q.turn, q.precedence as queue_precedence, s.ctid as snoozed,
        q.discovery_precedence, q.discovery_priority,
        q.acquisition_precedence, q.acquisition_priority
    from snooze s join queue q on q.id = s.queue
    where s.crawl = %s and s.at <= %s and q.alarm_at = s.at and q.session < q.routine_below
    order by s.at, s.queue limit %s for update of q skip locked
), old_snooze as (
    delete from snooze where ctid = any (array(select snoozed from woken))
), new_ready as (
    insert into ready (crawl, lane, queue_precedence, precedence, priority, turn, queue)
    select crawl, l.lane, queue_precedence, case when %s::boolean then 0 else l.precedence end,
        case when %s::boolean then 0 else l.priority end, turn, id
    from woken cross join lateral (values
        (0::smallint, discovery_precedence, discovery_priority),
        (1::smallint, acquisition_precedence, acquisition_priority)
    ) as l (lane, precedence, priority) where l.precedence is not null
), new_queue as (
    update queue q set alarm_at = 0, standing = 1, session = greatest(q.session, 0)
    from woken w where q.id = w.id
)
select count(*) from woken

-- name: fast_limits
-- Whether the engine must wake a queue, and the precedence of the first inactive queue.
-- in: crawl, now, limit, crawl
-- out: is_engine_needed, inactive_precedence (null: none is inactive)
select exists (
        select from (
            select s.at, s.queue from snooze s
            where s.crawl = %s and s.at <= %s order by s.at, s.queue limit %s
        ) as s cross join lateral (
            select from queue q
            where q.id = s.queue and q.alarm_at = s.at and not (q.session < q.routine_below) limit 1
        ) as q
    ),
    (select queue_precedence from inactive where crawl = %s order by queue_precedence limit 1)

-- name: fast_ready
-- The first queues of a lane's ready list that no other transaction has locked.
-- in: crawl, lane, limit
-- out: queue, is_fast (the fast path may serve it), queue_precedence
select q.id, q.session < q.routine_below, r.queue_precedence
from ready r join queue q on q.id = r.queue
where r.crawl = %s and r.lane = %s and q.standing = 1 and q.turn = r.turn
order by r.queue_precedence, r.precedence, r.priority, r.turn, r.queue
limit %s for update of q skip locked

-- name: fast_lease
-- H1, E3, C3, D1: the first task of a lane of each queue is leased; the next one becomes its first.
-- in: turns (sequence), by_turn, queues bigint[], lanes smallint[], tokens bigint[], bytes (of the
--   tasks, with the one that reaches them), worker, claimed_at, deadline_at, lasts, last_start_at
-- out: {names fast_lease}
with asked as materialized (
    select n.*, nextval(%s::regclass) as new_turn, %s::boolean as by_turn
    from unnest(%s::bigint[], %s::smallint[], %s::bigint[]) with ordinality
        as n (queue, lane, token, place)
), found as materialized (
    select a.queue, a.lane, a.token, a.place, a.new_turn, q.crawl, {names fast_queue q},
        {read fast_description t}, t.id as task, t.attempts, t.failures, t.throttles,
        t.answer::text as answer, t.answered_at, p.ctid as pending_row, p.due_at, d.ctid as ready_row,
        o.ctid as other_ready_row, n.precedence as next_precedence, n.priority as next_priority,
        n.tie as next_tie, n.task as next_task, n.due_at as next_due_at,
        sum(octet_length(t.meta) + octet_length(t.url) + octet_length(t.text)) over (
            order by a.place rows between unbounded preceding and 1 preceding
        ) as bytes_before
    from asked a join queue q on q.id = a.queue
    cross join lateral (values
        (0, q.discovery_precedence, q.discovery_priority, q.discovery_tie, q.discovery_task),
        (1, q.acquisition_precedence, q.acquisition_priority, q.acquisition_tie, q.acquisition_task)
    ) as f (lane, precedence, priority, tie, task)
    join task t on t.id = f.task
    cross join lateral (
        select ctid, due_at from pending p
        where p.queue = q.id and p.lane = a.lane and p.precedence = f.precedence
            and p.priority = f.priority and p.tie = f.tie and p.task = f.task limit 1
    ) as p
    left join lateral (
        select ctid from ready r
        where q.discovery_task is not null and r.crawl = q.crawl and r.lane = 0
            and r.queue_precedence = q.precedence
            and r.precedence = case when a.by_turn then 0 else q.discovery_precedence end
            and r.priority = case when a.by_turn then 0 else q.discovery_priority end
            and r.turn = q.turn and r.queue = q.id limit 1
    ) as d on true
    left join lateral (
        select ctid from ready r
        where q.acquisition_task is not null and r.crawl = q.crawl and r.lane = 1
            and r.queue_precedence = q.precedence
            and r.precedence = case when a.by_turn then 0 else q.acquisition_precedence end
            and r.priority = case when a.by_turn then 0 else q.acquisition_priority end
            and r.turn = q.turn and r.queue = q.id limit 1
    ) as o on true
    left join lateral (
        select precedence, priority, tie, task, due_at from pending p
        where p.queue = q.id and p.lane = a.lane
            and (precedence, priority, tie, task) > (f.precedence, f.priority, f.tie, f.task)
        order by precedence, priority, tie, task limit 1
    ) as n on true
    where f.lane = a.lane
), picked as materialized (
    select * from found where coalesce(bytes_before, 0) < %s
), old_ready as (
    delete from ready where ctid = any (array(
        select ready_row from picked where ready_row is not null
        union all select other_ready_row from picked where other_ready_row is not null
    ))
), old_pending as (
    delete from pending where ctid = any (array(select pending_row from picked))
), new_lease as (
    insert into lease (task, crawl, queue, token, worker, claimed_at, deadline_at, turn,
        leased_at, lasts, named, lent)
    select task, crawl, queue, token, %s, %s, %s, new_turn, -1, %s, false, false from picked
), new_queue as (
    update queue q set standing = 0, pending = q.pending - 1, in_flight = 1, turn = k.new_turn,
        last_start_at = %s, session = q.session + k.cost, spent = q.spent + k.cost,
        last_cost = k.cost, cost_sum = q.cost_sum + k.cost, cost_count = q.cost_count + 1,
        discovery_precedence =
            case when k.lane = 0 then k.next_precedence else q.discovery_precedence end,
        discovery_priority =
            case when k.lane = 0 then k.next_priority else q.discovery_priority end,
        discovery_tie = case when k.lane = 0 then k.next_tie else q.discovery_tie end,
        discovery_task = case when k.lane = 0 then k.next_task else q.discovery_task end,
        discovery_due_at = case when k.lane = 0 then k.next_due_at else q.discovery_due_at end,
        acquisition_precedence =
            case when k.lane = 1 then k.next_precedence else q.acquisition_precedence end,
        acquisition_priority =
            case when k.lane = 1 then k.next_priority else q.acquisition_priority end,
        acquisition_tie = case when k.lane = 1 then k.next_tie else q.acquisition_tie end,
        acquisition_task = case when k.lane = 1 then k.next_task else q.acquisition_task end,
        acquisition_due_at = case when k.lane = 1 then k.next_due_at else q.acquisition_due_at end
    from picked k where q.id = k.queue
)
select {names fast_lease k} from picked k order by k.place

-- name: lock_queues
-- Lock the queues of some tasks and those of some keys before anything of them is read, in the order
-- in which all transactions lock them.
-- in: tasks bigint[], crawl, keys text[]
-- out: queue, key, is_fast (the fast path may add to it), is_unlisted (a task lists or wakes it)
with wanted as (
    select t.queue as id from task t where t.id = any(%s::bigint[])
    union select k.id from queue k where k.crawl = %s and k.key = any(%s::text[])
)
select q.id, q.key, q.session < q.routine_below, q.standing = 0 and q.in_flight = 0
from wanted w join queue q on q.id = w.id order by q.id for update of q

-- name: fast_add
-- B3, E1: so many new tasks came to one lane of each of these queues, this entry the first of them.
-- The queues are locked by `lock_queues`. {lane}, {top}, {other}: 0, discovery, acquisition; or 1,
-- acquisition, discovery.
-- in: now, now, by_turn, queues bigint[], counts bigint[], precedences integer[],
--   priorities double precision[], ties bigint[], tasks bigint[], due bigint[], by_turn, by_turn
-- out: nothing
with came as materialized (
    select n.*, q.crawl, q.turn, q.precedence as queue_precedence, q.pending,
        q.standing, q.alarm_at, q.in_flight = 0 and q.next_ready_at <= %s as is_free,
        q.in_flight = 0 and q.next_ready_at > %s as is_early, q.next_ready_at,
        q.{top}_precedence, q.{top}_priority, q.{top}_tie, q.{top}_task, q.{top}_due_at,
        q.{other}_precedence, q.{other}_priority,
        q.{top}_task is null or (n.precedence, n.priority, n.tie, n.task)
            < (q.{top}_precedence, q.{top}_priority, q.{top}_tie, q.{top}_task) as leads,
        q.standing = 1 and (q.{top}_task is null or (not n.by_turn and
            (n.precedence, n.priority) < (q.{top}_precedence, q.{top}_priority))) as shifts
    from (
        select *, %s::boolean as by_turn
        from unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::double precision[],
            %s::bigint[], %s::bigint[], %s::bigint[])
            as u (queue, many, precedence, priority, tie, task, due_at)
    ) as n
    join queue q on q.id = n.queue
), grown as materialized (
    select v.queue, v.many, v.crawl, v.turn, v.queue_precedence, v.next_ready_at,
        v.{other}_precedence, v.{other}_priority,
        case when leads then v.precedence else {top}_precedence end as {top}_precedence,
        case when leads then v.priority else {top}_priority end as {top}_priority,
        case when leads then v.tie else {top}_tie end as {top}_tie,
        case when leads then v.task else {top}_task end as {top}_task,
        case when leads then v.due_at else {top}_due_at end as {top}_due_at,
        r.ctid as ready_row, s.ctid as snooze_row,
        v.standing = 0 and v.is_free as rises, v.standing = 0 and v.is_early as sleeps, v.shifts,
        case when v.pending = 0 then 'empty' else 'snoozed' end as old_state,
        case when v.is_free then 'ready' else 'snoozed' end as new_state
    from came v
    left join lateral (
        select ctid from ready r
        where v.shifts and v.{top}_task is not null and r.crawl = v.crawl and r.lane = {lane}
            and r.queue_precedence = v.queue_precedence
            and r.precedence = v.{top}_precedence and r.priority = v.{top}_priority
            and r.turn = v.turn and r.queue = v.queue limit 1
    ) as r on true
    left join lateral (
        select ctid from snooze s
        where v.alarm_at > 0 and s.crawl = v.crawl and s.at = v.alarm_at and s.queue = v.queue
        limit 1
    ) as s on true
), old_ready as (
    delete from ready
    where ctid = any (array(select ready_row from grown where ready_row is not null))
), new_ready as (
    insert into ready (crawl, lane, queue_precedence, precedence, priority, turn, queue)
    select crawl, l.lane, queue_precedence, case when %s::boolean then 0 else l.precedence end,
        case when %s::boolean then 0 else l.priority end, turn, queue
    from grown cross join lateral (values
        (0::smallint, discovery_precedence, discovery_priority),
        (1::smallint, acquisition_precedence, acquisition_priority)
    ) as l (lane, precedence, priority)
    where l.precedence is not null and (rises or (shifts and l.lane = {lane}))
), old_snooze as (
    delete from snooze where ctid = any (
        array(select snooze_row from grown where rises and snooze_row is not null)
    )
), new_snooze as (
    insert into snooze (crawl, at, queue)
    select crawl, next_ready_at, queue from grown where sleeps and snooze_row is null
), new_counts as (
    insert into delta (crawl, name, n)
    select g.crawl, 'queues ' || m.state, sum(m.n) from grown g
    cross join lateral (values (g.old_state, -1), (g.new_state, 1)) as m (state, n)
    where g.rises or g.sleeps group by g.crawl, m.state having sum(m.n) <> 0
)
update queue q set pending = q.pending + g.many, {top}_precedence = g.{top}_precedence,
    {top}_priority = g.{top}_priority, {top}_tie = g.{top}_tie, {top}_task = g.{top}_task,
    {top}_due_at = g.{top}_due_at,
    standing = case when g.rises then 1 else q.standing end,
    session = case when g.rises then greatest(q.session, 0) else q.session end,
    alarm_at = case when g.rises then 0 when g.sleeps then g.next_ready_at else q.alarm_at end
from grown g where q.id = g.queue

-- name: lock_queues_of_leases
-- Lock the queues of some leases before anything of them is read, in the order in which all
-- transactions lock them.
-- in: tasks bigint[]
-- out: nothing of use
select from lease l join queue q on q.id = l.queue
where l.task = any(%s::bigint[]) order by q.id for update of q

-- name: fast_finish
-- H3, D1, D3: tasks are done; their queues go to the ready list, wait for their wake time, or are
-- empty and their session is over. The queues are locked by `lock_queues_of_leases`.
-- in: tasks bigint[], tokens bigint[], answers json[], sizes bigint[], delays bigint[],
--   last_delays double precision[], crawl_delays double precision[], calms bigint[],
--   now, now, now, now, now, now, now, by_turn, by_turn, now, now, now
-- out: task, token, size, type, tag, origin, depth, has_pending, standing (the queue's state)
with finished as (
    select * from unnest(%s::bigint[], %s::bigint[], %s::json[], %s::bigint[], %s::bigint[],
        %s::double precision[], %s::double precision[], %s::bigint[])
        as v (task, token, answer, size, delay, last_delay, crawl_delay, calm)
), held as materialized (
    select v.*, l.queue, l.claimed_at, t.type, t.tag, t.origin, t.depth, q.crawl, q.turn,
        q.pending, %s + v.delay as rested_at, greatest(q.next_ready_at, %s + v.delay) as ready_at,
        q.precedence as queue_precedence, q.discovery_precedence, q.discovery_priority,
        q.acquisition_precedence, q.acquisition_priority
    from finished v cross join lateral (
        select * from lease l where l.task = v.task and l.token = v.token limit 1
    ) as l
    join queue q on q.id = l.queue join task t on t.id = v.task
    where q.session < q.routine_below and t.blocks = 0
), old_lease as (
    delete from lease where task = any (array(select task from held))
), new_task as (
    update task t set state = 'done', token = h.token, attempts = t.attempts + 1,
        claimed_at = h.claimed_at, finished_at = %s, answer = h.answer, answered_at = %s,
        reason = null
    from held h where t.id = h.task
), new_queue as (
    update queue q set in_flight = 0, visits_done = q.visits_done + 1, bytes = q.bytes + h.size,
        done = q.done + 1, last_end_at = %s, next_ready_at = h.ready_at,
        why = case when h.rested_at > q.next_ready_at then 'delay' else q.why end,
        session = case when h.pending = 0 then -1 else q.session end,
        standing = (h.pending > 0 and h.ready_at <= %s)::int,
        alarm_at = case when h.pending > 0 and h.ready_at > %s then h.ready_at else 0 end,
        last_delay = h.last_delay, crawl_delay = coalesce(h.crawl_delay, q.crawl_delay),
        calm = case when q.calm + 1 >= h.calm then 0 else q.calm + 1 end,
        throttles_in_row = 0, unreachable_in_row = 0, blocks_in_row = 0, errors_in_row = 0
    from held h where q.id = h.queue
), new_ready as (
    insert into ready (crawl, lane, queue_precedence, precedence, priority, turn, queue)
    select crawl, l.lane, queue_precedence, case when %s::boolean then 0 else l.precedence end,
        case when %s::boolean then 0 else l.priority end, turn, queue
    from held cross join lateral (values
        (0::smallint, discovery_precedence, discovery_priority),
        (1::smallint, acquisition_precedence, acquisition_priority)
    ) as l (lane, precedence, priority)
    where l.precedence is not null and pending > 0 and ready_at <= %s
), new_snooze as (
    insert into snooze (crawl, at, queue)
    select crawl, ready_at, queue from held where pending > 0 and ready_at > %s
)
select task, token, size, type, tag, origin, depth, pending > 0,
    case when pending = 0 then 'empty' when ready_at <= %s then 'ready' else 'snoozed' end
from held
