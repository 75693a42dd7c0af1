"""The monitor of one crawl: takes sample after sample, and reports when none can be had."""

from __future__ import annotations

from typing import Final

import msgspec

from outrider.errors import OutriderError, StoreUnavailable
from outrider.monitoring.connection import CrawlConnection, Presence
from outrider.monitoring.sampler import Sample, Sampler, SampleRequest

COUNTERS_ONLY: Final = SampleRequest()


class Observation(msgspec.Struct, frozen=True):
    """The result of one poll; a sample that is not new is the last one there was."""

    presence: Presence
    sample: Sample
    is_new: bool = True
    problem: str = ""


class CrawlMonitor:
    """Polls a crawl through restarts and outages; only the first poll must succeed."""

    def __init__(self, connection: CrawlConnection) -> None:
        self.connection = connection
        self.sampler = Sampler()
        self._last: Sample | None = None

    async def start(self, request: SampleRequest = COUNTERS_ONLY) -> Observation:
        """Take the first sample; raises what prevents it, except that the crawl just ended."""
        try:
            return await self._poll(request, force=True)
        except StoreUnavailable:
            if self.connection.is_served():
                raise
            return await self._poll(request, force=True)

    async def poll(self, request: SampleRequest = COUNTERS_ONLY) -> Observation:
        """Take the next sample; if that fails, return the last one and the problem."""
        try:
            return await self._poll(request, force=self._lacks(request))
        except (OutriderError, OSError) as error:
            if self._last is None:
                raise
            return Observation(Presence.LOST, self._last, is_new=False, problem=str(error))

    async def _poll(self, request: SampleRequest, *, force: bool) -> Observation:
        sample = await self.connection.call_if_changed(
            lambda frontier: self.sampler.read(frontier, request), force=force
        )
        last = self._last = sample or self._last
        assert last is not None  # noqa: S101 - the first poll is forced
        return Observation(self.connection.presence, last, is_new=sample is not None)

    def _lacks(self, request: SampleRequest) -> bool:
        if self._last is None:
            return True
        if request.metrics and self._last.metrics is None:
            return True
        dead = self._last.crawl.dead
        return request.dead_letters and not self.sampler.dead_letters.is_complete(dead)
