"""What may be noted and repriced: every value is bounded before a store hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import msgspec

from outrider.errors import InvalidInput
from outrider.store.protocol import PriorityUpdate, SharedValueWrite

_encode = msgspec.msgpack.Encoder().encode
_notes_of = msgspec.msgpack.Decoder(list[SharedValueWrite]).decode


def checked_notes(notes: Sequence[SharedValueWrite]) -> None:
    """Refuse a batch in which one cannot be kept everywhere."""
    try:
        _notes_of(_encode(list(notes)))
    except (msgspec.MsgspecError, TypeError, OverflowError, UnicodeError) as error:
        raise InvalidInput(f"notes: {error}") from error
    for note in notes:
        if "\0" in note.topic or "\0" in note.name or "\0" in note.text:
            raise InvalidInput(f"note {note.topic!r} {note.name!r}: a NUL cannot be kept")


def checked_prices(prices: Sequence[PriorityUpdate]) -> None:
    """Refuse a batch in which a priority is no number (C2)."""
    for price in prices:
        if not (isfinite(price.seen) and isfinite(price.priority)):
            raise InvalidInput(f"reprice: task {price.task} at {price.priority} must be finite")
