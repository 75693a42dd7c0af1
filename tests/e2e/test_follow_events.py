"""`outrider events --follow`: a second process sees the visits of all workers of a crawl (O3)."""

import asyncio
import json
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outrider import Frontier
from outrider.clock import SystemClock
from outrider.settings import merged, settings_of
from outrider.store.factory import peek_file
from outrider.testing.web import small_world
from outrider.wiring import SITES

STORE = "x.outrider"
DELAY = 0.1
LEARNT_MS = 1500  # until every worker knows of a follower
ENDS = {"finished", "retried", "dropped", "died", "from-cache", "throttled"}

pytestmark = pytest.mark.slow


@pytest.fixture
def web(serve):
    """Ten hosts, which answer on this machine."""
    return serve(small_world(seed=5, hosts=10, pages=12))


@pytest.fixture(params=["file", "postgres", "redis"])
def store(request):
    """Each kind of store that several processes may share."""
    if request.param == "file":
        return STORE
    return request.getfixturevalue("places").take(request.param)


@pytest.fixture
def on_crawl(outrider, store):
    """Calls a function with a frontier attached to the crawl, through the holder of a file."""
    source = store if "://" in store else outrider.folder / store

    def do(work):
        async def done():
            async with Frontier.attach(source) as frontier:
                return await work(frontier)

        return asyncio.run(done())

    return do


@pytest.fixture
def made(outrider, store, web):
    """A crawl with its seeds, paused."""
    source = store if "://" in store else outrider.folder / store

    async def make():
        tree = merged(settings_of(SITES), web.settings())
        tree = merged(tree, {"politeness": {"delay": DELAY}})
        async with Frontier.open(source, settings=tree) as frontier:
            await frontier.add(web.web.seeds())
            await frontier.pause()

    asyncio.run(make())


@pytest.fixture
def joined(outrider, store, made, on_crawl, until):
    """Two workers of the crawl, which wait until it is resumed."""

    async def states(frontier):
        return await frontier.workers()

    workers = [
        outrider.start("work", store, "--quiet", "--json", "--slots", 4, "--output", "x")
        for _ in "12"
    ]
    until(lambda: "://" in store or (outrider.folder / f"{store}.sock").exists())
    until(lambda: len(on_crawl(states)) == 2)
    return workers


class Follower(NamedTuple):
    """A process that prints events to a file."""

    process: Any
    file: Path

    def events(self):
        """The events that were printed; a line that was cut by a kill is none."""
        return [json.loads(line) for line in self.file.read_text().split("\n")[:-1]]


@pytest.fixture
def follow(outrider, store, on_crawl, until):
    """Starts a follower, and waits until the workers know of it."""

    async def topics(frontier):
        return {value.topic for value in await frontier.store.values_since("default")}

    def start(*options, before="exec >{name}"):
        name = f"follower-{len(list(outrider.folder.glob('follower-*')))}"
        words = ("events", store, "--follow", *options)
        process = outrider.start(*words, before=before.format(name=name))
        until(lambda: "followed" in on_crawl(topics))
        learnt = SystemClock().now_ms() + LEARNT_MS
        until(lambda: SystemClock().now_ms() > learnt)
        return Follower(process, outrider.folder / name)

    return start


def check_numbers(events):
    """Numbers grow, and a hole in them is told as a gap."""
    for before, after in pairwise(event["sequence"] for event in events):
        assert before < after
    for before, event in pairwise(events):
        missing = event["sequence"] - before["sequence"] - 1
        is_gap = event["name"] == "gap" and event["data"]["missing"] is not None
        assert is_gap or not missing, (before, event)
        assert not is_gap or event["data"]["missing"] == missing + 1


def missing_in(events):
    """How many events are missing, by what the gaps say."""
    gaps = [event["data"]["missing"] for event in events if event["name"] == "gap"]
    return sum(missing for missing in gaps if missing is not None)


