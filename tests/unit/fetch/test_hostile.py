"""Every way a host can misbehave ends as one value with its reason, and the client goes on."""

import asyncio
import gzip
import itertools
import socket
import struct
import tracemalloc

import brotli
import pytest

from outrider.core.outcome import Dropped, Failed
from outrider.fetch.http1 import Http1Client
from outrider.fetch.http2 import Http2Client
from outrider.fetch.http_client import MAX_INTERIM_RESPONSES

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
MIB = 2**20

# What curl tells less of, or sees otherwise.
OVER_CURL = {
    "slow field": "time limit: read",
    "blank lines": "protocol: status line",
    "garbage for a chunk": "cut: body",
    "garbage for a later chunk": "cut: body",
    "a chunk longer than it says": "cut: body",
    "NUL in a field": "protocol: message",
}


@pytest.fixture(params=[Http1Client, Http2Client])
def kind(request):
    """Both promise the same."""
    return request.param


def says(*pieces):
    """Each piece on its own, then the end of the connection."""

    async def script(reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    return script


def goes_on(*pieces, pause=0.0):
    """The first piece, then the others over and over, until nobody listens."""

    async def script(reader, writer):
        writer.write(pieces[0])
        for piece in itertools.cycle(pieces[1:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return script


def falls_silent(*pieces):
    """Each piece, then nothing; the connection stays."""

    async def script(reader, writer):
        writer.write(b"".join(pieces))
        await reader.read()

    return script


def resets(*pieces):
    """Each piece, then a reset."""

    async def script(reader, writer):
        await says(*pieces)(reader, writer)
        now = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        writer.transport.abort()

    return script


FAILING = {
    # silence and slowness
    "silence": (falls_silent(), "time limit: read"),
    "silence in the head": (falls_silent(HEAD), "time limit: read"),
    "silence in the body": (falls_silent(OK[:-1]), "time limit: read"),
    "slow head": (goes_on(HEAD, b"X: y\r\n", pause=0.02), "time limit: total"),
    "slow field": (goes_on(HEAD + b"X: ", b"y", pause=0.02), "time limit: total"),
    "slow body": (goes_on(HEAD + b"\r\n", b"y", pause=0.02), "time limit: total"),
    "slow chunks": (goes_on(CHUNKED, b"1\r\ny\r\n", pause=0.02), "time limit: total"),
    # cut
    "no answer": (says(), "cut: no answer"),
    "blank lines": (says(b"\r\n\r\n"), "cut: no answer"),
    "cut in the head": (says(HEAD + b"Content-"), "cut: head"),
    "cut in the body": (says(OK[:-1]), "cut: body"),
    "cut before the body": (says(OK[:-2]), "cut: body"),
    "cut in a chunk": (says(CHUNKED + b"5\r\nhel"), "cut: body"),
    "cut between chunks": (says(CHUNKED, b"5\r\nhello\r\n"), "cut: body"),
    "cut before the last chunk's end": (says(CHUNKED + b"5\r\nhello\r\n0\r\n"), "cut: body"),
    "reset": (resets(), "cut: reset"),
    "reset in the body": (resets(OK[:-1]), "cut: body"),
    "cut in a packed body": (
        says(HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"hello")[:-4]),
        "cut: packed body",
    ),
    # not HTTP
    "words": (says(b"hello, who is there?\r\n\r\n"), "protocol: status line"),
    "HTTP/0.9": (says(b"<html>hello</html>"), "protocol: status line"),
    "TLS": (says(b"\x16\x03\x01\x00\x05hello"), "protocol: status line"),
    "no number": (says(b"HTTP/1.1 abc OK\r\n\r\n"), "protocol: status line"),
    "negative length": (says(HEAD + b"Content-Length: -5\r\n\r\nhello"), "protocol: message"),
    "absurd length": (
        says(HEAD + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n"),
        "protocol: message",
    ),
    "two lengths": (
        says(HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi"),
        "protocol: message",
    ),
    "length and chunks": (
        says(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        "protocol: message",
    ),
    "garbage for a chunk": (says(CHUNKED + b"zz\r\nhello\r\n"), "protocol: message"),
    "garbage for a later chunk": (says(CHUNKED, b"2\r\nhi\r\n", b"zz\r\n"), "protocol: message"),
    "a chunk longer than it says": (says(CHUNKED, b"2\r\nhello\r\n"), "protocol: message"),
    "NUL in a field": (says(HEAD + b"X: a\0b\r\n\r\n"), "protocol: header"),
    "a bare return in a field": (says(HEAD + b"X: a\rb\r\n\r\n"), "protocol: message"),
    "interim answers without end": (
        goes_on(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        "protocol: message",
    ),
    "another protocol": (
        falls_silent(b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc"),
        "protocol: switched",
    ),
}

DROPPED = {
    # endless and large
    "endless body": (goes_on(HEAD + b"\r\n", bytes(65536)), "size"),
    "endless chunks": (goes_on(CHUNKED, (b"40\r\n%b\r\n" % (b"y" * 64)) * 256), "size"),
    "a length beyond the limit": (falls_silent(HEAD + b"Content-Length: 1048577\r\n\r\n"), "size"),
    "a gzip bomb": (
        says(HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(32 * MIB))),
        "size",
    ),
    "a brotli bomb": (
        says(HEAD + b"Content-Encoding: br\r\n\r\n" + brotli.compress(bytes(32 * MIB), quality=4)),
        "size",
    ),
    "a field without end": (goes_on(HEAD + b"X: ", bytes(65536).replace(b"\0", b"y")), "headers"),
    "fields without end": (goes_on(HEAD, b"X: yyyyyyyyyyyy\r\n" * 4096), "headers"),
    "10 MB of fields": (
        says(HEAD + (b"X: " + b"y" * 10_000 + b"\r\n") * 1000 + b"\r\n"),
        "headers",
    ),
    "fields that are too much together": (
        says(HEAD + (b"X: " + b"y" * 10_000 + b"\r\n") * 10 + b"\r\n"),
        "headers",
    ),
    "a status line without end": (goes_on(b"HTTP/1.1 200 ", b"y" * 65536), "headers"),
    "trailers without end": (goes_on(CHUNKED + b"0\r\n", b"X: " + b"y" * 20_000), "headers"),
    # nonsense
    "not packed as it says": (
        says(HEAD + b"Content-Encoding: gzip\r\n\r\n<html>plain</html>"),
        "unpacking",
    ),
}


# The one limit that is meant: whoever is not scheduled for a while must not meet the other.
IMPATIENCE = {
    "time limit: read": {"read_timeout": 0.25},
    "time limit: total": {"total_timeout": 0.5},
}


def reason_of(case, kind):
    """What is told of a case."""
    told = (FAILING | DROPPED)[case][1]
    return OVER_CURL.get(case, told) if kind is Http2Client else told


@pytest.mark.parametrize("case", FAILING)
async def test_what_may_be_better_next_time_has_failed(net, kind, case):
    """One value, one connection, and the next request is answered."""
    script, reason = FAILING[case][0], reason_of(case, kind)
    server = await net.serve({"/bad": script, "/good": OK})
    client = net.client(max_body=MIB, **IMPATIENCE.get(reason, {}))
    got = await client.get(server.url + "/bad")
    assert got == Failed(reason, got.seconds)
    assert got.seconds > 0
    assert server.connections == 1
    assert (await client.get(server.url + "/good")).body == b"hi"


@pytest.mark.parametrize("case", DROPPED)
async def test_what_we_do_not_want_is_dropped(net, kind, case):
    """One value, one connection, and the next request is answered."""
    script, reason = DROPPED[case][0], reason_of(case, kind)
    server = await net.serve({"/bad": script, "/good": OK})
    client = net.client(max_body=MIB)
    got = await client.get(server.url + "/bad")
    assert got == Dropped(reason, got.seconds, visited=True)
    assert server.connections == 1
    assert (await client.get(server.url + "/good")).body == b"hi"


async def test_body_in_tiny_chunks_takes_memory_by_its_size(net):
    """K1: what is kept is the bytes, not an object for every chunk.

    aiohttp holds some 16,000 chunks that wait to be read, which is 3 MB whatever the body's size.
    """
    size = 600_000

    async def dribbles(reader, writer):
        writer.write(CHUNKED)
        for _ in range(size // 3000):
            writer.write(b"3\r\nxxx\r\n" * 1000)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await reader.read()

    server = await net.serve({"/": OK, "/tiny": dribbles})
    client = net.client()
    await client.get(server.url + "/")
    tracemalloc.start()
    try:
        got = await client.get(server.url + "/tiny")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert got.body == b"x" * size
    assert peak < 10 * size


async def test_a_caller_may_have_less_time(net):
    """`within` narrows the whole, however little it is."""
    server = await net.serve({"/": falls_silent()})
    client = net.client(read_timeout=60.0, total_timeout=60.0)
    for within in (0.05, 0.0, -1.0):
        got = await client.get(server.url + "/", within=within)
        assert got.reason in {"time limit: total", "connect: time limit"}


async def test_a_few_interim_answers_are_passed_over(net):
    """They are part of HTTP, each time anew."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * MAX_INTERIM_RESPONSES
    server = await net.serve({"/": hints + OK})
    client = net.client()
    assert [(await client.get(server.url + "/")).body for _ in range(3)] == [b"hi"] * 3
    assert server.connections == 1


async def test_what_follows_an_answer_is_not_taken_for_the_next(net):
    """A host that sends more than was asked for loses its connection."""
    server = await net.serve({"/a": OK + OK.replace(b"hi", b"ho"), "/b": OK})
    client = net.client()
    assert [(await client.get(server.url + path)).body for path in ("/a", "/b")] == [b"hi"] * 2
    assert server.connections == 2


@pytest.mark.slow
async def test_many_bad_hosts_at_one_time_leave_the_others_alone(net, kind):
    """All kinds together, again and again, with good requests between them.

    Only what is meant to meet a time limit is given a short one: on a slow machine the others
    would meet it too, before the limit that they are about.
    """
    kinds = FAILING | DROPPED
    bad = {f"/{number}": script for number, (script, _) in enumerate(kinds.values())}
    server = await net.serve(bad | {"/good": OK})
    clients = {reason: net.client(max_body=MIB, **limits) for reason, limits in IMPATIENCE.items()}
    patient = net.client(max_body=MIB)
    wanted = [reason_of(case, kind) for case in kinds]
    got = await asyncio.gather(
        *(
            clients.get(reason, patient).get(server.url + path)
            for path, reason in zip(bad, wanted, strict=True)
        ),
        patient.get(server.url + "/good"),
    )
    assert [getattr(each, "reason", None) for each in got[:-1]] == wanted
    assert got[-1].body == b"hi"
