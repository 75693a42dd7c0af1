"""robots.txt before the page (K2): asked for once by whoever comes first, then remembered.

Asking is a request of its own: the host's delay comes before the next one.

Redirects of a robots.txt are followed (RFC 9309, 2.3.1.2), five in all. One to a `/robots.txt` may
always be asked for, and so may one that stays on its scheme, host and port. Any other leads to an
ordinary URL of another site: it is asked for only if the robots.txt of that site allows it. Where
that is forbidden, or that robots.txt is itself redirected to yet another host, the first file is
unavailable (RFC 9309, 2.3.1.3): as if it were missing.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, assert_never

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
    rules: Rules | None = None  # None: robots.txt is not obeyed

    def allows(self, url: str) -> bool:
        """Whether another URL of the same site may be visited too."""
        return self.rules is None or self.rules.allows(url)


class _Sent(NamedTuple):
    """A robots.txt that is on another host."""

    answer: Response  # the redirect
    target: Url
    hops: int


class _Ended(NamedTuple):
    """The visit ends before the robots.txt could be read, because of another one on the way."""

    outcome: Outcome


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
        return await self._obey(visit)

    async def _obey(self, visit: Visit) -> Entry | Outcome:
        """Go by the robots.txt of the page's own site."""
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
            return forbidden or Entry(rules=rules)
        if forbidden is not None:
            return msgspec.structs.replace(forbidden, crawl_delay=crawl_delay)
        await self._pacing.pause(visit, asked, crawl_delay)
        return Entry(crawl_delay, rules)

    def told(self, visit: Visit) -> None:
        """The visit is over, and was not lost: its links are added with its outcome."""
        if visit.lease.type == ROBOTS:
            return
        if len(self._told) >= MOST_HOSTS:
            self._told.clear()
        self._told.add(robots_url(visit.lease.url))

    async def _robots(
        self, visit: Visit, site: str, *, asking: frozenset[str] = frozenset()
    ) -> tuple[Rules, Response] | Outcome:
        """Read the robots.txt of a site; `asking` are those whose redirect it is read for."""
        answer = await self._follow(visit, site, site, 0, asking | {site})
        if isinstance(answer, _Sent):
            return await self._sent_elsewhere(visit, site, answer)
        if isinstance(answer, _Ended):
            return answer.outcome
        if not isinstance(answer, Response):
            return self._unread(visit, site, answer)
        if answer.status == TOO_MANY_REQUESTS:
            return Throttled(retry_after_of(answer, self._pacing.now()), answer.seconds)
        rules = rules_of(answer, self._settings)
        self._shelf.put(site, rules)
        return rules, answer

    async def _follow(
        self, visit: Visit, url: str, site: str, hops: int, asking: frozenset[str]
    ) -> Response | Trouble | _Sent | _Ended:
        """Ask for a robots.txt and follow its redirects on this host; the last answer counts."""
        while True:
            answer = await self._pacing.get(visit, url)
            if not isinstance(answer, Response):
                return answer
            target = target_of(answer, self._url_rules) if hops < HOPS else None
            if not isinstance(target, Url):
                return answer
            if not self._is_here(visit, target):
                return _Sent(answer, target, hops + 1)
            allowed = await self._may_follow(visit, answer, target, site, asking)
            if allowed is None:
                return answer
            if isinstance(allowed, _Ended):
                return allowed
            await self._pacing.pause(visit, *allowed)
            url, hops = target.text, hops + 1

    async def _may_follow(
        self, visit: Visit, answer: Response, target: Url, site: str, asking: frozenset[str]
    ) -> tuple[Response, float | None] | _Ended | None:
        """The last answer and the delay after it if a target may be asked for; None: it may not."""
        other = robots_url(target.text)
        if other in {site, target.text}:
            return answer, None
        rules, last = self._shelf.get(other), answer
        if rules is None and other in asking:
            return None
        if rules is None:
            await self._pacing.pause(visit, answer, None)
            got = await self._robots(visit, other, asking=asking)
            if not isinstance(got, tuple):
                return None if isinstance(got, Dropped) else _Ended(got)
            rules, last = got
        if rules.closed:
            return _Ended(_come_back(rules, visit, last.seconds))
        return (last, rules.crawl_delay) if rules.allows(target.text) else None

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
        self, visit: Visit, site: str, sent: _Sent
    ) -> tuple[Rules, Response] | Outcome:
        """Another host has a queue of its own: it is asked there, and this page comes back."""
        if visit.lease.type == ROBOTS:  # what may be read here is not known without another detour
            return Dropped("robots", sent.answer.seconds)
        if not await self._add_robots(visit, site, sent):  # not ours to visit: as if missing
            rules = rules_of(sent.answer, self._settings)
            self._shelf.put(site, rules)
            return rules, sent.answer
        closed = Rules(closed="on another host", fetched_at=sent.answer.at, max_age=CLOSED_FOR)
        self._shelf.put(site, closed)
        return _come_back(closed, visit, sent.answer.seconds)

    async def _add_robots(self, visit: Visit, site: str, sent: _Sent) -> bool:
        """Add the task that reads a site's robots.txt on another host, if we may go there."""
        hop = f" {sent.hops}" if visit.lease.type == ROBOTS else ""
        link = Link(
            sent.target,
            type=ROBOTS,
            depth=visit.lease.depth,
            forced=True,
            known="revisit",
            identity=f"{ROBOTS} {site}{hop}",
            meta={"of": site, "hops": sent.hops},
        )
        if await self._refusal(link, visit.lease) is not None:
            return False
        visit.links.append(link)
        return True

    async def _elsewhere(self, visit: Visit) -> Outcome:
        """Read a robots.txt that another host sent us for; no robots.txt forbids itself."""
        site = str(visit.lease.meta.get("of"))
        entry = Entry() if _is_robots(visit.lease.url) else await self._obey(visit)
        outcome = entry if not isinstance(entry, Entry) else await self._read_for(visit, site)
        if isinstance(outcome, Dropped) and (outcome.reason == "robots" or not outcome.visited):
            missing = Rules(fetched_at=self._pacing.now(), max_age=self._settings.robots_max_age)
            self._shelf.put(site, missing)
        if isinstance(entry, Entry) and entry.crawl_delay is not None:
            return msgspec.structs.replace(outcome, crawl_delay=entry.crawl_delay)
        return outcome

    async def _read_for(self, visit: Visit, site: str) -> Outcome:
        """Read the file; its rules are those of the site that sent us."""
        hops = int(visit.lease.meta.get("hops", 1))
        url, here = visit.lease.url, robots_url(visit.lease.url)
        own = here if _is_robots(url) else ""  # other URLs of this host need its leave
        answer = await self._follow(visit, url, own, hops, frozenset({here, site}))
        if isinstance(answer, _Ended):
            return answer.outcome
        is_sent = isinstance(answer, _Sent) and await self._add_robots(visit, site, answer)
        response = answer.answer if isinstance(answer, _Sent) else answer
        if not isinstance(response, Response):
            return response
        judged = outcome_of(
            response.status,
            seconds=response.seconds,
            bytes=len(response.body),
            retry_after=retry_after_of(response, self._pacing.now()),
        )
        if isinstance(judged, Done) and not is_sent:
            self._shelf.put(site, rules_of(response, self._settings))
        return judged

    def _add_sitemaps(self, visit: Visit, rules: Rules) -> None:
        """Not on the way to a robots.txt: the crawl may have no page of that host."""
        is_told = not rules.sitemaps or robots_url(visit.lease.url) in self._told
        if visit.lease.type == ROBOTS:
            return
        if self._settings.sitemaps and self._settings.follow and not is_told:
            depth = visit.lease.depth + 1
            visit.links += [
                Link(url, type="sitemap", depth=depth, origin="robots") for url in rules.sitemaps
            ]


def _is_robots(url: str) -> bool:
    return url == robots_url(url)


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
