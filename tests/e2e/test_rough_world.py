"""Hosts that move, fail, throttle, hide and lie: what each visit comes to, and who may complain."""

from collections import Counter

import msgspec
import pytest

from outrider.core.outcome import Blocked, Done, Failed, Throttled, Unreachable
from outrider.core.policy import politeness
from outrider.fetch import robots
from outrider.testing.web import (
    HOSTILE,
    Site,
    Web,
    blocking_hosts,
    hostile,
    listings,
    traps,
    unreliable_hosts,
    violations,
)
from outrider.testing.web import robots as robots_files
from outrider.testing.web.behaviours import failing, flaky, linked, redirecting

DELAY = 0.05
HASTE = 0.02
LISTS = (".xml", ".xml.gz", ".txt")


def sites(*names):
    """Those of the tempers' hosts."""
    return [site for site in unreliable_hosts.sites(1) if site.name in names]


@pytest.fixture
def impatient(monkeypatch):
    """Waits that are made for days of crawling, short enough for a test."""
    monkeypatch.setattr(politeness, "FIRST_THROTTLE_SNOOZE", 0.3)
    monkeypatch.setattr(politeness, "FIRST_UNREACHABLE_SNOOZE", 0.02)
    monkeypatch.setattr(politeness, "MAX_UNREACHABLE_SNOOZE", 0.05)
    monkeypatch.setattr(robots, "CLOSED_SECONDS", 0.2)


# ---- those that move


@pytest.fixture
async def moved(crawled):
    """A crawl of the host whose pages have moved, and of the one some moved to."""
    web = Web(sites(unreliable_hosts.MOVED, unreliable_hosts.PACKED))
    root = web.url(unreliable_hosts.MOVED, "/")
    return await crawled(web, root, settings={"politeness": {"delay": HASTE}})


@pytest.mark.slow
async def test_redirects_lead_on_each_through_the_frontier(moved):
    """K1, D7: every hop is a visit after the delay, its goal is fetched once, abroad too."""
    for status in (301, 302, 303, 307, 308):
        assert moved.last(unreliable_hosts.MOVED, f"/by/{status}").status == status
    assert moved.last(unreliable_hosts.MOVED, "/chain/0").status == 302
    assert moved.last(unreliable_hosts.MOVED, "/relative/hop").status == 302
    assert moved.last(unreliable_hosts.MOVED, "/without").status == 302  # it names no place
    assert moved.last(unreliable_hosts.PACKED).status == 200
    assert moved.pages[moved.web.url(unreliable_hosts.MOVED, "/goal")] == 1
    assert violations(moved.hits, delay=HASTE, web=moved.web) == []


@pytest.mark.slow
async def test_redirects_that_never_arrive_are_cut(moved):
    """K1: loops, disguises, chains beyond six hops, and places that are not ours."""
    ends = {
        path: moved.last(unreliable_hosts.MOVED, path)
        for path in ("/self", "/disguised", "/nowhere")
    }
    assert ends["/self"].reason == ends["/disguised"].reason == "redirects: a loop"
    assert ends["/nowhere"].reason == "redirect: off-scope"
    assert moved.ending.how == "finished"
    per_page = moved.pages
    assert per_page[moved.web.url(unreliable_hosts.MOVED, "/disguised")] == 7
    assert (
        per_page[moved.web.url(unreliable_hosts.MOVED, "/loop/a")] == 1
    )  # known, so not visited again
    assert max(per_page.values()) == 7


@pytest.mark.slow
async def test_a_chain_longer_than_six_hops_is_dropped_at_its_end(crawled):
    """K1: seen from its beginning, with nothing else leading into it."""
    (site,) = sites(unreliable_hosts.MOVED)
    web = Web([site])
    done = await crawled(web, web.url(unreliable_hosts.MOVED, "/long/0"))
    assert [done.last(unreliable_hosts.MOVED, f"/long/{n}").status for n in range(6)] == [301] * 6
    assert done.last(unreliable_hosts.MOVED, "/long/6").reason == "redirects: too many"
    assert done.web.url(unreliable_hosts.MOVED, "/long/7") not in done.ends


@pytest.mark.slow
async def test_a_seed_that_moved_to_another_domain_takes_the_crawl_along(crawled):
    """A5: where a seed is redirected to joins the scope, with what it links to; nothing else."""
    old, new, far = "old.web.test", "new.moved.test", "far.away.test"
    web = Web(
        [
            Site(old, paths={"/": redirecting(f"http://{new}/", 301)}, pages=["/"]),
            Site(new, paths={"/": linked("new", "/1", f"http://{far}/"), "/1": linked("1")}),
            Site(far, paths={"/": linked("far")}),
        ]
    )
    done = await crawled(web, web.url(old, "/"))
    assert set(done.pages) == {web.url(old, "/"), web.url(new, "/"), web.url(new, "/1")}
    assert done.stats.refused["off-scope"] == 1


