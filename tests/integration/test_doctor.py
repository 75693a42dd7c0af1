"""`outrider doctor STORE` on real servers: what is well, and problems that were made (M4, M5)."""

import asyncio
import json
from socket import create_server

import psycopg
import pytest
import redis

from outrider import Frontier
from outrider.cli import app, doctor
from outrider.store import factory
from outrider.store.health import MAX_CLOCK_DIFFERENCE, clock_check
from outrider.store.redis import connect
from outrider.testing import FakeClock
from servers.postgres import PostgresServer
from servers.valkey import ValkeyServer

SAFE = {"appendonly": "yes", "appendfsync": "everysec"}
SECRET = "s3cr3t-of-nobody"


@pytest.fixture
def examine(monkeypatch, capsys):
    """Runs the command; its code, the checks by name, and all it wrote."""

    def run(url):
        monkeypatch.setattr("sys.argv", ["outrider", "doctor", url, "--json"])
        with pytest.raises(SystemExit) as end:
            app.run()
        out, err = capsys.readouterr()
        checks = json.loads(out)["checks"]
        assert json.loads(out)["is_healthy"] is (end.value.code == 0)
        return end.value.code, {check["what"]: check for check in checks}, out + err

    return run


def fill(url, **settings):
    """A crawl in the store."""

    async def add():
        async with Frontier.open(url, settings=settings) as frontier:
            await frontier.add(["https://a.example/"])

    asyncio.run(add())
    return url


def problems(checks):
    """The names of the checks that are not well."""
    return {name for name, check in checks.items() if not check["is_ok"]}


@pytest.fixture(scope="module")
def postgres():
    """A durable server with a role that needs a password."""
    with PostgresServer() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("create role worker login password 'right' connection limit 12")
            connection.execute("grant create on database postgres to worker")
        yield server


@pytest.fixture(scope="module")
def valkey():
    """A durable server."""
    with ValkeyServer(options=SAFE) as server:
        yield server


# ---- PostgreSQL


def test_durable_postgres_with_a_crawl_is_healthy(examine, postgres):
    """M4: server, promise, clock, connections, tables, and the contact of each crawl."""
    url = fill(f"{postgres.url}?schema=well", fetch={"contact": "me@example.org"})

    code, checks, _ = examine(url)

    assert (code, problems(checks)) == (0, set())
    names = {"reachable", "server", "durability", "clock", "connections", "store", "crawls"}
    assert names | {"contact of default", "open files"} == checks.keys()
    assert "fsync on, synchronous_commit on" in checks["durability"]["found"]
    assert "schema well, version" in checks["store"]["found"]
    assert checks["contact of default"]["found"] == "me@example.org"


def test_store_is_not_made_by_examining_it(examine, postgres):
    """M4: nothing is written; a crawl without a contact is advice and no problem."""
    url = f"{postgres.url}?schema=nothing"

    code, checks, _ = examine(url)

    assert (code, checks["store"]["found"]) == (0, "none in schema nothing yet")
    with psycopg.connect(postgres.url) as connection:
        query = "select count(*) from pg_namespace where nspname = 'nothing'"
        assert connection.execute(query).fetchone() == (0,)
    fill(url)
    code, checks, _ = examine(url)
    assert code == 0
    assert checks["contact of default"]["found"] == "not set"
    assert "fetch.contact" in checks["contact of default"]["fix"]

    async def set_contact():
        async with Frontier.attach(url) as frontier:
            await frontier.configure({"fetch": {"contact": "me@example.org"}})

    asyncio.run(set_contact())
    assert examine(url)[1]["contact of default"]["found"] == "me@example.org"


