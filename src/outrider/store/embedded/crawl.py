"""A crawl whose heads are in memory and whose records are in a file.

In memory grow only the known fingerprints, the entries of pending tasks, and queues with work. What
a verb changes is gathered here until the store has appended it; `wheres` then says on which page
the last word on each task stands.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from heapq import heappush
from itertools import count as count_from
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from outrider.core.order import NUMBER_BITS
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import CrawlStatus
from outrider.core.task import Task
from outrider.store.embedded import packing, pages
from outrider.store.embedded.known import Known
from outrider.store.embedded.reading import SPAN_BITS, SPAN_MASK, Reading
from outrider.store.embedded.roster import Reader
from outrider.store.heads.ledger import Ledger
from outrider.store.heads.records import COLUMNS, INACTIVE, READY, SHARDS, Kind, Queue, Record
from outrider.store.heads.standing import parked_key
from outrider.store.protocol import SharedValue

A_FEW: Final = 16  # fingerprints looked up one by one rather than as arrays
LATELY_MOST: Final = 1000  # fingerprints gathered before the table takes them in


class FileCrawl(Reading):
    """One crawl of a file."""

    marks_changes = True

    def __init__(
        self, name: str, store: str, now: int, *, index: int, reader: Reader, secret: bytes
    ) -> None:
        super().__init__(name, store, now, reader=reader)
        self.index = index
        self.table = Known(secret)
        self._lately: dict[bytes, int] = {}  # known, and not yet in the table
        # what was gathered last: its first page, its papers by page, and what it tells of the crawl
        self._first = 0
        self._sheets: list[list[Record]] = []
        self._next_told: tuple[object, ...] = ()
        self._told_notes = self._told_said = 0
        self._told: tuple[object, ...] = ()  # what the file tells of the crawl itself; (): nothing
        self._told_roots: dict[str, int] = {}

    # ---- keeping

    def expect(self, tasks: list[Task]) -> None:
        """Which of them are known, looked up in one go; and their queues come back into memory."""
        fingerprints = [task.fingerprint for task in tasks]
        known: dict[bytes, int] = {}
        if self.table.count and len(tasks) <= A_FEW:
            known = self.table.get_few(fingerprints)
        elif self.table.count:
            found = self.table.find(self.table.hashes(fingerprints)).tolist()
            known = {name: number for name, number in zip(fingerprints, found) if number}  # noqa: B905 - slower
        lately = self._lately
        if lately:
            known.update({name: lately[name] for name in fingerprints if name in lately})
        self.known = [known] * SHARDS
        if self.away_count:
            for key in {task.key for task in tasks}:
                self.queue_at(key)

    def born(self, record: Record) -> None:
        """See `Ledger`."""
        self._newborn.append(record)

    def changed(self, record: Record) -> None:
        """See `Ledger`."""
        self._dirty[record.number] = record

    def find(self, fingerprint: bytes) -> int | None:
        """See `Ledger`; the whole fingerprint is compared, the table knows half of it."""
        number = self._lately.get(fingerprint) or self.table.get(fingerprint)
        if not number or self.record(number).task.fingerprint != fingerprint:
            return None
        return number

    def kept_rules(self) -> dict[int, bytes]:
        """The rules queues may go by, as they are kept."""
        return {epoch: encode_rules(rules) for epoch, rules in self.rulebook.items()}

    # ---- what a verb changed

    def _gist(self) -> tuple[object, ...]:
        return (
            self.status,
            self.is_idle,
            self.finished,
            self.count,
            self.queue_count,
            self.counter,
            self.tokens,
            self.visits,
            self.logged,
            (id(self.rules), self.is_told),
            self.at_finish,
            sum(map(len, self.roots.values())),
            self.settings,
            self.notes.last,
        )

    def gathered(self, first: int, now: int) -> list[tuple[int, bytes]]:
        """What changed since it was last written, as pages numbered from `first` on."""
        gist, newborn, marks = self._gist(), self._newborn, self.marks
        if not (newborn or self._dirty or marks or gist != self._told):
            self._first = 0
            return []
        extra = self._extra(now, is_whole=not self._told)
        self._first, self._next_told, self._sheets = first, gist, self._papers()
        born = newborn[0].number if newborn else 0
        births, queues = pages.encode_births(newborn), [pages.encode_queue(q) for q in marks]
        count = max(1, len(self._sheets), -(-max(len(births), len(queues)) // pages.CHUNK))
        rows = []
        for place in range(count):
            low, high = place * pages.CHUNK, (place + 1) * pages.CHUNK
            sheet = self._sheets[place] if place < len(self._sheets) else []
            parts = births[low:high], [pages.encode_paper(r) for r in sheet], queues[low:high]
            names = [
                *range(born + low, born + low + len(parts[0])),
                *[record.number for record in sheet],
                *[queue.number for queue in marks[low:high]],
            ]
            tail = extra if place == count - 1 else b""
            rows.append(
                (first + place, pages.sealed(first + place, self.index, names, parts, tail))
            )
        return rows

    def _papers(self) -> list[list[Record]]:
        """Papers by page; a newborn's stands on the page of its birth, and is the last word."""
        if not self._newborn:
            return _cut(list(self._dirty.values()))
        first = self._newborn[0].number
        papers = _cut([record for record in self._dirty.values() if record.number < first])
        for record in self._dirty.values():
            if record.number >= first and not record.is_plain():
                place = (record.number - first) // pages.CHUNK
                papers += [[] for _ in range(place + 1 - len(papers))]
                papers[place].append(record)
        return papers

    def _extra(self, now: int, *, is_whole: bool) -> bytes:
        told, fresh = self._told, self.logged - self._told_notes
        notes = list(islice(reversed(self.log), fresh))[::-1] if fresh else []
        return pages.encode_extra(
            self,
            self.name,
            now,
            self.kind_marks,
            dict(self.outcomes) if is_whole or self.visits != told[7] else None,
            notes,
            list(self.timeline) if is_whole or notes else None,
            self.kept_rules() if is_whole or (id(self.rules), self.is_told) != told[9] else None,
            self._new_roots(),
            self.settings if is_whole or self.settings != told[12] else None,
            said_by(self.notes.since(self._told_said)),
        )

    def _new_roots(self) -> dict[str, list[str]] | None:
        fresh = {
            mode: list(islice(roots, self._told_roots.get(mode, 0), None))
            for mode, roots in self.roots.items()
            if len(roots) > self._told_roots.get(mode, 0)
        }
        return fresh or None

    def row(self, now: int) -> pages.CrawlRow:
        """The crawl's own numbers."""
        return pages.crawl_row(self, self.name, now)

    def written(self) -> int:
        """What was gathered stands in the file; how many things that were."""
        first, count = self._first, len(self._newborn) + len(self._dirty) + len(self.marks)
        if not first:
            return 0
        count += self.notes.last - self._told_said
        if self._newborn:
            self._births_stand(first)
            self._learn()
        wheres, states = self.wheres, self.states
        for page, sheet in enumerate(self._sheets, first):
            for record in sheet:
                record.body, record.left = record.body or page, 0
                number = record.number  # `stands`, written out: a paper is of a known task
                wheres[number >> SPAN_BITS][number & SPAN_MASK] = page
                states[number >> SPAN_BITS][number & SPAN_MASK] = COLUMNS[record.state]
        for place, queue in enumerate(self.marks):
            self.queue_stands(queue.number, first + place // pages.CHUNK)
            queue.is_marked = False
            self.rest(queue)
        for kind in self.kind_marks:
            kind.is_marked = False
        self._newborn, self._dirty, self.marks, self.kind_marks = [], {}, [], []
        self._told_now(self._next_told)
        self.make_room()
        return count

    def _told_now(self, gist: tuple[object, ...]) -> None:
        """The file tells this of the crawl itself."""
        self._told, self._told_notes, self._told_said = gist, self.logged, self.notes.last
        self._told_roots = {mode: len(roots) for mode, roots in self.roots.items()}

    def _births_stand(self, first: int) -> None:
        """`stands` for many: they have consecutive numbers."""
        number, end = self._newborn[0].number, self._newborn[-1].number + 1
        for page, start in enumerate(range(number, end, pages.CHUNK), first):
            self.births_stand(start, min(pages.CHUNK, end - start), page)

    def _learn(self) -> None:
        names = [record.task.fingerprint for record in self._newborn]
        self._lately.update(zip(names, count_from(self._newborn[0].number), strict=False))
        if len(self._lately) > LATELY_MOST:
            self.settle_known()

    def settle_known(self) -> None:
        """What came to be known lately goes into the table: many at a time cost little each."""
        lately, self._lately = self._lately, {}
        if lately:
            numbers = np.fromiter(lately.values(), np.uint32, len(lately))
            self.table.add(self.table.hashes(list(lately)), numbers)

    # ---- reopening

    def recall(self, extra: pages.Extra) -> None:
        """Be what a page told of the crawl itself."""
        row = extra.crawl
        for name in row.__struct_fields__:
            if name not in ("name", "now"):
                setattr(self, name, getattr(row, name))
        for kind in extra.kinds:
            found = self._kind(kind)
            found.counts[:] = kind.counts
        if extra.rules is not None:
            self.rulebook = {epoch: decode_rules(rules) for epoch, rules in extra.rules.items()}
            Ledger.obey(self, self.rulebook[self.epoch])  # nobody stands anywhere yet
        if extra.outcomes is not None:
            self.outcomes = Counter(extra.outcomes)
        if extra.timeline is not None:
            self.timeline = deque(extra.timeline, self.timeline.maxlen)
        last = self.log[-1][0] if self.log else 0
        self.log.extend(entry for entry in extra.notes if entry[0] > last)
        for mode, roots in (extra.roots or {}).items():
            self.add_roots(mode, roots)
        self.settings = self.settings if extra.settings is None else extra.settings
        self.notes.keep_all(SharedValue(*said) for said in extra.said)

    def resume(self, now: int) -> None:
        """Queues stand where they stood, and nothing waits to be written."""
        self.standing = 0
        self._rouse_outdated()
        for chunk in self.queues:
            for queue in chunk.values():
                self._resume(queue, now)
        for sleepers in self.asleep:
            for data in sleepers.values():
                self._resume_sleeper(packing.brief_of(data))
        for kind in self.kinds.values():
            kind.is_marked = False
        self.marks, self.kind_marks = [], []
        self._told_now(self._gist())
        self.make_room()

    def _rouse_outdated(self) -> None:
        """Whoever was copied before the order among queues changed stands elsewhere now."""
        for sleepers in self.asleep:
            for number, data in list(sleepers.items()):
                if packing.brief_of(data).by_turn != self.by_turn:
                    self.queue_of(number)

    def _resume_sleeper(self, brief: packing.Brief) -> None:
        first, second, place = brief.places()
        self.standing += bool(first or second or place)
        for line, rank in zip(self.ready, (first, second), strict=True):
            if rank:
                line.push(rank)
        if place:
            heappush(self.parked, place)
        if brief.alarm:
            heappush(self.alarms, brief.alarm << NUMBER_BITS | brief.number)

    def waiting(self) -> int:
        """How many tasks wait in all lines."""
        awake = sum(queue.pending for chunk in self.queues for queue in chunk.values())
        sleepers = (data for chunk in self.asleep for data in chunk.values())
        return awake + sum(packing.brief_of(data).pending for data in sleepers)

    def _resume(self, queue: Queue, now: int) -> None:
        self.remind(queue)
        queue.rank0 = queue.rank1 = 0
        if queue.standing == READY:
            self.standing += 1
            queue.ripen(now)  # its row may tell more than its lines, copied before they ripened
            self._rank(queue)
        elif queue.standing == INACTIVE:
            self.standing += 1
            heappush(self.parked, parked_key(queue))
        self._set_alarm(queue, self._alarm_at(queue, now))
        queue.is_marked = False
        self.rest(queue)

    def abandon(self, now: int, is_dead: Callable[[str], bool]) -> None:
        """H4: take back the leases of dead processes; each of those visits ends now (D7).

        Leases of other processes stay. How often they were extended is not in the file, so each
        lasts its whole length from now: its worker may have had no one to ask for an extension.
        """
        if self.status is CrawlStatus.CANCELLED:
            return
        for record in sorted(self.leases.values(), key=lambda r: (r.deadline, r.number)):
            if is_dead(record.process):
                self._lose(record, now)
            elif not record.named:  # by name: held for a moment, never extended
                self.lasts(record, max(record.deadline, now + record.deadline - record.claimed))


def _cut(records: list[Record]) -> list[list[Record]]:
    return [records[at : at + pages.CHUNK] for at in range(0, len(records), pages.CHUNK)]


def kind_row(kind: Kind) -> pages.KindRow:
    """A kind as it is kept."""
    return pages.KindRow(kind.type, kind.tag, kind.origin, kind.depth, list(kind.counts))


def said_by(notes: Sequence[SharedValue]) -> list[tuple[int, float, str, str, str]]:
    """Notes as they are kept."""
    return [(note.number, note.at, note.topic, note.name, note.text) for note in notes]


def encode_rules(rules: CrawlRules) -> bytes:
    """Rules as they are kept: a cost function is the crawl's own affair."""
    return msgspec.json.encode(rules, enc_hook=lambda _: "custom")


def decode_rules(data: bytes) -> CrawlRules:
    """Rules as they were kept."""
    return msgspec.json.decode(data, type=CrawlRules)
