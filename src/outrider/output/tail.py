"""A file that grows at its end, and can be cut back to a mark; what is before it never changes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from outrider.errors import OutputError
from outrider.output.faults import unwritable
from outrider.output.journal import Mark

END: Final = 32  # bytes by which a file is known again


class Tail:
    """One output file, open; what others append to it meanwhile is noticed, and left alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(path, error) from error
        info = os.fstat(self._file)
        if not stat.S_ISREG(info.st_mode):
            os.close(self._file)
            raise OutputError(f"{path} is not a file; name one as output")
        self.length = info.st_size
        self._end = self.read(max(0, self.length - END), END)

    def mark(self) -> Mark:
        """Where it ends now."""
        return Mark(self.path.name, self.length, self._end)

    def mark_at(self, length: int) -> Mark:
        """Where it ended when it was so long."""
        start = max(0, length - END)
        return Mark(self.path.name, length, self.read(start, length - start))

    def read(self, at: int, length: int) -> bytes:
        """Some of it."""
        parts = []
        while length and (part := os.pread(self._file, length, at)):
            parts.append(part)
            at, length = at + len(part), length - len(part)
        return b"".join(parts)

    def agrees(self, mark: Mark) -> bool:
        """Whether it may be the file that was marked, grown since."""
        return mark.length <= self.length and self.mark_at(mark.length) == mark

    def append(self, data: bytes) -> None:
        """All of it; after an error some may be there, until it is cut back."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            raise unwritable(self.path, error) from error
        self.length += len(data)
        self._end = (self._end + data[-END:])[-END:]

    def check_alone(self) -> None:
        """OutputError if somebody else changes it: to cut it back would be to cut theirs."""
        size = os.fstat(self._file).st_size
        if size != self.length:
            raise OutputError(
                f"{self.path} has {size:,} bytes, but {self.length:,} were written: another "
                "program changes it; end that program, and start again"
            )

    def cut(self, mark: Mark) -> None:
        """Back to where it was."""
        try:
            os.ftruncate(self._file, mark.length)
        except OSError as error:
            raise unwritable(self.path, error) from error
        self.length, self._end = mark.length, mark.end

    def sync(self) -> None:
        """On the disk itself."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def close(self) -> None:
        """Let go."""
        os.close(self._file)
