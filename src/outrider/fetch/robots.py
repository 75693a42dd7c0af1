"""robots.txt by RFC 9309 (K2): parsed, cached, and requested before the first page of a site.

Matching a URL takes bounded time: where a file would take longer, the URL is not allowed. The
request for robots.txt is a request like any other: the host's delay comes before the next one.

Redirects of a robots.txt are followed (RFC 9309, 2.3.1.2), five in all. One to a `/robots.txt` may
always be requested, and so may one that stays on its scheme, host and port. Any other leads to an
ordinary URL of another site: it is requested only if the robots.txt of that site allows it. Where
that is forbidden, or that robots.txt is itself redirected to yet another host, the first file is
unavailable (RFC 9309, 2.3.1.3): as if it were missing.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from functools import lru_cache
from typing import Final, NamedTuple, assert_never

import msgspec
from protego import Protego

from outrider.clock import Clock
from outrider.core.outcome import (
    TOO_MANY_REQUESTS,
    Again,
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
from outrider.fetch.cache import CacheFile, max_age
from outrider.fetch.extract import robot_name
from outrider.fetch.pacing import Pacing, RefusalCheck, Visit
from outrider.fetch.response import RequestFailure, Response, redirect_target, retry_after_of
from outrider.settings import Settings
from outrider.settings.worker_schema import FetchSettings

# ---- parsing
#
# Groups of other robots are left out while lines are read: a parser that keeps them all takes
# minutes and gigabytes for a file of ten thousand names and as many rules.

MAX_ROBOTS_BYTES: Final = 500 * 1024  # RFC 9309 asks for that many
MAX_ROBOTS_LINE: Final = 8 * 1024  # no URL that is visited is longer
MAX_ROBOTS_SITEMAPS: Final = 1000

_ANY_ROBOT: Final = "*"
_LINES: Final = re.compile(r"[\r\n]+")
# With frequent misspellings such as `Dissallow`.
_FIELD: Final = re.compile(
    r"[ \t]*(user[- ]?agent|site-?maps?|allow|diss?all?[oa]w|diasllow|crawl[- ]?delay"
    r"|request[- ]?rate)[ \t]*[: \t][ \t]*([^#]*)",
    re.IGNORECASE,
).match
_KINDS: Final = {  # by the first letter
    "u": "user-agent",
    "s": "sitemap",
    "a": "allow",
    "d": "disallow",
    "c": "crawl-delay",
    "r": "request-rate",
}


def robots_text(body: bytes) -> str:
    """Return the text of a file, cut at the last line end within the limit."""
    if len(body) > MAX_ROBOTS_BYTES:
        end = max(body.rfind(b"\n", 0, MAX_ROBOTS_BYTES), body.rfind(b"\r", 0, MAX_ROBOTS_BYTES))
        body = body[: end + 1]
    return body.decode("utf-8-sig", "replace").replace("\0", "")


class RobotsFile:
    """The rules for one robot: of the groups that name it, or else of the groups for all."""

    def __init__(self, text: str, name: str) -> None:
        self._names = (name, _ANY_ROBOT)
        self._groups: dict[str, list[tuple[str, str]]] = {}
        self._named: set[str] = set()
        self._in_names = False
        self._sitemaps: dict[str, None] = {}
        for line in _LINES.split(text):
            found = _FIELD(line) if len(line) <= MAX_ROBOTS_LINE else None
            if found is not None:
                self._take(_KINDS[found[1][0].lower()], found[2].strip())
        group = next((self._groups[one] for one in self._names if one in self._groups), [])
        self.rules = tuple(dict.fromkeys(f"{kind}: {value}" for kind, value in group if value))
        self.sitemaps = tuple(self._sitemaps)

    def _take(self, kind: str, value: str) -> None:
        if kind == "user-agent":
            name = robot_name(value)
            self._begin_group(name.rstrip("*") or name)
        elif kind == "sitemap":
            self._add_sitemap(value)
        else:
            self._in_names = False
            for name in self._named:
                self._groups[name].append((kind, value))

    def _begin_group(self, name: str) -> None:
        """Begin a group; names in a row share one, the first after a rule begins another."""
        if not self._in_names:
            self._named = set()
        self._in_names = True
        if name in self._names:
            self._named.add(name)
            self._groups.setdefault(name, [])

    def _add_sitemap(self, url: str) -> None:
        is_absolute = url[:8].lower().startswith(("http://", "https://"))
        if is_absolute and len(self._sitemaps) < MAX_ROBOTS_SITEMAPS:
            self._sitemaps[url] = None


# ---- rules

MAX_CRAWL_DELAY: Final = 86_400.0
CLOSED_SECONDS: Final = 9.0  # seconds until a robots.txt that could not be read is requested again
MIN_MAX_AGE: Final = 3600.0  # seconds; max-age=0 does not mean a request before every page

# For every asterisk Protego takes some 500 ns, and up to 3 ns per character of the URL. This many
# characters are some 30 ms: enough for 16,000 asterisks and an ordinary URL.
MAX_MATCH_WORK: Final = 10_000_000
_WORK_PER_ASTERISK: Final = 500

MAX_HOSTS: Final = 50_000
MAX_RULES_TEXT: Final = 64 * 2**20  # characters of rules in memory


class RobotsRules(msgspec.Struct, frozen=True, gc=False):
    """The rules of a site. If its robots.txt could not be read, `closed` says why."""

    text: str = ""  # the allow and disallow lines
    crawl_delay: float | None = None
    sitemaps: tuple[str, ...] = ()
    fetched_at: float = 0.0
    max_age: float = 0.0
    closed: str = ""

    def allows(self, url: str) -> bool:
        """Whether a page of this site may be visited."""
        if self.closed or self.text.count("*") * (_WORK_PER_ASTERISK + len(url)) > MAX_MATCH_WORK:
            return False
        return not self.text or _matcher(self.text).can_fetch(url, "*")

    def is_valid(self, now: float) -> bool:
        """Whether the rules are still valid; a clock that was set back does not prolong them."""
        return abs(now - self.fetched_at) < self.max_age


def robots_url(url: str) -> str:
    """Return the URL of a page's robots.txt: one for each scheme, host and port."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/robots.txt"


