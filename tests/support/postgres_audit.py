"""Rules between the tables of a PostgreSQL store.

Each query finds the rows that break one rule; a correct store has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg

RULES: Final[Mapping[str, str]] = {
    "every pending task that is not leased is in one list": """
        select t.id from task t
        left join lease l on l.task = t.id
        left join pending p on p.task = t.id and p.queue = t.queue and p.lane = t.lane
            and p.precedence = t.precedence and p.priority = t.priority and p.tie = t.tie
        left join delayed d on d.task = t.id and d.queue = t.queue and d.lane = t.lane
            and d.precedence = t.precedence and d.priority = t.priority and d.tie = t.tie
            and d.due_at = t.due_at
        where (t.state = 'pending' and l.task is null)
            is distinct from (p.task is not null or d.task is not null)
            or (p.task is not null and d.task is not null)
    """,
    "no list holds a task twice or one that does not exist": """
        select task from (select task from pending union all select task from delayed) w
        group by task having count(*) > 1
        union all
        select task from (select task from pending union all select task from delayed) w
        where not exists (select from task t where t.id = w.task)
    """,
    "a queue has the first entry of each of its lists": """
        select q.id from queue q
        left join lateral (select * from pending p where p.queue = q.id and p.lane = 0
            order by precedence, priority, tie, task limit 1) a on true
        left join lateral (select * from pending p where p.queue = q.id and p.lane = 1
            order by precedence, priority, tie, task limit 1) b on true
        left join lateral (select * from delayed d where d.queue = q.id
            order by due_at, precedence, priority, tie, task limit 1) d on true
        where q.discovery_task is distinct from a.task
            or q.discovery_tie is distinct from a.tie
            or q.discovery_priority is distinct from a.priority
            or q.acquisition_task is distinct from b.task
            or q.delayed_task is distinct from d.task
            or q.delayed_due_at is distinct from d.due_at
    """,
    "a queue counts its tasks": """
        select q.id from queue q
        where q.pending <> (select count(*) from pending p where p.queue = q.id)
                + (select count(*) from delayed d where d.queue = q.id)
            or q.delayed <> (select count(*) from delayed d where d.queue = q.id)
            or q.in_flight + q.named <> (select count(*) from lease l where l.queue = q.id)
            or q.done <> (select count(*) from task t where t.queue = q.id and t.state = 'done')
    """,
    "the ready lists hold the ready queues at the place of their first task": """
        select coalesce(e.queue, r.queue) from (
            select q.crawl, 0 as lane, q.precedence as queue_precedence,
                q.discovery_precedence as precedence, q.discovery_priority as priority, q.turn,
                q.id as queue
            from queue q where q.standing = 1 and q.discovery_task is not null
            union all
            select q.crawl, 1, q.precedence, q.acquisition_precedence, q.acquisition_priority,
                q.turn, q.id
            from queue q where q.standing = 1 and q.acquisition_task is not null
        ) e
        full join ready r using (crawl, lane, queue_precedence, turn, queue)
        where e.queue is null or r.queue is null -- 0, 0: the turn is all that counts
            or (r.precedence, r.priority) not in ((e.precedence, e.priority), (0, 0))
    """,
    "the inactive list holds the inactive queues at their place": """
        select coalesce(e.queue, i.queue) from (
            select crawl, precedence as queue_precedence, place, id as queue
            from queue where standing = 2
        ) e full join inactive i using (crawl, queue_precedence, place, queue)
        where e.queue is null or i.queue is null
    """,
    "every wake time is stored once": """
        select coalesce(e.queue, s.queue) from (
            select crawl, alarm_at as at, id as queue from queue where alarm_at > 0
        ) e full join snooze s using (crawl, at, queue)
        where e.queue is null or s.queue is null
    """,
    "queues are counted by their state": """
        select coalesce(e.crawl, n.crawl) from (
            select crawl, 'queues ' || case
                when standing = 1 then 'ready' when standing = 2 then 'inactive'
                when alarm_at > 0 then 'snoozed' when retired is not null then 'retired'
                when paused then 'paused' when pending + in_flight + named > 0 then 'busy'
                else 'empty' end as name, count(*) as n
            from queue group by 1, 2
        ) e full join (
            select crawl, name, sum(n) as n from (
                select * from counter union all select * from delta
            ) as c where name like 'queues %' group by 1, 2 having sum(n) <> 0
        ) n using (crawl, name) where e.n is distinct from n.n
    """,
    "pending tasks are counted by their priority": """
        select coalesce(e.crawl, n.crawl) from (
            select t.crawl, case when p.priority <= -1000 then 'critical'
                when p.priority <= -100 then 'high' else 'low' end as name, count(*) as n
            from (
                select task, priority from pending union all select task, priority from delayed
            ) as p join task t on t.id = p.task
            where p.priority <= -100 or p.priority >= 100 group by 1, 2
        ) e full join (
            select crawl, name, sum(n) as n from (
                select * from counter union all select * from delta
            ) as c where name in ('critical', 'high', 'low') group by 1, 2 having sum(n) <> 0
        ) n using (crawl, name) where e.n is distinct from n.n
    """,
    "a topic and a name have one shared value": """
        select crawl, topic, name from note group by crawl, topic, name having count(*) > 1
    """,
}


def faults(line: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """Return the broken rules in the schema of this connection, and the rows."""
    found = {rule: line.execute(query.encode()).fetchall() for rule, query in RULES.items()}
    return {rule: rows[:5] for rule, rows in found.items() if rows}
