"""A large crawl written with SQL only, to look at query plans.

Every queue has the same number of tasks; all are ready, or all wake at the same instant.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

FILL: Final = """
insert into queue (id, crawl, key, turn, epoch, precedence, paused, said_paused, said_retired,
    pending, delayed, in_flight, named, lent, crashed, standing, place, alarm_at, session, spent,
    next_ready_at, why, last_start_at, last_end_at, level, calm, throttles_in_row,
    unreachable_in_row, blocks_in_row, last_delay, crawl_delay, errors_in_row, visits_done, bytes,
    done, dead, dropped, last_cost, cost_sum, cost_count, routine_below, discovery_precedence,
    discovery_priority, discovery_tie, discovery_task, discovery_due_at)
select %(base)s + n, %(crawl)s, 'h' || n || '.example', n, %(epoch)s, 0, false, false, false,
    %(each)s, 0, 0, 0, 0, 0, %(standing)s, 0, %(alarm)s, %(session)s, 0,
    %(alarm)s, 'delay', -1, -1, 0, 0, 0,
    0, 0, -1, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, %(routine)s, 1,
    (n * 7919 %% 1000)::float8, n, %(base)s + (n - 1) * %(each)s + 1, 0
from generate_series(1::bigint, %(queues)s) n;

insert into task (id, crawl, queue, fingerprint, url, type, lane, depth, precedence, priority,
    tie, cost, due_at, discovered_at, delay, known, roll, origin, meta)
select %(base)s + (n - 1) * %(each)s + i, %(crawl)s, %(base)s + n, gen_random_uuid(),
    'https://h' || n || '.example/page/' || i, 'page', 0, 1, 1, (n * 7919 %% 1000)::float8 + i - 1,
    n, 1, 0, 0, 0, 'keep', 0, 'opportunistic', ''
from generate_series(1::bigint, %(queues)s) n, generate_series(1, %(each)s) i;

insert into pending (queue, lane, precedence, priority, tie, task, due_at)
select queue, 0, precedence, priority, tie, id, 0 from task where crawl = %(crawl)s;

insert into ready (crawl, lane, queue_precedence, precedence, priority, turn, queue)
select crawl, 0, 0, 1, discovery_priority, turn, id from queue
where crawl = %(crawl)s and standing = 1;

insert into snooze (crawl, at, queue)
select crawl, alarm_at, id from queue where crawl = %(crawl)s and alarm_at > 0;

insert into counter (crawl, name, n)
values (%(crawl)s, 'pending ["page",null,"opportunistic",1]', %(queues)s::bigint * %(each)s);

update crawl set is_idle = false, first_at = 0 where id = %(crawl)s;
"""


def fill(
    line: psycopg.Connection[Any],
    name: str,
    *,
    queues: int,
    each: int = 1,
    asleep_until: int = 0,
    is_routine: bool = True,
) -> None:
    """Fill a new crawl, over an autocommit connection to its schema."""
    found = line.execute("select id, epoch from crawl where name = %s", (name,)).fetchone()
    assert found is not None
    crawl, epoch = found
    params = {
        "crawl": crawl,
        "epoch": epoch,
        "base": crawl << 40,
        "queues": queues,
        "each": each,
        "standing": 0 if asleep_until else 1,
        "session": -1 if asleep_until else 0,
        "alarm": asleep_until,
        "routine": 3000 if is_routine else -1,
    }
    for statement in FILL.split(";\n\n"):
        line.execute(statement.encode(), params)
    for sequence, last in (("tasks", queues * each), ("queues", queues), ("turns", queues)):
        line.execute("select setval(%s::regclass, %s)", (f"{sequence}_{crawl}", last))
    line.execute("select setval(%s::regclass, %s)", (f"arrivals_{crawl}", queues * each))
    line.execute("vacuum analyze")
