"""The composition root: builds a running crawl from settings.

With an output path, every crawl built here also recovers the output that killed workers of this
machine left in doubt: before the first claim, every minute, and at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from random import random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from outrider.clock import Clock
from outrider.core.link_validation import type_error
from outrider.core.policy.link_types import reads_places
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease, Link
from outrider.errors import InvalidInput, SettingsError, StoreUnavailable
from outrider.executor.cached_visits import CachedVisits
from outrider.executor.executor import Ending, Executor
from outrider.executor.fault_pause import FaultPause
from outrider.executor.finisher import Observer
from outrider.executor.handlers import DEFAULT, Handlers
from outrider.executor.outage import Outage
from outrider.executor.page_handler import (
    IsolatedPageHandler,
    NamedFunction,
    PageFunctions,
    PageHandler,
    handler_children,
)
from outrider.executor.run_counts import RunCounts
from outrider.executor.slots import max_slots
from outrider.executor.visit import Handler, Stage, Visit
from outrider.executor.workbench import Workbench
from outrider.fetch.block_detector import detector_of
from outrider.fetch.cache import CacheFile, ResponseCache
from outrider.fetch.fetcher import FetchContext, Fetcher
from outrider.fetch.http1 import Http1Client
from outrider.fetch.http_client import user_agent
from outrider.fetch.local_faults import idle_connections, raise_limit
from outrider.fetch.pacing import Pacing, RefusalCheck
from outrider.fetch.reader import Reader
from outrider.fetch.robots import RobotsCache, RobotsGate
from outrider.frontier import Frontier
from outrider.frontier.reports import Stats
from outrider.output.factory import open_sink
from outrider.output.recovery import INTERVAL, OutputRecovery
from outrider.output.sink import Sink, recover
from outrider.settings import AnySettings, Layer, Settings, layers_of, resolve
from outrider.settings.worker_schema import FetchSettings

if TYPE_CHECKING:
    from outrider.fetch.http2 import Http2Client

T = TypeVar("T")

END_TIMEOUT: Final = (
    5.0  # seconds for which a store that is away is asked again at the end of a run
)

# Defaults of a crawl of whole sites. `max_crashes` is higher than usual: a user may kill a crawl
# more than three times before a slow page is read, which is not the page's fault.
SITES: Final[Mapping[str, Any]] = {
    "scope": {"mode": "domain"},
    "queue": {"max_depth": 100},
    "lease": {"max_crashes": 20},
}
SITES_LAYER: Final = Layer("default of a crawl", SITES)


class CrawlReport(msgspec.Struct, frozen=True):
    """How a crawl ended, and its counters."""

    ending: Ending
    stats: Stats
    fetched: int  # pages that hosts sent with a 2xx status, in this run


class Working(NamedTuple):
    """How a worker runs, apart from its settings."""

    outage: Outage | None = None  # retries calls while the store is unavailable
    stays: bool = False  # when the crawl is finished, wait for more tasks
    tally: RunCounts | None = None  # counters to continue with
    pause: FaultPause | None = None  # pauses visits while this machine lacks a resource


USUAL: Final = Working()


# The end of a run of a crawl that never had a pending task: no claim finishes such a crawl (I2).
NO_TASK: Final = Ending("finished", "nothing to visit was ever added")


class Crawling:
    """A frontier and the executor that visits its pages."""

    def __init__(
        self,
        frontier: Frontier,
        handlers: Handlers,
        sink: Sink,
        cached_visits: CachedVisits | None = None,
        how: Working = USUAL,
    ) -> None:
        self.frontier = frontier
        self.tally = how.tally or RunCounts()
        self._observers: list[Observer] = [self.tally]
        self.executor = Executor(
            frontier,
            handlers,
            sink=sink,
            observer=self._notify_observers,
            cached_visits=cached_visits,
            outage=how.outage,
            pause=how.pause,
            stays=how.stays,
        )

    def observe(self, observer: Observer) -> None:
        """Call `observer` with each batch of visits that ended."""
        self._observers.append(observer)

    def _notify_observers(self, visits: Sequence[Visit]) -> None:
        for observer in self._observers:
            observer(visits)

    async def run(self) -> Ending:
        """Run until the crawl ends or pauses, or the executor is stopped."""
        if not self.frontier.settings.executor.workbench:
            return await self.executor.run()
        async with Workbench(self.frontier):
            return await self.executor.run()

    async def run_seeded(self) -> Ending:
        """Run as `run` does, when the seeds were added; with nothing to visit, end at once."""
        if await self.executor.outage.call(self._is_idle_for_ever):
            return NO_TASK
        return await self.run()

    async def _is_idle_for_ever(self) -> bool:
        """Return whether no task was ever pending, and the crawl is not kept open for one."""
        frontier = self.frontier
        view = await frontier.store.crawl(frontier.crawl)
        waits = frontier.settings.crawl.stay_open or view.status is not CrawlStatus.RUNNING
        was_begun = view.known > view.done or view.outcomes or view.runs  # else added as done
        return not (waits or was_begun)


@asynccontextmanager
async def opened(  # noqa: PLR0913 - each is one part of a crawl
    store: str | os.PathLike[str] = "memory://",
    *,
    settings: AnySettings = None,
    crawl: str = "default",
    handler: PageFunctions | None = None,
    handlers: Mapping[str, Handler] | None = None,
    isolate: bool = False,
    sink: Sink | None = None,
    clock: Clock | None = None,
    how: Working = USUAL,
) -> AsyncIterator[Crawling]:
    """Build a crawl: add seeds to `.frontier`, then `await .run()`.

    `handler` is called with each page, or the functions of a mapping with pages of their type;
    `handlers` replace fetching for types of task. Output that killed workers left beside
    `output.path` is recovered, unless a `sink` is given.
    """
    layers = layers_of(settings)
    functions = page_functions(handler, handlers, isolate=isolate)
    tree = layers.base_settings().settings
    raise_limit()
    _ = _stages(tree)  # a stage that cannot be found is refused before anything is opened
    async with AsyncExitStack() as stack:
        output = _Output(sink or _sink(tree), "" if sink else tree.output.path)
        stack.callback(output.sink.close)
        frontier = await stack.enter_async_context(
            Frontier.open(store, settings=layers, crawl=crawl, clock=clock)
        )
        yield await _build(stack, frontier, output, _Handling(functions, handlers, how))


@asynccontextmanager
async def joined(
    frontier: Frontier,
    *,
    handler: PageFunctions | None = None,
    handlers: Mapping[str, Handler] | None = None,
    isolate: bool = False,
    sink: Sink | None = None,
    how: Working = USUAL,
) -> AsyncIterator[Crawling]:
    """Build the same around an attached frontier: one more worker of an existing crawl.

    Raises SettingsError if the crawl's settings name functions that `Frontier.attach` was not
    given. Several workers of one machine take their `output.path` from
    `outrider.output.worker_files`, so that each recovers what the others leave when killed.
    """
    if frontier.lacks:
        raise SettingsError(frontier.lacks)
    functions = page_functions(handler, handlers, isolate=isolate)
    raise_limit()
    async with AsyncExitStack() as stack:
        path = "" if sink else frontier.settings.output.path
        output = _Output(sink or _sink(frontier.settings), path)
        stack.callback(output.sink.close)
        yield await _build(stack, frontier, output, _Handling(functions, handlers, how))


class _Output(NamedTuple):
    """The sink, and the path beside which dead workers' output is recovered; "": nowhere."""

    sink: Sink
    path: str


