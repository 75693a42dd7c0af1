"""Dice that always fall the same way for the same seed and text, and the prose they choose."""

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
PROSE_BYTES: Final = 1 << 16  # after which it begins again


def rolls(about: str, count: int) -> tuple[int, ...]:
    """Numbers below `SPAN`."""
    return unpack(f">{count}I", shake_128(about.encode()).digest(4 * count))


def chance(about: str) -> float:
    """One die in [0, 1)."""
    return rolls(about, 1)[0] / SPAN


@lru_cache(maxsize=4)
def prose(seed: int) -> str:
    """Words without end or mark-up, twice the same, so that any slice of one length exists."""
    dice = random.Random(f"prose {seed}")
    words = " ".join(dice.choices(_WORDS.split(), k=PROSE_BYTES // 4))
    return words[:PROSE_BYTES] * 2
