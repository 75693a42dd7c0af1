"""Bytes that a host sends unasked never answer a request, and cost it the connection (K1)."""

import asyncio
import socket

import pytest
from aiohttp import ServerDisconnectedError

from outrider.fetch.http1 import Http1Client
from outrider.fetch.http1_connection import ConnectionHandler
from outrider.fetch.http2 import Http2Client
from outrider.settings.worker_schema import FetchSettings

HEAD = b"HTTP/1.1 200 OK\r\n"
GOOD = HEAD + b"Content-Length: 4\r\n\r\ngood"
EVIL = HEAD + b"Content-Length: 4\r\n\r\nevil"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n"
EMPTY = HEAD + b"Content-Length: 0\r\n\r\n"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
NOT_MODIFIED = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\n\r\n"

ANSWERS = {
    "a length": GOOD,
    "chunks": CHUNKED,
    "no body": EMPTY,
    "status 204": NO_CONTENT,
    "status 304": NOT_MODIFIED,
}
SURPLUS = {
    "an answer": EVIL,
    "a hundred answers": EVIL * 100,
    "half an answer": EVIL[:-2],
    "half a head": EVIL[:12],
    "one byte": b"H",
    "a line end": b"\r\n",
    "a body": b"evil",
    "an interim answer": HINTS,
    "a switch of protocols": b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "zeros": bytes(100_000),
}


@pytest.fixture(params=[Http1Client, Http2Client])
def kind(request):
    """Both promise the same."""
    return request.param


class Host:
    """Sends pieces after the first request, each on its own; then good answers to all others."""

    def __init__(self, *pieces, before=b"", rest=b""):
        self.pieces, self.before, self.rest = pieces, before, rest
        self.connections = 0
        self.is_sent = asyncio.Event()

    async def __call__(self, reader, writer):
        """Serve one connection until it ends."""
        self.connections += 1
        if self.connections > 1:
            return await self._serve_well(reader, writer)
        writer.write(self.before)
        await reader.readuntil(b"\r\n\r\n")
        for piece in self.pieces:
            writer.write(piece)
            await asyncio.sleep(0.01)
        self.is_sent.set()
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.rest + GOOD)
        return await self._serve_well(reader, writer)

    async def _serve_well(self, reader, writer):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(GOOD)


@pytest.fixture
async def visit(net, server_tls, client_tls):
    """Make a client for one host."""

    async def opened(host, *, is_tls=False):
        server = await net.serve({}, server_tls if is_tls else None)
        server._answer = host
        named = {".": f"127.0.0.1:{server.port}"}
        client = net.client(connect_to=named, _tls=client_tls if is_tls else None, read_timeout=5.0)
        return lambda path: client.get(f"{'https' if is_tls else 'http'}://web.test{path}")

    return opened


async def bodies_of(visit, host, *, is_tls=False):
    """Ask three times, and once more only when the host has sent all it has."""
    get = await visit(host, is_tls=is_tls)
    first = await get("/a")
    await host.is_sent.wait()
    return [getattr(each, "body", b"") for each in (first, await get("/b"), await get("/c"))]


@pytest.mark.parametrize("is_tls", [False, True])
async def test_bytes_on_an_idle_connection_end_it(visit, is_tls):
    """The next request goes over a connection of its own."""
    hosts = {name: Host(GOOD, surplus) for name, surplus in SURPLUS.items()}
    got = await asyncio.gather(*(bodies_of(visit, each, is_tls=is_tls) for each in hosts.values()))
    assert dict(zip(hosts, got, strict=True)) == dict.fromkeys(hosts, [b"good"] * 3)
    assert {name: host.connections for name, host in hosts.items()} == dict.fromkeys(hosts, 2)


@pytest.mark.parametrize("answer", ANSWERS)
async def test_bytes_behind_an_answer_end_the_connection(visit, kind, answer):
    """Also where they come with its last byte; the answer itself may be lost with them.

    curl throws away what it reads behind the last chunk, and may keep the connection.
    """
    hosts = {name: Host(ANSWERS[answer] + surplus) for name, surplus in SURPLUS.items()}
    got = await asyncio.gather(*(bodies_of(visit, each) for each in hosts.values()))
    assert {first for first, _, _ in got} <= {b"", b"good"}
    later = {name: each[1:] for name, each in zip(hosts, got, strict=True)}
    assert later == dict.fromkeys(hosts, [b"good"] * 2)
    if kind is Http1Client or answer != "chunks":
        assert {name: host.connections for name, host in hosts.items()} == dict.fromkeys(hosts, 2)


async def test_bytes_behind_a_body_that_came_in_two_end_the_connection(visit):
    """The body is being read while its end comes, and the connection is released at once."""
    hosts = {name: Host(GOOD[:-2], GOOD[-2:] + surplus) for name, surplus in SURPLUS.items()}
    got = await asyncio.gather(*(bodies_of(visit, each) for each in hosts.values()))
    later = {name: each[1:] for name, each in zip(hosts, got, strict=True)}
    assert later == dict.fromkeys(hosts, [b"good"] * 2)
    assert {name: host.connections for name, host in hosts.items()} == dict.fromkeys(hosts, 2)


