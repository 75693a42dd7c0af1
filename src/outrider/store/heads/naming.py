"""Tasks are lent by name, for the cache: no slot, no delay, no visit unless a verdict says so (D5).

While such a lease lasts its record is `named`, and its queue counts it apart from its slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from outrider.clock import to_ms
from outrider.core.outcome import Answer, Last
from outrider.core.states import TaskState
from outrider.core.task import Lease
from outrider.store.heads.ending import Ending
from outrider.store.heads.records import READY, Queue, Record
from outrider.store.protocol import MAX_FINGERPRINTS, ClaimRequest

PENDING, LEASED = TaskState.PENDING, TaskState.LEASED


class Naming(Ending):
    """How tasks go out by name."""

    def lend_named(self, request: ClaimRequest, now: int) -> list[Lease]:
        """Of the first names those that can be; whoever cannot is not in the answer."""
        leases: list[Lease] = []
        for record in self._known_by(request.fingerprints[:MAX_FINGERPRINTS]):
            if len(leases) < request.limit and _is_lendable(record, now):
                leases.append(self._lease_named(record, request, now))
        return leases

    def _known_by(self, names: Sequence[bytes]) -> Iterator[Record]:
        for name in names:
            number = self.find(name)
            if number is not None:
                yield self.record(number)

    def _lease_named(self, record: Record, request: ClaimRequest, now: int) -> Lease:
        """H1, E3: token, deadline and charge; its queue keeps its turn and its place in time."""
        queue = record.queue
        if queue.standing == READY:  # what it may spend has changed, so it is judged anew
            self._stand_down(queue)
        queue.leave(record.task.lane, record.key, record.due)
        self._move(record, LEASED)
        self._count_named(queue, record)
        self._retoken(record)
        record.worker, record.process = request.worker, request.process
        self.leases[record.number] = record
        self.lasts(record, now + to_ms(request.lease_for))
        lease = self._lent(queue, record, request, now)
        self.touch(queue, now)
        return lease

    def _lent(self, queue: Queue, record: Record, request: ClaimRequest, now: int) -> Lease:
        """What whoever holds it must know."""
        lease = Lease(
            self.store,
            record.number,
            record.token,
            record.task,
            record.attempts + 1,
            request.worker,
            request.lease_for,
            record.failures,
            record.throttles,
            queue.rules,
            queue.manners,
        )
        if record.answer is not None:
            recall(lease, record.answer, now - record.answered)
        return lease

    def _count_named(self, queue: Queue, record: Record) -> None:
        record.named = True
        queue.in_flight -= 1
        queue.named += 1
        queue.charge(record.task.cost)


def recall(lease: Lease, answer: Answer, age: int) -> None:
    """G3: whoever visits a page again knows its last answer, and how old that is."""
    msgspec.structs.force_setattr(lease, "last", Last(answer, max(0, age) / 1000))


def _is_lendable(record: Record, now: int) -> bool:
    queue = record.queue
    is_free = queue.retired is None and not queue.paused and not queue.over_budget()
    return is_free and record.state is PENDING and record.due <= now
