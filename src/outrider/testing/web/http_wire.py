"""HTTP/1.1 of the test web as bytes: parses requests, encodes replies. No sockets, no clock."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import msgspec

from outrider.testing.web.messages import Reply, Step

MAX_HEAD_BYTES: Final = 65_536  # bytes of a request
_BODILESS: Final = frozenset((204, 304))
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
TOO_LONG: Final = Reply(b"", 431, close=True)
UNREADABLE: Final = Reply(b"", 400, close=True)
UNKNOWN_METHOD: Final = Reply(b"", 405, headers=(("Allow", "GET, HEAD"),), close=True)


class Request(msgspec.Struct, frozen=True, gc=False):
    """The head of a request."""

    method: str
    target: str
    host: str  # without its port
    headers: dict[str, str]  # names in lower case
    keep_alive: bool


NO_REQUEST: Final = Request("GET", "", "", {}, keep_alive=False)


def read_request(head: bytes) -> Request | Reply:
    """Parse a head without its empty line; return the request, or the reply that refuses it."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return UNREADABLE
    if words[0] not in ("GET", "HEAD"):
        return UNKNOWN_METHOD
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    asked = headers.get("connection", "").lower()
    keep_alive = asked != "close" if words[2] == "HTTP/1.1" else asked == "keep-alive"
    host = headers.get("host", "").lower().partition(":")[0]
    return Request(words[0], words[1], host, headers, keep_alive)


def retry_header(reply: Reply, at: float) -> tuple[str, float]:
    """Return the Retry-After field and the instant it names; "" and 0.0 if there is none."""
    if reply.retry_after is None:
        return "", 0.0
    if not reply.retry_as_date:
        return f"Retry-After: {reply.retry_after:g}\r\n", at + reply.retry_after
    until = float(int(at + reply.retry_after))
    return f"Retry-After: {formatdate(until, usegmt=True)}\r\n", until


def encode_reply(reply: Reply, request: Request, extra: str) -> list[bytes]:
    """Return head and body in the pieces they are sent in; `extra` are further header fields."""
    body = gzip.compress(reply.body, 1, mtime=0) if reply.gzip else reply.body
    pieces = _cut(body, reply.pieces) if reply.pieces > 1 else [body]
    if reply.chunked:
        pieces = [*(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)]
        pieces.append(b"0\r\n\r\n")
    head = _head(reply, len(body), extra)
    if request.method == "HEAD" or reply.status in _BODILESS:
        return [head]
    return [head, *pieces]


def reply_steps(reply: Reply, parts: list[bytes]) -> Iterator[Step]:
    """Yield the parts of a slow reply with its waits between them."""
    yield reply.wait
    for number, part in enumerate(parts):
        yield reply.pause if number > 1 else 0.0
        yield part


def _head(reply: Reply, length: int, extra: str) -> bytes:
    lines = f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Unknown')}\r\n{extra}"
    if reply.status not in _BODILESS:
        size = "Transfer-Encoding: chunked" if reply.chunked else f"Content-Length: {length}"
        lines += f"Content-Type: {reply.type}\r\n{size}\r\n"
    for name, value in reply.headers:
        lines += f"{name}: {value}\r\n"
    if reply.gzip:
        lines += "Content-Encoding: gzip\r\n"
    if reply.close:
        lines += "Connection: close\r\n"
    return f"{lines}\r\n".encode("latin-1")


def _cut(body: bytes, pieces: int) -> list[bytes]:
    size = max(1, -(-len(body) // pieces))
    return [body[n : n + size] for n in range(0, len(body), size)]
