"""The timetable of revisits: all it remembers between visits is the price of one (G3).

The price is nobody's property: every worker finds it by itself from the visits it finishes, and one
that begins takes it over from what earlier visits were planned at.
"""

from __future__ import annotations

from typing import Final

from outrider.core.outcome import Answer, Last
from outrider.core.policy.revisit import (
    Revisiting,
    first_price,
    interval,
    is_gone,
    next_price,
    price_paid,
)

HEARD: Final = 32  # earlier prices a new worker takes the mean of
_HOUR: Final = 3600.0
_MOST_UNASKED: Final = 1000  # visits after which the pages are counted again


class Revisits:
    """Answers when a page is visited again: `fixed`, or by `value`."""

    def __init__(self, how: Revisiting) -> None:
        self._how = how
        self._wanted = how.within(how.every)  # seconds between two visits of a page, on average
        self._heard = 0
        self._until_count = 0  # visits to plan before the pages are counted again
        self.price = first_price(self._wanted)

    def plan(self, answer: Answer, last: Last | None) -> float | None:
        """Seconds until the next visit; None: the page is gone."""
        if is_gone(answer, last):
            return None
        if self._how.policy == "fixed":
            return self._how.every
        self._until_count -= 1
        if last is not None:
            self._hear(last.answer)
        chosen = interval(answer, last, self._how, self.price)
        if last is not None:  # nobody chose the first interval, so it says nothing of the price
            self.price = next_price(self.price, chosen, self._wanted, self._how)
        return chosen

    @property
    def wants_count(self) -> bool:
        """Whether it should be told how many pages there are."""
        return bool(self._how.visits_per_hour) and self._until_count <= 0

    def count(self, pages: int) -> None:
        """So many pages share the visits of an hour."""
        self._until_count = min(max(1, pages // 10), _MOST_UNASKED)
        self._wanted = self._how.within(pages * _HOUR / self._how.visits_per_hour)

    def _hear(self, answer: Answer) -> None:
        """Take over the price of those who planned before: their mean, growing slower each time."""
        paid = price_paid(answer, self._how) if self._heard < HEARD else None
        if paid is not None:
            self._heard += 1
            self.price *= (paid / self.price) ** (1 / self._heard)


def revisits_for(how: Revisiting) -> Revisits | None:
    """The timetable the settings name, if any."""
    return None if how.policy == "none" else Revisits(how)