class _Handling(NamedTuple):
    """How pages are handled."""

    functions: Mapping[str, NamedFunction]  # by type; a name: a child process calls it
    handlers: Mapping[str, Handler] | None
    how: Working


async def _build(
    stack: AsyncExitStack, frontier: Frontier, output: _Output, wanted: _Handling
) -> Crawling:
    tree = frontier.settings
    cache = _cache(tree.fetch, stack)
    outage, pause = wanted.how.outage or Outage(), wanted.how.pause or FaultPause()
    fetcher = await stack.enter_async_context(fetching(frontier, cache, outage, pause))
    every = {
        DEFAULT: fetcher,
        **_page_handlers(fetcher, wanted.functions, tree, stack),
        **(wanted.handlers or {}),
    }
    await outage.call(lambda: recover(output.sink, frontier.store))
    if output.path:
        sync = tree.store.durability == "sync"
        recovery = OutputRecovery(output.path, frontier.store, sync=sync)
        await stack.enter_async_context(recovering(recovery, outage))
    how = wanted.how._replace(outage=outage, pause=pause)
    cached_visits = None
    if cache is not None:
        cached_visits = CachedVisits(frontier, cache, _fetched_types(every, wanted.handlers or {}))
    return Crawling(frontier, Handlers(every, _stages(tree)), output.sink, cached_visits, how)


