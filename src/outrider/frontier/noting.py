"""What this worker notes of a crawl for all others, and the store's time at which it does (H7).

What it says it hears like any other: there is one way to know something, and only news pass it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outrider.frontier.admitting import Admitting
from outrider.store.protocol import SharedValue, SharedValueWrite

SKEW_KEPT: Final = 600_000  # milliseconds for which the store's clock is not asked again


class Noting(Admitting):
    """Notes written, and instants that mean the same to all workers."""

    _skew: int = 0  # the store's clock less ours
    _skew_at: int = -SKEW_KEPT

    async def _tell(self, notes: Sequence[SharedValueWrite]) -> list[int]:
        """Write notes, and hear those that stood; their numbers, 0 where another was quicker."""
        numbers = await self.store.put_values(self.crawl, notes)
        at = self._store_ms() / 1000
        for note, number in zip(notes, numbers, strict=True):
            self._hear(SharedValue(number, at, note.topic, note.name, note.text))
        return numbers

    async def _store_now(self) -> int:
        """H7: instants belong to the store's clock, so it is asked now and then what it shows."""
        now = self._clock.now_ms()
        if not self.store.is_inline and now - self._skew_at >= SKEW_KEPT:
            shown = (await self.store.heatmap(self.crawl)).updated_at
            self._skew, self._skew_at = round(shown * 1000) - now, now
        return self._store_ms()

    def _store_ms(self) -> int:
        """What the store's clock shows, as far as it was asked."""
        return self._clock.now_ms() + self._skew
