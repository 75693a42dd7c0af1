"""The schedule of one crawl: ready lists, inactive list and wake times (D2, E1, E2, E5).

A queue is rescheduled only when it could be served. Invariants: a queue is on a list only while it
could be served; a ready queue is in the ready list of each lane where it has due tasks, under
`ready_key0` and `ready_key1`; every queue that time alone can make servable has a wake time. An
entry of the inactive list or of the wake times is valid only while its queue has that value, so
that no entry is ever searched for.
"""

from __future__ import annotations

from heapq import heappop, heappush, nsmallest
from typing import Final, final

from outrider.core.order import (
    DELAYED_SHIFT,
    DUE_BITS,
    DUE_MASK,
    NUMBER_BITS,
    NUMBER_MASK,
    PRECEDENCE_LIMIT,
    QUEUE_BYTES,
    QUEUE_PRECEDENCE_SHIFT,
    QUEUE_RANK_SHIFT,
    TASK_RANK_SHIFT,
    TURN_BITS,
    moved,
)
from outrider.store.engine.port import Loader, QueueTable
from outrider.store.engine.records import INACTIVE, READY, UNLISTED, Queue
from outrider.store.engine.sorted_list import SortedList
from outrider.store.engine.state import CrawlState

READY_HEAD: Final = 256  # queues enter and leave at the head of the ready lists all the time
MAX_WALKED: Final = 20_000  # wake times looked at one after the other before all are compared
RANK_SHIFT: Final = TASK_RANK_SHIFT + DUE_BITS  # from an entry of a lane to its rank
_INACTIVE_SHIFT: Final = NUMBER_BITS + TURN_BITS
_PRIORITY: Final = (1 << 64) - 1  # of a rank


