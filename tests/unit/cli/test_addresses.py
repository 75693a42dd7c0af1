"""No command prints a password of a store's address, however the address is spelt.

Every spelling is given to commands that reach a store in memory (so that they print all they have
to say), to commands that are refused, and to the library.
"""

import asyncio
import shlex

import pytest

from outrider import Done, Frontier
from outrider.cli import app
from outrider.cli.crawl_plan import resume_command
from outrider.clock import SystemClock
from outrider.errors import OutriderError
from outrider.store.address import show_address
from outrider.store.factory import open_store
from outrider.store.redis import connect

WORDS = ("hunter", "tiger")  # both halves of every password
SPELLINGS = [
    "postgresql://me:hunter-tiger@127.0.0.1:1/db",
    "postgresql://me:hunter-tiger@127.0.0.1:1/db?schema=news",
    "postgres://me:hunter-tiger@127.0.0.1:1/db",
    "postgre://me:hunter-tiger@127.0.0.1:1/db",
    "postgressql://me:hunter-tiger@127.0.0.1:1/db",
    "POSTGRESQL://me:hunter-tiger@127.0.0.1:1/db",
    "Redis://:hunter-tiger@127.0.0.1:1/0",
    "postgresql+psycopg://me:hunter-tiger@127.0.0.1:1/db",
    "postgresql://127.0.0.1:1/db?user=me&password=hunter-tiger",
    "postgresql://127.0.0.1:1/db?password:hunter-tiger",
    "postgresql://127.0.0.1:1/db?sslpassword=hunter-tiger",
    "postgresql://127.0.0.1:1/db?passfile=/home/hunter/tiger",
    "postgresql://127.0.0.1:1/db&password=hunter-tiger",
    "postgresql://me:hunter#tiger@127.0.0.1:1/db",
    "postgresql://me:hunter@tiger@127.0.0.1:1/db",
    "postgresql://me:hunter/tiger@127.0.0.1:1/db",
    "postgresql://me:hunter?tiger@127.0.0.1:1/db",
    "postgresql://me:hunter?tiger=1@127.0.0.1:1/db",
    "postgresql://me:hunter%ZZtiger@127.0.0.1:1/db",
    "postgresql://me:hunter%tiger@127.0.0.1:1/db",
    "postgresql://me:hunter:tiger@127.0.0.1:1/db",
    "postgresql://me:hunter tiger@127.0.0.1:1/db",
    "postgresql://me:hunter\\tiger@127.0.0.1:1/db",
    "postgresql://me:hunter'tiger@127.0.0.1:1/db",
    "postgresql://me:hunter[tiger@127.0.0.1:1/db",
    "postgresql://me:hunter-tiger",
    "postgresql://:hunter-tiger@127.0.0.1:1/db",
    "postgresql:/me:hunter-tiger@127.0.0.1:1/db",
    "postgresql:me:hunter-tiger@127.0.0.1:1/db",
    "postgresql//me:hunter-tiger@127.0.0.1:1/db",
    " postgresql://me:hunter-tiger@127.0.0.1:1/db",
    "'postgresql://me:hunter-tiger@127.0.0.1:1/db'",
    "me:hunter-tiger@127.0.0.1:1/db",
    "//me:hunter-tiger@127.0.0.1",
    "//:hunter-tiger@127.0.0.1",
    "host=127.0.0.1 port=1 user=me password=hunter-tiger",
    "password='hunter tiger' host=127.0.0.1",
    "PASSWORD = hunter-tiger host=127.0.0.1",
    "redis://:hunter-tiger@127.0.0.1:1/0",
    "redis://hunter-tiger@127.0.0.1:1/0",
    "redis://me:hunter@tiger@127.0.0.1:1/0",
    "redis://:hunter#tiger@127.0.0.1:1/0",
    "redis://:hunter/tiger@127.0.0.1:1/0",
    "redis://:12/hunter/tiger@127.0.0.1:1/0",
    "redis://:12?hunter=tiger@127.0.0.1:1/0",
    "redis://:12#hunter=tiger@127.0.0.1:1/0",
    "redis://:hunter%ZZtiger@127.0.0.1:1/0",
    "redis://:hunter]tiger@127.0.0.1:1/0",
    "redis://127.0.0.1:1/0?password=hunter-tiger",
    "redis://127.0.0.1:1/0?hunter-tiger",
    "redis:hunter-tiger@127.0.0.1:1",
    "redis+cluster://me:hunter-tiger@127.0.0.1:1,127.0.0.1:2",
    "redis+cluster://me:hunter,tiger@127.0.0.1:1,127.0.0.1:2",
    "redis+cluster://me:hunter/tiger@127.0.0.1:1,127.0.0.1:2",
    "redis+clusters://me:hunter-tiger@127.0.0.1:1",
    "rediss://:hunter-tiger@127.0.0.1:1/0?ssl_keyfile=/x",
    "valkey://:hunter-tiger@127.0.0.1:1/0?prefix={a}",
    "unix://:hunter-tiger@/nowhere/redis.sock",
    "http://me:hunter-tiger@127.0.0.1:1/",
    "mysql://me:hunter-tiger@127.0.0.1:1/db",
]
PAGE = "https://a.example/1"
COMMANDS = [
    "crawl --store {} --format none --log= --set fetch.robots_cache=",
    "crawl --store={} -q --json --format none --log= --set fetch.robots_cache=",
    "crawl --store {} --start-over",
    "work {} --format none --log= --output out",
    "add {} https://a.example/1",
    "watch {} --once",
    "workers {}",
    "stats {}",
    "stats {} --why",
    "progress {}",
    "events {}",
    "score https://a.example/1 --store {}",
    "crawls {}",
    "crawls {} --removed",
    "delete {} --crawl nowhere",
    "delete {} --crawl default --yes",
    "queues {}",
    "tasks {}",
    "heatmap {}",
    "explain {} https://a.example/1",
    "queue {} a.example show",
    "drop {} --key nowhere",
    "forget {} --key nowhere",
    "rescore {}",
    "signals {}",
    "predict {} https://a.example/9",
    "problem {} missing host a.example",
    "dead {} list https://a.example/1",
    "dead {} show",
    "dead {} show https://a.example/1",
    "dead {} purge",
    "pause {}",
    "resume {}",
    "cancel {} --yes",
    "export {} -",
    "import {} nowhere.jsonl",
    "copy {} copy.outrider",
    "copy nowhere.outrider {}",
    "checkpoint {} copy.outrider",
    "doctor {}",
    "config show {}",
    "config get {} queue.key",
    "config set {} lease.seconds=5",
    "config unset {} lease.seconds",
    "config history {}",
    "config check {}",
    "stats {} --crawl nowhere",
    "stats {} more",  # click names what it did not expect
    "{}",
    "config {}",
    "dead nowhere.outrider {}",
    "queues nowhere.outrider --limit {}",
    "crawl {}",
    "crawl --from {}",
    "crawl --settings {}",
]