def _fetched_types(
    every: Mapping[str, Handler], given: Mapping[str, Handler]
) -> Callable[[str], bool]:
    """Tell of a type whether its tasks are fetched, not given to a handler of the user's own."""
    return lambda kind: (kind if kind in every else DEFAULT) not in given


@asynccontextmanager
async def recovering(
    recovery: OutputRecovery, outage: Outage, *, interval: float = INTERVAL
) -> AsyncIterator[None]:
    """Recover dead workers' output before, during and after the block."""
    await outage.call(recovery.run)
    repeated = asyncio.create_task(recovery.run_every(interval))
    try:
        yield
    finally:
        repeated.cancel()
        await asyncio.wait([repeated])
    with suppress(StoreUnavailable):  # the next worker recovers it
        await retry_at_end(recovery.run)


async def retry_at_end(
    work: Callable[[], Awaitable[T]], tell: Callable[[str], None] = lambda _: None
) -> T:
    """Ask the store at the end of a run, when its server may be ending: retry for END_TIMEOUT."""
    outage = Outage(tell)
    outage.end_by(asyncio.get_running_loop().time() + END_TIMEOUT)
    return await outage.call(work)


def _stages(tree: Settings) -> list[Stage]:
    return [resolve(stage, "executor.pipeline") for stage in tree.executor.pipeline]


def _sink(tree: Settings) -> Sink:
    return open_sink(tree, user_agent=user_agent(tree.fetch))


def page_functions(
    handler: PageFunctions | None,
    handlers: Mapping[str, Handler] | None = None,
    *,
    isolate: bool = False,
) -> dict[str, NamedFunction]:
    """Import the functions to call with pages, by type; raise if one cannot be used.

    With `isolate`, child processes call them: their names are returned.
    """
    if handler is None:
        return {}
    given = handler if isinstance(handler, Mapping) else {DEFAULT: handler}
    for kind in given:
        _check_type(kind, handlers or {})
    return {
        kind: _function(
            one, "handler" if kind == DEFAULT else f"handler of type {kind!r}", isolate=isolate
        )
        for kind, one in given.items()
    }


def _check_type(kind: str, handlers: Mapping[str, Handler]) -> None:
    if (error := type_error(kind)) is not None:
        raise InvalidInput(f"handler: {error}")
    if kind == "sitemap":
        raise InvalidInput(
            "handler of type 'sitemap': sitemaps are read for links, and no function is called with"
            " them; give a handler in place of fetching (handlers=)"
        )
    if kind != DEFAULT and kind in handlers:
        raise InvalidInput(f"type {kind!r} is both in handler and in handlers; give one of them")


def _function(function: NamedFunction, handler: str, *, isolate: bool) -> NamedFunction:
    """Import a function; `handler` names it in errors."""
    found = resolve(function, handler)
    if not callable(found):
        raise InvalidInput(
            f"{handler} = {function!r} is not a function; give a function, or module:function"
        )
    if isolate and not isinstance(function, str):
        raise InvalidInput(
            f"isolate needs the {handler} by name, as module:function: child processes import it"
        )
    return function if isolate else found


def _page_handlers(
    fetcher: Fetcher,
    functions: Mapping[str, NamedFunction],
    tree: Settings,
    stack: AsyncExitStack,
) -> dict[str, Handler]:
    """The handlers that fetch and call these functions; those by name share child processes."""
    names = {kind: one for kind, one in functions.items() if isinstance(one, str)}
    found: dict[str, Handler] = {
        kind: PageHandler(fetcher, one)
        for kind, one in functions.items()
        if not isinstance(one, str)
    }
    if names:
        children = handler_children(tree.executor.handler_timeout)
        stack.push_async_callback(children.close)
        found |= {kind: IsolatedPageHandler(fetcher, one, children) for kind, one in names.items()}
    return found


