"""Breakdown: the terms of a score, which always sum to it (F2)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Breakdown(msgspec.Struct, frozen=True, gc=False):
    """The source of a priority, and its terms, which sum to it."""

    source: str
    terms: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """Return the sum of the terms."""
        return sum_of(self.terms)


def sum_of(terms: Iterable[tuple[str, float]], start: float = 0.0) -> float:
    """Add term by term from the first; `sum` rounds differently in some versions of Python."""
    for _, value in terms:
        start += value
    return start
