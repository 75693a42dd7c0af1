import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from outrider import Again, Blocked, Done, Dropped, Failed, Frontier, Link, Throttled, Unreachable
from outrider.core.policy.rules import QueueRules
from outrider.executor.visit import Visit
from outrider.fetch.block_detector import detect
from outrider.fetch.cache import CacheFile, ResponseCache
from outrider.fetch.fetcher import FetchContext, Fetcher
from outrider.fetch.pacing import LEASE_LOST, MAX_RETURNS, Pacing
from outrider.fetch.reader import Reader
from outrider.fetch.response import Response
from outrider.fetch.robots import CLOSED_SECONDS, RobotsCache, RobotsGate
from outrider.settings import merged, settings_of
from outrider.testing import FakeClock

HTML = (("Content-Type", "text/html"),)
HOME = "https://a.example/"
ROBOTS = "https://a.example/robots.txt"
POLITE = {"politeness": {"factor": 2.0, "min_delay": 1.0, "max_delay": 30.0}}


class Web:
    """Answers by URL, and when each was asked for; what is not there is 404."""

    def __init__(self, clock, answers):
        self.clock = clock
        self.answers = answers
        self.asked = []

    async def get(self, url, *, headers=(), within=None):
        """One request, one value."""
        self.asked.append((self.clock.now_ms() / 1000 - self.began, url, dict(headers)))
        answer = self.answers.get(url, (404, b""))
        if isinstance(answer, list):
            answer = answer.pop(0)
        if not isinstance(answer, tuple):
            return answer
        status, body, *fields = answer
        at = self.clock.now_ms() / 1000
        return Response(url, status, (*HTML, *fields), body, 0.5, at)

    @property
    def urls(self):
        """What was asked for, in order."""
        return [url for _, url, _ in self.asked]

    @property
    def times(self):
        """When, in seconds since the beginning."""
        return [round(at, 3) for at, _, _ in self.asked]


class PassingClock(FakeClock):
    """Whoever sleeps moves the clock."""

    async def sleep(self, seconds):
        """Be there already."""
        self.advance(seconds)


class Crawl:
    """A fetcher over a real frontier, one visit at a time."""

    def __init__(self, frontier, web, fetcher):
        self.frontier, self.web, self.fetcher = frontier, web, fetcher

    async def visit(self, url=None, **fields):
        """Claim, fetch, finish; the visit with its outcome."""
        if url is not None:
            await self.frontier.add([Link(url, **fields)])
        claim = await self.frontier.claim(1, wait=100.0)
        visit = Visit(claim[0])
        visit.outcome = await self.fetcher(visit)
        await self.frontier.finish(visit.lease, visit.outcome, visit.links)
        return visit


@pytest.fixture
async def crawl():
    """A maker of crawls over made-up webs."""
    closing = []

    async def made(answers, *, cache=None, **sections):
        clock = PassingClock()
        web = Web(clock, answers)
        web.began = clock.now_ms() / 1000
        settings = merged(settings_of(POLITE), sections)
        frontier = await Frontier.open(settings=settings, clock=clock, dice=lambda: 0.0)
        pacing = Pacing(web, clock, lambda: 0.0, settings.fetch.total_timeout)
        shelf = RobotsCache(clock, settings.fetch.user_agent)
        reader = Reader(settings.fetch, settings.url)
        closing.extend([frontier.close, lambda: reader.__aexit__(None, None, None)])
        entrance = RobotsGate(settings, pacing, shelf, frontier.refusal_of)
        around = FetchContext(entrance, pacing, reader, detect, cache, frontier.refusal_of)
        return Crawl(frontier, web, Fetcher(settings, around))

    yield made
    for close in closing:
        await close()


def page(*links, **more):
    """An HTML page with links."""
    body = b"<title>page</title><p>" + b"words " * 400
    return (200, body + b"".join(b'<a href="%b">x</a>' % link.encode() for link in links))


@pytest.mark.parametrize(
    ("lease_for", "asked", "within"), [(60.0, 45.0, None), (45.0, 33.75, 33.75), (4.0, 3.0, 3.0)]
)
async def test_request_ends_before_a_short_lease(lease_for, asked, within):
    """D7: a time limit that nobody gave is shortened to what the lease allows."""
    seen = []

    class Client:
        async def get(self, url, *, headers, within=None):
            seen.append(within)

    class ShortVisit:
        lease = SimpleNamespace(lease_for=lease_for, rules=QueueRules())
        requests = 0

        async def holds(self, seconds):
            seen.append(seconds)
            return True

    await Pacing(Client(), PassingClock(), lambda: 0.0, 45.0).get(ShortVisit(), HOME)

    assert seen == [asked, within]