def test_lazy_commits_are_a_problem(examine, postgres):
    """M4: the setting of the role counts, as it does for every worker."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("alter role worker set synchronous_commit = off")
    url = postgres.url.replace("postgres@", "worker:right@")

    code, checks, _ = examine(url)

    assert (code, problems(checks)) == (1, {"durability"})
    assert "may lose the last second" in checks["durability"]["found"]


def test_role_without_enough_connections_is_a_problem(examine, postgres):
    """M4: ten for each process, of those that its role has left."""
    url = postgres.url.replace("postgres@", "worker:right@")
    held = [psycopg.connect(url) for _ in range(5)]
    try:
        _, checks, _ = examine(url)
    finally:
        for connection in held:
            connection.close()

    assert not checks["connections of the role"]["is_ok"]
    assert checks["connections of the role"]["found"] == "6 of 12 in use"


def test_wrong_password_is_told_and_never_shown(examine, postgres):
    """Q: neither the password nor what was typed in its place."""
    code, checks, everything = examine(postgres.url.replace("postgres@", f"worker:{SECRET}@"))

    assert (code, problems(checks)) == (1, {"reachable"})
    assert "check the user and password" in checks["reachable"]["found"]
    assert SECRET not in everything


def test_pending_migrations_are_told_and_not_applied(examine, postgres):
    """M4: only opening the store applies them."""
    url = fill(f"{postgres.url}?schema=old")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        gone = "delete from old.migration where version = (select max(version) from old.migration)"
        connection.execute(gone)

    code, checks, _ = examine(url)
    again, _, _ = examine(url)

    assert (code, again, problems(checks)) == (1, 1, {"store"})
    assert "1 migrations pending" in checks["store"]["found"]
    assert "crawls" not in checks


def test_schema_of_another_program_is_a_problem(examine, postgres):
    """M4: named, and left alone."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create schema theirs; create table theirs.cats (name text)")

    code, checks, _ = examine(f"{postgres.url}?schema=theirs")

    assert (code, problems(checks)) == (1, {"store"})
    assert "not Outrider's" in checks["store"]["found"]


@pytest.mark.parametrize(
    ("role", "rights", "schema", "says"),
    [
        (
            "stranger",
            "",
            "absent",
            "may not make schema 'absent': GRANT CREATE ON DATABASE",
        ),
        ("outsider", "", "owned", "may not use schema 'owned': ALTER SCHEMA owned OWNER TO"),
        ("guest", "grant usage on schema owned to guest", "owned", "permission denied for table"),
        ("tenant", "grant usage on schema bare to tenant", "bare", "may not make tables in"),
    ],
)
def test_role_without_the_rights_it_needs_is_a_problem(
    examine, postgres, role, rights, schema, says
):
    """M4: told before anything is opened, with what to grant; the server itself is well."""
    fill(f"{postgres.url}?schema=owned")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"create role {role} login password 'right'")
        connection.execute(f"create schema if not exists bare; {rights}")
    url = postgres.url.replace("postgres@", f"{role}:right@")

    code, checks, _ = examine(f"{url}?schema={schema}")

    assert (code, problems(checks)) == (1, {"store"})
    assert says in checks["store"]["found"]
    assert "crawls" not in checks


# ---- Redis


def test_durable_valkey_with_a_crawl_is_healthy(examine, valkey):
    """M5: version, role, eviction, promise, clock, clients, format."""
    url = fill(f"{valkey.url}?prefix=well", fetch={"contact": "me@example.org"})

    code, checks, _ = examine(url)

    assert (code, problems(checks)) == (0, set())
    assert checks["eviction"]["found"] == "noeviction"
    assert "loses up to 1 s" in checks["durability"]["found"]
    assert checks["store"]["found"].startswith("format ")
    assert checks["contact of default"]["found"] == "me@example.org"


@pytest.mark.parametrize(
    ("name", "value", "check", "says"),
    [
        ("appendfsync", "no", "durability", "appendfsync no: a crash of the machine loses"),
        ("appendonly", "no", "durability", "no persistence"),
        ("maxmemory-policy", "allkeys-lru", "eviction", "set maxmemory-policy noeviction"),
        ("maxclients", "9", "connections", "of 9 in use"),
        ("maxmemory", "1mb", "memory", "of 1,048,576 bytes in use"),
    ],
)
def test_setting_that_endangers_crawls_is_a_problem(examine, valkey, name, value, check, says):
    """M5: what is set is found on the server itself, also if the store refuses to open."""
    server = redis.Redis.from_url(valkey.url)
    before = server.config_get(name)[name]
    server.config_set(name, value)
    try:
        code, checks, _ = examine(f"{valkey.url}?prefix=danger")
    finally:
        server.config_set(name, before)
        server.close()

    assert (code, problems(checks)) == (1, {check})
    assert says in checks[check]["found"]


@pytest.mark.parametrize(("change", "says"), [(-1, "1 upgrades pending"), (1, "a newer release")])
def test_format_of_another_release_is_a_problem(examine, valkey, change, says):
    """M5: told, and not changed."""
    url = fill(f"{valkey.url}?prefix=format{change}")
    server = redis.Redis.from_url(valkey.url)
    (meta,) = server.keys(f"*format{change}*meta")
    number = int(server.hget(meta, "format")) + change
    server.hset(meta, "format", number)

    code, checks, _ = examine(url)

    assert (code, problems(checks)) == (1, {"store"})
    assert says in checks["store"]["found"]
    assert int(server.hget(meta, "format")) == number
    server.close()


