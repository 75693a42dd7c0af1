"""The requests of one visit: each within its lease, with the host's delay between two (D7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeAlias

from outrider.clock import Clock
from outrider.core.outcome import Again, Failed
from outrider.core.policy.politeness import delay_after, leases_pace_requests, pace
from outrider.core.task import Lease, Link
from outrider.fetch.response import RequestFailure, Response

# (link, lease it was found under) → why it would be refused; None: it is admissible.
RefusalCheck: TypeAlias = Callable[[Link, Lease], Awaitable[str | None]]

MAX_PACED_QUEUES: Final = 10_000  # queues whose next request time is kept
MAX_REDIRECTS_KEPT: Final = 10_000
REDIRECT_KEPT_FOR: Final = 3600.0  # seconds
ONE_REQUEST: Final = "pace: one request per visit"  # the reason of such a visit's end
MAX_RETURNS: Final = 8  # visits of a task that may end so, were each on another worker
LEASE_SHARE: Final = 0.75  # the part of a short lease that a request may take
LEASE_LOST: Final = Failed("lease: lost before the request was sent")


class Visit(Protocol):
    """What a visit of the executor offers its handler."""

    lease: Lease
    links: list[Link]
    page: Any
    cached: Response | None
    requests: int

    async def holds(self, seconds: float) -> bool:
        """Return whether the lease lasts that much longer."""
        ...

    def parked(self) -> AbstractAsyncContextManager[None]:
        """Wait without holding a slot."""
        ...


class RequestClient(Protocol):
    """An HTTP client."""

    async def get(
        self, url: str, *, headers: Mapping[str, str] = ..., within: float | None = ...
    ) -> Response | RequestFailure:
        """Send one request and return its result."""
        ...


class Pacing:
    """Sends requests, and waits between them."""

    def __init__(
        self, client: RequestClient, clock: Clock, dice: Callable[[], float], limit: float
    ) -> None:
        self._client = client
        self._clock = clock
        self._dice = dice
        self._limit = limit  # seconds one request may take
        self._next_at: dict[str, float] = {}  # key → when its next request may be sent
        self._redirects: dict[str, Response] = {}  # URL → the redirect to follow in another visit

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._clock.now_ms() / 1000

    async def get(
        self, visit: Visit, url: str, headers: Mapping[str, str] | None = None
    ) -> Response | RequestFailure:
        """Send one request, unless the lease could end before it does."""
        await self._keep_pace(visit)
        lease_for = visit.lease.lease_for
        is_short = self._limit >= lease_for  # a default time limit is shortened to fit the lease
        limit = lease_for * LEASE_SHARE if is_short else self._limit
        if not await visit.holds(limit):
            return LEASE_LOST
        visit.requests += 1
        if is_short:
            return await self._client.get(url, headers=headers or {}, within=limit)
        return await self._client.get(url, headers=headers or {})

    async def _keep_pace(self, visit: Visit) -> None:
        """Wait for the queue's turn under `visits_per_second` (D1); no slot is held meanwhile.

        Leases are that far apart already, but their requests need not be: a visit may ask for
        robots.txt or follow a redirect first, and all visits of a host wait for its robots.txt.
        """
        between = pace(visit.lease.rules.politeness)
        if not between:
            return
        now, key = self.now(), visit.lease.key
        if len(self._next_at) >= MAX_PACED_QUEUES:
            self._next_at = {key: at for key, at in self._next_at.items() if at > now}
        sent_at = max(now, self._next_at.get(key, now))
        self._next_at[key] = sent_at + between
        if sent_at > now:
            async with visit.parked():
                await self._clock.sleep(sent_at - now)

    def kept_redirect(self, url: str) -> Response | None:
        """Return the redirect that an earlier visit got from a URL and left to be followed."""
        kept = self._redirects.get(url)
        return None if kept is None or self.now() - kept.at > REDIRECT_KEPT_FOR else kept

    def keep_redirect(self, url: str, redirect: Response) -> None:
        """Keep a redirect for the next visit of its task."""
        self._redirects.pop(url, None)
        if len(self._redirects) >= MAX_REDIRECTS_KEPT:
            del self._redirects[next(iter(self._redirects))]
        self._redirects[url] = redirect

    def other_visit(
        self, visit: Visit, last: Response | None = None, crawl_delay: float | None = None
    ) -> Again | None:
        """Return the outcome that leaves the next request to another visit; None: this may send it.

        A task that came back often is visited to its end: each time another worker may have got it,
        which knows nothing of the requests before.
        """
        lease = visit.lease
        known = lease.manners.crawl_delay
        wanted = known if crawl_delay is None else crawl_delay
        is_spaced = leases_pace_requests(lease.rules.politeness, max(known, wanted))
        if not is_spaced or lease.attempt - lease.failures > MAX_RETURNS:
            return None
        # Only a visit that counts tells the queue its Crawl-delay.
        counts = visit.requests > 0 or wanted > known
        seconds = last.seconds if last else 0.0
        return Again(ONE_REQUEST, seconds, visited=counts, crawl_delay=crawl_delay)

    async def pause(
        self,
        visit: Visit,
        last: Response | None,
        crawl_delay: float | None,
        *,
        must_go_on: bool = False,
    ) -> Again | None:
        """Wait for the queue's delay between two requests of one visit; no slot is held.

        `last` is the response before; None: another visit made the request, at an unknown time.
        Where only leases keep requests apart, return the outcome to end with instead; a visit
        that `must_go_on` waits, because the next one would be no further.
        """
        if last is not None and not visit.requests:  # a redirect that was kept
            return None
        again = None if must_go_on else self.other_visit(visit, last, crawl_delay)
        if again is not None:
            return again
        lease = visit.lease
        known = lease.manners.crawl_delay
        delay = delay_after(
            lease.rules.politeness,
            last.seconds if last else 0.0,
            len(last.body) if last else 0,
            known if crawl_delay is None else crawl_delay,
            lease.manners.level,
            self._dice(),
        )
        async with visit.parked():
            await self._clock.sleep(delay)
        return None
