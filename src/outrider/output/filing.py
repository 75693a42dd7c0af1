"""A sink of files: each finished visit's records stand there once and whole, whenever it is killed.

A batch is the tail of its files. First the journal says where it begins and whose records it has,
then they are appended, then the visits are finished, then the journal says that all of it stays. So
a kill at any instant leaves either a tail the store can be asked about, or nothing in doubt. Where
a visit was lost, what stays of the tail is put into the journal before the files are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from outrider.errors import InvalidInput, OutputError, StoreUnavailable
from outrider.output.faults import changed
from outrider.output.journal import SUFFIX, Journal, Open, Piece, Redo, Resting, names_of
from outrider.output.judging import were_finished
from outrider.output.sink import Visit
from outrider.output.tails import Tails
from outrider.store.protocol import FullStore

NOBODY: Final = -1


class Record(NamedTuple):
    """Bytes for a file, of a visit by its place in the batch, or of nobody's."""

    visit: int
    name: str
    data: bytes


class Format(Protocol):
    """How visits are written, and to which files of a folder."""

    @property
    def names(self) -> Sequence[str]:
        """The files in use."""
        ...

    def owns(self, name: str) -> bool:
        """Whether a file of that name could be one of these."""
        ...

    def begin(self, folder: Path, *, is_fresh: bool) -> None:
        """See what is there; fresh: no journal tells, so refuse what is not whole or not ours."""
        ...

    def records(self, visits: Sequence[Visit], length_of: Callable[[str], int]) -> list[Record]:
        """What to append, in order; `length_of` tells how long a file is."""
        ...

    def stayed(self, visits: Iterable[int]) -> None:
        """These of the last batch, by their places, are settled."""
        ...


class FileSink:
    """Files whose names begin alike, and their journal; see `Sink` and `Recoverable`."""

    def __init__(self, first: Path, form: Format, *, sync: bool = False) -> None:
        self._form, self._sync = form, sync
        self._tails = Tails(first.parent, sync=sync)
        self._doubt: Open | Redo | None = None  # what the journal says and is not settled
        self._count = 0  # visits of the last batch
        self._written: list[int] = []  # those of them that have records
        self._journal = Journal(Path(f"{first}{SUFFIX}"))
        try:
            self._open()
        except BaseException:
            self._let_go()
            raise

    def _open(self) -> None:
        last = self._journal.last
        if last is None:
            self._begin()
            return
        foreign = [name for name in names_of(last) if not self._form.owns(name)]
        if foreign:
            raise OutputError(
                f"{self._journal.path} is the journal of another output, with {foreign[0]}; move "
                "it away, or name another output"
            )
        self._tails.check(self._journal.path, last)
        self._form.begin(self._tails.folder, is_fresh=False)
        self._doubt = None if isinstance(last, Resting) else last

    def _begin(self) -> None:
        try:
            self._form.begin(self._tails.folder, is_fresh=True)
            for name in self._form.names:
                if (self._tails.folder / name).exists():
                    self._length_of(name)
            self._journal.say(Resting(self._tails.marks()))
        except BaseException:
            self._journal.forget()
            raise

    def _length_of(self, name: str) -> int:
        return self._tails[name].length

    # ---- a batch

    def write(self, visits: Sequence[Any]) -> None:
        """See `Sink`; whatever goes wrong, nothing of the batch stays."""
        if self._doubt is not None:
            raise StoreUnavailable(
                f"{self._journal.path}: unknown whether the batch before was applied; "
                "`await recover(sink, store)` finds out"
            )
        records = self._form.records(visits, self._length_of)
        self._count = len(visits)
        self._written = list(dict.fromkeys(r.visit for r in records if r.visit != NOBODY))
        if records:
            self._put(visits, records)

    def _put(self, visits: Sequence[Visit], records: list[Record]) -> None:
        parts: dict[str, list[bytes]] = {}
        for record in records:
            parts.setdefault(record.name, []).append(record.data)
        for name in parts:  # opened, so that the marks include them
            self._tails[name].check_alone()
        batch = self._intent(visits, records)
        self._journal.say(batch, sync=self._sync)
        self._doubt = batch
        try:
            self._tails.append(parts)
        except BaseException:
            self._tails.cut(batch.marks)
            self._rest()
            raise

    def _intent(self, visits: Sequence[Visit], records: list[Record]) -> Open:
        marks = self._tails.marks()
        files = {mark.name: place for place, mark in enumerate(marks)}
        ranks = {visit: rank for rank, visit in enumerate(self._written)}
        leases = [visits[place].lease for place in self._written]
        pieces = [Piece(ranks.get(r.visit, NOBODY), files[r.name], len(r.data)) for r in records]
        store = leases[0].store if leases else ""
        return Open(marks, store, [lease.id for lease in leases], pieces)

    def _rest(self) -> None:
        """A task may be visited again before the next batch: its token of now must not be asked."""
        self._doubt = None
        with suppress(OutputError):  # no room: what was said before leads to the same
            self._journal.say(Resting(self._tails.marks()))
        self._tails.keep(self._form.names)

    # ---- what stays of it

    def settle(self, answers: Sequence[bool] | None) -> None:
        """See `Sink`; what is left in doubt is settled by `recover`, now or in a later process."""
        doubt = self._doubt
        if answers is None or doubt is None:
            return
        if len(answers) != self._count:
            raise InvalidInput(f"{len(answers)} answers for {self._count} visits: one each")
        if isinstance(doubt, Open):
            self._resolve(doubt, [answers[place] for place in self._written])
        else:
            self._redo(doubt)
        self._form.stayed(place for place in self._written if answers[place])

    async def recover(self, store: FullStore) -> None:
        """See `Recoverable`."""
        doubt = self._doubt
        if isinstance(doubt, Open):
            self._resolve(doubt, await self._judged(doubt, store))
        elif doubt is not None:
            self._redo(doubt)

    async def _judged(self, batch: Open, store: FullStore) -> list[bool]:
        torn = self._tails.torn(batch) - {NOBODY}
        if batch.store != store.id:  # nobody is left to ask, nor to visit these pages again
            return [place not in torn for place in range(len(batch.leases))]
        finished = await were_finished(store, batch.leases)
        if any(finished[place] for place in torn):
            path = self._tails.folder / batch.marks[0].name
            raise changed(path, self._journal.path, "a record that was acknowledged is cut short")
        return finished

    def _resolve(self, batch: Open, stays: list[bool]) -> None:
        if all(stays):
            self._rest()
            return
        redo = Redo(self._tails.patches(batch, stays))
        self._journal.say(redo, sync=self._sync)
        self._doubt = redo
        self._redo(redo)

    def _redo(self, redo: Redo) -> None:
        self._tails.apply(redo.patches)
        self._rest()

    def close(self) -> None:
        """See `Sink`; the journal stays only if something is in doubt."""
        if self._doubt is None:
            self._journal.forget()
        self._let_go()

    def _let_go(self) -> None:
        self._tails.close()
        self._journal.close()
