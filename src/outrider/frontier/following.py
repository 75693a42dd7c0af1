"""A file of settings, looked at again and again (N3)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypeAlias

from outrider.settings import Layer, file_layer

EVERY: Final = 1.0  # seconds between two looks

_Mark: TypeAlias = tuple[int, int, int] | None


class Followed:
    """What it says, each time it has changed and then rested from one look to the next."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._seen = self._taken = self._mark()

    def read(self) -> Layer:
        """What it says now; SettingsError: nothing that can be read."""
        return file_layer(self.path)

    def look(self) -> Layer | None:
        """What is new; None: nothing, or it may still be being written."""
        mark, before = self._mark(), self._seen
        self._seen = mark
        if mark == self._taken or mark != before:
            return None
        self._taken = mark
        return self.read()

    def again(self) -> None:
        """It could not be gone by: the next look finds it new."""
        self._taken = (-1, -1, -1)

    def _mark(self) -> _Mark:
        try:
            found = Path(self.path).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
