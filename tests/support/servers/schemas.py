"""PostgreSQL schemas for tests: opened once, then emptied rather than made anew, at a fifth of it.

What a store writes into a fresh schema is its own and stays; whatever came later goes.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from outrider.clock import SystemClock
from outrider.store.factory import open_store

_PATIENCE: Final = "10s"  # for whoever left a transaction open in a schema
_lines: Final[dict[str, Any]] = {}  # connections of this process, by server
_LARGE: Final = 2**18  # bytes of a table that is sooner made anew than deleted from
_SEQUENCE: Final = "S"
_THINGS: Final = """
SELECT oid::regclass::text, relkind::text, pg_relation_size(oid) FROM pg_class
WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'S')
"""


class Schema:
    """One schema on a server; `url` opens a store in it."""

    def __init__(self, server: str, name: str, url: str) -> None:
        self.url = url
        self.server, self._name = server, name
        asyncio.run(_open_once(url))
        with _line(server) as line:
            things = line.execute(_THINGS, (name,)).fetchall()
            self._kept = {each for each, _, _ in things if _has_rows(line, each)}
            self._own = {each for each, _, _ in things}
        atexit.register(self._drop)  # after the connection's own close was registered: runs before

    def empty(self) -> None:
        """As it was before its first use."""
        with _line(self.server) as line:
            things = line.execute(_THINGS, (self._name,)).fetchall()
            line.execute(";".join(self._undoing(*thing) for thing in things))

    def _undoing(self, thing: str, kind: str, size: int) -> str:
        if kind == _SEQUENCE:
            return (
                f"ALTER SEQUENCE {thing} RESTART"
                if thing in self._own
                else f"DROP SEQUENCE {thing}"
            )
        if thing in self._kept:
            return ""
        return f"TRUNCATE {thing}" if size > _LARGE else f"DELETE FROM {thing}"  # noqa: S608 - ours

    def _drop(self) -> None:
        import psycopg  # noqa: PLC0415 - an extra

        with suppress(psycopg.Error), _line(self.server) as line:
            line.execute(f'DROP SCHEMA IF EXISTS "{self._name}" CASCADE')


@contextmanager
def _line(server: str) -> Iterator[Any]:
    """Run one transaction over this process's connection to a server, which stays open.

    A new server process has to read the catalogue first, which takes longer than emptying a schema.
    """
    import psycopg  # noqa: PLC0415 - an extra, needed only where a schema is asked for

    line = _lines.get(server)
    if line is None or line.closed:
        options = f"-c lock_timeout={_PATIENCE}"
        line = _lines[server] = psycopg.connect(server, options=options)
        atexit.register(line.close)
    with line.transaction():
        yield line


def _has_rows(line: Any, thing: str) -> bool:
    return bool(line.execute(f"SELECT 1 FROM {thing} LIMIT 1").fetchall())  # noqa: S608 - ours


async def _open_once(url: str) -> None:
    store = await open_store(url, SystemClock())
    await store.close()
