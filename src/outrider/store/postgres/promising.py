"""What outlives a crash of the server, as its settings say; nothing to say if all of it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from psycopg import Connection

_ASKED: Final = "select current_setting('fsync'), current_setting('synchronous_commit')"
_NO_FSYNC: Final = "fsync is off on this server: a crash of its machine may lose or damage anything"
_LAZY: Final[Mapping[str, str]] = {
    "off": "synchronous_commit is off here: a crash of the server may lose the last second of what"
    " was acknowledged; to be safe: ALTER ROLE name SET synchronous_commit = on",
}


def promise_of(connection: Connection[Any]) -> str:
    """A sentence for whoever starts to work there."""
    ((fsync, commits),) = connection.execute(_ASKED).fetchall()
    return _NO_FSYNC if fsync == "off" else _LAZY.get(commits, "")
