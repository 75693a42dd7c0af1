"""Errors of the driver: which of Outrider's errors they are, and whether to run the verb again."""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg import errors as pg

from outrider.errors import OutriderError, StoreError, StoreFull, StoreUnavailable, StoreUnusable

# Another transaction was first, or several waited for each other: nothing happened, run it again.
RETRYABLE: Final = (
    pg.UniqueViolation,
    pg.DeadlockDetected,
    pg.SerializationFailure,
    pg.LockNotAvailable,
)
# Behind a transaction pooler the next transaction may meet another server process.
UNPREPARED: Final = (pg.DuplicatePreparedStatement, pg.InvalidSqlStatementName)
_FULL: Final = (pg.DiskFull, pg.OutOfMemory, pg.ConfigurationLimitExceeded)
_READ_ONLY: Final = (pg.ReadOnlySqlTransaction,)
_GONE: Final = (pg.UndefinedTable, pg.UndefinedColumn, pg.InvalidSchemaName)


_sequence_of_crawl = re.compile(r'"(?:tasks|queues|turns|arrivals|events)_\d+"').search


def is_crawl_removed(error: psycopg.Error) -> bool:
    """Return whether a crawl was removed after a verb had read its row (I1)."""
    return isinstance(error, pg.UndefinedTable) and _sequence_of_crawl(str(error)) is not None


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the connection broke, so that the server may have done anything."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not isinstance(
        error, (*RETRYABLE, *_FULL)
    )


def translate_error(error: psycopg.Error, shown: str) -> OutriderError:
    """Return the error of Outrider that a driver's error means; `shown`: the address."""
    what = " ".join(str(error).split())[:500]
    if isinstance(error, _FULL):
        return StoreFull(f"{shown}: {what}; nothing was changed: make room, and try again")
    if isinstance(error, _READ_ONLY):
        return read_only(shown)
    if isinstance(error, pg.InsufficientPrivilege):
        return StoreUnusable(
            f"{shown}: {what}; its role needs a schema of its own: let it make one (GRANT CREATE "
            "ON DATABASE …), or make it (CREATE SCHEMA … AUTHORIZATION …)"
        )
    if isinstance(error, _GONE):
        return StoreUnusable(f"{shown}: {what}; its tables were changed: open the store again")
    if is_connection_lost(error):
        return StoreUnavailable(f"{shown}: {what}; unknown whether applied, safe to repeat")
    return StoreError(f"{shown}: {type(error).__name__}: {what}")


def read_only(shown: str) -> StoreUnusable:
    """Return the error of a server that accepts no writes."""
    return StoreUnusable(
        f"{shown} only reads (a replica, or default_transaction_read_only is on): "
        "name the server that writes"
    )
