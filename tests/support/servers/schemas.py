"""PostgreSQL schemas for tests: created once, then emptied, which takes a fifth of the time.

The rows that a store writes into a new schema stay; later ones are deleted.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from outrider.clock import SystemClock
from outrider.store.factory import open_store

_LOCK_TIMEOUT: Final = "10s"  # for transactions left open in a schema
_connections: Final[dict[str, Any]] = {}  # connections of this process, by server
_LARGE: Final = 2**18  # bytes of a table above which truncating is faster than deleting
_SEQUENCE: Final = "S"
_RELATIONS: Final = """
SELECT oid::regclass::text, relkind::text, pg_relation_size(oid) FROM pg_class
WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'S')
"""


class Schema:
    """One schema on a server; `url` opens a store in it."""

    def __init__(self, server: str, name: str, url: str) -> None:
        self.url = url
        self.server, self._name = server, name
        asyncio.run(_open_once(url))
        with _transaction(server) as connection:
            relations = connection.execute(_RELATIONS, (name,)).fetchall()
            self._kept = {each for each, _, _ in relations if _has_rows(connection, each)}
            self._own = {each for each, _, _ in relations}
        atexit.register(self._drop)  # runs before the close of the connection, registered earlier

    def empty(self) -> None:
        """Empty the schema, as it was before its first use."""
        with _transaction(self.server) as connection:
            relations = connection.execute(_RELATIONS, (self._name,)).fetchall()
            connection.execute(";".join(self._empty_statement(*relation) for relation in relations))

    def _empty_statement(self, relation: str, kind: str, size: int) -> str:
        if kind == _SEQUENCE:
            return (
                f"ALTER SEQUENCE {relation} RESTART"
                if relation in self._own
                else f"DROP SEQUENCE {relation}"
            )
        if relation in self._kept:
            return ""
        return f"TRUNCATE {relation}" if size > _LARGE else f"DELETE FROM {relation}"  # noqa: S608 - own names

    def _drop(self) -> None:
        import psycopg  # noqa: PLC0415 - an extra

        with suppress(psycopg.Error), _transaction(self.server) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{self._name}" CASCADE')


@contextmanager
def _transaction(server: str) -> Iterator[Any]:
    """Run one transaction over this process's connection to a server, which stays open.

    A new server process has to read the catalogue first, which takes longer than emptying a schema.
    """
    import psycopg  # noqa: PLC0415 - an extra, needed only for PostgreSQL

    connection = _connections.get(server)
    if connection is None or connection.closed:
        options = f"-c lock_timeout={_LOCK_TIMEOUT}"
        connection = _connections[server] = psycopg.connect(server, options=options)
        atexit.register(connection.close)
    with connection.transaction():
        yield connection


def _has_rows(connection: Any, relation: str) -> bool:
    return bool(connection.execute(f"SELECT 1 FROM {relation} LIMIT 1").fetchall())  # noqa: S608 - own names


async def _open_once(url: str) -> None:
    store = await open_store(url, SystemClock())
    await store.close()
