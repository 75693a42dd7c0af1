"""A planned crawl, run: seeds added, progress shown, signals heard, and the end told."""

from __future__ import annotations

import asyncio
import gc
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from outrider.cli.crawl_log import VisitLog
from outrider.cli.crawl_plan import Plan
from outrider.cli.crawl_report import Closing, closing
from outrider.cli.crawl_watch import Looks, say_shortage, watched
from outrider.cli.opening import say_promise
from outrider.cli.showing import note
from outrider.cli.stop_signals import StopSignals, stoppable
from outrider.core.outcome import Done
from outrider.core.states import CrawlStatus
from outrider.executor.fault_pause import FaultPause
from outrider.executor.outage import Outage
from outrider.executor.visit import Visit
from outrider.settings.errors import dotted_path
from outrider.store.address import show_address
from outrider.wiring import Crawling, Working, opened, retry_at_end

WORRIES: Final = 3  # failures told while nothing else has happened


async def run(plan: Plan, *, isolate: bool, quiet: bool) -> Closing:
    """To its end, or until a signal says stop."""
    return await stoppable(lambda signals: _run(plan, signals, isolate=isolate, quiet=quiet))


async def _run(plan: Plan, signals: StopSignals, *, isolate: bool, quiet: bool) -> Closing:
    outage = Outage(note, waits_for_room=True)
    how = Working(outage, pause=FaultPause(note, waits_for_room=True))
    title = f"outrider crawl · {show_address(plan.store)}"
    async with opened(
        plan.store,
        settings=plan.layers or plan.settings,
        crawl=plan.crawl,
        handler=plan.handler,
        isolate=isolate,
        how=how,
    ) as crawling:
        await _tell_overruled(crawling, plan)
        if plan.file is not None:
            await crawling.frontier.follow(plan.file, tell=note)
        is_new = await outage.call(lambda: _begin(crawling, plan))
        if not quiet:
            say_promise(crawling.frontier.store)
            say_shortage(crawling.frontier.settings)
        gc.freeze()  # what is there stays: no collection need look at it again
        loop = asyncio.get_running_loop()
        began = loop.time()
        decisions = crawling.executor.scaler.decisions
        with VisitLog(plan.log, decisions) as log:
            crawling.observe(log)
            if is_new and not quiet:
                crawling.observe(Worry(note))
            async with watched(crawling, title, Looks(), quiet=quiet):
                signals.attach(crawling.executor.stop)
                ending = await crawling.run()
                signals.ended()
        frontier, seconds, pause = crawling.frontier, loop.time() - began, crawling.executor.pause
        return await retry_at_end(
            lambda: closing(frontier, ending, crawling.tally, seconds, pause), note
        )


async def _tell_overruled(crawling: Crawling, plan: Plan) -> None:
    """N1: what was said at run time wins over the command line, also over one of later."""
    command = plan.layers.command if plan.layers is not None else None
    asked = (
        {dotted_path(path) for path, _ in command.leaf_origins()} if command is not None else set()
    )
    for row in await crawling.frontier.config():
        if row.path in asked and row.origin.startswith("runtime"):
            fix = shlex.join(["outrider", "config", "unset", show_address(plan.store), row.path])
            note(f"{row.path} stays {row.value}: {row.origin}; `{fix}` takes it back")


class Worry:
    """Says what goes wrong as long as nothing has gone well: a seed may be mistyped."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._left = WORRIES

    def __call__(self, visits: Sequence[Visit]) -> None:
        """These ended."""
        for visit in visits:
            if isinstance(visit.outcome, Done):
                self._left = 0
            elif self._left:
                self._left -= 1
                what = type(visit.outcome).__name__.lower()
                self._say(f"{visit.url}: {what}, {getattr(visit.outcome, 'reason', 'for now')}")


async def _begin(crawling: Crawling, plan: Plan) -> bool:
    """A second run goes on, whatever the first was stopped by; whether this is the first."""
    frontier = crawling.frontier
    view = await frontier.store.crawl(frontier.crawl)
    if view.status is CrawlStatus.PAUSED:
        await frontier.resume()
    report = await frontier.add(plan.urls)
    for answer in report.answers:
        if not answer.added and answer.reason != "duplicate":
            note(f"{answer.url}: {answer.reason}{f', {answer.detail}' if answer.detail else ''}")
    return not view.done
