"""What a host answered, as it came: values only."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class Response(msgspec.Struct, frozen=True, gc=False):
    """One answer to one request: no redirect is followed, every size is bounded."""

    url: str  # what was asked for
    status: int
    headers: tuple[tuple[str, str], ...]  # in their order; names as the host wrote them
    body: bytes  # unpacked
    seconds: float  # from sending to the last byte
    at: float  # when it was sent, in seconds since 1970, by the system's clock
    reason: str = ""
    version: str = "1.1"
    address: str = ""  # whom we spoke to
    packed: bytes | None = None  # the body as it was sent, if it was compressed

    def header(self, name: str) -> str | None:
        """The first field of a name, whatever its letter case."""
        return next(self.fields(name), None)

    def fields(self, name: str) -> Iterator[str]:
        """All fields of a name, in order."""
        wanted = name.lower()
        return (value for key, value in self.headers if key.lower() == wanted)
