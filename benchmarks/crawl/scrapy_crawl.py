"""Scrapy from a seed to the end: every link followed, one JSON line a page.

    python scrapy_crawl.py SEED OUT.jsonl CONCURRENCY [--lean] [--jobdir FOLDER]

Without --lean it is Scrapy's own way of following a whole site: a CrawlSpider whose rule has a
LinkExtractor. With it, the leanest spider we know how to write: one selector, one join a link.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Once(Spider):
    """Asks for its seed once; Scrapy's own start would ask again when a page links to it.

    With JOBDIR it begins as Scrapy does, or a second run would have nothing to begin with.
    """

    async def start(self) -> AsyncIterator[Request]:
        """The seeds."""
        for url in self.start_urls:
            yield Request(url, dont_filter=bool(self.settings["JOBDIR"]))


class Pages(Once, CrawlSpider):
    """Every page, as Scrapy's documentation has it."""

    name = "pages"
    rules = (Rule(LinkExtractor(), callback="page", follow=True),)

    def parse_start_url(self, response: Response, **_: Any) -> Iterator[dict[str, Any]]:
        """The seed is a page too."""
        return self.page(response)

    def page(self, response: Response) -> Iterator[dict[str, Any]]:
        """One record. The rule keeps the links it found to itself, so none are in it."""
        yield record(response)


class LeanPages(Once):
    """Every page, with its links, at the least cost."""

    name = "pages"

    def parse(self, response: Response, **_: Any) -> Iterator[dict[str, Any] | Request]:
        """One record, and what it leads to."""
        links = [response.urljoin(link) for link in response.css("a::attr(href)").getall()]
        yield {**record(response), "links": links}
        yield from (Request(link, self.parse) for link in dict.fromkeys(links))


def record(response: Response) -> dict[str, Any]:
    """What is written of a page."""
    return {
        "url": response.url,
        "status": response.status,
        "title": response.css("title::text").get(),
        "bytes": len(response.body),
    }


def main() -> None:
    """Crawl from the seed."""
    asked = _asked()
    settings: dict[str, Any] = {
        "CONCURRENT_REQUESTS": asked.concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": asked.concurrency,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": True,
        "FEEDS": {asked.out: {"format": "jsonlines"}},
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
    }
    if asked.jobdir:
        settings["JOBDIR"] = asked.jobdir
    process = CrawlerProcess(settings)
    process.crawl(LeanPages if asked.lean else Pages, start_urls=[asked.seed])
    process.start()


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Crawl with Scrapy.")
    parser.add_argument("seed")
    parser.add_argument("out")
    parser.add_argument("concurrency", type=int)
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--jobdir")
    return parser.parse_args()


if __name__ == "__main__":
    main()
