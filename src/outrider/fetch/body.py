"""Bodies unpacked: whatever a host sends, hardly more than the limit is ever made of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import brotli  # type: ignore[import-untyped]  # it has no stubs

from outrider.fetch.reasons import SIZE, UNPACKING

ACCEPTED: Final = "gzip, deflate, br"
LAYERS: Final = 3  # encodings on top of each other
MEMBERS: Final = 100  # of one gzip body: each costs a copy of what follows
CUT: Final = "cut: packed body"

_GZIP: Final = 16 + zlib.MAX_WBITS
_MAGIC: Final = b"\x1f\x8b"


def unpack(body: bytes, encoding: str, most: int) -> bytes | str:
    """What was packed as the header `Content-Encoding` says, or the reason why it cannot be had.

    An encoding we do not know, and all beneath it, is left as it is: what servers write there is
    often no encoding at all.
    """
    layers = [name for name in encoding.lower().replace(" ", "").split(",") if name != "identity"]
    if not body:
        return body
    if len(layers) > LAYERS:
        return UNPACKING
    for name in reversed(layers):
        if name not in _UNPACKERS:
            return body
        unpacked = _unpacked(body, _UNPACKERS[name], most)
        if isinstance(unpacked, str):
            return unpacked
        body = unpacked
    return body


def _unpacked(body: bytes, unpacker: _Unpacker, most: int) -> bytes | str:
    try:
        return unpacker(body, most)
    except (zlib.error, brotli.error):
        return UNPACKING


def _gunzip(body: bytes, most: int) -> bytes | str:
    pieces, room = [], most
    for _ in range(MEMBERS):
        member = zlib.decompressobj(_GZIP)
        pieces.append(member.decompress(body, room + 1))
        room -= len(pieces[-1])
        if room < 0:
            return SIZE
        if not member.eof:
            return CUT
        body = member.unused_data
        if not body.startswith(_MAGIC):  # padding, which every browser ignores
            return b"".join(pieces)
    return UNPACKING


def _inflate(body: bytes, most: int) -> bytes | str:
    # By the standard it has zlib's frame; many servers leave that out.
    framed = body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
    stream = zlib.decompressobj(zlib.MAX_WBITS if framed else -zlib.MAX_WBITS)
    unpacked = stream.decompress(body, most + 1)
    if len(unpacked) > most:
        return SIZE
    return unpacked if stream.eof else CUT


def _unbrotli(body: bytes, most: int) -> bytes | str:
    stream = brotli.Decompressor()
    # It stops within one block of the limit, and blocks double: less than twice the limit is made.
    unpacked: bytes = stream.process(body, output_buffer_limit=most + 1)
    if len(unpacked) > most:
        return SIZE
    return unpacked if stream.is_finished() else CUT


_Unpacker = Callable[[bytes, int], bytes | str]
_UNPACKERS: Final[dict[str, _Unpacker]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
}
