"""Stages around every visit: python examples/custom_stage.py https://example.org/ [SETTINGS].

One skips what was printed for other readers, one measures; each may change what comes of a visit.
"""

import asyncio
import sys
import tomllib
from pathlib import Path

from outrider import Done, Dropped, Outcome, crawl
from outrider.executor.visit import Next, Visit

slowest: dict[str, float] = {}


async def measured(visit: Visit, go_on: Next) -> Outcome:
    """The outermost: sees how everything inside went."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    outcome = await go_on(visit)
    slowest[visit.url] = loop.time() - before
    return outcome


async def not_for_us(visit: Visit, go_on: Next) -> Outcome:
    """Ends a visit before it begins, so that no request is made; and changes what was found."""
    if "/road/" in visit.url:
        return Dropped("road", visited=False)
    outcome = await go_on(visit)
    if isinstance(outcome, Done):
        visit.links[:] = [link for link in visit.links if "/winter/" not in str(link.url)]
    return outcome


def main(url: str, *files: str) -> None:
    """Settings name the stages, the outermost first; `__main__` is this file."""
    settings = tomllib.loads(Path(files[0]).read_text("utf-8")) if files else {}
    settings["executor"] = {"pipeline": ["__main__:measured", "__main__:not_for_us"]}
    report = asyncio.run(crawl(url, settings=settings))
    print(report.ending.how, report.stats.done, "done,", report.stats.dropped, "dropped")
    print("slowest:", max(slowest, key=slowest.__getitem__))


if __name__ == "__main__":
    main(*sys.argv[1:])
