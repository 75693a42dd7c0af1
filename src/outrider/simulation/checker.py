"""Sampled checks of a simulated crawl: some claims are compared with all queue views."""

from __future__ import annotations

import random
from typing import Final

from outrider.clock import Clock
from outrider.store.protocol import ClaimRequest, ClaimResult, FullStore
from outrider.testing.invariants import InvariantChecker

# Shares of claims after which every queue is read: of those that chose one task, of others.
SAMPLED_SINGLE_CLAIMS: Final = 0.25
SAMPLED_CLAIMS: Final = 0.05


class ClaimSampler:
    """Reads all queues after a random share of the claims, and compares them with the claim."""

    def __init__(
        self, store: FullStore, clock: Clock, checker: InvariantChecker, dice: random.Random
    ) -> None:
        self._store = store
        self._clock = clock
        self._checker = checker
        self._dice = dice

    async def claimed(self, request: ClaimRequest, result: ClaimResult) -> None:
        """Compare a claim with the queues right after it, or skip it."""
        chose_one = request.limit == 1 and result.leases
        share = SAMPLED_SINGLE_CLAIMS if chose_one else SAMPLED_CLAIMS
        if self._checker.visits is None or self._dice.random() >= share:
            return
        page, now = await self._store.queues(request.crawl), self._clock.now_ms()
        record = self._checker.leases.crawl(request.crawl)
        self._checker.visits.check_claim(request, result, page.items, record, now)
