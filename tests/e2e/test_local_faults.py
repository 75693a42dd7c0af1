"""Crawls on a machine that lacks something: every page is crawled, none is charged for it."""

import signal

import pytest

from outrider.testing.web import small_world

HOSTS = 80
HANDLER = """
from outrider import LocalFault

async def handle(page):
    raise LocalFault("the licence server is away; start it")
"""


@pytest.fixture
def crawl(outrider, serve):
    """A function: the closing table and the errors of a crawl of many hosts, begun in a shell."""

    def run(before, *words):
        served = serve(small_world(1, hosts=HOSTS, pages=1, page_bytes=300))
        (outrider.folder / "seeds").write_text("\n".join(served.web.seeds()))
        words = ("--from", "seeds", "--store", "x.outrider", "--json", *words)
        words = (*outrider.on(served, *words, delay=0), "--set", "retry.max_retries=0")
        answer = outrider.end(outrider.start(*words, before=before))
        log = (outrider.folder / "x.log").read_text().splitlines()
        attempts = {line.split()[-1] for line in log}
        assert (answer.code, attempts) == (0, {"1"}), answer.err
        return answer.json["closing"], answer.err

    return run


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--set", "fetch.http2=true")], ids=["http1", "http2"])
def test_crawl_with_few_descriptors_visits_every_page_once(crawl, words):
    """The hard limit is low, so nothing can be raised: visits are repeated, none is charged."""
    closed, err = crawl("ulimit -n 32", *words)

    assert (closed["stats"]["done"], closed["stats"]["dead"]) == (HOSTS, 0)
    assert closed["outcomes"] == {"done": HOSTS}
    assert closed["faults"]
    assert "too many open files for this process (limit 32); raise the limit" in err
    assert "No page is charged" in err


@pytest.mark.slow
def test_soft_limit_of_open_files_is_raised(crawl):
    """A crawl that may open more does so, and lacks nothing."""
    closed, err = crawl("ulimit -Sn 24")

    assert (closed["stats"]["done"], closed["faults"]) == (HOSTS, {})
    assert "open files" not in err


@pytest.mark.slow
def test_crawl_whose_fault_never_ends_is_stopped_by_a_signal(outrider, serve):
    """It says what is wrong, waits, and leaves all pages as they were."""
    served = serve(small_world(1, hosts=2, pages=1))
    (outrider.folder / "mine.py").write_text(HANDLER)
    words = (*served.web.seeds(), "--handler", "mine:handle", "--store", "x.outrider", "--quiet")
    process = outrider.start(*outrider.on(served, *words))
    said = outrider.heard(process)
    process.send_signal(signal.SIGTERM)
    answer = outrider.end(process)

    assert said.startswith("outrider: the licence server is away; start it. No page is charged")
    assert answer.code == 130, answer.err
    stats = outrider("stats", "x.outrider", "--json").json
    assert (stats["pending"], stats["leased"], stats["done"], stats["dead"]) == (2, 0, 0, 0)
