"""The order in which links would be visited: claims of a store in memory, on a virtual clock.

The claims are the real ones, so lanes, budgets, sessions, delays and the order among queues are
those of a crawl. Unlike in a crawl, one worker makes all visits, each takes no time and finds no
links, and nothing fails.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from outrider.core.outcome import Done
from outrider.core.states import CrawlStatus, QueueState
from outrider.core.task import LANES, Added, Task
from outrider.frontier import Frontier
from outrider.frontier.reports import Scored
from outrider.settings import Settings
from outrider.testing.clock import FakeClock

CHUNK: Final = 1000  # tasks added at a time
_CRAWL: Final = "default"
_SEED: Final = 0  # of ties and drawn delays: one of the possible orders, and always the same


class Place(msgspec.Struct, frozen=True):
    """When a link would be visited, or why it would not."""

    place: int | None  # from 1
    after: float | None  # seconds since the crawl began, if visits took no time
    reason: str | None = None


async def visit_order(scored: Sequence[Scored], settings: Settings) -> list[Place]:
    """Return the place of each link that was scored and not refused, in the order given."""
    clock, dice = FakeClock(), random.Random(_SEED)
    async with Frontier.open(
        "memory://",
        settings=_without_repetition(settings),
        crawl=_CRAWL,
        clock=clock,
        dice=dice.random,
    ) as frontier:
        is_shuffled = settings.queue.tie == "shuffle"
        answers = await _add(frontier, [_task(one, dice, is_shuffled) for one in scored])
        visits = await _visit_all(frontier, clock)
        crawl = await frontier.store.crawl(_CRAWL)
        paused = f"crawl paused: {crawl.reason}" if crawl.status is CrawlStatus.PAUSED else ""
        return [
            (visits.get(one.fingerprint or b"") if answer.added else None)
            or Place(None, None, answer.reason or await _why_not(frontier, one.key or "", paused))
            for one, answer in zip(scored, answers, strict=True)
        ]


def _without_repetition(settings: Settings) -> Settings:
    """Change what would visit pages again and again, or write a file."""
    return replace(
        settings,
        revisit=replace(settings.revisit, policy="none"),
        events=replace(settings.events, jsonl=""),
    )


def _task(one: Scored, dice: random.Random, is_shuffled: bool) -> Task:
    """Make the task that was scored; whatever a claim does not read is left out."""
    return Task(
        _CRAWL,
        one.fingerprint or b"",
        one.url,
        one.key or "",
        one.type or "",
        LANES.index(one.lane or LANES[0]),
        one.depth or 0,
        one.precedence or 0,
        one.priority or 0.0,
        one.cost or 0,
        one.delay or 0.0,
        roll=dice.getrandbits(48) if is_shuffled else 0,
        breakdown=one.breakdown,
    )


async def _add(frontier: Frontier, tasks: Sequence[Task]) -> list[Added]:
    answers: list[Added] = []
    for start in range(0, len(tasks), CHUNK):
        answers += await frontier.store.add(tasks[start : start + CHUNK])
    return answers


async def _visit_all(frontier: Frontier, clock: FakeClock) -> dict[bytes, Place]:
    """Visit until nothing is left that time alone brings; return the places by fingerprint."""
    start, places = clock.now(), dict[bytes, Place]()
    while True:
        claimed = await frontier.claim(1)
        for lease in claimed:
            places[lease.fingerprint] = Place(len(places) + 1, round(clock.now() - start, 3))
            await frontier.finish(lease, Done(200))
        if not claimed and (claimed.wake_in is None or claimed.status is not CrawlStatus.RUNNING):
            return places
        clock.advance(0.0 if claimed else claimed.wake_in or 0.0)


async def _why_not(frontier: Frontier, key: str, paused: str) -> str:
    """Return why a task that was added was not visited."""
    queue = await frontier.store.queue(_CRAWL, key)
    if queue.state is QueueState.RETIRED:
        return f"queue retired: {queue.reason}"
    return paused or f"queue {queue.state}"
