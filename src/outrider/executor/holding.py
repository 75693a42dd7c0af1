"""Leases kept alive while their visits last (H2, D7): who holds what, and until when."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.executor.visit import Visit
from outrider.frontier import Frontier

SHARE = 3  # a lease is renewed when a third of it has passed


class Holding:
    """What this worker believes of its leases; it errs on the side of having lost one."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._until: dict[Visit, float] = {}

    @property
    def seconds(self) -> float:
        """How long a lease lasts."""
        return self._frontier.settings.lease.seconds

    def _now(self) -> float:
        return self._frontier.clock.now_ms() / 1000

    def begin(self, visits: Iterable[Visit], asked_at: float) -> None:
        """They were claimed; the lease began no sooner than it was asked for."""
        self._until.update({visit: asked_at + visit.lease.lease_for for visit in visits})

    def keep(self, visits: Iterable[Visit]) -> None:
        """They are over, but not finished yet; nobody knows how long they are held."""
        self._until.update({visit: self._until.get(visit, 0.0) for visit in visits})

    def end(self, visit: Visit) -> None:
        """The visit is over."""
        self._until.pop(visit, None)

    def now(self) -> float:
        """The instant to give to `begin`."""
        return self._now()

    async def lasts(self, visit: Visit, seconds: float) -> bool:
        """Whether it is held that much longer, renewed if need be."""
        if self._until.get(visit, 0.0) - self._now() > seconds:
            return True
        return visit in self._until and visit in await self._renew([visit])

    async def renew(self) -> list[Visit]:
        """Renew what has grown old; those that turn out to be lost."""
        old = self._old()
        if not old:
            return []
        kept = await self._renew(old)
        return [visit for visit in old if visit not in kept and visit in self._until]

    @property
    def is_due(self) -> bool:
        """Whether a lease has grown old."""
        return bool(self._old())

    def _old(self) -> list[Visit]:
        soon = self._now() + self.seconds * (1 - 1 / SHARE)
        return [visit for visit, until in self._until.items() if until < soon]

    async def _renew(self, visits: list[Visit]) -> set[Visit]:
        asked_at = self._now()
        kept = await self._frontier.extend([visit.lease for visit in visits])
        held = {visit for visit in visits if visit.lease in kept}
        self._until.update(dict.fromkeys(held & self._until.keys(), asked_at + self.seconds))
        return held
