import asyncio
import gzip
import socket
import sys
import zlib

import brotli
import pytest

from outrider.core.outcome import Dropped, Failed, Unreachable
from outrider.fetch import response as response_module
from outrider.fetch.http1 import Http1Client
from outrider.fetch.http2 import Http2Client
from outrider.fetch.http_client import user_agent
from outrider.fetch.response import Response
from outrider.settings.worker_schema import FetchSettings

TEXT = b"The market opened early, and closed late. " * 50
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@pytest.fixture(params=[Http1Client, Http2Client])
def kind(request):
    """Both promise the same."""
    return request.param


def answer(body, *fields):
    """A plain 200."""
    head = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def field(head, name):
    """One field of a request, as it was sent."""
    lines = head.decode().split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines if line).get(name)


async def lost(host):
    """A lookup that finds nobody."""
    raise socket.gaierror(socket.EAI_NONAME, "unknown")


# ---- what is told


async def test_response_is_returned_as_sent(net):
    """Fields keep their order and spelling; whom we spoke to and when is told too."""
    fields = b"X-B: 1\r\nx-a: \xc3\xa9 \xe9\r\nX-b: \xc3\xa9\r\nContent-Length: 2\r\n"
    server = await net.serve({"/a": b"HTTP/1.1 404 Not Here\r\n" + fields + b"\r\nno"})
    got = await net.client().get(server.url + "/a")
    assert isinstance(got, Response)
    assert (got.url, got.status, got.body) == (server.url + "/a", 404, b"no")
    assert (got.reason, got.version, got.address) == ("Not Here", "1.1", "127.0.0.1")
    assert got.headers == (("X-B", "1"), ("x-a", "Ã© é"), ("X-b", "é"), ("Content-Length", "2"))
    assert 0 < got.seconds < 1
    assert got.at > 1_700_000_000


async def test_redirects_are_not_followed(net):
    """Who follows is not the client: every hop is checked by others."""
    moved = b"HTTP/1.1 301 Moved\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"
    server = await net.serve({"/a": moved, "/b": OK})
    got = await net.client().get(server.url + "/a")
    assert (got.status, got.header("location"), len(server.heads)) == (301, "/b", 1)


@pytest.mark.parametrize(
    "target", ["/a%7Eb/%e9?q=[1]|2&&", "/?", "/a?b=c?", "/'();{}", "/%2e%2E/x%", "//double//"]
)
async def test_a_url_is_sent_as_it_is_spelt(net, target):
    """To a host another spelling may be another page."""
    server = await net.serve({target: OK})
    assert (await net.client().get(server.url + target)).status == 200
    assert server.heads[0].startswith(b"GET " + target.encode() + b" HTTP/1.1\r\n")


async def test_we_say_who_we_are_and_what_we_take(net):
    """Agent and contact, media types, encodings; and nothing else."""
    server = await net.serve({"/": OK})
    await net.client(user_agent="Otter", contact="https://otter.test/bot").get(server.url + "/")
    (head,) = server.heads
    assert field(head, "User-Agent").startswith("Otter/")
    assert field(head, "User-Agent").endswith(" (+https://otter.test/bot)")
    assert field(head, "Host") == f"127.0.0.1:{server.port}"
    assert field(head, "Accept-Encoding") == "gzip, deflate, br"
    assert field(head, "Accept").startswith("text/html,")
    assert head.count(b"\r\n") == 6


def test_an_agent_with_a_slash_is_whole():
    """Whoever writes one out in full is not corrected."""
    assert user_agent(FetchSettings(user_agent="Otter/2 (me)", contact="x")) == "Otter/2 (me)"
    assert "(" not in user_agent(FetchSettings(user_agent="Otter"))


async def test_given_header_fields_are_sent_if_valid(net):
    """An ETag of a host may hold what no header may; the others go out."""
    server = await net.serve({"/": OK})
    conditions = {"If-None-Match": '"a\nb"', "If-Modified-Since": "Mon, 01 Jan 2024 00:00:00 GMT"}
    await net.client().get(server.url + "/", headers=conditions)
    (head,) = server.heads
    assert field(head, "If-None-Match") is None
    assert field(head, "If-Modified-Since") == conditions["If-Modified-Since"]


