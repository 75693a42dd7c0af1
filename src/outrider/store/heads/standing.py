"""Where queues stand: ready, inactive or neither; judged late, and woken by time (E1, E2, E5).

Invariants: a queue stands only while it could be served; a ready one stands in a line of its lanes
under `rank0` and `rank1`, and nowhere else; every queue that time alone can bring has an alarm. An
entry among the alarms or the parked counts only while its queue has it, so nothing is searched for.
"""

from __future__ import annotations

from heapq import heappush
from typing import Final

from outrider.core.order import (
    DELAYED_SHIFT,
    DUE_BITS,
    DUE_MASK,
    NUMBER_BITS,
    PRECEDENCE_LIMIT,
    QUEUE_PRECEDENCE_SHIFT,
    QUEUE_RANK_SHIFT,
    TASK_RANK_SHIFT,
    TURN_BITS,
    moved,
)
from outrider.core.policy.rules import CrawlRules
from outrider.store.heads.ledger import Ledger
from outrider.store.heads.records import INACTIVE, NEITHER, READY, Queue

_PARKED_SHIFT: Final = NUMBER_BITS + TURN_BITS
_TOP_SHIFT: Final = TASK_RANK_SHIFT + DUE_BITS  # from an entry of a lane to its rank
_PRIORITY: Final = (1 << 64) - 1  # of a rank


