"""While a host throttles us, its next pages are answered from the cache (D5), without asking."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.outcome import Done, Outcome, Throttled
from outrider.executor.visit import Visit
from outrider.fetch.cache import ResponseCache
from outrider.fetch.fetcher import cached_response, done_from_cache
from outrider.frontier import Frontier


class Spares:
    """Visits of throttled queues that end as soon as they begin."""

    def __init__(self, frontier: Frontier, cache: ResponseCache) -> None:
        self._frontier = frontier
        self._cache = cache

    async def __call__(self, ended: Sequence[Visit]) -> list[Visit]:
        """For every queue that was throttled just now, what the cache has of its next pages."""
        keys = dict.fromkeys(visit.lease.key for visit in ended if _was_throttled(visit.outcome))
        return [visit for key in keys for visit in await self._of(key)]

    async def _of(self, key: str) -> list[Visit]:
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
