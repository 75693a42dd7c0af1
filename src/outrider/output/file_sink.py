"""A sink of files: each finished visit's records are in it once and complete, after any kill (K4).

A batch is the tail of its files. First the journal records where the batch begins and whose records
it holds, then they are appended, then the visits are finished, then the journal records that the
batch stays. So a kill at any instant leaves either a batch that the store can be asked about, or
nothing in doubt. Where a visit was lost, what stays of the batch is written to the journal before
the files are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from outrider.errors import InvalidInput, OutputError, StoreUnavailable
from outrider.output.append_files import AppendFiles
from outrider.output.errors import changed_error
from outrider.output.finished_visits import were_finished
from outrider.output.journal import SUFFIX, InDoubt, Journal, Piece, Redo, Settled, names_of
from outrider.output.sink import Visit
from outrider.store.protocol import FullStore

NO_VISIT: Final = -1


class Record(NamedTuple):
    """Bytes for a file, with their visit by index in the batch, or NO_VISIT."""

    visit: int
    name: str
    data: bytes


class Format(Protocol):
    """How visits are encoded, and to which files of a folder."""

    @property
    def names(self) -> Sequence[str]:
        """The files in use."""
        ...

    def owns(self, name: str) -> bool:
        """Whether a file of this name could belong to this output."""
        ...

    def open(self, folder: Path, *, is_fresh: bool) -> None:
        """Inspect the folder; `is_fresh`: there is no journal, so refuse incomplete files."""
        ...

    def records(self, visits: Sequence[Visit], length_of: Callable[[str], int]) -> list[Record]:
        """What to append, in order; `length_of` returns the length of a file."""
        ...

    def confirm(self, visits: Iterable[int]) -> None:
        """Take note that these visits of the last batch, by index, are settled."""
        ...


class FileSink:
    """Files with a common prefix, and their journal; implements `Sink` and `Recoverable`."""

    def __init__(self, first: Path, form: Format, *, sync: bool = False) -> None:
        self._form, self._sync = form, sync
        self._files = AppendFiles(first.parent, sync=sync)
        self._in_doubt: InDoubt | Redo | None = None  # the journal's statement that is not settled
        self._count = 0  # visits of the last batch
        self._written: list[int] = []  # those of them that have records
        self._journal = Journal(Path(f"{first}{SUFFIX}"))
        try:
            self._open()
        except BaseException:
            self._close_files()
            raise

    def _open(self) -> None:
        last = self._journal.last
        if last is None:
            self._start()
            return
        foreign = [name for name in names_of(last) if not self._form.owns(name)]
        if foreign:
            raise OutputError(
                f"{self._journal.path} is the journal of another output, with {foreign[0]}; move "
                "it away, or choose another output"
            )
        self._files.check(self._journal.path, last)
        self._form.open(self._files.folder, is_fresh=False)
        self._in_doubt = None if isinstance(last, Settled) else last

    def _start(self) -> None:
        try:
            self._form.open(self._files.folder, is_fresh=True)
            for name in self._form.names:
                if (self._files.folder / name).exists():
                    self._length_of(name)
            self._journal.write(Settled(self._files.marks()))
        except BaseException:
            self._journal.delete()
            raise

    def _length_of(self, name: str) -> int:
        return self._files[name].length

    # ---- writing a batch

    def write(self, visits: Sequence[Any]) -> None:
        """See `Sink`; after an error nothing of the batch stays."""
        if self._in_doubt is not None:
            raise StoreUnavailable(
                f"{self._journal.path}: unknown whether the batch before was applied; "
                "`await recover(sink, store)` finds out"
            )
        records = self._form.records(visits, self._length_of)
        self._count = len(visits)
        self._written = list(dict.fromkeys(r.visit for r in records if r.visit != NO_VISIT))
        if records:
            self._put(visits, records)

    def _put(self, visits: Sequence[Visit], records: list[Record]) -> None:
        parts: dict[str, list[bytes]] = {}
        for record in records:
            parts.setdefault(record.name, []).append(record.data)
        for name in parts:  # opened, so that the marks include them
            self._files[name].check_alone()
        batch = self._batch(visits, records)
        self._journal.write(batch, sync=self._sync)
        self._in_doubt = batch
        try:
            self._files.append(parts)
        except BaseException:
            self._files.cut(batch.marks)
            self._mark_settled()
            raise

    def _batch(self, visits: Sequence[Visit], records: list[Record]) -> InDoubt:
        marks = self._files.marks()
        files = {mark.name: index for index, mark in enumerate(marks)}
        ranks = {visit: rank for rank, visit in enumerate(self._written)}
        leases = [visits[index].lease for index in self._written]
        pieces = [Piece(ranks.get(r.visit, NO_VISIT), files[r.name], len(r.data)) for r in records]
        store = leases[0].store if leases else ""
        return InDoubt(marks, store, [lease.id for lease in leases], pieces)

    def _mark_settled(self) -> None:
        """Record that nothing is in doubt: the tokens of this batch are not asked about again."""
        self._in_doubt = None
        with suppress(OutputError):  # disk full: the statement before leads to the same result
            self._journal.write(Settled(self._files.marks()))
        self._files.close_except(self._form.names)

    # ---- settling it

    def settle(self, answers: Sequence[bool] | None) -> None:
        """See `Sink`; what stays in doubt is settled by `recover`, now or in a later process."""
        in_doubt = self._in_doubt
        if answers is None or in_doubt is None:
            return
        if len(answers) != self._count:
            raise InvalidInput(f"{len(answers)} answers for {self._count} visits: one each")
        if isinstance(in_doubt, InDoubt):
            self._resolve(in_doubt, [answers[index] for index in self._written])
        else:
            self._redo(in_doubt)
        self._form.confirm(index for index in self._written if answers[index])

    async def recover(self, store: FullStore) -> None:
        """See `Recoverable`."""
        in_doubt = self._in_doubt
        if isinstance(in_doubt, InDoubt):
            self._resolve(in_doubt, await self._ask_finished(in_doubt, store))
        elif in_doubt is not None:
            self._redo(in_doubt)

    async def _ask_finished(self, batch: InDoubt, store: FullStore) -> list[bool]:
        torn = self._files.torn(batch) - {NO_VISIT}
        if batch.store != store.id:  # that store is gone: these pages are not visited again
            return [index not in torn for index in range(len(batch.leases))]
        finished = await were_finished(store, batch.leases)
        if any(finished[index] for index in torn):
            path = self._files.folder / batch.marks[0].name
            problem = "a record that was acknowledged is cut short"
            raise changed_error(path, self._journal.path, problem)
        return finished

    def _resolve(self, batch: InDoubt, stays: list[bool]) -> None:
        if all(stays):
            self._mark_settled()
            return
        redo = Redo(self._files.patches(batch, stays))
        self._journal.write(redo, sync=self._sync)
        self._in_doubt = redo
        self._redo(redo)

    def _redo(self, redo: Redo) -> None:
        self._files.apply(redo.patches)
        self._mark_settled()

    def close(self) -> None:
        """See `Sink`; the journal stays only if something is in doubt."""
        if self._in_doubt is None:
            self._journal.delete()
        self._close_files()

    def _close_files(self) -> None:
        self._files.close()
        self._journal.close()
