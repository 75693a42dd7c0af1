"""Unreliable hosts: they redirect, fail, are slow, throttle, change, refuse or do not resolve."""

from __future__ import annotations

from typing import Final

from outrider.testing.web.behaviours import (
    chain,
    changing,
    chunked,
    disguising,
    failing,
    flaky,
    linked,
    packed,
    redirecting,
    serving,
    slow,
    throttling_haste,
    throttling_hits,
)
from outrider.testing.web.graph import DOMAIN
from outrider.testing.web.messages import Behaviour
from outrider.testing.web.site import Site

MOVED: Final = "moved" + DOMAIN
BROKEN: Final = "broken" + DOMAIN
SLOW: Final = "slow" + DOMAIN
BUSY: Final = "busy" + DOMAIN
BUSY_BY_DATE: Final = "busy-by-date" + DOMAIN
OVERLOADED: Final = "overloaded" + DOMAIN
HASTELESS: Final = (
    "hasteless" + DOMAIN
)  # throttles requests within half a second of the last answer
CHANGING: Final = "changing" + DOMAIN
PACKED: Final = "packed" + DOMAIN
SECRET: Final = "secret" + DOMAIN  # https with a self-signed certificate
REFUSING: Final = "refusing" + DOMAIN  # refuses every connection
NOWHERE: Final = "nowhere.invalid"  # has no address

ERRORS: Final = (400, 401, 403, 404, 410, 418, 500, 501, 502, 503, 504)
CHAIN: Final = 4  # hops: fewer than a crawler follows
LONG_CHAIN: Final = 12  # hops: more than a crawler follows
RATES: Final = {"/fast": 2.0, "/slow": 0.05, "/still": 1e-9}  # changes a second


def sites(seed: int) -> list[Site]:
    """Return one host of each kind."""
    return [_moved(), _broken(), _slow(), *_busy(), _changing(seed), _packed()]


def secret() -> Site:
    """Return the host behind TLS."""
    return _site(SECRET, {"/inside": linked("inside")})


def _site(name: str, paths: dict[str, Behaviour], *first: Behaviour) -> Site:
    """Return a host whose root links to all its other paths."""
    pages = {"/": linked(name, *paths)} | paths
    return Site(name, paths=pages, first=first, pages=list(pages))


def _moved() -> Site:
    paths = {f"/by/{status}": redirecting("/goal", status) for status in (301, 302, 303, 307, 308)}
    paths |= chain("/chain/", CHAIN, "/goal") | chain("/long/", LONG_CHAIN, "/goal", 301)
    paths |= {
        "/goal": linked("goal"),
        "/relative/hop": redirecting("../goal"),
        "/query": redirecting("?again=1"),
        "/abroad": redirecting(f"http://{PACKED}/"),
        "/disguised": disguising(),
        "/self": redirecting("/self", 301),
        "/loop/a": redirecting("/loop/b"),
        "/loop/b": redirecting("/loop/a"),
        "/nowhere": redirecting(f"http://{NOWHERE}/"),
        "/without": failing(302),
    }
    return _site(MOVED, paths)


def _broken() -> Site:
    paths = {f"/status/{status}": failing(status) for status in ERRORS}
    paths |= {f"/flaky/{times}": flaky(linked("well"), times=times) for times in (1, 2, 3)}
    return _site(BROKEN, paths)


def _slow() -> Site:
    page = serving(b"<title>slow</title>" + b"<p>and so on</p>" * 100)
    return _site(
        SLOW,
        {
            "/head": slow(page, wait=0.5),
            "/body": slow(page, pause=0.05, pieces=10),
            "/chunks": slow(chunked(page), pause=0.05, pieces=10),
        },
    )


def _busy() -> list[Site]:
    """Return hosts that throttle hits three and four, and one that throttles quick requests."""
    pages = {f"/page/{n}": linked(f"{n}") for n in range(4)}
    third = (3, 4)
    return [
        _site(BUSY, pages, throttling_hits(third, 2.0)),
        _site(BUSY_BY_DATE, pages, throttling_hits(third, 2.0, as_date=True)),
        _site(OVERLOADED, pages, throttling_hits(third, 2.0, status=503)),
        _site(HASTELESS, pages, throttling_haste(0.5, 2.0)),
    ]


def _changing(seed: int) -> Site:
    return _site(CHANGING, {path: changing(seed, rate) for path, rate in RATES.items()})


def _packed() -> Site:
    page = linked("packed", "/gzip", "/chunked", "/both")
    return _site(
        PACKED, {"/gzip": packed(page), "/chunked": chunked(page), "/both": packed(chunked(page))}
    )