@final
class Schedule:
    """Puts queues on the ready lists or the inactive list, and sets their wake times.

    Other parts capture `ready`, `inactive` and `wakeups`: never rebind them.
    """

    __slots__ = (
        "_loader",
        "_queues",
        "_state",
        "inactive",
        "inactive_edge",
        "listed",
        "ready",
        "wakeups",
    )

    def __init__(self, state: CrawlState, queues: QueueTable, loader: Loader | None) -> None:
        self._state, self._queues, self._loader = state, queues, loader
        self.listed = 0  # how many queues are on a list
        self.ready = (
            SortedList(QUEUE_BYTES, [], max_head=READY_HEAD),
            SortedList(QUEUE_BYTES, [], max_head=READY_HEAD),
        )
        self.inactive: list[int] = []  # a heap of `inactive_key`
        self.inactive_edge: int | None = None  # `inactive` is complete up to here; None: entirely
        self.wakeups: list[int] = []  # a heap of wake times and queue numbers

    # ---- rescheduling

    def reschedule(self, queue: Queue, now: int) -> None:
        """E1: decide again which list a queue is on, and its wake time."""
        self._refresh(queue, now, True)
        if queue.list_state == INACTIVE:
            self.activate_for_focus(queue, now)

    def refresh(self, queue: Queue, now: int) -> None:
        """Reschedule a queue after a change that puts no unlisted queue on a list."""
        self._refresh(queue, now, False)

    def _refresh(self, queue: Queue, now: int, may_list: bool) -> None:
        """E1: a listed queue keeps its place while it could be served; E2: empty ends a session."""
        if queue.delayed.head and queue.delayed.head[0] >> DELAYED_SHIFT <= now:
            queue.promote_due(now)
        if (  # could be served: next-ready passed, a free slot, unretired, unpaused, a due task
            queue.next_ready <= now
            and queue.in_flight < queue.slots
            and not queue.loaned
            and queue.retired is None
            and not queue.paused
            and (queue.lane0.head or queue.lane1.head)
        ):
            if queue.list_state == READY:
                self.update_ready_keys(queue)
            elif may_list and queue.list_state == UNLISTED:
                self.choose_list(queue, now)
        else:
            if queue.list_state != UNLISTED:
                self.unlist(queue)
            if queue.session >= 0 and not (queue.pending or queue.in_flight or queue.named):
                self._state.mark_dirty(queue)
                queue.session = -1
        at = self.next_wake(queue, now)
        if at != queue.wake_at:
            self.set_wake(queue, at)

    def choose_list(self, queue: Queue, now: int) -> None:
        """E1: retire it, put it at the back of the inactive list of its precedence, or ready."""
        if not queue.is_dirty:
            self._state.mark_dirty(queue)
        session = queue.session
        waits = session >= queue.balance if session >= 0 else queue.hold
        if queue.balance == 0 or 0 <= queue.total <= queue.spent:
            self.retire(queue, "budget", now)
        elif waits and not self._has_focus_task(queue):
            self.deactivate(queue)
        else:
            self.listed += 1
            self._state.has_new_work = True
            queue.list_state = READY
            if session < 0 or waits:
                queue.session = 0
            self.update_ready_keys(queue)

    def _has_focus_task(self, queue: Queue) -> bool:
        """C9: whether the first due task of a lane opens its queue's session by itself."""
        below = self._state.opens_below
        return any(
            lane.head[0] >> RANK_SHIFT & _PRIORITY < below
            for lane in (queue.lane0, queue.lane1)
            if lane.head
        )

    def activate_for_focus(self, queue: Queue, now: int) -> None:
        """C9: activate an inactive queue that has a focus task."""
        if self._state.opens_below >= 0 and queue.list_state == INACTIVE:
            queue.promote_due(now)
            if self._has_focus_task(queue):
                self.unlist(queue)
                self.choose_list(queue, now)

    def choose_list_again(self, queue: Queue, now: int) -> None:
        """E5: let `set` decide again about a listed queue; inactive means to the back."""
        self.unlist(queue)
        self.choose_list(queue, now)
        self.set_wake(queue, self.next_wake(queue, now))

    # ---- lists

    def deactivate(self, queue: Queue) -> None:
        """E2: end its session, and put it at the back of the inactive list of its precedence."""
        self.listed += 1
        self._state.has_new_work = True
        self._state.last_turn += 1
        queue.session, queue.list_state = -1, INACTIVE
        queue.inactive_turn = self._state.last_turn
        heappush(self.inactive, inactive_key(queue))

    def relist(self, queue: Queue) -> None:
        """Put a queue that was loaded or restored on the list its `list_state` says."""
        self.listed += 1
        self._state.has_new_work = True
        if queue.list_state == READY:
            self.update_ready_keys(queue)
        else:
            heappush(self.inactive, inactive_key(queue))

    def unlist(self, queue: Queue) -> None:
        """Take a queue off its list."""
        if queue.list_state != UNLISTED:
            self._state.mark_dirty(queue)
            self.listed -= 1
            queue.list_state = UNLISTED
            self.clear_ready_keys(queue)

    def clear_ready_keys(self, queue: Queue) -> None:
        """Remove a queue from the ready lists."""
        if queue.ready_key0:
            self.ready[0].discard(queue.ready_key0)
        if queue.ready_key1:
            self.ready[1].discard(queue.ready_key1)
        queue.ready_key0 = queue.ready_key1 = 0

    def update_ready_keys(  # noqa: C901 - every lease and every wake passes here
        self, queue: Queue, discount: float = 0.0
    ) -> None:
        """C3: put a ready queue where its first due task belongs, in each lane's ready list."""
        head = queue.lane0.head
        if not head:
            key = 0
        elif discount or self._state.by_turn:
            key = self._ready_key(queue, head[0], discount)
        else:  # `order.queue_key` written out: every wake computes it
            key = (
                (queue.precedence + PRECEDENCE_LIMIT) << QUEUE_PRECEDENCE_SHIFT
                | head[0] >> RANK_SHIFT << QUEUE_RANK_SHIFT
                | queue.turn << NUMBER_BITS
                | queue.number
            )
        if key != queue.ready_key0:
            if queue.ready_key0:
                self.ready[0].discard(queue.ready_key0)
            if key:
                self.ready[0].push(key)
            queue.ready_key0 = key
        head = queue.lane1.head
        if head or queue.ready_key1:
            key = self._ready_key(queue, head[0], discount) if head else 0
            if key != queue.ready_key1:
                if queue.ready_key1:
                    self.ready[1].discard(queue.ready_key1)
                if key:
                    self.ready[1].push(key)
                queue.ready_key1 = key

    def _ready_key(self, queue: Queue, first: int, discount: float) -> int:
        """Return the key of a queue in the ready list of a lane whose first entry that is."""
        if self._state.by_turn:
            rank = 0
        elif discount:
            rank = moved(first >> RANK_SHIFT, discount)
        else:
            rank = first >> RANK_SHIFT
        return (
            (queue.precedence + PRECEDENCE_LIMIT) << QUEUE_PRECEDENCE_SHIFT
            | rank << QUEUE_RANK_SHIFT
            | queue.turn << NUMBER_BITS
            | queue.number
        )

    def update_all_ready_keys(self) -> None:
        """Sort the ready lists by another order among queues."""
        for chunk in list(self._queues.loaded.values()):
            for queue in list(chunk.values()):
                if queue.list_state == READY:
                    self.update_ready_keys(queue)

    # ---- inactive queues

    def best_inactive(self, taken: dict[int, int], cap: int, skipped: list[Queue]) -> Queue | None:
        """E2: return the first inactive queue; one at its cap is moved to `skipped` (C5)."""
        inactive, get, best = self.inactive, self._queues.get, None
        while inactive:
            number = inactive[0] & NUMBER_MASK
            queue = get(number)
            if queue.list_state == INACTIVE and inactive[0] == inactive_key(queue):
                if not cap or taken.get(number, 0) < cap:
                    best = queue
                    break
                skipped.append(queue)
            heappop(inactive)
        edge = self.inactive_edge
        if edge is None or (best is not None and inactive[0] <= edge):
            return best
        self._load_inactive()
        return self.best_inactive(taken, cap, skipped)

    def activate_first(self, now: int) -> None:
        """E2: activate the first inactive queue."""
        self.activate(self._queues.get(heappop(self.inactive) & NUMBER_MASK), now)
        if not self.inactive and self.inactive_edge is not None:
            self._load_inactive()

    def activate(self, queue: Queue, now: int) -> None:
        """E2: open a session of an inactive queue; over its budget it retires instead."""
        if queue.is_over_budget():
            self.retire(queue, "budget", now)
        else:
            self._state.mark_dirty(queue)
            queue.session, queue.list_state = 0, READY
            self.update_ready_keys(queue)

    def _load_inactive(self) -> None:
        assert self._loader is not None  # noqa: S101 - only a loader sets an edge
        self._loader.load_inactive()

    # ---- wake times

    def set_wake(self, queue: Queue, at: int) -> None:
        """Set a queue's wake time; 0: none. It tells whether an unlisted queue is snoozed (C1)."""
        if not queue.is_dirty and queue.list_state == UNLISTED:
            self._state.mark_dirty(queue)
        queue.wake_at = at
        if at:
            self._state.has_new_work = True
            heappush(self.wakeups, at << NUMBER_BITS | queue.number)

    def next_wake(self, queue: Queue, now: int) -> int:
        """Return when time alone changes something here; 0: only another verb can."""
        delayed = queue.delayed.head
        if queue.list_state != UNLISTED:
            return delayed[0] >> DELAYED_SHIFT if delayed else 0
        if (
            not queue.pending
            or queue.in_flight >= queue.slots
            or queue.loaned
            or queue.paused
            or queue.retired is not None
        ):
            return 0
        if not (queue.lane0.head or queue.lane1.head):
            return max(queue.next_ready, delayed[0] >> DELAYED_SHIFT)
        if queue.next_ready > now:
            return queue.next_ready
        return max(queue.next_ready, first_due(queue))

    def first_wake(self) -> int | None:
        """Return the earliest wake time of all queues."""
        wakeups, wake_at = self.wakeups, self._queues.wake_at
        while wakeups:
            if wake_at(wakeups[0] & NUMBER_MASK) == wakeups[0] >> NUMBER_BITS:
                return wakeups[0] >> NUMBER_BITS
            heappop(wakeups)
        return None

    def wakes_after(self, at: int, number: int, limit: int) -> list[tuple[int, int]]:
        """E8: return the first wake times, each with its queue, after one and its queue.

        Some may be outdated. The heap is walked from its top; once that has seen too many, all
        entries are compared, which takes a tenth of a second for a million.
        """
        after = at << NUMBER_BITS | number
        found = self._walk_wakes(after, limit)
        if found is None:
            found = self._compare_wakes(after, limit)
        return [(entry >> NUMBER_BITS, entry & NUMBER_MASK) for entry in found]

    def _compare_wakes(self, after: int, limit: int) -> list[int]:
        size = 2 * limit  # some entries may be there twice
        while True:
            some = nsmallest(size, (entry for entry in self.wakeups if entry > after))
            found = sorted({*some})[:limit]
            if len(found) == limit or len(some) < size:
                return found
            size *= 2

    def _walk_wakes(self, after: int, limit: int) -> list[int] | None:
        """Walk the heap of wake times in order; None if that takes too long."""
        wakeups, seen = self.wakeups, 0
        found: list[int] = []
        next_ones = [(wakeups[0], 0)] if wakeups else []
        while next_ones and len(found) < limit:
            entry, at = heappop(next_ones)
            seen += 1
            if seen > MAX_WALKED:
                return None
            if entry > after and entry not in found[-1:]:
                found.append(entry)
            for child in range(2 * at + 1, min(2 * at + 3, len(wakeups))):
                heappush(next_ones, (wakeups[child], child))
        return found

    # ---- retiring

    def retire(self, queue: Queue, reason: str, now: int) -> None:
        """E5: exclude a queue and its tasks; a budget never replaces another reason."""
        state = self._state
        if queue.retired is None:
            state.retired_pending += queue.pending
        elif reason in ("budget", queue.retired):
            return
        state.mark_dirty(queue)
        queue.retired = reason
        state.add_event(now, "queue-retired", queue.key, reason)
        self.unlist(queue)
        self.set_wake(queue, self.next_wake(queue, now))

    def revive(self, queue: Queue, now: int) -> None:
        """E5, I2: undo `retire`; the pending tasks of the queue make a finished crawl run."""
        state = self._state
        state.mark_dirty(queue)
        state.add_event(now, "queue-returned", queue.key, queue.retired or "")
        queue.retired = None
        state.retired_pending -= queue.pending
        if queue.pending:
            state.start_run(now)
        self.reschedule(queue, now)


def inactive_key(queue: Queue) -> int:
    """E2: return the key of the inactive list: the best precedence first, then FIFO."""
    precedence = queue.precedence + PRECEDENCE_LIMIT
    return precedence << _INACTIVE_SHIFT | queue.inactive_turn << NUMBER_BITS | queue.number


def first_due(queue: Queue) -> int:
    """Return when the earliest pending task is or was due. Scans the lanes of the queue."""
    dues = [entry & DUE_MASK for lane in (queue.lane0, queue.lane1) for entry in lane]
    if queue.delayed.head:
        dues.append(queue.delayed.head[0] >> DELAYED_SHIFT)
    return min(dues)
