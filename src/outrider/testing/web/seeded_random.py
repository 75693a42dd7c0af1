"""Seeded random numbers and prose: the same for the same seed and text."""

from __future__ import annotations

import random
from functools import lru_cache
from hashlib import shake_128
from struct import unpack
from typing import Final

SPAN: Final = 2**32
_WORDS: Final = (
    "harbour otter ledger meadow lantern parish gazette quarry river market council winter "
    "bridge school the a of and in to was with for by that from early late quiet brisk amber "
    "reported said opened closed moved built found asked many few old new people town road"
)
PROSE_BYTES: Final = 1 << 16  # then it repeats


def rolls(about: str, count: int) -> tuple[int, ...]:
    """Return `count` numbers below `SPAN`, determined by a text."""
    return unpack(f">{count}I", shake_128(about.encode()).digest(4 * count))


def chance(about: str) -> float:
    """Return a number in [0, 1), determined by a text."""
    return rolls(about, 1)[0] / SPAN


@lru_cache(maxsize=4)
def prose(seed: int) -> str:
    """Return random words without mark-up, repeated once, so that any slice is in range."""
    dice = random.Random(f"prose {seed}")
    words = " ".join(dice.choices(_WORDS.split(), k=PROSE_BYTES // 4))
    return words[:PROSE_BYTES] * 2
