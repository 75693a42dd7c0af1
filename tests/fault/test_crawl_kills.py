"""A crawl that is killed, or stopped for longer than its leases, and begun again: nothing is lost,
nothing is written twice, and no host has reason to complain.
"""

import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest
from msgspec.structs import replace
from warcio.archiveiterator import ArchiveIterator

from outrider.clock import SystemClock
from outrider.testing.web import Shape, Site, Web, WebProcess, WebThread, violations
from outrider.testing.web.behaviours import linked, slow, throttling_hits
from outrider.testing.web.robots import rules
from scale import ROUNDS

PATIENCE = 180.0  # seconds
NAP = 0.02
RETRY_AFTER = 2.0  # seconds that a throttling host names
UNSAVED = 1.0  # seconds before a kill in which an answer may not be saved yet
# The command, but for the half minute that a throttled host is left alone for at the least.
COMMAND = """
from outrider.core.policy import politeness
politeness.FIRST_THROTTLE_SNOOZE = 0.3
from outrider.cli import main
main()
"""

HANDLER = """
async def item(page):
    return {"url": page.url}
"""


class Crawl:
    """One command, begun as often as it takes."""

    def __init__(self, folder, served, *words):
        self.folder = folder
        self._served = served
        routes = served.settings()["fetch"]["connect_to"].items()
        table = ", ".join(f'"{host}" = "{place}"' for host, place in routes)
        words = [*words, "--quiet", "--store", "x.outrider"]
        words += ["--set", f"fetch.connect_to={{{table}}}"]
        self._words = [sys.executable, "-c", COMMAND, "crawl", *map(str, words)]
        self._process = None
        self.killed_at = []

    def start(self):
        """Begin it, or go on."""
        errors = (self.folder / "errors.txt").open("ab")
        self._process = subprocess.Popen(
            self._words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=errors
        )
        errors.close()

    def asked(self):
        """Requests that were answered so far."""
        if isinstance(self._served, WebProcess):
            return self._served.record.read_bytes().count(b"\n")
        return len(self._served.hits())

    def wait(self, is_so):
        """Until something is so, while it runs."""
        nap = threading.Event()
        for _ in range(int(PATIENCE / NAP)):
            if is_so():
                return
            assert self._process.poll() is None, self.said()
            nap.wait(NAP)
        pytest.fail("it never came to pass")

    def signal(self, number):
        """Send one."""
        self._process.send_signal(number)

    def kill(self):
        """As `kill -9` does."""
        self.killed_at.append(SystemClock().now_ms() / 1000)
        self._process.kill()
        self._process.wait()

    def finish(self):
        """Run it to the end."""
        self.start()
        assert self._process.wait(PATIENCE) == 0, self.said()

    def said(self):
        """What it said on standard error, all runs together."""
        return (self.folder / "errors.txt").read_text()

    def lines(self, name="x.jsonl"):
        """The pages that were written; every line is whole."""
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def clean_up(self):
        """Leave nothing running."""
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()


@pytest.fixture
def crawl_of(tmp_path):
    """Makes the command of a crawl, and ends it with the test."""
    made = []

    def make(served, *words):
        made.append(Crawl(tmp_path, served, *words))
        return made[-1]

    yield make
    for crawl in made:
        crawl.clean_up()


def killed(crawl, dice, times, *, least, most):
    """Kill it at random: some requests further on each time, or before it made one."""
    for number in range(times):
        crawl.start()
        before = crawl.asked()
        if number % 4 == 3:
            threading.Event().wait(dice.uniform(0.05, 0.5))  # while it opens its files
        else:
            goal = before + dice.randint(least, most)
            crawl.wait(lambda goal=goal: crawl.asked() >= goal)
            threading.Event().wait(dice.uniform(0.0, 0.03))
        crawl.kill()


@pytest.fixture
def dice():
    """Dice whose seed is shown if the test fails."""
    seed = random.randrange(2**32)
    print(f"dice: random.Random({seed})")  # noqa: T201 - shown with a failure
    return random.Random(seed)


@pytest.mark.slow
def test_a_site_crawled_through_kills_is_whole_and_written_once(crawl_of, tmp_path, dice):
    """K4, M3: every page, no more visits than were in flight at the kills, one record each, and
    one item.
    """
    kills, slots, pages = 5 * ROUNDS, 16, 500 * ROUNDS
    with WebProcess(Shape(seed=5, hosts=1, pages=pages, links=30, page_bytes=1500)) as served:
        root = served.web.seeds()[0]
        manners = ("--delay", 0, "--slots", slots, "--set", f"politeness.max_in_flight={slots}")
        (tmp_path / "mine.py").write_text(HANDLER)
        crawl = crawl_of(served, root, "--handler", "mine:item", *manners)
        # After two rounds of all slots no page is in flight at two kills in a row, let alone three.
        killed(crawl, dice, kills, least=2 * slots, most=100)
        crawl.finish()
        fetched = Counter(served.web.page(hit.host, hit.target) for hit in served.hits())
        fetched.pop(f"{root}robots.txt")
        urls = sorted(served.web.urls())
    assert sorted(fetched) == urls
    assert fetched.total() - pages <= kills * slots
    assert sorted(line["url"] for line in crawl.lines()) == urls
    assert sorted(line["url"] for line in crawl.lines("x.items.jsonl")) == urls


