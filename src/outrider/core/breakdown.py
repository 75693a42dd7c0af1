"""Why a priority is what it is: the terms of a score, which always sum to it (F2)."""

from __future__ import annotations

import msgspec


class Breakdown(msgspec.Struct, frozen=True, gc=False):
    """Where a priority came from; the terms sum to it."""

    source: str
    terms: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return sum(value for _, value in self.terms)
