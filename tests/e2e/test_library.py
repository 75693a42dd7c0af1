"""A crawl inside a user's program: functions, stages, handlers by type, sinks of one's own."""

import asyncio

import pytest

from loop_turns import turns
from outrider import Done, Dropped, Frontier, Link
from outrider.clock import SystemClock
from outrider.errors import OutputFull
from outrider.settings import merged, settings_of
from outrider.store.memory import MemoryStore
from outrider.testing.web import WebServer, small_world, violations
from outrider.wiring import crawl, opened

STAGES = """
from outrider import Dropped

seen = []

async def noting(visit, follow):
    outcome = await follow(visit)
    seen.append((visit.url, type(outcome).__name__))
    return outcome

async def choosy(visit, follow):
    return Dropped("not today") if visit.url.endswith("/2") else await follow(visit)
"""


@pytest.fixture
async def server():
    """A small web in this loop."""
    async with WebServer(small_world(2, hosts=2, pages=4, page_bytes=500)) as server:
        yield server


@pytest.fixture
def settings(server):
    """Those that find it, and are quick."""
    return {**server.settings(), "politeness": {"delay": 0.02}}


@pytest.mark.slow
async def test_a_crawl_is_one_call(server, settings, tmp_path):
    """Pages come to the function; the report says how it went; a second call has nothing to do."""
    titles, ends = [], []

    async def handler(page):
        titles.append(page.title)
        await asyncio.sleep(0)

    def progress(visits):
        ends.extend(visit.outcome.status for visit in visits)

    seed, how = server.web.seeds()[0], {"settings": settings, "store": tmp_path / "x.outrider"}
    report = await crawl([seed], handler, progress=progress, **how)
    assert (report.ending.how, report.fetched, report.stats.done) == ("finished", 8, 8)
    assert len(set(titles)) == len(titles) == 8
    assert ends == [200] * 8
    assert violations(server.hits, delay=0.02, web=server.web) == []
    again = await crawl(seed, handler, **how)
    assert (again.ending.how, again.fetched) == ("finished", 0)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [[], [Link("http://elsewhere.web.test/", done=True)]])
async def test_a_crawl_without_a_seed_to_visit_ends_at_once(server, settings, tmp_path, seeds):
    """I2: it has no run to end, so nothing would; the next call begins it."""
    how = {"settings": settings, "store": tmp_path / "x.outrider"}
    report = await crawl(seeds, **how)
    assert (report.ending.how, report.ending.reason) == (
        "finished",
        "nothing to visit was ever added",
    )
    assert (report.fetched, report.stats.pending, report.stats.status) == (0, 0, "running")
    again = await crawl(server.web.seeds()[0], **how)
    assert (again.ending.reason, again.fetched) == ("", 8)


@pytest.mark.slow
async def test_a_crawl_that_stays_open_waits_for_its_first_task(server, settings):
    """I2: `crawl.stay_open` says that more will come."""
    came, store = asyncio.Event(), MemoryStore(SystemClock())
    tree = {**settings, "crawl": {"stay_open": True}}
    run = asyncio.create_task(crawl([], lambda _: came.set(), settings=tree, store=store))
    async with asyncio.timeout(60):
        while not await store.workers("default"):
            await turns(1)
        async with Frontier.attach(store) as frontier:
            await frontier.add(server.web.seeds()[0])
        await came.wait()
    run.cancel()
    await asyncio.wait([run])


@pytest.mark.slow
async def test_a_crawl_can_be_cancelled_like_any_task(server, settings, tmp_path):
    """Visits in flight are released, and the next call resumes."""
    store, seed = tmp_path / "x.outrider", server.web.seeds()[0]
    few = asyncio.Event()

    async def handler(page):
        if page.depth:
            few.set()

    running = asyncio.create_task(crawl(seed, handler, store=store, settings=settings))
    await few.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    report = await crawl(seed, store=store, settings=settings)
    assert report.ending.how == "finished"
    assert report.stats.done == 8
    assert report.stats.outcomes.get("crashed", 0) == 0
    assert violations(server.hits, delay=0.02, web=server.web) == []


@pytest.mark.slow
async def test_stages_stand_around_every_visit(server, settings, tmp_path, monkeypatch):
    """J1: named in settings, outermost first; one may end a visit, and its host hears nothing."""
    (tmp_path / "stages_of_mine.py").write_text(STAGES)
    monkeypatch.syspath_prepend(tmp_path)
    pipeline = ["stages_of_mine:noting", "stages_of_mine:choosy"]
    report = await crawl(
        server.web.seeds()[0], settings={**settings, "executor": {"pipeline": pipeline}}
    )
    import stages_of_mine  # noqa: PLC0415 - it is there now

    ends = dict(stages_of_mine.seen)
    assert len(ends) == report.stats.known
    assert {end for url, end in ends.items() if url.endswith("/2")} == {"Dropped"}
    assert not any(hit.path.endswith("/2") for hit in server.hits)


@pytest.mark.slow
async def test_a_type_of_task_may_have_a_handler_of_its_own(server, settings):
    """J1: async or plain, in place of fetching; what it returns is the outcome."""
    tree = merged(settings_of(settings), {"scope": {"mode": "all"}})

    async def counting(visit):
        visit.links.append(Link(server.web.seeds()[0]))
        return Done(200, reward=1.0)

    def refusing(visit):
        return Dropped("by hand")

    async with opened(settings=tree, handlers={"count": counting, "refuse": refusing}) as crawling:
        await crawling.frontier.add(
            [Link("http://a.example/", type="count"), Link("http://b.example/", type="refuse")]
        )
        ending = await crawling.run()
        stats = await crawling.frontier.stats()
    assert ending.how == "finished"
    assert (stats.done, stats.dropped) == (9, 1)
    assert {hit.host for hit in server.hits} == set(server.web.sites)


class Shelf:
    """A user's own sink."""

    def __init__(self, room=100):
        self.kept, self._written, self.is_closed, self._room = [], [], False, room

    def write(self, visits):
        """Before they are finished."""
        if len(self.kept) + len(visits) > self._room:
            raise OutputFull("no room")
        self._written = [visit.page.url for visit in visits]

    def settle(self, answers):
        """After."""
        self.kept += [url for url, stays in zip(self._written, answers, strict=True) if stays]

    def close(self):
        """No more."""
        self.is_closed = True


@pytest.mark.slow
async def test_pages_may_go_to_a_sink_of_one_s_own(server, settings):
    """K4: each once, after its visit was finished."""
    shelf = Shelf()
    async with opened(settings=settings, sink=shelf) as crawling:
        await crawling.frontier.add(server.web.seeds())
        await crawling.run()
    assert sorted(shelf.kept) == sorted(server.web.urls())
    assert shelf.is_closed


@pytest.mark.slow
async def test_a_sink_without_room_ends_the_run_and_nothing_is_lost(server, settings, tmp_path):
    """K4: what could not be written was not finished, and is visited again by the next run."""
    store = tmp_path / "x.outrider"
    with pytest.raises(OutputFull, match="no room"):
        await run_into(full := Shelf(room=3), store, settings, server)
    await run_into(roomy := Shelf(), store, settings, server)
    assert sorted([*full.kept, *roomy.kept]) == sorted(server.web.urls())
    assert full.is_closed
    assert violations(server.hits, delay=0.02, web=server.web) == []


async def run_into(sink, store, settings, server):
    """A crawl to the end, or to the end of the room."""
    async with opened(store, settings=settings, sink=sink) as crawling:
        await crawling.frontier.add(server.web.seeds())
        await crawling.run()
