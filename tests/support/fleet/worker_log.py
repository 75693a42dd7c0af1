"""What a worker writes down, a line each, before it goes on: the record outside the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec


class _Line(msgspec.Struct, frozen=True, tag=True, array_like=True):
    at: float  # seconds of the machine's own clock, the same for all processes


class Added(_Line, frozen=True, tag=True, array_like=True):
    """The store said that these are known."""

    urls: Sequence[str]


class Visited(_Line, frozen=True, tag=True, array_like=True):
    """A host was asked for a page, and was busy with that until then."""

    until: float
    key: str
    url: str


class Told(_Line, frozen=True, tag=True, array_like=True):
    """The store's answer to the end of a visit."""

    url: str
    token: int
    outcome: str
    applied: bool


class Unsure(_Line, frozen=True, tag=True, array_like=True):
    """A call got no answer."""

    verb: str
    error: str


Line: TypeAlias = Added | Visited | Told | Unsure


class Ledger:
    """A file that only grows; what is written is with the kernel when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._encode = msgspec.json.Encoder().encode

    def write(self, lines: Sequence[Line]) -> None:
        """In one piece: a kill leaves all of them or none."""
        self._file.write(b"".join(self._encode(line) + b"\n" for line in lines))

    def close(self) -> None:
        """No more."""
        self._file.close()


def read(path: Path) -> Iterator[Line]:
    """What was written; a last line that a kill cut short was never acted upon."""
    decode = msgspec.json.Decoder(Line).decode
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield decode(line)
