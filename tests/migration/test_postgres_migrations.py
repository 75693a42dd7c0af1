"""Migrations: a migrated schema equals a fresh one, and releases share a schema (M4)."""

import asyncio
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from outrider.clock import SystemClock
from outrider.core.queue_action import Pause, Retire
from outrider.core.states import RETIRED_REASONS, SNOOZED_REASONS, CrawlStatus, TaskState
from outrider.errors import StoreUnusable
from outrider.store.postgres import PostgresStore, migrate
from outrider.store.postgres.address import parse_address
from outrider.store.postgres.migrate import Migration, prepare_store, release_migrations
from outrider.store.protocol import ClaimRequest, SharedValueWrite
from outrider.testing.builders import done, task
from outrider.testing.conformance.steps import open_crawls

ADDED = "alter table task add column colour text; create index task_colour on task (colour)"

COLUMNS = """
select table_name, column_name, data_type, is_nullable, column_default
from information_schema.columns where table_schema = %s order by 1, 2
"""
INDEXES = (
    "select indexname, replace(indexdef, %s, '') from pg_indexes where schemaname = %s order by 1"
)
CHECKS = """
select conname, pg_get_constraintdef(c.oid) from pg_constraint c
join pg_namespace n on n.oid = c.connamespace where n.nspname = %s order by 1
"""


def prepare(url, migrations=None):
    """Bring the tables at an address up to date."""
    return prepare_store(parse_address(url), migrations)


def schema_of(url):
    """Return the schema of a URL."""
    return parse_qs(urlsplit(url).query)["schema"][0]


@pytest.fixture
def line(places):
    """A connection to the server."""
    with psycopg.connect(places.server("postgres"), autocommit=True) as line:
        yield line


@pytest.fixture
def empty(places, line):
    """Return a function that returns addresses of missing schemas."""
    urls = []

    def make():
        url = places.take("postgres")
        line.execute(f"drop schema if exists {schema_of(url)} cascade")
        urls.append(url)
        return url

    yield make
    for url in urls:
        line.execute(f"drop schema if exists {schema_of(url)} cascade")
        prepare(url)


def portrait(line, url):
    """Return what the catalog has of a schema's tables."""
    name = schema_of(url)
    return [
        line.execute(COLUMNS, (name,)).fetchall(),
        line.execute(INDEXES, (f"{name}.", name)).fetchall(),
        line.execute(CHECKS, (name,)).fetchall(),
    ]


def second(text=ADDED):
    """Return a migration of a later release."""
    return Migration(release_migrations()[-1].version + 1, "9999_later.sql", text)


def test_no_two_migrations_share_a_number():
    """M4: a schema records one migration for each, and refuses the other."""
    versions = [migration.version for migration in release_migrations()]

    assert versions == list(range(1, len(versions) + 1))


def test_migrated_schema_equals_a_fresh_one(empty, line):
    """M4: after the migrations of every release a store has the tables of a new one."""
    migrated, fresh = empty(), empty()
    for count in range(1, len(release_migrations()) + 1):
        prepare(migrated, release_migrations()[:count])
    prepare(migrated, [*release_migrations(), second()])
    prepare(fresh, [*release_migrations(), second()])

    assert portrait(line, migrated) == portrait(line, fresh)
    assert ("task", "colour", "text", "YES", None) in portrait(line, fresh)[0]


async def test_workers_of_two_releases_share_a_migrated_schema(empty):
    """M4: a migration of a newer release stops no older worker, unless it is breaking."""
    url = empty()
    old = await PostgresStore.open(url, SystemClock())
    await open_crawls(old, "test")
    await old.add([task("https://a.example/1", crawl="test")])
    await asyncio.to_thread(prepare, url, [*release_migrations(), second()])
    await old.add([task("https://b.example/1", crawl="test")])
    older = await PostgresStore.open(url, SystemClock())

    claimed = await older.claim(ClaimRequest("test", "w", 5))
    assert len(claimed.leases) == 2
    assert all(end.applied for end in await old.finish([done(one) for one in claimed.leases]))
    for store in (old, older):
        await store.close()


async def test_worker_of_the_release_before_shared_values_still_works(empty, monkeypatch):
    """M4: the release before shared values made the store; both releases work on it."""
    url = empty()
    with monkeypatch.context() as before:
        older = [one for one in release_migrations() if one.name != "0002_notes.sql"]
        before.setattr(migrate, "release_migrations", lambda: older)
        old = await PostgresStore.open(url, SystemClock())
    await open_crawls(old, "test")
    await old.add([task("https://a.example/1", crawl="test")])
    new = await PostgresStore.open(url, SystemClock())

    assert await new.put_values("test", [SharedValueWrite("weather", "north", "rain")]) == [1]
    claimed = await old.claim(ClaimRequest("test", "w", 5))
    assert all(end.applied for end in await old.finish([done(one) for one in claimed.leases]))
    assert [note.text for note in await new.values_since("test")] == ["rain"]
    assert (await new.crawl("test")).done == 1
    for store in (old, new):
        await store.close()


