"""A fake web without sockets: links and outcome of a page follow from its URL and the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from outrider.core.outcome import Done, Failed, Outcome
from outrider.settings import Settings, settings_of

CRAWL: Final = "fleet"
_FLAKY: Final = 0.05  # share of pages that fail at their first visit


class World(msgspec.Struct, frozen=True):
    """Hosts with pages; every page can be reached from the first page of its host."""

    seed: int = 0
    hosts: int = 20
    pages: int = 100
    links: int = 6
    delay: float = 0.02  # seconds between two visits of a host
    duration: float = 0.004  # seconds a visit takes
    lease: float = 2.0

    def url(self, host: int, page: int) -> str:
        """Return the URL of a page."""
        return f"https://h{host}.fleet.test/{page}"

    def seeds(self) -> list[str]:
        """Return the first page of every host."""
        return [self.url(host, 0) for host in range(self.hosts)]

    def urls(self) -> Iterator[str]:
        """Yield every page."""
        return (self.url(host, page) for host in range(self.hosts) for page in range(self.pages))

    def links_of(self, url: str) -> list[str]:
        """Return the links of a page: the next of its host, and random others."""
        host, page = _host_and_page(url)
        dice = random.Random(f"{self.seed} {url}")
        found = [
            self.url(dice.randrange(self.hosts), dice.randrange(self.pages))
            for _ in range(self.links)
        ]
        return [self.url(host, page + 1), *found] if page + 1 < self.pages else found

    def outcome_of(self, url: str, failures: int) -> Outcome:
        """Return the outcome of a visit."""
        if not failures and random.Random(f"{self.seed} {url} flaky").random() < _FLAKY:
            return Failed("flaky", self.duration)
        return Done(200, self.duration, 1000)

    def settings(self) -> Settings:
        """Return the settings of every worker."""
        tree: dict[str, Any] = {
            "politeness": {"delay": self.delay},
            "queue": {"max_depth": 1_000_000},
            "retry": {"base": 0.05, "jitter": 0.0},
            "lease": {"seconds": self.lease, "max_crashes": 1000},
        }
        return settings_of(tree)


def _host_and_page(url: str) -> tuple[int, int]:
    host, page = url.removeprefix("https://h").split(".fleet.test/")
    return int(host), int(page)
