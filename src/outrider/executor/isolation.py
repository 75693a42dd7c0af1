"""A user's function in processes of its own (J6): one that kills its process loses one page."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import msgspec

from outrider.core.outcome import (
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
from outrider.executor.handlers import HandlerFault
from outrider.executor.paging import Paged, is_page
from outrider.executor.visit import Next, Visit
from outrider.fetch.child_pool import ChildPool, Fault
from outrider.fetch.extract import Extracted
from outrider.fetch.local_faults import local_fault_of
from outrider.fetch.page import Page
from outrider.fetch.response import Response
from outrider.settings import resolve

MEMORY: Final = 4 * 2**30  # bytes one process may hold
_OUTCOMES: Final = {
    kind.__name__: kind for kind in (Done, Failed, Throttled, Blocked, Unreachable, Dropped)
}


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """A fetched page on its way to the other process."""

    function: str
    task: Task
    attempt: int
    response: Response
    found: Extracted
    links: list[Link]
    tree_fault: str | None


class _Made(msgspec.Struct, frozen=True, array_like=True):
    """What came back."""

    outcome: str
    fields: dict[str, Any]
    items: list[dict[str, Any]]
    links: list[Link]


class Isolated:
    """As `Paged`, but the function runs elsewhere; close it, so that no process is left."""

    def __init__(self, fetch: Next, function: str, *, seconds: float) -> None:
        resolve(function, "handler")  # complain here and now
        self._fetch = fetch
        self._function = function
        target = f"{__name__}:{made_apart.__name__}"
        count = os.cpu_count() or 1
        self._apart = ChildPool(target, seconds=seconds, memory=MEMORY, children=count)

    async def close(self) -> None:
        """End the other processes."""
        await self._apart.close()

    async def __call__(self, visit: Visit) -> Outcome:
        """The visit's outcome, unless the function says another."""
        outcome = await self._fetch(visit)
        if not is_page(visit, outcome):
            return outcome
        page: Page = visit.page
        task, attempt = visit.lease.about, visit.lease.attempt
        read = (page.response, page.found, page.links, page.tree_fault)
        told = _Told(self._function, task, attempt, *read)
        made = await self._apart.call(told, _Made, key=visit.lease.key)
        if isinstance(made, Fault):
            return _failure_of(made)
        visit.items, visit.links = made.items, made.links
        given = _OUTCOMES[made.outcome](**made.fields)
        if isinstance(given, Done) and msgspec.structs.replace(given, reward=None) == _UNSAID:
            return msgspec.structs.replace(outcome, reward=given.reward)
        return given


def _failure_of(fault: Fault) -> Failed:
    words = f"handler: {fault.kind}: {fault.detail}"[:500]
    if fault.kind == "local":
        # The number is in the text alone; without one, the function itself raised a LocalFault.
        raise HandlerFault(local_fault_of(OSError(fault.detail)) or LocalFault(fault.detail), words)
    return Failed(words)


_UNSAID: Final = Done(200)


def made_apart(told: Any) -> _Made:
    """What the other process does."""
    return asyncio.run(_made(msgspec.convert(told, _Told)))


async def _made(told: _Told) -> _Made:
    lease = Lease("", 0, 0, told.task, told.attempt, "", 0.0, 0, 0, QueueRules(), PolitenessState())
    visit = Visit(lease)
    page = visit.page = Page(lease, told.response)
    page.found, page.links, page.tree_fault = told.found, told.links, told.tree_fault
    try:
        outcome = await Paged(_fetched, resolve(told.function, "handler"))(visit)
    except LocalFault as fault:
        raise fault.__cause__ or fault from None  # its number says what it is
    fields = msgspec.structs.asdict(outcome)
    return _Made(type(outcome).__name__, fields, visit.items, visit.links)


async def _fetched(_: Visit) -> Outcome:
    return _UNSAID
