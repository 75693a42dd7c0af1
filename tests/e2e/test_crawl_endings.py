"""How a crawl can end: each has its exit code and its words, and nothing is said twice."""

import signal

import pytest

from outrider.testing.web import Site, Web, small_world, unreliable_hosts, violations
from outrider.testing.web.behaviours import linked, serving, slow
from outrider.testing.web.blocking_hosts import site as guarded_site
from outrider.testing.web.messages import TEXT

ROOT = "http://h0001.web.test/"


def pages(served):
    """Targets that were asked for, but for robots.txt."""
    return [f"{hit.host}{hit.target}" for hit in served.hits() if hit.path != "/robots.txt"]


@pytest.mark.slow
def test_finished_crawl_reports_so_in_a_few_lines(outrider, serve):
    """Exit 0; forty pages, and fewer lines than a screen has."""
    served = serve(small_world(1, hosts=2, pages=20, page_bytes=1000))
    done = outrider(*outrider.on(served, ROOT))
    assert done.code == 0, done.err
    assert "finished" in done.out
    assert "40 pages" in done.out
    assert len((done.out + done.err).splitlines()) < 25
    assert violations(served.hits(), delay=0.02, web=served.web) == []
    assert sorted(line["url"] for line in outrider.lines("h0001.web.test.jsonl")) == sorted(
        served.web.urls()
    )
    assert len((outrider.folder / "h0001.web.test.log").read_text().splitlines()) == 40


@pytest.mark.slow
def test_a_limit_of_pages_is_met_to_the_page(outrider, serve):
    """I4: exit 3 and budget; exactly so many are fetched, and a higher limit resumes it."""
    served = serve(small_world(2, hosts=4, pages=10, page_bytes=1000))
    words = outrider.on(served, ROOT, "--quiet")
    done = outrider(*words, "--max-pages", 7)
    assert done.code == 3
    assert "budget reached: the limit of pages" in done.out
    assert len(pages(served)) == len(outrider.lines("h0001.web.test.jsonl")) == 7
    assert outrider(*words, "--max-pages", 12).code == 3
    assert len(set(pages(served))) == len(pages(served)) == 12


@pytest.mark.slow
def test_a_limit_per_host_holds_the_rest_back(outrider, serve):
    """E1: exit 3; no host is visited more often, and what it holds is listed."""
    served = serve(small_world(3, hosts=3, pages=6, page_bytes=1000))
    done = outrider(*outrider.on(served, ROOT, "--quiet", "--max-per-host", 4, "--json"))
    assert done.code == 3
    hosts = [name.partition("/")[0] for name in pages(served)]
    assert {hosts.count(host) for host in hosts} == {4}
    assert done.json["closing"]["end"] == "budget"
    assert done.json["closing"]["missed"]["held: budget"] > 0


@pytest.mark.slow
def test_a_limit_of_time_pauses_the_crawl(outrider, serve):
    """I4: exit 3, and the same command without the limit finishes."""
    served = serve(small_world(4, hosts=1, pages=8, page_bytes=1000))
    words = outrider.on(served, ROOT, "--quiet", delay=0.2)
    done = outrider(*words, "--max-time", 0.5)
    assert (done.code, "limit of time" in done.out) == (3, True)
    assert outrider(*words).code == 0
    assert sorted(pages(served)) == sorted(url[7:] for url in served.web.urls())


@pytest.mark.slow
def test_a_crawl_may_pause_where_it_would_finish(outrider, serve):
    """I2: exit 4, and the next run finishes with nothing left to fetch."""
    served = serve(small_world(5, hosts=1, pages=3, page_bytes=1000))
    words = outrider.on(served, ROOT, "--quiet", "--set", "crawl.pause_at_finish=true")
    assert (done := outrider(*words)).code == 4, done.err
    assert "paused" in done.out
    assert outrider(*words).code == 0
    assert len(pages(served)) == 3


@pytest.mark.slow
def test_crawl_that_hosts_refuse_ends_as_blocked(outrider, serve):
    """Exit 5: every page a challenge, tried no further."""
    site = guarded_site()
    served = serve(Web([site]))
    urls = [served.web.url(site.name, path) for path in ("/challenge", "/denied", "/human")]
    settings = ("--set", "retry.blocked.max_retries=0")
    done = outrider(*outrider.on(served, *urls, "--quiet", *settings))
    assert done.code == 5
    assert "blocked" in done.out
    assert "challenge: cloudflare" in done.out


