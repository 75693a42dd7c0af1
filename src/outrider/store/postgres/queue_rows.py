"""A queue as its row tells, in the parts that are written together."""

from __future__ import annotations

from typing import NamedTuple

from outrider.core.task import Manners
from outrider.store.heads.records import Queue
from outrider.store.postgres.columns import NUMBERS_AT, TOPS_AT
from outrider.store.postgres.rows import Row, delayed_entry, lane_entry


class Numbers(NamedTuple):
    """The numbers of a queue in the parts they are written in."""

    always: Row
    lent: Row
    ended: Row
    seldom: Row


def numbers_of(queue: Queue, delayed: int) -> Numbers:
    """A queue's numbers."""
    manners, rules = queue.manners, queue.rules
    return Numbers(
        (
            queue.pending,
            queue.in_flight,
            queue.standing,
            queue.alarm,
            queue.session,
            queue.spent,
            queue.next_ready,
        ),
        (queue.turn, queue.last_start, queue.last_cost, queue.cost_sum, queue.cost_count),
        (
            queue.last_end,
            manners.last_delay,
            manners.calm,
            queue.dones,
            queue.bytes,
            queue.done,
        ),
        (
            queue.epoch,
            queue.precedence,
            queue.paused,
            queue.retired,
            rules.paused,
            rules.retired,
            queue.place,
            queue.why,
            delayed,
            queue.named,
            queue.lent,
            queue.crashed,
            manners.level,
            manners.throttles_in_row,
            manners.unreachable_in_row,
            manners.blocks_in_row,
            manners.crawl_delay,
            queue.errors,
            queue.dead,
            queue.dropped,
        ),
    )


class Seldom(NamedTuple):
    """What seldom changes of a queue, by name."""

    epoch: int
    precedence: int
    paused: bool
    retired: str | None
    said_paused: bool
    said_retired: bool
    place: int
    why: str
    delayed: int
    named: int
    lent: int
    crashed: int
    level: int
    throttles_in_row: int
    unreachable_in_row: int
    blocks_in_row: int
    crawl_delay: float
    errors: int
    dead: int
    dropped: int


def numbers_in(row: Row) -> Numbers:
    """A queue's numbers as its row tells them."""
    always, lent, ended, seldom = NUMBERS_AT
    return Numbers(row[always], row[lent], row[ended], row[seldom])


def fill_queue(queue: Queue, numbers: Numbers) -> None:
    """Let a queue be what its row tells, but for its rules and lines."""
    (
        queue.pending,
        queue.in_flight,
        queue.standing,
        queue.alarm,
        queue.session,
        queue.spent,
        queue.next_ready,
    ) = numbers.always
    (
        queue.turn,
        queue.last_start,
        queue.last_cost,
        queue.cost_sum,
        queue.cost_count,
    ) = numbers.lent
    (queue.last_end, last_delay, calm, queue.dones, queue.bytes, queue.done) = numbers.ended
    (
        queue.epoch,
        queue.precedence,
        queue.paused,
        queue.retired,
        _,
        _,
        queue.place,
        queue.why,
        _,
        queue.named,
        queue.lent,
        queue.crashed,
        level,
        throttles,
        unreachable,
        blocks,
        crawl_delay,
        queue.errors,
        queue.dead,
        queue.dropped,
    ) = numbers.seldom
    queue.manners = Manners(level, calm, throttles, unreachable, blocks, last_delay, crawl_delay)


def tops_of(row: Row) -> tuple[int, int, int]:
    """The first entry of each line of a queue; 0: it has none."""
    first, second, delayed = row[TOPS_AT : TOPS_AT + 5], row[TOPS_AT + 5 : TOPS_AT + 10], row[-6:]
    return (
        0 if first[0] is None else lane_entry(*first),
        0 if second[0] is None else lane_entry(*second),
        0 if delayed[0] is None else delayed_entry(*delayed),
    )
