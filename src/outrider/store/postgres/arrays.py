"""Many values as one parameter: array literals, which cost a fraction of a list's own dumping.

Text is kept as PostgreSQL can keep it: it has no character 0, and no half of a surrogate pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

_NUL: Final = "\u2400"  # the picture of what cannot be kept
_is_special = re.compile('[\0\t\n\r"\\\\\ud800-\udfff]').search


def plain(values: Iterable[float | None]) -> str:
    """Numbers, truth values and None: as a list shows itself, which costs half of joining them."""
    return "{" + str([*values])[1:-1].replace(" ", "").replace("None", "NULL") + "}"


def hexes(values: Iterable[str]) -> str:
    """Names in hexadecimal."""
    return "{" + ",".join(values) + "}"


def texts(values: Iterable[str | None]) -> str:
    """Strings and None."""
    words = list(values)
    try:
        if words and not _is_special("".join(words)):  # type: ignore[arg-type] # None is caught
            return '{"' + '","'.join(words) + '"}'  # type: ignore[arg-type] # as above
    except TypeError:  # some are None
        pass
    return "{" + ",".join([_quoted(word) for word in words]) + "}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + kept(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def kept(text: str) -> str:
    """A text as it is kept."""
    if text.isascii():
        return text.replace("\0", _NUL)
    return text.encode(errors="replace").decode().replace("\0", _NUL)


def turned(rows: Sequence[Sequence[Any]], types: Sequence[str]) -> list[str]:
    """Rows as the array literals of their columns."""
    return literals(list(zip(*rows, strict=True)) if rows else [()] * len(types), types)


def literals(by_column: Sequence[Sequence[Any]], types: Sequence[str]) -> list[str]:
    """Columns as array literals."""
    return [_MAKERS.get(kind, plain)(column) for column, kind in zip(by_column, types, strict=True)]


_MAKERS: Final[Mapping[str, Callable[[Any], str]]] = {"text": texts, "json": texts, "uuid": hexes}
