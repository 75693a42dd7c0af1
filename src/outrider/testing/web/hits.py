"""The server's own record: one line a hit, written when the hit is over, readable meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec


class Hit(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One request and its answer, by the server's clock: seconds since 1970, never stepping back.

    It starts when its first byte was seen and ends when the last byte of the answer was handed to
    the socket, or when the visitor was seen to have hung up (`is_cut`).
    """

    started_at: float
    ended_at: float
    host: str
    target: str
    status: int
    bytes: int = 0  # of the answer, head included
    peer: int = 0  # the visitor's port
    agent: str = ""
    method: str = "GET"
    wait_until: float = 0.0  # the instant Retry-After named; 0: none
    is_cut: bool = False  # the visitor hung up before the end

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended_at - self.started_at

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


class Hits:
    """Every hit of a server in the order they ended: kept here, or in a file if one is named."""

    def __init__(self, path: Path | None = None) -> None:
        self._hits: list[Hit] = []
        self._path = path
        # Unbuffered: a line is in the file before the next request is heard.
        self._file = None if path is None else path.open("ab", buffering=0)
        self._encode = msgspec.json.Encoder().encode

    def append(self, hit: Hit) -> None:
        """Write it down."""
        if self._file is None:
            self._hits.append(hit)
        else:
            self._file.write(self._encode(hit) + b"\n")

    def __iter__(self) -> Iterator[Hit]:
        return iter(self._hits if self._path is None else read_hits(self._path))

    def close(self) -> None:
        """No more is written."""
        if self._file is not None:
            self._file.close()


def read_hits(path: Path) -> list[Hit]:
    """The record so far; a line that is being written is not yet there."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [_decode(line) for line in whole.splitlines()]


_decode = msgspec.json.Decoder(Hit).decode
