"""Runs of `crawl` and `work`: from opening the crawl to its closing report."""

from __future__ import annotations

import asyncio
import gc
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Final

import msgspec

from outrider.cli.crawl_plan import Plan, WorkRequest, parse_handlers, worker_output
from outrider.cli.crawl_progress import Sampling, VisitLog, note_shortage, showing_progress
from outrider.cli.crawl_report import Closing, make_closing
from outrider.cli.open_crawl import note_durability
from outrider.cli.stop_signals import StopSignals, run_stoppable
from outrider.cli.terminal import print_note
from outrider.clock import SystemClock
from outrider.core.outcome import Done
from outrider.core.states import CrawlStatus
from outrider.executor.executor import Ending, Executor
from outrider.executor.fault_pause import FaultPause
from outrider.executor.outage import Outage
from outrider.executor.run_counts import RunCounts
from outrider.executor.visit import Visit
from outrider.executor.watchdog import Watchdog
from outrider.frontier import Frontier
from outrider.monitoring.connection import check_crawl, check_store
from outrider.settings import Layers
from outrider.settings.errors import dotted_path
from outrider.store.address import show_address
from outrider.store.factory import open_store
from outrider.store.protocol import FullStore
from outrider.wiring import Crawling, Working, joined, opened, retry_at_end

MAX_FIRST_FAILURES: Final = 3  # noted while no visit has succeeded


async def run_crawl(plan: Plan, *, isolate: bool, quiet: bool) -> Closing:
    """Run a crawl to its end, or until a signal stops it."""
    return await run_stoppable(
        lambda signals: _run_plan(plan, signals, isolate=isolate, quiet=quiet)
    )


async def _run_plan(plan: Plan, signals: StopSignals, *, isolate: bool, quiet: bool) -> Closing:
    outage = Outage(print_note, waits_for_space=True)
    how = Working(outage, pause=FaultPause(print_note, waits_for_space=True))
    title = f"outrider crawl · {show_address(plan.store)}"
    async with opened(
        plan.store,
        settings=plan.layers or plan.settings,
        crawl=plan.crawl,
        handler=plan.handlers,
        isolate=isolate,
        how=how,
    ) as crawling:
        await _note_overruled(crawling, plan)
        if plan.file is not None:
            await crawling.frontier.follow(plan.file, tell=print_note)
        is_new = await outage.call(lambda: _add_seeds(crawling, plan))
        if not quiet:
            note_durability(crawling.frontier.store)
            note_shortage(crawling.frontier.settings)
        gc.freeze()  # what exists now stays: exclude it from collections
        loop = asyncio.get_running_loop()
        began = loop.time()
        decisions = crawling.executor.scaler.decisions
        with VisitLog(plan.log, decisions) as log:
            crawling.observe(log)
            if is_new and not quiet:
                crawling.observe(FirstFailures(print_note))
            async with showing_progress(crawling, title, Sampling(), quiet=quiet):
                signals.attach(crawling.executor.stop)
                ending = await crawling.run_seeded()
                signals.mark_ended()
        frontier, seconds, pause = crawling.frontier, loop.time() - began, crawling.executor.pause
        return await retry_at_end(
            lambda: make_closing(frontier, ending, crawling.tally, seconds, pause), print_note
        )


async def _note_overruled(crawling: Crawling, plan: Plan) -> None:
    """Note options that a runtime setting overrides (N1)."""
    command = plan.layers.command if plan.layers is not None else None
    given = (
        {dotted_path(path) for path, _ in command.leaf_origins()} if command is not None else set()
    )
    for row in await crawling.frontier.config():
        if row.path in given and row.origin.startswith("runtime"):
            fix = shlex.join(["outrider", "config", "unset", show_address(plan.store), row.path])
            print_note(f"{row.path} stays {row.value}: {row.origin}; to undo that, run `{fix}`")


