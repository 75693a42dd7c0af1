"""Shorthands of the suite: "a/1" is https://a.example/1, page 1 of the queue a.

They call the store and read its answers; assertions are in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict, Unpack

from outrider.core.outcome import Outcome, Throttled
from outrider.core.pick import Streak
from outrider.core.queue_action import QueueAction
from outrider.core.states import CrawlStatus, QueueState
from outrider.core.task import Added, Lease, Task
from outrider.core.url import fingerprint
from outrider.core.verdict import Finished, Verdict
from outrider.store.protocol import (
    ClaimRequest,
    ClaimResult,
    CrawlView,
    FullStore,
    QueueView,
    Store,
    TaskView,
)
from outrider.testing.builders import (
    Circumstances,
    RuleFields,
    TaskFields,
    done,
    rules,
    task,
    verdict,
)

CRAWL: Final = "default"

READY: Final = (QueueState.READY, None)
INACTIVE: Final = (QueueState.INACTIVE, None)
OVER_BUDGET: Final = (QueueState.RETIRED, "budget")
PAUSED: Final = (QueueState.PAUSED, "operator")
RETIRED: Final = (QueueState.RETIRED, "operator")


class PolitenessFields(TypedDict):
    """The two main politeness settings."""

    delay: float
    max_in_flight: int


NO_DELAY: Final[PolitenessFields] = {
    "delay": 0.0,
    "max_in_flight": 1000,
}  # for tests of order alone


_STORE_FIELDS: Final = ("store", "token", "holder")  # of a lease: they differ between stores


def lease_facts(lease: Lease) -> dict[str, Any]:
    """Return the fields of a lease that are the same on every store."""
    names = (name for name in Lease.__struct_fields__ if name not in _STORE_FIELDS)
    return {name: getattr(lease, name) for name in names}


def url(name: str) -> str:
    """The URL of "a/1"."""
    host, _, path = name.partition("/")
    return f"https://{host}.example/{path}"


def key(host: str) -> str:
    """The queue of "a"."""
    return f"{host}.example"


def mark(name: str) -> bytes:
    """The fingerprint of "a/1"."""
    return fingerprint(url(name))


def page(name: str, **fields: Unpack[TaskFields]) -> Task:
    """A task for "a/1"."""
    return task(url(name), **fields)


def pages(*names: str, **fields: Unpack[TaskFields]) -> list[Task]:
    """Tasks alike but for their names."""
    return [page(name, **fields) for name in names]


def names(leases: list[Lease]) -> list[str]:
    """The names of leased tasks, as "a/1"."""
    return [lease.url.removeprefix("https://").replace(".example", "") for lease in leases]


class Asking(TypedDict, total=False):
    """Keyword arguments of a claim besides its limit."""

    crawl: str
    worker: str
    lease_for: float
    per_queue: int
    streak: Streak
    fingerprints: Sequence[bytes]
    lend: bool
    process: str
    keys: Sequence[str]
    max_queues: int
    rolls: Sequence[float]
    outlives_process: bool


async def configure(store: FullStore, **fields: Unpack[RuleFields]) -> None:
    """Open the crawl under these rules."""
    await store.configure(CRAWL, rules(**fields))


async def open_crawls(store: FullStore, *names: str) -> None:
    """Open other crawls besides, under default rules."""
    for name in names:
        await store.configure(name, rules())


async def add(store: Store, *names: str, **fields: Unpack[TaskFields]) -> list[Added]:
    """Add pages alike but for their names, in one batch."""
    return await store.add(pages(*names, **fields))


async def ask(store: Store, limit: int = 1, **fields: Unpack[Asking]) -> ClaimResult:
    """Claim, and keep the whole answer."""
    given: Asking = {"crawl": CRAWL, "worker": "w", **fields}
    return await store.claim(ClaimRequest(limit=limit, **given))


async def claim(store: Store, limit: int = 1, **fields: Unpack[Asking]) -> list[Lease]:
    """Claim, and keep the leases."""
    return (await ask(store, limit, **fields)).leases


async def one(store: Store, **fields: Unpack[Asking]) -> Lease:
    """Claim one task, which must be there."""
    (lease,) = await claim(store, **fields)
    return lease


async def named(store: Store, *pages: str, limit: int = 64, lease_for: float = 60.0) -> list[Lease]:
    """Claim these pages by name."""
    wanted = [mark(page) for page in pages]
    return await claim(store, limit, lease_for=lease_for, fingerprints=wanted)


async def finish(store: Store, decided: Verdict) -> Finished:
    """Finish one visit."""
    (answer,) = await store.finish([decided])
    return answer


async def visit(
    store: Store, outcome: Outcome | None = None, **around: Unpack[Circumstances]
) -> Lease:
    """Claim one task and finish it, by default as done."""
    lease = await one(store)
    decided = done(lease) if outcome is None else verdict(lease, outcome, **around)
    assert (await finish(store, decided)).applied
    return lease


async def throttle(store: Store, *names: str) -> None:
    """Add pages to a queue, whose first visit then makes it wait for 100 s."""
    await add(store, *names)
    await visit(store, Throttled(retry_after=100.0))


async def drained(store: Store) -> list[str]:
    """Visit one after the other all that can be visited now; their names in that order."""
    order: list[str] = []
    while leases := await claim(store):
        order += names(leases)
        await store.finish([done(lease) for lease in leases])
    return order


async def queue(store: FullStore, host: str = "a") -> QueueView:
    """How the queue looks."""
    return await store.queue(CRAWL, key(host))


async def wakes_in(store: FullStore, host: str = "a") -> float | None:
    """Seconds until the queue may be visited; None if time alone brings nothing."""
    return (await queue(store, host)).wakes_in


async def state(store: FullStore, host: str = "a") -> tuple[QueueState, str | None]:
    """The queue's state and the reason for it."""
    view = await queue(store, host)
    return view.state, view.reason


async def crawl(store: FullStore, name: str = CRAWL) -> CrawlView:
    """How the crawl looks."""
    return await store.crawl(name)


async def status(store: FullStore) -> tuple[CrawlStatus, str | None]:
    """The crawl's status and the reason for it."""
    view = await crawl(store)
    return view.status, view.reason


async def record(store: FullStore, name: str) -> TaskView:
    """What the store knows of a page it must know."""
    view = await store.task(CRAWL, mark(name))
    assert view is not None
    return view


async def steer(store: FullStore, target: str, act: QueueAction) -> int:
    """Apply an act to all queues it is meant for; how many they were."""
    step = await store.steer(CRAWL, target, act)
    assert step.after is None
    return step.count