async def test_robots_txt_comes_first_and_its_delay_before_the_page(crawl):
    """D7: every request is a visit of its host."""
    it = await crawl({ROBOTS: (200, b"User-agent: *\nDisallow: /no"), HOME: page("/a", "/no")})
    visit = await it.visit(HOME)

    assert it.web.urls == [ROBOTS, HOME]
    assert it.web.times == [0.0, 1.0]  # factor 2 × 0.5 s
    assert isinstance(visit.outcome, Done)
    assert visit.outcome.crawl_delay == 0.0
    assert [link.url.text for link in visit.links] == [HOME + "a", HOME + "no"]


async def test_a_crawl_delay_holds_from_the_first_page_on(crawl):
    """D1: between robots.txt and the page, and ever after."""
    it = await crawl({ROBOTS: (200, b"User-agent: *\nCrawl-delay: 7"), HOME: page("/a")})
    await it.visit(HOME)
    await it.visit()

    assert it.web.urls == [ROBOTS, HOME, HOME + "a"]
    assert it.web.times == [0.0, 7.0, 14.0]


async def test_requests_of_several_slots_keep_the_visits_per_second(crawl):
    """D1: visits that waited for one robots.txt do not send their requests at the same time."""
    pages = {f"{HOME}{n}": page() for n in range(4)}
    manners = {"visits_per_second": 1.0, "max_in_flight": 5, "delay": 0.0}
    it = await crawl({ROBOTS: (200, b""), **pages}, politeness=manners)
    await it.frontier.add(pages)
    visits = []
    for _ in pages:
        visits += [Visit(lease) for lease in await it.frontier.claim(9, wait=100.0)]

    outcomes = [await it.fetcher(visit) for visit in visits]

    assert [type(outcome) for outcome in outcomes] == [Done] * 4
    assert it.web.urls == [ROBOTS, *pages]
    assert it.web.times == [3.0, 4.0, 5.0, 6.0, 7.0]


async def test_a_forbidden_page_is_dropped_without_a_request_once_robots_txt_is_known(crawl):
    """D7: the second one costs the host nothing, and the queue no delay."""
    it = await crawl({ROBOTS: (200, b"User-agent: *\nDisallow: /no\nCrawl-delay: 3")})
    first = await it.visit(HOME + "no")
    second = await it.visit(HOME + "no/2")
    third = await it.visit(HOME + "no/3")

    assert it.web.urls == [ROBOTS]
    assert first.outcome == Dropped("robots", 0.5, 3.0, visited=True)
    assert second.outcome == third.outcome == Dropped("robots", visited=False)


async def test_robots_may_be_ignored(crawl):
    """On one's own hosts."""
    it = await crawl({HOME: page()}, fetch={"robots": False})
    await it.visit(HOME)

    assert it.web.urls == [HOME]


async def test_a_host_that_cannot_tell_is_asked_again_later(crawl):
    """K2: 5xx closes it for now; the page fails, and comes back ever more rarely."""
    it = await crawl({ROBOTS: [(500, b""), (503, b""), (200, b"")], HOME: page()})
    first = await it.visit(HOME)
    second = await it.visit()
    third = await it.visit()

    assert [v.outcome.reason for v in (first, second)] == [
        "robots.txt: status 500",
        "robots.txt: status 503",
    ]
    assert (first.outcome.retry_in, second.outcome.retry_in) == (10.0, 20.0)
    assert third.outcome.status == 200
    assert it.web.urls == [ROBOTS, ROBOTS, ROBOTS, HOME]
    assert first.outcome.retry_in > CLOSED_SECONDS  # it is asked again by then


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Unreachable("dns: no such host"), Unreachable("dns: no such host")),
        (Failed("cut: body", 0.2), Failed("robots.txt: cut: body", 0.2)),
        ((429, b"", ("Retry-After", "9")), Throttled(9.0, 0.5)),
    ],
)
async def test_trouble_with_robots_txt_is_the_visits(crawl, answer, outcome):
    """G0."""
    it = await crawl({ROBOTS: answer})

    assert (await it.visit(HOME)).outcome == outcome
    assert it.web.urls == [ROBOTS]


