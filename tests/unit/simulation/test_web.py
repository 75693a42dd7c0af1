from itertools import pairwise

import pytest

from outrider.core.outcome import Blocked, Done, Failed, Throttled, Unreachable
from outrider.core.url import Url, parse_url
from outrider.simulation.web import SHARES, HostKind, Shape, Web, split

SHAPE = Shape(hosts=40, pages=400)


def web_of(kind, **fields):
    """A web where every host has this kind."""
    return Web(1, Shape(hosts=4, pages=40, shares={kind: 1.0}, **fields))


def visits(web, path="a/0", times=200):
    """What many visits of the first host come to, a minute apart."""
    url = f"https://{web.hosts[0].name}/{path}"
    return [web.visit(url, 60.0 * n) for n in range(times)]


def kinds(responses):
    """The outcomes that occur."""
    return {type(response.outcome) for response in responses}


def test_a_web_is_a_function_of_its_seed():
    """Two webs of one seed answer every visit alike, in whatever order they are asked."""
    first, second = Web(9, SHAPE), Web(9, SHAPE)
    urls = [seed.url for seed in first.seeds()]
    answers = {url: first.visit(url, 5.0) for url in urls}

    assert first.hosts == second.hosts
    assert answers == {url: second.visit(url, 5.0) for url in reversed(urls)}


def test_other_seeds_are_other_webs():
    """The names, the kinds and the answers differ."""
    assert Web(1, SHAPE).hosts != Web(2, SHAPE).hosts


def test_sizes_follow_zipf():
    """The first host is by far the largest, and every host has a page."""
    sizes = [host.size for host in Web(3, SHAPE).hosts]

    assert all(larger >= smaller >= 1 for larger, smaller in pairwise(sizes))
    assert sizes[0] > 5 * sizes[9]
    assert sum(sizes) == pytest.approx(400, rel=0.1)


def test_every_host_has_its_own_name():
    """However many there are."""
    names = [host.name for host in Web(5, Shape(hosts=500)).hosts]

    assert len(set(names)) == 500


def test_every_page_of_a_host_is_found_from_its_home():
    """Home → hubs → articles; nothing is an island."""
    web = web_of(HostKind.STEADY)
    host = web.hosts[0]
    seen, open_ = set(), [f"https://{host.name}/"]
    while open_:
        url = open_.pop()
        if url not in seen and split(url)[0] == host.name:
            seen.add(url)
            open_ += [found.url for found in web.visit(url, 0.0).found]

    assert {f"https://{host.name}/a/{n}" for n in range(host.size)} <= seen


def test_links_are_the_same_at_every_visit():
    """Only the answer depends on the instant."""
    found = {response.found for response in visits(web_of(HostKind.STEADY))}

    assert len(found) == 1


def test_links_are_good_urls_of_both_lanes():
    """Articles for the one, hubs and pages for the other."""
    web = Web(2, SHAPE)
    found = [one for seed in web.seeds() for one in web.visit(seed.url, 1e6).found]
    found += [one for hub in found[:50] for one in web.visit(hub.url, 1e6).found]

    assert all(isinstance(parse_url(one.url), Url) for one in found)
    assert {"article", "nav"} <= {one.type for one in found}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (HostKind.STEADY, {Done}),
        (HostKind.FLAKY, {Done, Failed}),
        (HostKind.BUSY, {Done, Throttled}),
        (HostKind.GUARDED, {Done, Blocked}),
        (HostKind.GONE, {Unreachable}),
        (HostKind.DOZING, {Done, Unreachable}),
    ],
)
def test_a_temper_shows(kind, expected):
    """Each kind of host does what its kind says, and nothing else."""
    assert kinds(visits(web_of(kind))) == expected


@pytest.mark.parametrize("kind", [HostKind.BUSY, HostKind.GUARDED, HostKind.DOZING])
def test_a_calm_web_answers(kind):
    """After `calm_at` nobody throttles, blocks or dozes any more."""
    assert kinds(visits(web_of(kind, calm_at=0.0))) == {Done}


def test_busy_hosts_ask_for_patience_in_every_way():
    """With Retry-After, with none, and with one of 0."""
    throttles = [
        r.outcome for r in visits(web_of(HostKind.BUSY)) if isinstance(r.outcome, Throttled)
    ]
    waits = {throttle.retry_after for throttle in throttles}

    assert {None, 0.0} < waits


def test_moved_articles_lead_elsewhere():
    """A redirect is an answer with the target as its only link (G0)."""
    (response,) = visits(web_of(HostKind.MOVED), times=1)

    assert response.outcome.status == 301
    assert len(response.found) == 1


def test_a_trap_never_ends():
    """Every page of it links to one more."""
    web = web_of(HostKind.ENDLESS)
    url = f"https://{web.hosts[0].name}/more/1"
    for _ in range(50):
        (found,) = web.visit(url, 0.0).found
        assert found.url != url
        url = found.url


def test_strict_hosts_ask_for_a_crawl_delay():
    """Every answer of theirs says so."""
    assert all(response.outcome.crawl_delay for response in visits(web_of(HostKind.STRICT)))


def test_slow_hosts_take_longer():
    """Seconds rather than parts of one; and nobody answers in no time."""
    slow, steady = (visits(web_of(kind)) for kind in (HostKind.SLOW, HostKind.STEADY))

    assert min(response.seconds for response in slow) >= 2.0
    assert all(0 < response.seconds < 5.0 for response in steady)


def test_every_temper_has_a_share():
    """A new kind that no web would ever have is a mistake."""
    assert set(SHARES) == set(HostKind)