def mixed_site(number):
    """Every third host asks for more delay, or for still more; every tenth throttles twice."""
    pages = {f"/{page}": linked(f"{page}") for page in range(3)}
    delay = (None, 0.2, 0.5)[number % 3]
    robots = rules("Disallow: /shut", *([f"Crawl-delay: {delay}"] if delay else []))
    return Site(
        f"h{number:03}.web.test",
        paths={"/robots.txt": robots, "/": linked("root", "/shut", *pages), **pages},
        first=(throttling_hits({3, 5}, RETRY_AFTER),) if number % 10 == 0 else (),
        pages=["/", *pages],
        forbidden=("/shut",),
        crawl_delay=delay,
    )


def heard(hits, killed_at):
    """The hits, without a Retry-After that the killed process had no time to save."""

    def is_unsaved(hit):
        return any(at - UNSAVED < hit.ended_at <= at + NAP for at in killed_at)

    return [replace(hit, wait_until=0.0) if is_unsaved(hit) else hit for hit in hits]


@pytest.mark.slow
def test_two_hundred_hosts_are_treated_well_whenever_the_crawl_is_killed(crawl_of, tmp_path, dice):
    """D7: spacing, Crawl-delay, Retry-After and robots.txt hold over restarts, by their record."""
    web = Web([mixed_site(number) for number in range(200)])
    (tmp_path / "seeds.txt").write_text("\n".join(web.seeds()))
    with WebThread(web) as served:
        # H4 gives up what was in flight at three kills: here that would be every host's first page.
        patience = ("--set", "lease.max_crashes=10")
        crawl = crawl_of(served, "--from", "seeds.txt", "--delay", 0.1, *patience)
        killed(crawl, dice, 4, least=100, most=190)
        crawl.finish()
    hits = served.hits()
    assert violations(heard(hits, crawl.killed_at), delay=0.1, web=web) == []
    assert sum(hit.status == 429 for hit in hits) >= 20
    assert {web.page(hit.host, hit.target) for hit in hits if hit.status == 200} >= set(web.urls())
    assert sorted(line["url"] for line in crawl.lines()) == sorted(web.urls())


@pytest.mark.slow
def test_a_crawl_stopped_for_longer_than_its_leases_writes_every_page_once(crawl_of):
    """H3: leases that ran out meanwhile are lost, and what their visits bring is not kept twice."""
    pages = {f"/{page}": slow(linked(f"{page}"), wait=page % 6 / 10) for page in range(60)}
    site = Site("slow.web.test", paths={"/": linked("root", *pages), **pages}, pages=["/", *pages])
    with WebThread(Web([site])) as served:
        limits = ("lease.seconds=1", "fetch.total_timeout=0.8", "politeness.max_in_flight=4")
        words = [word for limit in limits for word in ("--set", limit)]
        crawl = crawl_of(served, "http://slow.web.test/", "--delay", 0, *words)
        crawl.start()
        for goal in (5, 25):
            crawl.wait(lambda goal=goal: crawl.asked() >= goal)
            crawl.signal(signal.SIGSTOP)
            threading.Event().wait(1.6)
            crawl.signal(signal.SIGCONT)
        assert crawl._process.wait(PATIENCE) == 0, crawl.said()
    assert violations(served.hits(), max_in_flight=4, web=served.web) == []
    assert sorted(line["url"] for line in crawl.lines()) == sorted(served.web.urls())


@pytest.mark.slow
def test_an_archive_written_through_kills_has_every_page_once(crawl_of, tmp_path, dice):
    """K4: every WARC file is whole for warcio, and no response is missing or doubled."""
    with WebProcess(Shape(seed=6, hosts=2, pages=200, links=30, page_bytes=3000)) as served:
        manners = ("--delay", 0, "--slots", 8, "--set", "politeness.max_in_flight=4")
        crawl = crawl_of(served, served.web.seeds()[0], "--format", "warc", *manners)
        killed(crawl, dice, 3, least=30, most=100)
        crawl.finish()
        urls = sorted(served.web.urls())
    archived = []
    for path in tmp_path.glob("*.warc.gz"):
        with path.open("rb") as file:
            records = ArchiveIterator(file, check_digests="raise")
            archived += [
                record.rec_headers["WARC-Target-URI"]
                for record in records
                if record.rec_type == "response" and record.content_stream().read()
            ]
    assert sorted(archived) == urls
