"""The public names as users write them. Never run: mypy must accept every line."""

from collections.abc import Callable, Sequence
from typing import assert_type

from outrider import (
    Blocked,
    Done,
    Dropped,
    Failed,
    Frontier,
    Link,
    Settings,
    Throttled,
    Unreachable,
    blocking,
)
from outrider.core.task import Lease
from outrider.frontier.reports import SuffixView
from outrider.store.protocol import QueueView, TaskView


async def visit_everything() -> None:
    """A crawl with plain text and links, and each outcome in turn."""
    async with Frontier.open("memory://", settings={"politeness": {"delay": 0.0}}) as frontier:
        report = await frontier.add(
            ["https://example.org/", Link(url="https://example.org/a", type="article", depth=1)]
        )
        assert_type(report.added, int)

        claimed = await frontier.claim(10, wait=1.0)
        leases: Sequence[Lease] = claimed
        for lease in leases:
            done = Done(status=200, seconds=0.3, bytes=5120)
            assert_type(await frontier.finish(lease, done, links=[Link(url="/b")]), bool)

        async for lease in frontier.leases(limit=64):
            async with lease:
                await frontier.finish(lease, Failed("timeout", seconds=1.0))


async def report_each_outcome(frontier: Frontier, lease: Lease) -> None:
    """Whatever happened on a visit is one of a closed set of values."""
    for outcome in (
        Done(status=304),
        Failed("reset", retry_in=5.0),
        Throttled(retry_after=30.0),
        Blocked("robots"),
        Unreachable("dns"),
        Dropped("off topic"),
    ):
        await frontier.finish(lease, outcome)


def without_a_loop(settings: Settings) -> None:
    """The blocking twin has the same names and needs no await."""
    with blocking.Frontier.open("memory://", settings=settings) as frontier:
        frontier.add(["https://example.org/"])
        for lease in frontier.claim(10):
            assert_type(frontier.finish(lease, Done(status=200)), bool)
        assert_type(frontier.drop(key="example.org", dry_run=True), int)
        assert_type(next(frontier.tasks(state="pending")), TaskView)
        assert_type(frontier.subscribe(print), Callable[[], None])
        assert_type(frontier.queue("example.org").pause(), QueueView | SuffixView)
