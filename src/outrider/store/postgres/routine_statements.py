"""Routine visits in SQL: a queue wakes, lends its first task, and hears that it is done.

`queue.routine_below` is written by whoever judged a queue: while its session is below that, these
statements do what `heads` would do, and touch nothing else. What is locked may be newer than what a
statement saw before it waited; so one statement locks, and the next one reads and moves.

Plans are made when tables are small and kept when they are large, and the small ones of moving rows
may be empty at any time: a row of those is looked up by itself (`lateral … limit 1`), and deleted
by where it lies, for nobody else moves it while its queue is locked.
"""

from __future__ import annotations

from typing import Final

from outrider.store.postgres.columns import TASK_ABOUT, TASK_NAMES
from outrider.store.postgres.statements import WANTED, read_as

LANES: Final = ("discovery", "acquisition")
_IS_ROUTINE: Final = "q.session < q.routine_below"
_ORDERED: Final = ("precedence", "priority", "tie", "task")
_ORDER: Final = ", ".join(_ORDERED)
_READY: Final = "(crawl, lane, queue_precedence, precedence, priority, turn, queue)"
_TOPS: Final = (
    "q.discovery_precedence, q.discovery_priority, q.acquisition_precedence, q.acquisition_priority"
)


def _stands(source: str, queue: str, where: str = "true") -> str:
    """Queues stand in each lane where they have tasks; takes whether only turns count, twice."""
    return f"""
    insert into ready {_READY}
    select crawl, l.lane, queue_precedence, case when %s::boolean then 0 else l.precedence end,
        case when %s::boolean then 0 else l.priority end, turn, {queue}
    from {source} cross join lateral (values
        (0::smallint, discovery_precedence, discovery_priority),
        (1::smallint, acquisition_precedence, acquisition_priority)
    ) as l (lane, precedence, priority) where l.precedence is not null and {where}
    """  # noqa: S608


def _stood(lane: int, by_turn: str) -> str:
    """Where a ready queue stands in a lane, if it does."""
    top = LANES[lane]
    return f"""
        select ctid from ready r
        where q.{top}_task is not null and r.crawl = q.crawl and r.lane = {lane}
            and r.queue_precedence = q.precedence
            and r.precedence = case when {by_turn} then 0 else q.{top}_precedence end
            and r.priority = case when {by_turn} then 0 else q.{top}_priority end
            and r.turn = q.turn and r.queue = q.id limit 1
    """  # noqa: S608


# E1: the snooze of these is over, and they are served as far as they can know.
WAKE: Final = f"""
with woken as materialized (
    select q.id, q.crawl, q.turn, q.precedence as queue_precedence, s.ctid as snoozed, {_TOPS}
    from snooze s join queue q on q.id = s.queue
    where s.crawl = %s and s.at <= %s and q.alarm_at = s.at and {_IS_ROUTINE}
    order by s.at, s.queue limit %s for update of q skip locked
), risen as (
    delete from snooze where ctid = any (array(select snoozed from woken))
), standing as ({_stands("woken", "id")}), judged as (
    update queue q set alarm_at = 0, standing = 1, session = greatest(q.session, 0)
    from woken w where q.id = w.id
)
select count(*) from woken
"""  # noqa: S608
# Whether somebody woke who is to be judged, and how far the best parked queue is.
OUTLOOK: Final = f"""
select exists (
        select from (
            select s.at, s.queue from snooze s
            where s.crawl = %s and s.at <= %s order by s.at, s.queue limit %s
        ) as s cross join lateral (
            select from queue q
            where q.id = s.queue and q.alarm_at = s.at and not ({_IS_ROUTINE}) limit 1
        ) as q
    ),
    (select queue_precedence from inactive where crawl = %s order by queue_precedence limit 1)
"""  # noqa: S608
LOOK: Final = f"""
select q.id, {_IS_ROUTINE}, r.queue_precedence
from ready r join queue q on q.id = r.queue
where r.crawl = %s and r.lane = %s and q.standing = 1 and q.turn = r.turn
order by r.queue_precedence, r.precedence, r.priority, r.turn, r.queue
limit %s for update of q skip locked
"""  # noqa: S608

