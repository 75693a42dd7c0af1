# ruff: noqa: T201 - what it prints is what is compared
"""One script for every store: what it prints must not depend on the store it is given."""

import asyncio
import sys

from outrider import (
    Blocked,
    Done,
    Dropped,
    Failed,
    Frontier,
    Link,
    Throttled,
    Unreachable,
)
from outrider.testing import FakeClock

SETTINGS = {
    "politeness": {"delay": 2.0},
    "budget": {"balance": 5},
    "queue": {"breadth_discount": 0.5, "max_pending_per_queue": 30},
    "lanes": {"burst": 2},
    "retry": {"jitter": 0.0},
    "keys": {"b.test": {"max_in_flight": 2, "total_budget": 6}, ".org": {"delay": 7.0}},
}
OUTCOMES = [
    Done(200, 0.3, 1000),
    Failed("reset"),
    Done(200, 0.1, 500, revisit_in=40.0),
    Throttled(5.0),
    Blocked("challenge"),
    Unreachable("dns"),
    Dropped("robots"),
    Done(404, 0.2, 10),
]


def links():
    """Three hosts, two lanes, several priorities, some in the future, some known twice."""
    for number in range(60):
        host = ("a.test", "b.test", "c.org", "d.test")[number % 4]
        kind = ("page", "article", "nav")[number % 3]
        delay = 30.0 if number % 11 == 0 else 0.0
        yield Link(f"https://{host}/{number % 40}", type=kind, depth=number % 4, delay=delay)
    yield Link("https://a.test/forced", forced=True)
    yield "https://a.test:443/../x?utm_source=y"
    yield "ftp://a.test/"
    yield Link("https://c.org/named", priority="critical", tag="news", meta={"a": [1, 2.5, None]})


async def show(frontier):
    """All that can be seen."""
    print(await frontier.stats())
    print(await frontier.heatmap())
    async for queue in frontier.queues():
        print(queue)
    async for task in frontier.tasks():
        print(task)


async def visits(frontier, clock, rounds):
    """Claims of several shapes, ended in several ways."""
    for turn in range(rounds):
        claim = await frontier.claim(
            (1, 4, 9)[turn % 3], per_queue=(None, 1, 2)[turn % 3], lend=turn % 5 == 4
        )
        print(turn, claim.wake_in, claim.status)
        for place, lease in enumerate(claim):
            print(" ", lease.url, lease.attempt, lease.key, lease.type, lease.meta)
            found = [f"https://{lease.key}/{turn}-{place}", "https://e.test/"]
            if place % 6 == 5:
                print("  released", len(await frontier.release([lease])))
            elif place % 7 != 6:  # the others are left to expire
                outcome = OUTCOMES[(turn + place) % len(OUTCOMES)]
                print("  ", await frontier.finish(lease, outcome, links=found))
        clock.advance((0.5, 3.0, 20.0, 61.0)[turn % 4])


async def operators(frontier):
    """What people do to a crawl."""
    print(await frontier.queue("a.test").set(balance=3, delay=1.0))
    print(await frontier.queue(".org").pause())
    print(await frontier.queue("d.test").retire())
    print(await frontier.drop(pattern="/1.$", dry_run=True), await frontier.drop(type="nav"))
    print(await frontier.queue(".org").resume(), await frontier.queue("d.test").revive())
    print([(letter.url, letter.reason) async for letter in frontier.dead()])
    print(await frontier.replay(all=True))
    print(await frontier.explain("https://a.test/4"))


async def rescored(frontier):
    """What waits, when all of it was thought of again."""
    while (await frontier.rescoring()).state != "done":  # noqa: ASYNC110 - somebody else does the work
        await asyncio.sleep(0.01)
    print([(task.url, task.priority) async for task in frontier.tasks(state="pending")])


async def opinions(frontier):
    """What a crawl is told about itself, and what it thinks of it."""
    print(await frontier.predict("https://a.test/4", 0.9, 0.2))
    for _ in range(6):
        await frontier.report_problem("missing-hub", "a.test", "b.test")
        await frontier.report_problem("coverage-gap", "c.org", "/3")
    await frontier.configure({"scoring": {"weights": {"article": 3.0}, "proposals": True}})
    await rescored(frontier)
    print([one async for one in frontier.predictions()], await frontier.problems())
    await frontier.configure({"focus": {"on": True, "tokens": ["3", "17"], "other": "park"}})
    await rescored(frontier)
    print((await frontier.add(["https://a.test/17x", "https://a.test/3/17"])).answers)
    print((await frontier.explain("https://a.test/3/17")).terms)
    await frontier.unset("focus")
    await rescored(frontier)
    print(await frontier.rescore(), await frontier.rescore(key="a.test"))
    print([change.path for change in await frontier.config_history()])


async def main(store):
    """A whole life."""
    clock = FakeClock()
    dice = iter(range(10**9))
    async with Frontier.open(
        store, settings=SETTINGS, clock=clock, worker="me", dice=lambda: next(dice) % 10 / 10
    ) as frontier:
        report = await frontier.add(links())
        print(report.added, sorted(report.refused.items()), report.answers)
        await show(frontier)
        await visits(frontier, clock, 12)
        await operators(frontier)
        await opinions(frontier)
        await visits(frontier, clock, 12)
        await show(frontier)
        await frontier.pause()
        print((await frontier.claim(5)).status)
        await frontier.cancel()
        await show(frontier)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
