"""The politeness check: finds violations in the server's record of hits alone.

All hits of a host count, robots.txt included, from any client, also across restarts of a crawler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from outrider.testing.web.graph import ROBOTS
from outrider.testing.web.hits import Hit
from outrider.testing.web.site import Site, Web

NOTICE: Final = 0.05  # seconds


class Kind(StrEnum):
    """The kind of a violation."""

    SPACING = "spacing"  # too soon after the end of the last answer
    CRAWL_DELAY = "crawl-delay"  # sooner than robots.txt asks
    RETRY_AFTER = "retry-after"  # before the instant Retry-After named
    IN_FLIGHT = "in-flight"  # too many requests at one time
    DISALLOWED = "disallowed"  # a page that robots.txt forbids
    ROBOTS_UNREAD = "robots-unread"  # a page before robots.txt


class Violation(msgspec.Struct, frozen=True):
    """One violation: the hit, the earlier hit it came too close to, and the measured values."""

    kind: Kind
    hit: Hit
    before: Hit | None = None
    wanted: float = 0.0  # seconds, or the limit of requests in flight
    got: float = 0.0

    def __str__(self) -> str:
        line = f"{self.kind}: {self.hit.host}{self.hit.target} at {self.hit.started_at:.6f}"
        if self.before is None:
            return line
        return f"{line}, after {self.before.target}: {self.got:.6f}, wanted {self.wanted:.6f}"


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """The politeness that is required of clients."""

    delay: float | Callable[[Hit], float] = 0.0  # seconds after a hit; a function of that hit
    max_in_flight: int = 1
    tolerance: float = 0.0  # seconds
    notice: float = NOTICE  # seconds until a server notices a disconnect

    def after(self, hit: Hit) -> float:
        """Return the required delay after a hit."""
        return self.delay(hit) if callable(self.delay) else self.delay

    def end_of(self, hit: Hit) -> float:
        """Return the earliest instant at which a hit was over for the client."""
        return max(hit.started_at, hit.ended_at - self.notice) if hit.is_cut else hit.ended_at


def violations(
    hits: Iterable[Hit],
    *,
    delay: float | Callable[[Hit], float] = 0.0,
    max_in_flight: int = 1,
    web: Web | None = None,
    tolerance: float = 0.0,
    notice: float = NOTICE,
) -> list[Violation]:
    """Return all violations, by host and time. With a `web`, its robots.txt are checked too.

    Requests that overlap are checked against `max_in_flight`, all others against `delay`. `notice`
    is allowed after hits that the client cut off, since only the client knows when it disconnected.
    """
    required = Requirements(
        delay=delay, max_in_flight=max_in_flight, tolerance=tolerance, notice=notice
    )
    hosts: defaultdict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        hosts[hit.host].append(hit)
    sites = {} if web is None else web.sites
    return [
        wrong
        for host, visited in sorted(hosts.items())
        for wrong in _HostCheck(required, sites.get(host)).check(visited)
    ]


class _HostCheck:
    """Checks the hits of one host in order of time."""

    def __init__(self, required: Requirements, site: Site | None) -> None:
        self._required = required
        self._site = site
        self._open: list[Hit] = []
        self._ready: dict[Kind, tuple[float, Hit]] = {}  # the instant, and because of which hit
        self._asked_for_robots = False
        self._crawl_delay = 0.0

    def check(self, hits: Iterable[Hit]) -> Iterator[Violation]:
        for starts, hit in _moments(hits, self._required):
            if starts:
                yield from self._start(hit)
            else:
                self._end(hit)

    def _start(self, hit: Hit) -> Iterator[Violation]:
        yield from self._too_many(hit)
        yield from self._too_soon(hit)
        if self._site is not None:
            yield from self._check_robots(hit, self._site)
        self._open.append(hit)

    def _end(self, hit: Hit) -> None:
        required = self._required
        self._open.remove(hit)
        end, delay = required.end_of(hit), required.after(hit)
        if self._site is not None and hit.path == ROBOTS and hit.status == 200 and not hit.is_cut:
            self._crawl_delay = self._site.crawl_delay or 0.0
        self._wait(Kind.SPACING, end + delay, hit)
        if self._crawl_delay > delay:
            self._wait(Kind.CRAWL_DELAY, end + self._crawl_delay, hit)
        if hit.wait_until:
            self._wait(Kind.RETRY_AFTER, hit.wait_until, hit)

    def _wait(self, kind: Kind, ready_at: float, hit: Hit) -> None:
        known = self._ready.get(kind)
        if known is None or ready_at > known[0]:
            self._ready[kind] = (ready_at, hit)

    def _too_many(self, hit: Hit) -> Iterator[Violation]:
        limit = self._required.max_in_flight
        if len(self._open) >= limit:
            yield Violation(Kind.IN_FLIGHT, hit, self._open[-1], limit, len(self._open) + 1)

    def _too_soon(self, hit: Hit) -> Iterator[Violation]:
        for kind, (ready_at, before) in self._ready.items():
            if ready_at - hit.started_at > self._required.tolerance:
                end = self._required.end_of(before)
                yield Violation(kind, hit, before, ready_at - end, hit.started_at - end)

    def _check_robots(self, hit: Hit, site: Site) -> Iterator[Violation]:
        if hit.path == ROBOTS:
            self._asked_for_robots = True
        elif not self._asked_for_robots:
            yield Violation(Kind.ROBOTS_UNREAD, hit)
        if hit.path != ROBOTS and site.forbids(hit.target):
            yield Violation(Kind.DISALLOWED, hit)


def _moments(hits: Iterable[Hit], required: Requirements) -> Iterator[tuple[bool, Hit]]:
    """Return starts and ends in order of time. At one instant, hits end first, then hits without
    duration start and end, then others start: a hit that ends as another starts is not in flight.
    """
    moments: list[tuple[float, int, int, bool, Hit]] = []
    for number, hit in enumerate(hits):
        end = required.end_of(hit)
        leaves, comes = (0, 2) if end > hit.started_at else (1, 1)
        moments.append((hit.started_at, comes, number, True, hit))
        moments.append((end, leaves, number, False, hit))
    moments.sort(key=lambda moment: moment[:3])  # stable: a hit starts before it ends
    return ((starts, hit) for *_, starts, hit in moments)