def assert_clean(text):
    """Neither half of the password is in it."""
    assert not [word for word in WORDS if word in text], text


@pytest.fixture
def served(monkeypatch, tmp_path):
    """A store in memory behind every address that commands open; its crawl is finished."""
    monkeypatch.chdir(tmp_path)
    store = asyncio.run(open_store("memory://", SystemClock()))
    close = type(store).close

    async def opened(*_, **__):
        return store

    async def begun():
        async with Frontier.open(store) as frontier:
            await frontier.add([PAGE])
            (lease,) = await frontier.claim(1)
            await frontier.finish(lease, Done(200))
            await frontier.claim(1)

    asyncio.run(begun())
    monkeypatch.setattr("outrider.frontier.context.open_store", opened)
    monkeypatch.setattr(type(store), "close", lambda _: asyncio.sleep(0))
    yield store
    asyncio.run(close(store))


def test_every_command_is_in_the_table():
    """A new command must be added to it."""
    names = {name for commands in app.COMMANDS.values() for name in commands} | {"config"}
    without_store = {"demo", "simulate", "bench", "version"}

    assert names - without_store == {line.split()[0] for line in COMMANDS} - {"{}"}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_on_an_open_store_prints_no_password(command, outrider, served):
    """Titles, hints, closing tables and errors, with an address that says where the store is."""
    address = "postgresql://me:hunter-tiger@127.0.0.1:1/db?password=hunter"
    answer = outrider(*shlex.split(command.format(shlex.quote(address))))

    assert_clean(answer.out + answer.err)


@pytest.mark.parametrize("address", SPELLINGS)
def test_no_spelling_of_an_address_makes_a_command_print_its_password(
    address, outrider, monkeypatch, tmp_path
):
    """The address is refused, or the command is before it looks for the store."""
    monkeypatch.chdir(tmp_path)
    answer = outrider("dead", address, "show")

    assert answer.code == 2
    assert_clean(answer.out + answer.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_refusing_command_prints_no_password(command, outrider, monkeypatch, tmp_path):
    """Every command reads its address in the same way."""
    monkeypatch.chdir(tmp_path)
    answer = outrider(*shlex.split(command.format("postgre://me:hunter/tiger@h")))

    assert answer.code
    assert_clean(answer.out + answer.err)


@pytest.mark.parametrize("address", SPELLINGS)
def test_resume_command_shows_no_password(address):
    """Whichever way the option was written, and also where the store was no option."""
    for words in (["--store", address], [f"--store={address}"], []):
        hint = resume_command(address, ["crawl", *words])

        assert_clean(hint)
        assert shlex.split(hint)[-1].removeprefix("--store=") == show_address(address)


@pytest.mark.parametrize("address", SPELLINGS)
async def test_error_of_the_library_quotes_no_secret(address, tmp_path, monkeypatch):
    """Neither its message nor those of the errors behind it, which a traceback prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connect, "CONNECT_RETRIES", 0)
    with pytest.raises(OutriderError) as refused:
        await open_store(address, SystemClock())

    error = refused.value
    while error is not None:
        assert_clean(f"{error} {error!r}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert list(tmp_path.iterdir()) == []
