"""The description of a test web: sites by host name, each with its behaviours. No state, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from outrider.testing.web.messages import Answer, Asked, Behaviour, Reply

NOWHERE: Final = Reply(b"no such page\n", 404, "text/plain")
TRACKED: Final = ("utm_", "fbclid=")  # tracking parameters that the test pages add to URLs
MISDIRECTED: Final = Reply(b"no such host\n", 421, "text/plain")


class Site(msgspec.Struct, frozen=True):
    """One host. The first answer wins: of `first`, then of the path's behaviour, then of `rest`."""

    name: str
    paths: Mapping[str, Behaviour] = {}
    first: tuple[Behaviour, ...] = ()
    rest: tuple[Behaviour, ...] = ()
    pages: Iterable[str] = ()  # targets that a complete crawl fetches
    shut: Iterable[str] = ()  # targets it finds and must not fetch, by robots.txt
    forbidden: tuple[str, ...] = ()  # path prefixes that robots.txt forbids
    excepted: tuple[str, ...] = ()  # path prefixes below them that it allows
    crawl_delay: float | None = None

    def answer(self, asked: Asked) -> Answer:
        """Return the answer to a request."""
        for behaviour in self.first:
            if (answer := behaviour(asked)) is not None:
                return answer
        known = self.paths.get(asked.path)
        for behaviour in self.rest if known is None else (known, *self.rest):
            if (answer := behaviour(asked)) is not None:
                return answer
        return NOWHERE

    def forbids(self, target: str) -> bool:
        """Whether robots.txt forbids a target."""
        return target.startswith(self.forbidden) and not target.startswith(self.excepted)


class Web:
    """All sites of a test web."""

    def __init__(
        self,
        sites: Iterable[Site],
        *,
        refusing: Sequence[str] = (),
        tls: Sequence[str] = (),
        port: int = 0,
        at: Callable[[int], Web] | None = None,
    ) -> None:
        self.sites = {site.name: site for site in sites}
        self.refusing = tuple(refusing)  # hosts that refuse every connection
        self.tls = tuple(tls)  # hosts reached by https only, with a self-signed certificate
        self._at = at
        self._port = f":{port}" if port else ""

    @property
    def is_addressed(self) -> bool:
        """Whether hosts are addresses of this machine on one port, which is in every URL."""
        return self._at is not None

    def answer(self, asked: Asked) -> Answer:
        """Return the answer to a request."""
        site = self.sites.get(asked.host)
        return MISDIRECTED if site is None else site.answer(asked)

    def at(self, port: int) -> Web:
        """Return this web as served on a port."""
        return self if self._at is None else self._at(port)

    def url(self, host: str, target: str) -> str:
        """Return the URL of a target of a host."""
        scheme = "https" if host in self.tls else "http"
        return f"{scheme}://{host}{self._port}{target}"

    def seeds(self) -> list[str]:
        """Return the root URL of every host."""
        return [self.url(host, "/") for host in self.sites]

    def page(self, host: str, target: str) -> str:
        """Return the URL of a target, without tracking parameters."""
        path, _, query = target.partition("?")
        is_disguised = all(part.startswith(TRACKED) for part in query.split("&"))
        return self.url(host, path if is_disguised else target)

    def urls(self) -> Iterator[str]:
        """Yield every page that a complete crawl fetches, once."""
        for site in self.sites.values():
            yield from (self.url(site.name, page) for page in site.pages)

    def disallowed(self) -> Iterator[str]:
        """Yield every page that a complete crawl finds and must not fetch."""
        for site in self.sites.values():
            yield from (self.url(site.name, page) for page in site.shut)

    def settings(self, port: int, *, closed: int = 1, tls: int = 0) -> dict[str, Any]:
        """Return the settings with which a crawler finds this web behind those ports."""
        if self.is_addressed:
            return {"url": {"allow_private": True}}
        routes = {f".{_domain(host)}": f"127.0.0.1:{port}" for host in self.sites}
        routes |= dict.fromkeys(self.refusing, f"127.0.0.1:{closed}")
        routes |= dict.fromkeys(self.tls, f"127.0.0.1:{tls}")
        return {"fetch": {"connect_to": routes}}


def _domain(host: str) -> str:
    return host.partition(".")[2]
