"""Crawls on a workbench: the same pages, the same manners; a kill costs what it always does."""

import asyncio
import signal
import subprocess
import sys
import textwrap
from collections import Counter

import pytest

from outrider import blocking
from outrider.settings import merged, settings_of
from outrider.testing.web import WebServer, small_world, violations
from outrider.testing.web.graph import FEED, ROBOTS, SITEMAP
from outrider.wiring import opened

DELAY = 0.05
BENCH = {"executor": {"workbench": True, "poll_min": 0.1, "poll_check": 0.1}}
# Borrows ten pages on each of two hosts, tells when visits hang, and waits for its end.
BORROWER = """
    import asyncio, sys
    from outrider.executor.executor import Executor
    from outrider.executor.handlers import Handlers
    from outrider.executor.workbench import Workbench
    from outrider.frontier import Frontier

    async def hang(visit):
        print(visit.url, flush=True)
        await asyncio.Event().wait()

    async def main():
        settings = {"politeness": {"delay": 0.0}, "executor": {"workbench": True}}
        async with Frontier.open(sys.argv[1], settings=settings) as frontier:
            await frontier.add([f"https://{h}.example/{n}" for h in "ab" for n in range(10)])
            async with Workbench(frontier):
                await Executor(frontier, Handlers(hang)).run()

    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("store", ["memory://", "x.outrider"], ids=["memory", "embedded"])
async def test_every_page_once_and_no_host_complains(crawled, tmp_path, monkeypatch, store):
    """C7, D7, J5: by the servers' own record."""
    monkeypatch.chdir(tmp_path)
    web = small_world(3, hosts=4, pages=12, page_bytes=500)
    done = await crawled(web, settings={**BENCH, "politeness": {"delay": DELAY}}, store=store)

    assert done.ending.how == "finished"
    assert (done.stats.done, done.stats.leased) == (48, 0)
    assert len(done.pages) == 48
    assert set(done.pages.values()) == {1}
    assert violations(done.hits, delay=DELAY, web=done.web) == []


@pytest.mark.slow
async def test_two_workers_share_hosts_and_no_host_complains(tmp_path):
    """C7, D7: a queue has one borrower at a time; the next begins when the store says so."""
    async with WebServer(small_world(4, hosts=10, pages=10, page_bytes=300)) as server:
        calm = {"politeness": {"delay": DELAY}, "queue": {"max_depth": 100}}
        tree = merged(settings_of(calm), server.settings())
        few = {"workbench_tasks": 4, "workbench_per_queue": 2, "slots": 4}
        tree = merged(tree, {"executor": {**BENCH["executor"], **few}})
        path = tmp_path / "x.outrider"
        async with (
            opened(path, settings=tree) as one,
            opened(path, settings=tree) as other,
            asyncio.timeout(60),
        ):
            await one.frontier.add(server.web.seeds())
            endings = await asyncio.gather(one.run(), other.run())
            stats = await one.frontier.stats()
        hits = list(server.hits)

    assert [ending.how for ending in endings] == ["finished", "finished"]
    assert (stats.done, stats.leased) == (100, 0)
    assert min(one.tally.visits, other.tally.visits) > 0
    pages = [hit for hit in hits if hit.path not in (ROBOTS, SITEMAP, FEED)]
    assert set(Counter(server.web.page(hit.host, hit.target) for hit in pages).values()) == {1}
    assert violations(hits, delay=DELAY, web=server.web) == []


@pytest.mark.slow
async def test_a_stop_gives_everything_back(tmp_path):
    """J4: what was borrowed and not begun as well as what was under way; nothing is punished."""
    async with WebServer(small_world(2, hosts=2, pages=30, page_bytes=300)) as server:
        tree = merged(settings_of({"politeness": {"delay": 0.2}}), server.settings())
        tree = merged(tree, BENCH)
        async with opened(tmp_path / "x.outrider", settings=tree) as crawling:
            await crawling.frontier.add(server.web.seeds())
            crawling.observe(lambda _: crawling.tally.visits >= 6 and crawling.executor.stop())
            async with asyncio.timeout(60):
                ending = await crawling.run()
            stats = await crawling.frontier.stats()

    assert ending.how == "stopped"
    assert stats.leased == 0
    assert stats.known == stats.pending + stats.done
    assert stats.pending > 0


@pytest.mark.slow
def test_a_killed_borrower_costs_one_crash_a_queue(tmp_path):
    """C7, H4: of ten borrowed pages of a queue one was under way; nothing is lost or doubled."""
    script, path = tmp_path / "borrower.py", tmp_path / "x.outrider"
    script.write_text(textwrap.dedent(BORROWER), encoding="utf-8")
    borrower = subprocess.Popen(
        [sys.executable, str(script), str(path)], stdout=subprocess.PIPE, text=True
    )
    begun = sorted(borrower.stdout.readline().strip() for _ in range(2))
    borrower.send_signal(signal.SIGKILL)
    borrower.communicate()
    with blocking.Frontier.attach(path) as frontier:
        tasks, stats = list(frontier.tasks()), frontier.stats()

    assert begun == ["https://a.example/0", "https://b.example/0"]
    assert (stats.known, stats.pending, stats.leased) == (20, 20, 0)
    assert sorted(task.url for task in tasks if task.crashes) == begun
    assert sum(task.attempts for task in tasks) == 2