def test_password_of_valkey_is_never_shown(examine):
    """Q: the wrong one, a missing one, or the right one."""
    with ValkeyServer(options={"requirepass": SECRET, **SAFE}) as server:
        right = examine(server.url)
        wrong = examine(server.url.replace(SECRET, "no-" + SECRET))
        missing = examine(f"redis://127.0.0.1:{server.port}/0")

    assert [code for code, _, _ in (right, wrong, missing)] == [0, 1, 1]
    for _, checks, _ in (wrong, missing):
        assert "refused the user or the password" in checks["reachable"]["found"]
    assert all(SECRET not in everything for _, _, everything in (right, wrong, missing))


# ---- a cluster


def test_every_master_of_a_cluster_is_examined(examine, places):
    """M5: and the store, whose shards must all be there."""
    url = fill(places.take("cluster"), fetch={"contact": "me@example.org"})

    _, checks, _ = examine(url)

    masters = {name.partition(" ")[0] for name in checks if name.endswith(" durability")}
    assert len(masters) > 1
    assert problems(checks) == {f"{one} durability" for one in masters}  # tests need none
    assert checks["contact of default"]["found"] == "me@example.org"


def test_missing_shard_is_a_problem(examine, places):
    """M5: a node that lost its data is named as such."""
    url = fill(places.take("cluster"))
    prefix = url.rpartition("prefix=")[2]
    server = redis.RedisCluster.from_url(url.replace("redis+cluster", "redis").partition("?")[0])
    metas = sorted(key for key in server.scan_iter(f"*{prefix}*meta", target_nodes="primaries"))
    server.delete(metas[-1])
    server.close()

    code, checks, _ = examine(url)

    assert code == 1
    assert "is missing from the store" in checks["store"]["found"]


# ---- any server


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://worker:{SECRET}@127.0.0.1:1/x",
        f"redis://:{SECRET}@127.0.0.1:1/0",
        f"redis+cluster://:{SECRET}@127.0.0.1:1",
    ],
)
def test_server_that_does_not_answer_is_a_problem(examine, url):
    """M6: one line, without what is secret; this machine is still examined."""
    code, checks, everything = examine(url)

    assert code == 1
    assert problems(checks) == {"reachable"}
    assert checks.keys() == {"reachable", "open files"}
    assert "running?" in checks["reachable"]["found"]
    assert SECRET not in everything


def test_redis_that_takes_connections_and_answers_nothing_is_given_up(examine, monkeypatch):
    """M5: within a time for all attempts together."""
    monkeypatch.setattr(connect, "MAX_CONNECT_TIME", 0.2)
    with create_server(("127.0.0.1", 0)) as silent:
        code, checks, _ = examine(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")

    assert (code, problems(checks)) == (1, {"reachable"})
    assert "no answer within" in checks["reachable"]["found"]


def test_address_of_no_store_is_refused_with_those_there_are(monkeypatch, capsys):
    """Q: as every other command does."""
    monkeypatch.setattr("sys.argv", ["outrider", "doctor", "mysql://host/database"])
    assert app.run() == 2
    assert "'postgresql://host/database'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["postgres", "redis", "cluster"])
def test_clock_difference_is_measured(places, kind):
    """H7: against this machine's clock, which is moved here; the servers' stay."""
    url, clock = places.take(kind), FakeClock()

    found = asyncio.run(factory.examine_server(url, clock))
    clocks = [check for check in found.checks if check.what.endswith("clock")]

    assert clocks
    assert not any(check.is_ok for check in clocks)
    assert all("ahead of this machine" in check.found for check in clocks)
    assert all("NTP" in check.fix for check in clocks)


def test_small_clock_difference_is_no_problem():
    """H7: half of the time that the answer took is in doubt."""
    edge = MAX_CLOCK_DIFFERENCE * 1000
    assert clock_check("clock", 0, edge, 0).is_ok
    assert not clock_check("clock", 0, edge + 1, 0).is_ok
    assert clock_check("clock", 0, edge + 500, 1000).is_ok
    assert "behind" in clock_check("clock", 5000, 0.0, 5000).found


def test_machine_that_has_too_few_files_is_a_problem(examine, valkey, monkeypatch):
    """M3: the limit of this machine, with the store's."""
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (256, 256))

    code, checks, _ = examine(f"{valkey.url}?prefix=files")

    assert (code, problems(checks)) == (1, {"open files"})