@asynccontextmanager
async def fetching(
    frontier: Frontier,
    cache: ResponseCache | None = None,
    outage: Outage | None = None,
    pause: FaultPause | None = None,
) -> AsyncIterator[Fetcher]:
    """Open the default handler with its connections and caches."""
    settings, wanted = frontier.settings, frontier.settings.fetch
    refusing = _refusal_check(frontier, outage or Outage())
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(settings))
        if pause is not None:
            pause.relieve = client.close_idle
        pacing = Pacing(client, frontier.clock, random, wanted.total_timeout)
        context = FetchContext(
            RobotsGate(settings, pacing, _robots_cache(frontier, stack), refusing),
            pacing,
            await stack.enter_async_context(_reading(frontier)),
            detector_of(wanted.detector),
            cache,
            refusing,
        )
        yield Fetcher(settings, context)


@asynccontextmanager
async def _reading(frontier: Frontier) -> AsyncIterator[Reader]:
    """Open the reader; what types and scorer ask of links holds at once when it changes (N3)."""
    settings = frontier.settings

    def locate(_: Settings, new: Settings) -> None:
        is_learning = new.scoring.scorer == "learning"  # it needs the tag path of each link
        tag_path = settings.fetch.tag_path or is_learning
        reader.locate(places=reads_places(new.types), tag_path=tag_path)

    async with Reader(settings.fetch, settings.url) as reader:
        locate(settings, settings)
        end_watch = frontier.watch_settings(locate)
        try:
            yield reader
        finally:
            end_watch()


def _refusal_check(frontier: Frontier, outage: Outage) -> RefusalCheck:
    """Ask the frontier whether a link is refused; retry while the store is unavailable."""

    async def refusal_of(link: Link, lease: Lease) -> str | None:
        return await outage.call(lambda: frontier.refusal_of(link, lease))

    return refusal_of


def _client(settings: Settings) -> AbstractAsyncContextManager[Http1Client | Http2Client]:
    """The HTTP client; it keeps only as many idle connections as the open-file limit allows."""
    kind: type[Http1Client | Http2Client] = _http2() if settings.fetch.http2 else Http1Client
    kept = idle_connections(settings.fetch.connections, max_slots(settings.executor))
    return kind(
        replace(settings.fetch, connections=kept),
        allow_private=settings.url.allow_private,
        keep_packed=settings.output.format == "warc",
        keep_request=settings.output.format == "warc" and settings.output.warc_requests,
    )


def _http2() -> type[Http2Client]:
    try:
        from outrider.fetch.http2 import Http2Client  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise SettingsError(
            "fetch.http2 needs a package that is not installed: pip install 'outrider[http2]'"
        ) from error
    return Http2Client


def _robots_cache(frontier: Frontier, stack: AsyncExitStack) -> RobotsCache:
    wanted = frontier.settings.fetch
    file = CacheFile(wanted.robots_cache) if wanted.robots_cache else None
    cache = RobotsCache(frontier.clock, wanted.user_agent, file)
    if file is not None:
        stack.callback(file.close)
    return cache


def _cache(wanted: FetchSettings, stack: AsyncExitStack) -> ResponseCache | None:
    if not wanted.cache:
        return None
    cache = ResponseCache(CacheFile(wanted.cache, wanted.cache_bytes))
    stack.callback(cache.close)
    return cache


async def crawl(
    urls: str | Link | Iterable[str | Link],
    handler: PageFunctions | None = None,
    *,
    store: str | os.PathLike[str] = "memory://",
    settings: AnySettings = None,
    name: str = "default",
    progress: Callable[[Sequence[Visit]], None] | None = None,
) -> CrawlReport:
    """Crawl from these URLs to the end, politely; stays on their domains by default.

    `handler` is called with each page, or of a mapping the function of its type. With a path as
    `store`, the same call resumes where the
    last one stopped, however it was stopped.
    """
    layers = layers_of(settings)
    if not isinstance(settings, Settings):
        layers = replace(layers, usual=layers.usual or SITES_LAYER)
    async with opened(store, settings=layers, crawl=name, handler=handler) as crawling:
        if progress is not None:
            crawling.observe(progress)
        await crawling.frontier.add(urls if isinstance(urls, str | Link) else list(urls))
        ending = await crawling.run_seeded()
        return CrawlReport(ending, await crawling.frontier.stats(), crawling.tally.fetched)


__all__ = [
    "CrawlReport",
    "Crawling",
    "Working",
    "crawl",
    "fetching",
    "joined",
    "opened",
    "page_functions",
]
