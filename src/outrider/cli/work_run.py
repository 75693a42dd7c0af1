"""One worker, run: a crawl joined, watched over, and left in order."""

from __future__ import annotations

import asyncio
import gc
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import msgspec

from outrider.cli.crawl_log import VisitLog
from outrider.cli.crawl_report import Closing, closing
from outrider.cli.crawl_watch import Looks, say_shortage, watched
from outrider.cli.opening import say_promise
from outrider.cli.showing import note
from outrider.cli.stop_signals import StopSignals, stoppable
from outrider.cli.work_plan import Asked, files_of
from outrider.executor.executor import Ending, Executor
from outrider.executor.fault_pause import FaultPause
from outrider.executor.outage import Outage
from outrider.executor.run_counts import RunCounts
from outrider.executor.watchdog import Watchdog
from outrider.frontier import Frontier
from outrider.monitoring.connection import check_crawl, check_store
from outrider.settings import Layers
from outrider.store.address import show_address
from outrider.wiring import Crawling, Working, joined, retry_at_end

LOOKS = Looks(every=2.0, hosts=0)  # there may be many of us: the store is not ours alone


class Worked(msgspec.Struct, frozen=True):
    """A worker that is done, and what it left."""

    closing: Closing
    worker: str
    files: Mapping[str, str]


async def run(asked: Asked, own: Layers, name: str, *, quiet: bool) -> Worked:
    """Until the crawl ends or a signal says stop."""
    return await stoppable(lambda signals: _worked(asked, own, name, signals, quiet=quiet))


async def _worked(
    asked: Asked, own: Layers, name: str, signals: StopSignals, *, quiet: bool
) -> Worked:
    tally, loop = RunCounts(), asyncio.get_running_loop()
    began = loop.time()
    outage, pause = Outage(note, waits_for_room=True), FaultPause(note, waits_for_room=True)
    how = Working(outage, asked.stays, tally, pause)
    log = f"{name}.log" if asked.log is None else asked.log
    async with _closing(await _attached(asked, own, outage)) as frontier:
        if asked.settings is not None:
            await frontier.follow(asked.settings, tell=note)
        async with joined(
            frontier, handler=asked.handler, isolate=asked.isolate, how=how
        ) as crawling:
            ending = await _run(crawling, asked, log, signals, quiet=quiet)
        seconds = loop.time() - began
        words = ["outrider", "resume", show_address(asked.store)]
        named = [] if asked.crawl == "default" else ["--crawl", asked.crawl]
        resume = shlex.join([*words, *named])
        closed = await retry_at_end(
            lambda: closing(frontier, ending, tally, seconds, pause, whole=False, resume=resume),
            note,
        )
        return Worked(closed, frontier.worker, files_of(name, frontier.settings, log))


@asynccontextmanager
async def _closing(frontier: Frontier) -> AsyncIterator[Frontier]:
    try:
        yield frontier
    finally:
        await frontier.close()


async def _attached(asked: Asked, own: Layers, outage: Outage) -> Frontier:
    """The crawl's frontier; a holder of its file that does not answer is waited for."""

    async def attach() -> Frontier:
        source = check_store(asked.store, creates=False)
        frontier = await Frontier.attach(source, settings=own, crawl=asked.crawl)
        try:
            await check_crawl(frontier, asked.store)
        except BaseException:
            await frontier.close()
            raise
        return frontier

    return await (attach() if "://" in asked.store else outage.call(attach))


async def _run(
    crawling: Crawling, asked: Asked, log: str, signals: StopSignals, *, quiet: bool
) -> Ending:
    gc.freeze()  # what is there stays: no collection need look at it again
    executor, title = crawling.executor, f"outrider work · {show_address(asked.store)}"
    if not quiet:
        note(f"{crawling.frontier.worker} joins {crawling.frontier.crawl!r}")
        say_promise(crawling.frontier.store)
        say_shortage(crawling.frontier.settings)
    with VisitLog(log, executor.scaler.decisions) as lines:
        crawling.observe(lines)
        seconds = crawling.frontier.settings.executor.watchdog
        async with watched(crawling, title, LOOKS, quiet=quiet):
            with _guarded(executor, seconds):
                signals.attach(executor.stop)
                ending = await crawling.run()
                signals.ended()
                return ending


@contextmanager
def _guarded(executor: Executor, seconds: float) -> Iterator[None]:
    if not seconds:
        yield
        return
    with Watchdog(executor, seconds):
        yield
