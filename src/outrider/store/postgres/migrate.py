"""Migrations of the tables: numbered, each in one transaction, each identified by its checksum.

A store records which migrations were applied. One of a newer release can be used unless a migration
of that release was breaking; a schema with other tables is refused, and nothing is changed.
"""

from __future__ import annotations

import uuid
from hashlib import sha256
from importlib import resources
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from outrider.errors import InvalidInput, StoreUnavailable, StoreUnusable
from outrider.store.address import hide_secrets
from outrider.store.postgres import sql
from outrider.store.postgres.address import Address
from outrider.store.postgres.errors import read_only, translate_error

MIN_VERSION: Final = 140_000  # PostgreSQL 14
CONNECT_TIMEOUT: Final = 10  # seconds
_LOCK: Final = 0x6F757472696465  # "outride"
_BREAKING: Final = "-- breaking"
_NO_FSYNC: Final = "fsync is off on this server: a crash of its machine may lose or damage anything"
_LAZY_COMMITS: Final = (
    "synchronous_commit is off here: a crash of the server may lose the last second of what"
    " was acknowledged; to be safe: ALTER ROLE name SET synchronous_commit = on"
)


class Migration(NamedTuple):
    """One step of the tables' history."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Of its text."""
        return sha256(self.text.encode()).hexdigest()[:32]

    @property
    def is_breaking(self) -> bool:
        """Whether older releases cannot work with the tables it leaves."""
        return self.text.startswith(_BREAKING)


class Applied(NamedTuple):
    """A migration that a schema records."""

    name: str
    checksum: str
    is_breaking: bool


class Prepared(NamedTuple):
    """A store that may be used."""

    id: str
    promise: str  # what a crash of the server may lose; "": nothing that was acknowledged