async def test_a_robots_txt_moved_on_its_host_is_followed_after_the_delay(crawl):
    """RFC 9309, D7."""
    moved = (301, b"", ("Location", "/else.txt"))
    it = await crawl(
        {ROBOTS: moved, HOME + "else.txt": (200, b"User-agent: *\nDisallow: /"), HOME: page()}
    )
    visit = await it.visit(HOME)

    assert it.web.urls == [ROBOTS, HOME + "else.txt"]
    assert it.web.times == [0.0, 1.0]
    assert visit.outcome.reason == "robots"


async def test_a_robots_txt_on_another_host_is_asked_for_through_its_queue(crawl):
    """D7: the page comes back when it is known, and obeys it."""
    there = "https://b.example/robots.txt"
    it = await crawl(
        {
            ROBOTS: (302, b"", ("Location", there)),
            there: (200, b"User-agent: *\nDisallow: /no"),
            HOME: page(),
        }
    )
    first = await it.visit(HOME + "no")
    robots = await it.visit()
    again = await it.visit()

    assert first.outcome.reason == "robots.txt: on another host"
    assert (robots.lease.key, robots.lease.type) == ("b.example", "robots")
    assert robots.page is None
    assert again.outcome == Dropped("robots", visited=False)
    assert it.web.urls == [ROBOTS, there]


async def test_a_robots_txt_outside_the_scope_counts_as_missing(crawl):
    """It is not ours to visit."""
    it = await crawl(
        {ROBOTS: (302, b"", ("Location", "https://b.test/robots.txt")), HOME: page()},
        scope={"mode": "host"},
    )

    assert (await it.visit(HOME)).outcome.status == 200
    assert it.web.urls == [ROBOTS, HOME]


# ---- redirects of robots.txt to other sites (RFC 9309, 2.3.1.2)

THERE = "https://b.example/"
SHUT = (200, b"User-agent: *\nDisallow: /shut")


def moved(url):
    """A redirect."""
    return (302, b"", ("Location", url))


async def visits_of(it, *urls):
    """Visit until nothing is left to visit; the last outcome of every URL."""
    await it.frontier.add(urls)
    outcomes = {}
    while claim := await it.frontier.claim(1, wait=1000.0):
        visit = Visit(claim[0])
        visit.outcome = await it.fetcher(visit)
        await it.frontier.finish(visit.lease, visit.outcome, visit.links)
        outcomes[visit.lease.url] = visit.outcome
        assert len(it.web.asked) < 100
    return outcomes


async def test_robots_redirect_to_a_forbidden_page_of_another_host_is_not_followed(crawl):
    """K2: that host's robots.txt is read first, and ours is unavailable then."""
    it = await crawl(
        {
            ROBOTS: moved(THERE + "shut/rules"),
            THERE + "robots.txt": SHUT,
            THERE + "shut/rules": (200, b"User-agent: *\nDisallow: /"),
            HOME: page(),
        }
    )
    outcomes = await visits_of(it, HOME)

    assert it.web.urls == [ROBOTS, THERE + "robots.txt", HOME]
    assert outcomes[THERE + "shut/rules"] == Dropped("robots", 0.5, 0.0)
    assert outcomes[HOME].status == 200


async def test_robots_redirect_to_an_allowed_page_of_another_host_is_followed(crawl):
    """K2: after that host's robots.txt and its delay; what is read there holds here."""
    it = await crawl(
        {
            ROBOTS: moved(THERE + "rules"),
            THERE + "robots.txt": (200, SHUT[1] + b"\nCrawl-delay: 7\nSitemap: " + b"/map"),
            THERE + "rules": (200, b"User-agent: *\nDisallow: /no"),
            HOME: page(),
        }
    )
    outcomes = await visits_of(it, HOME, HOME + "no")

    assert it.web.urls[:3] == [ROBOTS, THERE + "robots.txt", THERE + "rules"]
    assert it.web.times[2] - it.web.times[1] == 7.0
    assert (outcomes[HOME].status, outcomes[HOME + "no"].reason) == (200, "robots")


async def test_robots_txts_that_redirect_to_each_other_end(crawl):
    """K2: neither is known without the other; both are unavailable, nothing is asked for ever."""
    it = await crawl(
        {
            ROBOTS: moved(THERE + "rules"),
            THERE + "robots.txt": moved(HOME + "rules"),
            HOME: page(),
            THERE: page(),
        }
    )
    outcomes = await visits_of(it, HOME, THERE)

    assert [outcomes[url].status for url in (HOME, THERE)] == [200, 200]
    assert len(it.web.urls) <= 10


