import asyncio
import zlib
from contextlib import suppress

import brotli
import pytest

from outrider.core import outcome
from outrider.testing.web import HOSTILE, WebServer, rough_world
from outrider.testing.web.hostile import HOST, ODD_LINKS, PRIVATE_LINKS, site

SLOW = {"/slow-headers", "/slow-body", "/silence"}
ENDLESS = {"/endless-body", "/endless-chunked", "/gzip-bomb", "/endless-headers"} | {
    "/endless-continue"
}


@pytest.fixture
async def server():
    """The rough world, switched on."""
    async with WebServer(rough_world()) as server:
        yield server


def test_every_path_has_an_expected_outcome():
    """One or more of the outcomes there are, fit for isinstance."""
    made = [
        outcome.Done(200),
        outcome.Failed("x"),
        outcome.Dropped("x"),
        outcome.Unreachable("x"),
        outcome.Blocked("x"),
        outcome.Throttled(),
    ]
    for path, expected in HOSTILE.items():
        assert path in site().paths
        assert any(isinstance(value, expected) for value in made)
        assert not isinstance(made[-1], expected)


async def test_slow_ones_send_byte_after_byte_and_never_end(server):
    """A head, or its first line; then a byte at a time."""
    for path in sorted(SLOW - {"/silence"}):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        head = await reader.read(1000)
        assert (b"\r\n\r\n" in head) is (path == "/slow-body")
        assert [await reader.read(1000) for _ in range(2)] == [b"x", b"x"]
        writer.close()


async def test_silence_is_silent(server, ask):
    """Not a byte, not an end."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(server, HOST, "/silence"), 0.1)


@pytest.mark.parametrize("path", sorted(ENDLESS))
async def test_endless_ones_go_on(server, ask, recorded, path):
    """Beyond whatever a visitor reads; when it has enough, the hit is over and cut."""
    heard = await ask(server, HOST, path, most=3 << 20)
    (hit,) = await recorded(server, 1)

    assert len(heard.raw) >= 3 << 20
    assert hit.is_cut
    assert hit.bytes >= 3 << 20


async def test_an_endless_answer_leaves_others_their_turn(server, ask):
    """Two can be served at once."""
    endless = asyncio.ensure_future(ask(server, HOST, "/endless-body", most=1 << 40))
    assert (await asyncio.wait_for(ask(server, HOST, "/"), 60)).status == 200
    assert not endless.done()
    endless.cancel()
    with suppress(asyncio.CancelledError):
        await endless


async def test_bombs_are_small_to_carry_and_large_to_open(server, ask):
    """A thousandfold, and more."""
    heard = await ask(server, HOST, "/gzip-bomb", most=1 << 16)
    opened = zlib.decompressobj(31).decompress(heard.body)
    assert len(opened) > 30 << 20
    heard = await ask(server, HOST, "/brotli-bomb")
    assert len(heard.body) < 1 << 16
    assert len(brotli.decompress(heard.body)) == 64 << 20


async def test_heads_are_as_large_as_they_say(server, ask):
    """One field of ten mebibytes; a hundred thousand fields."""
    heard = await ask(server, HOST, "/long-header", most=1 << 30)
    assert len(heard.headers["x-long"]) == 10 << 20
    heard = await ask(server, HOST, "/header-flood", most=1 << 30)
    assert len(heard.headers) > 100_000


@pytest.mark.parametrize(
    ("path", "length"), [("/cut-body", 1000), ("/reset-body", 1000), ("/two-lengths", 5)]
)
async def test_bodies_break_off(server, ask, path, length):
    """Before the length they promised."""
    received = b""
    with suppress(ConnectionResetError):
        received = (await ask(server, HOST, path, most=1100)).body

    assert len(received) <= length


async def test_cut_chunks_have_no_last_one(server, ask):
    """Inside a chunk, between two, or with a size that is none."""
    for path, end in (("/cut-chunk", b"half"), ("/cut-chunks", b"hello\r\n")):
        assert (await ask(server, HOST, path)).body.endswith(end)
    assert b"many\r\n" in (await ask(server, HOST, "/bad-chunk")).body


async def test_false_and_cut_gzip_cannot_be_opened(server, ask):
    """One is none, one is half."""
    for path in ("/false-gzip", "/cut-gzip"):
        heard = await ask(server, HOST, path)
        assert heard.headers["content-encoding"] == "gzip"
        with pytest.raises((zlib.error, EOFError)):
            zlib.decompress(heard.body, wbits=31)


async def test_some_do_not_speak_http(server, ask):
    """A bad status line, plain garbage, nothing."""
    assert (await ask(server, HOST, "/bad-status")).raw.startswith(b"HTTP/1.1 fine")
    assert len((await ask(server, HOST, "/garbage")).raw) == 4096
    assert (await ask(server, HOST, "/empty-reply")).raw == b""
    assert [hit.status for hit in server.hits] == [0, 0, 0]


async def test_resets_are_resets(server, ask):
    """The visitor gets an error, not an end; the record has a hit that nobody cut."""
    with pytest.raises(ConnectionResetError):
        await ask(server, HOST, "/reset")
    (hit,) = server.hits
    assert not hit.is_cut


async def test_redirects_lead_in_circles(server, ask):
    """To each other, to themselves, nowhere."""
    back = (await ask(server, HOST, "/redirect-loop")).headers["location"]
    assert (await ask(server, HOST, back)).headers["location"] == "/redirect-loop"
    assert (await ask(server, HOST, "/redirect-self")).headers["location"] == "/redirect-self"
    assert len((await ask(server, HOST, "/redirect-long")).headers["location"]) > 12_000


async def test_pages_are_as_hard_to_read_as_they_say(server, ask):
    """All are answers of less than ten mebibytes."""
    body = {
        path: (await ask(server, HOST, path, most=1 << 30)).body
        for path, expected in HOSTILE.items()
        if expected is outcome.Done
    }
    assert all(len(page) < 10 << 20 for page in body.values())
    assert body["/deep-nesting"].count(b"<div>") == 200_000
    assert len(body["/long-attribute"]) > 4 << 20
    assert body["/many-attributes"].count(b"=1") == 900_000
    assert body["/many-links"].count(b"<a href") == 100_000
    assert b"\x00" in body["/null-bytes"]
    assert body["/odd-links"].count(b"<a href") == len(ODD_LINKS)
    assert body["/private-links"].count(b"<a href") == len(PRIVATE_LINKS)
    with pytest.raises(UnicodeDecodeError):
        body["/wrong-charset"].decode("ascii")


async def test_every_path_is_answered_and_recorded(server, ask, recorded):
    """Whatever becomes of it, the server is there afterwards, and knows each visit."""
    for path in HOSTILE:
        with suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(
                ask(server, HOST, path, most=1 << 16), 0.5 if path in SLOW else 5
            )
    assert (await ask(server, HOST, "/")).status == 200
    hits = await recorded(server, len(HOSTILE) + 1)

    assert sorted(hit.target for hit in hits) == sorted([*HOSTILE, "/"])
