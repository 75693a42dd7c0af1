"""Scrapy's own scheduler, driven as its engine drives it, without a network or a reactor.

Scheduler, queues, filter, statistics and downloader are Scrapy's; only the loop around is ours.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Any

import figures
from figures import Given, Run, none_lost
from scrapy import Request, Spider
from scrapy.core.downloader import Downloader
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from w3lib.url import canonicalize_url

ROUNDS = 3
CLAIMS = 4_000  # of the default queue, which scans every host for each
POOL = 100_000  # what waits while claims are measured, at most
NO_NETWORK = {"TWISTED_REACTOR_ENABLED": False, "DOWNLOAD_HANDLERS": {"http": None, "https": None}}
PLAIN = {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"}


class AsWritten:
    """A fingerprinter that trusts the text: no canonicaliser of w3lib's, no JSON, no SHA-1."""

    def fingerprint(self, request: Request) -> bytes:
        """As long as Scrapy's own, so that the filter holds as much."""
        return hashlib.blake2b(request.url.encode(), digest_size=20).digest()


class StillDownloader(Downloader):
    """Scrapy's downloader, but for the timer that needs a running reactor."""

    def _start_slot_gc(self) -> None:
        """Slots idle for a minute would go; no run is that long."""


class Engine:
    """As much of the engine as a scheduler sees: who is being downloaded, and from which slot."""

    def __init__(self, crawler: Crawler) -> None:
        self.downloader = StillDownloader(crawler)
        self._flying: deque[tuple[Any, Request]] = deque()

    def start(self, request: Request) -> None:
        """What Downloader.fetch and _enqueue_request note; the oldest makes room when all fly."""
        if self.downloader.needs_backout():
            slot, oldest = self._flying.popleft()
            slot.active.remove(oldest)
            self.downloader.active.remove(oldest)
        key, slot = self.downloader._get_slot(request)  # noqa: SLF001  the engine's own way in
        request.meta[Downloader.DOWNLOAD_SLOT] = key
        slot.active.add(request)
        self.downloader.active.add(request)
        self._flying.append((slot, request))


def opened(settings: dict[str, Any]) -> Scheduler:
    """A scheduler in memory, with every setting at its default but those given."""
    crawler = Crawler(Spider, {**NO_NETWORK, **settings})
    crawler._apply_settings()  # noqa: SLF001  what Crawler.crawl does before it starts
    crawler.spider = Spider.from_crawler(crawler, name="bench")
    crawler.engine = Engine(crawler)
    scheduler = Scheduler.from_crawler(crawler)
    scheduler.open(crawler.spider)
    return scheduler


def adds(given: Given, what: str, **settings: Any) -> dict[str, Any]:
    """Text to Request to queue, on the stream with its duplicates."""
    run = Run(window=5_000, batch=500)
    while not run.is_spent and run.count < ROUNDS * len(given.stream):
        _add_all(run, given.stream, opened(settings))
    return run.figure(what, durability="memory")


def _add_all(run: Run, stream: list[str], scheduler: Scheduler) -> None:
    accepted, before = 0, run.count
    for batch in run.batches(stream):
        for text in batch:
            accepted += scheduler.enqueue_request(Request(text))
    offered = len(set(stream[: run.count - before]))
    none_lost("URLs accepted", accepted, offered)
    none_lost("URLs in the queue", len(scheduler), offered)


def canonicaliser(given: Given) -> dict[str, Any]:
    """What w3lib's canonicaliser takes of it, alone."""
    run = Run(window=5_000, batch=500)
    for batch in run.batches(given.stream):
        for text in batch:
            canonicalize_url(text)
    return run.figure("w3lib.url.canonicalize_url alone, on the same text")


def filled(pool: list[str], **settings: Any) -> Scheduler:
    """A scheduler where the whole pool waits."""
    scheduler = opened(settings)
    for text in pool:
        scheduler.enqueue_request(Request(text))
    return scheduler


def claims_default(given: Given) -> dict[str, Any]:
    """The default queue asks the downloader how busy every host is, for each request it gives."""
    pool = given.pool[:POOL]
    scheduler = filled(pool)
    engine, queues = scheduler.crawler.engine, scheduler.mqs.pqueues
    run, claimed, hosts = Run(window=200, batch=50), [], len(queues)
    for batch in run.batches(range(min(CLAIMS, len(pool) // 2))):
        for _ in batch:
            request = scheduler.next_request()
            engine.start(request)
            claimed.append(request.url)
    _none_doubled(claimed, pool, len(scheduler))
    what = "next_request() of the default queue; requests enter and leave the downloader's slots"
    queue = type(scheduler.mqs).__name__
    return run.figure(what, queue=queue, durability="memory", hosts=hosts, hosts_left=len(queues))


def claims_plain(given: Given) -> dict[str, Any]:
    """Measure the plain queue, which has no hosts: only its own calls are timed."""
    pool = given.pool[:POOL]
    scheduler = filled(pool, **PLAIN)
    run, claimed = Run(window=5_000, batch=500), []
    for batch in run.batches(range(len(pool))):
        claimed += [scheduler.next_request().url for _ in batch]
    _none_doubled(claimed, pool, len(scheduler))
    what = "next_request() of the plain queue: no hosts, no politeness"
    return run.figure(what, queue=type(scheduler.mqs).__name__, durability="memory")


def _none_doubled(claimed: list[str], pool: list[str], left: int) -> None:
    none_lost("distinct URLs claimed", len(set(claimed)), len(claimed))
    none_lost("claimed URLs that were added", len(set(claimed) & set(pool)), len(claimed))
    none_lost("URLs left", left, len(pool) - len(claimed))


MEASURES = {
    "adds": lambda given: adds(
        given, "Request(text) + enqueue_request(), all defaults, w3lib's too"
    ),
    "adds_plain": lambda given: adds(given, "the same into the plain queue", **PLAIN),
    "adds_as_written": lambda given: adds(
        given,
        "defaults, but a fingerprint is blake2b of the text, not w3lib's canonical form",
        REQUEST_FINGERPRINTER_CLASS=AsWritten,
    ),
    "canonicaliser": canonicaliser,
    "claims_default": claims_default,
    "claims_plain": claims_plain,
}

if __name__ == "__main__":
    figures.main("scrapy", ("scrapy", "w3lib", "queuelib", "Twisted"), MEASURES)
