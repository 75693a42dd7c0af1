"""Page handlers: fetch a page, call the user's function with it, collect its items and links.

`PageHandler` calls it in this process, `IsolatedPageHandler` in child processes, so that a function
that kills its process loses one page (J6). What the function raises, or returns by mistake, fails
its own visit.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from math import isfinite
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from outrider.core.outcome import (
    Again,
    Blocked,
    Done,
    Dropped,
    Failed,
    Outcome,
    Throttled,
    Unreachable,
)
from outrider.core.policy.rules import QueueRules
from outrider.core.task import Lease, Link, PolitenessState, Task
from outrider.errors import LocalFault
from outrider.executor.handlers import HandlerFault, Threads, failure_of
from outrider.executor.visit import Next, Visit
from outrider.fetch.child_pool import ChildPool, Fault
from outrider.fetch.extract import Extracted
from outrider.fetch.local_faults import local_fault_of
from outrider.fetch.page import Page
from outrider.fetch.response import Response
from outrider.settings import resolve

PageFunction: TypeAlias = Callable[[Any], Any]  # called with a page; async or plain
NamedFunction: TypeAlias = PageFunction | str  # or its name, `module:function`
# A function for every page, or by type of task; "*": all types without one of their own.
PageFunctions: TypeAlias = NamedFunction | Mapping[str, NamedFunction]
MAX_ITEMS: Final = 100_000  # items and links of one page
_EXPECTED: Final = "give a dict, a Link, a list of those, an outcome, or None"


class PageHandler:
    """Fetches, then calls the user's function with the page."""

    def __init__(self, fetch: Next, function: PageFunction) -> None:
        self._fetch = fetch
        self._function = function
        is_async = iscoroutinefunction(function) or isasyncgenfunction(function)
        self._call = _call_async if is_async else partial(_call_in_thread, Threads())

    async def __call__(self, visit: Visit) -> Outcome:
        """Return the visit's outcome, or another that the function returned."""
        outcome = await self._fetch(visit)
        if not is_page(visit, outcome):
            return outcome
        return _with_host_state(await self._handled(visit, outcome), outcome)

    async def _handled(self, visit: Visit, outcome: Outcome) -> Outcome:
        try:
            made = await self._call(self._function, visit.page)
        except LocalFault:
            raise
        except Exception as error:  # noqa: BLE001 - user code
            return failure_of(error)
        visit.links = visit.page.links
        fault = None if isinstance(made, Outcome) else _add_results(visit, made)
        if fault is not None:
            return Failed(f"handler: {fault}"[:500])
        return made if isinstance(made, Outcome) else _with_reward(outcome, visit.page.reward)


def _with_host_state(made: Outcome, fetched: Outcome) -> Outcome:
    """Keep what the visit says about its host, if the page is from the cache (D5).

    The host was not visited, or it throttled: then the visit ends as throttled, unless the page is
    done, and the function is called again later.
    """
    if not isinstance(fetched, Done) or not fetched.from_cache:
        return made
    if isinstance(made, Done):
        return replace(made, from_cache=True, throttled=fetched.throttled)
    if fetched.throttled is not None:
        return Throttled(fetched.throttled, fetched.seconds, fetched.crawl_delay)
    return replace(made, visited=False) if isinstance(made, Dropped | Again) else made


def _with_reward(outcome: Outcome, reward: object) -> Outcome:
    """Add the reward that the function set on the page (F10)."""
    if reward is None or not isinstance(outcome, Done):
        return outcome
    if isinstance(reward, int | float) and isfinite(reward):
        return replace(outcome, reward=float(reward))
    return Failed(f"handler: page.reward = {reward!r:.80}; give a finite number"[:500])


def is_page(visit: Visit, outcome: Outcome) -> bool:
    """Whether the user's function is called: a host sent a page with a 2xx status."""
    is_fetched = isinstance(outcome, Done) and 200 <= outcome.status < 300
    return is_fetched and visit.page is not None and visit.lease.type != "sitemap"


async def _call_async(function: PageFunction, page: Any) -> Any:
    made = function(page)
    if isinstance(made, AsyncIterable):
        return [one async for one in made]
    return await made


async def _call_in_thread(threads: Threads, function: PageFunction, page: Any) -> Any:
    return await threads.call(_call_and_collect, function, page)


def _call_and_collect(function: PageFunction, page: Any) -> Any:
    """Call a function and exhaust its generator in the same thread."""
    made = function(page)
    is_plain = made is None or isinstance(made, Outcome | Mapping | Link | str | bytes)
    return list(made) if not is_plain and isinstance(made, Iterable) else made


