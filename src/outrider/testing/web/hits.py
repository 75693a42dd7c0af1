"""The server's record of hits: one line per hit, written when the hit is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec


class Hit(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One request and its answer, by the server's clock: seconds since 1970, never going back.

    It starts when its first byte is received and ends when the last byte of the answer is handed to
    the socket, or when the client's disconnect is noticed (`is_cut`).
    """

    started_at: float
    ended_at: float
    host: str
    target: str
    status: int
    bytes: int = 0  # of the answer, head included
    peer: int = 0  # the client's port
    agent: str = ""
    method: str = "GET"
    wait_until: float = 0.0  # the instant Retry-After named; 0: none
    is_cut: bool = False  # the client disconnected before the end

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.ended_at - self.started_at

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


class Hits:
    """The hits of a server in the order they ended, in memory or in a file."""

    def __init__(self, path: Path | None = None) -> None:
        self._hits: list[Hit] = []
        self._path = path
        # Unbuffered: a line is in the file before the next request is read.
        self._file = None if path is None else path.open("ab", buffering=0)
        self._encode = msgspec.json.Encoder().encode

    def append(self, hit: Hit) -> None:
        """Record a hit."""
        if self._file is None:
            self._hits.append(hit)
        else:
            self._file.write(self._encode(hit) + b"\n")

    def __iter__(self) -> Iterator[Hit]:
        return iter(self._hits if self._path is None else read_hits(self._path))

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()


def read_hits(path: Path) -> list[Hit]:
    """Return the hits of a file; a line that is still being written is left out."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [_decode(line) for line in whole.splitlines()]


_decode = msgspec.json.Decoder(Hit).decode