async def test_cookies_are_not_kept(net):
    """Visits are strangers to each other."""
    server = await net.serve({"/": answer(b"", "Set-Cookie: a=b; Path=/")})
    client = net.client(connect_to={".": f"127.0.0.1:{server.port}"})
    await client.get("http://web.test/")
    await client.get("http://web.test/")
    assert b"cookie" not in server.heads[1].lower()


async def test_proxies_of_the_environment_are_not_used(net, monkeypatch):
    """A proxy would resolve names for us, past the guard."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = await net.serve({"/": OK})
    assert (await net.client().get(server.url + "/")).status == 200


# ---- bodies


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("br", brotli.compress)],
)
async def test_packed_bodies_are_unpacked_and_kept_packed_if_asked(net, encoding, pack):
    """The body is what was meant; what was sent is there for those who archive it."""
    packed = pack(TEXT)
    server = await net.serve({"/": answer(packed, f"Content-Encoding: {encoding}")})
    plain = await net.client().get(server.url + "/")
    kept = await net.client(keep_packed=True).get(server.url + "/")
    assert (plain.body, plain.packed) == (TEXT, None)
    assert (kept.body, kept.packed) == (TEXT, packed)


async def test_a_plain_body_is_not_kept_twice(net):
    """What was not packed has no packed form."""
    server = await net.serve({"/": answer(TEXT)})
    assert (await net.client(keep_packed=True).get(server.url + "/")).packed is None


async def test_requests_are_kept_byte_by_byte_if_asked(net):
    """K4: each its own, on a connection that is used again, as the host received it."""
    server = await net.serve({"/": OK, "/a?b=%C3%A9": OK})
    client = net.client(keep_request=True)
    first = await client.get(server.url + "/", headers={"If-None-Match": '"1"'})
    second = await client.get(server.url + "/a?b=%C3%A9")
    plain = await net.client().get(server.url + "/")

    assert [first.request, second.request] == server.heads[:2]
    assert b'If-None-Match: "1"\r\n' in first.request
    assert second.request.startswith(b"GET /a?b=%C3%A9 HTTP/1.1\r\n")
    assert server.connections == 2
    assert plain.request is None


async def test_request_that_was_repeated_is_kept_once(net):
    """K1: the one that was answered, without that on the connection that was closed."""

    async def ends(reader, writer):
        writer.write(OK)

    server = await net.serve({"/": OK, "/end": ends})
    client = net.client(keep_request=True)
    await client.get(server.url + "/end")
    again = await client.get(server.url + "/")

    assert again.request == server.heads[-1]
    assert again.request.count(b"GET ") == 1


async def test_a_chunked_body_is_whole(net):
    """Chunks are put together, and trailers are no harm."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = await net.serve({"/": head + b"5\r\nhello\r\n3;x=y\r\n ho\r\n0\r\nX: y\r\n\r\n"})
    client = net.client()
    assert [(await client.get(server.url + "/")).body for _ in range(2)] == [b"hello ho"] * 2
    assert server.connections == 1


async def test_a_long_body_without_a_length_ends_with_the_connection(net):
    """As old servers send it."""
    body = bytes(range(256)) * 8192

    async def all_of_it(reader, writer):
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
        await writer.drain()

    server = await net.serve({"/": all_of_it})
    got = await net.client().get(server.url + "/")
    assert (got.body == body, got.version) == (True, "1.0")


async def test_an_answer_that_has_no_body_may_tell_its_length(net):
    """A 304 tells the length of the page it stands for, however long."""
    head = (
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99999999\r\nContent-Encoding: gzip\r\n\r\n"
    )
    server = await net.serve({"/": head})
    client = net.client()
    got = [await client.get(server.url + "/") for _ in range(2)]
    assert [(each.status, each.body) for each in got] == [(304, b"")] * 2


@pytest.mark.parametrize("packed", [False, True])
async def test_a_body_may_be_as_long_as_allowed_and_no_longer(net, packed):
    """The limit of the settings, or the caller's if that is lower; the host was visited."""
    page = (gzip.compress(bytes(2000)), "Content-Encoding: gzip") if packed else (bytes(2000),)
    server = await net.serve({"/": answer(*page)})
    client, narrow = net.client(max_body=2000), net.client(max_body=1999)
    assert len((await client.get(server.url + "/")).body) == 2000
    assert len((await client.get(server.url + "/", max_body=5000)).body) == 2000
    for got in (
        await client.get(server.url + "/", max_body=1999),
        await narrow.get(server.url + "/"),
    ):
        assert isinstance(got, Dropped)
        assert (got.reason, got.visited) == ("size", True)


