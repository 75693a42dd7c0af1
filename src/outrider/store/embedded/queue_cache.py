"""The queues of one crawl: resident, packed, or evicted.

A resident queue is a `Queue` in memory. One with few pending tasks that was not used lately is
packed to bytes in memory; one without work is evicted and has only its row in the file. A packed
queue keeps its place in the ready lists, the inactive list and the wake times; its bytes are what
a snapshot stores. `find` and `get` make a queue resident, `peek` and `read` do not.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol, final

from outrider.core.policy.rules import QueueRules, covers, use_actions
from outrider.store.embedded import log_pages, queue_codec
from outrider.store.engine.key_index import KeyIndex
from outrider.store.engine.records import (
    CHUNK_BITS,
    SHARD_MASK,
    SHARDS,
    UNLISTED,
    Queue,
    column_of,
    new_queue,
)
from outrider.store.engine.state import CrawlState

IDLE_KEPT: Final = 4096  # queues without work that stay resident, the last used
MAX_RESIDENT: Final = 49_152  # queues in memory before those not used lately are packed
MAX_PACKED_TASKS: Final = 256  # pending tasks of a queue that may be packed
MAX_CHECKED: Final = 2048  # queues considered for packing after one verb
MAX_PACKED_PER_VERB: Final = 256


class PageReader(Protocol):
    """Reads log pages."""

    def page(self, number: int) -> bytes:
        """Return a page, its checksum verified."""
        ...


@final
class QueueCache:
    """See `port.QueueTable`."""

    __slots__ = (
        "_keys",
        "_next_checked",
        "_reader",
        "_state",
        "by_key",
        "idle",
        "loaded",
        "packed",
        "queue_pages",
        "resident_count",
        "unloaded",
        "unloaded_count",
    )

    def __init__(self, state: CrawlState, reader: PageReader) -> None:
        self._state, self._reader = state, reader
        self.by_key: list[dict[str, Queue]] = [{} for _ in range(SHARDS)]
        self.loaded: dict[int, dict[int, Queue]] = {0: {}}
        self.packed: dict[int, dict[int, bytes]] = {0: {}}  # as `queue_codec` packs them
        self.unloaded: list[dict[str, int]] = [{} for _ in range(SHARDS)]  # packed or evicted
        self.unloaded_count = self.resident_count = 0
        self.idle: dict[int, Queue] = {}  # resident without work, the last used at the end
        self.queue_pages: array[int] = array("I", [0])  # by number: the page of the current row
        self._next_checked = self._all_resident()
        self._keys = KeyIndex(lambda shard: {*self.by_key[shard], *self.unloaded[shard]})

    # ---- the port

    def find(self, key: str) -> Queue | None:
        """See `port.QueueTable`."""
        found = self.by_key[hash(key) & SHARD_MASK].get(key)
        if found is None and self.unloaded_count:
            number = self.unloaded[hash(key) & SHARD_MASK].get(key)
            return None if number is None else self.get(number)
        return found

    def get(self, number: int) -> Queue:
        """See `port.QueueTable`."""
        found = self.loaded[number >> CHUNK_BITS].get(number)
        if found is not None:
            return found
        data = self.packed[number >> CHUNK_BITS].pop(number, None)
        if data is None:
            queue = self.idle[number] = self.load(self.row(number))
        else:
            packed = queue_codec.decode_packed(data)
            queue = _fill(self.load(log_pages.decode_queue(packed.row)), packed)
        queue.counted_as = column_of(queue)  # it is counted like that since it was unloaded
        shard = self.unloaded[hash(queue.key) & SHARD_MASK]
        self.unloaded_count -= shard.pop(queue.key, None) is not None
        return queue

    def create(self, key: str, number: int, turn: int, rules: QueueRules, epoch: int) -> Queue:
        """See `port.QueueTable`."""
        queue = new_queue(key, number, turn, rules, epoch)
        queue.is_dirty = False
        self._insert(queue)
        self._keys.add(key)
        return queue

    def wake_at(self, number: int) -> int:
        """See `port.QueueTable`."""
        queue = self.loaded[number >> CHUNK_BITS].get(number)
        if queue is not None:
            return queue.wake_at
        data = self.packed[number >> CHUNK_BITS].get(number)
        return 0 if data is None else queue_codec.decode_header(data).wake_at

    def read(self, numbers: Sequence[int]) -> Iterable[Queue]:
        """See `port.QueueTable`."""
        return map(self.peek, numbers)

    def keys_between(self, low: str, high: str, limit: int) -> list[tuple[str, int]] | None:
        """See `port.QueueTable`: also keys of queues that are packed or evicted."""
        keys = self._keys.between(low, high, limit)
        return None if keys is None else [(key, self.number_of(key)) for key in keys]

    def number_of(self, key: str) -> int:
        """Return the number of the queue of a key, which exists, without loading it."""
        found = self.by_key[hash(key) & SHARD_MASK].get(key)
        return self.unloaded[hash(key) & SHARD_MASK][key] if found is None else found.number

    def peek(self, number: int) -> Queue:
        """Return a queue to read: one that is not resident stays packed or evicted."""
        found = self.loaded[number >> CHUNK_BITS].get(number)
        if found is not None:
            return found
        data = self.packed[number >> CHUNK_BITS].get(number)
        if data is None:
            return self._from_row(self.row(number))
        packed = queue_codec.decode_packed(data)
        return _fill(self._from_row(log_pages.decode_queue(packed.row)), packed)

    def matching(self, target: str, after: int) -> Iterator[Queue]:
        """See `port.QueueTable`."""
        for number in range(after + 1, self._state.last_queue + 1):
            queue = self.get(number)
            if covers(target, queue.key):
                yield queue

    def load_all(self) -> None:
        """See `port.QueueTable`: evicted queues are on no list, and their rows name an epoch."""
        for chunk in list(self.packed.values()):
            for number in list(chunk):
                self.get(number)

    # ---- loading

    def row(self, number: int) -> log_pages.QueueRow:
        """Return the current row of a queue from the file."""
        page = self.queue_pages[number]
        return log_pages.decode_queue(log_pages.find_queue(page, self._reader.page(page), number))

    def load(self, row: log_pages.QueueRow) -> Queue:
        """Make the queue of a row resident."""
        queue = self._from_row(row)
        self._insert(queue)
        return queue

    def _from_row(self, row: log_pages.QueueRow) -> Queue:
        queue = log_pages.queue_from_row(row, self._rules_of(row.key, row.epoch))
        queue.use_rules(queue.rules, row.epoch)
        queue.is_dirty = False
        return queue

    def _insert(self, queue: Queue) -> None:
        chunk = self._chunk(queue.number)
        self.by_key[hash(queue.key) & SHARD_MASK][queue.key] = queue
        self.loaded[chunk][queue.number] = queue
        self.resident_count += 1

    def _chunk(self, number: int) -> int:
        chunk = number >> CHUNK_BITS
        if chunk not in self.loaded:
            self.loaded[chunk], self.packed[chunk] = {}, {}
        return chunk

    def insert_packed(self, data: bytes) -> None:
        """Insert a packed queue."""
        header = queue_codec.decode_header(data)
        self.packed[self._chunk(header.number)][header.number] = data
        self.insert_unloaded(header.key, header.number)

    def insert_unloaded(self, key: str, number: int) -> None:
        """Record that a queue is not resident."""
        self._chunk(number)
        shard = self.unloaded[hash(key) & SHARD_MASK]
        if key not in shard:
            self.unloaded_count += 1
        shard[key] = number

    def restore_rules(self, queue: Queue) -> None:
        """Give a queue the rules of its epoch, with what operators said to it since."""
        rules = self._rules_of(queue.key, queue.epoch)
        queue.use_rules(use_actions(rules, queue.rules), queue.epoch)

    def _rules_of(self, key: str, epoch: int) -> QueueRules:
        by_epoch = self._state.rules_by_epoch
        rules = by_epoch.get(epoch) or by_epoch[min(by_epoch)]
        return rules.of(key)

    def all_loaded(self) -> Iterator[Queue]:
        """Return the resident queues in order of their numbers."""
        return (queue for chunk in self.loaded.values() for queue in chunk.values())

    def all_packed(self) -> Iterator[bytes]:
        """Return the packed queues as bytes."""
        return (data for chunk in self.packed.values() for data in chunk.values())

    # ---- unloading

    def mark_written(self, queues: Sequence[Queue], first: int) -> None:
        """Record that the current rows of queues are on the pages from `first` on."""
        pages, idle = self.queue_pages, self.idle
        for index, queue in enumerate(queues):
            number = queue.number
            if number < len(pages):  # `set_queue_page` and `mark_used` written out
                pages[number] = first + index // log_pages.PAGE_ITEMS
            else:
                self.set_queue_page(number, first + index // log_pages.PAGE_ITEMS)
            queue.is_dirty, queue.is_used = False, True
            if idle:
                idle.pop(number, None)
            if not queue.pending and is_idle(queue):
                idle[number] = queue

    def set_queue_page(self, number: int, page: int) -> None:
        """Record the page of a queue's current row."""
        while len(self.queue_pages) <= number:
            self.queue_pages.append(0)
        self.queue_pages[number] = page

    def mark_used(self, queue: Queue) -> None:
        """Record that a queue was used: it is unloaded later than all others."""
        queue.is_used = True
        if self.idle:
            self.idle.pop(queue.number, None)
        if not queue.pending and is_idle(queue):
            self.idle[queue.number] = queue

    def shrink(self) -> None:
        """Evict queues without work, and pack queues with few tasks, that were not used lately."""
        for number in list(islice(self.idle, max(0, len(self.idle) - IDLE_KEPT))):
            queue = self.idle.pop(number)
            if is_idle(queue):
                self._unload(queue)
                self.insert_unloaded(queue.key, queue.number)
        if self.resident_count > MAX_RESIDENT:
            self._pack_some(min(MAX_CHECKED, 4 * (self.resident_count - MAX_RESIDENT)))

    def _pack_some(self, count: int) -> None:
        """Check the next queues of an endless round over all resident ones."""
        left = MAX_PACKED_PER_VERB
        for queue in islice(self._next_checked, count):
            left -= self._pack_unused(queue)
            count -= 1
            if not left:
                return
        if count:
            self._next_checked = self._all_resident()

    def _pack_unused(self, queue: Queue) -> bool:
        """Pack a queue that was not used since the last check; return whether it was packed."""
        if queue.is_used or not _can_be_packed(queue):
            queue.is_used = False
            return False
        self._unload(queue)
        self.insert_packed(queue_codec.pack_queue(queue, by_turn=self._state.by_turn)[0])
        return True

    def _all_resident(self) -> Iterator[Queue]:
        for chunk in list(self.loaded.values()):
            for queue in list(chunk.values()):
                if chunk.get(queue.number) is queue:
                    yield queue

    def _unload(self, queue: Queue) -> None:
        del self.by_key[hash(queue.key) & SHARD_MASK][queue.key]
        del self.loaded[queue.number >> CHUNK_BITS][queue.number]
        self.resident_count -= 1


def _can_be_packed(queue: Queue) -> bool:
    has_leases = queue.in_flight or queue.named
    return 0 < queue.pending <= MAX_PACKED_TASKS and not has_leases and not queue.is_dirty


def _fill(queue: Queue, packed: queue_codec.PackedQueue) -> Queue:
    """Fill a queue with the lists and the schedule it was packed with."""
    for index, entries in enumerate((packed.lane0, packed.lane1, packed.delayed)):
        if entries is not None:
            queue_codec.insert_entries(queue, index, entries)
    queue.pending, queue.wake_at = packed.pending, packed.wake_at
    queue.ready_key0, queue.ready_key1, _ = packed.list_keys()
    return queue


def is_idle(queue: Queue) -> bool:
    """Return whether a queue has no work."""
    return not (queue.pending or queue.in_flight or queue.named or queue.list_state != UNLISTED)
