"""The crawls of a store, and their removal, from Python (I1)."""

import asyncio

import pytest

import outrider
from outrider import Done, Frontier, InvalidInput, blocking
from outrider.frontier import crawls as module
from outrider.frontier.crawls import CrawlSummary
from outrider.store.delete_crawl import delete_crawl
from outrider.store.protocol import STORE_VALUES, SharedValueWrite

FAST = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}


async def fill(store, clock, name, count=3, *, seconds=0):
    """Begin a crawl, and visit a page of it every second."""
    async with Frontier.open(store, crawl=name, clock=clock, settings=FAST) as frontier:
        await frontier.add([f"https://{n % 5}.example/{n}" for n in range(count)])
        for _ in range(seconds):
            for lease in await frontier.claim():
                await frontier.finish(lease, Done(200))
            clock.advance(1)


async def listed(*args, **kwargs):
    """Return the crawls as a list."""
    return [one async for one in outrider.crawls(*args, **kwargs)]


class TestCrawls:
    """`crawls`."""

    async def test_crawls_are_listed_with_rate_and_time_left(self, store, clock):
        """I1, O1: as their own frontiers tell it."""
        await fill(store, clock, "slow", 100)
        await fill(store, clock, "quick", 300, seconds=60)

        slow, quick = await listed(store)

        assert (slow.crawl, slow.known, slow.rates, slow.time_left) == ("slow", 100, None, None)
        assert (quick.done, quick.settled, quick.progress) == (60, 60, 0.2)
        assert quick.rates.visits == pytest.approx(1.0, abs=0.05)
        assert quick.time_left == pytest.approx(240, abs=15)
        assert quick.age == 60.0

    async def test_held_tasks_are_left_out_of_one_share(self, store, clock):
        """I1: a crawl whose queues are retired can be finished."""
        async with Frontier.open(store, crawl="x", clock=clock, settings=FAST) as frontier:
            await frontier.add([f"https://{n % 2}.example/{n}" for n in range(8)])
            await frontier.queue("0.example").retire()
            for lease in await frontier.claim(2):
                await frontier.finish(lease, Done(200))

        (one,) = await listed(store)

        assert (one.held, one.progress, one.progress_unheld) == (4, 0.25, 0.5)

    async def test_path_is_opened_and_closed_again(self, tmp_path, clock):
        """I1: so that a crawl can be run afterwards; a file that is not there is not created."""
        path = tmp_path / "x.outrider"
        with pytest.raises(InvalidInput, match="no such file"):
            await listed(path)
        assert not path.exists()
        await fill(str(path), clock, "a")

        assert [one.crawl for one in await listed(path, clock=clock)] == ["a"]
        assert [one.crawl for one in await listed(path, clock=clock)] == ["a"]
        assert await asyncio.to_thread(lambda: [c.crawl for c in blocking.crawls(path)]) == ["a"]

    async def test_file_with_a_holder_is_listed_through_it(self, tmp_path, clock):
        """I1: while its crawl runs."""
        path = tmp_path / "x.outrider"
        async with Frontier.open(path, crawl="a", settings=FAST) as frontier:
            await frontier.add(["https://a.example/"])
            found = await asyncio.to_thread(lambda: list(blocking.crawls(path)))

        assert [(one.crawl, one.pending) for one in found] == [("a", 1)]

    async def test_statuses_are_checked(self, store, clock):
        """I1: a status that there is not is refused with those there are."""
        await fill(store, clock, "a")
        assert await listed(store, status="paused") == []
        assert len(await listed(store, status={"paused", "running"})) == 1
        with pytest.raises(InvalidInput, match="running, paused, finished, cancelled"):
            await listed(store, status="gone")

    async def test_reading_stops_with_the_reader(self, watched, clock):
        """I1: of many crawls only those are read that are asked for."""
        for number in range(100):
            await fill(watched, clock, f"c{number}", 1)
        watched.calls.clear()

        async for _ in outrider.crawls(watched):
            break

        assert watched.calls["crawl"] <= module.AT_ONCE


class TestRemoval:
    """`delete_crawl` and `removed_crawls`."""

    async def test_removals_are_remembered_in_a_bounded_number_of_values(
        self, store, clock, monkeypatch
    ):
        """I1, N1: the oldest is forgotten first."""
        monkeypatch.setattr(module, "MAX_REMOVED", 3)
        for number in range(5):
            await fill(store, clock, f"c{number}")
            async with Frontier.attach(store, crawl=f"c{number}", clock=clock) as frontier:
                await frontier.delete_crawl(by=f"p{number}")

        found = [one async for one in outrider.removed_crawls(store)]

        assert [(one.crawl, one.by, one.known) for one in found] == [
            ("c2", "p2", 3),
            ("c3", "p3", 3),
            ("c4", "p4", 3),
        ]
        assert len(await store.values_since(STORE_VALUES)) == 3
        assert await store.crawls() == []

    @pytest.mark.parametrize("text", ["x", "[]", "[1,2,3,4]", "{}"])
    async def test_values_that_cannot_be_read_are_left_out(self, store, text):
        """N1: others may write anything."""
        write = SharedValueWrite(module.REMOVED, "0", text)
        await store.put_values(STORE_VALUES, [write])

        assert [one async for one in outrider.removed_crawls(store)] == []

    async def test_progress_of_a_removal_is_told(self, store, clock):
        """I1: after each step."""
        await fill(store, clock, "default", 10)
        told = []
        async with Frontier.attach(store, clock=clock) as frontier:
            assert await frontier.delete_crawl(progress=told.append) == 10

        assert (told[0], told[-1]) == (0, 10)

    async def test_resumed_removal_tells_how_many_tasks_the_crawl_had(self, store, clock):
        """I1: not only those that an interrupted one had left; it is remembered once."""
        await fill(store, clock, "default", 10)

        def interrupt(done):
            if done:
                raise KeyboardInterrupt

        async with Frontier.attach(store, clock=clock) as frontier:
            await module.remember_removal(store, await store.crawl("default"), "ann")
            with pytest.raises(KeyboardInterrupt):
                await delete_crawl(store, "default", limit=4, progress=interrupt)
            assert await frontier.delete_crawl() == 10

        assert [one.known async for one in outrider.removed_crawls(store)] == [10]

    async def test_two_removals_at_one_time_are_remembered_as_one(self, store, clock):
        """I1: both saw the crawl before either had begun; a later crawl's removal is another."""
        for _ in range(2):
            await fill(store, clock, "default", 5)
            clock.advance(1)
            view = await store.crawl("default")
            for by in ("ann", "bob"):
                assert await module.remember_removal(store, view, by) == 5
            async with Frontier.attach(store, clock=clock) as frontier:
                assert await frontier.delete_crawl(by="bob") == 5
            clock.advance(1)

        found = [one async for one in outrider.removed_crawls(store)]
        assert [(one.crawl, one.by, one.known) for one in found] == [("default", "ann", 5)] * 2

    async def test_progress_is_at_most_one_while_a_crawl_is_removed(self):
        """I1: a store may have removed tasks that are still counted as done."""
        names = (name for name in CrawlSummary.__struct_fields__ if name not in ("done", "known"))
        one = CrawlSummary(**dict.fromkeys(names, 0), done=8, known=5)
        assert (one.progress, one.progress_unheld) == (1.0, 1.0)

    async def test_removal_of_an_unknown_crawl_is_not_remembered(self, store, clock):
        """I1: it may be repeated."""
        async with Frontier.attach(store, clock=clock) as frontier:
            assert await frontier.delete_crawl() == 0
        assert await store.values_since(STORE_VALUES) == []