class FirstFailures:
    """Reports failures until the first visit succeeds: a start URL may be mistyped."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._remaining = MAX_FIRST_FAILURES

    def __call__(self, visits: Sequence[Visit]) -> None:
        """Take visits that ended."""
        for visit in visits:
            if isinstance(visit.outcome, Done):
                self._remaining = 0
            elif self._remaining:
                self._remaining -= 1
                what = type(visit.outcome).__name__.lower()
                self._say(
                    f"{visit.url}: {what}, {getattr(visit.outcome, 'reason', None) or 'for now'}"
                )


async def _add_seeds(crawling: Crawling, plan: Plan) -> bool:
    """Add the seeds, resuming a paused crawl; return whether no page was done before."""
    frontier = crawling.frontier
    view = await frontier.store.crawl(frontier.crawl)
    if view.status is CrawlStatus.PAUSED:
        await frontier.resume()
    report = await frontier.add(plan.urls)
    for answer in report.answers:
        if not answer.added and answer.reason != "duplicate":
            print_note(
                f"{answer.url}: {answer.reason}{f', {answer.detail}' if answer.detail else ''}"
            )
    return not view.done


# ---- a worker


WORKER_SAMPLING: Final = Sampling(interval=2.0)  # there may be many workers


class WorkerReport(msgspec.Struct, frozen=True):
    """The result of a worker that has ended."""

    closing: Closing
    worker: str
    files: Mapping[str, str]


async def run_worker(request: WorkRequest, own: Layers, name: str, *, quiet: bool) -> WorkerReport:
    """Run a worker until the crawl ends or a signal stops it."""
    return await run_stoppable(
        lambda signals: _run_worker(request, own, name, signals, quiet=quiet)
    )


async def _run_worker(
    request: WorkRequest, own: Layers, name: str, signals: StopSignals, *, quiet: bool
) -> WorkerReport:
    tally, loop = RunCounts(), asyncio.get_running_loop()
    began = loop.time()
    outage, pause = (
        Outage(print_note, waits_for_space=True),
        FaultPause(print_note, waits_for_space=True),
    )
    how = Working(outage, request.stays, tally, pause)
    log = f"{name}.log" if request.log is None else request.log
    async with AsyncExitStack() as stack:
        frontier = await _attach(stack, request, own, outage)
        if request.settings is not None:
            await frontier.follow(request.settings, tell=print_note)
        async with joined(
            frontier, handler=parse_handlers(request.handler), isolate=request.isolate, how=how
        ) as crawling:
            ending = await _visit_pages(crawling, request, log, signals, quiet=quiet)
        seconds = loop.time() - began
        words = ["outrider", "resume", show_address(request.store)]
        named = [] if request.crawl == "default" else ["--crawl", request.crawl]
        resume = shlex.join([*words, *named])
        closed = await retry_at_end(
            lambda: make_closing(
                frontier, ending, tally, seconds, pause, whole=False, resume=resume
            ),
            print_note,
        )
        return WorkerReport(closed, frontier.worker, worker_output(name, frontier.settings, log))


async def _attach(
    stack: AsyncExitStack, request: WorkRequest, own: Layers, outage: Outage
) -> Frontier:
    """Attach to the crawl; retry while the process that holds its file does not answer."""

    async def attach() -> Frontier:
        async with AsyncExitStack() as opening:
            store = await _open_to_work(opening, request, own)
            frontier = await opening.enter_async_context(
                Frontier.attach(store, settings=own, crawl=request.crawl)
            )
            await check_crawl(frontier, request.store)
            stack.push_async_exit(opening.pop_all())
            return frontier

    return await (attach() if "://" in request.store else outage.call(attach))


async def _open_to_work(stack: AsyncExitStack, request: WorkRequest, own: Layers) -> FullStore:
    """Open the store of a worker, which declares itself as one if it holds the file."""
    source = check_store(request.store, creates=False)
    if not isinstance(source, str):
        return source
    durability = own.base_settings().settings.store.durability
    store = await open_store(source, SystemClock(), durability=durability, purpose="work")
    stack.push_async_callback(store.close)
    return store


async def _visit_pages(
    crawling: Crawling, request: WorkRequest, log: str, signals: StopSignals, *, quiet: bool
) -> Ending:
    gc.freeze()  # what exists now stays: exclude it from collections
    executor, title = crawling.executor, f"outrider work · {show_address(request.store)}"
    if not quiet:
        print_note(f"{crawling.frontier.worker} joins {crawling.frontier.crawl!r}")
        note_durability(crawling.frontier.store)
        note_shortage(crawling.frontier.settings)
    with VisitLog(log, executor.scaler.decisions) as lines:
        crawling.observe(lines)
        seconds = crawling.frontier.settings.executor.watchdog
        async with showing_progress(crawling, title, WORKER_SAMPLING, quiet=quiet):
            with _with_watchdog(executor, seconds):
                signals.attach(executor.stop)
                ending = await crawling.run()
                signals.mark_ended()
                return ending


@contextmanager
def _with_watchdog(executor: Executor, seconds: float) -> Iterator[None]:
    if not seconds:
        yield
        return
    with Watchdog(executor, seconds):
        yield
