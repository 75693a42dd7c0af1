import re
from collections import Counter, deque
from html import unescape

from outrider.core.url import parse_url
from outrider.testing.web import Kind, WebServer, small_world, violations

FOUND = re.compile(r'href="([^"]*)"|<loc>([^<]*)</loc>|<link>([^<]*)</link>')


class Naive:
    """Reads robots.txt, sitemaps and feeds; visits everything once, in order of breadth."""

    def __init__(self, server, ask):
        self.server, self.ask = server, ask
        self.known, self.queue, self.rules = {}, deque(), {}

    async def get(self, url):
        """The page's text."""
        target = url.text.removeprefix(f"http://{url.host}").removeprefix(":80")
        return (await self.ask(self.server, url.host, target)).body.decode()

    async def crawl(self, seed):
        """Everything there is to be found."""
        await self.add(parse_url(seed))
        while self.queue:
            url = self.queue.popleft()
            for groups in FOUND.findall(await self.get(url)):
                await self.add(parse_url(unescape("".join(groups)), base=url))

    async def add(self, url):
        """Once, unless forbidden."""
        if url.host not in self.rules:
            await self.read_rules(url.host)
        path = url.text.removeprefix(f"http://{url.host}")
        if url.identity not in self.known and not path.startswith(self.rules[url.host]):
            self.known[url.identity] = url
            self.queue.append(url)

    async def read_rules(self, host):
        """Robots.txt, and the sitemaps it names."""
        lines = (await self.get(parse_url(f"http://{host}/robots.txt"))).splitlines()
        fields = [line.split(": ") for line in lines if ": " in line]
        self.rules[host] = tuple(value for name, value in fields if name == "Disallow")
        for name, value in fields:
            if name == "Sitemap":
                await self.add(parse_url(value))


async def test_a_naive_crawl_finds_every_page_and_no_other(ask):
    """From one seed, over real sockets: what the server saw is what the web said, once each."""
    web = small_world(4, hosts=4, pages=25, private=2, listed=2, fed=2, page_bytes=2000)
    async with WebServer(web) as server:
        await Naive(server, ask).crawl(web.seeds()[0])
        hits = list(server.hits)

    aside = {"/robots.txt", "/sitemap.xml", "/feed.xml"}
    visited = Counter(web.page(hit.host, hit.target) for hit in hits if hit.path not in aside)
    assert visited == Counter(web.urls())
    assert len(visited) == 4 * (25 + 2 + 2)
    assert set(visited.values()) == {1}
    assert all(hit.status == 200 for hit in hits)
    assert Counter(hit.path for hit in hits if hit.path in aside) == dict.fromkeys(aside, 4)


async def test_a_hasty_crawl_is_found_out(ask):
    """Nothing forbidden, robots.txt first, one at a time: but without any delay."""
    web = small_world(4, hosts=2, pages=4, private=1)
    async with WebServer(web) as server:
        await Naive(server, ask).crawl(web.seeds()[0])
        hits = list(server.hits)

    assert violations(hits, delay=0.0, web=web) == []
    wrongs = violations(hits, delay=5.0, web=web)
    assert {wrong.kind for wrong in wrongs} == {Kind.SPACING}
    assert len(wrongs) == len(hits) - 2
