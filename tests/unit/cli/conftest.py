"""The whole command in this process, on a store in memory that outlives each call of it."""

import asyncio
import json
from typing import NamedTuple

import pytest

from outrider import Failed, Frontier
from outrider.cli import app, open_crawl
from outrider.monitoring import connection
from outrider.store.factory import open_store
from outrider.testing import FakeClock

RUDE = {
    "politeness": {"delay": 0.0, "max_in_flight": 1000},
    "retry": {"max_retries": 0, "jitter": 0.0},
}


class Answer(NamedTuple):
    """What a command left with, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one object it wrote."""
        return json.loads(self.out)

    @property
    def lines(self):
        """The objects it wrote, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def clock():
    """Time that moves only when a test says so."""
    return FakeClock()


@pytest.fixture
def store(clock, monkeypatch):
    """The store behind every name that commands are given."""
    store = asyncio.run(open_store("memory://", clock))
    for module in (open_crawl, connection):
        monkeypatch.setattr(module, "check_store", lambda name, **_: store)
    return store


@pytest.fixture
def outrider(monkeypatch, capsys):
    """Runs the command as `main` does."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["outrider", *arguments])
        try:
            code = app.run()
        except SystemExit as end:
            code = end.code
        return Answer(code or 0, *capsys.readouterr())

    return run


@pytest.fixture
def crawling(store, clock):
    """Does something with a frontier whose settings are its own."""

    def crawl(work, *, settings=RUDE, name="default"):
        async def opened():
            opening = Frontier.open(store, settings=settings, crawl=name, clock=clock)
            async with opening as frontier:
                return await work(frontier)

        return asyncio.run(opened())

    return crawl


@pytest.fixture
def dying(crawling):
    """Adds URLs, and lets each die of the reason given with it."""

    def die(**reasons):
        async def work(frontier):
            await frontier.add([f"https://{name}.example/" for name in reasons])
            for lease in await frontier.claim(100):
                await frontier.finish(lease, Failed(reasons[lease.key.removesuffix(".example")]))

        crawling(work)

    return die