def rules_of(
    answer: Response | Failed | Unreachable | Dropped, settings: FetchSettings, now: float = 0.0
) -> RobotsRules:
    """Return the rules by the answer to a request for robots.txt, received `now` if it has no time.

    The caller has followed redirects: a redirect here means that there is no such file.
    """
    match answer:
        case Response():
            return _rules_of_response(answer, settings)
        case Failed() | Unreachable() | Dropped():
            return _closed_rules(answer.reason, now)
        case _:
            assert_never(answer)


def _closed_rules(reason: str, now: float) -> RobotsRules:
    return RobotsRules(closed=reason, fetched_at=now, max_age=CLOSED_SECONDS)


def _rules_of_response(response: Response, settings: FetchSettings) -> RobotsRules:
    status, age = response.status, settings.robots_max_age
    if status == TOO_MANY_REQUESTS or not 200 <= status < 500:
        return _closed_rules(f"status {status}", response.at)
    if status >= 300:
        return RobotsRules(fetched_at=response.at, max_age=age)
    file = RobotsFile(robots_text(response.body), robot_name(settings.user_agent))
    text = "\n".join(rule for rule in file.rules if "allow:" in rule)
    wanted = max_age(response)
    age = age if wanted is None else min(age, max(wanted, MIN_MAX_AGE))
    return RobotsRules(text, _crawl_delay(file), file.sitemaps, response.at, age)


