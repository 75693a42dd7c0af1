"""Array literals: many values as one parameter, at a fraction of the driver's cost for a list.

Text is changed to what PostgreSQL can store: no character 0, and no half of a surrogate pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

_NUL: Final = "\u2400"  # the symbol for the character that cannot be stored
_is_special = re.compile('[\0\t\n\r"\\\\\ud800-\udfff]').search


def number_array(values: Iterable[float | None]) -> str:
    """Encode numbers, booleans and None; `str` of a list costs half of joining its items."""
    return "{" + str([*values])[1:-1].replace(" ", "").replace("None", "NULL") + "}"


def uuid_array(values: Iterable[str]) -> str:
    """Encode fingerprints in hexadecimal."""
    return "{" + ",".join(values) + "}"


def text_array(values: Iterable[str | None]) -> str:
    """Encode strings and None."""
    words = list(values)
    try:
        if words and not _is_special("".join(words)):  # type: ignore[arg-type] # None is caught
            return '{"' + '","'.join(words) + '"}'  # type: ignore[arg-type] # as above
    except TypeError:  # some are None
        pass
    return "{" + ",".join([_quote(word) for word in words]) + "}"


def _quote(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + storable(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def storable(text: str) -> str:
    """Return a text as PostgreSQL can store it."""
    if text.isascii():
        return text.replace("\0", _NUL)
    return text.encode(errors="replace").decode().replace("\0", _NUL)


def row_arrays(rows: Sequence[Sequence[Any]], types: Sequence[str]) -> list[str]:
    """Encode rows as one array for each column."""
    return column_arrays(list(zip(*rows, strict=True)) if rows else [()] * len(types), types)


def column_arrays(by_column: Sequence[Sequence[Any]], types: Sequence[str]) -> list[str]:
    """Encode each column as an array."""
    return [
        _ENCODERS.get(kind, number_array)(column)
        for column, kind in zip(by_column, types, strict=True)
    ]


_ENCODERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "text": text_array,
    "json": text_array,
    "uuid": uuid_array,
}
