"""`outrider work`: several processes on one crawl, and what becomes of it when they go (M6)."""

import asyncio
import signal
import socket
import sys
import threading
from collections import Counter
from contextlib import suppress
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from outrider import Done, Frontier
from outrider.errors import StoreUnavailable
from outrider.output.jsonl import items_sink
from outrider.settings import merged, settings_of
from outrider.store.factory import peek_file
from outrider.testing.web import small_world, violations
from outrider.testing.web.graph import FEED, ROBOTS, SITEMAP
from outrider.wiring import SITES
from servers import Proxy

STORE = "x.outrider"
DELAY = 0.1
ASIDE = {ROBOTS, SITEMAP, FEED}
BLOCKING = """
import time

async def block(page):
    time.sleep(3600)
"""
GATE = """
import asyncio, os, pathlib

async def gate(page):
    pathlib.Path(f"{os.getpid()}.waits").write_text("here")
    while not pathlib.Path("open").exists():
        await asyncio.sleep(0.02)
"""
PROGRAM = """
import asyncio
from mine import gate
from outrider import Frontier
from outrider.output.worker_files import worker_files
from outrider.wiring import joined

async def work(path):
    own = {"output": {"path": path}, "executor": {"slots": 1}, "fetch": {"robots": False}}
    async with Frontier.attach("x.outrider", settings=own) as frontier:
        async with joined(frontier, handler=gate) as crawling:
            print((await crawling.run()).how)

with worker_files("x") as path:
    asyncio.run(work(path))
"""
LEAVE = """
import pathlib, shutil

async def look(page):
    seen = [path.read_text() for path in pathlib.Path().glob("x-*-8.items.jsonl")]
    pathlib.Path("seen").write_text("".join(seen))
    shutil.copytree("later", ".", dirs_exist_ok=True)
"""


@pytest.fixture
def web(serve):
    """Ten hosts, which answer on this machine."""
    return serve(small_world(seed=5, hosts=10, pages=12))


@pytest.fixture(params=["file", "postgres", "redis"])
def any_store(request):
    """Each kind of store that several processes may share."""
    if request.param == "file":
        return STORE
    return request.getfixturevalue("places").take(request.param)


@pytest.fixture(params=["postgres", "redis"])
def served_store(request, places):
    """One on a server."""
    return places.take(request.param)


@pytest.fixture
def store(request):
    """A file, unless a test asks for another."""
    wanted = {"any_store", "served_store"} & set(request.fixturenames)
    return request.getfixturevalue(wanted.pop()) if wanted else STORE


@pytest.fixture
def source(outrider, store):
    """The same, for this process."""
    return store if "://" in store else outrider.folder / store


@pytest.fixture
def on_crawl(source):
    """Calls a function with a frontier attached to the crawl, through the holder of a file."""

    def do(work):
        async def done():
            async with Frontier.attach(source) as frontier:
                return await work(frontier)

        return asyncio.run(done())

    return do


@pytest.fixture
def states(on_crawl):
    """Who works on the crawl, by state."""

    async def ask(frontier):
        return Counter(view.state for view in await frontier.workers())

    return lambda: on_crawl(ask)


@pytest.fixture
def made(source, web):
    """A crawl with its seeds, paused."""

    async def make(seeds, settings):
        tree = merged(settings_of(SITES), web.settings())
        tree = merged(tree, {"politeness": {"delay": DELAY}, **(settings or {})})
        async with Frontier.open(source, settings=tree) as frontier:
            await frontier.add(web.web.seeds()[:seeds])
            await frontier.pause()

    return lambda seeds=None, settings=None: asyncio.run(make(seeds, settings))


@pytest.fixture
def joined(outrider, store, made, on_crawl, states, until):
    """Some workers of one crawl, which is resumed when all of them have joined."""

    def start(count, **settings):
        made(settings=settings)
        workers = [
            outrider.start("work", store, "--quiet", "--json", "--slots", 4, "--output", "x")
            for _ in range(count)
        ]
        until(lambda: "://" in store or (outrider.folder / f"{store}.sock").exists())
        until(lambda: states().total() == count)
        on_crawl(Frontier.resume)
        return workers

    return start


async def leave(source, *names):
    """Workers that were killed when they had written the page that is due, and no more."""
    async with Frontier.attach(source) as frontier:
        (lease,) = await frontier.claim()
        for name in names:
            sink = items_sink(source.parent / name)
            sink.write([SimpleNamespace(lease=lease, outcome=Done(200), page=None, items=[{}])])
            sink.close()
            (source.parent / f"{name}.lock").touch()


def found(outrider, pattern):
    """How many files there are of such names, with something in them."""
    return sum(path.stat().st_size > 0 for path in outrider.folder.glob(pattern))


def written(outrider, web):
    """How often each page was written, over all files of pages."""
    files = [path for path in outrider.folder.glob("x*.jsonl") if ".items." not in path.name]
    return named(web, [line["url"] for path in files for line in outrider.lines(path.name)])


def asked(web):
    """How often each page was asked for."""
    hits = [hit for hit in web.hits() if hit.path not in ASIDE]
    return named(web, [web.web.url(hit.host, hit.target) for hit in hits])


