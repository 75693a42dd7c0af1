import gzip
import re
from collections import deque
from html import unescape

import pytest
from protego import Protego

from outrider.core.url import parse_url
from outrider.testing.web import (
    Asked,
    Reply,
    Shape,
    listings,
    robots,
    rough_world,
    small_world,
    traps,
    unreliable_hosts,
    world_of,
)
from outrider.testing.web.behaviours import changing, version_of
from outrider.testing.web.graph import number_of, path_of

HREF = re.compile(r'href="([^"]*)"')


def body_of(web, host, target):
    """The page that a host serves."""
    answer = web.answer(Asked(host, target))
    assert isinstance(answer, Reply)
    return answer.body


def links_of(web, url):
    """Identities of a page's links, in order, doubles included."""
    base = parse_url(url)
    text = body_of(web, base.host, base.text.removeprefix(f"http://{base.host}")).decode()
    return [parse_url(unescape(href), base=base).identity for href in HREF.findall(text)]


def test_one_seed_is_one_web():
    """Two webs of one seed answer alike, byte for byte; another seed answers otherwise."""
    one, same, other = (small_world(seed, hosts=3, pages=12) for seed in (7, 7, 8))
    urls = list(one.urls())

    assert urls == list(same.urls())
    targets = [(parse_url(url).host, url.split("web.test")[1]) for url in urls]
    assert [body_of(one, *at) for at in targets] == [body_of(same, *at) for at in targets]
    assert [body_of(one, *at) for at in targets] != [body_of(other, *at) for at in targets]


def test_the_rough_world_is_one_web_too():
    """Whatever it serves at once is the same for the same seed."""
    one, same = rough_world(3), rough_world(3)

    for host, site in one.sites.items():
        for target in site.pages:
            answers = [web.answer(Asked(host, target)) for web in (one, same)]
            if all(isinstance(answer, Reply) for answer in answers):
                assert answers[0] == answers[1]


@pytest.mark.parametrize(("size", "links"), [(4096, 10), (30_000, 60)])
def test_pages_have_the_wanted_size_and_links(size, links):
    """Exactly so many bytes, and so many links, on pages inside and at the end of the tree."""
    web = small_world(1, hosts=2, pages=200, links=links, page_bytes=size)
    for number in (0, 1, 50, 199):
        body = body_of(web, "h0002.web.test", path_of(number))
        assert (len(body), len(HREF.findall(body.decode()))) == (size, links)


@pytest.mark.parametrize("links", [10, 60])
def test_nine_links_in_ten_are_known_already(links):
    """To a crawl in order of breadth that is still far from the end."""
    web = small_world(1, hosts=4, pages=2000, links=links)
    queue = deque(web.seeds())
    known, seen, fresh = set(queue), 0, 0
    for _ in range(400):
        for url in links_of(web, queue.popleft()):
            seen += 1
            if url not in known:
                fresh += 1
                known.add(url)
                queue.append(url)

    assert 0.05 < fresh / seen < 0.15


@pytest.mark.parametrize("hosts", [1, 5, 40])
def test_every_page_can_be_reached_from_the_first_root(hosts):
    """By links alone, and nothing else is linked but what robots.txt forbids."""
    web = small_world(2, hosts=hosts, pages=15, private=2)
    queue = deque(web.seeds()[:1])
    known = set(queue)
    forbidden = set(web.disallowed())
    while queue:
        new = set(links_of(web, queue.popleft())) - known
        known |= new
        queue.extend(new - forbidden)

    assert known - forbidden == set(web.urls())
    assert known & forbidden == forbidden


def test_links_are_spelled_in_many_ways():
    """Tracking, fragments, default ports, dot segments and capitals all occur."""
    web = small_world(1, hosts=2, pages=300, doubles=0.5)
    text = b"".join(body_of(web, "h0001.web.test", path_of(n)) for n in range(300)).decode()

    for spelling in ("?utm_source=", "?fbclid=", "#part-", ":80/", "/x/../", "HTTP://H0002.WEB"):
        assert spelling in text


def test_a_disguised_target_is_known_as_its_page():
    """`page` gives the URL of `urls`; other queries make another page."""
    web = small_world(1)

    assert web.page("h0001.web.test", "/road/7?utm_source=page&utm_campaign=3") == (
        "http://h0001.web.test/road/7"
    )
    assert web.page("h0001.web.test", "/road/7?page=2") == "http://h0001.web.test/road/7?page=2"


def test_numbers_and_paths_are_one_to_one():
    """And no other path has a number."""
    assert [number_of(path_of(n)) for n in range(100)] == list(range(100))
    for path in ("/harbour/1", "/harbour/08", "/market/0", "/harbour/x", "/harbour/²", "", "//8"):
        assert number_of(path) is None


def test_a_shape_that_cannot_be_is_refused():
    """Rather than served otherwise."""
    with pytest.raises(ValueError, match="at least 1"):
        Shape(hosts=0)
    with pytest.raises(ValueError, match="per link"):
        Shape(links=1, page_bytes=1 << 20)


def test_a_world_of_addresses_shows_its_port():
    """In every absolute URL, once it is known."""
    web = world_of(Shape(hosts=300, pages=3, addresses=True)).at(8123)

    assert web.seeds()[0] == "http://127.0.1.1:8123/"
    assert web.seeds()[-1] == "http://127.0.2.50:8123/"
    assert b"http://127.0.1.2:8123/" in body_of(web, "127.0.1.1", "/")
    assert web.settings(8123) == {"url": {"allow_private": True}}


def test_a_crawler_is_told_where_the_web_is():
    """One route for all names, one for each that is elsewhere."""
    assert rough_world().settings(80, closed=81, tls=82)["fetch"]["connect_to"] == {
        ".web.test": "127.0.0.1:80",
        unreliable_hosts.REFUSING: "127.0.0.1:81",
        unreliable_hosts.SECRET: "127.0.0.1:82",
    }


