"""The ledger outside the store: what was asked, what was acknowledged, when hosts were visited.

A line is one write to a file opened for appending: what was written before a kill stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from outrider.core.verdict import Verdict


class Said(msgspec.Struct, frozen=True):
    """A link that was handed in."""

    url: str
    key: str
    priority: float
    delay: float = 0.0
    known: str = "keep"


class Add(msgspec.Struct, frozen=True, tag=True):
    """Links came."""

    links: list[Said]


class Claim(msgspec.Struct, frozen=True, tag=True):
    """Work was asked for."""

    limit: int


class End(msgspec.Struct, frozen=True):
    """One visit's verdict, with what its page linked to."""

    url: str
    verdict: Verdict
    links: list[Said]


class Finish(msgspec.Struct, frozen=True, tag=True):
    """Visits ended."""

    ends: list[End]


class Release(msgspec.Struct, frozen=True, tag=True):
    """Leases were given back."""

    urls: list[str]


class Steer(msgspec.Struct, frozen=True, tag=True):
    """An operator acted on a queue."""

    key: str
    act: str
    seconds: float = 0.0


class Sweep(msgspec.Struct, frozen=True, tag=True):
    """An operator dropped, replayed or purged tasks of a queue, one step by number."""

    verb: str
    key: str
    after: int
    limit: int


Call = Add | Claim | Finish | Release | Steer | Sweep


class Lent(msgspec.Struct, frozen=True):
    """A lease as it was answered."""

    url: str
    key: str
    task: int
    token: int
    attempt: int
    failures: int


class Opening(msgspec.Struct, frozen=True, tag=True):
    """A process is about to open the file; whoever held it before is dead."""

    at: int


class Asked(msgspec.Struct, frozen=True, tag=True):
    """A call is about to be made."""

    at: int
    call: Call


class Told(msgspec.Struct, frozen=True, tag=True):
    """It was answered; `answers` are yes or no by item, or a count."""

    at: int
    answers: list[bool] = []
    leases: list[Lent] = []
    count: int = 0


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It could not be written, and so it must not have happened."""

    at: int


class Settled(msgspec.Struct, frozen=True, tag=True):
    """What a reopened file showed of the call that was in flight at the kill."""

    applied: bool
    lent: list[str] = []


class Begun(msgspec.Struct, frozen=True, tag=True):
    """Hosts see visits begin."""

    at: int
    visits: list[tuple[str, str]]  # key, URL


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Hosts see visits end."""

    at: int
    visits: list[tuple[str, str]]


Line = Opening | Asked | Told | Refused | Settled | Begun | Ended

_encode = msgspec.json.Encoder().encode
_line_of: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class LedgerFile:
    """A ledger on disk."""

    def __init__(self, path: Path) -> None:
        if path.is_file():  # a line that a kill cut short was never acknowledged
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: Line) -> None:
        """One line, one write."""
        os.write(self._file, _encode(line) + b"\n")

    def close(self) -> None:
        """No more."""
        os.close(self._file)


def read(path: Path) -> Iterator[Line]:
    """All lines; a last one that was cut short by a kill was never acknowledged."""
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield _line_of.decode(line)
