"""The open files of an output: a batch is appended to their ends, and can be cut off again."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from outrider.errors import OutputError
from outrider.output.errors import changed_error, write_error
from outrider.output.journal import InDoubt, Mark, Patch, Piece, Redo, Settled, Statement

END_BYTES: Final = 32  # last bytes of a file by which it is recognised


class AppendFile:
    """One output file, open; detects bytes that another program appends, and never cuts those."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise write_error(path, error) from error
        info = os.fstat(self._file)
        if not stat.S_ISREG(info.st_mode):
            os.close(self._file)
            raise OutputError(f"{path} is not a regular file; choose another output")
        self.length = info.st_size
        self._end = self.read(max(0, self.length - END_BYTES), END_BYTES)

    def mark(self) -> Mark:
        """The current end of the file."""
        return Mark(self.path.name, self.length, self._end)

    def mark_at(self, length: int) -> Mark:
        """The end that the file had when it was this long."""
        start = max(0, length - END_BYTES)
        return Mark(self.path.name, length, self.read(start, length - start))

    def read(self, at: int, length: int) -> bytes:
        """Up to `length` bytes from an offset."""
        parts = []
        while length and (part := os.pread(self._file, length, at)):
            parts.append(part)
            at, length = at + len(part), length - len(part)
        return b"".join(parts)

    def agrees(self, mark: Mark) -> bool:
        """Whether this may be the file that was marked, perhaps longer now."""
        return mark.length <= self.length and self.mark_at(mark.length) == mark

    def append(self, data: bytes) -> None:
        """Write all of `data` at the end; after an error a part may be there until it is cut."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            raise write_error(self.path, error) from error
        self.length += len(data)
        self._end = (self._end + data[-END_BYTES:])[-END_BYTES:]

    def check_alone(self) -> None:
        """Raise OutputError if another program changed the file: cutting would cut its bytes."""
        size = os.fstat(self._file).st_size
        if size != self.length:
            raise OutputError(
                f"{self.path} has {size:,} bytes, but {self.length:,} were written: another "
                "program changes it; stop that program, and start again"
            )

    def cut(self, mark: Mark) -> None:
        """Truncate the file to a mark."""
        try:
            os.ftruncate(self._file, mark.length)
        except OSError as error:
            raise write_error(self.path, error) from error
        self.length, self._end = mark.length, mark.end

    def sync(self) -> None:
        """Flush the file to the disk itself."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise write_error(self.path, error) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class AppendFiles:
    """The files of one output in one folder, by name; each is opened on first use."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self.folder = folder
        self._sync = sync
        self._open: dict[str, AppendFile] = {}

    def __getitem__(self, name: str) -> AppendFile:
        file = self._open.get(name)
        if file is None:
            file = self._open[name] = AppendFile(self.folder / name)
        return file

    def marks(self) -> list[Mark]:
        """The current ends of all open files."""
        return [file.mark() for file in self._open.values()]

    def append(self, parts: dict[str, list[bytes]]) -> None:
        """Append each file's part in one write; after an error the files must be cut back."""
        is_new = False
        for name, data in parts.items():
            is_new = is_new or not self[name].length
            self[name].append(b"".join(data))
        self._sync_files(parts, is_new=is_new)

    def cut(self, marks: Sequence[Mark]) -> None:
        """Truncate files to their marks."""
        for mark in marks:
            self[mark.name].cut(mark)

    def apply(self, patches: Sequence[Patch]) -> None:
        """Apply patches; applying them again leads to the same files."""
        for patch in patches:
            self[patch.mark.name].cut(patch.mark)
            self[patch.mark.name].append(patch.data)
        self._sync_files([patch.mark.name for patch in patches], is_new=False)

    def _sync_files(self, names: Collection[str], *, is_new: bool) -> None:
        if not self._sync:
            return
        for name in names:
            self[name].sync()
        if is_new:
            folder = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
            os.fsync(folder)
            os.close(folder)

    # ---- a batch in doubt

    def check(self, journal: Path, last: Statement) -> None:
        """Raise OutputError if a file is not the one that the journal's last statement is about."""
        for mark, max_length in _expected_ends(last):
            path = self.folder / mark.name
            if mark.length and not path.exists():
                raise changed_error(path, journal, "it is missing")
            file = self[mark.name]
            if file.length < mark.length:
                problem = f"it has {file.length:,} bytes, and had {mark.length:,}"
                raise changed_error(path, journal, problem)
            if not file.agrees(mark):
                raise changed_error(path, journal, "it is another file")
            if max_length is not None and file.length > max_length:
                problem = f"it has {file.length:,} bytes, and should have at most {max_length:,}"
                raise changed_error(path, journal, problem)

    def torn(self, batch: InDoubt) -> set[int]:
        """The visits, by index among the leases, whose records are not completely written."""
        return {
            piece.lease
            for file, mark in enumerate(batch.marks)
            for piece, at in _pieces_of(batch, file)
            if at + piece.length > self[mark.name].length
        }

    def patches(self, batch: InDoubt, stays: Sequence[bool]) -> list[Patch]:
        """What leaves only the records that stay; complete records of no visit stay too."""
        return [
            self._patch(self[mark.name], _pieces_of(batch, file), [*stays, True])
            for file, mark in enumerate(batch.marks)
        ]

    def _patch(
        self, file: AppendFile, placed: Iterator[tuple[Piece, int]], stays: list[bool]
    ) -> Patch:
        start, kept = file.length, []
        for piece, at in placed:
            if not stays[piece.lease] or at + piece.length > file.length:
                start = min(start, at)
            elif at > start:
                kept.append(file.read(at, piece.length))
        return Patch(file.mark_at(start), b"".join(kept))

    # ---- closing

    def close_except(self, names: Collection[str]) -> None:
        """Close all files but these."""
        for name in self._open.keys() - set(names):
            self._open.pop(name).close()

    def close(self) -> None:
        """Close all files."""
        self.close_except(())


def _expected_ends(last: Statement) -> Iterator[tuple[Mark, int | None]]:
    """Each file's known end, and the greatest length it can have; None: any."""
    match last:
        case Settled(marks):
            yield from ((mark, mark.length) for mark in marks)
        case InDoubt(marks):
            for file, mark in enumerate(marks):
                sizes = (piece.length for piece, _ in _pieces_of(last, file))
                yield mark, mark.length + sum(sizes)
        case Redo(patches):
            yield from ((patch.mark, None) for patch in patches)


def _pieces_of(batch: InDoubt, file: int) -> Iterator[tuple[Piece, int]]:
    """The pieces of a file, each with its offset."""
    at = batch.marks[file].length
    for piece in batch.pieces:
        if piece.file == file:
            yield piece, at
            at += piece.length
