"""HTTP/2 as hosts speak it; what both clients promise is in test_client and test_hostile."""

import asyncio
import gzip
import struct
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import chain, repeat

import pytest
from curl_cffi import Curl, CurlOpt
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import RequestReceived
from h2.exceptions import ProtocolError

from outrider import Frontier
from outrider.core.outcome import Dropped, Failed, Unreachable
from outrider.errors import SettingsError
from outrider.fetch.http1 import Http1Client
from outrider.fetch.http2 import Http2Client
from outrider.wiring import fetching

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
MIB = 2**20


@pytest.fixture
def kind():
    """The one that speaks it."""
    return Http2Client


class Talk:
    """One connection in HTTP/2; each request is answered by its path."""

    def __init__(self, answers, requests):
        self._answers, self._requests = answers, requests
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.frames = ()

    async def __call__(self, reader, writer):
        """Until it ends."""
        self._h2.initiate_connection()
        while await self._said(writer) and (data := await reader.read(65536)):
            try:
                events = self._h2.receive_data(data)
            except ProtocolError:
                return False
            for event in events:
                if isinstance(event, RequestReceived) and not self._answered(event):
                    await self._said(writer)
                    return False
            await self._play(writer)
        return False

    async def _play(self, writer):
        """Send the raw frames of an answer, if there are any."""
        frames, self.frames = self.frames, ()
        await self._said(writer)
        for frame in frames:
            writer.write(frame)
            await writer.drain()

    def _answered(self, event):
        """Whether the connection goes on; an answer may also be an iterable of raw frames."""
        request = {name.decode(): value.decode() for name, value in event.headers}
        self._requests.append(request)
        answered = self._answers[request[":path"]](self._h2, event.stream_id)
        self.frames = answered if isinstance(answered, Iterator) else ()
        return answered is None or isinstance(answered, Iterator)

    async def _said(self, writer):
        writer.write(self._h2.data_to_send())
        await writer.drain()
        return True


def says(body=b"hi", *fields, status=b"200"):
    """A whole answer; what does not fit into the window is not sent."""

    def answer(h2, stream):
        h2.send_headers(stream, [(b":status", status), *fields])
        while body and not h2.streams[stream].closed:
            room = min(h2.local_flow_control_window(stream), h2.max_outbound_frame_size)
            h2.send_data(stream, body[:room])
            if room >= len(body):
                break
        h2.end_stream(stream)

    return answer


def begins(body, *fields, then=lambda h2, stream: None):
    """A head and some of the body, then silence, or whatever follows."""

    def answer(h2, stream):
        h2.send_headers(stream, [(b":status", b"200"), *fields])
        h2.send_data(stream, body)
        return then(h2, stream)

    return answer