def test_listed_and_fed_pages_are_in_sitemap_and_feed():
    """Robots.txt names the sitemap, pages name the feed, and both list what nothing links to."""
    web = small_world(1, hosts=1, pages=5, listed=2, fed=2, private=1, crawl_delay=1.5)
    host = "h0001.web.test"

    assert body_of(web, host, "/robots.txt").decode().splitlines() == [
        "User-agent: *",
        "Disallow: /private/",
        "Crawl-delay: 1.5",
        f"Sitemap: http://{host}/sitemap.xml",
    ]
    assert b'type="application/rss+xml" href="/feed.xml"' in body_of(web, host, "/")
    assert body_of(web, host, "/sitemap.xml").count(b"<loc>http://h0001.web.test/listed/") == 2
    assert body_of(web, host, "/feed.xml").count(b"<link>http://h0001.web.test/fed/") == 2
    assert {url.split("/")[3] for url in web.urls()} >= {"listed", "fed"}
    for path in ("/listed/0", "/fed/1", "/private/0"):
        assert web.answer(Asked(host, path)).status == 200
    assert web.answer(Asked(host, "/listed/2")).status == 404


def test_unknown_hosts_and_paths_are_told_apart():
    """421 and 404."""
    web = small_world(1)

    assert web.answer(Asked("other.web.test", "/")).status == 421
    assert web.answer(Asked("h0001.web.test", "/nothing")).status == 404


def served(name):
    """A host of `robots.CASES` and its robots.txt."""
    site = robots.site(name)
    return site, site.answer(Asked(site.name, "/robots.txt"))


READABLE = [name for name in robots.CASES if served(name)[1].status == 200]


@pytest.mark.parametrize("name", READABLE)
def test_robots_cases_say_what_they_forbid(name):
    """As another reader of robots.txt understands them."""
    site, reply = served(name)
    rules = Protego.parse(reply.body[: 500 * 1024].decode("utf-8-sig", "replace"))

    for path in robots.PAGES:
        assert rules.can_fetch(f"http://{site.name}{path}", "Outrider") != site.forbids(path)
    assert rules.crawl_delay("Outrider") == site.crawl_delay
    assert set(site.pages) | set(site.shut) == set(robots.PAGES)


@pytest.mark.parametrize(
    ("name", "pages"),
    [
        *(("missing", 6), ("unauthorised", 6), ("broken", 0), ("unavailable", 0)),
        *(("looping", 6), ("misleading", 6)),
    ],
)
def test_robots_that_cannot_be_had_forbid_all_or_nothing(name, pages):
    """4xx and too many redirects: nothing; 5xx: everything."""
    site, reply = served(name)

    assert reply.status >= 300
    assert len(site.pages) == pages


def test_the_huge_robots_is_huge():
    """Five megabytes, with a rule behind every limit that would forbid all."""
    reply = robots.site("huge").answer(Asked("", "/robots.txt"))

    assert len(reply.body) > 5_000_000
    assert reply.body.endswith(b"Disallow: /\n")


def test_sitemaps_list_each_other_and_pages():
    """An index, a plain one, a packed one, text, one that lists itself, a bomb, a huge one."""
    (site, _) = listings.sites()
    serve = {path: site.answer(Asked(site.name, path)).body for path in site.paths}

    assert serve["/sitemap.xml"].count(b"<sitemap>") == 5
    assert b"/a/2</loc>" in serve["/a.xml"]
    assert b"/b/2</loc>" in gzip.decompress(serve["/b.xml.gz"])
    assert serve["/c.txt"].endswith(b"/c/2")
    assert b"/again.xml</loc>" in serve["/again.xml"]
    assert serve["/bomb.xml"].count(b"<!ENTITY") == 10
    assert serve["/huge.xml"].count(b"<loc>") == 60_000
    assert all(site.answer(Asked(site.name, page)).status == 200 for page in site.pages)


def test_feeds_list_pages():
    """RSS with absolute URLs, Atom with relative ones."""
    (_, site) = listings.sites()

    assert b"<link>http://fed.web.test/news/2</link>" in site.answer(Asked("", "/feed.xml")).body
    assert b'<link href="/notes/2"/>' in site.answer(Asked("", "/atom.xml")).body


@pytest.mark.parametrize("entrance", traps.ENTRANCES)
def test_a_trap_always_leads_on(entrance):
    """Fifty steps in, there is still a page that was never seen."""
    web = rough_world(1)
    url = f"http://{traps.TRAPS}{entrance}"
    seen = {url}
    for _ in range(50):
        url = next(link for link in links_of(web, url) if link not in seen)
        seen.add(url)

    assert len(seen) == 51


def test_a_page_changes_at_its_rate():
    """On average, at instants the seed chooses; versions never go back."""
    ages = [*range(0, 20_000, 500), 20_000]
    versions = [version_of(5, "/fast", 0.1, age)[0] for age in ages]

    assert versions == sorted(versions)
    assert 1800 < versions[-1] < 2200
    assert versions[-1] != version_of(6, "/fast", 0.1, 20_000)[0]


def test_a_changing_page_is_new_exactly_when_its_version_is():
    """Body, ETag and 304 agree."""
    behave = changing(5, 0.1)
    first = behave(Asked("", "/x", at=1e9, age=0.0))
    etag = dict(first.headers)["ETag"]
    change = next(age for age in range(1000) if version_of(5, "/x", 0.1, age)[0])

    def again(age):
        return behave(Asked("", "/x", headers={"if-none-match": etag}, at=1e9 + age, age=age))

    assert again(change - 1).status == 304
    assert again(change).status == 200
    assert again(change).body != first.body
