"""Cached visits: claims the next pages of throttled queues whose responses are cached (D5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from outrider.core.outcome import Done, Outcome, Throttled
from outrider.core.policy.politeness import throttle_snooze
from outrider.core.task import Lease
from outrider.errors import StoreUnavailable
from outrider.executor.visit import Visit
from outrider.fetch.cache import ResponseCache
from outrider.fetch.fetcher import cached_response
from outrider.fetch.response import Response
from outrider.frontier import Frontier
from outrider.store.protocol import MAX_FINGERPRINTS


class CachedClaim(NamedTuple):
    """Leases by name, and the cached responses of their tasks by fingerprint."""

    leases: list[Lease]
    responses: dict[bytes, Response]


class _Throttle(msgspec.Struct):
    until: float  # seconds since 1970: its queue is throttled until then at least
    tried: set[bytes]  # tasks that were claimed for it


class CachedVisits:
    """The queues that were just throttled, and the claims of their cached pages.

    `is_fetched` tells whether tasks of a type are fetched: others have handlers that know nothing
    of cached responses and would ask the host.
    """

    def __init__(
        self,
        frontier: Frontier,
        cache: ResponseCache,
        is_fetched: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._frontier = frontier
        self._cache = cache
        self._is_fetched = is_fetched
        self._throttles: dict[str, _Throttle] = {}  # by key

    def ended(self, visits: Sequence[Visit]) -> None:
        """Note which queues were throttled by visits that are finished."""
        if self._frontier.settings.retry.every_failure:  # a throttled visit fails its task alone
            return
        for visit in visits:
            retry_after = _retry_after(visit.outcome)
            if retry_after is not None:
                until = self._now() + throttle_snooze(1, retry_after, 0.0)
                self._throttles[visit.lease.key] = _Throttle(until, set())

    async def claim(self, limit: int) -> CachedClaim:
        """Claim so many cached pages of throttled queues at most, each once per throttle."""
        claim = CachedClaim([], {})
        with suppress(StoreUnavailable):  # they are visited later
            while self._throttles and len(claim.leases) < limit:
                await self._claim_of_next(claim, limit - len(claim.leases))
        return claim

    async def _claim_of_next(self, claim: CachedClaim, limit: int) -> None:
        """Claim pages of the first throttled queue; forget the queue if it has no more."""
        key, throttle = next(iter(self._throttles.items()))
        found = await self._usable(key, throttle, limit)
        throttle.tried.update(found)
        if len(found) < limit and self._throttles.get(key) is throttle:
            del self._throttles[key]
        leases = await self._frontier.claim_named(found) if found else []
        fetched = [lease for lease in leases if self._is_fetched(lease.type)]
        claim.leases.extend(fetched)
        claim.responses.update(found)
        if len(fetched) < len(leases):
            await self._frontier.release([one for one in leases if one not in fetched])

    async def _usable(self, key: str, throttle: _Throttle, limit: int) -> dict[bytes, Response]:
        """Return the usable responses of a throttled queue's next tasks by fingerprint."""
        limit, now = min(limit, MAX_FINGERPRINTS - len(throttle.tried)), self._now()
        found: dict[bytes, Response] = {}
        if now >= throttle.until or not limit:
            return found
        for name, _ in await self._frontier.upcoming(key):
            response = None if name in throttle.tried else cached_response(self._cache, name, now)
            if response is not None:
                found[name] = response
            if len(found) == limit:
                break
        return found

    def _now(self) -> float:
        return self._frontier.clock.now_ms() / 1000


def _retry_after(outcome: Outcome | None) -> float | None:
    """Return the seconds of Retry-After, or 0, if the host throttled; None: it did not."""
    if isinstance(outcome, Throttled):
        return outcome.retry_after or 0.0
    return outcome.throttled if isinstance(outcome, Done) else None