def check_visits(events):
    """Both workers' visits were printed once, each after its claim by the same worker.

    A worker that ends returns its leases, so a task may be claimed more than once. On a machine
    with too much to do, a follower may miss the last events of a file, of which it is told.
    """
    claimed, ended = set(), []
    for event in events:
        if event["name"] in {"claimed", *ENDS}:
            data = event["data"]
            visit = data["url"], data["attempt"], data["worker"]
            if event["name"] == "claimed":
                claimed.add(visit)
            else:
                assert visit in claimed
                ended.append(visit)
    assert len({worker for *_, worker in ended}) == 2
    if not missing_in(events):
        assert {visit[:2] for visit in claimed} == {visit[:2] for visit in ended}
    assert max(Counter(visit[:2] for visit in ended).values()) == 1


def test_follower_sees_visits_of_all_workers_exactly_once(
    outrider, store, joined, follow, on_crawl
):
    """O3: of the holder and its client, or of two on a server; it ends with the crawl."""
    follower = follow()
    on_crawl(Frontier.resume)
    reports = [outrider.end(worker) for worker in joined]
    answer = outrider.end(follower.process)

    assert [report.code for report in reports] == [0, 0]
    assert answer.code == 0, answer.err
    events = follower.events()
    check_numbers(events)
    check_visits(events)
    (end,) = [event for event in events if event["name"] == "crawl-finished"]
    visits = sorted(one.json["closing"]["visits"] for one in reports)
    assert end["data"]["counts"]["visits"] == sum(visits)
    assert "://" not in store or not missing_in(events)
    if not missing_in(events):
        ended = Counter(event["data"]["worker"] for event in events if event["name"] in ENDS)
        assert sorted(ended.values()) == visits


def test_killed_follower_is_resumed_where_it_was(outrider, store, joined, follow, on_crawl, until):
    """O3: with --since, nothing twice and nothing missing."""
    first = follow()
    on_crawl(Frontier.resume)
    until(lambda: len(first.events()) > 40)
    first.process.kill()
    first.process.wait()
    second = follow("--since", first.events()[-1]["sequence"])
    for process in (*joined, second.process):
        outrider.end(process)
    events = first.events() + second.events()

    check_numbers(events)
    check_visits(events)
    assert "://" not in store or not missing_in(events)


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_follower_goes_on_when_the_holder_of_a_file_is_killed(
    outrider, store, joined, follow, on_crawl, until
):
    """O3: another process holds the file, and numbers grow; what it forgot is told."""
    follower = follow()
    on_crawl(Frontier.resume)
    until(lambda: len(follower.events()) > 60)
    holder, _ = peek_file(outrider.folder / store)
    (killed,) = [worker for worker in joined if worker.pid == holder.pid]
    killed.send_signal(signal.SIGKILL)
    (other,) = [worker for worker in joined if worker is not killed]
    report, answer = outrider.end(other), outrider.end(follower.process)

    assert (report.code, answer.code) == (0, 0), answer.err
    events = follower.events()
    check_numbers(events)
    ended = Counter(
        (event["data"]["url"], event["data"]["attempt"])
        for event in events
        if event["name"] in ENDS
    )
    assert max(ended.values()) == 1
    assert events[-1]["name"] in {"crawl-finished", "finished", "gap"}


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_interrupted_follower_exits_with_130(outrider, joined, follow):
    """O3: quietly."""
    follower = follow()
    follower.process.send_signal(signal.SIGINT)
    answer = outrider.end(follower.process)

    assert (answer.code, answer.err) == (130, "")


@pytest.mark.parametrize("store", ["file"], indirect=True)
def test_follower_whose_reader_ends_exits_quietly(outrider, store, joined, follow, on_crawl):
    """O3: as in `outrider events … | head`."""
    process = follow(before="true").process
    on_crawl(Frontier.resume)
    process.stdout.readline()
    process.stdout.close()
    process.wait(60)

    assert (process.returncode, process.stderr.read()) == (0, "")