def _crawl_delay(file: RobotsFile) -> float | None:
    """Return the longer of Crawl-delay and Request-rate; a rate for some hours is ignored."""
    paces = "\n".join(rule for rule in file.rules if "allow:" not in rule)
    if not paces:
        return None
    parsed = _parsed(paces)
    rate = parsed.request_rate("*")
    delays = [] if rate is None or rate.start_time else [rate.seconds / rate.requests]
    given = parsed.crawl_delay("*")
    delays += [] if given is None else [given]
    return min(max(delays), MAX_CRAWL_DELAY) if delays else None


def _parsed(text: str) -> Protego:
    return Protego.parse(f"User-agent: *\n{text}")


# Parsed rules take 15 to 40 times the memory of their text: of longer ones, fewer are cached.
_MATCHERS: Final = tuple(
    (longest, lru_cache(most)(_parsed))
    for longest, most in ((4 * 1024, 1024), (64 * 1024, 64), (2**30, 16))
)


def _matcher(text: str) -> Protego:
    return next(parsed(text) for longest, parsed in _MATCHERS if len(text) <= longest)


class RobotsCache:
    """The rules of sites by the URL of their robots.txt; with a file they outlive the process."""

    def __init__(self, clock: Clock, user_agent: str, file: CacheFile | None = None) -> None:
        self._clock, self._file = clock, file
        self._name = robot_name(user_agent)
        self._rules: OrderedDict[str, RobotsRules] = OrderedDict()
        self._size = 0

    def get(self, site: str) -> RobotsRules | None:
        """Return rules that are still valid; None: request the robots.txt."""
        rules = self._rules.get(site)
        if rules is None and self._file is not None:
            rules = _decode_rules(self._file.get(self._key(site)))
            if rules is not None:
                self._put(site, rules)
        if rules is None or not rules.is_valid(self._clock.now_ms() / 1000):
            return None
        self._rules.move_to_end(site)
        return rules

    def put(self, site: str, rules: RobotsRules) -> None:
        """Store the rules of a site."""
        self._put(site, rules)
        if self._file is not None:  # at once: after a kill, hosts are not asked again
            self._file.put_many([(self._key(site), msgspec.msgpack.encode(rules))])

    def _put(self, site: str, rules: RobotsRules) -> None:
        self._forget(site)
        self._rules[site] = rules
        self._size += _size(rules)
        while len(self._rules) > MAX_HOSTS or (
            self._size > MAX_RULES_TEXT and len(self._rules) > 1
        ):
            self._forget(next(iter(self._rules)))

    def _forget(self, site: str) -> None:
        old = self._rules.pop(site, None)
        self._size -= 0 if old is None else _size(old)

    def _key(self, site: str) -> bytes:
        """Return the key in the file; another user agent has rules of its own."""
        return f"robots {self._name} {site}".encode()


def _size(rules: RobotsRules) -> int:
    return len(rules.text) + sum(map(len, rules.sitemaps))


def _decode_rules(data: bytes | None) -> RobotsRules | None:
    try:
        return None if data is None else msgspec.msgpack.decode(data, type=RobotsRules)
    except msgspec.DecodeError:
        return None  # written by another release


# ---- the gate

ROBOTS_TYPE: Final = "robots"  # the type of a task that reads another host's robots.txt
MAX_ROBOTS_REDIRECTS: Final = 5  # RFC 9309 asks for at least five


class Admission(msgspec.Struct, frozen=True):
    """The page may be visited; with what its robots.txt says, if it was requested."""

    crawl_delay: float | None = None
    rules: RobotsRules | None = None  # None: settings ignore robots.txt

    def allows(self, url: str) -> bool:
        """Whether another URL of the same site may be visited too."""
        return self.rules is None or self.rules.allows(url)


class _OnOtherHost(NamedTuple):
    """A robots.txt that is redirected to another host."""

    answer: Response  # the redirect
    target: Url
    hops: int


class _VisitEnded(NamedTuple):
    """The visit ends before the robots.txt was read, because of another one on the way."""

    outcome: Outcome