def dribbles(size, each=1):
    """A body of so many bytes in DATA frames of one byte, or of `each`; windows are obeyed."""

    def answer(h2, stream):
        assert h2.local_flow_control_window(stream) >= size
        h2.send_headers(stream, [(b":status", b"200")])
        frame = struct.pack(">IBI", each << 8, 0, stream) + b"x" * each
        last = struct.pack(">IBI", 0, 1, stream)
        return chain(repeat(frame * 1000, size // each // 1000), (last,))

    return answer


@pytest.fixture
async def web(net, server_tls, client_tls):
    """A host that offers HTTP/2, requests it got, and a client that trusts it."""

    class Web:
        def __init__(self):
            self.requests = []

        async def open(self, answers, **settings):
            server_tls.set_alpn_protocols(["h2", "http/1.1"])
            self.server = await net.serve({}, server_tls)
            self.server._answer = self._talk
            self._answers = answers
            named = {".": f"127.0.0.1:{self.server.port}"}
            self.client = net.client(connect_to=named, _tls=client_tls, **settings)
            return self

        async def _talk(self, reader, writer):
            return await Talk(self._answers, self.requests)(reader, writer)

        def get(self, path, **how):
            return self.client.get(f"https://web.test{path}", **how)

    return Web()


async def test_a_host_that_speaks_it_is_spoken_to_in_it(web):
    """We say who we are and nothing else; connections are shared."""
    await web.open({"/a?": says(b"hi", (b"x-a", b"\xc3\xa9"))}, user_agent="Otter/1")
    got = [await web.get("/a?", headers={"If-None-Match": '"1"'}) for _ in range(3)]
    assert [(each.version, each.status, each.body) for each in got] == [("2", 200, b"hi")] * 3
    assert (got[0].headers, got[0].reason) == ((("x-a", "é"),), "")
    assert (got[0].address, web.server.connections) == ("127.0.0.1", 1)
    assert set(web.requests[0]) == {
        *(":method", ":path", ":scheme", ":authority"),
        *("user-agent", "accept", "accept-encoding", "if-none-match"),
    }
    assert web.requests[0][":authority"] == "web.test"
    assert web.requests[0]["user-agent"] == "Otter/1"


async def test_requests_at_one_time_share_a_connection(web):
    """Once it is open."""
    await web.open({"/": says(b"x" * 1000)})
    await web.get("/")
    got = await asyncio.gather(*(web.get("/") for _ in range(20)))
    assert [len(each.body) for each in got] == [1000] * 20
    assert web.server.connections == 1


async def test_closed_idle_connection_fails_no_request(web):
    """The next request opens another."""

    def last(h2, stream):
        says()(h2, stream)
        return "end"

    await web.open({"/": last})
    assert [(await web.get("/")).body for _ in range(3)] == [b"hi"] * 3
    assert web.server.connections == 3


async def test_a_host_that_does_not_is_spoken_to_in_http_1(net, server_tls, client_tls):
    """Whether it says so or says nothing."""
    for offered in (None, ["http/1.1"]):
        if offered:
            server_tls.set_alpn_protocols(offered)
        server = await net.serve({"/": OK}, server_tls)
        client = net.client(connect_to={".": f"127.0.0.1:{server.port}"}, _tls=client_tls)
        got = await client.get("https://web.test/")
        assert (got.version, got.body) == ("1.1", b"hi")


async def test_a_packed_body_is_unpacked_by_us(web):
    """Within the limit; what was sent is kept for archives."""
    packed, encoding = gzip.compress(b"hi"), (b"content-encoding", b"gzip")
    await web.open({"/": says(packed, encoding)}, keep_packed=True)
    got = await web.get("/")
    assert (got.body, got.packed) == (b"hi", packed)


async def test_requests_are_kept_as_fields_of_http1(web, capfd):
    """K4: what was sent in frames, as archives can have it; curl tells nothing else to anyone."""
    await web.open({"/a?": says()}, keep_request=True, user_agent="Otter/1")
    got = [await web.get("/a?", headers={"If-None-Match": '"1"'}) for _ in range(2)]
    line, *fields = got[1].request.decode().split("\r\n")
    sent = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}

    assert (line, fields[-2:]) == ("GET /a? HTTP/1.1", ["", ""])
    named = {name: value for name, value in web.requests[1].items() if not name.startswith(":")}
    assert {name: sent[name] for name in named} == named
    assert sent["host"] == web.requests[1][":authority"] == "web.test"
    assert got[0].request == got[1].request
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("each", [1, 2])
async def test_body_in_tiny_frames_takes_memory_by_its_size(web, each):
    """K1: what is kept is the bytes, not an object for every frame."""
    size = 100_000 * each
    await web.open({"/": says(), "/tiny": dribbles(size, each)})
    await web.get("/")
    tracemalloc.start()
    try:
        got = await web.get("/tiny")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert got.body == b"x" * size
    assert peak < 10 * size


BAD = {
    "silence": (lambda h2, stream: None, "time limit: read"),
    "silence in the body": (begins(b"hi"), "time limit: read"),
    "cut before the head": (lambda h2, stream: "end", "protocol: message"),
    "cut in the body": (begins(b"h", then=lambda h2, stream: "end"), "cut: body"),
    "a stream reset": (
        lambda h2, stream: h2.reset_stream(stream, ErrorCodes.INTERNAL_ERROR),
        "cut: reset",
    ),
    "a stream reset in the body": (
        begins(b"h", then=lambda h2, stream: h2.reset_stream(stream, ErrorCodes.CANCEL)),
        "cut: body",
    ),
    "a body longer than allowed": (begins(b"x" * 2000), "size"),
    "a length beyond the limit": (begins(b"x", (b"content-length", b"1025")), "size"),
    "a bomb": (says(gzip.compress(bytes(8 * MIB))[:16000], (b"content-encoding", b"gzip")), "size"),
    "a field that is too long": (says(b"", (b"x", b"y" * 17_000)), "headers"),
    "fields that are too much together": (
        says(b"", *((b"x-%d" % number, b"y" * 10_000) for number in range(10))),
        "headers",
    ),
    "too many fields": (says(b"", *((b"x", b"%d" % each) for each in range(300))), "headers"),
    "fields that unfold from nothing": (says(b"", *[(b"x", b"y" * 4000)] * 4000), "headers"),
}


@pytest.mark.parametrize("case", BAD)
async def test_failed_request_has_its_reason(web, case):
    """One value with its reason, and the next request is answered."""
    answer, reason = BAD[case]
    patience = {"read_timeout": 0.25} if "time" in reason else {}
    most = 10_000 if case == "a bomb" else 1024
    await web.open({"/bad": answer, "/good": says(b"hi")}, max_body=most, **patience)
    got = await web.get("/bad")
    assert isinstance(got, Dropped if reason in {"size", "headers"} else Failed)
    assert (got.reason, len(web.requests)) == (reason, 1)
    assert got.seconds < 4  # long before there would be no time left to connect
    assert (await web.get("/good")).body == b"hi"


async def test_what_curl_knows_no_address_for_it_cannot_reach(net, monkeypatch):
    """The name it connects to is nobody's: without our address there is none, not another."""

    def unpinned(handle, option, value):
        return 0 if option == CurlOpt.RESOLVE else Curl.setopt(handle, option, value)

    server = await net.serve({"/": OK})
    monkeypatch.setattr("outrider.fetch.http2._CurlHandle.setopt", unpinned)
    assert await net.client().get(server.url + "/") == Unreachable("dns: failed")
    assert server.connections == 0


async def test_whom_we_spoke_to_is_checked_too(net):
    """Should curl ever go elsewhere, its answer is not used."""
    server = await net.serve({"/": OK})
    client = net.client(allow_private=False)
    verdicts = iter([True, True, False])
    client._guard.permits = lambda address: next(verdicts)
    got = await client.get(server.url + "/")
    assert (got.reason, got.visited) == ("private-address", False)


async def test_a_name_that_changes_its_mind_is_checked_each_time(net):
    """What is connected to is what was checked."""
    answers = iter([("127.0.0.1",), ("10.0.0.1",)])

    async def rebinding(host):
        return next(answers)

    server = await net.serve({"/": OK})
    client = net.client(_lookup=rebinding, dns_max_age=1e-9)
    client._guard.permits = lambda address: address == "127.0.0.1"
    url = f"http://turncoat.test:{server.port}/"
    assert (await client.get(url)).status == 200
    assert (await client.get(url)).reason == "private-address"


async def test_only_so_many_connections_are_left_open(net):
    """Beyond the limit older ones are closed; of those used in one millisecond, any."""
    server = await net.serve({"/": OK})
    client = net.client(connections=2, connect_to={".test": f"127.0.0.1:{server.port}"})
    for host in ("a", "b", "c", "d", "d"):
        await client.get(f"http://{host}.test/")
    assert server.connections == 4
    for host in ("a", "b", "c"):
        await client.get(f"http://{host}.test/")
    assert server.connections >= 6  # one of the three may have been kept, beside d's


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "/\0", "/é"])
async def test_what_cannot_be_sent_as_it_is_spelt_is_not_sent(net, path):
    """No URL becomes two lines."""
    server = await net.serve({})
    got = await net.client().get(server.url + path)
    assert (got.reason, got.visited, server.connections) == ("bad-url", False, 0)


