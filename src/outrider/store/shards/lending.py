"""Tasks go out from one shard after the other, and come back to where they came from (C, H).

Order, lanes and the inactive FIFO hold within a shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from zlib import crc32

import msgspec

from outrider.core.pick import Streak
from outrider.core.task import Lease, LeaseId
from outrider.errors import StoreUnavailable
from outrider.store.protocol import ClaimRequest, ClaimResult
from outrider.store.shards.adding import Adding
from outrider.store.shards.runs import FINISHED, RUNNING
from outrider.store.shards.shard import HOME, Shard, joined, parted

replace = msgspec.structs.replace


class Round:
    """One claim on its way from shard to shard."""

    def __init__(self, request: ClaimRequest) -> None:
        self.request = request
        self.leases: list[Lease] = []
        self.streak: Streak = request.streak
        self.wakes: list[float | None] = []
        self.failure: StoreUnavailable | None = None
        self.status = RUNNING

    @property
    def is_full(self) -> bool:
        """Whether nobody else need be asked."""
        return 0 < self.request.limit <= len(self.leases)

    def left(self) -> ClaimRequest:
        """What the next shard is asked for."""
        limit = self.request.limit - len(self.leases)
        return replace(self.request, limit=limit, streak=self.streak)

    def answer(self) -> ClaimResult:
        """C6: early rather than late, as long as somebody did not answer."""
        wake_in: float | None = 0.0
        if self.status is not RUNNING:
            wake_in = None
        elif len(self.leases) < self.request.limit and self.failure is None:
            wake_in = min((wake for wake in self.wakes if wake is not None), default=None)
        return ClaimResult(self.leases, wake_in, self.status, self.streak)


class Lending(Adding):
    """How tasks go out and come back."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards)
        self._turns = count()

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """See `protocol.Store`: shards take turns to be asked first."""
        tour = Round(request)
        tour.status = await self._standing(request.crawl)
        if tour.status is FINISHED:
            return tour.answer()
        for number in self._tour_of(request.worker):
            if tour.is_full:
                break
            await self._visit(tour, number)
        if tour.failure is not None and not tour.leases:
            raise tour.failure
        if tour.status is RUNNING and not (tour.leases or request.fingerprints or any(tour.wakes)):
            await self._end(tour)
        return tour.answer()

    def _tour_of(self, worker: str) -> Iterator[int]:
        """Every worker begins elsewhere, and one further at each claim."""
        shards = len(self._shards)
        first = crc32(worker.encode()) + next(self._turns)
        return ((first + step) % shards for step in range(shards))

    async def _visit(self, tour: Round, number: int) -> None:
        """What one shard lends; one that does not answer keeps nothing from the others."""
        try:
            claimed = await self._claim_at(number, tour)
        except StoreUnavailable as error:
            tour.failure = error
            return
        tour.leases += [
            replace(lease, store=self.id, task=joined(number, lease.task))
            for lease in claimed.leases
        ]
        tour.streak = claimed.streak
        tour.wakes.append(claimed.wake_in)

    async def _claim_at(self, number: int, tour: Round) -> ClaimResult:
        shard, request = self._shards[number], tour.left()
        claimed = await shard.claim(request, closes=False)
        if claimed.status is tour.status or tour.status is not RUNNING:
            return claimed
        tour.status = await self._standing(request.crawl)  # it was told something we did not hear
        if tour.status is RUNNING and number != HOME:
            await shard.set_status(request.crawl, RUNNING)
            return await shard.claim(request, closes=False)
        return claimed

    async def _end(self, tour: Round) -> None:
        tour.status, again = await self._close(tour.request.crawl)
        if again:
            tour.wakes.append(0.0)

    # ---- what happens to leases

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """See `protocol.Store`."""
        parts = self._by_shard(leases)
        kept = await self._all(
            self._shards[number].extend(part, lease_for=lease_for) for number, part in parts.items()
        )
        return _united(parts, kept)

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """See `protocol.Store`."""
        parts = self._by_shard(leases)
        freed = await self._all(
            self._shards[number].release(part) for number, part in parts.items()
        )
        return _united(parts, freed)

    async def expire(self, *, limit: int) -> int:
        """See `protocol.Store`: the oldest first, within a shard."""
        taken = 0
        for shard in self._shards:
            if taken < limit:
                taken += await shard.expire(limit=limit - taken)
        return taken

    def _by_shard(self, leases: Sequence[LeaseId]) -> dict[int, list[LeaseId]]:
        parts: dict[int, list[LeaseId]] = {}
        for lease in leases:
            number, local = parted(lease.task)
            if 0 <= number < len(self._shards):
                parts.setdefault(number, []).append(lease._replace(task=local))
        return parts


def _united(parts: dict[int, list[LeaseId]], answers: Sequence[set[LeaseId]]) -> set[LeaseId]:
    pairs = zip(parts, answers, strict=True)
    return {lease._replace(task=joined(n, lease.task)) for n, part in pairs for lease in part}