class Standing(Ledger):
    """The judge of queues."""

    def obey(self, rules: CrawlRules) -> None:
        """Another order among queues holds at once: those that stand ready stand anew."""
        was_by_turn = getattr(self, "by_turn", None)
        super().obey(rules)
        if was_by_turn is not None and was_by_turn != self.by_turn:
            for queue in [q for chunk in self.queues for q in chunk.values()]:
                if queue.standing == READY:
                    self._rank(queue)

    def touch(self, queue: Queue, now: int) -> None:
        """E1: judged at once, if it could be served and stands nowhere."""
        self._look_at(queue, now, True)
        if queue.standing == INACTIVE:
            self.hasten(queue, now)

    def settle(self, queue: Queue, now: int) -> None:
        """After a change that judges nobody: it may lose its place, and its alarm may move."""
        self._look_at(queue, now, False)

    def _look_at(self, queue: Queue, now: int, judges: bool) -> None:
        """E1: what stands keeps its place while it could be served; E2: empty ends a session."""
        if queue.delayed.head and queue.delayed.head[0] >> DELAYED_SHIFT <= now:
            queue.ripen(now)
        if (  # could be served: next-ready passed, a free slot, unretired, unpaused, a due task
            queue.next_ready <= now
            and queue.in_flight < queue.slots
            and not queue.lent
            and queue.retired is None
            and not queue.paused
            and (queue.lane0.head or queue.lane1.head)
        ):
            if queue.standing == READY:
                self._rank(queue)
            elif judges and queue.standing == NEITHER:
                self._judge(queue, now)
        else:
            if queue.standing != NEITHER:
                self._stand_down(queue)
            if queue.session >= 0 and not (queue.pending or queue.in_flight or queue.named):
                self.mark(queue)
                queue.session = -1
        at = self._alarm_at(queue, now)
        if at != queue.alarm:
            self._set_alarm(queue, at)

    def _judge(self, queue: Queue, now: int) -> None:
        """E1: retired, to the back of the inactive FIFO of its precedence, or ready."""
        if not queue.is_marked:
            self.mark(queue)
        session = queue.session
        waits = session >= queue.balance if session >= 0 else queue.hold
        if queue.balance == 0 or 0 <= queue.total <= queue.spent:
            self.retire(queue, "budget", now)
        elif waits and not self._opens(queue):
            self._park(queue)
        else:
            self.standing += 1
            queue.standing = READY
            if session < 0 or waits:
                queue.session = 0
            self._rank(queue)

    def _opens(self, queue: Queue) -> bool:
        """C9: whether the first due task of a lane opens its queue's session by itself."""
        below = self.opens_below
        return any(
            line.head[0] >> _TOP_SHIFT & _PRIORITY < below
            for line in (queue.lane0, queue.lane1)
            if line.head
        )

    def hasten(self, queue: Queue, now: int) -> None:
        """C9: a focus task does not wait for its queue's turn among the inactive."""
        if self.opens_below >= 0 and queue.standing == INACTIVE:
            queue.ripen(now)
            if self._opens(queue):
                self._stand_down(queue)
                self._judge(queue, now)

    def _park(self, queue: Queue) -> None:
        """E2: its session is over; it waits behind the others of its precedence."""
        self.standing += 1
        self.counter += 1
        queue.session, queue.standing, queue.place = -1, INACTIVE, self.counter
        heappush(self.parked, parked_key(queue))

    def _stand_down(self, queue: Queue) -> None:
        if queue.standing != NEITHER:
            self.mark(queue)
            self.standing -= 1
            queue.standing = NEITHER
            self._unrank(queue)

    def _unrank(self, queue: Queue) -> None:
        """No longer among the ready."""
        if queue.rank0:
            self.ready[0].discard(queue.rank0)
        if queue.rank1:
            self.ready[1].discard(queue.rank1)
        queue.rank0 = queue.rank1 = 0

    def _rank(self, queue: Queue, discount: float = 0.0) -> None:
        """C3: the key under which a ready queue stands in each lane where it has due work."""
        head = queue.lane0.head
        key = self._queue_key(queue, head[0], discount) if head else 0
        if key != queue.rank0:
            if queue.rank0:
                self.ready[0].discard(queue.rank0)
            if key:
                self.ready[0].push(key)
            queue.rank0 = key
        head = queue.lane1.head
        if head or queue.rank1:
            key = self._queue_key(queue, head[0], discount) if head else 0
            if key != queue.rank1:
                if queue.rank1:
                    self.ready[1].discard(queue.rank1)
                if key:
                    self.ready[1].push(key)
                queue.rank1 = key

    def _queue_key(self, queue: Queue, top: int, discount: float) -> int:
        """`order.queue_key` written out: every wake asks for it."""
        if self.by_turn:
            standing = 0
        elif discount:
            standing = moved(top >> _TOP_SHIFT, discount)
        else:
            standing = top >> _TOP_SHIFT
        return (
            (queue.precedence + PRECEDENCE_LIMIT) << QUEUE_PRECEDENCE_SHIFT
            | standing << QUEUE_RANK_SHIFT
            | queue.turn << NUMBER_BITS
            | queue.number
        )

    def _set_alarm(self, queue: Queue, at: int) -> None:
        """When time alone changes something here: the one entry of this queue that counts."""
        queue.alarm = at
        if at:
            heappush(self.alarms, at << NUMBER_BITS | queue.number)

    def _alarm_at(self, queue: Queue, now: int) -> int:
        """0 if only a person, a finish or an add can change anything."""
        delayed = queue.delayed.head
        if queue.standing != NEITHER:
            return delayed[0] >> DELAYED_SHIFT if delayed else 0
        if (
            not queue.pending
            or queue.in_flight >= queue.slots
            or queue.lent
            or queue.paused
            or queue.retired is not None
        ):
            return 0
        if not (queue.lane0.head or queue.lane1.head):
            return max(queue.next_ready, delayed[0] >> DELAYED_SHIFT)
        if queue.next_ready > now:
            return queue.next_ready
        return max(queue.next_ready, self.first_due(queue))

    def first_due(self, queue: Queue) -> int:
        """When the earliest pending task is or was due. Scans: only for reports and operators."""
        dues = [entry & DUE_MASK for line in (queue.lane0, queue.lane1) for entry in line]
        if queue.delayed.head:
            dues.append(queue.delayed.head[0] >> DELAYED_SHIFT)
        return min(dues)

    def retire(self, queue: Queue, reason: str, now: int) -> None:
        """E5: set aside with its tasks; a budget never overrides another reason."""
        if queue.retired is None:
            self.held += queue.pending
        elif reason in ("budget", queue.retired):
            return
        self.mark(queue)
        queue.retired = reason
        self.note(now, "queue-retired", queue.key, reason)
        self._stand_down(queue)
        self._set_alarm(queue, self._alarm_at(queue, now))

    def bring_back(self, queue: Queue, now: int) -> None:
        """E5, I2: returned and judged at once; its pending tasks make a finished crawl run."""
        self.mark(queue)
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