async def test_store_without_counts_is_counted_by_the_migration(empty, line):
    """C1, F8: queues by state and tasks by priority, whatever is delayed, leased or paused."""
    url = empty()
    store = await PostgresStore.open(url, SystemClock())
    await open_crawls(store, "default")
    urgencies = (-2000.0, -200.0, 0.0, 300.0)
    await store.add(
        [
            *[task(f"https://h{n}.example/", priority=p) for n, p in enumerate(urgencies)],
            task("https://h5.example/", priority=500.0, delay=60.0),
            task("https://h6.example/", priority=-100.0),
        ]
    )
    await store.steer("default", "h1.example", Pause())
    await store.steer("default", "h6.example", Retire())
    await store.claim(ClaimRequest("default", "w", 1))
    wanted = await store.crawl("default")
    line.execute(f"set search_path to {schema_of(url)}")
    line.execute("truncate counter, delta")
    line.execute("alter table task drop column blocks")
    (counts,) = (one for one in release_migrations() if one.name.endswith("_counts.sql"))
    line.execute(counts.text)

    assert {name: count for name, count in wanted.queues.items() if count} == {
        "retired": 1,
        "paused": 1,
        "busy": 1,
        "snoozed": 1,
        "ready": 2,
    }
    assert wanted.bands == {"critical": 0, "high": 2, "normal": 1, "low": 2}
    counted = await store.crawl("default")
    assert (counted.queues, counted.bands["high"]) == (wanted.queues, wanted.bands["high"])
    assert (counted.bands["critical"], counted.bands["low"]) == (0, 2)
    await store.close()


def test_schema_with_a_newer_breaking_migration_is_refused(empty, line):
    """M4: an older release refuses it, and changes nothing."""
    url = empty()
    prepare(url, [*release_migrations(), second(f"-- breaking\n{ADDED}")])
    before = portrait(line, url)

    with pytest.raises(StoreUnusable, match=r"newer release \(9999_later.sql\).*upgrade outrider"):
        prepare(url)
    assert portrait(line, url) == before


def test_failed_migration_changes_nothing(empty, line):
    """M4: each is one transaction; the next process starts from the state before it."""
    url = empty()
    prepare(url)
    before = portrait(line, url)
    with pytest.raises(StoreUnusable, match="no_such_table"):
        prepare(url, [*release_migrations(), second(f"{ADDED}; drop table no_such_table")])

    assert portrait(line, url) == before
    prepare(url)
    with pytest.raises(StoreUnusable, match="no_such_table"):
        prepare(empty(), [Migration(1, "1.sql", "select * from no_such_table")])


def test_schema_with_a_changed_migration_is_refused(empty):
    """M4: the checksum identifies the text that made the tables."""
    url, (first, *rest) = empty(), release_migrations()
    prepare(url, [first._replace(text=f"{first.text}\n-- changed"), *rest])

    with pytest.raises(StoreUnusable, match=f"{first.name} is not what this release ships"):
        prepare(url)


@pytest.mark.parametrize("table", ["customer", "migration"])
def test_schema_with_foreign_tables_is_refused(empty, line, table):
    """M4: nothing is written beside tables that are not Outrider's."""
    url = empty()
    line.execute(f"create schema {schema_of(url)}")
    line.execute(f"create table {schema_of(url)}.{table} (id integer)")
    before = portrait(line, url)

    with pytest.raises(
        StoreUnusable, match=r"tables that are not Outrider's; name another one with"
    ):
        prepare(url)
    assert portrait(line, url) == before


async def test_processes_that_open_an_empty_schema_at_once_share_one_store(empty):
    """M4: one process creates the tables, the others wait for it, and all see one store."""
    url = empty()
    names = await asyncio.gather(*(asyncio.to_thread(prepare, url) for _ in range(4)))

    assert len(set(names)) == 1


def test_server_older_than_the_minimum_is_refused(empty, monkeypatch):
    """M4: the message names the minimum version."""
    monkeypatch.setattr(migrate, "MIN_VERSION", 990_000)

    with pytest.raises(StoreUnusable, match=r"is PostgreSQL \d+; 99 or newer is needed"):
        prepare(empty())


def test_check_constraints_allow_every_state_and_reason(empty, line):
    """B2, C1, I1: SQL checks the states of `core.states`; a leased task has a lease."""
    url = empty()
    prepare(url)
    checks = " ".join(text for _, text in portrait(line, url)[2])

    for words in (
        [state.value for state in TaskState if state is not TaskState.LEASED],
        [status.value for status in CrawlStatus],
        RETIRED_REASONS,
        SNOOZED_REASONS,
    ):
        assert ", ".join(f"'{word}'::text" for word in words) in checks