async def test_half_an_answer_is_not_completed_behind_the_next_request(visit):
    """A host cannot answer one URL with what it sent for another."""
    host = Host(GOOD + EVIL[:-2], rest=EVIL[-2:])
    get = await visit(host)
    await get("/a")
    await host.is_sent.wait()
    assert (await get("/b")).body == b"good"


async def test_clean_answers_keep_their_connection(visit):
    """In one piece, in two, and a byte at a time."""
    whole = [Host(answer) for answer in ANSWERS.values()]
    cut = [Host(answer[:-1], answer[-1:]) for answer in ANSWERS.values()]
    crumbs = [Host(*(bytes([each]) for each in answer)) for answer in ANSWERS.values()]
    hosts = [*whole, *cut, *crumbs]
    got = await asyncio.gather(*(bodies_of(visit, each) for each in hosts))
    assert {tuple(later) for _, *later in got} == {(b"good", b"good")}
    assert [host.connections for host in hosts] == [1] * len(hosts)


@pytest.mark.parametrize("is_tls", [False, True])
async def test_bytes_before_the_request_are_refused(visit, is_tls):
    """The first connection may come too late to tell; no later request is answered by it."""
    host = Host(GOOD, before=EVIL)
    get = await visit(host, is_tls=is_tls)
    await get("/a")
    assert [(await get(path)).body for path in ("/b", "/c")] == [b"good"] * 2


async def test_new_connection_over_which_bytes_came_fails_the_request(net, monkeypatch):
    """Nothing is sent over it, and there is no second try: the host would do it again."""
    monkeypatch.setattr(ConnectionHandler, "has_unrequested_bytes", lambda handler: True)
    client, server = Http1Client(FetchSettings(), allow_private=True), await net.serve({})
    got = await client.get(server.url + "/")
    await client.close()
    assert (got.reason, server.heads, server.connections) == ("protocol: message", [], 1)


@pytest.mark.parametrize("is_tls", [False, True])
async def test_large_answer_that_ends_with_its_connection_is_whole(
    net, server_tls, client_tls, is_tls
):
    """Reading is paused while the end has come already."""
    size = 1_000_000

    async def ends(reader, writer):
        writer.write(HEAD + b"Connection: close\r\n\r\n" + bytes(size))

    async def ends_in_chunks(reader, writer):
        chunks = b"64\r\n%b\r\n" % bytes(100) * (size // 100)
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")

    server = await net.serve({"/a": ends, "/b": ends_in_chunks}, server_tls if is_tls else None)
    named = {".": f"127.0.0.1:{server.port}"}
    client = net.client(connect_to=named, _tls=client_tls if is_tls else None)
    urls = [f"http{'s' * is_tls}://web.test/{path}" for path in "abab"]
    got = await asyncio.gather(*map(client.get, urls))
    assert [len(each.body) for each in got] == [size] * len(urls)


async def test_large_clean_answers_keep_their_connection(visit):
    """However often reading was paused."""
    size = 1_000_000
    host = Host(HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size))
    get = await visit(host)
    assert len((await get("/a")).body) == size
    await host.is_sent.wait()
    assert (await get("/b")).body == b"good"
    assert host.connections == 1


async def test_surplus_behind_a_large_answer_ends_the_connection(visit):
    """Also where parsing was paused before it."""
    size = 1_000_000
    host = Host(HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size) + EVIL)
    get = await visit(host)
    assert len((await get("/a")).body) == size
    await host.is_sent.wait()
    assert (await get("/b")).body == b"good"
    assert host.connections == 2


@pytest.fixture
async def connected():
    """A connection of a client and the socket of its host."""
    here, there = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, handler = await loop.create_connection(
        lambda: ConnectionHandler(loop, {}), sock=here
    )
    yield handler, there
    transport.abort()
    there.close()


async def test_bytes_that_no_request_was_sent_for_are_found_in_the_socket(connected):
    """Before the loop could read them; an end that is all there is has a reason of its own."""
    handler, there = connected
    assert not handler.has_unrequested_bytes()
    there.send(EVIL)
    assert handler.has_unrequested_bytes()


@pytest.mark.parametrize("is_used", [False, True])
async def test_end_of_a_connection_spoils_it_only_for_another_request(connected, is_used):
    """A new connection that ends is told as cut; a kept one is passed over."""
    handler, there = connected
    handler.is_used = is_used
    there.close()
    assert handler.has_unrequested_bytes() is is_used


async def test_bytes_before_the_request_was_sent_end_the_connection(connected):
    """Whatever is done with the connection then, they are not parsed."""
    handler, _ = connected
    handler.set_response_params()
    handler.data_received(EVIL)
    assert handler.has_unrequested_bytes()
    assert not handler.is_connected()
    handler.begin_response()
    with pytest.raises(ServerDisconnectedError):
        await handler.read()


async def test_bytes_that_wait_when_the_connection_ends_belong_to_the_answer(connected):
    """Reading was paused when they came, and the end came before it was resumed."""
    handler, _ = connected
    handler.set_response_params(read_until_eof=True)
    handler.begin_response()
    handler.data_received(HEAD + b"\r\nab")
    handler.pause_reading()
    handler.data_received(b"cd")
    handler.connection_lost(None)
    _, payload = await handler.read()
    assert await payload.read() == b"abcd"
