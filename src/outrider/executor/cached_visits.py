"""Visits answered from the cache: the next pages of a throttled queue, without a request (D5)."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.outcome import Done, Outcome, Throttled
from outrider.executor.visit import Visit
from outrider.fetch.cache import ResponseCache
from outrider.fetch.fetcher import cached_response, done_from_cache
from outrider.frontier import Frontier


class CachedVisits:
    """Claims tasks of throttled queues whose pages are cached, and ends their visits at once."""

    def __init__(self, frontier: Frontier, cache: ResponseCache) -> None:
        self._frontier = frontier
        self._cache = cache

    async def __call__(self, ended: Sequence[Visit]) -> list[Visit]:
        """Return finished visits of the cached pages of every queue that was just throttled."""
        keys = dict.fromkeys(visit.lease.key for visit in ended if _was_throttled(visit.outcome))
        return [visit for key in keys for visit in await self._visits_of(key)]

    async def _visits_of(self, key: str) -> list[Visit]:
        now = self._frontier.clock.now_ms() / 1000
        coming = await self._frontier.upcoming(key)
        found = {name: cached_response(self._cache, name, now) for name, _ in coming}
        names = [name for name, response in found.items() if response is not None]
        leases = await self._frontier.claim_named(names) if names else []
        visits = []
        for lease in leases:
            response, visit = found[lease.fingerprint], Visit(lease)
            if response is not None:
                visit.outcome = done_from_cache(visit, response, None)
                visits.append(visit)
        return visits


def _was_throttled(outcome: Outcome | None) -> bool:
    is_throttled = isinstance(outcome, Throttled)
    return is_throttled or (isinstance(outcome, Done) and outcome.throttled is not None)
