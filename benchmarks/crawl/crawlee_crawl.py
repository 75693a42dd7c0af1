"""Crawlee from a seed to the end: its HTTP crawler with parsel, one JSON line a page.

    python crawlee_crawl.py SEED OUT.jsonl CONCURRENCY

Its queue is kept in memory, which is its fastest; its default would be a folder of files.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

from crawlee import ConcurrencySettings
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient


def crawler(concurrency: int) -> ParselCrawler:
    """As its guide has it, at a fixed concurrency."""
    return ParselCrawler(
        configuration=Configuration(log_level="ERROR"),
        storage_client=MemoryStorageClient(),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=concurrency,
            desired_concurrency=concurrency,
            max_concurrency=concurrency,
        ),
        respect_robots_txt_file=True,
        configure_logging=False,
    )


async def main() -> None:
    """Crawl from the seed, all hosts."""
    seed, out, concurrency = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    crawling = crawler(concurrency)
    with out.open("w", encoding="utf-8") as file:

        @crawling.router.default_handler
        async def page(context: ParselCrawlingContext) -> None:
            links = await context.extract_links(strategy="all")
            record = {
                "url": context.request.url,
                "status": context.http_response.status_code,
                "title": context.selector.css("title::text").get(),
                "links": [link.url for link in links],
            }
            file.write(json.dumps(record) + "\n")
            await context.add_requests(links)

        await crawling.run([seed])


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
