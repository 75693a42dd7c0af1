"""Shared values: stored under topic and name, read in the order of their numbers.

Calls are of bounded size, since values may be long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from outrider.store.protocol import SharedValue, SharedValueWrite
from outrider.store.redis.script_client import ScriptClient, encode
from outrider.store.validation import validate_shared_values

VALUES_PER_CALL: Final = 100
CHARACTERS_PER_CALL: Final = 1 << 18

_SEPARATOR: Final = "\0"  # neither topic nor name has one
_decode_value: Final = msgspec.msgpack.Decoder(tuple[int, int, str]).decode


class SharedValues:
    """The values that workers of a crawl share."""

    def __init__(self, scripts: ScriptClient) -> None:
        self._scripts = scripts

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """See `protocol.Admin`."""
        validate_shared_values(values)
        numbers: list[int] = []
        for part in _parts(values):
            rows = encode([_row_of(value) for value in part])
            numbers += await self._scripts.run("put_values", crawl, rows)
        return numbers

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """See `protocol.Inspect`."""
        values: list[SharedValue] = []
        while len(values) < limit:
            most = min(VALUES_PER_CALL, limit - len(values))
            found = await self._scripts.run("read_values", crawl, after, most)
            if not found:
                break
            values += map(_value_of, found[::2], found[1::2])
            after = values[-1].number
        return values


def _parts(values: Sequence[SharedValueWrite]) -> Iterator[list[SharedValueWrite]]:
    """Yield as many as one call takes, in order."""
    part: list[SharedValueWrite] = []
    size = 0
    for value in values:
        is_full = len(part) == VALUES_PER_CALL or size + len(value.text) > CHARACTERS_PER_CALL
        if part and is_full:
            yield part
            part, size = [], 0
        part.append(value)
        size += len(value.text)
    if part:
        yield part


def _row_of(value: SharedValueWrite) -> tuple[str, str, int]:
    label = f"{value.topic}{_SEPARATOR}{value.name}"
    return label, value.text, -1 if value.seen is None else value.seen


def _value_of(label: bytes, row: bytes) -> SharedValue:
    topic, _, name = label.decode().partition(_SEPARATOR)
    number, at, text = _decode_value(row)
    return SharedValue(number, at / 1000, topic, name, text)