async def test_robots_redirects_across_hosts_are_cut_after_five(crawl):
    """RFC 9309: each hop in the queue of its host; what is left is as if missing."""
    answers = {
        f"https://h{n}.example/robots.txt": moved(f"https://h{n + 1}.example/robots.txt")
        for n in range(20)
    }
    it = await crawl(answers | {"https://h0.example/": page()})
    outcomes = await visits_of(it, "https://h0.example/")

    asked = [url for url in it.web.urls if url.endswith("robots.txt")]
    assert set(asked) == {f"https://h{n}.example/robots.txt" for n in range(6)}
    assert outcomes["https://h0.example/"].status == 200


async def test_robots_redirects_across_two_hosts_are_read(crawl):
    """RFC 9309: rules at the end of a chain are those of its beginning."""
    last = "https://c.example/robots.txt"
    it = await crawl(
        {
            ROBOTS: moved(THERE + "robots.txt"),
            THERE + "robots.txt": moved(last),
            last: SHUT,
            HOME: page(),
        }
    )
    outcomes = await visits_of(it, HOME, HOME + "shut")

    assert (outcomes[HOME].status, outcomes[HOME + "shut"].reason) == (200, "robots")
    assert it.web.urls.count(last) == 1


@pytest.mark.parametrize("other", ["http://a.example/", "https://a.example:8443/"])
@pytest.mark.parametrize("path", ["shut/rules", "rules"])
async def test_robots_redirect_to_another_scheme_or_port_obeys_the_robots_txt_there(
    crawl, other, path
):
    """K2: it is another site, though the same host and queue."""
    it = await crawl(
        {
            ROBOTS: moved(other + path),
            other + "robots.txt": SHUT,
            other + path: (200, b"User-agent: *\nDisallow: /no"),
            HOME + "no": page(),
        }
    )
    outcomes = await visits_of(it, HOME + "no")

    is_followed = path == "rules"
    assert (other + path in it.web.urls) is is_followed
    assert it.web.urls[:2] == [ROBOTS, other + "robots.txt"]
    assert outcomes[HOME + "no"].reason == "robots" if is_followed else outcomes[HOME + "no"].status
    assert all(late - early >= 1.0 for early, late in pairwise(it.web.times))


async def test_robots_redirect_within_its_site_is_followed_though_nothing_is_known(crawl):
    """RFC 9309: the rules of the site are what is asked for."""
    it = await crawl({ROBOTS: moved("/shut/rules"), HOME + "shut/rules": SHUT, HOME: page()})
    outcomes = await visits_of(it, HOME)

    assert it.web.urls == [ROBOTS, HOME + "shut/rules", HOME]
    assert outcomes[HOME].status == 200


async def test_robots_redirect_waits_for_a_site_that_cannot_tell(crawl):
    """K2: 5xx there is no leave, and no refusal either."""
    it = await crawl(
        {
            ROBOTS: moved("http://a.example/rules"),
            "http://a.example/robots.txt": [(503, b""), (200, b"")],
            "http://a.example/rules": SHUT,
            HOME: page(),
        }
    )
    first = await it.visit(HOME)

    assert first.outcome.reason == "robots.txt: status 503"
    assert (await it.visit()).outcome.status == 200
    assert it.web.urls.count("http://a.example/rules") == 1


@pytest.mark.parametrize("target", ["http://10.0.0.1/robots.txt", "http://[5f00::1]/robots.txt"])
async def test_robots_redirect_to_a_private_address_counts_as_missing(crawl, target):
    """K5: nothing is asked for there."""
    it = await crawl({ROBOTS: moved(target), HOME: page()})

    assert (await it.visit(HOME)).outcome.status == 200
    assert it.web.urls == [ROBOTS, HOME]


async def test_robots_redirect_to_a_name_with_a_private_address_counts_as_missing(crawl):
    """K5: the guard drops the request, and the page is not held up by it."""
    dropped = Dropped("private-address", visited=False)
    it = await crawl({ROBOTS: moved(THERE + "robots.txt"), THERE + "robots.txt": dropped})
    it.web.answers[HOME] = page()
    outcomes = await visits_of(it, HOME)

    assert outcomes[HOME].status == 200