def release_migrations() -> list[Migration]:
    """Return the migrations of this release, in order."""
    place = resources.files("outrider.store.postgres") / "migrations"
    files = sorted((f for f in place.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [
        Migration(int(file.name[:4]), file.name, file.read_text(encoding="utf-8")) for file in files
    ]


def prepare_store(address: Address, migrations: list[Migration] | None = None) -> Prepared:
    """Check the server and bring the tables up to date."""
    migrations = release_migrations() if migrations is None else migrations
    try:
        with connect(address) as connection:
            check_server(connection, address)
            name = _migrate(connection, address, migrations)
            return Prepared(name, durability_warning(connection))
    except psycopg.Error as error:
        raise translate_error(error, address.shown) from error


def durability_warning(connection: Connection[Any]) -> str:
    """Return what a crash of the server may lose, as its settings say; "": nothing."""
    ((fsync, commits),) = connection.execute(sql.DURABILITY_SETTINGS).fetchall()
    if fsync == "off":
        return _NO_FSYNC
    return _LAZY_COMMITS if commits == "off" else ""


# ---- the server


def connect(address: Address) -> Connection[Any]:
    """Connect; raise what prevents it, without the password."""
    try:
        return psycopg.connect(
            address.url,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT,
            application_name="outrider",
        )
    except psycopg.OperationalError as error:
        raise _connection_error(error, address) from error


def _connection_error(error: psycopg.OperationalError, address: Address) -> Exception:
    what = hide_secrets(" ".join(str(error).split()), address.url)[:500]
    if "password" in what or "authentication" in what or "role " in what:
        return InvalidInput(f"{address.shown}: {what}; check the user and password of the URL")
    if "database " in what and "does not exist" in what:
        return InvalidInput(f"{address.shown}: {what}; create it: createdb NAME")
    if "invalid integer value" in what:
        return InvalidInput(f"{address.shown}: {what}; check the port of the URL")
    if "could not translate host name" in what or "resolve" in what:
        return InvalidInput(f"{address.shown}: {what}; check the host of the URL")
    if "SSL" in what or "certificate" in what:
        return StoreUnusable(f"{address.shown}: {what}; check the server's certificate, or sslmode")
    return StoreUnavailable(f"{address.shown}: {what}; is the server running?")


def check_server(connection: Connection[Any], address: Address) -> None:
    """Raise `StoreUnusable` for a server or database that will not do."""
    version = connection.info.server_version
    if version < MIN_VERSION:
        raise StoreUnusable(
            f"{address.shown} is PostgreSQL {version // 10_000}; "
            f"{MIN_VERSION // 10_000} or newer is needed"
        )
    encoding, reads_only = _row(connection, sql.SERVER_SETTINGS)
    if encoding != "UTF8":
        raise StoreUnusable(f"{address.shown}: encoding {encoding}; a database in UTF8 is needed")
    if reads_only == "on":
        raise read_only(address.shown)


def check_rights(connection: Connection[Any], address: Address, *, is_migrated: bool) -> None:
    """Raise `StoreUnusable` for a role that may not use, or not make, its schema."""
    found = _row(connection, sql.SCHEMA_RIGHTS, address.schema)
    role, database, makes_schemas, exists, uses, creates = found
    if not exists and not makes_schemas:
        raise StoreUnusable(
            f"{address.shown}: role {role!r} may not make schema {address.schema!r}: GRANT CREATE"
            f" ON DATABASE {database} TO {role}, or CREATE SCHEMA {address.schema}"
            f" AUTHORIZATION {role}"
        )
    if exists and not (uses and (creates or is_migrated)):
        lacks = "make tables in" if uses else "use"
        raise StoreUnusable(
            f"{address.shown}: role {role!r} may not {lacks} schema {address.schema!r}: ALTER"
            f" SCHEMA {address.schema} OWNER TO {role}, or name another one with ?schema="
        )


def _row(connection: Connection[Any], statement: str, *params: object) -> tuple[Any, ...]:
    found = connection.execute(statement, params, prepare=False).fetchone()
    assert found is not None  # noqa: S101 - the statements used here always return a row
    return tuple(found)


# ---- migrations


def _migrate(connection: Connection[Any], address: Address, migrations: list[Migration]) -> str:
    """Apply what is missing; return the store's id."""
    applied = applied_migrations(connection, address)
    if applied is None or not {m.version for m in migrations} <= set(applied):
        for migration in migrations:
            _apply(connection, address, migration)
        applied = applied_migrations(connection, address) or {}
    check_history(applied, address, migrations)
    with connection.transaction():
        _use_schema(connection, address)
        (name,) = _row(connection, sql.READ_STORE)
    return str(name)


def _use_schema(connection: Connection[Any], address: Address) -> None:
    connection.execute(sql.USE_SCHEMA, (address.schema,), prepare=False)


def applied_migrations(connection: Connection[Any], address: Address) -> dict[int, Applied] | None:
    """Return the applied migrations by version; None: the schema is empty or missing."""
    with connection.transaction():
        is_migrated, count = _row(connection, sql.LOOK_AT_SCHEMA, address.schema)
        if count and not is_migrated:
            raise _foreign_schema(address)
        check_rights(connection, address, is_migrated=is_migrated)
        if not is_migrated:
            return None
        _use_schema(connection, address)
        found = _read_history(connection, address)
    return {version: Applied(name, mark, breaks) for version, name, mark, breaks in found}


def _read_history(
    connection: Connection[Any], address: Address
) -> list[tuple[int, str, str, bool]]:
    try:
        return connection.execute(sql.APPLIED_MIGRATIONS, prepare=False).fetchall()
    except (psycopg.errors.UndefinedColumn, psycopg.errors.WrongObjectType) as error:
        raise _foreign_schema(address) from error


def _foreign_schema(address: Address) -> StoreUnusable:
    return StoreUnusable(
        f"{address.shown}: schema {address.schema!r} holds tables that are not Outrider's; "
        "name another one with ?schema="
    )


def _apply(connection: Connection[Any], address: Address, migration: Migration) -> None:
    """Apply one migration unless another process has: all of it or nothing."""
    with connection.transaction():
        connection.execute(sql.LOCK_EXCLUSIVE, (_LOCK,), prepare=False)
        applied = applied_migrations(connection, address)
        if applied is not None and migration.version in applied:
            return
        if applied is None:
            _create_schema(connection, address)
        _use_schema(connection, address)
        connection.execute(migration.text.encode(), prepare=False)
        if applied is None:
            connection.execute(sql.INSERT_STORE, (uuid.uuid4().hex,))
        connection.execute(
            sql.INSERT_MIGRATION,
            (migration.version, migration.name, migration.checksum, migration.is_breaking),
            prepare=False,
        )


def _create_schema(connection: Connection[Any], address: Address) -> None:
    (exists,) = _row(connection, sql.SCHEMA_EXISTS, address.schema)
    if not exists:
        name = Identifier(address.schema)
        connection.execute(SQL("create schema {}").format(name), prepare=False)
    _use_schema(connection, address)
    connection.execute(sql.CREATE_MIGRATIONS, prepare=False)


def check_history(
    applied: dict[int, Applied], address: Address, migrations: list[Migration]
) -> None:
    """Raise `StoreUnusable` for tables that this release cannot work with."""
    known = {migration.version: migration for migration in migrations}
    for version, (name, checksum, is_breaking) in applied.items():
        if version in known and known[version].checksum != checksum:
            raise StoreUnusable(
                f"{address.shown}: {name} is not what this release ships; "
                "the schema was made by a changed or unreleased version"
            )
        if version not in known and is_breaking:
            raise StoreUnusable(
                f"{address.shown} was changed by a newer release ({name}), which this one cannot "
                "work beside: upgrade outrider"
            )
