"""Errors of a PostgreSQL store name the problem and its fix, and change nothing (M4, M6)."""

from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from outrider.clock import SystemClock
from outrider.errors import Closed, InvalidInput, StoreUnavailable, StoreUnusable
from outrider.store.factory import open_store
from outrider.store.postgres import runner
from outrider.testing.builders import task
from outrider.testing.conformance.steps import open_crawls
from servers import Proxy
from servers.server_process import free_port


@pytest.fixture
def url(places):
    """The address of an empty store."""
    return places.take("postgres")


@pytest.fixture
def line(places):
    """A connection as the owner of the server."""
    with psycopg.connect(places.server("postgres"), autocommit=True) as line:
        yield line


@pytest.fixture
def guest(url, line):
    """The URL of a role that may only connect."""
    name = parse_qs(urlsplit(url).query)["schema"][0].replace("test", "guest")
    line.execute(f"create role {name} login password 'secret'")
    parts = urlsplit(url)
    yield f"postgresql://{name}:secret@{parts.hostname}:{parts.port}{parts.path}?schema={name}"
    line.execute(f"drop owned by {name}; drop role {name}")


def without_user(url):
    """Return host, port and path of a URL."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}{parts.path}"


async def refusal(url, kind):
    """Return the error of opening a store."""
    with pytest.raises(kind) as caught:
        await open_store(url, SystemClock())
    return str(caught.value)


async def repeated(verb):
    """Repeat a verb until the connection is back."""
    for _ in range(30):
        with suppress(StoreUnavailable):
            return await verb()
    pytest.fail("the line did not come back")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://host/db?schema=a;drop", "a schema is up to 49 letters"),
        ("postgresql://host/db?no_such_option=1", "no_such_option"),
        ("postgresql://host:port/db", "port"),
        ("postgres://host/db?schema=", "a schema is up to 49 letters"),
    ],
)
async def test_invalid_url_is_refused_before_connecting(url, says):
    """M4: the message names what is wrong with it."""
    assert says in await refusal(url, InvalidInput)


async def test_unknown_host_is_reported():
    """M4: the fix is to check the host."""
    url = "postgresql://no-such-host.invalid/db"
    assert "check the host of the URL" in await refusal(url, InvalidInput)


async def test_unreachable_server_is_reported():
    """M6: it may come back, so the verb is safe to repeat."""
    said = await refusal(f"postgresql://u@127.0.0.1:{free_port()}/db", StoreUnavailable)
    assert "is the server running?" in said


async def test_wrong_credentials_are_reported_without_the_password(guest):
    """M4: the fix is to check user and password; the message shows neither."""
    said = await refusal(guest.replace(":secret@", ":hunter2@"), InvalidInput)
    assert "check the user and password" in said
    assert "hunter2" not in said


async def test_missing_database_is_reported(url):
    """M4: the fix is to create it."""
    said = await refusal(f"postgresql://postgres@{without_user(url)}-missing", InvalidInput)
    assert "createdb" in said


async def test_missing_privileges_are_reported(guest, line):
    """M4: a role without a schema learns how to get one, and works with it."""
    name = urlsplit(guest).username
    assert f"CREATE SCHEMA {name} AUTHORIZATION {name}" in await refusal(guest, StoreUnusable)
    line.execute(f"create schema {name} authorization {name}")

    store = await open_store(guest, SystemClock())
    await open_crawls(store, "c")
    assert [a.added for a in await store.add([task("https://a.example/", crawl="c")])] == [True]
    await store.close()
    line.execute(f"drop schema {name} cascade")


async def test_read_only_server_is_reported(url):
    """M4: a replica, or a database with default_transaction_read_only."""
    said = await refusal(f"{url}&options=-c%20default_transaction_read_only%3Don", StoreUnusable)
    assert "name the server that writes" in said


@pytest.mark.parametrize("certificate", ["expired", None])
async def test_untrusted_certificate_is_reported(url, places, certificate):
    """M4: an expired certificate, or no TLS where sslmode requires it."""
    with Proxy(places.server("postgres"), certificate=certificate) as proxy:
        root = "&sslrootcert=system" if certificate else ""
        mode = "verify-full" if certificate else "require"
        said = await refusal(f"{proxy.url}?sslmode={mode}{root}", StoreUnusable)
    assert "certificate" in said


async def test_lost_connection_is_reported_and_reopened(url, places, monkeypatch):
    """M6: verbs fail while the server is away; once it is back they work, and nothing is lost."""
    monkeypatch.setattr(runner, "POOL_TIMEOUT", 1.0)
    with Proxy(places.server("postgres")) as proxy:
        schema = urlsplit(url).query
        store = await open_store(f"{proxy.url}?{schema}", SystemClock())
        await open_crawls(store, "c")
        await store.add([task("https://a.example/", crawl="c")])
        proxy.cut()
        assert (await store.crawl("c")).known == 1
        proxy.refuse()
        with pytest.raises(StoreUnavailable, match="safe to repeat"):
            await store.crawl("c")
        proxy.accept()
        added = await repeated(lambda: store.add([task("https://a.example/", crawl="c")]))
        assert [answer.reason for answer in added] == ["duplicate"]
        await store.close()


async def test_silent_connection_is_cut_after_the_timeout(url, places, monkeypatch):
    """M6: no verb waits for ever; it is unknown whether it was applied, and safe to repeat."""
    monkeypatch.setattr(runner, "CALL_TIMEOUT", 0.3)
    with Proxy(places.server("postgres")) as proxy:
        store = await open_store(f"{proxy.url}?{urlsplit(url).query}", SystemClock())
        await open_crawls(store, "c")
        await store.add([task("https://a.example/", crawl="c")])
        proxy.pause()
        with pytest.raises(StoreUnavailable, match="safe to repeat"):
            await store.add([task("https://b.example/", crawl="c")])
        proxy.resume()
        monkeypatch.undo()
        await store.add([task("https://b.example/", crawl="c")])
        assert (await store.crawl("c")).known == 2
        await store.close()


async def test_store_stops_preparing_statements_behind_a_pooler(url):
    """M4: behind a transaction pooler prepared statements get lost; the store detects it."""
    store = await open_store(url, SystemClock())
    await open_crawls(store, "c")
    await store.add([task("https://a.example/", crawl="c")])
    for connection in (
        taken := [store._runner._pool.getconn() for _ in range(runner.MAX_CONNECTIONS)]
    ):
        connection.pgconn.exec_(b"deallocate all")
    for connection in taken:
        store._runner._pool.putconn(connection)

    for number in range(12):
        added = await store.add([task(f"https://a.example/{number}", crawl="c")])
        assert [answer.added for answer in added] == [True]
    assert not store._runner._prepares
    assert (await store.crawl("c")).known == 13
    await store.close()


async def test_full_pool_is_reported(url, monkeypatch):
    """M4: a verb that waits too long for a connection says how many the pool has."""
    monkeypatch.setattr(runner, "POOL_TIMEOUT", 0.05)
    store = await open_store(url, SystemClock())
    taken = [store._runner._pool.getconn() for _ in range(runner.MAX_CONNECTIONS)]
    with pytest.raises(StoreUnavailable, match="the pool has at most 10"):
        await store.crawls()
    for connection in taken:
        store._runner._pool.putconn(connection)
    assert await store.crawls() == []
    await store.close()


async def test_closed_store_raises_closed(url):
    """M6: a verb of a closed store raises Closed."""
    store = await open_store(url, SystemClock())
    await store.close()
    with pytest.raises(Closed):
        await store.crawls()


async def test_server_without_fsync_is_reported(url):
    """M4: such a server is used, and the store says what a crash may lose."""
    store = await open_store(url, SystemClock())
    await store.close()

    assert "fsync is off" in store.promise
