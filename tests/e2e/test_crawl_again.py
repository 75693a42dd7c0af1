"""The same file twice: resumed, finished, started over, or held by another process."""

import asyncio
import json

import pytest

from outrider.clock import SystemClock
from outrider.store.embedded import EmbeddedStore
from outrider.testing.web import small_world, violations

ROOT = "http://h0001.web.test/"
STEM = "h0001.web.test"
FILE = f"{STEM}.outrider"


@pytest.fixture
def served(serve):
    """A small web."""
    return serve(small_world(6, hosts=2, pages=15, page_bytes=1000))


def urls_of(lines):
    """What they are about, in order of the alphabet."""
    return sorted(line["url"] for line in lines)


@pytest.mark.slow
def test_a_crawl_that_is_finished_has_nothing_left_to_do(outrider, served):
    """The second run reports so, visits no host, and writes nothing twice."""
    words = outrider.on(served, ROOT, "--quiet")
    assert outrider(*words).code == 0
    hits = len(served.hits())
    again = outrider(*words)
    assert (again.code, "finished" in again.out) == (0, True)
    assert "0 visits" in again.out
    assert len(served.hits()) == hits
    assert outrider("crawl", "--store", FILE, "--quiet").code == 0  # by its file alone
    assert urls_of(outrider.lines(f"{STEM}.jsonl")) == sorted(served.web.urls())


@pytest.mark.slow
def test_starting_over_keeps_the_old_files_under_other_names(outrider, served):
    """Nothing is thrown away, and everything is fetched again."""
    words = outrider.on(served, ROOT, "--quiet", "--max-pages", 5)
    assert outrider(*words).code == 3
    before = {name: data for name, data in outrider.files().items() if not name.endswith("-lock")}
    again = outrider(*words, "--start-over")
    assert again.code == 3
    assert "--start-over" not in again.last  # a command that resumes does not start over
    after = outrider.files()
    for name, data in before.items():
        (kept,) = [other for other in after if other.startswith(f"{name}.2")]
        assert after[kept] == data
        assert f"renamed an old file to {kept}" in again.err
    assert len(outrider.lines(f"{STEM}.jsonl")) == 5


@pytest.mark.slow
def test_a_crawl_that_runs_can_be_looked_at_and_turned_but_not_run_twice(outrider, served, until):
    """M3: other processes see it and pause it; a second crawl of it is refused by name."""
    words = outrider.on(served, ROOT, "--quiet", delay=2.0)  # it must not end before it is paused
    process = outrider.start(*words)
    until(lambda: len(served.hits()) > 3)
    assert outrider("pause", FILE).out == "default is paused\n"
    second = outrider(*words)
    assert (second.code, second.out) == (2, "")
    assert str(process.pid) in second.err
    assert f"outrider watch {FILE}" in second.err
    beside = outrider(*words, "--store", "other.outrider", "--output", STEM)
    assert (beside.code, "held by another process" in beside.err) == (2, True)
    assert not (outrider.folder / "other.outrider").exists()
    assert outrider("stats", FILE, "--json").json["status"] == "paused"
    queues = [json.loads(line) for line in outrider("queues", FILE, "--json").out.splitlines()]
    assert {queue["key"] for queue in queues} >= {STEM}
    assert process.poll() is None  # it waits to be resumed
    assert outrider("config", "set", FILE, "politeness.delay=0.1").code == 0
    assert outrider("resume", FILE).code == 0
    assert outrider.end(process).code == 0
    assert urls_of(outrider.lines(f"{STEM}.jsonl")) == sorted(served.web.urls())
    assert violations(served.hits(), delay=0.1, web=served.web) == []


@pytest.mark.slow
def test_a_crawl_starts_when_a_command_has_closed_its_file(outrider, served):
    """M3: a follower of a killed crawl opens the file for a second, and refuses no restart."""
    words = outrider.on(served, ROOT, "--quiet")
    assert outrider(*words, "--max-pages", 3).code == 3
    held = EmbeddedStore.open(outrider.folder / FILE, SystemClock(), purpose="command")
    again = outrider.start(*words)
    said = outrider.heard(again)
    asyncio.run(held.close())
    end = outrider.end(again)

    assert f"{FILE} is in use by process " in said
    assert "waiting until it is closed" in said
    assert end.code == 0, end.err
    assert urls_of(outrider.lines(f"{STEM}.jsonl")) == sorted(served.web.urls())


@pytest.mark.slow
def test_more_seeds_make_a_finished_crawl_run_again(outrider, serve):
    """I2: with --scope host, a second host is a second run of the same crawl."""
    served = serve(small_world(7, hosts=2, pages=4, page_bytes=1000))
    words = ("--quiet", "--scope", "host", "--store", "mine.outrider")
    first, second = served.web.seeds()
    assert outrider(*outrider.on(served, first, *words)).code == 0
    assert {line["url"].split("/")[2] for line in outrider.lines("mine.jsonl")} == {STEM}
    assert outrider(*outrider.on(served, second, *words)).code == 0
    assert urls_of(outrider.lines("mine.jsonl")) == sorted(served.web.urls())
