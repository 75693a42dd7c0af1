"""robots.txt before the page (K2): asked for once by whoever comes first, then remembered.

Asking is a request of its own: the host's delay comes before the next one.
"""

from __future__ import annotations

import asyncio
from typing import Final, assert_never

import msgspec

from outrider.core.outcome import (
    TOO_MANY_REQUESTS,
    Done,
    Dropped,
    Failed,
    Outcome,
    Throttled,
    Unreachable,
    outcome_of,
)
from outrider.core.task import Link
from outrider.core.url import Url, parse_url
from outrider.fetch.pacing import Pacing, Refusing, Visit
from outrider.fetch.reasons import Trouble
from outrider.fetch.redirects import target_of
from outrider.fetch.response import Response
from outrider.fetch.retry_after import retry_after_of
from outrider.fetch.robots import CLOSED_FOR, MOST_HOSTS, Rules, Shelf, robots_url, rules_of
from outrider.settings import Settings

ROBOTS: Final = "robots"  # the type of a task that reads a robots.txt for another host
HOPS: Final = 5  # of a redirected robots.txt, as RFC 9309 asks for


class Entry(msgspec.Struct, frozen=True):
    """The page may be visited; with what was learnt of the host on the way, if it was asked."""

    crawl_delay: float | None = None


class Entrance:
    """Says whether a page may be visited, asking the host first if nobody did."""

    def __init__(self, settings: Settings, pacing: Pacing, shelf: Shelf, refusal: Refusing) -> None:
        self._settings = settings.fetch
        self._url_rules = settings.url
        self._refusal = refusal
        self._pacing = pacing
        self._shelf = shelf
        self._asking: dict[str, asyncio.Lock] = {}
        self._told: set[str] = set()  # sites whose sitemaps a visit of this process brought home

    async def admit(self, visit: Visit) -> Entry | Outcome:
        """The way in, or how the visit ends."""
        if not self._settings.robots:
            return Entry()
        if visit.lease.type == ROBOTS:
            return await self._elsewhere(visit)
        site = robots_url(visit.lease.url)
        rules = self._shelf.get(site)
        if rules is None:
            return await self._ask(visit, site)
        return await self._enter(visit, rules)

    async def _ask(self, visit: Visit, site: str) -> Entry | Outcome:
        async with self._asking.setdefault(site, asyncio.Lock()):
            rules = self._shelf.get(site)
            if rules is not None:  # another visit of the queue asked meanwhile
                return await self._enter(visit, rules)
            try:
                answer = await self._robots(visit, site)
            finally:
                self._asking.pop(site, None)
        return answer if not isinstance(answer, tuple) else await self._enter(visit, *answer)

    async def _enter(
        self, visit: Visit, rules: Rules, asked: Response | None = None
    ) -> Entry | Outcome:
        """What another visit was told may be news: that one may have been killed, or lost."""
        if asked is not None:
            self._told.discard(robots_url(visit.lease.url))  # it may name others by now
        self._add_sitemaps(visit, rules)
        crawl_delay = rules.crawl_delay or 0.0
        forbidden = _forbidden(rules, visit, asked.seconds if asked else None)
        if asked is None and crawl_delay <= visit.lease.manners.crawl_delay:
            return forbidden or Entry()
        if forbidden is not None:
            return msgspec.structs.replace(forbidden, crawl_delay=crawl_delay)
        await self._pacing.pause(visit, asked, crawl_delay)
        return Entry(crawl_delay)

    def told(self, visit: Visit) -> None:
        """The visit is over, and was not lost: its links are added with its outcome."""
        if len(self._told) >= MOST_HOSTS:
            self._told.clear()
        self._told.add(robots_url(visit.lease.url))

    async def _robots(self, visit: Visit, site: str) -> tuple[Rules, Response] | Outcome:
        url, hops = site, 0
        while True:
            answer = await self._pacing.get(visit, url)
            if not isinstance(answer, Response):
                return self._unread(visit, site, answer)
            target = target_of(answer, self._url_rules) if hops < HOPS else None
            if not isinstance(target, Url):
                break
            if not self._is_here(visit, target):
                return await self._sent_elsewhere(visit, site, answer, target)
            await self._pacing.pause(visit, answer, None)
            url, hops = target.text, hops + 1
        if answer.status == TOO_MANY_REQUESTS:
            return Throttled(retry_after_of(answer, self._pacing.now()), answer.seconds)
        rules = rules_of(answer, self._settings)
        self._shelf.put(site, rules)
        return rules, answer

    def _unread(self, visit: Visit, site: str, trouble: Trouble) -> Outcome:
        """A file that cannot be read closes its host for a while; one that was cut does not."""
        match trouble:
            case Unreachable() | Dropped(visited=False):  # the page would fare no better
                return trouble
            case Failed():
                return Failed(f"robots.txt: {trouble.reason}", trouble.seconds)
            case Dropped():
                rules = rules_of(trouble, self._settings, self._pacing.now())
                self._shelf.put(site, rules)
                return _come_back(rules, visit, trouble.seconds)
            case _:
                assert_never(trouble)

    def _is_here(self, visit: Visit, target: Url) -> bool:
        here = parse_url(visit.lease.url, self._url_rules)
        return isinstance(here, Url) and target.host == here.host

    async def _sent_elsewhere(
        self, visit: Visit, site: str, answer: Response, target: Url
    ) -> tuple[Rules, Response] | Outcome:
        """Another host has a queue of its own: it is asked there, and this page comes back."""
        link = Link(
            target,
            type=ROBOTS,
            depth=visit.lease.depth,
            forced=True,
            known="revisit",
            identity=f"{ROBOTS} {site}",
            meta={"of": site},
        )
        if await self._refusal(link, visit.lease) is not None:  # not ours to visit: as if missing
            rules = rules_of(answer, self._settings)
            self._shelf.put(site, rules)
            return rules, answer
        visit.links.append(link)
        closed = Rules(closed="on another host", fetched_at=answer.at, max_age=CLOSED_FOR)
        self._shelf.put(site, closed)
        return _come_back(closed, visit, answer.seconds)

    async def _elsewhere(self, visit: Visit) -> Outcome:
        """A robots.txt that another host sent us for; no robots.txt forbids itself."""
        answer = await self._pacing.get(visit, visit.lease.url)
        if not isinstance(answer, Response):
            return answer
        judged = outcome_of(
            answer.status,
            seconds=answer.seconds,
            bytes=len(answer.body),
            retry_after=retry_after_of(answer, self._pacing.now()),
        )
        if isinstance(judged, Done):
            self._shelf.put(str(visit.lease.meta.get("of")), rules_of(answer, self._settings))
        return judged

    def _add_sitemaps(self, visit: Visit, rules: Rules) -> None:
        is_told = not rules.sitemaps or robots_url(visit.lease.url) in self._told
        if self._settings.sitemaps and self._settings.follow and not is_told:
            depth = visit.lease.depth + 1
            visit.links += [
                Link(url, type="sitemap", depth=depth, origin="robots") for url in rules.sitemaps
            ]


def _forbidden(rules: Rules, visit: Visit, seconds: float | None = None) -> Failed | Dropped | None:
    """What robots.txt says against a page; `seconds` if it was asked for in this visit."""
    if rules.closed:
        return _come_back(rules, visit, seconds or 0.0)
    if rules.allows(visit.lease.url):
        return None
    return Dropped("robots", seconds or 0.0, visited=seconds is not None)


def _come_back(rules: Rules, visit: Visit, seconds: float) -> Failed:
    """The host could not tell: it is asked again, ever more rarely, until the task is given up."""
    wait = (CLOSED_FOR + 1) * 2.0 ** min(visit.lease.attempt - 1, 6)
    return Failed(f"robots.txt: {rules.closed}", seconds, retry_in=wait)
