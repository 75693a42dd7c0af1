"""The synthetic web of a simulation: hosts of several kinds, with pages computed from the seed.

No page is stored: the answer of a URL depends only on (seed, URL, instant), and the links of a page
only on (seed, URL), so the memory of a web is that of its hosts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from enum import StrEnum
from hashlib import blake2b
from math import exp
from struct import unpack
from typing import Final, NamedTuple

import msgspec

from outrider.core.outcome import Blocked, Done, Failed, Outcome, Throttled, Unreachable


class HostKind(StrEnum):
    """How a host answers requests."""

    STEADY = "steady"  # answers
    SLOW = "slow"  # answers late
    FLAKY = "flaky"  # sometimes fails: 5xx, cut bodies
    BUSY = "busy"  # throttles: 429, with and without Retry-After
    GONE = "gone"  # always unreachable
    DOZING = "dozing"  # unreachable for a part of every period
    GUARDED = "guarded"  # sometimes blocks
    MOVED = "moved"  # redirects to other hosts
    ENDLESS = "endless"  # a trap: every page links to one more
    STRICT = "strict"  # asks for a Crawl-delay


SHARES: Final[Mapping[HostKind, float]] = {
    HostKind.STEADY: 30,
    HostKind.SLOW: 10,
    HostKind.FLAKY: 14,
    HostKind.BUSY: 12,
    HostKind.GONE: 4,
    HostKind.DOZING: 10,
    HostKind.GUARDED: 6,
    HostKind.MOVED: 5,
    HostKind.ENDLESS: 5,
    HostKind.STRICT: 6,
}


class Shape(msgspec.Struct, frozen=True):
    """Size of a web, and how often its hosts fail."""

    hosts: int = 10
    pages: int = 60  # articles in all, shared among the hosts by Zipf's law
    skew: float = 1.0  # Zipf's exponent
    shares: Mapping[HostKind, float] = msgspec.field(default_factory=lambda: SHARES)
    trouble: float = 0.3  # share of visits on which an unreliable host fails
    calm_at: float = 1e12  # seconds after which no host throttles, blocks or is down


class Host(msgspec.Struct, frozen=True):
    """One host: its kind, size, latency and delays."""

    name: str
    kind: HostKind
    size: int  # articles
    latency: float  # seconds, typically
    dozes: float = 0.0  # seconds of every period in which it does not answer
    period: float = 1.0
    crawl_delay: float | None = None

    def is_down(self, at: float) -> bool:
        """Whether it does not answer at this instant."""
        return at % self.period < self.dozes


class Found(NamedTuple):
    """A link on a page."""

    url: str
    type: str


class Response(NamedTuple):
    """The result of a visit that is not cut off."""

    outcome: Outcome
    seconds: float
    found: tuple[Found, ...] = ()


SECTION: Final = 8  # articles per hub
_ADJECTIVES: Final = ("quiet", "brisk", "amber", "plain", "early", "mossy", "candid", "lofty")
_NOUNS: Final = ("harbour", "otter", "ledger", "meadow", "lantern", "parish", "gazette", "quarry")
_SHIRES: Final = ("north", "south", "east", "west")
_WAITS: Final = (None, 0.0, 5.0, 45.0, 200.0)  # values of Retry-After
_HALF: Final = 0.5
_ABROAD: Final = 0.2  # share of articles that link to another host


class Web:
    """All hosts of one seed. Instants are seconds since the start."""

    def __init__(self, seed: int, shape: Shape | None = None) -> None:
        self.seed = seed
        self.shape = shape or Shape()
        self.hosts = _hosts(random.Random(seed), self.shape)
        self._by_name = {host.name: host for host in self.hosts}

    def host(self, name: str) -> Host:
        """Return the host of that name."""
        return self._by_name[name]

    def seeds(self) -> list[Found]:
        """Return the home page of every host."""
        return [_home(host) for host in self.hosts]

    def visit(self, url: str, at: float) -> Response:
        """Return the response to a request sent at this instant."""
        name, path = split(url)
        host = self._by_name[name]
        rolls = self._rolls(f"{url} {at:.3f}")
        seconds = _latency(host, rolls)
        trouble = self._trouble(host, at, rolls)
        if trouble is not None:
            return _troubled(trouble, seconds)
        outcome = Done(
            status=301 if host.kind is HostKind.MOVED and path.startswith("a/") else 200,
            seconds=seconds,
            bytes=500 + int(rolls[3] * 40_000),
            crawl_delay=host.crawl_delay,
        )
        return Response(outcome, seconds, tuple(self._found(host, url, path)))

    def _trouble(self, host: Host, at: float, rolls: tuple[float, ...]) -> Outcome | None:
        """Return the failure of this host at this instant, or None."""
        _, chance, choice, _ = rolls
        if host.kind is HostKind.GONE or (host.is_down(at) and at < self.shape.calm_at):
            return Unreachable("connection refused" if choice < _HALF else "no such host")
        if host.kind is HostKind.FLAKY and chance < self.shape.trouble:
            return Failed("HTTP 502" if choice < _HALF else "cut body")
        if at >= self.shape.calm_at or chance >= self.shape.trouble:
            return None
        if host.kind is HostKind.BUSY:
            return Throttled(_WAITS[int(choice * len(_WAITS))])
        return Blocked("challenge") if host.kind is HostKind.GUARDED else None

    def _found(self, host: Host, url: str, path: str) -> Iterator[Found]:
        """Yield the links of a page: the same at every visit."""
        kind, _, number = path.partition("/")
        if kind == "":
            yield from _hubs(host)
        elif kind == "hub":
            yield from _section(host, int(number))
        elif kind == "a" and host.kind is HostKind.MOVED:
            yield Found(self._elsewhere(url), "page")
        elif kind == "a":
            yield from self._related(host, url, int(number))
        else:
            yield Found(f"https://{host.name}/more/{int(number) + 1}", "page")

    def _related(self, host: Host, url: str, number: int) -> Iterator[Found]:
        """Yield links of an article: a neighbour, at times another host or a trap."""
        near, far, which, _ = self._rolls(url)
        yield Found(f"https://{host.name}/a/{int(near * host.size)}", "article")
        if far < _ABROAD:
            yield _home(self.hosts[int(which * len(self.hosts))])
        if host.kind is HostKind.ENDLESS:
            yield Found(f"https://{host.name}/more/{number * 1000}", "page")

    def _elsewhere(self, url: str) -> str:
        """Return the new URL of a moved article."""
        which, number, _, _ = self._rolls(url)
        host = self.hosts[int(which * len(self.hosts))]
        return f"https://{host.name}/a/{int(number * host.size)}"

    def _rolls(self, about: str) -> tuple[float, ...]:
        """Return four numbers in [0, 1), determined by the seed and a text."""
        digest = blake2b(f"{self.seed} {about}".encode(), digest_size=16).digest()
        return tuple(value / 2**32 for value in unpack(">4I", digest))


def split(url: str) -> tuple[str, str]:
    """Return host and path of a URL of this web."""
    host, _, path = url.removeprefix("https://").partition("/")
    return host, path


def _home(host: Host) -> Found:
    return Found(f"https://{host.name}/", "hub-seed")


def _hubs(host: Host) -> Iterator[Found]:
    for number in range(-(-host.size // SECTION)):
        yield Found(f"https://{host.name}/hub/{number}", "nav")


def _section(host: Host, number: int) -> Iterator[Found]:
    for article in range(number * SECTION, min(host.size, (number + 1) * SECTION)):
        yield Found(f"https://{host.name}/a/{article}", "article")


def _latency(host: Host, rolls: tuple[float, ...]) -> float:
    """Return mostly the typical latency, at times five times as long; whole milliseconds."""
    return round(host.latency * exp(1.6 * rolls[0] * rolls[0]), 3)


def _troubled(trouble: Outcome, seconds: float) -> Response:
    if isinstance(trouble, Unreachable):
        return Response(trouble, seconds)
    return Response(msgspec.structs.replace(trouble, seconds=seconds), seconds)


def _hosts(dice: random.Random, shape: Shape) -> list[Host]:
    kinds, weights = list(shape.shares), list(shape.shares.values())
    drawn = dice.choices(kinds, weights, k=shape.hosts)
    return [
        _host(dice, name, kind, size)
        for name, kind, size in zip(_names(dice, shape), drawn, _sizes(shape), strict=True)
    ]


def _sizes(shape: Shape) -> list[int]:
    """Return sizes by Zipf's law, the largest first."""
    parts = [rank**-shape.skew for rank in range(1, shape.hosts + 1)]
    return [max(1, round(shape.pages * part / sum(parts))) for part in parts]


def _names(dice: random.Random, shape: Shape) -> list[str]:
    every = len(_ADJECTIVES) * len(_NOUNS)
    places = dice.sample(range(every), min(every, shape.hosts))
    return [_name(places[n % len(places)], n // len(places), dice) for n in range(shape.hosts)]


def _name(place: int, more: int, dice: random.Random) -> str:
    mood, noun = _ADJECTIVES[place % len(_ADJECTIVES)], _NOUNS[place // len(_ADJECTIVES)]
    return f"{mood}-{noun}{more or ''}.{dice.choice(_SHIRES)}.example"


def _host(dice: random.Random, name: str, kind: HostKind, size: int) -> Host:
    latency = dice.uniform(2.0, 6.0) if kind is HostKind.SLOW else dice.uniform(0.05, 0.8)
    period = dice.uniform(40.0, 300.0) if kind is HostKind.DOZING else 1.0
    return Host(
        name,
        kind,
        size,
        round(latency, 3),
        dozes=period * dice.uniform(0.2, 0.7) if kind is HostKind.DOZING else 0.0,
        period=period,
        crawl_delay=dice.choice((2.0, 10.0, 400.0)) if kind is HostKind.STRICT else None,
    )
