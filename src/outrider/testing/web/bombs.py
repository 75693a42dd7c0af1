"""Malformed, endless and cut-off answers of the hostile host, generated for each request."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import repeat
from typing import Final

from outrider.testing.web.messages import Answer, Asked, Hangup, Reply, Script, Step

_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
_PIECE: Final = b"<p>and so on, and so on</p>\n" * 512
_MIB: Final = 1 << 20
_DRIP: Final = 0.1  # seconds between two bytes of the slow answers
_GZIP_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"


def slow_headers(_: Asked) -> Answer:
    """Send a header field a byte at a time, without end."""
    return Script(_dripping(b"HTTP/1.1 200 OK\r\nX-Patience: "))


def slow_body(_: Asked) -> Answer:
    """Send a body a byte at a time: each byte in time, the whole never."""
    return Script(_dripping(_OK + b"Content-Length: 1000000\r\n\r\n"), 200)


def endless_body(_: Asked) -> Answer:
    """Send a body without length or end."""
    return Script(_endless(_OK + b"\r\n", _PIECE), 200)


def endless_chunked(_: Asked) -> Answer:
    """Send chunks without a last one."""
    chunk = b"%x\r\n%b\r\n" % (len(_PIECE), _PIECE)
    return Script(_endless(_OK + b"Transfer-Encoding: chunked\r\n\r\n", chunk), 200)


def tiny_chunks(_: Asked) -> Answer:
    """Send a body in chunks of one byte each."""
    head = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
    return Script((head, *repeat(b"1\r\nx\r\n" * 5_000, 4), b"0\r\n\r\n"), 200)


def gzip_bomb(_: Asked) -> Answer:
    """Send a mebibyte of zeros per kilobyte, compressed, without end."""
    head = _OK + b"Content-Encoding: gzip\r\n\r\n" + _GZIP_HEAD
    return Script(_endless(head, _zeros() * 16), 200)


def brotli_bomb(_: Asked) -> Answer:
    """Send 64 MiB of zeros in a few kilobytes."""
    return Reply(_brotli_zeros(), headers=(("Content-Encoding", "br"),))


def long_header(_: Asked) -> Answer:
    """Send one header field of 10 MiB."""
    return Script((_OK + b"X-Long: ", *repeat(b"x" * _MIB, 10), b"\r\n\r\n"), 200)


def header_flood(_: Asked) -> Answer:
    """Send 100,000 header fields."""
    flood = [
        b"".join(b"X-%d: y\r\n" % n for n in range(k, k + 1000)) for k in range(0, 10**5, 1000)
    ]
    return Script((_OK, *flood, b"Content-Length: 2\r\n\r\nok"), 200)


def endless_headers(_: Asked) -> Answer:
    """Send short header fields without end."""
    return Script(_endless(_OK, b"X-More: and more\r\n" * 500))


def endless_continue(_: Asked) -> Answer:
    """Send informational answers, and never a final one."""
    return Script(_endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 200))


def cut_body(_: Asked) -> Answer:
    """Send half of the declared length."""
    return Script((_OK + b"Content-Length: 2000\r\n\r\n" + b"x" * 1000,), 200)


def cut_chunk(_: Asked) -> Answer:
    """Close the connection inside a chunk."""
    return Script((_OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n400\r\nhalf",), 200)


def cut_chunks(_: Asked) -> Answer:
    """Close the connection between two chunks, without the last one."""
    return Script((_OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",), 200)


def bad_chunk(_: Asked) -> Answer:
    """Send a chunk whose size is not a number."""
    return Script((_OK + b"Transfer-Encoding: chunked\r\n\r\nmany\r\nhello\r\n0\r\n\r\n",), 200)


def cut_gzip(_: Asked) -> Answer:
    """Send half of a compressed body, with the right length."""
    whole = zlib.compress(_PIECE, wbits=31)
    return Reply(whole[: len(whole) // 2], headers=(("Content-Encoding", "gzip"),))


def false_gzip(_: Asked) -> Answer:
    """Send a body that is declared compressed and is not."""
    return Reply(_PIECE, headers=(("Content-Encoding", "gzip"),))


def two_lengths(_: Asked) -> Answer:
    """Send two contradicting lengths."""
    return Script((_OK + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello",), 200)


def bad_status(_: Asked) -> Answer:
    """Send an invalid status line."""
    return Script((b"HTTP/1.1 fine thanks\r\nContent-Length: 2\r\n\r\nok",))


def garbage(_: Asked) -> Answer:
    """Send bytes that are not HTTP."""
    return Script((bytes(range(256)) * 16,))


def reset(_: Asked) -> Answer:
    """Reset the connection instead of answering."""
    return Script((Hangup.RESET,))


def reset_body(_: Asked) -> Answer:
    """Reset the connection in the middle of a body."""
    return Script((_OK + b"Content-Length: 2000\r\n\r\n" + b"x" * 1000, _DRIP, Hangup.RESET), 200)


def empty_reply(_: Asked) -> Answer:
    """Close the connection instead of answering."""
    return Script(())


def silence(_: Asked) -> Answer:
    """Send nothing for an hour."""
    return Script((3600.0,))


def _dripping(head: bytes) -> Iterator[Step]:
    yield head
    while True:
        yield _DRIP
        yield b"x"


def _endless(head: bytes, piece: bytes) -> Iterator[Step]:
    yield head
    yield from repeat(piece)


@lru_cache(maxsize=1)
def _zeros() -> bytes:
    """Return 1 MiB of zeros as a block that can be anywhere in a deflate stream."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(bytes(_MIB)) + packer.flush(zlib.Z_FULL_FLUSH)


@lru_cache(maxsize=1)
def _brotli_zeros() -> bytes:
    import brotli  # type: ignore[import-untyped]  # noqa: PLC0415 - untyped extra, for this page only

    packed: bytes = brotli.compress(bytes(64 * _MIB), quality=1)
    return packed
