"""Copies of a file whose process adds, claims and finishes all the while."""

import json
import subprocess
import sys

import pytest

from outrider import Frontier, checkpoint
from outrider.store.embedded import EmbeddedStore
from outrider.store.factory import examine
from outrider.store.protocol import TaskFilter
from outrider.testing import FakeClock
from outrider.testing.audit import check, everything

COPIES = 4
LATER = 4_000_000_000.0
WORKER = """
import asyncio, itertools, json, sys
from outrider import Done, Failed, Frontier

SETTINGS = {"politeness": {"delay": 0.0, "max_in_flight": 50}, "retry": {"max_retries": 0}}

async def work(path):
    async with Frontier.open(path, settings=SETTINGS) as frontier:
        for turn in itertools.count():
            urls = [f"https://h{n % 9}.example/{turn}/{n}" for n in range(40)]
            await frontier.add(urls)
            leases = await frontier.claim(25)
            ends = [Failed("cut") if n % 5 == 4 else Done(200) for n in range(len(leases))]
            await frontier.finish_many(list(zip(leases, ends)))
            print(json.dumps([urls, [lease.url for lease in leases]]), flush=True)

asyncio.run(work(sys.argv[1]))
"""


@pytest.fixture
def path(tmp_path):
    """Where the file is."""
    return tmp_path / "crawl.outrider"


@pytest.fixture
def worker(path):
    """A process that works on the file and says what was acknowledged, until it is killed."""
    words = [sys.executable, "-c", WORKER, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_every_copy_holds_what_was_acknowledged_before_it_began(worker, path, tmp_path):
    """Each opens, its views agree, and a doctor finds nothing; the worker goes on."""
    added, finished = set(), set()
    for turn in range(COPIES):
        for _ in range(8):
            urls, visited = json.loads(worker.stdout.readline())
            added.update(urls)
            finished.update(visited)
        copy = tmp_path / f"copy-{turn}"
        made = await checkpoint(path, copy)

        assert made.holder.pid == worker.pid
        assert made.crawls[0].known >= len(added)
        assert examine(copy, FakeClock(LATER)).is_healthy
        await compare(copy, added, finished)
    assert worker.poll() is None


async def compare(copy, added, finished):
    """Nothing acknowledged is missing or undone."""
    store = EmbeddedStore.open(copy, FakeClock(LATER))
    try:
        await check(store, "default")
        tasks = await everything(lambda after: store.tasks("default", TaskFilter(), after=after))
        states = {task.url: task.state for task in tasks}
        assert added <= states.keys()
        assert {states[url] for url in finished} <= {"done", "dead"}
    finally:
        await store.close()


async def test_a_copy_is_a_file_like_any_other(worker, path, tmp_path):
    """It can be crawled while the first one goes on."""
    worker.stdout.readline()
    await checkpoint(path, tmp_path / "copy")
    async with Frontier.open(tmp_path / "copy", clock=FakeClock(LATER)) as frontier:
        await frontier.add(["https://elsewhere.example/"])
        assert await frontier.claim(1)
    worker.stdout.readline()

    assert worker.poll() is None
