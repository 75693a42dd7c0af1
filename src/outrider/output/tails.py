"""The output's open files: a batch is appended to them, and what is not to stay is taken out."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from outrider.output.faults import changed
from outrider.output.journal import Mark, Open, Patch, Piece, Redo, Resting, Statement
from outrider.output.tail import Tail


class Tails:
    """Files of one folder, by name; opened when they are first asked for."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self.folder = folder
        self._sync = sync
        self._open: dict[str, Tail] = {}

    def __getitem__(self, name: str) -> Tail:
        tail = self._open.get(name)
        if tail is None:
            tail = self._open[name] = Tail(self.folder / name)
        return tail

    def marks(self) -> list[Mark]:
        """Where all of them end now."""
        return [tail.mark() for tail in self._open.values()]

    def append(self, parts: dict[str, list[bytes]]) -> None:
        """Each file's part in one write; after an error they are to be cut back."""
        is_new = False
        for name, data in parts.items():
            is_new = is_new or not self[name].length
            self[name].append(b"".join(data))
        self._keep_safe(parts, is_new=is_new)

    def cut(self, marks: Sequence[Mark]) -> None:
        """Back to where they were."""
        for mark in marks:
            self[mark.name].cut(mark)

    def apply(self, patches: Sequence[Patch]) -> None:
        """As often as it takes."""
        for patch in patches:
            self[patch.mark.name].cut(patch.mark)
            self[patch.mark.name].append(patch.data)
        self._keep_safe([patch.mark.name for patch in patches], is_new=False)

    def _keep_safe(self, names: Collection[str], *, is_new: bool) -> None:
        if not self._sync:
            return
        for name in names:
            self[name].sync()
        if is_new:
            folder = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
            os.fsync(folder)
            os.close(folder)

    # ---- a batch that is in doubt

    def check(self, journal: Path, last: Statement) -> None:
        """Nothing is believed of files that are not what was written: OutputError, by name."""
        for mark, most in _expected(last):
            path = self.folder / mark.name
            if mark.length and not path.exists():
                raise changed(path, journal, "it is gone")
            tail = self[mark.name]
            if tail.length < mark.length:
                what = f"it has {tail.length:,} bytes, and had {mark.length:,}"
                raise changed(path, journal, what)
            if not tail.agrees(mark):
                raise changed(path, journal, "it is another file")
            if most is not None and tail.length > most:
                what = f"it has {tail.length:,} bytes, and was to have {most:,}"
                raise changed(path, journal, what)

    def torn(self, batch: Open) -> set[int]:
        """Whose records, by their place among the leases, are not there whole."""
        return {
            piece.lease
            for file, mark in enumerate(batch.marks)
            for piece, at in _placed(batch, file)
            if at + piece.length > self[mark.name].length
        }

    def patches(self, batch: Open, stays: Sequence[bool]) -> list[Patch]:
        """What makes the files hold only what stays of a batch; what is nobody's stays if whole."""
        return [
            self._patch(self[mark.name], _placed(batch, file), [*stays, True])
            for file, mark in enumerate(batch.marks)
        ]

    def _patch(self, tail: Tail, placed: Iterator[tuple[Piece, int]], stays: list[bool]) -> Patch:
        start, kept = tail.length, []
        for piece, at in placed:
            if not stays[piece.lease] or at + piece.length > tail.length:
                start = min(start, at)
            elif at > start:
                kept.append(tail.read(at, piece.length))
        return Patch(tail.mark_at(start), b"".join(kept))

    # ---- letting go

    def keep(self, names: Collection[str]) -> None:
        """The others are full."""
        for name in self._open.keys() - set(names):
            self._open.pop(name).close()

    def close(self) -> None:
        """All of them."""
        self.keep(())


def _expected(last: Statement) -> Iterator[tuple[Mark, int | None]]:
    """Where each file was known to end, and how long it can be at most."""
    match last:
        case Resting(marks):
            yield from ((mark, mark.length) for mark in marks)
        case Open(marks):
            for file, mark in enumerate(marks):
                sizes = (piece.length for piece, _ in _placed(last, file))
                yield mark, mark.length + sum(sizes)
        case Redo(patches):
            yield from ((patch.mark, None) for patch in patches)


def _placed(batch: Open, file: int) -> Iterator[tuple[Piece, int]]:
    """The pieces of a file, and where each begins."""
    at = batch.marks[file].length
    for piece in batch.pieces:
        if piece.file == file:
            yield piece, at
            at += piece.length