def named(web, urls):
    """Each page by the one name it has, whatever it was called."""
    parts = map(urlsplit, urls)
    return Counter(
        web.web.page(part.hostname, part._replace(scheme="", netloc="").geturl()) for part in parts
    )


def once(web):
    """Every page, once."""
    return named(web, web.web.urls())


@pytest.mark.slow
@pytest.mark.usefixtures("any_store")
def test_several_processes_share_one_crawl(outrider, web, joined):
    """Each page is visited and written once; no host is visited too soon."""
    ends = [outrider.end(process) for process in joined(2)]

    assert [end.code for end in ends] == [0, 0], [end.err for end in ends]
    assert all(end.json["closing"]["visits"] > 0 for end in ends)
    assert written(outrider, web) == asked(web) == once(web)
    assert violations(web.hits(), delay=DELAY, web=web.web) == []


@pytest.mark.slow
@pytest.mark.usefixtures("any_store")
def test_metrics_count_the_visits_of_a_worker_that_was_killed(
    outrider, store, joined, on_crawl, until
):
    """O1, M6: visits exactly, durations until its last heartbeat; percentiles are those of all."""

    def told(killed):
        with suppress(StoreUnavailable):  # a holder of the file has just ended
            views = on_crawl(Frontier.workers)
            return next(view for view in views if view.pid == killed.pid).totals.outcomes
        return {}

    survivor, killed = joined(2)
    until(lambda: told(killed).get("done", 0) > 0)
    killed.send_signal(signal.SIGKILL)
    outrider.end(killed)
    end = outrider.end(survivor)
    assert end.code == 0, end.err
    last = told(killed)
    shown = outrider("stats", store, "--metrics", "--json").json
    stats = outrider("stats", store, "--json").json
    workers = [view.totals.outcomes for view in on_crawl(Frontier.workers)]

    assert shown["visits_total"] == stats["outcomes"]
    assert told(killed) == last  # and no more
    counted = sum((Counter(one) for one in workers), Counter())
    assert counted["done"] <= stats["outcomes"]["done"]
    assert shown["handler_seconds"]["count"] == sum(
        view.totals.latency["handler"].count for view in on_crawl(Frontier.workers)
    )
    assert shown["host_gap_seconds"]["count"] > 50
    assert shown["host_gap_seconds"]["p50"] > DELAY * 0.9
    for verb in ("claim", "finish"):
        assert shown["store_seconds"][verb]["count"] > 0


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_is_waited_for(
    outrider, web, served_store, made, on_crawl, until
):
    """M6: noted once, then retried; when back the crawl continues, nothing lost or doubled."""
    made(settings={"lease": {"seconds": 5.0}})  # the answer to a claim may be lost: it expires
    on_crawl(Frontier.resume)
    with Proxy(served_store) as proxy:
        worker = outrider.start("work", proxy.url, "--quiet", "--output", "x")
        until(lambda: len(web.hits()) > 30)
        proxy.refuse()
        said = outrider.heard(worker)
        proxy.accept()
        end = outrider.end(worker)

    assert "waiting for the store" in said
    assert end.code == 0, end.err
    assert "the store is back after" in end.err
    assert "waiting" not in end.err
    assert written(outrider, web) == once(web)
    assert violations(web.hits(), delay=DELAY, web=web.web) == []


@pytest.mark.slow
def test_workers_continue_when_the_holder_of_the_file_is_killed(outrider, web, joined, until):
    """One of them holds it then; what was in doubt is settled, wherever the next one sits down."""
    workers = joined(2)
    until(lambda: len(web.hits()) > 40)
    (holder,) = [one for one in workers if one.pid == peek_file(outrider.folder / STORE)[0].pid]
    holder.send_signal(signal.SIGKILL)
    outrider.end(holder)
    workers.remove(holder)
    workers.append(outrider.start("work", STORE, "--quiet"))
    ends = [outrider.end(process) for process in workers]

    assert [end.code for end in ends] == [0, 0], [end.err for end in ends]
    assert written(outrider, web) == once(web)
    assert violations(web.hits(), delay=DELAY, web=web.web) == []


@pytest.mark.slow
def test_killed_crawl_is_resumed_beside_the_worker_that_holds_its_file(
    outrider, web, on_crawl, states, until
):
    """M3: the same command joins that worker, as it does on a server, and both end with the crawl.

    A crawl that starts over is refused: the worker writes to the files that would be renamed.
    """
    seeds = (*web.web.seeds(), "--store", STORE, "--quiet")
    words = outrider.on(web, *seeds, delay=DELAY)
    killed = outrider.start(*outrider.on(web, *seeds, delay=5.0))  # it must not end before
    until((outrider.folder / f"{STORE}.sock").exists)
    until(lambda: states().total() == 1)
    worker = outrider.start("work", STORE, "--quiet")
    until(lambda: states().total() == 2)
    until(lambda: len(web.hits()) > 10)
    on_crawl(Frontier.pause)
    killed.kill()
    outrider.end(killed)
    until(lambda: (held := peek_file(outrider.folder / STORE)[0]) and held.pid == worker.pid)
    refused = outrider(*words, "--start-over")
    assert (refused.code, f"process {worker.pid} " in refused.err) == (2, True)
    ends = [outrider.end(process) for process in (outrider.start(*words), worker)]

    assert [end.code for end in ends] == [0, 0], [end.err for end in ends]
    assert written(outrider, web) == once(web)
    assert violations(web.hits(), delay=DELAY, web=web.web) == []


