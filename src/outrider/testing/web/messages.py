"""Requests and replies of the test web as plain values: a site is a function of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeAlias

import msgspec

HTML: Final = "text/html; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"
XML: Final = "application/xml"


class Asked(msgspec.Struct, frozen=True, gc=False):
    """One request to a site, with the counts a site may depend on: sites have no state."""

    host: str
    target: str  # path and query, as sent
    method: str = "GET"
    headers: Mapping[str, str] = {}  # names in lower case
    visit: int = 1  # the n-th request of this target
    hit: int = 1  # the n-th request of this host
    idle: float = float("inf")  # seconds since the last answer of this host ended
    at: float = 0.0  # seconds since 1970
    age: float = 0.0  # seconds since the server started

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """The part of the target after the question mark."""
        return self.target.partition("?")[2]


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A well-formed answer; `wait` and `pause` slow it down."""

    body: bytes = b""
    status: int = 200
    type: str = HTML
    headers: tuple[tuple[str, str], ...] = ()
    retry_after: float | None = None  # seconds
    retry_as_date: bool = False
    chunked: bool = False
    gzip: bool = False
    wait: float = 0.0  # seconds before the head
    pause: float = 0.0  # seconds between two pieces of the body
    pieces: int = 1
    close: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is sent without waits."""
        return not (self.wait or self.pause)


class Hangup(Enum):
    """How a script ends a connection early."""

    RESET = "reset"


Step: TypeAlias = bytes | float | Hangup  # to send, seconds to wait, to end


class Script(msgspec.Struct, frozen=True, gc=False):
    """Raw bytes and waits, valid HTTP or not; the connection is closed after them."""

    steps: Iterable[Step]
    status: int = 0  # in the record of hits; 0: no status that a client could read


Answer: TypeAlias = Reply | Script
# None: the next behaviour is asked.
Behaviour: TypeAlias = Callable[[Asked], Answer | None]


def html(title: str, body: str) -> bytes:
    """Return a small HTML page."""
    return f"<!doctype html>\n<title>{title}</title>\n<body>\n{body}\n</body>\n".encode()


def linking(title: str, urls: Iterable[str]) -> bytes:
    """Return a small HTML page of links."""
    return html(title, "\n".join(f'<p><a href="{url}">{url}</a></p>' for url in urls))
