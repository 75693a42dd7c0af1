import asyncio
import gzip
import ssl
from email.utils import parsedate_to_datetime

import pytest

from outrider.testing.web import (
    Site,
    Web,
    WebServer,
    blocking_hosts,
    read_hits,
    rough_world,
    small_world,
    unreliable_hosts,
)
from outrider.testing.web.behaviours import (
    chain,
    chunked,
    disguising,
    failing,
    flaky,
    linked,
    packed,
    redirecting,
    serving,
    slow,
    throttling_haste,
    throttling_hits,
)

HOST = "one.web.test"
PAGE = serving(b"<p>hello</p>" * 10)


def site(*first, **paths):
    """A web of one host: `paths` without their slash."""
    return Web([Site(HOST, paths={f"/{name}": made for name, made in paths.items()}, first=first)])


async def read_one(reader):
    """One answer with a length, from a connection that is kept."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
    return head, await reader.readexactly(length)


async def test_a_page_is_served_and_recorded(ask):
    """With its host, target, status, size, times and visitor."""
    async with WebServer(small_world(1)) as server:
        before = server.now()
        heard = await ask(server, "h0001.web.test", "/?utm_source=x", User_Agent="visitor/1")
        (hit,) = server.hits

    assert (heard.status, len(heard.body)) == (200, 4096)
    assert heard.headers["content-type"] == "text/html; charset=utf-8"
    assert (hit.host, hit.target, hit.path) == ("h0001.web.test", "/?utm_source=x", "/")
    assert (hit.status, hit.bytes, hit.agent) == (200, len(heard.raw), "visitor/1")
    assert before <= hit.started_at <= hit.ended_at
    assert hit.peer > 0
    assert not hit.is_cut


async def test_the_host_is_read_without_case_and_port(ask):
    """As URLs spell it."""
    async with WebServer(small_world(1)) as server:
        assert (await ask(server, "H0001.WEB.TEST:80", "/")).status == 200
        assert (await ask(server, "elsewhere.test", "/")).status == 421


async def test_head_has_no_body(ask):
    """But the length it would have."""
    async with WebServer(site(page=PAGE)) as server:
        heard = await ask(server, HOST, "/page", method="HEAD")

    assert (heard.headers["content-length"], heard.body) == ("120", b"")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
    ],
)
async def test_what_is_no_request_is_refused_and_recorded(request_, status):
    """And the connection is closed."""
    async with WebServer(site()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request_)
        raw = await reader.read()
        writer.close()
        (hit,) = server.hits

    assert raw.startswith(b"HTTP/1.1 %d " % status)
    assert hit.status == status


async def test_a_connection_is_kept_and_requests_are_answered_in_turn():
    """Also when they come in pieces, or all at once; each has a hit of its own."""
    async with WebServer(site(a=serving(b"a"), b=serving(b"bb"))) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        get_a, get_b = (f"GET /{p} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode() for p in "ab")
        writer.write(get_a[:10])
        await writer.drain()
        writer.write(get_a[10:] + get_b)
        bodies = [(await read_one(reader))[1] for _ in range(2)]
        writer.write(get_a)
        bodies.append((await read_one(reader))[1])
        writer.close()
        hits = list(server.hits)

    assert bodies == [b"a", b"bb", b"a"]
    assert [hit.target for hit in hits] == ["/a", "/b", "/a"]
    assert len({hit.peer for hit in hits}) == 1
    assert all(hit.started_at <= hit.ended_at for hit in hits)


async def test_a_request_starts_with_its_first_byte():
    """Not when the rest of it comes."""
    async with WebServer(site(a=PAGE)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /a HTTP/1.1\r\nConnection: close\r\n")
        await asyncio.sleep(0.05)
        halfway = server.now()
        writer.write(f"Host: {HOST}\r\n\r\n".encode())
        await reader.read()
        writer.close()
        (hit,) = server.hits

    assert hit.started_at < halfway < hit.ended_at


async def test_an_answer_ends_when_the_socket_took_its_last_byte():
    """A visitor who does not read keeps the hit open."""
    async with WebServer(site(large=serving(bytes(20 << 20)))) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET /large HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        await reader.read(1000)
        await asyncio.sleep(0.05)
        assert list(server.hits) == []
        reading_at = server.now()
        while await reader.read(1 << 20):
            pass
        writer.close()
        (hit,) = server.hits

    assert hit.ended_at >= reading_at
    assert not hit.is_cut


async def test_a_visitor_who_hangs_up_is_recorded_as_such(recorded):
    """When the server noticed; the page was not served."""
    async with WebServer(site(late=slow(PAGE, wait=60.0))) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"GET /late HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        await asyncio.sleep(0.05)
        hung_up_at = server.now()
        writer.close()
        (hit,) = await recorded(server, 1)

    assert hit.is_cut
    assert hit.bytes == 0
    assert hit.ended_at >= hung_up_at


async def test_switching_off_ends_what_is_played(ask):
    """No task is left behind, and open hits are recorded as cut."""
    async with WebServer(site(late=slow(PAGE, wait=60.0))) as server:
        visit = asyncio.ensure_future(ask(server, HOST, "/late"))
        await asyncio.sleep(0.05)

    assert (await visit).raw == b""
    assert [hit.is_cut for hit in server.hits] == [True]


async def test_the_record_is_a_file_that_can_be_read_meanwhile(ask, tmp_path):
    """One line a hit, there as soon as the answer is."""
    path = tmp_path / "hits.jsonl"
    async with WebServer(site(a=PAGE), record=path) as server:
        for count in (1, 2):
            await ask(server, HOST, f"/a?{count}")
            assert [hit.target for hit in read_hits(path)] == ["/a?1", "/a?2"][:count]
        assert list(server.hits) == read_hits(path)
    with path.open("ab") as file:
        file.write(b'["half a li')

    assert len(read_hits(path)) == 2


async def test_addresses_are_hosts_on_one_port():
    """Each listens for itself; nothing listens on 127.0.0.1."""
    web = small_world(1, hosts=3, pages=2, addresses=True)
    async with WebServer(web) as server:
        for url in server.web.seeds():
            host, port = url.removeprefix("http://").rstrip("/").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET / HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)

    assert sorted(hit.host for hit in server.hits) == ["127.0.1.1", "127.0.1.2", "127.0.1.3"]


async def test_a_page_the_visitor_holds_is_not_sent_again(ask):
    """304 for the ETag or the date, with neither body nor length."""
    async with WebServer(small_world(1)) as server:
        headers = (await ask(server, "h0001.web.test", "/")).headers
        for held in (
            {"If_None_Match": headers["etag"]},
            {"If_None_Match": f'"x", {headers["etag"]}'},
            {"If_Modified_Since": headers["last-modified"]},
        ):
            heard = await ask(server, "h0001.web.test", "/", **held)
            assert (heard.status, heard.body) == (304, b"")
            assert "content-length" not in heard.headers
        assert (await ask(server, "h0001.web.test", "/", If_None_Match='"x"')).status == 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_say_where(ask, status):
    """With the status and the location they were given, relative or not."""
    async with WebServer(site(hop=redirecting("../goal", status))) as server:
        heard = await ask(server, HOST, "/hop")

    assert (heard.status, heard.headers["location"]) == (status, "../goal")


async def test_a_chain_leads_to_its_goal(ask):
    """After exactly so many hops."""
    paths = chain("/hop", 3, "/goal") | {"/goal": PAGE}
    target, hops = "/hop0", 0
    async with WebServer(Web([Site(HOST, paths=paths)])) as server:
        while (heard := await ask(server, HOST, target)).status == 302:
            target, hops = heard.headers["location"], hops + 1

    assert (target, hops, heard.status) == ("/goal", 3, 200)


async def test_a_disguised_redirect_never_repeats_its_text(ask):
    """Though its page is always the same."""
    web = site(me=disguising())
    target, seen = "/me", set()
    async with WebServer(web) as server:
        for _ in range(8):
            target = (await ask(server, HOST, target)).headers["location"]
            seen.add(target)

    assert len(seen) == 8
    assert {web.page(HOST, target) for target in seen} == {f"http://{HOST}/me"}


async def test_errors_and_their_waits(ask):
    """Retry-After as seconds or as a date, or not at all; the record has the instant."""
    web = site(
        plain=failing(503),
        seconds=failing(503, 120),
        date=failing(429, 120, retry_as_date=True),
    )
    async with WebServer(web) as server:
        plain, seconds, date = [await ask(server, HOST, path) for path in web.sites[HOST].paths]
        hits = list(server.hits)

    assert "retry-after" not in plain.headers
    assert hits[0].wait_until == 0
    assert (seconds.status, seconds.headers["retry-after"]) == (503, "120")
    assert hits[1].wait_until == pytest.approx(hits[1].ended_at + 120, abs=0.01)
    assert date.status == 429
    until = parsedate_to_datetime(date.headers["retry-after"]).timestamp()
    assert hits[2].wait_until == until
    assert 0 <= hits[2].ended_at + 120 - until < 1.1


async def test_a_flaky_page_fails_so_many_times(ask):
    """Each target for itself."""
    async with WebServer(site(page=flaky(PAGE, times=2))) as server:
        plain = [(await ask(server, HOST, "/page")).status for _ in range(4)]
        other = (await ask(server, HOST, "/page?other")).status

    assert plain == [500, 500, 200, 200]
    assert other == 500


async def test_a_host_throttles_its_nth_hits(ask):
    """Whatever their targets."""
    async with WebServer(site(throttling_hits({2, 3}, 5), page=PAGE)) as server:
        statuses = [(await ask(server, HOST, f"/page?{n}")).status for n in range(4)]

    assert statuses == [200, 429, 429, 200]


async def test_a_host_throttles_haste(ask):
    """Visitors who come too soon after the last answer, or during one, and no others."""
    page = slow(PAGE, wait=0.1)
    async with WebServer(site(throttling_haste(0.2, 1), page=page)) as server:
        first = asyncio.ensure_future(ask(server, HOST, "/page"))
        await asyncio.sleep(0.05)
        during = await ask(server, HOST, "/page")
        await first
        soon = await ask(server, HOST, "/page")
        await asyncio.sleep(0.25)
        later = await ask(server, HOST, "/page")

    assert [(await first).status, during.status, soon.status, later.status] == [200, 429, 429, 200]


async def test_slow_pages_come_whole(ask):
    """Late, in pieces, but complete; the hit lasts as long."""
    web = site(head=slow(PAGE, wait=0.05), body=slow(PAGE, pause=0.01, pieces=5))
    async with WebServer(web) as server:
        bodies = [(await ask(server, HOST, path)).body for path in ("/head", "/body")]
        hits = list(server.hits)

    assert bodies == [b"<p>hello</p>" * 10] * 2
    assert hits[0].seconds >= 0.05
    assert hits[1].seconds >= 0.04


async def test_a_slow_page_keeps_its_connection():
    """What was asked meanwhile is answered after it."""
    async with WebServer(site(slow=slow(PAGE, wait=0.02), quick=serving(b"q"))) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for path in ("slow", "quick"):
            writer.write(f"GET /{path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        assert len((await read_one(reader))[1]) == 120
        assert (await read_one(reader))[1] == b"q"
        writer.close()


async def test_bodies_are_packed_and_chunked(ask):
    """As asked, also both."""
    web = site(gzip=packed(PAGE), chunked=chunked(PAGE), both=packed(chunked(PAGE)))
    whole = b"<p>hello</p>" * 10
    async with WebServer(web) as server:
        zipped, parts, both = [await ask(server, HOST, path) for path in web.sites[HOST].paths]

    assert gzip.decompress(zipped.body) == whole
    assert parts.headers["transfer-encoding"] == "chunked"
    assert unchunked(parts.body) == whole
    assert gzip.decompress(unchunked(both.body)) == whole


def unchunked(body):
    """The bytes of a chunked body, whose last chunk must be there."""
    whole = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if size == b"0":
            return whole
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]


async def test_refusing_hosts_refuse_and_secret_ones_are_self_signed(ask):
    """Where the settings send visitors."""
    careless = ssl.create_default_context()
    careless.check_hostname = False
    careless.verify_mode = ssl.CERT_NONE
    async with WebServer(rough_world()) as server:
        routes = server.settings()["fetch"]["connect_to"]
        address, port = routes[unreliable_hosts.REFUSING].split(":")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address, int(port))
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(server, unreliable_hosts.SECRET, "/", tls=ssl.create_default_context())
        assert (await ask(server, unreliable_hosts.SECRET, "/inside", tls=careless)).status == 200


async def test_guards_show_themselves(ask):
    """By their marks, whatever the status; the innocent pages lack them."""
    async with WebServer(rough_world()) as server:
        pages = {
            path: await ask(server, blocking_hosts.GUARDED, path)
            for path in blocking_hosts.EXPECTED
        }

    assert pages["/challenge"].headers["cf-mitigated"] == "challenge"
    assert b"_cf_chl_opt" in pages["/challenge/503"].body
    assert pages["/denied/200"].status == 200
    assert len(pages["/article"].body) > 5000


async def test_every_page_of_the_rough_world_answers(ask):
    """Roots with links to all the rest; hostile paths have tests of their own."""
    web = rough_world(1)
    async with WebServer(web) as server:
        for name in web.sites:
            if name in web.tls:
                continue
            heard = await ask(server, name, "/")
            assert heard.status in (200, 429, 503)
    assert len({hit.host for hit in server.hits}) == len(web.sites) - 1


async def test_links_on_made_pages_are_links(ask):
    """The plainest behaviour there is."""
    async with WebServer(site(a=linked("a", "/b", "http://c.test/"))) as server:
        body = (await ask(server, HOST, "/a")).body

    assert b'<a href="/b">' in body
    assert b'<a href="http://c.test/">' in body
