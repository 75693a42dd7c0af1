"""The judge: reads every ledger and the store, and counts what was lost, doubled, or too soon."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from fleet.fake_web import CRAWL, World
from fleet.worker_log import Added, Line, Told, Unsure, Visited, read
from outrider.core.states import TaskState
from outrider.store.protocol import CrawlView, FullStore, TaskFilter, TaskView
from outrider.testing import audit

GRAIN: Final = 0.001  # seconds: stores count whole milliseconds


class Judgement(msgspec.Struct, frozen=True):
    """What a fleet's record says; the first three are promised to be empty."""

    lost: Sequence[str]  # pages acknowledged or reachable that were never done
    doubled: Sequence[str]  # pages whose end had more than one effect
    too_soon: Sequence[str]  # visits a host had reason to complain of
    visits: int
    late: int  # visits whose lease was lost before they ended
    unsure: int  # calls that got no answer

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.doubled or self.too_soon)


def ledgers(folder: Path) -> list[Line]:
    """Every line of every worker, in order of time."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in read(path)]
    return sorted(lines, key=lambda line: line.at)


async def judge(store: FullStore, world: World, lines: Sequence[Line]) -> Judgement:
    """When the crawl is over: the store's own books, then each worker's."""
    await audit.check(store, CRAWL)
    tasks: list[TaskView] = await audit.everything(
        lambda after: store.tasks(CRAWL, TaskFilter(), after=after, limit=audit.PAGE)
    )
    visits = [line for line in lines if isinstance(line, Visited)]
    told = [line for line in lines if isinstance(line, Told)]
    return Judgement(
        lost=[*_lost(world, tasks, lines)],
        doubled=[*_doubled(tasks, told), *_miscounted(await store.crawl(CRAWL), tasks, told)],
        too_soon=[*_too_soon(visits, world.delay)],
        visits=len(visits),
        late=sum(not line.applied for line in told),
        unsure=sum(isinstance(line, Unsure) for line in lines),
    )


def _lost(world: World, tasks: Sequence[TaskView], lines: Sequence[Line]) -> Iterable[str]:
    """Every page that can be reached was to be done, and so was what a worker was told is known."""
    states = {task.url: task.state for task in tasks}
    wanted = set(world.urls())
    wanted.update(url for line in lines if isinstance(line, Added) for url in line.urls)
    for url in sorted(wanted):
        if states.get(url) is not TaskState.DONE:
            yield f"{url} is {states.get(url, 'not known')}"


def _doubled(tasks: Sequence[TaskView], told: Sequence[Told]) -> Iterable[str]:
    """A page was done once: two leases of it cannot both have ended it."""
    ends = {(line.url, line.token) for line in told if line.applied and line.outcome == "Done"}
    for url, count in Counter(url for url, _ in ends).items():
        if count > 1:
            yield f"{url} was done {count} times"
    known = Counter(task.url for task in tasks)
    yield from (f"{url} is known {count} times" for url, count in known.items() if count > 1)


def _miscounted(view: CrawlView, tasks: Sequence[TaskView], told: Sequence[Told]) -> Iterable[str]:
    """Attempts and visits are as many as ends and crashes; an end told twice counts once."""
    applied = {(line.url, line.token) for line in told if line.applied}
    least = Counter(url for url, _ in applied)
    for task in tasks:
        if task.attempts - task.crashes < least[task.url]:
            yield f"{task.url}: {least[task.url]} ends, of which the store knows {task.attempts}"
        if task.attempts - task.crashes > 1 + task.failures:
            yield f"{task.url} has {task.attempts} attempts, {task.crashes} crashes"
    attempts = sum(task.attempts for task in tasks)
    if view.visits != attempts:
        yield f"{view.visits} visits, and {attempts} attempts"


def _too_soon(visits: Sequence[Visited], delay: float) -> Iterable[str]:
    """D1, D2, by the hosts' record: one at a time, and a pause after each."""
    hosts: dict[str, list[Visited]] = defaultdict(list)
    for visit in visits:
        hosts[visit.key].append(visit)
    for record in hosts.values():
        for before, after in pairwise(record):
            early = before.until + delay - after.at
            if early > GRAIN:
                yield f"{after.url} came {early * 1000:.0f} ms too soon after {before.url}"


def rate(lines: Sequence[Line], start: float, end: float) -> float:
    """Pages done per second, as told, between two instants."""
    done = sum(isinstance(line, Told) and line.applied and start <= line.at < end for line in lines)
    return done / (end - start) if end > start else 0.0


def recovered(lines: Sequence[Line], healed: float) -> float | None:
    """Seconds from an instant to the next end of a visit that counted; None: there was none."""
    later = (line.at for line in lines if isinstance(line, Told) and line.applied)
    return next((at - healed for at in later if at >= healed), None)