async def test_redirect_to_the_same_page_by_a_forbidden_url_is_not_followed(crawl):
    """K2: the page is the same task, but the URL is what robots.txt speaks of."""
    it = await crawl(
        {
            ROBOTS: (200, b"User-agent: *\nDisallow: /*utm_source"),
            HOME + "a": moved("/a?utm_source=x"),
        }
    )
    visit = await it.visit(HOME + "a")

    assert visit.outcome == Dropped("robots", 0.5, 0.0)
    assert it.web.urls == [ROBOTS, HOME + "a"]


async def test_sitemaps_of_robots_txt_become_tasks(crawl):
    """K2: they are visited like everything else."""
    robots = (200, b"Sitemap: https://a.example/map.xml")
    listed = b"<urlset><url><loc>https://a.example/x</loc></url></urlset>"
    it = await crawl(
        {ROBOTS: robots, HOME: page(), HOME + "map.xml": (200, listed)},
    )
    await it.visit(HOME)
    visit = await it.visit()

    assert visit.lease.type == "sitemap"
    assert [(link.url.text, link.origin) for link in visit.links] == [(HOME + "x", "sitemap")]


async def test_a_redirect_goes_through_the_frontier(crawl):
    """D7: its target is a task of its own queue, at the same depth."""
    it = await crawl(
        {HOME: (301, b"", ("Location", "https://b.example/x"))}, fetch={"robots": False}
    )
    visit = await it.visit(HOME, type="article")

    assert visit.outcome == Done(301, 0.5, 0)
    (link,) = visit.links
    assert (link.url.text, link.type, link.depth) == ("https://b.example/x", "article", 0)
    assert (await it.visit()).lease.meta == {"redirects": 1}


async def test_a_chain_of_redirects_is_cut(crawl):
    """K1: at six hops."""
    answers = {HOME + str(n): (302, b"", ("Location", f"/{n + 1}")) for n in range(20)}
    it = await crawl(answers, fetch={"robots": False})
    outcomes = [
        (await it.visit(HOME + "0")).outcome,
        *[(await it.visit()).outcome for _ in "123456"],
    ]

    assert [outcome.status for outcome in outcomes[:6]] == [302] * 6
    assert outcomes[6] == Dropped("redirects: too many", 0.5)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("https://elsewhere.test/", "redirect: off-scope"),
        ("javascript:alert(1)", "redirect: scheme"),
        ("http://10.0.0.1/", "redirect: private-address"),
        ("http://[", "redirect: bad-url"),
    ],
)
async def test_redirect_to_refused_url_drops_the_page(crawl, location, reason):
    """G0."""
    it = await crawl(
        {HOME + "a": (302, b"", ("Location", location)), HOME: page("/a")},
        fetch={"robots": False},
        scope={"mode": "domain"},
    )
    await it.visit(HOME)

    assert (await it.visit()).outcome == Dropped(reason, 0.5)


async def test_a_seeds_redirect_target_joins_the_scope_however_many_hops(crawl):
    """A5."""
    it = await crawl(
        {
            HOME: (301, b"", ("Location", "https://b.test/")),
            "https://b.test/": (301, b"", ("Location", "https://c.test/")),
            "https://c.test/": page("/in"),
        },
        fetch={"robots": False},
        scope={"mode": "domain"},
    )
    for url in (HOME, None, None):
        last = await it.visit(url)

    assert last.lease.url == "https://c.test/"
    assert (await it.visit()).lease.url == "https://c.test/in"


async def test_a_redirect_to_the_same_identity_is_followed_in_the_same_visit_after_the_delay(crawl):
    """D7: there is no other task to hand it to."""
    it = await crawl(
        {HOME: (302, b"", ("Location", "/?utm_source=x")), HOME + "?utm_source=x": page()},
        fetch={"robots": False},
    )
    visit = await it.visit(HOME)

    assert visit.outcome.status == 200
    assert it.web.times == [0.0, 1.0]


async def test_page_that_redirects_to_itself_is_dropped(crawl):
    """K1: a loop is cut, with the delay between its requests."""
    it = await crawl({HOME: (302, b"", ("Location", "/"))}, fetch={"robots": False})
    visit = await it.visit(HOME)

    assert visit.outcome == Dropped("redirects: a loop", 0.5)
    assert it.web.times == [float(n) for n in range(7)]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ((429, b"", ("Retry-After", "5")), Throttled(5.0, 0.5)),
        ((429, b""), Throttled(None, 0.5)),
        ((503, b"", ("Retry-After", "5")), Throttled(5.0, 0.5)),
        ((503, b""), Failed("status 503", 0.5)),
        ((500, b""), Failed("status 500", 0.5)),
        (Unreachable("connect: refused"), Unreachable("connect: refused")),
        (Dropped("size", 0.5), Dropped("size", 0.5)),
    ],
)
async def test_which_is_which(crawl, answer, outcome):
    """G0."""
    it = await crawl({HOME: answer}, fetch={"robots": False})

    assert (await it.visit(HOME)).outcome == outcome


