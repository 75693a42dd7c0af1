"""One worker, run: a crawl joined, watched over, and left in order."""

from __future__ import annotations

import asyncio
import gc
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from outrider.cli.crawl_log import VisitLog
from outrider.cli.crawl_report import Closing, closing
from outrider.cli.crawl_watch import Looks, heard, say_shortage, watched
from outrider.cli.opening import check_crawl, say_promise, source_of
from outrider.cli.showing import note
from outrider.cli.work_plan import Asked, files_of
from outrider.cli.work_seat import settling, stem_of
from outrider.errors import StoreUnattended
from outrider.executor.executor import Executor
from outrider.executor.fault_pause import FaultPause
from outrider.executor.outage import Outage
from outrider.executor.tally import Tally
from outrider.executor.watchdog import Watchdog
from outrider.frontier import Frontier
from outrider.settings import Layers
from outrider.store.address import show_address
from outrider.wiring import Crawling, Working, joined

LOOKS = Looks(every=2.0, hosts=0)  # there may be many of us: the store is not ours alone


class Worked(msgspec.Struct, frozen=True):
    """A worker that is done, and what it left."""

    closing: Closing
    worker: str
    files: Mapping[str, str]


async def run(asked: Asked, own: Layers, name: str, *, quiet: bool) -> Worked:
    """Until the crawl ends or a signal says stop.

    A file whose holder has ended is opened again: by us, or through whoever was quicker.
    """
    tally, loop = Tally(), asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            return await _worked(asked, own, name, tally, began, quiet=quiet)
        except StoreUnattended as error:
            note(f"{error}; going on without that process")


async def _worked(
    asked: Asked, own: Layers, name: str, tally: Tally, began: float, *, quiet: bool
) -> Worked:
    source = source_of(asked.store, creates=False)
    pause = FaultPause(note, waits_for_room=True)
    how = Working(Outage(note, waits_for_room=True), asked.stays, tally, pause)
    log = f"{name}.log" if asked.log is None else asked.log
    async with Frontier.attach(source, settings=own, crawl=asked.crawl) as frontier:
        await check_crawl(frontier, asked.store)
        if asked.settings is not None:
            await frontier.follow(asked.settings, tell=note)
        async with (
            settling(stem_of(name), frontier),
            joined(frontier, handler=asked.handler, isolate=asked.isolate, how=how) as crawling,
        ):
            ending = await _run(crawling, asked, log, quiet=quiet)
        seconds = asyncio.get_running_loop().time() - began
        words = ["outrider", "resume", show_address(asked.store)]
        named = [] if asked.crawl == "default" else ["--crawl", asked.crawl]
        resume = shlex.join([*words, *named])
        closed = await closing(frontier, ending, tally, seconds, pause, whole=False, resume=resume)
        return Worked(closed, frontier.worker, files_of(name, frontier.settings, log))


async def _run(crawling: Crawling, asked: Asked, log: str, *, quiet: bool) -> Any:
    gc.freeze()  # what is there stays: no collection need look at it again
    executor, title = crawling.executor, f"outrider work · {show_address(asked.store)}"
    if not quiet:
        note(f"{crawling.frontier.worker} joins {crawling.frontier.crawl!r}")
        say_promise(crawling.frontier.store)
        say_shortage(crawling.frontier.settings)
    with VisitLog(log, executor.scaler.decisions) as lines, heard(crawling):
        crawling.observe(lines)
        seconds = crawling.frontier.settings.executor.watchdog
        async with watched(crawling, title, LOOKS, quiet=quiet):
            with _guarded(executor, seconds):
                return await crawling.run()


@contextmanager
def _guarded(executor: Executor, seconds: float) -> Iterator[None]:
    if not seconds:
        yield
        return
    with Watchdog(executor, seconds):
        yield
