"""The log of a fleet's worker: visits and answers, one line per event, written at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec


class _Line(msgspec.Struct, frozen=True, tag=True, array_like=True):
    at: float  # seconds of the machine's own clock, the same for all processes


class Added(_Line, frozen=True, tag=True, array_like=True):
    """The store answered that these URLs are known."""

    urls: Sequence[str]


class Visited(_Line, frozen=True, tag=True, array_like=True):
    """A page was requested from its host, which was busy until an instant."""

    until: float
    key: str
    url: str


class FinishAnswered(_Line, frozen=True, tag=True, array_like=True):
    """The store's answer to the end of a visit."""

    url: str
    token: int
    outcome: str
    applied: bool


class Unsure(_Line, frozen=True, tag=True, array_like=True):
    """A call got no answer."""

    verb: str
    error: str


Line: TypeAlias = Added | Visited | FinishAnswered | Unsure


class WorkerLog:
    """A log on disk; what is written is with the kernel when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._encode = msgspec.json.Encoder().encode

    def write(self, lines: Sequence[Line]) -> None:
        """Append lines in one write: a kill leaves all of them or none."""
        self._file.write(b"".join(self._encode(line) + b"\n" for line in lines))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a log; a last line that a kill cut short is left out."""
    decode = msgspec.json.Decoder(Line).decode
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield decode(line)