# ---- connections


async def test_a_connection_is_used_again(net):
    """Requests to a host share what is open."""
    server = await net.serve({"/": OK})
    client = net.client()
    for _ in range(5):
        assert (await client.get(server.url + "/")).status == 200
    assert server.connections == 1


async def test_requests_at_one_time_have_connections_of_their_own(net):
    """Nobody waits for another here: politeness is decided elsewhere."""
    server = await net.serve({"/": OK})
    client = net.client(connections=1)
    got = await asyncio.gather(*(client.get(server.url + "/") for _ in range(10)))
    assert [each.status for each in got] == [200] * 10


@pytest.mark.parametrize("kind", [Http1Client])
async def test_only_so_many_connections_are_kept(net):
    """What nobody uses is closed beyond the limit; who came first keeps theirs."""
    server = await net.serve({"/": OK})
    client = net.client(connections=2, connect_to={".test": f"127.0.0.1:{server.port}"})
    for host in ("a", "b", "c", "d"):
        await client.get(f"http://{host}.test/")
    for host in ("a", "b"):
        await client.get(f"http://{host}.test/")
    assert server.connections == 4
    await client.get("http://c.test/")
    assert server.connections == 5


@pytest.mark.parametrize("kind", [Http1Client])
async def test_a_connection_in_use_takes_no_place_among_the_kept(net):
    """The limit is for those that wait."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(reader, writer):
        asked.set()
        await go_on.wait()
        writer.write(OK)

    server = await net.serve({"/": OK, "/slow": slow})
    client = net.client(connections=1, connect_to={".test": f"127.0.0.1:{server.port}"})
    await client.get("http://a.test/")
    getting = asyncio.create_task(client.get("http://a.test/slow"))
    await asked.wait()
    await client.get("http://b.test/")
    await client.get("http://b.test/")
    assert server.connections == 2
    go_on.set()
    assert (await getting).status == 200


def closing_after(count):
    """An answer, until a connection has had so many; then it is closed without a word."""
    had = {}

    async def script(reader, writer):
        head = b"first"
        while head and had.setdefault(writer, 0) < count:
            had[writer] += 1
            writer.write(OK)
            head = await reader.readuntil(b"\r\n\r\n")

    return script


async def test_a_request_lost_on_a_kept_connection_is_sent_again(net):
    """A server may close a kept connection just when we use it: that is nobody's failure."""
    server = await net.serve({"/": closing_after(1)})
    client = net.client()
    got = [await client.get(server.url + "/") for _ in range(3)]
    assert [each.status for each in got] == [200] * 3
    assert server.connections == 3


async def test_a_request_lost_on_a_new_connection_is_not_sent_again(net):
    """The host heard it and did not answer; asking at once again would be rude."""
    server = await net.serve({"/": closing_after(0)})
    got = await net.client().get(server.url + "/")
    assert isinstance(got, Failed)
    assert (got.reason, server.connections) == ("cut: no answer", 1)


async def test_cancelling_passes_and_closes_the_connection(net):
    """A visit that is given up leaves nothing behind."""
    reached, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader, writer):
        reached.set()
        await reader.read()
        closed.set()

    server = await net.serve({"/": silent})
    getting = asyncio.create_task(net.client().get(server.url + "/"))
    await reached.wait()
    getting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getting
    await closed.wait()


# ---- where connections go


async def test_targets_change_where_a_connection_goes_and_nothing_else(net):
    """The host is told its own name, needs no DNS, and the guard leaves it alone."""
    server = await net.serve({"/": OK})
    named = {".web.test": f"127.0.0.1:{server.port}", "8.8.8.8": f"127.0.0.1:{server.port}"}
    client = net.client(allow_private=False, connect_to=named, _lookup=lost)
    for host in ("a.web.test", "b.web.test:8080", "8.8.8.8", "a.web.test"):
        got = await client.get(f"http://{host}/")
        assert (got.status, got.address) == (200, "127.0.0.1")
    assert [field(head, "Host") for head in server.heads] == [
        *("a.web.test", "b.web.test:8080", "8.8.8.8", "a.web.test")
    ]
    assert server.connections == 3  # hosts share none, though they lead to one place


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "inner.test"])
async def test_private_addresses_are_refused(net, host):
    """Neither by a literal address nor by a name; nothing is sent, so no delay begins."""

    async def inside(host):
        return ("127.0.0.1", "10.0.0.1")

    server = await net.serve({"/": OK})
    client = net.client(allow_private=False, _lookup=inside)
    got = await client.get(f"http://{host}:{server.port}/")
    assert got == Dropped("private-address", got.seconds, visited=False)
    assert server.connections == 0


