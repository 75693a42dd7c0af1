"""The tables: numbered migrations, each in one transaction, each told by its checksum.

A store says which release it was last changed by. One of a newer release is used as long as none of
its migrations was breaking; a foreign or half-made schema is refused, and nothing is changed.
"""

from __future__ import annotations

import uuid
from hashlib import sha256
from importlib import resources
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import Connection, sql

from outrider.errors import InvalidInput, StoreUnavailable, StoreUnusable
from outrider.store.address import hide_secrets
from outrider.store.postgres import faults
from outrider.store.postgres.address import Address
from outrider.store.postgres.promising import promise_of

OLDEST: Final = 140_000  # PostgreSQL 14
PATIENCE: Final = 10  # seconds until a connection is given up
_LOCK: Final = 0x6F757472696465  # "outride"
_BREAKING: Final = "-- breaking"

_VERSIONS: Final = """
create table migration (
    version integer primary key,
    name text not null,
    checksum text not null,
    is_breaking boolean not null, -- older releases cannot work with what it made
    applied_at timestamptz not null default now()
)
"""


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
        """Whether older releases cannot work with what it made."""
        return self.text.startswith(_BREAKING)


def shipped() -> list[Migration]:
    """The migrations of this release, in order."""
    place = resources.files("outrider.store.postgres") / "migrations"
    files = sorted((f for f in place.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [
        Migration(int(file.name[:4]), file.name, file.read_text(encoding="utf-8")) for file in files
    ]


class Prepared(NamedTuple):
    """A store that may be used."""

    id: str
    promise: str  # what a crash of the server may lose; nothing to say: nothing


def prepared(address: Address, migrations: list[Migration] | None = None) -> Prepared:
    """Bring the tables up to date."""
    migrations = shipped() if migrations is None else migrations
    try:
        with _connected(address) as connection:
            _check_server(connection, address)
            name = _brought_up(connection, address, migrations)
            return Prepared(name, promise_of(connection))
    except psycopg.Error as error:
        raise faults.told(error, address.shown) from error


def _connected(address: Address) -> Connection[Any]:
    try:
        return psycopg.connect(
            address.url, autocommit=True, connect_timeout=PATIENCE, application_name="outrider"
        )
    except psycopg.OperationalError as error:
        raise _unreachable(error, address) from error


def _unreachable(error: psycopg.OperationalError, address: Address) -> Exception:
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


def _check_server(connection: Connection[Any], address: Address) -> None:
    version = connection.info.server_version
    if version < OLDEST:
        raise StoreUnusable(
            f"{address.shown} is PostgreSQL {version // 10_000}; "
            f"{OLDEST // 10_000} or newer is needed"
        )
    encoding, reads_only = _row(
        connection,
        "select current_setting('server_encoding'), current_setting('transaction_read_only')",
    )
    if encoding != "UTF8":
        raise StoreUnusable(f"{address.shown}: encoding {encoding}; a database in UTF8 is needed")
    if reads_only == "on":
        raise StoreUnusable(
            f"{address.shown} only reads (a replica, or default_transaction_read_only is on): "
            "name the server that writes"
        )


def _row(connection: Connection[Any], statement: str, *params: object) -> tuple[Any, ...]:
    found = connection.execute(statement, params, prepare=False).fetchone()
    assert found is not None  # noqa: S101 - asked only for what there is
    return tuple(found)


def _brought_up(connection: Connection[Any], address: Address, migrations: list[Migration]) -> str:
    done = _done(connection, address)
    if done is None or not {m.version for m in migrations} <= set(done):
        for migration in migrations:
            _apply(connection, address, migration)
        done = _done(connection, address) or {}
    _check_history(done, address, migrations)
    with connection.transaction():
        _enter(connection, address)
        (name,) = _row(connection, "select id from store")
    return str(name)


def _enter(connection: Connection[Any], address: Address) -> None:
    connection.execute(
        "select set_config('search_path', %s, true)", (address.schema,), prepare=False
    )


def _done(connection: Connection[Any], address: Address) -> dict[int, tuple[str, str, bool]] | None:
    """What was applied by now; None: there is nothing of ours and nothing else."""
    with connection.transaction():
        # One look at the catalog itself: what was looked up by name may be remembered wrongly.
        is_there, count = _row(
            connection,
            "select coalesce(bool_or(c.relname = 'migration'), false), count(*) "
            "from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s",
            address.schema,
        )
        if not is_there:
            _refuse_strangers(count, address)
            return None
        _enter(connection, address)
        rows = _history(connection, address)
    return {version: (name, checksum, breaks) for version, name, checksum, breaks in rows}


def _history(connection: Connection[Any], address: Address) -> list[tuple[int, str, str, bool]]:
    try:
        return connection.execute(
            "select version, name, checksum, is_breaking from migration order by version",
            prepare=False,
        ).fetchall()
    except (psycopg.errors.UndefinedColumn, psycopg.errors.WrongObjectType) as error:
        raise _strangers(address) from error


def _refuse_strangers(count: int, address: Address) -> None:
    if count:
        raise _strangers(address)


def _strangers(address: Address) -> StoreUnusable:
    return StoreUnusable(
        f"{address.shown}: schema {address.schema!r} holds tables that are not ours; "
        "name another one with ?schema="
    )


def _apply(connection: Connection[Any], address: Address, migration: Migration) -> None:
    """One step, if nobody did it yet: all of it or nothing."""
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,), prepare=False)
        done = _done(connection, address)
        if done is not None and migration.version in done:
            return
        if done is None:
            _found(connection, address)
        _enter(connection, address)
        connection.execute(migration.text.encode(), prepare=False)
        if done is None:
            connection.execute("insert into store (id) values (%s)", (uuid.uuid4().hex,))
        connection.execute(
            "insert into migration (version, name, checksum, is_breaking) values (%s, %s, %s, %s)",
            (migration.version, migration.name, migration.checksum, migration.is_breaking),
            prepare=False,
        )


def _found(connection: Connection[Any], address: Address) -> None:
    name = sql.Identifier(address.schema)
    (is_there,) = _row(connection, "select to_regnamespace(%s) is not null", address.schema)
    if not is_there:
        connection.execute(sql.SQL("create schema {}").format(name), prepare=False)
    _enter(connection, address)
    connection.execute(_VERSIONS, prepare=False)


def _check_history(
    done: dict[int, tuple[str, str, bool]], address: Address, migrations: list[Migration]
) -> None:
    ours = {migration.version: migration for migration in migrations}
    for version, (name, checksum, is_breaking) in done.items():
        if version in ours and ours[version].checksum != checksum:
            raise StoreUnusable(
                f"{address.shown}: {name} is not what this release ships; "
                "the schema was made by a changed or unreleased version"
            )
        if version not in ours and is_breaking:
            raise StoreUnusable(
                f"{address.shown} was changed by a newer release ({name}), which this one cannot "
                "work beside: upgrade outrider"
            )
