"""The candidates of a claim that may lease only from some queues: those of its keys, or the first
so many it took tasks of (C5).

Each list is a heap. As in the schedule, an entry is valid only while its queue has that key, so no
entry is ever searched for; a queue is pushed again whenever its keys may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import final

from outrider.core.order import NUMBER_MASK
from outrider.store.engine.records import INACTIVE, Queue
from outrider.store.engine.schedule import inactive_key
from outrider.store.protocol import ClaimRequest


@final
class Candidates:
    """Some queues of a crawl, in the order in which a claim of all queues would reach them.

    `taken` counts the tasks this claim leased of each queue; the claim keeps it up to date.
    """

    __slots__ = ("_by_number", "_inactive", "_max_queues", "_per_queue", "_ready", "_taken")

    def __init__(
        self, queues: Iterable[Queue], request: ClaimRequest, taken: Mapping[int, int]
    ) -> None:
        self._by_number = {queue.number: queue for queue in queues}
        self._per_queue, self._max_queues = request.per_queue, request.max_queues
        self._taken = taken
        self._ready: tuple[list[int], list[int]] = ([], [])
        self._inactive: list[int] = []
        for queue in self._by_number.values():
            self.push(queue)

    def push(self, queue: Queue) -> None:
        """Insert a queue under its current keys; without any it is in no list."""
        if queue.ready_key0:
            heappush(self._ready[0], queue.ready_key0)
        if queue.ready_key1:
            heappush(self._ready[1], queue.ready_key1)
        if queue.list_state == INACTIVE:
            heappush(self._inactive, inactive_key(queue))

    def queue(self, key: int) -> Queue:
        """Return the queue of a key."""
        return self._by_number[key & NUMBER_MASK]

    def first_ready(self, lane: int) -> int:
        """Return the first key of a lane's ready list; 0: there is none."""
        ready = self._ready[lane]
        while ready:
            queue = self.queue(ready[0])
            key = queue.ready_key1 if lane else queue.ready_key0
            if key == ready[0] and self._may_take(queue):
                return key
            heappop(ready)
        return 0

    def first_inactive(self) -> Queue | None:
        """Return the first inactive queue."""
        inactive = self._inactive
        while inactive:
            queue = self.queue(inactive[0])
            is_valid = queue.list_state == INACTIVE and inactive_key(queue) == inactive[0]
            if is_valid and self._may_take(queue):
                return queue
            heappop(inactive)
        return None

    def _may_take(self, queue: Queue) -> bool:
        """C5: whether the claim may lease another task of a queue; if not now, then never."""
        times, most = self._taken.get(queue.number, 0), self._max_queues
        if not times:
            return not most or len(self._taken) < most
        return not self._per_queue or times < self._per_queue
