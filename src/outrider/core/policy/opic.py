"""Importance as cash: a page shares what it has among its links, and the rich are sooner (F10).

A page's cash is its priority below zero, so a store that adds up priorities (`gather`) adds up
cash: no other record is kept. What comes to a page after its visit is not passed on. Readers begin
anywhere, not only at seeds: so every page has a little to share by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outrider.core.policy.score import Candidate, Score, based, breakdown_of
from outrider.core.task import Lease, Link, Task

SCALE: Final = 100.0  # a seed stands where `high` does
_SEED: Final = 1.0
_OWN: Final = 0.01  # what any page has by itself; more of it, and seeds count for less


class OpicScorer:
    """On-line page importance: seeds begin with one, links get their share of their page's."""

    features = ("cash",)
    gathers = True

    def score(self, batch: Sequence[Candidate]) -> list[Score]:
        """What was found on no page: a seed has cash, a page that comes back starts anew."""
        return [_priced(0.0 if link.depth else _SEED, link) for link, *_ in batch]

    def score_page(self, batch: Sequence[Candidate], page: Lease) -> list[Score]:
        """Equal shares for all but the page itself, whether they are known or not."""
        others = sum(mark != page.fingerprint for *_, mark in batch)
        share = (cash_of(page.about) + _OWN) / max(others, 1)
        return [
            _priced(share if mark != page.fingerprint else 0.0, link) for link, *_, mark in batch
        ]


def cash_of(task: Task) -> float:
    """What a page has to share; one whose priority was given by somebody has as much as a seed."""
    terms = dict(breakdown_of(task).terms)
    if "cash" not in terms:
        return _SEED
    return max(0.0, -(terms["cash"] + terms.get("gathered", 0.0)) / SCALE)


def _priced(cash: float, link: Link) -> Score:
    return based("cash", -cash * SCALE, link)
