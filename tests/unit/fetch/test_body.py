import gzip
import tracemalloc
import zlib

import brotli
import pytest

from outrider.fetch.http_client import CUT_BODY, MAX_ENCODINGS, MAX_GZIP_MEMBERS, unpack
from outrider.fetch.response import BAD_ENCODING, BODY_TOO_LARGE

TEXT = b"On the harbour wall an otter sat. " * 100
MOST = 10_000
MIB = 2**20


def quick_brotli(data):
    """As hosts pack on the fly."""
    return brotli.compress(data, quality=4)


def raw_deflate(data):
    """Without the frame of zlib."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": quick_brotli,
}
packed_ways = pytest.mark.parametrize(
    ("name", "pack"), [*PACKERS.items(), ("deflate", raw_deflate)], ids=[*PACKERS, "raw-deflate"]
)


@packed_ways
def test_what_was_packed_is_unpacked(name, pack):
    """Every encoding we ask for, also deflate without its frame, as many servers send it."""
    assert unpack(pack(TEXT), name, MOST) == TEXT


@packed_ways
def test_the_limit_is_the_last_byte_that_is_allowed(name, pack):
    """A body of exactly the limit is whole; one byte more is too long."""
    assert unpack(pack(TEXT), name, len(TEXT)) == TEXT
    assert unpack(pack(TEXT), name, len(TEXT) - 1) == BODY_TOO_LARGE


@packed_ways
def test_a_bomb_ends_at_the_limit_without_being_made(name, pack):
    """Of a body that would unpack to 32 times the limit, little more than the limit is made."""
    bomb = pack(bytes(32 * MIB))
    tracemalloc.start()
    try:
        assert unpack(bomb, name, MIB) == BODY_TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


@packed_ways
def test_a_packed_body_that_ends_too_early_is_cut(name, pack):
    """The transfer was whole, its content is not: the end of the stream is missing."""
    assert unpack(pack(TEXT)[:-3], name, MOST) == CUT_BODY


@packed_ways
def test_what_is_not_packed_as_it_says_is_refused(name, pack):
    """A body that is labelled as packed and is not, or is corrupt, cannot be unpacked."""
    assert unpack(b"\xff\xff<html>plain text, but labelled</html>", name, MOST) == BAD_ENCODING


@packed_ways
def test_an_empty_body_has_nothing_to_unpack(name, pack):
    """A 304 may carry the encoding of the body it does not have."""
    assert unpack(b"", name, MOST) == b""


@pytest.mark.parametrize("name", ["utf-8", "none", "zstd", "identity", ""])
def test_an_unknown_encoding_leaves_the_body_as_it_came(name):
    """What servers write there is often no encoding; and what is, we did not ask for."""
    assert unpack(TEXT, name, MOST) == TEXT


def test_names_are_read_in_any_case_and_spacing():
    """`GZIP`, ` gzip ` and `identity, gzip` are gzip."""
    packed = gzip.compress(TEXT)
    assert {unpack(packed, name, MOST) for name in ("GZIP", " gzip ", "identity,gzip")} == {TEXT}


def test_layers_come_off_from_the_outside_in():
    """`deflate, gzip` was deflated first; what lies under an unknown one stays."""
    both = gzip.compress(zlib.compress(TEXT))
    assert unpack(both, "deflate, gzip", MOST) == TEXT
    assert unpack(both, "deflate, unheard, gzip", MOST) == zlib.compress(TEXT)


def test_more_layers_than_anyone_needs_are_refused():
    """Each layer multiplies what a small body can cost."""
    packed = TEXT
    for _ in range(MAX_ENCODINGS + 1):
        packed = gzip.compress(packed)
    assert unpack(packed, ",".join(["gzip"] * (MAX_ENCODINGS + 1)), MOST) == BAD_ENCODING


def test_a_bomb_inside_a_bomb_ends_at_the_limit():
    """The limit holds for every layer."""
    assert unpack(gzip.compress(gzip.compress(bytes(16 * MIB))), "gzip,gzip", MIB) == BODY_TOO_LARGE


def test_members_of_a_gzip_body_are_one_body():
    """Packed in pieces, it is read whole, and what pads it is ignored."""
    packed = gzip.compress(TEXT[:50]) + gzip.compress(TEXT[50:])
    assert unpack(packed + bytes(20), "gzip", MOST) == TEXT


def test_the_limit_holds_for_all_members_together():
    """Many small members cannot pass for a small body."""
    assert unpack(gzip.compress(TEXT) * 5, "gzip", 4 * len(TEXT)) == BODY_TOO_LARGE


def test_too_many_members_are_refused():
    """Empty members cost a copy of the rest each, and mean nothing."""
    assert unpack(gzip.compress(b"") * (MAX_GZIP_MEMBERS + 1), "gzip", MOST) == BAD_ENCODING
