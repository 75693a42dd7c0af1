"""The pages for those who come from elsewhere: what they name exists, and their SQL is right."""

import asyncio
import re
from pathlib import Path

import psycopg
import pytest
import typer

import outrider
from outrider import Done, Failed, Frontier, Link, wiring
from outrider.cli.app import app
from outrider.frontier.metrics import Metrics
from outrider.settings.reference import documented_settings
from outrider.testing import FakeClock

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [pytest.param(page, id=page.stem) for page in sorted((DOCS / "migration").glob("*.md"))]
SETTINGS = {path for path, *_ in documented_settings()}
SECTIONS = {path.partition(".")[0] for path in SETTINGS}
METRIC = re.compile(r"`(\w+_(?:total|ratio|per_second|seconds))`\]?")
CALL = re.compile(r"`(\w+)\(")
SHOP = "https://shop.example"


def named_settings(text):
    """What stands as `section.name` on a page, without its value."""
    words = re.findall(r"`([a-z]+\.[a-z_.]+?)(?:\.[*<][^`]*)?(?: = [^`]*)?`", text)
    return {word for word in words if word.partition(".")[0] in SECTIONS}


@pytest.mark.parametrize("page", PAGES)
def test_settings_of_a_migration_page_exist(page):
    """What a reader sets is a setting."""
    named = named_settings(page.read_text("utf-8"))
    known = {".".join(path.split(".")[:depth]) for path in SETTINGS for depth in (2, 3, 4)}

    assert len(named) >= 5
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES)
def test_metrics_of_a_migration_page_exist(page):
    """What a reader looks for is shown by `outrider stats --metrics --json`."""
    linked = [
        line for line in page.read_text("utf-8").splitlines() if "reference/metrics.md" in line
    ]

    assert linked
    assert {name for line in linked for name in METRIC.findall(line)} <= set(
        Metrics.__struct_fields__
    )


def our_cells(text):
    """All cells of the tables but the first, which is what the other system has."""
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cell for _, *cells in rows for cell in cells]


@pytest.mark.parametrize("page", PAGES)
def test_calls_of_a_migration_page_exist(page):
    """A method that a table names can be called."""
    calls = {call for cell in our_cells(page.read_text("utf-8")) for call in CALL.findall(cell)}
    homes = (Frontier, outrider, wiring)

    assert {call for call in calls if not any(hasattr(home, call) for home in homes)} == set()


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_migration_page_exist(page):
    """A command that a table names can be typed, with its options."""
    typed = re.findall(r"`outrider ([^`]+)`", page.read_text("utf-8"))
    commands = typer.main.get_command(app).commands

    assert typed
    for name, *words in map(str.split, typed):
        assert name in commands
        known = {option for one in with_acts(commands[name]) for option in one.opts}
        assert {word for word in words if word.startswith("--")} <= known, name


def with_acts(command):
    """The parameters of a command, and of the commands of a group."""
    parts = [command, *getattr(command, "commands", {}).values()]
    return [parameter for part in parts for parameter in part.params]


async def fill(url):
    """A task of each state: pending, leased, done, and dead of its fourth failure."""
    clock = FakeClock()
    settings = {"profile": "paced"}
    async with Frontier.open(url, settings=settings, crawl="tea", clock=clock) as frontier:

        async def claimed(word):
            await frontier.add([Link(f"{SHOP}/{word}", type="product", tag=word)])
            return await next_lease()

        async def next_lease():
            while not (claim := await frontier.claim()):
                clock.advance(claim.wake_in)
            return claim[0]

        await frontier.finish(await claimed("done"), Done(200))
        lease = await claimed("dead")
        for _ in range(4):
            await frontier.finish(lease, Failed("captcha"))
            if (await frontier.stats()).pending:
                lease = await next_lease()
        await claimed("leased")
        await frontier.add([Link(f"{SHOP}/pending", type="search", tag="pending")])


def test_view_of_the_page_has_the_rows_of_the_old_table(places):
    """Reports that read such a table go on: its columns, its words for states, its priorities."""
    url = places.take("postgres")
    schema = re.search(r"schema=(\w+)", url)[1]
    asyncio.run(fill(url))
    page = (DOCS / "migration" / "from-a-crawl-table.md").read_text("utf-8")
    (view,) = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    view = view.replace("create view", "create temporary view")
    columns = "keyword, url_type, priority, status, retry_count, error_message"
    present = "next_attempt_at, submitted_at, completed_at"
    query = f"select {columns}, num_nonnulls({present}) from crawl_queue where job_id = 'tea'"  # noqa: S608 - our own words
    with psycopg.connect(url.partition("?")[0]) as connection:
        connection.execute(view.replace("outrider.crawl_queue", f"{schema}.crawl_queue"))
        rows = connection.execute(f"{query} order by id").fetchall()

    assert rows == [
        ("done", "product", 2.0, "completed", 0, None, 2),
        ("dead", "product", 2.0, "failed", 4, "captcha", 2),
        ("leased", "product", 2.0, "submitted", 0, None, 1),
        ("pending", "search", 1.0, "pending", 0, None, 1),
    ]
