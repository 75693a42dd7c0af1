"""robots.txt by RFC 9309: what a host asks of us, and for how long that is trusted (K2).

Judging a URL takes bounded time: where a file would take longer, the URL is not allowed.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import Final, assert_never

import msgspec
from protego import Protego

from outrider.clock import Clock
from outrider.core.outcome import TOO_MANY_REQUESTS, Dropped, Failed, Unreachable
from outrider.fetch.cache_file import CacheFile
from outrider.fetch.freshness import max_age_of
from outrider.fetch.response import Response
from outrider.fetch.robots_file import RobotsFile, product, text_of
from outrider.settings.worker_schema import FetchSettings

MOST_DELAY: Final = 86_400.0
CLOSED_FOR: Final = 9.0  # seconds until a host that could not tell is asked again
LEAST_AGE: Final = 3600.0  # a host that says max-age=0 is not asked before every page

# For every asterisk Protego takes some 500 ns, and up to 3 ns a character of the URL. This many
# characters are some 30 ms: room for 16,000 asterisks and an ordinary URL.
MOST_WORK: Final = 10_000_000
_WORK_AT_LEAST: Final = 500

MOST_HOSTS: Final = 50_000
MOST_TEXT: Final = 64 * 2**20  # characters of rules in memory


class Rules(msgspec.Struct, frozen=True, gc=False):
    """What a host asks of us. One that could not tell is `closed`: why, and only for now."""

    text: str = ""  # the lines that allow and disallow
    crawl_delay: float | None = None
    sitemaps: tuple[str, ...] = ()
    fetched_at: float = 0.0
    max_age: float = 0.0
    closed: str = ""

    def allows(self, url: str) -> bool:
        """Whether a page of this host may be visited."""
        if self.closed or self.text.count("*") * (_WORK_AT_LEAST + len(url)) > MOST_WORK:
            return False
        return not self.text or _matcher(self.text).can_fetch(url, "*")

    def lasts(self, now: float) -> bool:
        """Whether this is still trusted; a clock that was set back does not make it last."""
        return abs(now - self.fetched_at) < self.max_age


def robots_url(url: str) -> str:
    """Where the robots.txt of a page is: one for each scheme, host and port."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/robots.txt"


def rules_of(
    answer: Response | Failed | Unreachable | Dropped, settings: FetchSettings, now: float = 0.0
) -> Rules:
    """What the answer to a request for robots.txt means; `now` is for answers without a time.

    Redirects were followed by the caller: one that is left means that there is no such file.
    """
    match answer:
        case Response():
            return _told(answer, settings)
        case Failed() | Unreachable() | Dropped():
            return _closed(answer.reason, now)
        case _:
            assert_never(answer)


def _closed(reason: str, now: float) -> Rules:
    return Rules(closed=reason, fetched_at=now, max_age=CLOSED_FOR)


def _told(response: Response, settings: FetchSettings) -> Rules:
    status, age = response.status, settings.robots_max_age
    if status == TOO_MANY_REQUESTS or not 200 <= status < 500:
        return _closed(f"status {status}", response.at)
    if status >= 300:
        return Rules(fetched_at=response.at, max_age=age)
    file = RobotsFile(text_of(response.body), product(settings.user_agent))
    text = "\n".join(rule for rule in file.rules if "allow:" in rule)
    wanted = max_age_of(response)
    age = age if wanted is None else min(age, max(wanted, LEAST_AGE))
    return Rules(text, _delay(file), file.sitemaps, response.at, age)


def _delay(file: RobotsFile) -> float | None:
    """The longer of Crawl-delay and Request-rate; a rate for some hours of the day is ignored."""
    paces = "\n".join(rule for rule in file.rules if "allow:" not in rule)
    if not paces:
        return None
    parsed = _parsed(paces)
    rate = parsed.request_rate("*")
    delays = [] if rate is None or rate.start_time else [rate.seconds / rate.requests]
    given = parsed.crawl_delay("*")
    delays += [] if given is None else [given]
    return min(max(delays), MOST_DELAY) if delays else None


def _parsed(text: str) -> Protego:
    return Protego.parse(f"User-agent: *\n{text}")


# Parsed, rules take 15 to 40 times the memory of their text: the longer, the fewer are kept.
_MATCHERS: Final = tuple(
    (longest, lru_cache(most)(_parsed))
    for longest, most in ((4 * 1024, 1024), (64 * 1024, 64), (2**30, 16))
)


def _matcher(text: str) -> Protego:
    return next(parsed(text) for longest, parsed in _MATCHERS if len(text) <= longest)


class Shelf:
    """The rules of hosts by where their robots.txt is; with a file they outlive the process."""

    def __init__(self, clock: Clock, user_agent: str, file: CacheFile | None = None) -> None:
        self._clock, self._file = clock, file
        self._name = product(user_agent)
        self._rules: OrderedDict[str, Rules] = OrderedDict()
        self._size = 0

    def get(self, site: str) -> Rules | None:
        """Rules that are still trusted; None: ask the host."""
        rules = self._rules.get(site)
        if rules is None and self._file is not None:
            rules = _decoded(self._file.get(self._key(site)))
            if rules is not None:
                self._put(site, rules)
        if rules is None or not rules.lasts(self._clock.now_ms() / 1000):
            return None
        self._rules.move_to_end(site)
        return rules

    def put(self, site: str, rules: Rules) -> None:
        """Remember what a host asked for."""
        self._put(site, rules)
        if self._file is not None:  # at once: a killed crawl must not ask all its hosts again
            self._file.put_many([(self._key(site), msgspec.msgpack.encode(rules))])

    def _put(self, site: str, rules: Rules) -> None:
        self._forget(site)
        self._rules[site] = rules
        self._size += _size(rules)
        while len(self._rules) > MOST_HOSTS or (self._size > MOST_TEXT and len(self._rules) > 1):
            self._forget(next(iter(self._rules)))

    def _forget(self, site: str) -> None:
        old = self._rules.pop(site, None)
        self._size -= 0 if old is None else _size(old)

    def _key(self, site: str) -> bytes:
        """Rules are what one robot was told: under another name we ask anew."""
        return f"robots {self._name} {site}".encode()


def _size(rules: Rules) -> int:
    return len(rules.text) + sum(map(len, rules.sitemaps))


def _decoded(data: bytes | None) -> Rules | None:
    try:
        return None if data is None else msgspec.msgpack.decode(data, type=Rules)
    except msgspec.DecodeError:
        return None  # of a release that wrote them otherwise
