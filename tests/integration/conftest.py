"""One PostgreSQL for several, and a line to it past the store."""

from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from outrider.clock import SystemClock
from outrider.store.postgres import PostgresStore
from outrider.testing.builders import rules

CRAWL = "test"


@pytest.fixture
def url(places):
    """An empty place."""
    return places.take("postgres")


@pytest.fixture
def line(url):
    """What is written there, past the store."""
    schema = parse_qs(urlsplit(url).query)["schema"][0]
    with psycopg.connect(url.partition("?")[0], autocommit=True) as line:
        line.execute(f"set search_path to {schema}")
        yield line


@pytest.fixture
async def stores(url):
    """Two workers of one crawl, as two processes would have them."""
    stores = [await PostgresStore.open(url, SystemClock()) for _ in range(2)]
    await stores[0].configure(CRAWL, rules(delay=0.0))
    yield stores
    for store in stores:
        await store.close()
