"""A web: sites by host name, each a list of behaviours. It holds no socket and no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from outrider.testing.web.messages import Answer, Asked, Behaviour, Reply

NOWHERE: Final = Reply(b"no such page\n", 404, "text/plain")
TRACKED: Final = ("utm_", "fbclid=")  # what our pages add to URLs to disguise them
MISDIRECTED: Final = Reply(b"no such host\n", 421, "text/plain")


class Site(msgspec.Struct, frozen=True):
    """One host. The first to answer is heard: `first`, then the path's behaviour, then `rest`."""

    name: str
    paths: Mapping[str, Behaviour] = {}
    first: tuple[Behaviour, ...] = ()
    rest: tuple[Behaviour, ...] = ()
    pages: Iterable[str] = ()  # targets that a perfect crawl fetches
    shut: Iterable[str] = ()  # targets it finds and leaves alone, by robots.txt
    forbidden: tuple[str, ...] = ()  # beginnings of paths that robots.txt forbids
    excepted: tuple[str, ...] = ()  # and of those among them that it allows
    crawl_delay: float | None = None

    def answer(self, asked: Asked) -> Answer:
        """What is said to a request."""
        for behaviour in self.first:
            if (answer := behaviour(asked)) is not None:
                return answer
        known = self.paths.get(asked.path)
        for behaviour in self.rest if known is None else (known, *self.rest):
            if (answer := behaviour(asked)) is not None:
                return answer
        return NOWHERE

    def forbids(self, target: str) -> bool:
        """Whether robots.txt asks visitors to leave it alone."""
        return target.startswith(self.forbidden) and not target.startswith(self.excepted)


class Web:
    """All sites there are."""

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
        self.tls = tuple(tls)  # hosts reached by https alone, with a certificate nobody signed
        self._at = at
        self._port = f":{port}" if port else ""

    @property
    def is_addressed(self) -> bool:
        """Whether hosts are addresses of this machine on one port, which is in every URL."""
        return self._at is not None

    def answer(self, asked: Asked) -> Answer:
        """What is said to a request."""
        site = self.sites.get(asked.host)
        return MISDIRECTED if site is None else site.answer(asked)

    def at(self, port: int) -> Web:
        """The same web once its port is known."""
        return self if self._at is None else self._at(port)

    def url(self, host: str, target: str) -> str:
        """Where a target of a host is."""
        scheme = "https" if host in self.tls else "http"
        return f"{scheme}://{host}{self._port}{target}"

    def seeds(self) -> list[str]:
        """The root of every host."""
        return [self.url(host, "/") for host in self.sites]

    def page(self, host: str, target: str) -> str:
        """The URL of `urls` that a target was another spelling of, or its own."""
        path, _, query = target.partition("?")
        is_disguised = all(part.startswith(TRACKED) for part in query.split("&"))
        return self.url(host, path if is_disguised else target)

    def urls(self) -> Iterator[str]:
        """Every page that a perfect crawl fetches, once."""
        for site in self.sites.values():
            yield from (self.url(site.name, page) for page in site.pages)

    def disallowed(self) -> Iterator[str]:
        """Every page that it finds and leaves alone."""
        for site in self.sites.values():
            yield from (self.url(site.name, page) for page in site.shut)

    def settings(self, port: int, *, closed: int = 1, tls: int = 0) -> dict[str, Any]:
        """What a crawler is told so that it finds this web behind those ports."""
        if self.is_addressed:
            return {"url": {"allow_private": True}}
        routes = {f".{_domain(host)}": f"127.0.0.1:{port}" for host in self.sites}
        routes |= dict.fromkeys(self.refusing, f"127.0.0.1:{closed}")
        routes |= dict.fromkeys(self.tls, f"127.0.0.1:{tls}")
        return {"fetch": {"connect_to": routes}}


def _domain(host: str) -> str:
    return host.partition(".")[2]
