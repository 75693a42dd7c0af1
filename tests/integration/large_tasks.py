"""A process that takes tasks of a megabyte through a crawl, and prints how much memory it took.

Arguments: the store, and how many tasks. Printed: tasks added, claimed, listed and copied, and by
how many bytes the most memory it had exceeds what it had before.
"""

import asyncio
import resource
import sys

from outrider import Done, Frontier, Link
from outrider.core.link_validation import MAX_META
from outrider.frontier.copy_crawl import copy_crawl

SETTINGS = {"queue": {"max_meta": MAX_META}, "politeness": {"delay": 0.0, "max_in_flight": 1000}}


def links(count, host="a.example"):
    """Yield links with as much meta as there may be."""
    for number in range(count):
        text = str(number).rjust(8)
        yield Link(f"https://{host}/{number}", meta={"x": text + "y" * (MAX_META - 16)})


def most_memory():
    """Return the most memory this process had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def visit_all(frontier):
    """Visit everything, a claim at a time; return how many visits and claims that took."""
    visits = claims = 0
    while leases := await frontier.claim(100):
        await frontier.finish_many([(lease, Done(200)) for lease in leases])
        visits, claims = visits + len(leases), claims + 1
    return visits, claims


async def main(store, count):
    """Add, claim, finish, list, export and copy."""
    async with Frontier.open(store, settings=SETTINGS) as frontier:
        await frontier.add(links(3, "b.example"))
        await visit_all(frontier)
        before = most_memory()
        added = (await frontier.add(links(count), answers=False)).added
        visits, claims = await visit_all(frontier)
        listed = sum([1 async for _ in frontier.tasks()])
        exported = sum([len(lines) async for lines in frontier.export()])
        report = await copy_crawl(frontier.store, frontier.store, frontier.crawl, into="copy")
        assert report.fault is None, report.fault
        assert claims > visits / 8
        assert exported > count * MAX_META
        counts = (added, visits, listed - 3, report.tasks - 3, most_memory() - before)
        sys.stdout.write(" ".join(map(str, counts)))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