_TOLD: Final = (TASK_NAMES[2], *TASK_ABOUT)
_ASKED: Final = ("queue", "lane")
_TASK: Final = read_as(tuple(column for column in _TOLD if column[0] not in _ASKED), "t.")
_TASK_NAMES: Final = ", ".join(f"k.{name}" for name, _ in _TOLD)
_NEXT: Final = ", ".join(
    f"{top}_{name} = case when k.lane = {lane} then k.next_{name} else q.{top}_{name} end"
    for lane, top in enumerate(LANES)
    for name in (*_ORDERED, "due_at")
)
# H1, E3, C3, D1: the first task of a lane of each queue is lent; the next one becomes its first.
BEGIN: Final = f"""
with asked as materialized (
    select n.*, nextval(%s::regclass) as new_turn, %s::boolean as by_turn
    from unnest(%s::bigint[], %s::smallint[], %s::bigint[]) with ordinality
        as n (queue, lane, token, place)
), picked as materialized (
    select a.queue, a.lane, a.token, a.place, a.new_turn, q.crawl, q.key, q.epoch, q.said_paused,
        q.said_retired, q.calm, q.throttles_in_row, q.unreachable_in_row, q.blocks_in_row,
        q.last_delay, q.crawl_delay, {_TASK}, t.id as task, t.attempts, t.failures, t.throttles,
        t.answer::text as answer, t.answered_at, p.ctid as waited, d.ctid as stood,
        o.ctid as stood_too, n.precedence as next_precedence, n.priority as next_priority,
        n.tie as next_tie, n.task as next_task, n.due_at as next_due_at
    from asked a join queue q on q.id = a.queue
    cross join lateral (values
        (0, q.discovery_precedence, q.discovery_priority, q.discovery_tie, q.discovery_task),
        (1, q.acquisition_precedence, q.acquisition_priority, q.acquisition_tie, q.acquisition_task)
    ) as f (lane, {_ORDER})
    join task t on t.id = f.task
    cross join lateral (
        select ctid from pending p
        where p.queue = q.id and p.lane = a.lane and p.precedence = f.precedence
            and p.priority = f.priority and p.tie = f.tie and p.task = f.task limit 1
    ) as p
    left join lateral ({_stood(0, "a.by_turn")}) as d on true
    left join lateral ({_stood(1, "a.by_turn")}) as o on true
    left join lateral (
        select {_ORDER}, due_at from pending p
        where p.queue = q.id and p.lane = a.lane
            and ({_ORDER}) > (f.precedence, f.priority, f.tie, f.task)
        order by {_ORDER} limit 1
    ) as n on true
    where f.lane = a.lane
), gone as (
    delete from ready where ctid = any (array(
        select stood from picked where stood is not null
        union all select stood_too from picked where stood_too is not null
    ))
), taken as (
    delete from pending where ctid = any (array(select waited from picked))
), lent as (
    insert into lease (task, crawl, queue, token, worker, claimed_at, deadline_at, named, lent)
    select task, crawl, queue, token, %s, %s, %s, false, false from picked
), begun as (
    update queue q set standing = 0, pending = q.pending - 1, in_flight = 1, turn = k.new_turn,
        last_start_at = %s, session = q.session + k.cost, spent = q.spent + k.cost,
        last_cost = k.cost, cost_sum = q.cost_sum + k.cost, cost_count = q.cost_count + 1, {_NEXT}
    from picked k where q.id = k.queue
)
select k.task, k.token, k.key, k.epoch, k.said_paused, k.said_retired, k.calm,
    k.throttles_in_row, k.unreachable_in_row, k.blocks_in_row, k.last_delay, k.crawl_delay,
    k.attempts, k.failures, k.throttles, k.answer, k.answered_at, {_TASK_NAMES}
from picked k order by k.place
"""  # noqa: S608

# In one order with all others, before anything is read; the last: a task makes it stand or wake.
LOCK_ALL: Final = f"""{WANTED}
select q.id, q.key, {_IS_ROUTINE}, q.standing = 0 and q.in_flight = 0
from wanted w join queue q on q.id = w.id order by q.id for update of q
"""  # noqa: S608


