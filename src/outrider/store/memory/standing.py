"""Where queues stand: ready, inactive or neither; judged late, and woken by time (E1, E2, E5).

Invariants: a queue stands only while it could be served; every queue that time alone can bring has
an alarm; a key in a heap counts only while its queue has that key, so nothing is searched for.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from outrider.core.order import (
    NUMBER_BITS,
    NUMBER_MASK,
    PRECEDENCE_LIMIT,
    QUEUE_PRECEDENCE_SHIFT,
    QUEUE_RANK_SHIFT,
    TASK_RANK_SHIFT,
    TURN_BITS,
    discounted,
)
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import TaskState
from outrider.store.memory.ledger import Ledger
from outrider.store.memory.records import CHUNK_BITS, INACTIVE, NEITHER, READY, Queue

PENDING = TaskState.PENDING
_PARKED_SHIFT: Final = NUMBER_BITS + TURN_BITS


class Standing(Ledger):
    """The judge of queues."""

    def obey(self, rules: CrawlRules) -> None:
        """Another order among queues holds at once: those that stand ready stand anew."""
        was_by_turn = getattr(self, "by_turn", None)
        super().obey(rules)
        if was_by_turn is not None and was_by_turn != self.by_turn:
            for chunk in self.queues:
                for queue in chunk.values():
                    if queue.standing == READY:
                        self._rank(queue)

    def touch(self, queue: Queue, now: int) -> None:
        """E1: judged at once, if it could be served and stands nowhere."""
        self._look_at(queue, now, True)

    def settle(self, queue: Queue, now: int) -> None:
        """After a change that judges nobody: it may lose its place, and its alarm may move."""
        self._look_at(queue, now, False)

    def _look_at(  # noqa: C901 - one look: every add, wake and finish asks for it
        self, queue: Queue, now: int, judges: bool
    ) -> None:
        """E1: what stands keeps its place while it could be served; E2: empty ends a session."""
        if queue.delayed and queue.delayed[0] >> NUMBER_BITS <= now:
            self._ripen(queue, now)
        if queue.has_stale:
            self._clean(queue, now)
        if (  # could be served: next-ready passed, a free slot, unretired, unpaused, a due task
            queue.next_ready <= now
            and queue.in_flight < queue.slots
            and queue.retired is None
            and not queue.paused
            and (queue.lane0 or queue.lane1)
        ):
            if queue.standing == READY:
                self._rank(queue)
            elif judges and queue.standing == NEITHER:
                self._judge(queue, now)
        else:
            if queue.standing != NEITHER:
                self._stand_down(queue)
            if not queue.pending and not queue.in_flight:
                queue.session = -1
        at = self._alarm_at(queue, now)
        if at != queue.alarm:
            self._set_alarm(queue, at)

    def _judge(self, queue: Queue, now: int) -> None:
        """E1: retired, to the back of the inactive FIFO of its precedence, or ready."""
        session = queue.session
        if queue.balance == 0 or 0 <= queue.total <= queue.spent:
            self.retire(queue, "budget", now)
        elif session >= queue.balance if session >= 0 else queue.hold:
            self._park(queue)
        else:
            self.standing += 1
            queue.standing = READY
            if session < 0:
                queue.session = 0
            self._rank(queue)

    def _park(self, queue: Queue) -> None:
        """E2: its session is over; it waits behind the others of its precedence."""
        self.standing += 1
        self.counter += 1
        queue.session, queue.standing, queue.place = -1, INACTIVE, self.counter
        heappush(self.parked, parked_key(queue))

    def _stand_down(self, queue: Queue) -> None:
        if queue.standing != NEITHER:
            self.standing -= 1
            queue.standing = NEITHER
            queue.rank0 = queue.rank1 = 0

    def _rank(self, queue: Queue, discount: float = 0.0) -> None:
        """C3: the key under which a ready queue stands in each lane where it has due work."""
        key = self._queue_key(queue, queue.lane0[0], discount) if queue.lane0 else 0
        if key != queue.rank0:
            queue.rank0 = key
            if key:
                heappush(self.ready[0], key)
        if queue.lane1 or queue.rank1:
            key = self._queue_key(queue, queue.lane1[0], discount) if queue.lane1 else 0
            if key != queue.rank1:
                queue.rank1 = key
                if key:
                    heappush(self.ready[1], key)

    def _queue_key(self, queue: Queue, top: int, discount: float) -> int:
        """`order.queue_key` written out: every wake asks for it."""
        if self.by_turn:
            standing = 0
        elif discount:
            standing = self._discounted(top, discount)
        else:
            standing = top >> TASK_RANK_SHIFT
        return (
            (queue.precedence + PRECEDENCE_LIMIT) << QUEUE_PRECEDENCE_SHIFT
            | standing << QUEUE_RANK_SHIFT
            | queue.turn << NUMBER_BITS
            | queue.number
        )

    def _discounted(self, key: int, discount: float) -> int:
        """C5: the r-th task taken of a queue competes at a priority that much worse."""
        number = key & NUMBER_MASK
        task = self.tasks[number >> CHUNK_BITS][number].task
        return discounted(task.precedence, task.priority + discount)

    def _ripen(self, queue: Queue, now: int) -> None:
        """C6: what has become due joins its lane."""
        delayed = queue.delayed
        while delayed and delayed[0] >> NUMBER_BITS <= now:
            entry = heappop(delayed)
            record = self.task(entry & NUMBER_MASK)
            if record and record.state is PENDING and record.due == entry >> NUMBER_BITS:
                queue.line_up(record.task.lane, record.key)

    def _clean(self, queue: Queue, now: int) -> None:
        """Dead keys, which a drop or raise left, matter only at the top: forget them there."""
        for lane in (queue.lane0, queue.lane1):
            while lane and not self.is_alive(lane[0], now):
                heappop(lane)
        while queue.delayed and not self.is_waiting(queue.delayed[0]):
            heappop(queue.delayed)

    def is_alive(self, key: int, now: int) -> bool:
        """Whether a key in a lane is still its task's, and due.

        A dropped or raised task may come back, delayed, under the very key it left in the lane; a
        second copy of a key does no harm, since a leased task's keys are dead.
        """
        record = self.tasks[(key & NUMBER_MASK) >> CHUNK_BITS][key & NUMBER_MASK]
        return record.state is PENDING and record.key == key and record.due <= now

    def is_waiting(self, entry: int) -> bool:
        """Whether an entry among the delayed is still its task's."""
        record = self.tasks[(entry & NUMBER_MASK) >> CHUNK_BITS][entry & NUMBER_MASK]
        return record.state is PENDING and record.due == entry >> NUMBER_BITS

    def _set_alarm(self, queue: Queue, at: int) -> None:
        """When time alone changes something here: the one entry of this queue that counts."""
        queue.alarm = at
        if at:
            heappush(self.alarms, at << NUMBER_BITS | queue.number)

    def _alarm_at(self, queue: Queue, now: int) -> int:
        """0 if only a person, a finish or an add can change anything."""
        if queue.standing != NEITHER:
            return queue.delayed[0] >> NUMBER_BITS if queue.delayed else 0
        if (
            not queue.pending
            or queue.in_flight >= queue.slots
            or queue.paused
            or queue.retired is not None
        ):
            return 0
        if not (queue.lane0 or queue.lane1):
            return max(queue.next_ready, queue.delayed[0] >> NUMBER_BITS)
        if queue.next_ready > now:
            return queue.next_ready
        return max(queue.next_ready, self.first_due(queue, now))

    def first_due(self, queue: Queue, now: int) -> int:
        """When the earliest pending task is or was due. Scans: only for reports and operators."""
        dues = [entry >> NUMBER_BITS for entry in queue.delayed if self.is_waiting(entry)]
        for lane in (queue.lane0, queue.lane1):
            dues += [self._due_of(key) for key in lane if self.is_alive(key, now)]
        return min(dues)

    def _due_of(self, key: int) -> int:
        return self.tasks[(key & NUMBER_MASK) >> CHUNK_BITS][key & NUMBER_MASK].due

    def retire(self, queue: Queue, reason: str, now: int) -> None:
        """E5: set aside with its tasks; a budget never overrides another reason."""
        if queue.retired is None:
            self.held += queue.pending
        elif reason in ("budget", queue.retired):
            return
        queue.retired = reason
        self.note(now, "queue-retired", queue.key, reason)
        self._stand_down(queue)
        self._set_alarm(queue, self._alarm_at(queue, now))

    def bring_back(self, queue: Queue, now: int) -> None:
        """E5, I2: returned and judged at once; its pending tasks make a finished crawl run."""
        self.note(now, "queue-returned", queue.key, queue.retired or "")
        queue.retired = None
        self.held -= queue.pending
        if queue.pending:
            self._worked(now)
        self.touch(queue, now)

    def judge_anew(self, queue: Queue, now: int) -> None:
        """E5: `set` sends what stands back to its judge; inactive means to the back."""
        self._stand_down(queue)
        self._judge(queue, now)
        self._set_alarm(queue, self._alarm_at(queue, now))


def parked_key(queue: Queue) -> int:
    """E2: the inactive FIFO of a precedence, the best precedence first."""
    precedence = queue.precedence + PRECEDENCE_LIMIT
    return precedence << _PARKED_SHIFT | queue.place << NUMBER_BITS | queue.number
