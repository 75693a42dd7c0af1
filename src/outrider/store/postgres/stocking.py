"""More of the lines of queues than their first entries, for many queues in one statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from outrider.core.order import DUE_BITS, NUMBER_MASK
from outrider.store.heads.records import Record
from outrider.store.postgres import rows, sql
from outrider.store.postgres.arrays import number_array
from outrider.store.postgres.lazy_list import END, Shelf
from outrider.store.postgres.pipeline import Result
from outrider.store.postgres.seating import Seating

Wanted: TypeAlias = list[tuple[Shelf, int]]  # lines, and how many more entries of each


class Stocking(Seating):
    """A crawl whose lines are as long at hand as a verb may come to look."""

    def ask_for_entries(self, wanted: Wanted) -> Result | None:
        """Of lanes, those after the ones at hand."""
        if not wanted:
            return None
        asked = [(line.queue, line.place, more, line.depth()) for line, more in wanted]
        return self.wire.send(sql.LANE_ENTRIES, [number_array(c) for c in zip(*asked, strict=True)])

    def put_on(self, wanted: Wanted, answer: Result | None) -> None:
        """Entries come to their lines."""
        found: dict[tuple[int, int], list[int]] = {}
        for row in answer.fetchall() if answer else ():
            entry = rows.lane_entry(*row[2:7])
            self.entries[entry] = row[2:7]
            found.setdefault(row[:2], []).append(entry)
        for line, more in wanted:
            line.take(found.get((line.queue, line.place), []), more)

    def stock(self, records: Iterable[Record]) -> None:
        """These stand in lanes, and may leave them: whoever is first then is at hand."""
        leaving = {record.number: record for record in records}
        counts = Counter((r.queue.number, r.task.lane) for r in leaving.values())
        wanted: Wanted = []
        for (number, lane), count in counts.items():
            line = self._held[number].lane(lane)
            if isinstance(line, Shelf) and line.edge < END and _first_of(line) in leaving:
                wanted.append((line, count))
        self.put_on(wanted, self.ask_for_entries(wanted))


def _first_of(line: Shelf) -> int:
    return line.head[0] >> DUE_BITS & NUMBER_MASK
