"""The change rate of a page, estimated from the visits that could tell whether it changed (G3).

Changes are assumed to come at random, at a rate of the page's own. A visit only learns *whether*
the page changed since the last one. One that found no change adds time watched; one that found a
change adds a change, and the time watched until then as far as it can be expected.
"""

from __future__ import annotations

import math
from typing import Final

from outrider.core.outcome import Answer, Done, Last

NOT_MODIFIED: Final = 304
MEMORY: Final = 64  # comparisons; then all counts are halved, because change rates change
_MAX_WATCHED: Final = 10 * 365 * 86_400.0


def updated_answer(last: Last | None, outcome: Done) -> Answer:
    """Return what to keep after a visit: its answer, and the updated counts of changes."""
    if last is None:
        return Answer(
            outcome.status, outcome.bytes, outcome.digest, outcome.etag, outcome.last_modified
        )
    return Answer(
        outcome.status,
        outcome.bytes,
        *_validators(last.answer, outcome),
        *_count_comparison(last, has_changed(last.answer, outcome)),
    )


def has_changed(old: Answer, new: Done) -> bool | None:
    """Tell whether the page changed since the last visit; None if this visit cannot tell."""
    if new.from_cache:
        return None
    if new.status == NOT_MODIFIED:
        return False
    if not _has_content(new):
        return None
    for before, after in (
        (old.digest, new.digest),
        (old.etag, new.etag),
        (old.last_modified, new.last_modified),
    ):
        if before is not None and after is not None:
            return before != after
    return None


def change_rate(answer: Answer) -> float | None:
    """Estimate changes per second; None before the first comparison."""
    if not answer.looks or answer.watched <= 0:
        return None
    return (answer.changes + 1) / answer.watched


def _has_content(outcome: Done) -> bool:
    return 200 <= outcome.status < 300


def _validators(old: Answer, new: Done) -> tuple[str | None, str | None, str | None]:
    """Return digest, ETag and Last-Modified of the stored content, replaced by new content."""
    if _has_content(new):
        return new.digest, new.etag, new.last_modified
    if new.status == NOT_MODIFIED:
        return (
            new.digest or old.digest,
            new.etag or old.etag,
            new.last_modified or old.last_modified,
        )
    return old.digest, old.etag, old.last_modified


def _count_comparison(last: Last, changed: bool | None) -> tuple[int, int, float]:
    """Return comparisons, changes and seconds watched, this visit included."""
    old, age = last.answer, last.age
    if changed is None or age <= 0:
        return old.looks, old.changes, old.watched
    watched = old.watched if old.looks else age  # to begin with: one change in as long as this
    if changed:
        watched = _until_change(old, watched, age)
    else:
        watched += age
    return _half_forgotten(old.looks + 1, old.changes + changed, min(watched, _MAX_WATCHED))


def _until_change(old: Answer, watched: float, age: float) -> float:
    """Return the time watched, with the expected part of this wait before the change.

    While every comparison found a change, only the shortest wait bounds the rate: then each change
    is assumed to have taken all of that.
    """
    expected = watched + first_change(age, (old.changes + 1) / watched)
    if old.changes < old.looks:
        return expected
    return min(expected, (old.changes + 2) * age)


def first_change(age: float, rate: float) -> float:
    """Return when the first change is expected, given that there was one within `age`."""
    passed = rate * age
    if passed < 1e-6:  # the difference below would be of two huge numbers
        return age / 2
    return 1 / rate - age / math.expm1(min(passed, 700.0))


def _half_forgotten(looks: int, changes: int, watched: float) -> tuple[int, int, float]:
    if looks < MEMORY:
        return looks, changes, watched
    return looks // 2, changes // 2, watched / 2
