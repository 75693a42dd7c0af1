"""The pipeline of one transaction: statements are sent together, and wait only for rows read.

Many values are one parameter: an array literal, at a fraction of the driver's cost for a list. Text
is changed to what PostgreSQL can store: no character 0, and no half of a surrogate pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import Connection, Cursor
from psycopg.pq import TransactionStatus

Result: TypeAlias = Cursor[Any]  # of a statement that was sent; its rows may not be there yet

_IDLE: Final = TransactionStatus.IDLE
_NUL: Final = "\u2400"  # the symbol for the character that cannot be stored
_is_special = re.compile('[\0\t\n\r"\\\\\ud800-\udfff]').search


class Pipeline:
    """The statements of one transaction over one connection."""

    def __init__(self, connection: Connection[Any], *, prepares: bool) -> None:
        self._connection = connection
        self._prepares = prepares
        self._pipeline = ExitStack()
        self.is_committing = False

    def send(self, statement: str, params: Sequence[object] = ()) -> Result:
        """Send a statement; only reading its rows waits for the server."""
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(statement, params or None, prepare=self._prepares)

    def rows(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Send a statement and return its rows."""
        return self.send(statement, params).fetchall()

    def begin(self, *, reads: bool) -> None:
        """Begin the transaction; one that only reads sees a single snapshot."""
        self._pipeline.enter_context(self._connection.pipeline())
        isolation = "isolation level repeatable read read only"
        self.send(f"begin {isolation if reads else 'isolation level read committed'}")

    def commit(self) -> None:
        """Commit: durable when this returns, unknown if it raises."""
        self.is_committing = True
        self.send("commit")
        self._pipeline.close()

    def close(self) -> None:
        """Roll back whatever was not committed."""
        with suppress(psycopg.Error):
            self._pipeline.close()
        with suppress(psycopg.Error):
            if self._connection.info.transaction_status is not _IDLE:
                self._connection.execute("rollback", prepare=False)


# ---- array parameters


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
