"""What both clients are made of: who we say we are, whom we may speak to, how much we read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self

from outrider.clock import Clock, SystemClock
from outrider.fetch.body import ACCEPTED
from outrider.fetch.dns import UNANSWERED, Lookup, Resolver
from outrider.fetch.guard import Guard
from outrider.fetch.local_faults import EMFILE, NETWORK, PORTS, RESOLVER, is_local, local_fault
from outrider.fetch.network import Network
from outrider.fetch.reasons import Trouble, tell
from outrider.fetch.targets import Targets
from outrider.settings.worker_schema import FetchSettings

ACCEPT: Final = (
    "text/html,application/xhtml+xml,application/atom+xml,application/rss+xml,"
    "application/xml;q=0.9,*/*;q=0.8"
)


NO_ROUTE: Final = "connect: no route"
# What a host's reasons look like when it is the network of this machine that is gone.
_SUSPECT: Final = (
    "dns:",
    NO_ROUTE,
    "connect: time limit",
    "connect: failed",
    "time limit:",
    "cut:",
)


class Getting(ABC):
    """To be closed in the end, or opened with `async with`.

    `keep_packed` keeps compressed bodies as they were sent, beside the unpacked.
    """

    def __init__(
        self,
        settings: FetchSettings,
        *,
        allow_private: bool = False,
        keep_packed: bool = False,
        _clock: Clock | None = None,
        _lookup: Lookup | None = None,
        _network: Network | None = None,
    ) -> None:
        self._settings = settings
        self._network = _network or Network()
        self._keep_packed = keep_packed
        self._clock = _clock or SystemClock()
        self._guard = Guard(allow_private=allow_private)
        self._resolver = Resolver(
            self._guard,
            Targets(settings.connect_to),
            max_age=settings.dns_max_age,
            lookup=_lookup,
        )
        self._headers = {
            "User-Agent": user_agent(settings),
            "Accept": ACCEPT,
            "Accept-Encoding": ACCEPTED,
        }

    def _most(self, asked: int | None) -> int:
        """Bytes of a body, unpacked."""
        limit = self._settings.max_body
        return limit if asked is None else min(asked, limit)

    async def _trouble(self, reason: str, seconds: float, host: str) -> Trouble:
        """A reason as the outcome it is, or a `LocalFault` if this machine is at fault."""
        judged = await self._judged(reason, host)
        if not is_local(judged):
            return tell(judged, seconds)
        if judged == EMFILE:
            self.close_idle()
        raise local_fault(judged)

    async def _judged(self, reason: str, host: str) -> str:
        """The same reason, unless it is another's fault than it seems."""
        addresses = self._resolver.known(host)
        if reason == PORTS and not self._network.leads_to(addresses):
            reason = NO_ROUTE  # of that family this machine has no address at all
        if reason.startswith(_SUSPECT) and self._network.is_gone(addresses):
            return NETWORK
        if reason in UNANSWERED and await self._resolver.is_out(host):
            return RESOLVER
        return reason

    @abstractmethod
    def close_idle(self) -> None:
        """Close connections that are kept for reuse: descriptors are short."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections; requests under way fail."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def user_agent(settings: FetchSettings) -> str:
    """What hosts read: the product as set, or with our version and the contact."""
    product = settings.user_agent
    if "/" in product:
        return product
    contact = f" (+{settings.contact})" if settings.contact else ""
    return f"{product}/{version('outrider')}{contact}"
