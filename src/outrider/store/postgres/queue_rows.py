"""A queue as its row tells: one row makes a queue, and a queue makes the numbers of its row.

Every queue a verb touches passes here, so both ways are written out.
"""

from __future__ import annotations

from outrider.core.order import DELAYED_BYTES, DUE_BITS, LANE_BYTES, NUMBER_MASK, task_key
from outrider.core.task import PolitenessState
from outrider.store.heads.records import NO_LINE, Queue
from outrider.store.postgres.columns import NUMBERS
from outrider.store.postgres.lazy_list import END, Fetch, ServerQueue, Shelf
from outrider.store.postgres.rows import Row, delayed_entry


def numbers_of(queue: Queue) -> Row:
    """A queue's numbers, in the order of its columns."""
    manners, rules, delayed = queue.manners, queue.rules, queue.delayed
    return (
        queue.pending,
        queue.in_flight,
        queue.standing,
        queue.alarm,
        queue.session,
        queue.spent,
        queue.next_ready,
        queue.turn,
        queue.last_start,
        queue.last_cost,
        queue.cost_sum,
        queue.cost_count,
        queue.last_end,
        manners.last_delay,
        manners.calm,
        queue.dones,
        queue.bytes,
        queue.done,
        queue.epoch,
        rules.paused,
        rules.retired,
        queue.precedence,
        queue.paused,
        queue.retired,
        queue.place,
        queue.why,
        delayed.size if isinstance(delayed, Shelf) else 0,
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
        routine_below(queue),
    )


def routine_below(queue: Queue) -> int:
    """Below which session a visit that is just done needs no judge; -1: every visit does."""
    is_routine = (
        queue.slots == 1
        and queue.in_flight <= 1
        and queue.gap < 0
        and queue.total < 0
        and queue.retired is None
        and not (queue.delayed.head or queue.named or queue.lent or queue.paused)
        and not (queue.has_quota or queue.hold or queue.manners.level)
        and not (queue.alarm and queue.standing)  # of a task that is due by now, and was moved
    )
    return queue.balance or -1 if is_routine else -1


def tops_of(row: Row) -> tuple[int, int, int]:
    """The first entry of each line of a queue; 0: it has none."""
    (
        precedence,
        priority,
        tie,
        task,
        due,
        other_precedence,
        other_priority,
        other_tie,
        other_task,
        other_due,
        *delayed,
    ) = row[NUMBERS.stop :]
    first = second = 0
    if task is not None:
        first = task_key(precedence, priority, tie, task & NUMBER_MASK) << DUE_BITS | due
    if other_task is not None:
        key = task_key(other_precedence, other_priority, other_tie, other_task & NUMBER_MASK)
        second = key << DUE_BITS | other_due
    return first, second, 0 if delayed[0] is None else delayed_entry(*delayed)


def queue_in(row: Row, like: Queue, tops: tuple[int, int, int], rest: Fetch) -> Queue:
    """The queue a row tells of, under the rules of another; of its lines the first entries."""
    (
        number,
        _,
        key,
        pending,
        in_flight,
        standing,
        alarm,
        session,
        spent,
        next_ready,
        turn,
        last_start,
        last_cost,
        cost_sum,
        cost_count,
        last_end,
        last_delay,
        calm,
        dones,
        bytes_,
        done,
        epoch,
        _,
        _,
        _,
        paused,
        retired,
        place,
        why,
        size,
        named,
        lent,
        crashed,
        level,
        throttles,
        unreachable,
        blocks,
        crawl_delay,
        errors,
        dead,
        dropped,
        _,
    ) = row[: NUMBERS.stop]
    first, second, delayed = tops
    lane0 = lane1 = later = NO_LINE
    is_all = (first > 0) + (second > 0) + (delayed > 0) == pending
    if first:
        edge = END if is_all else first
        lane0 = Shelf(LANE_BYTES, [first], None, 1, rest, number, 0, edge)
    if second:
        edge = END if is_all else second
        lane1 = Shelf(LANE_BYTES, [second], None, 1, rest, number, 1, edge)
    if delayed:
        edge = END if is_all else delayed
        later = Shelf(DELAYED_BYTES, [delayed], None, 1, rest, number, 2, edge, size)
    queue = ServerQueue(
        key,
        number & NUMBER_MASK,
        turn,
        like.rules,
        paused,
        retired,
        lane0,
        lane1,
        later,
        0,
        0,
        like.precedence,
        like.slots,
        like.gap,
        like.balance,
        like.total,
        like.hold,
        like.has_quota,
        like.from_start,
        pending,
        in_flight,
        named,
        lent,
        crashed,
        standing,
        place,
        alarm,
        session,
        spent,
        next_ready,
        why,
        last_start,
        last_end,
        PolitenessState(level, calm, throttles, unreachable, blocks, last_delay, crawl_delay),
        errors,
        dones,
        bytes_,
        done,
        dead,
        dropped,
        last_cost,
        cost_sum,
        cost_count,
        epoch,
    )
    if queue.gap >= 0:
        queue.measure_gap()
    return queue