# ---- those that fail, dawdle or pack


@pytest.mark.slow
async def test_statuses_become_what_they_mean(crawled):
    """G0, G1: answers are answers, errors are tried again, and the flaky recover."""
    web = Web(sites(unreliable_hosts.BROKEN))
    done = await crawled(web, settings={"retry": {"max_retries": 2}})
    for status in unreliable_hosts.ERRORS:
        visits = done.ends[web.url(unreliable_hosts.BROKEN, f"/status/{status}")]
        wanted = [Done] if status < 500 else [Failed] * 3
        assert [type(visit) for visit in visits] == wanted, status
    assert done.last(unreliable_hosts.BROKEN, "/flaky/1").status == 200
    assert done.last(unreliable_hosts.BROKEN, "/flaky/2").status == 200
    assert done.last(unreliable_hosts.BROKEN, "/flaky/3").reason == "status 500"
    assert done.stats.dead == 6
    assert violations(done.hits, delay=DELAY, web=web) == []


@pytest.mark.slow
async def test_slow_and_packed_pages_are_pages(crawled):
    """K1: late heads, bodies in pieces, gzip and chunks, alone and together."""
    web = Web(sites(unreliable_hosts.SLOW, unreliable_hosts.PACKED))
    done = await crawled(web)
    assert done.pages == dict.fromkeys(web.urls(), 1)
    assert {end.status for ends in done.ends.values() for end in ends} == {200}
    sizes = {
        done.last(unreliable_hosts.PACKED, path).bytes for path in ("/gzip", "/chunked", "/both")
    }
    assert len(sizes) == 1  # as many as were packed
    assert violations(done.hits, delay=DELAY, web=web) == []


# ---- those that ask for patience, and those that are not there


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
async def test_hosts_that_ask_for_patience_get_it(crawled):
    """D3: Retry-After as seconds or a date, of 429 and 503, is never cut short, and all is read."""
    busy = sites(
        unreliable_hosts.BUSY,
        unreliable_hosts.BUSY_BY_DATE,
        unreliable_hosts.OVERLOADED,
        unreliable_hosts.HASTELESS,
    )
    web = Web(busy)
    done = await crawled(web, settings={"keys": {unreliable_hosts.HASTELESS: {"delay": 0.3}}})
    assert set(done.pages) == set(web.urls())
    assert violations(done.hits, delay=DELAY, web=web) == []
    for host in (unreliable_hosts.BUSY, unreliable_hosts.BUSY_BY_DATE, unreliable_hosts.OVERLOADED):
        ends = [end for url, each in done.ends.items() if f"//{host}/" in url for end in each]
        assert sum(isinstance(end, Throttled) for end in ends) == 2, host
    assert {type(done.ends[url][-1]) for url in web.urls()} == {Done}


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
async def test_hosts_that_are_not_there_are_given_up(crawled):
    """D4: no address, no listener, no certificate: five in a row retire a queue, others go on."""
    web = Web(
        [unreliable_hosts.secret(), *sites(unreliable_hosts.PACKED)],
        refusing=(unreliable_hosts.REFUSING,),
        tls=(unreliable_hosts.SECRET,),
    )
    lost = [
        f"http://{unreliable_hosts.REFUSING}/",
        f"https://{unreliable_hosts.SECRET}/",
        f"http://{unreliable_hosts.NOWHERE}/",
    ]
    done = await crawled(
        web, *lost, web.url(unreliable_hosts.PACKED, "/"), settings={"scope": {"mode": "all"}}
    )
    for url in lost:
        assert [type(end) for end in done.ends[url]] == [Unreachable] * 5, url
    reasons = {key: view.reason for key, view in done.queues.items() if view.state == "retired"}
    assert reasons == dict.fromkeys(
        (unreliable_hosts.REFUSING, unreliable_hosts.SECRET, unreliable_hosts.NOWHERE),
        "unreachable",
    )
    assert done.last(unreliable_hosts.PACKED, "/both").status == 200
    assert done.ending.how == "finished"


