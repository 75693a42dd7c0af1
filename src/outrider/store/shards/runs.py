"""The status of a crawl over several shards: kept at home, told to the others (I1, I2, I4).

No shard ever closes a run. Whoever finds nothing to lend reads all shards twice; if nothing was
open and nothing moved, there was an instant at which nothing was open anywhere, and home closes the
run by compare-and-set. Whoever brings work looks afterwards whether home sleeps, and whoever closed
a run looks once more whether work came meanwhile: one of the two sees the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.states import CrawlStatus
from outrider.store.shards.footing import Footing
from outrider.store.shards.shard import HOME, Pulse, Shard, together

RUNNING, FINISHED = CrawlStatus.RUNNING, CrawlStatus.FINISHED


class Runs(Footing):
    """How a crawl runs, pauses and ends."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        super().__init__(shards)
        self._last: dict[str, Pulse] = {}

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator"
    ) -> CrawlStatus:
        """See `protocol.Admin`: home first, so a crawl is what home says from then on."""
        now = await self._home.set_status(crawl, status, reason)
        await self._tell(crawl, now, await self._pulses(crawl))
        return now

    async def _standing(self, crawl: str) -> CrawlStatus:
        """What home says; limits are looked at, and what was left half done is put right."""
        home = await self._pulse(crawl)
        if home.status is RUNNING and not (home.is_limited and self._others):
            return RUNNING  # alone, home looks at its limits itself
        pulses = await self._pulses(crawl)
        whole, status = together(pulses), home.status
        if status is FINISHED and (whole.open or whole.leased):
            await self._home.work(crawl)
            status = RUNNING
        if status is RUNNING:
            status = await self._home.reckon(crawl, whole, None)
        await self._tell(crawl, status, pulses)
        return status

    async def _pulse(self, crawl: str) -> Pulse:
        """Home's; what it says of limits is remembered for those who finish."""
        self._last[crawl] = home = await self._home.pulse(crawl)
        return home

    async def _limits(self, crawl: str) -> Pulse:
        """Home's pulse as of the last claim or add, for what seldom changes."""
        return self._last.get(crawl) or await self._pulse(crawl)

    async def _tell(self, crawl: str, status: CrawlStatus, pulses: Sequence[Pulse]) -> None:
        """The others are told of a pause or the end of one, and never that a run is over."""
        wanted = RUNNING if status is FINISHED else status
        await self._all(
            shard.set_status(crawl, wanted)
            for shard, pulse in zip(self._others, pulses[HOME + 1 :], strict=True)
            if pulse.status is not wanted
        )

    async def _close(self, crawl: str) -> tuple[CrawlStatus, bool]:
        """I2: close the run if it is over; the status, and whether it is worth asking again."""
        first = await self._pulses(crawl)
        whole = together(first)
        if not whole.is_over:
            return RUNNING, False
        second = await self._pulses(crawl)
        if not together(second).is_over or _moves(first) != _moves(second):
            return RUNNING, True
        status = await self._home.reckon(crawl, whole, second[HOME].moves)
        if status is FINISHED:
            return await self._standing(crawl), False
        await self._tell(crawl, status, second)
        return status, status is RUNNING

    async def _wake_home(self, crawl: str, home: Pulse) -> None:
        """I2: a task came to some shard; home is told, if it slept before."""
        if home.is_idle:
            await self._home.work(crawl)

    async def _heed(self, crawl: str) -> None:
        """I2: queues may have returned with what is pending in them."""
        home = await self._pulse(crawl)
        if home.is_idle and together(await self._pulses(crawl)).open:
            await self._home.work(crawl)


def _moves(pulses: Sequence[Pulse]) -> list[int]:
    return [pulse.moves for pulse in pulses]