async def test_a_challenge_is_a_block(crawl):
    """G0: by the detector."""
    challenge = (403, b"<title>Just a moment...</title>", ("CF-Mitigated", "challenge"))
    it = await crawl({HOME: challenge}, fetch={"robots": False})
    outcome = (await it.visit(HOME)).outcome

    assert isinstance(outcome, Blocked)
    assert outcome.reason.startswith("challenge")


async def test_unwanted_media_types_are_dropped(crawl):
    """G0."""
    it = await crawl({HOME: page()}, fetch={"robots": False, "types": ["application/*"]})

    assert (await it.visit(HOME)).outcome == Dropped("type", 0.5)


async def test_a_lost_lease_sends_nothing(crawl):
    """D7: it is checked before every request."""
    it = await crawl({HOME: page()}, fetch={"robots": False})

    class Lost:
        async def holds(self, visit, seconds):
            return False

    await it.frontier.add([HOME])
    (lease,) = await it.frontier.claim(1)

    assert await it.fetcher(Visit(lease, Lost())) == LEASE_LOST
    assert it.web.urls == []


async def test_a_revisit_asks_whether_it_changed(crawl):
    """G3: with the validators of the last answer."""
    fields = (("ETag", '"1"'), ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT"))
    it = await crawl(
        {HOME: [(*page(), *fields), (304, b"")]},
        fetch={"robots": False},
        revisit={"policy": "fixed", "every": 60.0},
    )
    await it.visit(HOME)
    it.frontier.clock.advance(60.0)
    again = await it.visit()

    assert it.web.asked[1][2] == {
        "If-None-Match": '"1"',
        "If-Modified-Since": "Mon, 01 Jan 2024 00:00:00 GMT",
    }
    assert again.outcome.status == 304
    assert again.lease.last.answer.etag == '"1"'


async def test_a_throttled_page_is_answered_from_the_cache_and_still_throttles(crawl):
    """D5."""
    cache = ResponseCache(CacheFile(None))
    it = await crawl(
        {HOME: [page(), (429, b"", ("Retry-After", "40"))]},
        cache=cache,
        fetch={"robots": False},
        revisit={"policy": "fixed", "every": 60.0},
    )
    await it.visit(HOME)
    it.frontier.clock.advance(60.0)
    again = await it.visit()
    view = await it.frontier.queue("a.example").view()

    assert again.outcome.from_cache
    assert again.outcome.throttled == 40.0
    assert again.page.from_cache
    assert view.level == 1
    cache.close()


ETAG = (("ETag", '"1"'),)


@pytest.mark.parametrize("etag", ['"1"', '"other"'])
async def test_first_visit_asks_no_condition_about_a_response_of_another_crawl(crawl, etag):
    """K1, G3: a 304 would bring neither links nor a page; the crawl would end with its seed."""
    cache = ResponseCache(CacheFile(None))
    it = await crawl({HOME: (*page("/a"), *ETAG)}, cache=cache, fetch={"robots": False})
    await it.frontier.add([HOME])
    ((name, _),) = await it.frontier.upcoming("a.example")
    cache.put(name, Response(HOME, 200, (*HTML, ("ETag", etag)), b"kept", 0.1, 0.0))
    visit = await it.visit()

    assert it.web.asked[0][2] == {}
    assert [str(link.url) for link in visit.links] == ["https://a.example/a"]
    assert not visit.page.from_cache
    cache.close()


@pytest.mark.parametrize(
    ("stored", "answer", "body"),
    [('"1"', (304, b""), True), ('"other"', (304, b""), False), ('"1"', (304, b"", *ETAG), True)],
)
async def test_304_brings_the_stored_body_only_if_it_is_that_of_the_last_answer(
    crawl, stored, answer, body
):
    """K1, G3: the condition is always that of the last answer."""
    cache = ResponseCache(CacheFile(None))
    it = await crawl(
        {HOME: [(*page(), *ETAG), answer]},
        cache=cache,
        fetch={"robots": False},
        revisit={"policy": "fixed", "every": 60.0},
    )
    first = await it.visit(HOME)
    cache.put(
        first.lease.fingerprint, Response(HOME, 200, (*HTML, ("ETag", stored)), b"kept", 0.1, 0.0)
    )
    it.frontier.clock.advance(60.0)
    again = await it.visit()

    assert it.web.asked[1][2] == {"If-None-Match": '"1"'}
    assert again.outcome.status == 304
    assert (again.page.from_cache, again.page.body) == ((True, b"kept") if body else (False, b""))
    cache.close()


async def test_response_is_stored_again_with_validators_that_a_304_brings(crawl):
    """K1: they are those of the last answer now, about which the next visit asks."""
    cache = ResponseCache(CacheFile(None))
    it = await crawl(
        {HOME: [(*page(), *ETAG), (304, b"", ("ETag", '"2"')), (304, b"")]},
        cache=cache,
        fetch={"robots": False},
        revisit={"policy": "fixed", "every": 60.0},
    )
    visits = [await it.visit(HOME)]
    for _ in range(2):
        it.frontier.clock.advance(60.0)
        visits.append(await it.visit())

    assert [asked[2] for asked in it.web.asked] == [
        {},
        {"If-None-Match": '"1"'},
        {"If-None-Match": '"2"'},
    ]
    assert {visit.page.body for visit in visits} == {visits[0].page.body}
    cache.close()


CACHED = Response(HOME, 200, HTML, b'<a href="/a">a</a>', 0.1, 0.0)


async def test_links_of_a_throttled_page_are_read_from_the_cache(crawl):
    """D5: the response may be of another crawl, so that this one does not know them."""
    cache = ResponseCache(CacheFile(None))
    it = await crawl({HOME: (429, b"")}, cache=cache, fetch={"robots": False})
    await it.frontier.add([HOME])
    ((name, _),) = await it.frontier.upcoming("a.example")
    cache.put(name, replace(CACHED, at=it.web.began))
    visit = await it.visit()

    assert (visit.outcome.from_cache, visit.outcome.throttled) == (True, 0.0)
    assert [str(link.url) for link in visit.links] == ["https://a.example/a"]
    assert (await it.frontier.stats()).known == 2
    cache.close()


async def test_visit_with_a_cached_response_sends_no_request(crawl):
    """D5: neither for robots.txt nor for the page; its links are read."""
    it = await crawl({})
    await it.frontier.add([HOME])
    (lease,) = await it.frontier.claim(1)
    visit = Visit(lease, cached=CACHED)
    outcome = await it.fetcher(visit)

    assert (outcome.status, outcome.from_cache, outcome.seconds) == (200, True, 0.0)
    assert outcome.throttled is None
    assert visit.page.from_cache
    assert [str(link.url) for link in visit.links] == ["https://a.example/a"]
    assert it.web.urls == []


async def test_cached_response_of_an_unwanted_type_is_not_used(crawl):
    """D5, G0: the crawl that stored it may have wanted other types."""
    cache = ResponseCache(CacheFile(None))
    only = {"robots": False, "types": ["application/pdf"]}
    it = await crawl({HOME: (429, b"")}, cache=cache, fetch=only)
    await it.frontier.add([HOME])
    ((name, _),) = await it.frontier.upcoming("a.example")
    cache.put(name, replace(CACHED, at=it.web.began))
    (lease,) = await it.frontier.claim(1)

    assert await it.fetcher(Visit(lease)) == Throttled(None, 0.5)
    assert await it.fetcher(Visit(lease, cached=CACHED)) == Dropped("type", visited=False)
    cache.close()


# ---- one request per visit, where only leases keep requests apart (D1)

PACED = {
    "queue": {"key": "buckets:1"},
    "politeness": {"delay": 3.0, "count_from": "start", "max_in_flight": 9},
}
NEXT = "pace: one request per visit"


async def requests_by_visit(it, *urls):
    """Visit until nothing is left; the requests and the kind of outcome of each visit."""
    await it.frontier.add(urls)
    found = []
    while claim := await it.frontier.claim(1, wait=100.0):
        visit, before = Visit(claim[0]), len(it.web.urls)
        visit.outcome = await it.fetcher(visit)
        await it.frontier.finish(visit.lease, visit.outcome, visit.links)
        found.append((it.web.urls[before:], type(visit.outcome)))
        assert len(found) < 50
    return found


async def test_visit_that_read_robots_txt_leaves_its_page_to_another(crawl):
    """D1, D7: other visits of the queue begin meanwhile, so the store has to pace the page."""
    it = await crawl({ROBOTS: (200, b"User-agent: *\nCrawl-delay: 5"), HOME: page()}, **PACED)

    assert await requests_by_visit(it, HOME) == [([ROBOTS], Again), ([HOME], Done)]
    assert it.web.times == [0.0, 5.0]
    stats = await it.frontier.stats()
    assert (stats.done, stats.visits, stats.dead) == (1, 2, 0)


async def test_each_redirect_of_a_robots_txt_is_followed_in_a_visit_of_its_own(crawl):
    """D1, K2: also to another port, whose own robots.txt is read first."""
    other = "https://a.example:8443/"
    answers = {
        ROBOTS: moved(f"{HOME}r.txt"),
        f"{HOME}r.txt": moved(f"{other}rules"),
        f"{other}robots.txt": SHUT,
        f"{other}rules": SHUT,
        HOME: page(),
    }
    it = await crawl(answers, **PACED)
    every = [ROBOTS, f"{HOME}r.txt", f"{other}robots.txt", f"{other}rules", HOME]

    found = await requests_by_visit(it, HOME)
    assert found == [([url], Again) for url in every[:-1]] + [([HOME], Done)]
    assert it.web.times == [3.0 * n for n in range(5)]


async def test_redirect_to_the_same_identity_is_followed_in_another_visit(crawl):
    """D1, D7: where the leases pace the requests; the redirect is kept until then."""
    it = await crawl(
        {HOME: moved("/?utm_source=x"), f"{HOME}?utm_source=x": page()},
        fetch={"robots": False},
        **PACED,
    )
    found = await requests_by_visit(it, HOME)

    assert found == [([HOME], Again), ([f"{HOME}?utm_source=x"], Done)]


async def test_visit_that_waited_for_robots_txt_leaves_its_page_to_another(crawl):
    """D1: it is late by the time that the request took; it sent none, so it does not count."""
    asked = asyncio.Event()
    it = await crawl({ROBOTS: (200, b""), HOME: page(), f"{HOME}2": page()}, **PACED)
    get = it.web.get

    async def slow_get(url, **options):
        await asked.wait()
        return await get(url, **options)

    it.web.get = slow_get
    await it.frontier.add([HOME, f"{HOME}2"])
    leases = [(await it.frontier.claim(1, wait=100.0))[0] for _ in range(2)]
    visits = [asyncio.create_task(it.fetcher(Visit(lease))) for lease in leases]
    await asyncio.sleep(0)
    asked.set()

    assert await asyncio.gather(*visits) == [
        Again(NEXT, 0.5, crawl_delay=0.0),
        Again(NEXT, visited=False),
    ]
    assert it.web.urls == [ROBOTS]


@pytest.mark.parametrize(
    "politeness",
    [
        {"delay": 3.0, "count_from": "start"},
        {"delay": 3.0, "max_in_flight": 9},
        {"delay": 0.0, "count_from": "start", "max_in_flight": 9},
    ],
)
async def test_other_visits_wait_and_go_on(crawl, politeness):
    """D7: alone in its queue, or without a pace to keep, a visit needs no other lease."""
    it = await crawl({ROBOTS: (200, b""), HOME: page()}, politeness=politeness)

    assert await requests_by_visit(it, HOME) == [([ROBOTS, HOME], Done)]


async def test_visit_goes_on_if_the_next_one_would_be_no_further(crawl):
    """D1: rules that are not kept; and tasks that came back often, as with many new workers."""
    it = await crawl({ROBOTS: (200, b""), HOME: page()}, fetch={"robots_max_age": 0.5}, **PACED)
    get = it.web.get

    async def slow_get(url, **options):
        answer = await get(url, **options)
        it.frontier.clock.advance(1.0)
        return answer

    it.web.get = slow_get
    assert await requests_by_visit(it, HOME) == [([ROBOTS, HOME], Done)]

    it = await crawl({ROBOTS: (200, b""), HOME: page()}, **PACED)
    await it.frontier.add([HOME])
    for _ in range(MAX_RETURNS):
        (lease,) = await it.frontier.claim(1, wait=100.0)
        await it.frontier.finish(lease, Again(NEXT))
    assert await requests_by_visit(it) == [([ROBOTS, HOME], Done)]
