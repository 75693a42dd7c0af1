"""Look after look at a crawl: what is seen, by whose word, and what is wrong if nothing is."""

from __future__ import annotations

from typing import Final

import msgspec

from outrider.cli.watch_reach import Presence, Reach
from outrider.cli.watch_sample import Asked, Sample, Sampler
from outrider.errors import OutriderError, StoreUnavailable

NOTHING_MORE: Final = Asked()


class Seen(msgspec.Struct, frozen=True):
    """What a look came to; a sample that is not new is the last there was."""

    presence: Presence
    sample: Sample
    is_new: bool = True
    trouble: str = ""


class Watch:
    """Goes on through whatever happens to the crawl; only the first look must succeed."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.sampler = Sampler()
        self._last: Sample | None = None

    async def begin(self, asked: Asked = NOTHING_MORE) -> Seen:
        """The first look; whatever is in its way is raised, but for a crawl that ends meanwhile."""
        try:
            return await self._look(asked, anyway=True)
        except StoreUnavailable:
            if self.reach.is_served():
                raise
            return await self._look(asked, anyway=True)

    async def look(self, asked: Asked = NOTHING_MORE) -> Seen:
        """The next look; if nothing can be seen, the last sample and why."""
        try:
            return await self._look(asked, anyway=self._lacks(asked))
        except (OutriderError, OSError) as error:
            if self._last is None:
                raise
            return Seen(Presence.LOST, self._last, is_new=False, trouble=str(error))

    async def _look(self, asked: Asked, *, anyway: bool) -> Seen:
        sample = await self.reach.look(
            lambda frontier: self.sampler.read(frontier, asked), anyway=anyway
        )
        last = self._last = sample or self._last
        assert last is not None  # noqa: S101 - the first look is one anyway
        return Seen(self.reach.presence, last, is_new=sample is not None)

    def _lacks(self, asked: Asked) -> bool:
        if self._last is None:
            return True
        return asked.letters and not self.sampler.letters.is_complete(self._last.crawl.dead)
