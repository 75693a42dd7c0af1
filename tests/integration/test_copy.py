"""`outrider copy` between real stores: every pair, killed half-way, and a copy somebody touched."""

import asyncio
import json
import signal
import subprocess
import sys
from itertools import permutations

import pytest

from outrider.clock import SystemClock
from outrider.core.outcome import Done, Failed, Throttled
from outrider.core.states import CrawlStatus
from outrider.frontier.copy_crawl import copy_crawl
from outrider.store.factory import open_store
from outrider.testing.builders import rules, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.export import portrait, rich_crawl
from outrider.testing.conformance.steps import CRAWL, add, claim, crawl, open_crawls

KINDS = ("file", "postgres", "redis", "cluster")
OUTCOMES = (Done(200, 0.1, 1000), Failed("reset"), Throttled(5.0))


@pytest.fixture
def place(tmp_path, places):
    """A maker of empty places, by kind."""

    def take(kind):
        if kind == "file":
            return str(tmp_path / "crawl.outrider")
        url = places.take(kind)
        return url.replace("redis://", "redis+cluster://", 1) if kind == "cluster" else url

    return take


def outrider(*arguments):
    """The command, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "outrider", *arguments], capture_output=True, text=True, check=False
    )


async def _filled(url, tasks=60):
    """A crawl with visits behind it and a lease out."""
    store = await open_store(url, SystemClock())
    await store.configure(CRAWL, rules(delay=0.0))
    for first in range(0, tasks, 500):
        await add(store, *(f"h{n % 9}/{n}" for n in range(first, min(first + 500, tasks))))
    for lease, outcome in zip(await claim(store, 8), OUTCOMES * 2, strict=False):
        await store.finish([verdict(lease, outcome)])
    await store.close()


async def _known(url):
    store = await open_store(url, SystemClock())
    try:
        return await crawl(store)
    finally:
        await store.close()


@pytest.mark.parametrize(("source", "target"), list(permutations(KINDS, 2)))
async def test_a_crawl_goes_from_any_store_into_any_other(place, source, target):
    """I5: with everything that can be said of queues and tasks, and it looks the same there."""
    clock = FakeClock()
    there, here = await open_store(place(source), clock), await open_store(place(target), clock)
    await rich_crawl(there, clock)
    report = await copy_crawl(there, here, CRAWL)

    assert report.fault is None
    told, kept = await portrait(there, CRAWL), await portrait(here, CRAWL)
    assert told["heat"] == kept["heat"]
    assert told["crawl"] == kept["crawl"]
    assert _by_key(told["queues"]) == _by_key(kept["queues"])
    await there.close()
    await here.close()


def _by_key(queues):
    return {queue.key: queue for queue in queues}


def test_the_command_copies_and_tells(place):
    """From a laptop to a cluster, in one line; and the same again does no harm."""
    source, target = place("file"), place("cluster")
    asyncio.run(_filled(source))
    first = outrider("copy", source, target, "--json")
    assert (first.returncode, first.stderr) == (0, "")
    report = json.loads(first.stdout)
    assert (report["tasks"], report["fault"], report["status"]) == (60, None, "running")

    again = outrider("copy", source, target)
    assert again.returncode == 0
    assert "60 tasks, equal on both sides" in again.stdout
    assert "there already" in again.stdout


def test_a_copy_that_somebody_touched_is_found(place):
    """It leaves with 1 and says so."""
    source, target = place("file"), place("redis")
    asyncio.run(_filled(source))
    outrider("copy", source, target)
    asyncio.run(_added_to(target))
    again = outrider("copy", source, target)

    assert again.returncode == 1
    assert "exists already and differs" in again.stderr


async def _added_to(url):
    store = await open_store(url, SystemClock())
    await add(store, "new/1")
    await store.close()


CHILD = """
import asyncio, sys
from outrider.clock import SystemClock
from outrider.frontier.copy_crawl import copy_crawl
from outrider.store.factory import open_store

async def main():
    source, target = [await open_store(url, SystemClock()) for url in sys.argv[1:]]
    await copy_crawl(source, target, "default", progress=lambda *so_far: print(so_far, flush=True))

asyncio.run(main())
"""


@pytest.mark.parametrize("target", KINDS)
def test_a_copy_killed_half_way_is_begun_again(tmp_path, place, target):
    """As by kill -9, while it copies and while it compares; until it is whole it lends nothing."""
    source, url = str(tmp_path / "source.outrider"), place(target)
    asyncio.run(_filled(source, tasks=3000))
    for moment in ("('copied', 1", "('copy read', 1"):
        _kill_at(moment, source, url)
        assert asyncio.run(_lent(url)) == []

    report = asyncio.run(_copied(source, url))
    assert (report.fault, report.tasks, report.status) == (None, 3000, CrawlStatus.RUNNING)
    assert report.new == 1  # all but the end was there
    assert asyncio.run(_lent(url)) != []


def _kill_at(moment, *urls):
    copy = subprocess.Popen([sys.executable, "-c", CHILD, *urls], stdout=subprocess.PIPE, text=True)
    with copy:
        told = next(line for line in copy.stdout if line.startswith(moment))
        copy.send_signal(signal.SIGKILL)
    assert (bool(told), copy.returncode) == (True, -signal.SIGKILL)


async def _copied(*urls):
    source, target = [await open_store(url, SystemClock()) for url in urls]
    try:
        return await copy_crawl(source, target, CRAWL)
    finally:
        await source.close()
        await target.close()


async def _lent(url):
    store = await open_store(url, SystemClock())
    try:
        return await claim(store)
    finally:
        await store.close()


def test_crawls_may_be_chosen_and_renamed(tmp_path, place):
    """One by its name, under another; with several, `--into` is refused."""
    source, target = str(tmp_path / "source.outrider"), place("file")
    asyncio.run(_filled(source))
    asyncio.run(_added_as(source, "other"))
    assert "--into names one copy" in outrider("copy", source, target, "--into", "x").stderr

    named = outrider("copy", source, target, "--crawl", "other", "--into", "twin", "--json")
    assert json.loads(named.stdout)["into"] == "twin"
    both = outrider("copy", source, target, "--json").stdout.splitlines()
    assert [json.loads(line)["crawl"] for line in both] == ["default", "other"]


async def _added_as(url, name):
    store = await open_store(url, SystemClock())
    await open_crawls(store, name)
    await add(store, "a/1", crawl=name)
    await store.close()


def test_a_crawl_paused_for_its_copy_goes_on_there(tmp_path, place):
    """Of the two one lends."""
    source, target = str(tmp_path / "source.outrider"), place("file")
    asyncio.run(_filled(source))
    assert outrider("copy", source, target, "--pause").returncode == 0

    assert asyncio.run(_known(source)).status is CrawlStatus.PAUSED
    assert asyncio.run(_known(target)).status is CrawlStatus.RUNNING


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ("nowhere.outrider", "x.outrider", "no such file"),
        ("memory://", "x.outrider", "ends with its process"),
        ("made.outrider", "memory://", "ends with its process"),
        ("made.outrider", "made.outrider", "onto itself"),
    ],
)
def test_what_cannot_be_copied_is_refused(tmp_path, source, target, told):
    """With 2, and what to do; nothing is made."""
    asyncio.run(_filled(str(tmp_path / "made.outrider")))
    given = [name if "://" in name else str(tmp_path / name) for name in (source, target)]
    answer = outrider("copy", *given)

    assert (answer.returncode, told in answer.stderr) == (2, True), answer.stderr
    assert not (tmp_path / "x.outrider").exists()
