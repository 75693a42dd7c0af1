"""Whether visitors were polite, by the server's record alone: what they claim is not asked.

All hits of a host count alike, robots.txt included, whoever made them and however often the
visitor was restarted in between.
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
    """What a visitor did wrong."""

    SPACING = "spacing"  # too soon after the end of the last answer
    CRAWL_DELAY = "crawl-delay"  # sooner than robots.txt asks
    RETRY_AFTER = "retry-after"  # before the instant Retry-After named
    IN_FLIGHT = "in-flight"  # too many requests at one time
    DISALLOWED = "disallowed"  # a page that robots.txt forbids
    ROBOTS_UNREAD = "robots-unread"  # a page before robots.txt


class Violation(msgspec.Struct, frozen=True):
    """One wrong: the hit, the earlier one it came too close to, and by what measure."""

    kind: Kind
    hit: Hit
    before: Hit | None = None
    wanted: float = 0.0  # seconds, or requests in flight at most
    got: float = 0.0

    def __str__(self) -> str:
        line = f"{self.kind}: {self.hit.host}{self.hit.target} at {self.hit.started_at:.6f}"
        if self.before is None:
            return line
        return f"{line}, after {self.before.target}: {self.got:.6f}, wanted {self.wanted:.6f}"


class Manners(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of visitors."""

    delay: float | Callable[[Hit], float] = 0.0  # seconds after a hit; a function of that hit
    max_in_flight: int = 1
    tolerance: float = 0.0  # seconds
    notice: float = NOTICE  # seconds until a server notices that a visitor hung up

    def after(self, hit: Hit) -> float:
        """The delay after a hit."""
        return self.delay(hit) if callable(self.delay) else self.delay

    def end_of(self, hit: Hit) -> float:
        """When a hit was over for the visitor, at the earliest."""
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
    """All wrongs, in order of hosts and time. With a `web`, its robots.txt are judged too.

    Requests that overlap are judged by `max_in_flight`, all others by `delay`. `notice` is granted
    after hits that the visitor cut short, since only the visitor knows when it hung up.
    """
    manners = Manners(delay=delay, max_in_flight=max_in_flight, tolerance=tolerance, notice=notice)
    hosts: defaultdict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        hosts[hit.host].append(hit)
    sites = {} if web is None else web.sites
    return [
        wrong
        for host, visited in sorted(hosts.items())
        for wrong in _Umpire(manners, sites.get(host)).judge(visited)
    ]


class _Umpire:
    """Follows one host through time."""

    def __init__(self, manners: Manners, site: Site | None) -> None:
        self._manners = manners
        self._site = site
        self._open: list[Hit] = []
        self._ready: dict[Kind, tuple[float, Hit]] = {}  # the instant, and because of which hit
        self._asked_for_robots = False
        self._crawl_delay = 0.0

    def judge(self, hits: Iterable[Hit]) -> Iterator[Violation]:
        for starts, hit in _moments(hits, self._manners):
            if starts:
                yield from self._start(hit)
            else:
                self._end(hit)

    def _start(self, hit: Hit) -> Iterator[Violation]:
        yield from self._crowded(hit)
        yield from self._early(hit)
        if self._site is not None:
            yield from self._unread(hit, self._site)
        self._open.append(hit)

    def _end(self, hit: Hit) -> None:
        manners = self._manners
        self._open.remove(hit)
        end, delay = manners.end_of(hit), manners.after(hit)
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

    def _crowded(self, hit: Hit) -> Iterator[Violation]:
        most = self._manners.max_in_flight
        if len(self._open) >= most:
            yield Violation(Kind.IN_FLIGHT, hit, self._open[-1], most, len(self._open) + 1)

    def _early(self, hit: Hit) -> Iterator[Violation]:
        for kind, (ready_at, before) in self._ready.items():
            if ready_at - hit.started_at > self._manners.tolerance:
                end = self._manners.end_of(before)
                yield Violation(kind, hit, before, ready_at - end, hit.started_at - end)

    def _unread(self, hit: Hit, site: Site) -> Iterator[Violation]:
        if hit.path == ROBOTS:
            self._asked_for_robots = True
        elif not self._asked_for_robots:
            yield Violation(Kind.ROBOTS_UNREAD, hit)
        if hit.path != ROBOTS and site.forbids(hit.target):
            yield Violation(Kind.DISALLOWED, hit)


def _moments(hits: Iterable[Hit], manners: Manners) -> Iterator[tuple[bool, Hit]]:
    """Starts and ends in order of time. At one instant hits end, then others take no time at all,
    then others start: nobody is in flight with one who leaves as he comes.
    """
    moments: list[tuple[float, int, int, bool, Hit]] = []
    for number, hit in enumerate(hits):
        end = manners.end_of(hit)
        leaves, comes = (0, 2) if end > hit.started_at else (1, 1)
        moments.append((hit.started_at, comes, number, True, hit))
        moments.append((end, leaves, number, False, hit))
    moments.sort(key=lambda moment: moment[:3])  # stable: a hit starts before it ends
    return ((starts, hit) for *_, starts, hit in moments)