@pytest.mark.parametrize(
    ("begun", "reason"), [(b"", "cut: no answer"), (OK[:-1], "cut: body"), (OK[:-9], "cut: head")]
)
async def test_closing_ends_requests_under_way(net, begun, reason):
    """Half an answer is none, and nothing hangs."""
    reached = asyncio.Event()

    async def silent(reader, writer):
        writer.write(begun)
        await writer.drain()
        reached.set()
        await reader.read()

    server = await net.serve({"/": silent, "/other": OK})
    client = net.client()
    getting = asyncio.create_task(client.get(server.url + "/"))
    await reached.wait()
    await client.get(server.url + "/other")  # by now what was sent has come
    await client.close()
    assert (await getting).reason == reason


async def test_no_browser_is_imitated_even_if_the_environment_asks_for_it(net, monkeypatch):
    """Hosts are told who we are; curl would read the variable itself."""
    monkeypatch.setenv("CURL_IMPERSONATE", "chrome120")
    with pytest.raises(SettingsError, match="CURL_IMPERSONATE is set"):
        net.client()


async def test_the_setting_chooses_the_client():
    """HTTP/1.1 unless told otherwise."""
    for wanted, kind in ((False, Http1Client), (True, Http2Client)):
        settings = {"fetch": {"http2": wanted}}
        async with (
            Frontier.open("memory://", settings=settings) as frontier,
            fetching(frontier) as fetcher,
        ):
            assert type(fetcher._context.pacing._client) is kind


async def test_without_the_package_it_says_what_to_install(monkeypatch):
    """The extra, as one would type it."""
    monkeypatch.setitem(sys.modules, "outrider.fetch.http2", None)
    settings = {"fetch": {"http2": True}}
    async with Frontier.open("memory://", settings=settings) as frontier:
        with pytest.raises(SettingsError, match=r"pip install 'outrider\[http2\]'"):
            async with fetching(frontier):
                pass