def grow(lane: int) -> str:
    """B3, E1: so many tasks came to a lane of each of these queues, this one before the others."""
    top, other, order = LANES[lane], LANES[1 - lane], _ORDERED
    new = ", ".join(
        f"case when leads then v.{name} else {top}_{name} end as {top}_{name}"
        for name in (*order, "due_at")
    )
    tops = ", ".join(f"{top}_{name} = g.{top}_{name}" for name in (*order, "due_at"))
    return f"""
with came as materialized (
    select n.*, q.crawl, q.turn, q.precedence as queue_precedence,
        q.standing, q.alarm_at, q.in_flight = 0 and q.next_ready_at <= %s as is_free,
        q.in_flight = 0 and q.next_ready_at > %s as is_early, q.next_ready_at,
        q.{top}_precedence, q.{top}_priority, q.{top}_tie, q.{top}_task, q.{top}_due_at,
        q.{other}_precedence, q.{other}_priority,
        q.{top}_task is null or (n.{", n.".join(order)})
            < (q.{top}_precedence, q.{top}_priority, q.{top}_tie, q.{top}_task) as leads,
        q.standing = 1 and (q.{top}_task is null or (not n.by_turn and
            (n.precedence, n.priority) < (q.{top}_precedence, q.{top}_priority))) as shifts
    from (
        select *, %s::boolean as by_turn
        from unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::double precision[],
            %s::bigint[], %s::bigint[], %s::bigint[]) as u (queue, many, {_ORDER}, due_at)
    ) as n
    join queue q on q.id = n.queue
), grown as materialized (
    select v.queue, v.many, v.crawl, v.turn, v.queue_precedence, v.next_ready_at,
        v.{other}_precedence, v.{other}_priority, {new}, r.ctid as stood, s.ctid as snoozed,
        v.standing = 0 and v.is_free as rises, v.standing = 0 and v.is_early as sleeps, v.shifts
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
), moved as (
    delete from ready where ctid = any (array(select stood from grown where stood is not null))
), standing as (
    {_stands("grown", "queue", f"(rises or (shifts and l.lane = {lane}))")}
), risen as (
    delete from snooze where ctid = any (
        array(select snoozed from grown where rises and snoozed is not null)
    )
), asleep as (
    insert into snooze (crawl, at, queue)
    select crawl, next_ready_at, queue from grown where sleeps and snoozed is null
)
update queue q set pending = q.pending + g.many, {tops},
    standing = case when g.rises then 1 else q.standing end,
    session = case when g.rises then greatest(q.session, 0) else q.session end,
    alarm_at = case when g.rises then 0 when g.sleeps then g.next_ready_at else q.alarm_at end
from grown g where q.id = g.queue
"""  # noqa: S608


GROW: Final = tuple(grow(lane) for lane in (0, 1))

# In one order with all others, before anything is read.
LOCK_ENDS: Final = """
select from lease l join queue q on q.id = l.queue
where l.task = any(%s::bigint[]) order by q.id for update of q
"""
# H3, D1, D3: done; its queue stands again, or sleeps, or is empty and its session over.
END: Final = f"""
with told as (
    select * from unnest(%s::bigint[], %s::bigint[], %s::json[], %s::bigint[], %s::bigint[],
        %s::double precision[], %s::double precision[], %s::bigint[])
        as v (task, token, answer, size, delay, last_delay, crawl_delay, calm)
), held as materialized (
    select v.*, l.queue, l.claimed_at, t.type, t.tag, t.origin, t.depth, q.crawl, q.turn,
        q.pending, %s + v.delay as rested_at, greatest(q.next_ready_at, %s + v.delay) as ready_at,
        q.precedence as queue_precedence, {_TOPS}
    from told v cross join lateral (
        select * from lease l where l.task = v.task and l.token = v.token limit 1
    ) as l
    join queue q on q.id = l.queue join task t on t.id = v.task
    where {_IS_ROUTINE}
), freed as (
    delete from lease where task = any (array(select task from held))
), ended as (
    update task t set state = 'done', token = h.token, attempts = t.attempts + 1,
        claimed_at = h.claimed_at, finished_at = %s, answer = h.answer, answered_at = %s,
        reason = null
    from held h where t.id = h.task
), judged as (
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
), standing as ({_stands("held", "queue", "pending > 0 and ready_at <= %s")}),
asleep as (
    insert into snooze (crawl, at, queue)
    select crawl, ready_at, queue from held where pending > 0 and ready_at > %s
)
select task, token, size, type, tag, origin, depth, pending > 0 from held
"""  # noqa: S608
