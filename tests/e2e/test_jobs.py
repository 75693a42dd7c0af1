"""Several crawls in one store: listed, worked on, removed while workers and kills happen (I1)."""

import asyncio
import json
from contextlib import suppress

import pytest

from outrider import Frontier, StoreError
from outrider.clock import SystemClock
from outrider.settings import merged, settings_of
from outrider.store.factory import join_store, open_store
from outrider.testing.web import small_world
from outrider.wiring import SITES

STORE = "x.outrider"
KINDS = ["file", "postgres", "redis", "cluster"]


@pytest.fixture(params=KINDS)
def store(request, places):
    """Each kind of store."""
    return STORE if request.param == "file" else places.take(request.param)


@pytest.fixture
def source(outrider, store):
    """The same, for this process."""
    return store if "://" in store else str(outrider.folder / store)


def fill(source, count, *names):
    """Begin crawls of many pages that are not visited."""

    async def begin():
        opened = await open_store(source, SystemClock())
        for name in names:
            async with Frontier.open(opened, crawl=name) as frontier:
                links = (f"https://{n % 90}.example/{name}/{n}" for n in range(count))
                await frontier.add(links, answers=False)
        await opened.close()

    asyncio.run(begin())


def is_begun(source):
    """Whether the removal of a crawl has begun; of a file: as the process that holds it says."""

    async def look():
        opening = open_store(source, SystemClock()) if "://" in source else join_store(source)
        opened = await opening
        if opened is None:
            return False
        view = await opened.crawl("gone")
        await opened.close()
        return view.reason == "deleting"

    with suppress(StoreError):  # the process may have ended meanwhile
        return asyncio.run(look())


def test_crawls_are_listed_and_removed_by_command(outrider, store, source):
    """I1: on every store; what was removed is remembered with who did it."""
    fill(source, 3000, "one", "two", "three")
    outrider("pause", store, "--crawl", "two")

    listed = outrider.shown("crawls", store, "--json")
    assert [(one["crawl"], one["status"], one["known"]) for one in listed] == [
        ("one", "running", 3000),
        ("two", "paused", 3000),
        ("three", "running", 3000),
    ]
    refused = outrider("delete", store, "--crawl", "one")
    assert (refused.code, "is running (0 workers alive" in refused.err) == (2, True)
    removed = outrider("delete", store, "--crawl", "two", "--by", "ann")
    assert (removed.code, removed.err) == (0, "")
    assert removed.out.startswith("removed two: 3,000 tasks")
    again = outrider("delete", store, "--crawl", "two")
    assert (again.code, "it has one, three" in again.err) == (2, True)
    assert [one["crawl"] for one in outrider.shown("crawls", store, "--json")] == ["one", "three"]
    (found,) = outrider.shown("crawls", store, "--removed", "--json")
    assert (found["crawl"], found["by"], found["known"]) == ("two", "ann", 3000)


@pytest.mark.slow
def test_removal_that_was_killed_is_completed_by_the_next(outrider, store, source, until):
    """I1: wherever the kill came; other crawls are whole, and a file is shorter afterwards."""
    fill(source, 8_000, "kept", "gone")
    size = (outrider.folder / STORE).stat().st_size if "://" not in store else 0

    removal = outrider.start("delete", store, "--crawl", "gone", "--force", "--yes", "--json")
    until(lambda: removal.poll() is not None or is_begun(source))
    removal.kill()
    outrider.end(removal)
    if "gone" in {
        one["crawl"] for one in outrider.shown("crawls", store, "--json")
    }:  # else it was quicker
        answer = outrider("delete", store, "--crawl", "gone", "--json")
        assert (answer.code, answer.err) == (0, "")
        assert answer.json["resumed"] is True

    (kept,) = outrider.shown("crawls", store, "--json")
    assert (kept["crawl"], kept["known"], kept["pending"]) == ("kept", 8_000, 8_000)
    if size:
        assert (outrider.folder / STORE).stat().st_size < 0.7 * size
        assert outrider("doctor", store).code == 0


@pytest.mark.slow
def test_workers_of_a_removed_crawl_end_and_say_why(outrider, serve, store, source, until):
    """I1: with code 7; no crawl is begun again by what they still send, and their output stays."""
    web = serve(small_world(seed=5, hosts=6, pages=40))

    async def make():
        tree = merged(settings_of(SITES), web.settings())
        async with Frontier.open(
            source, settings=merged(tree, {"politeness": {"delay": 3.0}})
        ) as f:
            await f.add(web.web.seeds())

    asyncio.run(make())
    workers = [
        outrider.start("work", store, "--quiet", "--json", "--slots", 4, "--output", f"x{number}")
        for number in range(2)
    ]
    until(lambda: alive(source) == 2)

    removed = outrider("delete", store, "--crawl", "default", "--force", "--yes", "--json")
    ends = [outrider.end(worker) for worker in workers]

    assert removed.code == 0, removed.err
    assert [answer.code for answer in ends] == [7, 7], ends
    closings = [json.loads(answer.out)["closing"] for answer in ends]
    assert {one["end"] for one in closings} == {"removed"}
    assert outrider.shown("crawls", store, "--json") == []
    assert list(outrider.folder.glob("x0*.jsonl"))


def alive(source):
    """How many workers have visited something."""

    async def count():
        async with Frontier.attach(source) as frontier:
            return sum(
                view.state != "gone" and view.visits > 0 for view in await frontier.workers()
            )

    return asyncio.run(count())
