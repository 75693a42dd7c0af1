"""The tables of the memory store: tasks and queues as plain objects (ADR 0007)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

import numpy as np

from outrider.core.order import DUE_BITS, NUMBER_MASK
from outrider.core.policy.rules import QueueRules, covers
from outrider.core.states import TaskState
from outrider.core.task import Task
from outrider.store.engine.key_index import KeyIndex
from outrider.store.engine.port import Numbers
from outrider.store.engine.records import (
    CHUNK_BITS,
    CHUNK_MASK,
    SHARD_MASK,
    SHARDS,
    Queue,
    TaskRecord,
    new_queue,
)

MAX_SEARCHED: Final = 1 << 22  # tasks whose queues one step of a listing compares
MAX_READ: Final = 1 << 18  # tasks whose queues it reads, if no listing has done so before
MAX_EXAMINED: Final = 1 << 14  # tasks of a queue whose states it compares


@final
class MemoryTasks:
    """See `port.TaskTable`: every record is in memory, so nothing is loaded or written."""

    __slots__ = ("_chunks", "_last_chunk", "_queues", "known")

    def __init__(self) -> None:
        self.known: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]
        self._last_chunk: dict[int, TaskRecord] = {}
        self._chunks: list[dict[int, TaskRecord]] = [self._last_chunk]
        # Queues by number of task, as far as listings have read them: empty until there is one.
        self._queues: array[int] = array("I")

    def prefetch(self, tasks: Sequence[Task], numbers: Iterable[int] = ()) -> None:
        """See `port.TaskTable`."""

    def load(self, numbers: Iterable[int]) -> None:
        """See `port.TaskTable`."""

    def find(self, fingerprint: bytes) -> int | None:
        """See `port.TaskTable`."""
        return self.known[fingerprint[0]].get(fingerprint)

    def is_forgotten(self, number: int) -> bool:
        """See `port.TaskTable`."""
        return self.get(number).is_forgotten()

    def get(self, number: int) -> TaskRecord:
        """See `port.TaskTable`."""
        return self._chunks[number >> CHUNK_BITS][number]

    def first(self, queue: Queue, entry: int) -> TaskRecord:  # noqa: ARG002 - part of the port
        """See `port.TaskTable`."""
        number = entry >> DUE_BITS & NUMBER_MASK
        return self._chunks[number >> CHUNK_BITS][number]

    def insert(self, record: TaskRecord) -> None:
        """See `port.TaskTable`."""
        if not record.number & CHUNK_MASK:
            self._last_chunk = {}
            self._chunks.append(self._last_chunk)
        self._last_chunk[record.number] = record

    def update(self, record: TaskRecord) -> None:
        """See `port.TaskTable`."""

    def set_tie(self, record: TaskRecord) -> None:
        """See `port.TaskTable`."""

    def set_queue(self, record: TaskRecord) -> None:
        """See `port.TaskTable`."""
        if record.number < len(self._queues):
            self._queues[record.number] = record.queue.number

    def read(self, numbers: Iterable[int]) -> Iterable[TaskRecord]:
        """See `port.TaskTable`."""
        return (self._chunks[number >> CHUNK_BITS][number] for number in numbers)

    def in_state(self, numbers: range, state: TaskState) -> Iterable[int]:  # noqa: ARG002 - part of the port
        """See `port.TaskTable`."""
        return numbers

    def in_queue(self, queue: int, state: TaskState | None, after: int, limit: int) -> Numbers:
        """See `port.TaskTable`."""
        last = next(reversed(self._last_chunk), 0)
        upto = min(last, after + MAX_SEARCHED, len(self._queues) + MAX_READ)
        self._read_queues(upto)
        if upto <= after:
            return Numbers([], after if after < last else None)
        queues = np.frombuffer(self._queues, np.uint32)[after + 1 : upto + 1]
        found = (np.flatnonzero(queues == queue) + (after + 1)).tolist()
        if state is not None:
            if len(found) > MAX_EXAMINED:
                upto = found[MAX_EXAMINED - 1]
            found = [n for n in found[:MAX_EXAMINED] if self.get(n).state is state]
        return Numbers.page(found, limit, upto, last)

    def _read_queues(self, upto: int) -> None:
        """Complete `_queues` up to a number."""
        if not self._queues:
            self._queues.append(0)
        numbers = range(len(self._queues), upto + 1)
        self._queues.extend([record.queue.number for record in self.read(numbers)])

    def url(self, number: int) -> str:
        """See `port.TaskTable`."""
        return self.get(number).task.url

    def free(self, limit: int) -> int:
        """Free some records; return how many. The table is not used any more."""
        self.known, freed = [], 0
        while self._chunks and freed < limit:
            chunk = self._chunks[-1]
            while chunk and freed < limit:
                chunk.popitem()
                freed += 1
            if not chunk:
                self._chunks.pop()
        return freed


@final
class MemoryQueues:
    """See `port.QueueTable`: every queue is loaded."""

    __slots__ = ("_keys", "_last", "by_key", "loaded")

    def __init__(self) -> None:
        self.by_key: list[dict[str, Queue]] = [{} for _ in range(SHARDS)]
        self.loaded: dict[int, dict[int, Queue]] = {0: {}}
        self._last = 0
        self._keys = KeyIndex(self.by_key.__getitem__)

    def find(self, key: str) -> Queue | None:
        """See `port.QueueTable`."""
        return self.by_key[hash(key) & SHARD_MASK].get(key)

    def get(self, number: int) -> Queue:
        """See `port.QueueTable`."""
        return self.loaded[number >> CHUNK_BITS][number]

    def create(self, key: str, number: int, turn: int, rules: QueueRules, epoch: int) -> Queue:
        """See `port.QueueTable`."""
        queue = new_queue(key, number, turn, rules, epoch)
        queue.is_dirty = False
        self.by_key[hash(key) & SHARD_MASK][key] = queue
        self.loaded.setdefault(number >> CHUNK_BITS, {})[number] = queue
        self._last = number
        self._keys.add(key)
        return queue

    def wake_at(self, number: int) -> int:
        """See `port.QueueTable`."""
        return self.get(number).wake_at

    def read(self, numbers: Sequence[int]) -> Iterable[Queue]:
        """See `port.QueueTable`."""
        return map(self.get, numbers)

    def keys_between(self, low: str, high: str, limit: int) -> list[tuple[str, int]] | None:
        """See `port.QueueTable`."""
        keys = self._keys.between(low, high, limit)
        if keys is None:
            return None
        return [(key, self.by_key[hash(key) & SHARD_MASK][key].number) for key in keys]

    def matching(self, target: str, after: int) -> Iterator[Queue]:
        """See `port.QueueTable`."""
        for number in range(after + 1, self._last + 1):
            queue = self.get(number)
            if covers(target, queue.key):
                yield queue

    def load_all(self) -> None:
        """See `port.QueueTable`."""
