"""Real servers for tests: they start, end in every manner, come back, and leave nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import psycopg
import pytest
import redis
from redis.cluster import RedisCluster

from child_environment import child_environment
from servers import PostgresServer, ValkeyServer
from servers.empty_stores import with_parameter
from servers.postgres import FAST


def rows(url, query="SELECT n FROM kept", *values):
    """What a query of a fresh connection gives."""
    with psycopg.connect(url) as line:
        return line.execute(query, values).fetchall()


def test_postgres_keeps_its_data_however_it_ends():
    """Orderly, immediate or killed: it is started again on the same data, at the same port."""
    with PostgresServer(options=FAST) as server:
        with psycopg.connect(server.url) as line:
            line.execute("CREATE TABLE kept AS SELECT 7 AS n")
        for manner in ("orderly", "immediate", "kill"):
            before = server.pid
            server.restart(manner)

            assert server.pid != before
            assert rows(server.url) == [(7,)]


def test_postgres_asks_roles_for_their_password():
    """All but its superuser: credentials can be wrong."""
    with PostgresServer(options=FAST) as server:
        with psycopg.connect(server.url) as line:
            line.execute("CREATE ROLE guest LOGIN PASSWORD 'right'")
        url = server.url.replace("postgres@", "guest:{}@", 1)

        assert rows(url.format("right"), "SELECT 1") == [(1,)]
        with pytest.raises(psycopg.OperationalError, match="password"):
            rows(url.format("wrong"), "SELECT 1")


def test_valkey_keeps_what_it_was_told_to_keep():
    """With `appendfsync always` nothing answered is lost at a kill."""
    with ValkeyServer(options={"appendonly": "yes", "appendfsync": "always"}) as server:
        redis.Redis.from_url(server.url).set("n", 7)
        for manner in ("orderly", "kill"):
            server.restart(manner)

            assert redis.Redis.from_url(server.url).get("n") == b"7"


def test_a_frozen_server_goes_on_where_it_was():
    """It answers nothing meanwhile."""
    with ValkeyServer() as server:
        impatient = redis.Redis.from_url(server.url, socket_timeout=0.05, retry=None)
        server.freeze()
        with pytest.raises(redis.TimeoutError):
            impatient.ping()
        server.thaw()

        assert redis.Redis.from_url(server.url).ping()


def test_a_server_that_cannot_start_says_why():
    """With the end of its log."""
    with pytest.raises(RuntimeError, match="no_such_option"):
        PostgresServer(options={"no_such_option": "1"}).start()


def test_a_prefix_is_cleared(places):
    """What was put under it is gone afterwards, and nothing else."""
    prefix = places.take("redis").rpartition("prefix=")[2]
    client = redis.Redis.from_url(places.server("redis"))
    client.mset({f"{prefix}:{{1}}:a": 1, "somebody's": 1})

    places.clear()

    assert client.keys(f"*{prefix}*") == []
    assert client.delete("somebody's") == 1


def test_a_schema_is_used_again_and_empty_again(places):
    """Rows, new sequences and counts are gone; two taken at once are two."""
    first, second = places.take("postgres"), places.take("postgres")
    place = first.rpartition("schema=")[2]
    with psycopg.connect(places.server("postgres")) as line:
        line.execute(f'SET search_path = "{place}"')
        line.execute("CREATE SEQUENCE numbers")
        line.execute("INSERT INTO crawl (name, created_at) VALUES ('a', 0)")
    places.clear()
    again = {places.take("postgres"), places.take("postgres")}

    assert again == {first, second}
    with psycopg.connect(places.server("postgres")) as line:
        line.execute(f'SET search_path = "{place}"')
        assert line.execute("SELECT count(*) FROM crawl").fetchall() == [(0,)]
        assert line.execute("SELECT count(*) FROM store").fetchall() == [(1,)]
        assert line.execute("SELECT to_regclass('numbers')").fetchall() == [(None,)]
        new = "INSERT INTO crawl (name, created_at) VALUES ('a', 0) RETURNING id"
        assert line.execute(new).fetchall() == [(1,)]


@pytest.mark.slow
def test_a_cluster_serves_every_slot(places):
    """Three masters, each with its share; a place of it is cleared on all."""
    prefix = places.take("cluster").rpartition("prefix=")[2]
    with RedisCluster.from_url(places.server("cluster")) as cluster:
        for number in range(100):
            cluster.set(f"{prefix}{number}", number)
        shares = [cluster.get_redis_connection(n).dbsize() for n in cluster.get_primaries()]
        places.clear()

        assert len(shares) == 3
        assert all(shares)
        assert all(cluster.get(f"{prefix}{number}") is None for number in range(100))


def test_a_parameter_joins_those_that_are_there():
    """Other servers may need parameters of their own."""
    assert with_parameter("redis://h:1/0", "prefix", "p") == "redis://h:1/0?prefix=p"
    assert with_parameter("postgresql://h/d?a=1", "schema", "s").endswith("?a=1&schema=s")


CHILD = """
import sys
from servers import PostgresServer, ValkeyServer, shared_url
from servers.postgres import FAST
own = PostgresServer(options=FAST).start()
print(own.place.parent, own.pid, shared_url("redis", sys.argv[1]), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_nothing_is_left_of_a_killed_process():
    """Its own servers end with it; the shared one with the last that shares it."""
    run = f"test-{os.getpid()}"
    first, second = (
        subprocess.Popen(
            [sys.executable, "-c", CHILD, run],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        for _ in range(2)
    )
    told = [child.stdout.readline().decode().split() for child in (first, second)]
    (place, pid, url), (_, _, same) = told
    first.send_signal(signal.SIGKILL)
    first.communicate()
    wait_until(lambda: not Path(place).exists())

    assert not is_running(int(pid))
    assert url == same
    assert redis.Redis.from_url(url).ping()

    second.communicate()
    wait_until(lambda: not is_up(url))


def is_running(pid):
    """Whether such a process is more than a memory of the system."""
    about = Path(f"/proc/{pid}/stat")
    return about.exists() and ") Z " not in about.read_text()


def is_up(url):
    """Whether anybody answers there."""
    try:
        return redis.Redis.from_url(url, retry=None).ping()
    except redis.ConnectionError:
        return False


def wait_until(true):
    """Give it ten seconds."""
    for _ in range(500):
        if true():
            return
        Event().wait(0.02)
    pytest.fail("ten seconds were not enough")
