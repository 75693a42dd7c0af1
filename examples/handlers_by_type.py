"""Handlers by type of task: python examples/handlers_by_type.py https://example.org/ [SETTINGS].

Pages are fetched as usual. Of every page in a section called market a second task is made, of a
type of its own, which asks no host: here a dictionary, at your place a database or a service.
"""

import asyncio
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from outrider import Done, Dropped, Link, Outcome
from outrider.executor.visit import Visit
from outrider.fetch.page import Page
from outrider.settings import Settings, merged, settings_of
from outrider.wiring import opened

PRICES = {"1": 3.5, "9": 4.2}
DEFAULTS = {"scope": {"mode": "domain"}, "queue": {"max_depth": 100}}


def page(page: Page) -> Iterator[Link]:
    """For tasks of type page, after they were fetched: asks for more where it is worth it."""
    if "/market/" in page.url:
        number = page.url.rpartition("/")[2]
        yield Link(
            page.url,
            type="price",
            identity=f"price {page.url}",  # the URL is known already; this is another task
            key="prices",  # a queue of its own: the host is not asked, so it need not wait
            depth=page.depth,
            meta={"number": number},
        )


async def price(visit: Visit) -> Outcome:
    """For tasks of type price, in place of fetching."""
    found = PRICES.get(visit.lease.meta["number"])
    if found is None:
        return Dropped("no price", visited=False)
    visit.items.append({"url": visit.url, "price": found})
    return Done(200)


def settings_from(*files: str) -> Settings:
    """Everything is in our hands, so the scope is ours to set as well."""
    given = tomllib.loads(Path(files[0]).read_text("utf-8")) if files else {}
    return merged(settings_of(DEFAULTS), {**given, "output": {"path": "prices"}})


async def main(url: str, settings: Settings) -> None:
    """Add, run, look."""
    async with opened(settings=settings, handler=page, handlers={"price": price}) as crawling:
        await crawling.frontier.add(url)
        ending = await crawling.run()
        types = (await crawling.frontier.stats()).types
        print(ending.how, types["price"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], settings_from(*sys.argv[2:])))