async def test_the_socket_is_checked_even_if_the_resolver_is_not(net):
    """The last check holds on its own, should an address ever come another way."""
    server = await net.serve({"/": OK})
    client = net.client(allow_private=False)
    client._resolver._guard = type("Blind", (), {"permits": lambda *_: True})()
    got = await client.get(server.url + "/")
    assert isinstance(got, Dropped)
    assert (got.reason, server.connections) == ("private-address", 0)


async def test_unknown_host_name_is_unreachable(net):
    """DNS says so."""
    got = await net.client(_lookup=lost).get("http://nobody.test/")
    assert got == Unreachable("dns: no such host")


async def test_a_lookup_without_end_is_unreachable(net):
    """The time to connect includes it; before Python 3.11.3 none can tell which part was late."""

    async def never(host):
        await asyncio.Event().wait()

    client = net.client(_lookup=never, connect_timeout=0.05)
    told = {"dns: time limit"}
    if sys.version_info < (3, 11, 3):
        told |= {"connect: time limit"}
    for within in (None, 0.02):
        got = await client.get("http://slow.test/", within=within)
        assert isinstance(got, Unreachable)
        assert got.reason in told


async def test_a_closed_port_is_unreachable(net):
    """Nobody listens there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        got = await net.client().get(f"http://127.0.0.1:{port}/")
    assert got == Unreachable("connect: refused")


@pytest.mark.parametrize("url", ["http://[::1/", "http:///", "ftp://a.test/"])
async def test_invalid_url_is_dropped(net, url):
    """Nothing is sent, nothing is raised."""
    got = await net.client().get(url)
    assert got == Dropped("bad-url", got.seconds, visited=False)


# ---- TLS


async def test_a_certificate_we_trust_is_a_connection_like_any(net, server_tls, client_tls):
    """The name in the URL is the one that is checked, wherever the connection goes."""
    server = await net.serve({"/": OK}, server_tls)
    named = {"web.test": f"127.0.0.1:{server.port}"}
    client = net.client(connect_to=named, _tls=client_tls)
    assert [(await client.get("https://web.test/")).status for _ in range(2)] == [200] * 2
    assert server.connections == 1


async def test_self_signed_certificate_is_unreachable(net, server_tls):
    """We do not speak to whom we cannot know."""
    server = await net.serve({"/": OK}, server_tls)
    client = net.client(connect_to={"web.test": f"127.0.0.1:{server.port}"})
    assert await client.get("https://web.test/") == Unreachable("tls: self-signed certificate")
    assert server.heads == []


async def test_a_certificate_of_another_is_unreachable(net, server_tls, client_tls):
    """The reason does not hold the name, so that it can be counted."""
    server = await net.serve({"/": OK}, server_tls)
    client = net.client(connect_to={".": f"127.0.0.1:{server.port}"}, _tls=client_tls)
    assert await client.get("https://other.test/") == Unreachable("tls: hostname mismatch")


async def test_a_host_without_tls_is_unreachable_by_https(net):
    """It answers, but not in TLS."""

    async def plain(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = await net.serve({})
    server._answer = plain
    got = await net.client().get(f"https://127.0.0.1:{server.port}/")
    assert isinstance(got, Unreachable)
    assert got.reason.startswith("tls: ")


async def test_a_host_that_never_shakes_hands_is_unreachable(net):
    """To connect means to be able to ask; also when all the time there is, is short."""

    async def silent(reader, writer):
        await reader.read()

    server = await net.serve({})
    server._answer = silent
    client = net.client(connect_timeout=0.1)
    url = f"https://127.0.0.1:{server.port}/"
    assert await client.get(url) == Unreachable("connect: time limit")
    assert await client.get(url, within=0.05) == Unreachable("connect: time limit")


# ---- the table


def test_every_reason_has_one_outcome():
    """What is told follows from the first word alone."""
    for word, (kind, meaning, details) in response_module.REASONS.items():
        assert meaning
        for detail in details or ("",):
            told = response_module.outcome_of_reason(f"{word}: {detail}" if detail else word, 1.5)
            assert type(told) is kind
            assert getattr(told, "seconds", 1.5) == 1.5
