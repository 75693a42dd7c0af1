"""The pipeline of one transaction: statements are sent together, and wait only for rows read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import Connection, Cursor
from psycopg.pq import TransactionStatus

Result: TypeAlias = Cursor[Any]  # of a statement that was sent; its rows may not be there yet

_IDLE: Final = TransactionStatus.IDLE


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
