"""The rescue: everything whose last word is intact is in the new file, and can be worked on."""

import random
from pathlib import Path

import apsw
import pytest

from outrider import Done, Frontier, InvalidInput
from outrider.errors import StoreUnusable
from outrider.store.embedded import EmbeddedStore
from outrider.store.factory import examine, rescue
from outrider.store.protocol import TaskFilter
from outrider.testing import FakeClock
from outrider.testing.audit import check, everything

CRAWLS = ("default", "news")


async def contents(path):
    """Views of all tasks by URL, their numbers aside; counters and queues agree with them."""
    store = EmbeddedStore.open(path, FakeClock(1_700_200_000.0))
    try:
        found = {}
        for crawl in await store.crawls():
            await check(store, crawl)
            tasks = await everything(
                lambda after, c=crawl: store.tasks(c, TaskFilter(), after=after)
            )
            found[crawl] = {task.url: plain(task) for task in tasks}
        return found
    finally:
        await store.close()


def plain(task):
    """A view without what a rescue may change."""
    names = [name for name in task.__struct_fields__ if name != "number"]
    return {name: getattr(task, name) for name in names}


async def test_rescue_of_a_healthy_file_loses_nothing(closed, clock, tmp_path):
    """The new file shows what the old one does, with expired leases."""
    new = tmp_path / "new"
    saved = rescue(closed, new, clock)

    assert saved.is_whole
    assert await contents(new) == await contents(closed)


async def test_rescue_reads_the_log(killed, clock, tmp_path):
    """A killed process left nearly everything there."""
    saved = rescue(killed, tmp_path / "new", clock)

    assert saved.is_whole
    assert await contents(tmp_path / "new") == await contents(killed)


@pytest.mark.parametrize("number", [1, 30, 70, 130])
async def test_rescue_loses_only_the_rows_of_a_lost_page(closed, clock, tmp_path, hurt, number):
    """Every other task is as it was; lost ones are reported by number."""
    whole = await contents(closed)
    hurt(closed, number)
    saved = rescue(closed, tmp_path / "new", clock)
    found = await contents(tmp_path / "new")

    for crawl, health in zip(CRAWLS, saved.crawls, strict=True):
        missing = whole[crawl].keys() - found[crawl].keys()
        changed = [url for url, view in found[crawl].items() if whole[crawl][url] != view]
        assert len(missing) == health.lost == len(saved.lost.get(crawl, ()))
        assert len(changed) <= 16
        assert health.lost + len(changed) <= 16
        assert health.intact + health.outdated + health.lost == health.known


@pytest.mark.parametrize("what", ["piece", "meta", "head", "root", "log"])
async def test_rescue_loses_nothing_while_every_page_is_intact(request, clock, tmp_path, what):
    """Whatever else is broken around them."""
    path = request.getfixturevalue("killed" if what == "log" else "closed")
    pristine = tmp_path / "pristine"
    rescue(path, pristine, clock)
    whole = await contents(pristine)
    broken(path, what)
    assert not examine(path, clock).is_healthy
    saved = rescue(path, tmp_path / "new", clock)

    assert [crawl.lost for crawl in saved.crawls] == [0, 0]
    assert await contents(tmp_path / "new") == whole


def broken(path, what):
    """One thing of a file is not what it was, but no page."""
    if what in ("piece", "meta"):
        db = apsw.Connection(str(path))
        db.execute(f"DELETE FROM {what}")  # noqa: S608
        db.close()
        return
    data = bytearray(path.read_bytes())
    if what == "head":
        data[:100] = bytes(100)
    elif what == "root":
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'page'")
        db.close()
        data[(root - 1) * 4096 : root * 4096] = bytes(4096)
    path.write_bytes(data)
    if what == "log":  # a frame that no log page needs: the first, which is SQLite's own
        log = Path(f"{path}-wal")
        frames = bytearray(log.read_bytes())
        frames[32 + 16] ^= 0xFF
        log.write_bytes(frames)


async def test_rescued_crawl_continues(closed, clock, tmp_path, hurt):
    """Everything pending is lent and finished, and the crawl ends."""
    hurt(closed, 50)
    rescue(closed, tmp_path / "new", clock)
    settings = {"politeness": {"delay": 0.0, "max_in_flight": 10}, "budget": {"balance": 10_000}}
    async with Frontier.open(tmp_path / "new", settings=settings, clock=clock) as frontier:
        pending = (await frontier.stats()).pending
        visited = 0
        while leases := await frontier.claim(200):
            visited += len(leases)
            await frontier.finish_many([(lease, Done(200)) for lease in leases])
        assert visited == pending
        assert (await frontier.stats()).status == "finished"
        assert (await frontier.add(["https://h0.example/0"])).refused == {"duplicate": 1}


async def test_flipped_bits_lose_only_the_pages_they_are_in(closed, clock, tmp_path):
    """Three at a time, eight rounds by one seed: the new file is always healthy."""
    rng, whole = random.Random(11), closed.read_bytes()
    for turn in range(8):
        data = bytearray(whole)
        for _ in range(3):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        closed.write_bytes(data)
        saved = rescue(closed, tmp_path / f"new{turn}", clock)

        assert sum(crawl.lost for crawl in saved.crawls) <= 3 * 16
        assert examine(tmp_path / f"new{turn}", clock).is_healthy


async def test_rescue_refuses_held_files_and_existing_targets(closed, clock, tmp_path):
    """An existing file, a file in use, and one of which nothing is left."""
    with pytest.raises(InvalidInput, match="exists"):
        rescue(closed, closed, clock)
    async with Frontier.open(closed, clock=clock):
        with pytest.raises(InvalidInput, match=r"held by process \d+"):
            rescue(closed, tmp_path / "new", clock)
    closed.write_bytes(closed.read_bytes()[:4096])
    with pytest.raises(StoreUnusable, match="no task of it is intact"):
        rescue(closed, tmp_path / "new", clock)

    assert not list(tmp_path.glob("new*"))


async def test_rescue_reports_crawls_without_rules(closed, clock, tmp_path, hurt):
    """Without the pages and the snapshot that had them, the default rules apply."""
    db = apsw.Connection(str(closed))
    told = [number for number, data in db.execute("SELECT * FROM page") if b"politeness" in data]
    db.close()
    for number in told:
        hurt(closed, number)
    broken(closed, "piece")
    saved = rescue(closed, tmp_path / "new", clock)

    assert saved.without_rules == ["default", "news"]
    assert set(await contents(tmp_path / "new")) == set(CRAWLS)
