"""Examination of a PostgreSQL store: server, durability, clock, connections, tables; only reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg import Connection

from outrider.clock import Clock
from outrider.errors import OutriderError
from outrider.store.health import (
    Check,
    ServerHealth,
    check_of,
    clock_check,
    connections_check,
)
from outrider.store.postgres import sql
from outrider.store.postgres.address import Address, parse_address
from outrider.store.postgres.errors import translate_error
from outrider.store.postgres.migrate import (
    applied_migrations,
    check_history,
    check_server,
    connect,
    durability_warning,
    release_migrations,
)

_DURABLE: Final = "everything that was acknowledged survives a crash of the server"
_PERSIST: Final = "switch on what is off"
_UPGRADE: Final = "they are applied when it is opened next; end older releases of Outrider first"


def examine(url: str, clock: Clock) -> ServerHealth:
    """Examine the server and the schema that a URL names. Blocks."""
    address = parse_address(url)
    before = clock.now_ms()
    try:
        with connect(address) as connection:
            seconds = (clock.now_ms() - before) / 1000
            reached = Check("reachable", True, f"{address.shown}, in {seconds:.3f} s")
            store, has_store = _store(connection, address)
            checks = [reached, *_server_checks(connection, address, clock), store]
            return ServerHealth(checks, has_store)
    except OutriderError as error:
        problem = str(error)
    except psycopg.Error as error:
        problem = str(translate_error(error, address.shown))
    return ServerHealth([Check("reachable", False, problem)], False)


def _server_checks(connection: Connection[Any], address: Address, clock: Clock) -> Iterator[Check]:
    yield _server(connection, address)
    yield _durability(connection)
    before = clock.now_ms()
    ((instant,),) = connection.execute(sql.SERVER_INSTANT).fetchall()
    yield clock_check("clock", before, instant, clock.now_ms())
    yield _connections(connection)


def _server(connection: Connection[Any], address: Address) -> Check:
    version = connection.info.server_version
    try:
        check_server(connection, address)
    except OutriderError as error:
        return Check("server", False, str(error))
    return Check("server", True, f"PostgreSQL {version // 10_000}.{version % 10_000}")


def _durability(connection: Connection[Any]) -> Check:
    ((fsync, commits),) = connection.execute(sql.DURABILITY_SETTINGS).fetchall()
    settings = f"fsync {fsync}, synchronous_commit {commits}"
    warning = durability_warning(connection)
    return check_of("durability", not warning, f"{settings}: {warning or _DURABLE}", _PERSIST)


def _connections(connection: Connection[Any]) -> Check:
    """Check the limit that is nearer: the server's, or the role's."""
    ((used, most, of_role, role_limit),) = connection.execute(sql.CONNECTION_LIMITS).fetchall()
    if 0 <= role_limit < most and role_limit - of_role < most - used:
        return connections_check("connections of the role", of_role, role_limit)
    return connections_check("connections", used, most)


def _store(connection: Connection[Any], address: Address) -> tuple[Check, bool]:
    """Check which migrations were applied; return whether the store can be opened as it is."""
    migrations = release_migrations()
    try:
        applied = applied_migrations(connection, address)
        if applied is None:
            return Check("store", True, f"none in schema {address.schema} yet"), False
        check_history(applied, address, migrations)
    except OutriderError as error:
        return Check("store", False, str(error)), False
    except psycopg.Error as error:  # such as rights on single tables
        return Check("store", False, str(translate_error(error, address.shown))), False
    pending = [one.name for one in migrations if one.version not in applied]
    version = f"schema {address.schema}, version {max(applied, default=0)}"
    if newer := applied.keys() - {one.version for one in migrations}:
        version += f", of a newer release by {len(newer)} migrations that this one works beside"
    found = version + (f", {len(pending)} migrations pending: {pending[0]} …" if pending else "")
    return check_of("store", not pending, found, _UPGRADE), not pending
