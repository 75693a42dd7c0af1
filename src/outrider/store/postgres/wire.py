"""One transaction: statements go out together, and nobody waits before an answer is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import Connection, Cursor
from psycopg.pq import TransactionStatus

Answer: TypeAlias = Cursor[Any]

_IDLE: Final = TransactionStatus.IDLE


class Wire:
    """The statements of one transaction over one connection."""

    def __init__(self, connection: Connection[Any], *, prepares: bool) -> None:
        self._connection = connection
        self._prepare = prepares
        self._pipeline = ExitStack()
        self.is_committing = False

    def send(self, statement: str, params: Sequence[object] = ()) -> Answer:
        """Hand a statement in; its answer is waited for when its rows are asked for."""
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(statement, params or None, prepare=self._prepare)

    def rows(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Its rows."""
        return self.send(statement, params).fetchall()

    def begin(self, *, reads: bool) -> None:
        """Start; whoever only reads sees one moment."""
        self._pipeline.enter_context(self._connection.pipeline())
        isolation = "isolation level repeatable read read only"
        self.send(f"begin {isolation if reads else 'isolation level read committed'}")

    def commit(self) -> None:
        """Once this returns it is durable; if it raises, nobody knows."""
        self.is_committing = True
        self.send("commit")
        self._pipeline.close()

    def abandon(self) -> None:
        """Nothing of it happened, unless it was being committed."""
        with suppress(psycopg.Error):
            self._pipeline.close()
        with suppress(psycopg.Error):
            if self._connection.info.transaction_status is not _IDLE:
                self._connection.execute("rollback", prepare=False)
