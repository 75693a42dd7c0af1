"""Where queues are: in use, in memory; waiting, as bytes; without work, in the file alone.

Whoever asks for a queue gets it back into memory. A queue that sleeps keeps its place among the
ready, the parked and the alarms; its bytes are what a snapshot tells of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice
from typing import Final, Protocol

from outrider.core.policy.rules import CrawlRules, QueueRules, acted
from outrider.store.embedded import packing, pages
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.ledger import RULES_KEPT, SHARD_MASK
from outrider.store.heads.records import CHUNK_BITS, NEITHER, SHARDS, Queue

IDLE_KEPT: Final = 4096  # queues without work that stay in memory, the last ones used
AWAKE_MOST: Final = 49_152  # queues in memory before those not used lately go to sleep
SLEEPER_MOST: Final = 256  # tasks of a queue that may sleep
LOOKED_AT: Final = 2048  # queues looked at for sleepiness, at most, after one verb
LAID_DOWN: Final = 256  # queues that go to sleep, at most, after one verb


class Reader(Protocol):
    """Where pages are read."""

    def page(self, number: int) -> bytes:
        """A page, checked."""
        ...


class Roster(Crawl):
    """A crawl that does not keep all its queues in memory."""

    def __init__(self, name: str, store: str, now: int, *, reader: Reader) -> None:
        super().__init__(name, store, CrawlRules(), now)
        self._reader = reader
        self.queue_wheres: array[int] = array("I", [0])
        self.away: list[dict[str, int]] = [{} for _ in range(SHARDS)]  # not in memory, by key
        self.away_count = 0
        self.asleep: list[dict[int, bytes]] = [{}]  # by number, as `packing` writes them
        self.idle: dict[int, Queue] = {}  # in memory without work, the last used at the end
        self._awake = 0
        self._hand = self._round()

    # ---- asking for one

    def home_of(self, key: str) -> Queue:
        """The queue of a known task."""
        queue = self.queue_at(key)
        assert queue is not None  # noqa: S101 - whatever is known has a queue
        return queue

    def queue_at(self, key: str) -> Queue | None:
        """See `Ledger`; one that is not in memory comes back."""
        found = self.keys[hash(key) & SHARD_MASK].get(key)
        if found is None and self.away_count:
            number = self.away[hash(key) & SHARD_MASK].get(key)
            return None if number is None else self.queue_of(number)
        return found

    def queue_of(self, number: int) -> Queue:
        """See `Ledger`; one that is not in memory comes back."""
        found = self.queues[number >> CHUNK_BITS].get(number)
        if found is not None:
            return found
        sleeper = self.asleep[number >> CHUNK_BITS].pop(number, None)
        queue = self._fetch_queue(number) if sleeper is None else self._rouse(sleeper)
        self.away_count -= self.away[hash(queue.key) & SHARD_MASK].pop(queue.key, None) is not None
        return queue

    def glimpse(self, number: int) -> Queue:
        """See `Ledger`; one that is not in memory stays where it is, however many are read."""
        found = self.queues[number >> CHUNK_BITS].get(number)
        if found is not None:
            return found
        sleeper = self.asleep[number >> CHUNK_BITS].get(number)
        if sleeper is None:
            return self._made(self.row_of(number))
        packed = packing.packed_of(sleeper)
        return _filled(self._made(pages.queue_row_of(packed.row)), packed)

    def alarm_of(self, number: int) -> int:
        """See `Ledger`."""
        queue = self.queues[number >> CHUNK_BITS].get(number)
        if queue is not None:
            return queue.alarm
        sleeper = self.asleep[number >> CHUNK_BITS].get(number)
        return 0 if sleeper is None else packing.brief_of(sleeper).alarm

    def _fetch_queue(self, number: int) -> Queue:
        queue = self.idle[number] = self.seat(self.row_of(number))
        return queue

    def row_of(self, number: int) -> pages.QueueRow:
        """What the file tells of a queue."""
        page = self.queue_wheres[number]
        return pages.queue_row_of(pages.queue_in(page, self._reader.page(page), number))

    def _rouse(self, data: bytes) -> Queue:
        packed = packing.packed_of(data)
        return _filled(self.seat(pages.queue_row_of(packed.row)), packed)

    def lay_down(self, data: bytes) -> None:
        """A packed queue sleeps here from now on."""
        brief = packing.brief_of(data)
        while len(self.asleep) <= brief.number >> CHUNK_BITS:
            self.asleep.append({})
            self.queues.append({})
        self.asleep[brief.number >> CHUNK_BITS][brief.number] = data
        self.away[hash(brief.key) & SHARD_MASK][brief.key] = brief.number
        self.away_count += 1

    def seat(self, row: pages.QueueRow) -> Queue:
        """A queue as its row tells, in memory."""
        queue = self._made(row)
        while len(self.queues) <= row.number >> CHUNK_BITS:
            self.queues.append({})
        self._seat(queue)
        return queue

    def _made(self, row: pages.QueueRow) -> Queue:
        queue = pages.queue_of(row, self._rules_told(row.key, row.epoch))
        queue.obey(queue.rules, row.epoch)
        queue.is_marked = False
        return queue

    def _seat(self, queue: Queue) -> None:
        super()._seat(queue)
        self._awake += 1
        while len(self.asleep) < len(self.queues):
            self.asleep.append({})

    def remind(self, queue: Queue) -> None:
        """It goes by the rules it was last told of, and by what was said to it since."""
        rules = self._rules_told(queue.key, queue.epoch)
        queue.obey(acted(rules, queue.rules), queue.epoch)

    def _rules_told(self, key: str, epoch: int) -> QueueRules:
        told = self.rulebook.get(epoch) or self.rulebook[min(self.rulebook)]
        return told.of(key)

    def obey(self, rules: CrawlRules) -> None:
        """See `Standing`: another order among queues concerns those that sleep as well."""
        if hasattr(self, "asleep") and (rules.order == "round-robin") != self.by_turn:
            self._rouse_all()
        super().obey(rules)

    def turn_over(self, rules: CrawlRules) -> None:
        """See `Ledger`: before old rules are forgotten, whoever sleeps by them is woken."""
        if len(self.rulebook) >= RULES_KEPT:
            self._rouse_all()
        super().turn_over(rules)

    def _rouse_all(self) -> None:
        for chunk in self.asleep:
            for number in list(chunk):
                self.queue_of(number)

    # ---- letting go

    def rest(self, queue: Queue) -> None:
        """It was used: later than all others it may leave the memory."""
        queue.is_used = True
        if self.idle:
            self.idle.pop(queue.number, None)
        if not queue.pending and is_idle(queue):
            self.idle[queue.number] = queue

    def make_room(self) -> None:
        """Queues not used lately leave: to the file without work, to sleep with little of it."""
        for number in list(islice(self.idle, max(0, len(self.idle) - IDLE_KEPT))):
            queue = self.idle.pop(number)
            if is_idle(queue):
                self._leave(queue)
                self.away[hash(queue.key) & SHARD_MASK][queue.key] = queue.number
                self.away_count += 1
        if self._awake > AWAKE_MOST:
            self._look_around(min(LOOKED_AT, 4 * (self._awake - AWAKE_MOST)))

    def _look_around(self, count: int) -> None:
        """Go on round and round over the queues in memory."""
        left = LAID_DOWN
        for queue in islice(self._hand, count):
            left -= self._look_in_on(queue)
            count -= 1
            if not left:
                return
        if count:
            self._hand = self._round()

    def _look_in_on(self, queue: Queue) -> bool:
        """Whether it fell asleep."""
        if queue.is_used or not self._may_sleep(queue):
            queue.is_used = False
            return False
        self._leave(queue)
        self.lay_down(packing.pack(queue, by_turn=self.by_turn)[0])
        return True

    def _round(self) -> Iterator[Queue]:
        for chunk in list(self.queues):
            for queue in list(chunk.values()):
                if chunk.get(queue.number) is queue:
                    yield queue

    def _may_sleep(self, queue: Queue) -> bool:
        is_held = queue.in_flight or queue.named
        return 0 < queue.pending <= SLEEPER_MOST and not is_held and not queue.is_marked

    def _leave(self, queue: Queue) -> None:
        del self.keys[hash(queue.key) & SHARD_MASK][queue.key]
        del self.queues[queue.number >> CHUNK_BITS][queue.number]
        self._awake -= 1

    def queue_stands(self, number: int, page: int) -> None:
        """On which page the last word on a queue is."""
        while len(self.queue_wheres) <= number:
            self.queue_wheres.append(0)
        self.queue_wheres[number] = page


def _filled(queue: Queue, packed: packing.Packed) -> Queue:
    """With the lines it went to sleep with."""
    for place, entries in enumerate((packed.lane0, packed.lane1, packed.delayed)):
        if entries is not None:
            packing.join(queue, place, entries)
    queue.pending, queue.alarm = packed.pending, packed.alarm
    queue.rank0, queue.rank1, _ = packed.places()
    return queue


def is_idle(queue: Queue) -> bool:
    """Whether it has no work."""
    return not (queue.pending or queue.in_flight or queue.named or queue.standing != NEITHER)
