"""Benchmark of scrapy-redis: its scheduler, filter and priority queue, without a reactor.

Runs in an environment of its own: `python peer_scrapy_redis.py URL FILE`; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy_redis.scheduler import Scheduler

WINDOW = 500
SETTINGS = {
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "TWISTED_REACTOR_ENABLED": False,
    "DOWNLOAD_HANDLERS": {"http": None, "https": None},
}


def main() -> None:
    """Add all, then claim what was accepted."""
    url, file = sys.argv[1:]
    texts = Path(file).read_text().split()
    scheduler = opened(url)
    adds = timed(len(texts), lambda number: scheduler.enqueue_request(Request(texts[number])))
    waiting = len(scheduler)
    distinct = len(set(texts))
    claims = timed(waiting, lambda _: scheduler.next_request().url)
    lost = waiting != distinct or len(scheduler) != 0
    scheduler.flush()
    told = {"version": version("scrapy-redis"), "adds": adds, "claims": claims, "lost": lost}
    json.dump(told, sys.stdout)


def opened(url: str) -> Scheduler:
    """All defaults, but for the server."""
    crawler = Crawler(Spider, {**SETTINGS, "REDIS_URL": url})
    crawler._apply_settings()  # noqa: SLF001  what Crawler.crawl does before it starts
    crawler.spider = Spider.from_crawler(crawler, name="bench")
    scheduler = Scheduler.from_crawler(crawler)
    scheduler.open(crawler.spider)
    return scheduler


def timed(count: int, work: Any) -> float:
    """The median rate of windows, by the wall."""
    rates = []
    for start in range(0, count - WINDOW + 1, WINDOW):
        began = time.perf_counter()
        for number in range(start, start + WINDOW):
            work(number)
        rates.append(WINDOW / (time.perf_counter() - began))
    for number in range(count - count % WINDOW, count):
        work(number)
    return sorted(rates)[len(rates) // 2]


if __name__ == "__main__":
    main()
