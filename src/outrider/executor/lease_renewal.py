"""Lease renewal: until when each running visit holds its lease, and its extension (H2, D7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from outrider.executor.visit import Visit
from outrider.frontier import Frontier

RENEW_SHARE: Final = 3  # a lease is renewed when a third of it has passed


class LeaseRenewer:
    """The leases of one worker with their deadlines; a deadline is never assumed too late."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._until: dict[Visit, float] = {}

    @property
    def seconds(self) -> float:
        """How long a lease lasts."""
        return self._frontier.settings.lease.seconds

    def now(self) -> float:
        """Seconds of the frontier's clock, as `add` takes them."""
        return self._frontier.clock.now_ms() / 1000

    def add(self, visits: Iterable[Visit], claimed_at: float) -> None:
        """Renew the leases of these visits; they began no sooner than they were claimed."""
        self._until.update({visit: claimed_at + visit.lease.lease_for for visit in visits})

    def add_unwritten(self, visits: Iterable[Visit]) -> None:
        """Renew leases of visits that ended and wait to be written; the deadlines are unknown."""
        self._until.update({visit: self._until.get(visit, 0.0) for visit in visits})

    def remove(self, visit: Visit) -> None:
        """Renew this visit's lease no more."""
        self._until.pop(visit, None)

    async def lasts(self, visit: Visit, seconds: float) -> bool:
        """Return whether a lease lasts that much longer, after renewing it if necessary."""
        if self._until.get(visit, 0.0) - self.now() > seconds:
            return True
        return visit in self._until and visit in await self._extend([visit])

    async def renew(self) -> list[Visit]:
        """Renew the leases that are due for it; return the visits that lost theirs."""
        due = self._due()
        if not due:
            return []
        kept = await self._extend(due)
        return [visit for visit in due if visit not in kept and visit in self._until]

    @property
    def is_due(self) -> bool:
        """Whether a lease is due for renewal."""
        return bool(self._due())

    def _due(self) -> list[Visit]:
        soon = self.now() + self.seconds * (1 - 1 / RENEW_SHARE)
        return [visit for visit, until in self._until.items() if until < soon]

    async def _extend(self, visits: list[Visit]) -> set[Visit]:
        asked_at = self.now()
        kept = await self._frontier.extend(
            [visit.lease for visit in visits], lease_for=self.seconds
        )
        held = {visit for visit in visits if visit.lease in kept}
        self._until.update(dict.fromkeys(held & self._until.keys(), asked_at + self.seconds))
        return held
