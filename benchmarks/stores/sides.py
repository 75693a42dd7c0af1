"""Benchmarks for both servers: Outrider and the raw engine, alternating batch by batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

import ours
from calls import Calls

from outrider.bench import workload
from outrider.core.task import Task
from outrider.frontier import Frontier

HOSTS = 2_000


class Raw(Protocol):
    """The engine without us."""

    def add(self, tasks: Sequence[Task]) -> int:
        """How many were new."""
        ...

    def claim(self, limit: int) -> Sequence[Any]:
        """At most one a host."""
        ...

    def finish(self, names: Sequence[Any]) -> None:
        """They are done."""
        ...


class Sides:
    """The calls of both."""

    def __init__(self) -> None:
        self.raw_adds, self.adds = Calls(), Calls()
        self.raw_claims, self.claims = Calls(), Calls()
        self.raw_finishes, self.finishes = Calls(), Calls()

    async def add(self, raw: Raw, frontier: Frontier, pages: list[str]) -> None:
        """60 % of the stream are known; both must find the same ones new."""
        texts = list(workload.stream(pages))
        async for batch in ours.batches(frontier, texts):
            with self.raw_adds.timed(len(batch)):
                new = raw.add(batch)
            with self.adds.timed(len(batch)):
                answers = await frontier.store.add(batch)
            if sum(answer.added for answer in answers) != new:
                raise RuntimeError("both sides must find the same tasks new")

    async def visit(self, raw: Raw, frontier: Frontier, rounds: int) -> None:
        """Claims of 100, one a host, and their finishes; a poll may see fewer hosts than that."""
        for _ in range(rounds):
            with self.raw_claims.timed(0):
                names = raw.claim(ours.CLAIM)
            self.raw_claims.items += len(names)
            with self.raw_finishes.timed(len(names)):
                raw.finish(names)
            count, _ = await ours.visit(frontier, self.claims, self.finishes)
            if count < ours.CLAIM or not names:
                raise RuntimeError(f"too little work: {len(names)} and {count} of {ours.CLAIM}")

    @property
    def visits(self) -> tuple[float, float]:
        """Measure claim + finish in tasks per second, of the raw engine and of Outrider."""
        return (
            1 / (1 / self.raw_claims.rate + 1 / self.raw_finishes.rate),
            1 / (1 / self.claims.rate + 1 / self.finishes.rate),
        )

    def told(self) -> dict[str, Any]:
        """For the report."""
        return {name: calls.told() for name, calls in vars(self).items() if calls.seconds}


async def empty_claims(frontier: Frontier, count: int = 200) -> Calls:
    """With every queue asleep."""
    await frontier.queue(".example").snooze(36_000)
    calls = Calls()
    await frontier.claim(ours.CLAIM)  # the first may find what is to be judged
    for _ in range(count):
        with calls.timed():
            claim = await frontier.claim(ours.CLAIM)
        if claim:
            raise RuntimeError("a sleeping queue was served")
    return calls


def uneven_pages(count: int) -> list[str]:
    """Workload W, over hosts enough for claims of a hundred."""
    return workload.pages(count, hosts=max(HOSTS, count // workload.TASKS_PER_HOST))


def even_pages(count: int, hosts: int) -> list[str]:
    """Distinct URLs, as many on each host, in no order."""
    dice = random.Random(4)
    numbers = list(range(count))
    dice.shuffle(numbers)
    return [
        f"https://www.host-{number % hosts}.example/section/{number % 97}/article-{number:08d}.html"
        for number in numbers
    ]