def _add_results(visit: Visit, made: Any) -> str | None:
    """Add items and links to the visit; return what is wrong with the result, or None."""
    every = made if isinstance(made, list | tuple) else [] if made is None else [made]
    if len(every) > MAX_ITEMS:
        return f"{len(every):,} items of one page, over {MAX_ITEMS:,}"
    for one in every:
        if isinstance(one, Link):
            visit.links.append(one)
        elif isinstance(one, Mapping):
            visit.items.append(dict(one))
        else:
            return f"returned {type(one).__name__}; {_EXPECTED}"
    return _json_fault(visit.items)


def _json_fault(items: list[dict[str, Any]]) -> str | None:
    try:
        msgspec.json.encode(items)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"an item is not JSON: {error}"
    return None


CHILD_MEMORY: Final = 4 * 2**30  # bytes of one child process
_OUTCOMES: Final = {
    kind.__name__: kind for kind in (Done, Failed, Throttled, Blocked, Unreachable, Dropped, Again)
}


class _ChildTask(msgspec.Struct, frozen=True, array_like=True):
    """A fetched page, as sent to the child."""

    function: str
    task: Task
    attempt: int
    response: Response
    found: Extracted
    links: list[Link]
    tree_fault: str | None
    from_cache: bool


class _ChildAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The child's answer."""

    outcome: str
    fields: dict[str, Any]
    items: list[dict[str, Any]]
    links: list[Link]


def handler_children(seconds: float) -> ChildPool:
    """Return the child processes that isolated handlers of a crawl share."""
    target = f"{__name__}:{handle_in_child.__name__}"
    count = os.cpu_count() or 1
    return ChildPool(target, seconds=seconds, memory=CHILD_MEMORY, children=count)


class IsolatedPageHandler:
    """As `PageHandler`, but the function runs in child processes."""

    def __init__(self, fetch: Next, function: str, children: ChildPool) -> None:
        resolve(function, "handler")  # refuse a bad reference now
        self._fetch = fetch
        self._function = function
        self._children = children

    async def __call__(self, visit: Visit) -> Outcome:
        """Return the visit's outcome, or another that the function returned."""
        outcome = await self._fetch(visit)
        if not is_page(visit, outcome):
            return outcome
        return _with_host_state(await self._handled(visit, outcome), outcome)

    async def _handled(self, visit: Visit, outcome: Outcome) -> Outcome:
        page: Page = visit.page
        about, attempt = visit.lease.about, visit.lease.attempt
        read = (page.response, page.found, page.links, page.tree_fault, page.from_cache)
        task = _ChildTask(self._function, about, attempt, *read)
        made = await self._children.call(task, _ChildAnswer, key=visit.lease.key)
        if isinstance(made, Fault):
            return _failure_of_fault(made)
        visit.items, visit.links = made.items, made.links
        given = _OUTCOMES[made.outcome](**made.fields)
        if isinstance(given, Done) and replace(given, reward=None) == _DEFAULT_OUTCOME:
            return replace(outcome, reward=given.reward)
        return given


def _failure_of_fault(fault: Fault) -> Failed:
    reason = f"handler: {fault.kind}: {fault.detail}"[:500]
    if fault.kind == "local":
        # The errno is in the text only; without one, the function itself raised a LocalFault.
        raise HandlerFault(
            local_fault_of(OSError(fault.detail)) or LocalFault(fault.detail), reason
        )
    return Failed(reason)


_DEFAULT_OUTCOME: Final = Done(200)


def handle_in_child(task: Any) -> _ChildAnswer:
    """Call the user's function; runs in the child."""
    return asyncio.run(_handle_in_child(msgspec.convert(task, _ChildTask)))


async def _handle_in_child(task: _ChildTask) -> _ChildAnswer:
    lease = Lease("", 0, 0, task.task, task.attempt, "", 0.0, 0, 0, QueueRules(), PolitenessState())
    visit = Visit(lease)
    page = visit.page = Page(lease, task.response, from_cache=task.from_cache)
    page.found, page.links, page.tree_fault = task.found, task.links, task.tree_fault
    try:
        outcome = await PageHandler(_no_fetch, resolve(task.function, "handler"))(visit)
    except LocalFault as fault:
        raise fault.__cause__ or fault from None  # its errno tells which fault it is
    fields = msgspec.structs.asdict(outcome)
    return _ChildAnswer(type(outcome).__name__, fields, visit.items, visit.links)


async def _no_fetch(_: Visit) -> Outcome:
    return _DEFAULT_OUTCOME