class RobotsGate:
    """Decides whether a page may be visited, requesting its robots.txt first if necessary."""

    def __init__(
        self, settings: Settings, pacing: Pacing, cache: RobotsCache, refusal: RefusalCheck
    ) -> None:
        self._settings = settings.fetch
        self._url_rules = settings.url
        self._refusal = refusal
        self._pacing = pacing
        self._cache = cache
        self._asking: dict[str, asyncio.Lock] = {}
        self._sitemaps_added: set[str] = set()  # sites whose sitemaps were added

    async def admit(self, visit: Visit) -> Admission | Outcome:
        """Return the admission, or the outcome the visit ends with."""
        if not self._settings.robots:
            return Admission()
        if visit.lease.type == ROBOTS_TYPE:
            return await self._read_for_other_host(visit)
        return await self._apply_own_rules(visit)

    async def _apply_own_rules(self, visit: Visit) -> Admission | Outcome:
        """Apply the robots.txt of the page's own site."""
        site = robots_url(visit.lease.url)
        rules = self._cache.get(site)
        if rules is None:
            return await self._request_rules(visit, site)
        return await self._apply_rules(visit, rules)

    async def _request_rules(self, visit: Visit, site: str) -> Admission | Outcome:
        async with self._asking.setdefault(site, asyncio.Lock()):
            rules = self._cache.get(site)
            if rules is not None:  # another visit requested it meanwhile
                return await self._apply_rules(visit, rules, waited=True)
            try:
                answer = await self._robots(visit, site)
            finally:
                self._asking.pop(site, None)
        return answer if not isinstance(answer, tuple) else await self._apply_rules(visit, *answer)

    async def _apply_rules(
        self,
        visit: Visit,
        rules: RobotsRules,
        asked: Response | None = None,
        *,
        waited: bool = False,
    ) -> Admission | Outcome:
        """Apply rules that were read; `asked` is the response, if this visit requested them.

        Rules that another visit read are applied in full: that visit may have been lost. A visit
        that `waited` for it may be late: where leases pace the requests, another one comes for it.
        """
        if asked is not None:
            self._sitemaps_added.discard(robots_url(visit.lease.url))  # it may name others now
        self._add_sitemaps(visit, rules)
        crawl_delay = rules.crawl_delay or 0.0
        forbidden = _forbidden(rules, visit, asked.seconds if asked else None)
        if asked is None and crawl_delay <= visit.lease.manners.crawl_delay:
            again = self._pacing.other_visit(visit) if waited else None
            return forbidden or again or Admission(rules=rules)
        if forbidden is not None:
            return msgspec.structs.replace(forbidden, crawl_delay=crawl_delay)
        is_kept = self._cache.get(robots_url(visit.lease.url)) is not None
        again = await self._pacing.pause(visit, asked, crawl_delay, must_go_on=not is_kept)
        return again or Admission(crawl_delay, rules)

    def record_end(self, visit: Visit) -> None:
        """Record that a visit ended and was not lost: its links are added with its outcome."""
        if visit.lease.type == ROBOTS_TYPE:
            return
        if len(self._sitemaps_added) >= MAX_HOSTS:
            self._sitemaps_added.clear()
        self._sitemaps_added.add(robots_url(visit.lease.url))

    async def _robots(
        self, visit: Visit, site: str, *, asking: frozenset[str] = frozenset()
    ) -> tuple[RobotsRules, Response] | Outcome:
        """Read a site's robots.txt; `asking` are the sites whose redirects led here."""
        answer = await self._follow(visit, site, site, 0, asking | {site})
        if isinstance(answer, _OnOtherHost):
            return await self._defer_to_other_host(visit, site, answer)
        if isinstance(answer, _VisitEnded):
            return answer.outcome
        if not isinstance(answer, Response):
            return self._unreadable(visit, site, answer)
        if answer.status == TOO_MANY_REQUESTS:
            return Throttled(retry_after_of(answer, self._pacing.now()), answer.seconds)
        rules = rules_of(answer, self._settings)
        self._cache.put(site, rules)
        return rules, answer

    async def _follow(
        self, visit: Visit, url: str, site: str, hops: int, asking: frozenset[str]
    ) -> Response | RequestFailure | _OnOtherHost | _VisitEnded:
        """Request a robots.txt and follow its redirects on this host; return the last answer."""
        while True:
            answer = self._pacing.kept_redirect(url) or await self._pacing.get(visit, url)
            if not isinstance(answer, Response):
                return answer
            target = (
                redirect_target(answer, self._url_rules) if hops < MAX_ROBOTS_REDIRECTS else None
            )
            if not isinstance(target, Url):
                return answer
            if not self._is_here(visit, target):
                return _OnOtherHost(answer, target, hops + 1)
            end = await self._wait_to_follow(visit, answer, target, site, asking)
            if end is not None:
                if isinstance(end, _VisitEnded) and isinstance(end.outcome, Again):
                    self._pacing.keep_redirect(url, answer)
                return end
            url, hops = target.text, hops + 1

    async def _wait_to_follow(
        self, visit: Visit, answer: Response, target: Url, site: str, asking: frozenset[str]
    ) -> Response | _VisitEnded | None:
        """Wait until a redirect's target may be requested (None), or return the last answer."""
        allowed = await self._may_follow(visit, answer, target, site, asking)
        if allowed is None:
            return answer
        if isinstance(allowed, _VisitEnded):
            return allowed
        again = await self._pacing.pause(visit, *allowed)
        return None if again is None else _VisitEnded(again)

    async def _may_follow(
        self, visit: Visit, answer: Response, target: Url, site: str, asking: frozenset[str]
    ) -> tuple[Response, float | None] | _VisitEnded | None:
        """Return the last answer and the delay after it if a target may be requested, else None."""
        other = robots_url(target.text)
        if other in {site, target.text}:
            return answer, None
        rules, last = self._cache.get(other), answer
        if rules is None and other in asking:
            return None
        if rules is None:
            again = await self._pacing.pause(visit, answer, None)
            if again is not None:
                return _VisitEnded(again)
            got = await self._robots(visit, other, asking=asking)
            if not isinstance(got, tuple):
                return None if isinstance(got, Dropped) else _VisitEnded(got)
            rules, last = got
        if rules.closed:
            return _VisitEnded(_retry_later(rules, visit, last.seconds))
        return (last, rules.crawl_delay) if rules.allows(target.text) else None

    def _unreadable(self, visit: Visit, site: str, failure: RequestFailure) -> Outcome:
        """Return the outcome if robots.txt cannot be read; one that is refused closes the site."""
        match failure:
            case Unreachable() | Dropped(visited=False):  # the page would fail the same way
                return failure
            case Failed():
                return Failed(f"robots.txt: {failure.reason}", failure.seconds)
            case Dropped():
                rules = rules_of(failure, self._settings, self._pacing.now())
                self._cache.put(site, rules)
                return _retry_later(rules, visit, failure.seconds)
            case _:
                assert_never(failure)

    def _is_here(self, visit: Visit, target: Url) -> bool:
        here = parse_url(visit.lease.url, self._url_rules)
        return isinstance(here, Url) and target.host == here.host

    async def _defer_to_other_host(
        self, visit: Visit, site: str, sent: _OnOtherHost
    ) -> tuple[RobotsRules, Response] | Outcome:
        """Add a task that reads it in the other host's queue, and retry this page later."""
        if visit.lease.type == ROBOTS_TYPE:  # the rules here are unknown without another detour
            return Dropped("robots", sent.answer.seconds)
        if not await self._add_robots(visit, site, sent):  # not admissible: as if missing
            rules = rules_of(sent.answer, self._settings)
            self._cache.put(site, rules)
            return rules, sent.answer
        closed = RobotsRules(
            closed="on another host", fetched_at=sent.answer.at, max_age=CLOSED_SECONDS
        )
        self._cache.put(site, closed)
        return _retry_later(closed, visit, sent.answer.seconds)

    async def _add_robots(self, visit: Visit, site: str, sent: _OnOtherHost) -> bool:
        """Add the task that reads a site's robots.txt on another host, if it is admissible."""
        hop = f" {sent.hops}" if visit.lease.type == ROBOTS_TYPE else ""
        link = Link(
            sent.target,
            type=ROBOTS_TYPE,
            depth=visit.lease.depth,
            forced=True,
            known="revisit",
            identity=f"{ROBOTS_TYPE} {site}{hop}",
            meta={"of": site, "hops": sent.hops},
        )
        if await self._refusal(link, visit.lease) is not None:
            return False
        visit.links.append(link)
        return True

    async def _read_for_other_host(self, visit: Visit) -> Outcome:
        """Read a robots.txt for another host; no robots.txt forbids itself."""
        site = str(visit.lease.meta.get("of"))
        entry = Admission() if _is_robots(visit.lease.url) else await self._apply_own_rules(visit)
        outcome = entry if not isinstance(entry, Admission) else await self._read_for(visit, site)
        if isinstance(outcome, Dropped) and (outcome.reason == "robots" or not outcome.visited):
            missing = RobotsRules(
                fetched_at=self._pacing.now(), max_age=self._settings.robots_max_age
            )
            self._cache.put(site, missing)
        if isinstance(entry, Admission) and entry.crawl_delay is not None:
            return msgspec.structs.replace(outcome, crawl_delay=entry.crawl_delay)
        return outcome

    async def _read_for(self, visit: Visit, site: str) -> Outcome:
        """Read the file; its rules are those of the redirecting site."""
        hops = int(visit.lease.meta.get("hops", 1))
        url, here = visit.lease.url, robots_url(visit.lease.url)
        own = here if _is_robots(url) else ""  # other URLs need this host's permission
        answer = await self._follow(visit, url, own, hops, frozenset({here, site}))
        if isinstance(answer, _VisitEnded):
            return answer.outcome
        is_deferred = isinstance(answer, _OnOtherHost) and await self._add_robots(
            visit, site, answer
        )
        response = answer.answer if isinstance(answer, _OnOtherHost) else answer
        if not isinstance(response, Response):
            return response
        outcome = outcome_of(
            response.status,
            seconds=response.seconds,
            bytes=len(response.body),
            retry_after=retry_after_of(response, self._pacing.now()),
        )
        if isinstance(outcome, Done) and not is_deferred:
            self._cache.put(site, rules_of(response, self._settings))
        return outcome

    def _add_sitemaps(self, visit: Visit, rules: RobotsRules) -> None:
        """Add a site's sitemaps once; not in robots.txt tasks: the crawl may have no page there."""
        is_added = not rules.sitemaps or robots_url(visit.lease.url) in self._sitemaps_added
        if visit.lease.type == ROBOTS_TYPE:
            return
        if self._settings.sitemaps and self._settings.follow and not is_added:
            depth = visit.lease.depth + 1
            visit.links += [
                Link(url, type="sitemap", depth=depth, origin="robots") for url in rules.sitemaps
            ]


def _is_robots(url: str) -> bool:
    return url == robots_url(url)


def _forbidden(
    rules: RobotsRules, visit: Visit, seconds: float | None = None
) -> Failed | Dropped | None:
    """Return the outcome if robots.txt forbids a page; `seconds` if this visit requested it."""
    if rules.closed:
        return _retry_later(rules, visit, seconds or 0.0)
    if rules.allows(visit.lease.url):
        return None
    return Dropped("robots", seconds or 0.0, visited=seconds is not None)


def _retry_later(rules: RobotsRules, visit: Visit, seconds: float) -> Failed:
    """Return a failure that retries ever more rarely, until the task is given up."""
    wait = (CLOSED_SECONDS + 1) * 2.0 ** min(visit.lease.attempt - 1, 6)
    return Failed(f"robots.txt: {rules.closed}", seconds, retry_in=wait)