# ---- robots.txt


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
async def test_every_robots_txt_is_read_as_it_is_meant(crawled):
    """K2: missing, broken, huge, garbled, redirected, slow … each leaves the pages it leaves."""
    web = Web([robots_files.site(name) for name in robots_files.CASES])
    done = await crawled(web)
    assert set(done.pages) == set(web.urls())
    assert set(done.pages.values()) == {1}
    assert violations(done.hits, delay=DELAY, web=web) == []
    for name in ("broken", "unavailable"):
        end = done.last(f"robots-{name}.web.test")
        assert end.reason.startswith("robots.txt: ")
    for name in ("prefix", "huge", "named", "redirected", "relayed", "slow", "delaying"):
        assert done.last(f"robots-{name}.web.test", "/shut").reason == "robots", name
    assert done.last("robots-closed.web.test").reason == "robots"
    assert done.last("robots-misleading.web.test", "/shut").status == 200
    assert done.last("robots-longest.web.test", "/shut/but/inner").status == 200


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
async def test_a_robots_txt_that_recovers_lets_its_pages_be_read(crawled):
    """K2: a host that could not tell is asked again, and nothing of it is lost."""
    site = robots_files.site("prefix")
    tale = flaky(robots_files.CASES["prefix"].robots, times=1, trouble=failing(503))
    web = Web([msgspec.structs.replace(site, paths={**site.paths, "/robots.txt": tale})])
    done = await crawled(web)
    assert done.pages == dict.fromkeys(web.urls(), 1)
    assert violations(done.hits, delay=DELAY, web=web) == []


# ---- those with guards, lists, traps


@pytest.mark.slow
async def test_challenges_and_denials_are_told_from_pages(crawled):
    """G0: whatever their status; a page that only speaks of them is a page."""
    web = Web([blocking_hosts.site()])
    patience = {"retry": {"blocked": {"max_retries": 0, "base": 0.1, "spread": 0.0}}}
    done = await crawled(web, settings=patience)
    ends = {path: type(done.last(blocking_hosts.GUARDED, path)) for path in blocking_hosts.EXPECTED}
    assert ends == blocking_hosts.EXPECTED
    assert Blocked in ends.values()
    assert done.stats.dead == Counter(ends.values())[Blocked]
    assert done.pages == dict.fromkeys(web.urls(), 1)
    assert violations(done.hits, delay=DELAY, web=web) == []


@pytest.mark.slow
async def test_pages_that_only_lists_name_are_found(crawled):
    """K3: sitemaps of all kinds, RSS and Atom; an index in itself, and a bomb, do no harm."""
    web = Web(listings.sites())
    done = await crawled(web)
    assert done.ending.how == "finished"
    found = {page: count for page, count in done.pages.items() if not page.endswith(LISTS)}
    assert found == dict.fromkeys(web.urls(), 1)
    assert set(done.pages.values()) == {1}
    assert violations(done.hits, delay=DELAY, web=web) == []


@pytest.mark.slow
async def test_hosts_without_end_are_left_at_the_limits(crawled):
    """A5, B4: by depth and by the guards; the crawl ends by itself."""
    web = Web([traps.site(1)])
    settings = {"politeness": {"delay": 0.0}, "queue": {"max_depth": 5}}
    done = await crawled(web, settings=settings)
    assert done.ending.how == "finished"
    assert set(web.urls()) <= set(done.pages)
    assert done.stats.refused["max-depth"] > 0
    deeper = {**settings, "queue": {"max_depth": 1000}, "scope": {"include": ["/$|/nest|/echo"]}}
    done = await crawled(web, settings=deeper)
    assert done.ending.how == "finished"
    assert done.stats.refused["repeated-segment"] > 0


SLOW = ["/slow-headers", "/slow-body", "/silence"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paths", "limits"),
    [
        (SLOW, {"connect_timeout": 1.5, "read_timeout": 0.5, "total_timeout": 1.5}),
        ([path for path in HOSTILE if path not in SLOW], {"total_timeout": 50.0}),
    ],
    ids=["by taking time", "by what it sends"],
)
async def test_a_host_that_means_harm_harms_only_its_own_visits(crawled, paths, limits):
    """Every page of it ends as it should, and hosts beside it are read to the end."""
    web = Web([hostile.site(), *sites(unreliable_hosts.PACKED)])
    seeds = [
        *(web.url(hostile.HOST, path) for path in paths),
        web.url(unreliable_hosts.PACKED, "/"),
    ]
    settings = {
        "politeness": {"delay": 0.0, "max_in_flight": 8},
        "fetch": limits,
        "retry": {"max_retries": 0},
        "scope": {"exclude": ["/found"]},  # what its odd pages link to, by the thousand
    }
    done = await crawled(web, *seeds, settings=settings)
    ends = {path: done.last(hostile.HOST, path) for path in paths}
    assert [path for path in paths if not isinstance(ends[path], HOSTILE[path])] == []
    assert done.ending.how == "finished"
    assert done.last(unreliable_hosts.PACKED, "/both").status == 200
    assert {hit.host for hit in done.hits} == {hostile.HOST, unreliable_hosts.PACKED}
