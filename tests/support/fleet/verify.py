"""The verification of a fleet: reads all logs and the store, and reports lost or doubled pages.

The calls of all workers are replayed into the invariant checker as well; a broken invariant raises.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

import call_log
from call_log import Answered, Asked, Failed, Replay
from fleet.fake_web import CRAWL, World
from fleet.worker_log import Added, FinishAnswered, Line, Unsure, Visited, read
from outrider.core.states import TaskState
from outrider.store.protocol import CrawlView, FullStore, TaskFilter, TaskView
from outrider.testing import audit
from outrider.testing.invariants import InvariantChecker

GRAIN: Final = 0.001  # seconds: stores count whole milliseconds


class Report(msgspec.Struct, frozen=True):
    """What the logs of a fleet show; the first three must be empty."""

    lost: Sequence[str]  # pages acknowledged or reachable that were never done
    doubled: Sequence[str]  # pages whose finish had more than one effect
    too_soon: Sequence[str]  # visits before the host's delay was over
    visits: int
    late: int  # visits whose lease was lost before they ended
    unsure: int  # calls that got no answer

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled or too soon."""
        return not (self.lost or self.doubled or self.too_soon)


def read_logs(folder: Path) -> list[Line]:
    """Return every line of every worker's log, in order of time."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in read(path)]
    return sorted(lines, key=lambda line: line.at)


def check_calls(folder: Path) -> None:
    """Replay the calls of all workers, in order of time, into an invariant checker."""
    logged = [
        (line.at, place, path.stem, line)
        for path in sorted(folder.glob("*.calls"))
        for place, line in enumerate(call_log.read(path))
    ]
    replay = Replay(InvariantChecker(), per_ms=1000, overlapping=True)
    for _, _, process, line in sorted(logged, key=lambda entry: entry[:2]):
        assert isinstance(line, Asked | Answered | Failed)
        replay.follow(line, process)


async def verify(store: FullStore, world: World, folder: Path) -> Report:
    """Verify a finished crawl: the views of the store, then the logs of all workers."""
    await audit.check(store, CRAWL)
    check_calls(folder)
    lines = read_logs(folder)
    tasks: list[TaskView] = await audit.everything(
        lambda after: store.tasks(CRAWL, TaskFilter(), after=after, limit=audit.PAGE)
    )
    visits = [line for line in lines if isinstance(line, Visited)]
    finishes = [line for line in lines if isinstance(line, FinishAnswered)]
    return Report(
        lost=[*_lost(world, tasks, lines)],
        doubled=[
            *_doubled(tasks, finishes),
            *_miscounted(await store.crawl(CRAWL), tasks, finishes),
        ],
        too_soon=[*_too_soon(visits, world.delay)],
        visits=len(visits),
        late=sum(not line.applied for line in finishes),
        unsure=sum(isinstance(line, Unsure) for line in lines),
    )


def _lost(world: World, tasks: Sequence[TaskView], lines: Sequence[Line]) -> Iterable[str]:
    """Yield reachable and acknowledged pages that are not done."""
    states = {task.url: task.state for task in tasks}
    wanted = set(world.urls())
    wanted.update(url for line in lines if isinstance(line, Added) for url in line.urls)
    for url in sorted(wanted):
        if states.get(url) is not TaskState.DONE:
            yield f"{url} is {states.get(url, 'not known')}"


def _doubled(tasks: Sequence[TaskView], finishes: Sequence[FinishAnswered]) -> Iterable[str]:
    """Yield pages that were finished as done by two leases, or are known twice."""
    ends = {(line.url, line.token) for line in finishes if line.applied and line.outcome == "Done"}
    for url, count in Counter(url for url, _ in ends).items():
        if count > 1:
            yield f"{url} was done {count} times"
    known = Counter(task.url for task in tasks)
    yield from (f"{url} is known {count} times" for url, count in known.items() if count > 1)


def _miscounted(
    view: CrawlView, tasks: Sequence[TaskView], finishes: Sequence[FinishAnswered]
) -> Iterable[str]:
    """Yield counts that differ: attempts and visits are as many as finishes and crashes."""
    applied = {(line.url, line.token) for line in finishes if line.applied}
    least = Counter(url for url, _ in applied)
    for task in tasks:
        if task.attempts - task.crashes < least[task.url]:
            yield f"{task.url}: {least[task.url]} finishes, {task.attempts} attempts in the store"
        if task.attempts - task.crashes > 1 + task.failures:
            yield f"{task.url} has {task.attempts} attempts, {task.crashes} crashes"
    attempts = sum(task.attempts for task in tasks)
    if view.visits != attempts:
        yield f"{view.visits} visits, and {attempts} attempts"


def _too_soon(visits: Sequence[Visited], delay: float) -> Iterable[str]:
    """Yield visits that began before the delay after the last one was over (D1, D2)."""
    hosts: dict[str, list[Visited]] = defaultdict(list)
    for visit in visits:
        hosts[visit.key].append(visit)
    for record in hosts.values():
        for before, after in pairwise(record):
            early = before.until + delay - after.at
            if early > GRAIN:
                yield f"{after.url} came {early * 1000:.0f} ms too soon after {before.url}"


def rate(lines: Sequence[Line], start: float, end: float) -> float:
    """Return the acknowledged finishes per second between two instants."""
    done = sum(
        isinstance(line, FinishAnswered) and line.applied and start <= line.at < end
        for line in lines
    )
    return done / (end - start) if end > start else 0.0


def recovered(lines: Sequence[Line], healed: float) -> float | None:
    """Return the seconds from an instant to the next applied finish; None if there is none."""
    later = (line.at for line in lines if isinstance(line, FinishAnswered) and line.applied)
    return next((at - healed for at in later if at >= healed), None)
