"""A user's function around fetching: called with each page, its answer kept as items and links.

What it raises or returns by mistake fails its own visit, with a reason that says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from math import isfinite
from typing import Any, Final, TypeAlias

import msgspec

from outrider.core.outcome import Done, Failed, Outcome
from outrider.core.task import Link
from outrider.errors import LocalFault
from outrider.executor.handlers import failure_of
from outrider.executor.threads import Threads
from outrider.executor.visit import Next, Visit

PageFunction: TypeAlias = Callable[[Any], Any]  # of a page; async or plain
MOST: Final = 100_000  # items and links one page may give
_WANTED: Final = "give a dict, a Link, a list of those, an outcome, or None"


class Paged:
    """Fetches, then asks the user's function what to make of it."""

    def __init__(self, fetch: Next, function: PageFunction) -> None:
        self._fetch = fetch
        self._function = function
        is_async = iscoroutinefunction(function) or isasyncgenfunction(function)
        self._call = _direct if is_async else partial(_beside, Threads())

    async def __call__(self, visit: Visit) -> Outcome:
        """The visit's outcome, unless the function says another."""
        outcome = await self._fetch(visit)
        if not is_page(visit, outcome):
            return outcome
        try:
            made = await self._call(self._function, visit.page)
        except LocalFault:
            raise
        except Exception as error:  # noqa: BLE001 - the function is a user's
            return failure_of(error)
        visit.links = visit.page.links
        fault = None if isinstance(made, Outcome) else _take(visit, made)
        if fault is not None:
            return Failed(f"handler: {fault}"[:500])
        return made if isinstance(made, Outcome) else _rewarded(outcome, visit.page.reward)


def _rewarded(outcome: Outcome, reward: object) -> Outcome:
    """F10: with what the function says the page was worth."""
    if reward is None or not isinstance(outcome, Done):
        return outcome
    if isinstance(reward, int | float) and isfinite(reward):
        return msgspec.structs.replace(outcome, reward=float(reward))
    return Failed(f"handler: page.reward = {reward!r:.80}; give a finite number"[:500])


def is_page(visit: Visit, outcome: Outcome) -> bool:
    """Whether there is a page to show to a user's function: a host sent it with a 2xx."""
    is_fetched = isinstance(outcome, Done) and 200 <= outcome.status < 300
    return is_fetched and visit.page is not None and visit.lease.type != "sitemap"


async def _direct(function: PageFunction, page: Any) -> Any:
    made = function(page)
    if isinstance(made, AsyncIterable):
        return [one async for one in made]
    return await made


async def _beside(threads: Threads, function: PageFunction, page: Any) -> Any:
    return await threads.call(_called, function, page)


def _called(function: PageFunction, page: Any) -> Any:
    """A generator runs where its function does."""
    made = function(page)
    is_plain = made is None or isinstance(made, Outcome | Mapping | Link | str | bytes)
    return list(made) if not is_plain and isinstance(made, Iterable) else made


def _take(visit: Visit, made: Any) -> str | None:
    """Items and links into the visit; what is neither is the answer."""
    every = made if isinstance(made, list | tuple) else [] if made is None else [made]
    if len(every) > MOST:
        return f"{len(every):,} items of one page, over {MOST:,}"
    for one in every:
        if isinstance(one, Link):
            visit.links.append(one)
        elif isinstance(one, Mapping):
            visit.items.append(dict(one))
        else:
            return f"returned {type(one).__name__}; {_WANTED}"
    return _unwritable(visit.items)


def _unwritable(items: list[dict[str, Any]]) -> str | None:
    try:
        msgspec.json.encode(items)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"an item is not JSON: {error}"
    return None