@pytest.mark.slow
def test_crawl_without_a_page_ends_as_nothing(outrider, serve):
    """Exit 6: robots.txt forbids every page."""
    robots = serving("User-agent: *\nDisallow: /\n", TEXT)
    served = serve(Web([Site("shut.web.test", paths={"/robots.txt": robots, "/": linked("x")})]))
    done = outrider(*outrider.on(served, "http://shut.web.test/", "--quiet"))
    assert done.code == 6
    assert "nothing fetched" in done.out
    assert [row for row in done.out.splitlines() if row.split() == ["robots", "1"]]
    assert pages(served) == []


@pytest.mark.slow
def test_unreachable_host_is_waited_for_until_the_crawl_is_cancelled(outrider, serve, until):
    """D4, I3: another process sees why it waits, and ends it: exit 7."""
    served = serve(Web([Site(unreliable_hosts.PACKED)], refusing=(unreliable_hosts.REFUSING,)))
    process = outrider.start(
        *outrider.on(served, f"http://{unreliable_hosts.REFUSING}/", "--quiet")
    )
    file = f"{unreliable_hosts.REFUSING}.outrider"
    until(lambda: '"unreachable"' in outrider("queues", file, "--json").out)
    assert outrider("cancel", file, "--yes").code == 0
    done = outrider.end(process)
    assert done.code == 7
    assert "cancelled" in done.out


@pytest.mark.slow
def test_a_crawl_that_is_cancelled_from_elsewhere_ends(outrider, serve, until):
    """I3: exit 7; visits in flight are let go, nothing more is asked for."""
    pages_ = {f"/{n}": slow(linked(f"{n}"), wait=0.3) for n in range(50)}
    site = Site("long.web.test", paths={"/": linked("root", *pages_), **pages_})
    served = serve(Web([site]))
    process = outrider.start(*outrider.on(served, "http://long.web.test/", "--quiet"))
    until(lambda: len(served.hits()) > 2)
    assert outrider("cancel", "long.web.test.outrider", "--yes").out == "default is cancelled\n"
    done = outrider.end(process)
    assert done.code == 7
    assert "cancelled" in done.out
    assert len(served.hits()) < 50
    again = outrider(*outrider.on(served, "http://long.web.test/", "--quiet"))
    assert again.code == 7


@pytest.mark.slow
def test_crawl_without_a_task_ends_at_once_as_nothing(outrider, serve):
    """I2: exit 6 and what to give, with or without a seed that was refused; with one, it runs."""
    made = outrider("add", "e.outrider", "http://127.0.0.1/", "--crawl", "e")
    words = ("--store", "e.outrider", "--crawl", "e", "--quiet")
    done = outrider("crawl", *words, "--json")
    refused = outrider("crawl", ROOT, *words, "--exclude", "h0001")

    assert "private-address" in made.err
    closing = done.json["closing"]
    assert (done.code, closing["end"], closing["stats"]["known"]) == (6, "nothing", 0)
    assert "the crawl has nothing to visit; give URLs" in closing["why"]
    assert (refused.code, "the crawl has nothing to visit" in refused.out) == (6, True), refused.err
    served = serve(small_world(1, hosts=1, pages=2, page_bytes=500))
    assert outrider(*outrider.on(served, ROOT, *words)).code == 0


@pytest.mark.slow
def test_crawl_that_stays_open_waits_for_more_until_it_is_stopped(outrider, serve, until):
    """I2, J4: with `crawl.stay_open` nothing left is no end; SIGTERM ends it in order."""
    site = Site("open.web.test", paths={"/": linked("root"), "/more": linked("more")})
    served = serve(Web([site]))
    process = outrider.start(
        *outrider.on(
            served, "http://open.web.test/", "--quiet", "--json", "--set", "crawl.stay_open=true"
        )
    )
    file = "open.web.test.outrider"
    until(lambda: '"done": 1' in outrider("stats", file, "--json").out)
    assert "kept open by crawl.stay_open" in outrider("stats", file, "--why").out

    outrider("add", file, "http://open.web.test/more")
    until(lambda: "open.web.test/more" in pages(served))
    until(lambda: '"done": 2' in outrider("stats", file, "--json").out)
    process.send_signal(signal.SIGTERM)
    done = outrider.end(process)

    closing = done.json["closing"]
    assert (done.code, closing["end"], closing["missed"]) == (130, "interrupted", {})
    assert closing["stats"]["status"] == "running"
