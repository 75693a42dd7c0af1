"""Who changed which setting: the last thousand changes, each a note in a slot of its own (N4).

A slot is written over what was seen in it, so no two writers share one; the oldest goes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from outrider.frontier.pages import noted
from outrider.settings.runtime import Change, change_of
from outrider.store.protocol import FullStore, SharedValue, SharedValueWrite

HISTORY: Final = "config-history"  # the topic
KEPT: Final = 1000
PAGE: Final = 1000


class History:
    """Which slots are taken, as far as this frontier heard."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}  # name → number of its note, the oldest first

    def saw(self, note: SharedValue) -> None:
        """Somebody wrote there."""
        self._slots.pop(note.name, None)
        self._slots[note.name] = note.number

    def notes(self, texts: Iterable[str]) -> list[SharedValueWrite]:
        """Where these are to be written: into new slots, then over the oldest."""
        latest = list(texts)[-KEPT:]
        free = [name for name in map(_name, range(KEPT)) if name not in self._slots]
        taken = [(name, 0) for name in free] + list(self._slots.items())
        return [
            SharedValueWrite(HISTORY, name, text, seen)
            for text, (name, seen) in zip(latest, taken, strict=False)
        ]


def _name(slot: int) -> str:
    return f"{slot:04}"


async def changes(store: FullStore, crawl: str) -> list[Change]:
    """All that is kept, the oldest first."""
    found = [change_of(note.text, note.at) async for note in noted(store, crawl, HISTORY)]
    return [change for change in found if change is not None]