@pytest.fixture(params=["command", "library"])
def start_gated(request, outrider, store, made):
    """Starts workers whose handler waits for a file: of the command, or of a Python program."""
    (outrider.folder / "mine.py").write_text(GATE)
    (outrider.folder / "worker.py").write_text(PROGRAM)
    made(settings={"queue": {"max_depth": 0}, "lease": {"seconds": 10.0}})
    words = ("work", store, "--handler", "mine:gate", "--slots", 1, "--set", "fetch.robots=false")
    if request.param == "library":
        return lambda: outrider.start("worker.py", command=sys.executable)
    return lambda: outrider.start(*words)


@pytest.mark.slow
def test_surviving_worker_settles_output_that_killed_workers_left_in_doubt(
    outrider, web, store, start_gated, on_crawl, states, until
):
    """K4: records of unfinished visits go, though no process writes to those files again."""
    holder = start_gated()
    until((outrider.folder / f"{store}.sock").exists)
    killed, left = start_gated(), start_gated()
    until(lambda: states().total() == 3)
    on_crawl(Frontier.resume)
    until(lambda: found(outrider, "*.waits") == 3)
    holder.send_signal(signal.SIGSTOP)
    (outrider.folder / "open").touch()
    until(lambda: found(outrider, "x-*.jsonl") == 2)
    for worker in (killed, holder):
        worker.kill()
        outrider.end(worker)
    end = outrider.end(left)

    assert (end.code, "finished" in end.out) == (0, True), end.err
    assert written(outrider, web) == named(web, web.web.seeds())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["work", "crawl"])
def test_what_was_left_in_doubt_is_settled_before_and_after(
    command, outrider, web, source, made, on_crawl
):
    """K4: of those killed before the first visit, and of those killed meanwhile."""
    (outrider.folder / "mine.py").write_text(LEAVE)
    (outrider.folder / "later").mkdir()
    made(seeds=1, settings={"queue": {"max_depth": 0}})
    on_crawl(Frontier.resume)
    host = socket.gethostname()
    asyncio.run(leave(source, f"x-{host}-8", f"later/x-{host}-9"))
    seed = web.web.seeds()[0]
    words = {"work": ("work", STORE), "crawl": outrider.on(web, seed, "--store", STORE)}[command]
    end = outrider(*words, "--handler", "mine:look")

    assert end.code == 0, end.err
    assert (outrider.folder / "seen").read_text() == ""
    assert (outrider.folder / f"x-{host}-9.items.jsonl").read_text() == ""


@pytest.mark.slow
def test_a_worker_drains_when_it_is_asked_to(outrider, web, joined, until, states):
    """J4: it exits with 130 and is reported as gone; the crawl continues."""
    workers = joined(2)
    until(lambda: len(web.hits()) > 20)
    holder = peek_file(outrider.folder / STORE)[0].pid
    (other,) = [one for one in workers if one.pid != holder]
    other.send_signal(signal.SIGTERM)
    left = outrider.end(other)
    seen = states()
    workers.remove(other)

    assert (left.code, seen["gone"]) == (130, 1), left.err
    assert outrider.end(*workers).code == 0
    assert written(outrider, web) == asked(web) == once(web)


@pytest.mark.slow
def test_a_worker_whose_loop_is_blocked_ends_to_be_started_again(outrider, web, made, on_crawl):
    """Exit 75, with what it saw and where it was; its page goes back, and nothing is lost."""
    (outrider.folder / "mine.py").write_text(BLOCKING)
    made(seeds=1)
    on_crawl(Frontier.resume)
    hung = outrider("work", STORE, "--handler", "mine:block", "--set", "executor.watchdog=3")

    assert hung.code == 75, hung.err
    assert "watchdog: the event loop stood still for 3 s" in hung.err
    assert "mine.py" in hung.err
    assert on_crawl(Frontier.stats).pending == 1


@pytest.mark.slow
def test_a_worker_that_only_waits_is_left_alone(outrider, web, made, until, states):
    """Nothing to do is no hang; with --stay it takes what comes later."""
    made(seeds=0)
    idle = outrider.start("work", STORE, "--stay", "--quiet", "--set", "executor.watchdog=2")
    until((outrider.folder / f"{STORE}.sock").exists)
    until(lambda: states() == {"idle": 1})
    threading.Event().wait(3.0)
    seen = outrider("workers", STORE).out
    outrider("resume", STORE)
    outrider("add", STORE, web.web.seeds()[0], "--known", "revisit")
    until(lambda: written(outrider, web))
    idle.send_signal(signal.SIGTERM)
    end = outrider.end(idle)

    assert (end.code, "idle" in seen) == (130, True), end.err
