"""Hosts that differ only in their robots.txt, and what each allows (RFC 9309)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from outrider.testing.web.behaviours import failing, linked, redirecting, serving, slow
from outrider.testing.web.graph import DOMAIN, ROBOTS
from outrider.testing.web.messages import TEXT, Behaviour
from outrider.testing.web.site import Site

PAGES: Final = ("/", "/open", "/shut", "/shut/inner", "/shut/but", "/shut/but/inner")
_UNDER_SHUT: Final = ("/shut",)
_EVERYTHING: Final = ("/",)
_BYTES: Final = 5 * 1024 * 1024  # of the huge one


class Case(msgspec.Struct, frozen=True):
    """One robots.txt, and which of `PAGES` it allows."""

    robots: Behaviour
    forbidden: tuple[str, ...] = ()
    excepted: tuple[str, ...] = ()
    crawl_delay: float | None = None


def rules(*lines: str, agent: str = "*") -> Behaviour:
    """Return a robots.txt of one group."""
    return serving("\n".join((f"User-agent: {agent}", *lines, "")), TEXT)


def _huge() -> Behaviour:
    """Return a file whose valid rule comes first; a rule beyond any size limit forbids all."""
    head = b"User-agent: *\nDisallow: /shut\n"
    filler = b"# nothing here, again and again\n"
    return serving(head + filler * (_BYTES // len(filler)) + b"Disallow: /\n", TEXT)


_SHUT: Final = rules("Disallow: /shut")

CASES: Final[Mapping[str, Case]] = {
    "missing": Case(failing(404)),
    "unauthorised": Case(failing(401)),
    "empty": Case(serving("", TEXT)),
    "broken": Case(failing(500), _EVERYTHING),
    "unavailable": Case(failing(503), _EVERYTHING),
    "huge": Case(_huge(), _UNDER_SHUT),
    "closed": Case(rules("Disallow: /"), _EVERYTHING),
    "prefix": Case(_SHUT, _UNDER_SHUT),
    "longest": Case(rules("Disallow: /shut", "Allow: /shut/but"), _UNDER_SHUT, ("/shut/but",)),
    "named": Case(
        serving("User-agent: outrider\nDisallow: /shut\n\nUser-agent: *\nDisallow: /\n", TEXT),
        _UNDER_SHUT,
    ),
    "marked": Case(serving(b"\xef\xbb\xbfUser-agent: *\r\nDisallow: /shut\r\n", TEXT), _UNDER_SHUT),
    "garbage": Case(serving(bytes(range(256)) * 64, TEXT)),
    "markup": Case(serving("<html><body>Welcome! Disallow nothing.</body></html>")),
    "redirected": Case(redirecting(f"http://robots-prefix{DOMAIN}/robots.txt", 301), _UNDER_SHUT),
    "relayed": Case(redirecting(f"http://robots-redirected{DOMAIN}/robots.txt", 302), _UNDER_SHUT),
    # To a page that the other host forbids: must not be followed, so there is no robots.txt.
    "misleading": Case(redirecting(f"http://robots-prefix{DOMAIN}/shut", 302)),
    "looping": Case(redirecting("/robots.txt", 302)),
    "slow": Case(slow(_SHUT, wait=1.0), _UNDER_SHUT),
    "delaying": Case(rules("Crawl-delay: 2", "Disallow: /shut"), _UNDER_SHUT, crawl_delay=2.0),
}


def site(name: str) -> Site:
    """Return the host `robots-NAME.web.test`, whose pages all link to each other."""
    case = CASES[name]
    page = linked(name, *PAGES)
    made = Site(
        f"robots-{name}{DOMAIN}",
        paths={ROBOTS: case.robots} | dict.fromkeys(PAGES, page),
        forbidden=case.forbidden,
        excepted=case.excepted,
        crawl_delay=case.crawl_delay,
    )
    shut = [path for path in PAGES if made.forbids(path)]
    pages = [path for path in PAGES if path not in shut]
    return msgspec.structs.replace(made, pages=pages, shut=shut)
