"""What a server's complaint means for the caller: whose fault it is, and whether to try again."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors as pg

from outrider.errors import OutriderError, StoreError, StoreFull, StoreUnavailable, StoreUnusable

# Somebody else was first, or everybody waited for everybody: nothing happened, once more.
TRY_AGAIN: Final = (
    pg.UniqueViolation,
    pg.DeadlockDetected,
    pg.SerializationFailure,
    pg.LockNotAvailable,
)
# Behind a pooler the next transaction may meet another server process.
UNPREPARED: Final = (pg.DuplicatePreparedStatement, pg.InvalidSqlStatementName)
_FULL: Final = (pg.DiskFull, pg.OutOfMemory, pg.ConfigurationLimitExceeded)
_READ_ONLY: Final = (pg.ReadOnlySqlTransaction,)
_GONE: Final = (pg.UndefinedTable, pg.UndefinedColumn, pg.InvalidSchemaName)


def is_lost(error: BaseException) -> bool:
    """Whether the line broke, so that nobody knows what the server did."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not isinstance(
        error, (*TRY_AGAIN, *_FULL)
    )


def told(error: psycopg.Error, shown: str) -> OutriderError:
    """The same as one of ours."""
    what = " ".join(str(error).split())[:500]
    if isinstance(error, _FULL):
        return StoreFull(f"{shown}: {what}; nothing was changed: make room, and try again")
    if isinstance(error, _READ_ONLY):
        return StoreUnusable(
            f"{shown} only reads (a replica, or default_transaction_read_only is on): "
            "name the server that writes"
        )
    if isinstance(error, pg.InsufficientPrivilege):
        return StoreUnusable(
            f"{shown}: {what}; its role needs a schema of its own: let it make one (GRANT CREATE "
            "ON DATABASE …), or make it (CREATE SCHEMA … AUTHORIZATION …)"
        )
    if isinstance(error, _GONE):
        return StoreUnusable(f"{shown}: {what}; somebody changed its tables: open it again")
    if is_lost(error):
        return StoreUnavailable(f"{shown}: {what}; unknown whether applied, safe to repeat")
    return StoreError(f"{shown}: {type(error).__name__}: {what}")
