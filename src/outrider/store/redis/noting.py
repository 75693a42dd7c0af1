"""Notes: kept under their labels, told in the order of their numbers, in calls of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from outrider.store.noting import checked_notes
from outrider.store.protocol import SharedValue, SharedValueWrite
from outrider.store.redis.calling import encode
from outrider.store.redis.operating import Operating

NOTES_A_CALL: Final = 100
LETTERS_A_CALL: Final = 1 << 18

_BETWEEN: Final = "\0"  # topic and name have none
_kept_of: Final = msgspec.msgpack.Decoder(tuple[int, int, str]).decode


class Noting(Operating):
    """What workers of a crawl tell each other."""

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """See `protocol.Admin`."""
        checked_notes(values)
        numbers: list[int] = []
        for part in _calls(values):
            numbers += await self.line.run("note", crawl, encode([*map(_row_of, part)]))
        return numbers

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """See `protocol.Inspect`."""
        found: list[SharedValue] = []
        while len(found) < limit:
            asked = min(NOTES_A_CALL, limit - len(found))
            told = await self.line.run("see_notes", crawl, after, asked)
            if not told:
                break
            found += map(_noted, told[::2], told[1::2])
            after = found[-1].number
        return found


def _calls(notes: Sequence[SharedValueWrite]) -> Iterator[list[SharedValueWrite]]:
    """As many as a call takes, in order; they may be long."""
    part: list[SharedValueWrite] = []
    size = 0
    for note in notes:
        if part and (len(part) == NOTES_A_CALL or size + len(note.text) > LETTERS_A_CALL):
            yield part
            part, size = [], 0
        part.append(note)
        size += len(note.text)
    if part:
        yield part


def _row_of(note: SharedValueWrite) -> tuple[str, str, int]:
    label = f"{note.topic}{_BETWEEN}{note.name}"
    return label, note.text, -1 if note.seen is None else note.seen


def _noted(label: bytes, kept: bytes) -> SharedValue:
    topic, _, name = label.decode().partition(_BETWEEN)
    number, at, text = _kept_of(kept)
    return SharedValue(number, at / 1000, topic, name, text)
