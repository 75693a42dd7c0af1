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
from typing import TextIO

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


async def crawl(seed: str, file: TextIO, concurrency: int) -> None:
    """From the seed, all hosts."""
    crawling = crawler(concurrency)

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


def main() -> None:
    """One crawl, one file."""
    logging.disable(logging.CRITICAL)
    seed, out, concurrency = sys.argv[1:]
    with Path(out).open("w", encoding="utf-8") as file:
        asyncio.run(crawl(seed, file, int(concurrency)))


if __name__ == "__main__":
    main()
