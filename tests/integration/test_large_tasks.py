"""Tasks of a megabyte: what a process has in memory does not grow with their number (B1, M2)."""

import asyncio
import sys
from pathlib import Path

import pytest

from outrider.core.link_validation import MAX_META
from outrider.frontier import Frontier

CHILD = Path(__file__).with_name("large_tasks.py")
COUNT = 200
GROWTH = 170 * MAX_META  # some calls and result pages, and what allocators keep of them


async def growth_of(store, count=COUNT):
    """Run the crawl in a process of its own; return by how much its memory grew."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), store, str(count), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    *counts, growth = map(int, out.split())
    assert counts == [count] * 4
    return growth


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", "redis", "cluster"])
async def test_memory_is_bounded_with_a_server(kind, places):
    """M4, M5: calls, claims, lists, exports and copies are cut by bytes."""
    assert await growth_of(places.take(kind)) < GROWTH


@pytest.mark.slow
async def test_memory_is_bounded_with_a_file(tmp_path):
    """M3: pages of the file and those in memory are cut by bytes, too."""
    assert await growth_of(str(tmp_path / "large.outrider")) < GROWTH


@pytest.mark.slow
async def test_memory_is_bounded_with_the_file_of_another_process(tmp_path):
    """M3: what is sent through the socket fits its frames."""
    path = str(tmp_path / "large.outrider")
    async with Frontier.open(path, crawl="other"):
        assert await growth_of(path) < GROWTH


@pytest.mark.slow
async def test_memory_store_holds_its_tasks_and_little_more():
    """M1: both crawls are in memory, and are all that is."""
    assert await growth_of("memory://", 80) < 2 * 80 * MAX_META + GROWTH
