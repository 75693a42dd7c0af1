"""Nobody sends us into a network that is not theirs (K5): a listener there hears nothing."""

import asyncio

import pytest

from outrider.core.outcome import Dropped
from outrider.fetch import dns
from outrider.testing.web import Site, Web
from outrider.testing.web.behaviours import linked, redirecting

HOST = "public.web.test"


@pytest.fixture
async def listener():
    """A private service on loopback: its port, and how often somebody came."""
    came = []

    def connected(_, writer):
        came.append(writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], came


@pytest.fixture
def lying(monkeypatch):
    """A resolver that finds loopback behind every name."""
    monkeypatch.setattr(dns, "_system_addresses", lambda _: ("127.0.0.1", "::1"))


def spellings(port):
    """Loopback, by the names it is hidden under."""
    hosts = ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]")
    return [f"http://{host}:{port}/" for host in hosts]


@pytest.mark.slow
async def test_links_and_redirects_to_private_addresses_lead_nowhere(crawled, listener):
    """Refused by name and by number, as links and as places to be redirected to."""
    port, came = listener
    urls = spellings(port)
    moved = {f"/moved/{number}": redirecting(url) for number, url in enumerate(urls)}
    web = Web([Site(HOST, paths={"/": linked("root", *urls, *moved), **moved})])
    done = await crawled(web, settings={"scope": {"mode": "all"}})
    assert done.ending.how == "finished"
    name = f"http://localhost:{port}/"  # a name, so it is judged when it is looked up
    literal = [path for path, url in zip(moved, urls, strict=True) if url != name]
    assert {done.last(HOST, path).reason for path in literal} == {"redirect: private-address"}
    assert [url for url in done.ends if HOST not in url] == [name]
    assert [end.reason for end in done.ends[name]] == ["private-address"]
    assert came == []


@pytest.mark.slow
@pytest.mark.usefixtures("lying")
async def test_a_name_that_means_a_private_address_is_dropped(crawled, listener):
    """Judged after resolution: for a seed, for a link, and for a redirect."""
    port, came = listener
    names = [f"http://{name}.example:{port}/" for name in ("seed", "linked", "moved")]
    paths = {"/": linked("root", names[1], "/moved"), "/moved": redirecting(names[2])}
    web = Web([Site(HOST, paths=paths)])
    done = await crawled(web, web.url(HOST, "/"), names[0], settings={"scope": {"mode": "all"}})
    for name in names:
        (end,) = done.ends[name]
        assert (type(end), end.reason, end.visited) == (Dropped, "private-address", False)
    assert came == []
    assert done.ending.how == "finished"


@pytest.mark.slow
@pytest.mark.usefixtures("lying")
async def test_who_allows_private_addresses_gets_there(crawled, listener):
    """The same names and numbers, so that the tests above mean something."""
    port, came = listener
    settings = {
        "scope": {"mode": "all"},
        "url": {"allow_private": True},
        "retry": {"max_retries": 0},
    }
    web = Web([Site(HOST, paths={"/": linked("root", f"http://127.0.0.1:{port}/")})])
    done = await crawled(web, settings=settings)
    assert done.last(HOST).status == 200
    assert len(came) > 0
