"""`outrider watch` without a terminal: lines, JSON, codes; and what the live view draws."""

import asyncio
import json

import msgspec
import pytest

from outrider import Done, Failed, Frontier, Link
from outrider.cli import watch, watch_draw
from outrider.cli.watch_actions import HostDelays, toggle_crawl
from outrider.errors import InvalidInput, StoreUnavailable
from outrider.monitoring import connection
from outrider.monitoring.connection import CrawlConnection, Presence
from outrider.monitoring.monitor import CrawlMonitor, Observation
from outrider.monitoring.sampler import Sampler, SampleRequest
from outrider.store.delete_crawl import delete_crawl
from outrider.store.protocol import CrawlView

A = "https://a.example/"
B = "https://b.example/"


@pytest.fixture
def filled(crawling):
    """One done, two pending."""

    async def fill(frontier):
        await frontier.add([A])
        (lease,) = await frontier.claim()
        await frontier.finish(lease, Done(200, bytes=5000))
        await frontier.add([B, B + "1"])

    crawling(fill)


@pytest.mark.usefixtures("filled")
class TestOnce:
    def test_once_prints_one_line_with_all_counters(self, outrider):
        """Without a terminal there is no view, and --once ends after one sample."""
        answer = outrider("watch", "x", "--once")

        assert (answer.code, answer.err, answer.out.count("\n")) == (0, "", 1)
        for text in ("running", "known 3", "pending 2", "done 1", "queues: 1 empty, 1 ready"):
            assert text in answer.out

    def test_the_shape_of_the_json(self, outrider):
        """A crawl's view, with what was made of it."""
        shape = outrider("watch", "x", "--once", "--json").json

        assert shape.keys() == {
            *CrawlView.__struct_fields__,
            *("type_count", "tag_count", "other_types", "other_tags"),
            *("at", "presence", "rates", "time_left", "busiest", "slowest", "heatmap"),
            "metrics",
        }
        assert shape["queues"] == {"empty": 1, "ready": 1}
        assert (shape["rates"], shape["presence"]) == (None, "attached")
        assert [host["key"] for host in shape["slowest"]] == ["b.example", "a.example"]
        assert shape["busiest"][0]["pace"] == 0.0
        assert shape["metrics"]["visits_total"] == {"done": 1}

    def test_a_line_of_its_own_changes_nothing(self, outrider, store):
        """It only looks."""
        before = asyncio.run(store.crawl("default"))
        outrider("watch", "x", "--once")

        assert asyncio.run(store.crawl("default")) == before


class TestRefusals:
    def test_a_crawl_that_is_not_there_is_named(self, outrider, store):
        """Code 2, as everywhere."""
        answer = outrider("watch", "x", "--once")

        assert answer.code == 2
        assert "no crawl 'default' in x" in answer.err

    @pytest.mark.parametrize("name", ["nothing.outrider", "memory://"])
    def test_a_store_that_is_not_there_is_refused(self, outrider, name):
        """Nothing is made by looking."""
        answer = outrider("watch", name, "--once")

        assert (answer.code, answer.out) == (2, "")

    @pytest.mark.parametrize("every", ["0", "0.1", "soon"])
    def test_samples_have_a_distance(self, outrider, every):
        """Code 2."""
        assert outrider("watch", "x", "--every", every).code == 2


class TestFollowing:
    @pytest.fixture
    async def followed(self, store, clock, capsys):
        """Follows the crawl in plain lines, and lets time pass a sample at a time."""
        frontier = await Frontier.open(store, clock=clock)
        await frontier.add([A, B])
        watching = CrawlMonitor(CrawlConnection("x", "default"))
        task = asyncio.ensure_future(
            watch.print_samples(watching, 5.0, once=False, as_json=True, clock=clock)
        )

        async def lines(after=5):
            clock.advance(after)
            for _ in range(1000):
                await asyncio.sleep(0)
                if clock.next_in() is not None or task.done():
                    break
            told = capsys.readouterr()
            return [json.loads(line) for line in told.out.splitlines()], told.err

        yield frontier, lines, task
        task.cancel()
        await asyncio.wait([task])
        await frontier.close()

    async def test_watch_ends_with_a_crawl_that_is_removed(self, followed, store):
        """I1: the last sample shows no crawl that begins now, and a note says what happened."""
        _, lines, task = followed
        await lines(after=0)
        await delete_crawl(store, "default")
        (last,), said = await lines()

        assert task.done()
        assert (last["status"], last["reason"], last["known"]) == ("cancelled", "unknown", 0)
        assert "crawl 'default' was removed from its store" in said

    async def test_a_line_a_sample_until_the_crawl_has_ended(self, followed):
        """A program that reads them is told the end by the end."""
        frontier, lines, task = followed
        (first,), _ = await lines(after=0)
        for lease in await frontier.claim(2):
            await frontier.finish(lease, Done(200))
        (second,), _ = await lines()
        await frontier.claim()
        (third,), _ = await lines()

        assert [line["status"] for line in (first, second, third)] == [
            *("running", "running", "finished")
        ]
        assert (first["rates"], second["rates"]["done"]) == (None, 0.4)
        assert task.done()

    async def test_unavailable_store_is_noted_once(self, followed, store, monkeypatch):
        """And looked for again, until it is back."""
        _, lines, _ = followed
        await lines(after=0)

        def gone(name, **_):
            raise StoreUnavailable("nobody answers")

        async def silent(crawl):
            raise StoreUnavailable("went away")

        monkeypatch.setattr(store, "crawl", silent)
        monkeypatch.setattr(connection, "check_store", gone)
        assert await lines() == ([], "outrider: went away\n")
        assert await lines() == ([], "outrider: nobody answers\n")
        assert await lines() == ([], "")
        monkeypatch.undo()
        monkeypatch.setattr(connection, "check_store", lambda name, **_: store)
        (line,), remark = await lines()

        assert (line["presence"], remark) == ("attached", "")


class TestActs:
    @pytest.fixture
    async def frontier(self, store, clock):
        """A crawl of two hosts, at most three seconds apart."""
        manners = {"min_delay": 2.0, "max_delay": 3.0}
        async with Frontier.open(store, settings={"politeness": manners}, clock=clock) as frontier:
            await frontier.add([A, A + "1", B])
            yield frontier

    async def delay_after_a_visit(self, frontier, clock):
        """What is kept after the next one."""
        clock.advance(1000)
        lease = next(lease for lease in await frontier.claim(2) if lease.key == "a.example")
        await frontier.finish(lease, Done(200, seconds=0.1))
        return (await frontier.queue("a.example").view()).delay

    async def test_slow_doubles_each_time(self, frontier, clock):
        """Also before a visit shows the new delay."""
        pace = HostDelays()
        first = await pace.slow(frontier, "a.example")
        second = await pace.slow(frontier, "a.example")

        assert first == "a.example: 4.0 s between visits, from the next one on"
        assert second == "a.example: 8.0 s between visits, from the next one on"
        assert await self.delay_after_a_visit(frontier, clock) == 8.0

    async def test_faster_halves_and_ends_at_the_rules(self, frontier, clock):
        """Never faster than the crawl's own manners."""
        pace = HostDelays()
        for _ in range(2):
            await pace.slow(frontier, "a.example")
        halved, back = [await pace.speed_up(frontier, "a.example") for _ in range(2)]

        assert halved == "a.example: 4.0 s between visits, from the next one on"
        assert back == "a.example: back to the delay of the crawl's rules"
        assert await self.delay_after_a_visit(frontier, clock) == 2.0

    async def test_slow_is_at_least_a_second(self, store, clock):
        """Twice nothing is nothing."""
        rude = {"politeness": {"delay": 0.0}}
        async with Frontier.open(store, settings=rude, crawl="rude", clock=clock) as frontier:
            await frontier.add([A])

            assert "1.0 s between" in await HostDelays().slow(frontier, "a.example")

    async def test_slow_sets_a_fixed_delay_where_delays_are_random(self, store, clock):
        """Uniform between two bounds would be less than was promised."""
        dice = {"politeness": {"delay": 5.0, "delay_to": 15.0}, "retry": {"max_retries": 0}}
        async with Frontier.open(store, settings=dice, crawl="dice", clock=clock) as frontier:
            await frontier.add([A, A + "1"])
            await HostDelays().slow(frontier, "a.example")

            assert await self.delay_after_a_visit(frontier, clock) == 10.0

    async def test_a_key_that_would_reach_others_is_refused(self, frontier):
        """A dot before it means all hosts under it."""
        await frontier.add([Link(B + "9", key=".example")])
        with pytest.raises(InvalidInput, match="begins with a dot"):
            await HostDelays().slow(frontier, ".example")

    async def test_a_crawl_is_turned_to_and_fro(self, frontier):
        """And one that has ended says that it cannot be."""
        assert "paused" in await toggle_crawl(frontier)
        assert await toggle_crawl(frontier) == "the crawl is running"
        await frontier.cancel()
        with pytest.raises(InvalidInput, match="cancelled cannot be paused"):
            await toggle_crawl(frontier)


@pytest.fixture
def drawn(crawling):
    """What was seen of a crawl whose every text is hostile."""

    async def fill(frontier):
        links = [
            Link("https://x.example/[bold]", key="[red]x[/red]", origin="[@click=app.quit]o[/]"),
            Link("https://y.example/", key="[/]\x7e[link=file:///]y"),
        ]
        await frontier.add(links)
        (lease,) = await frontier.claim()
        await frontier.finish(lease, Failed("[bold]cut[/bold]"))
        sampler = Sampler()
        return Observation(
            Presence.ATTACHED, await sampler.read(frontier, SampleRequest())
        ), sampler

    return crawling(fill)


class TestDrawing:
    def test_others_text_is_no_markup(self, drawn):
        """It is shown as it was written."""
        _, sampler = drawn
        told = watch_draw.leaders("busiest", sampler.hosts.ranked("key", 9), 40, by_pace=True)

        assert "[red]x[/red]" in told.plain
        assert "[/]~[link=file:///]y" in told.plain
        assert watch_draw.plain_text("\x1b[2J[bold]").plain == "\\x1b[2J[bold]"

    @pytest.mark.parametrize("width", [40, 80, 200])
    def test_nothing_is_wider_than_the_terminal(self, drawn, width):
        """A line that does not fit would push others away."""
        seen, _ = drawn
        for told in (
            watch_draw.head(seen, "/a/very/long/path" * 9, width, 0.0),
            watch_draw.states(seen.sample, width),
            watch_draw.rates(None, [1.0] * 300, width, 2),
        ):
            assert max(map(len, told.plain.split("\n"))) <= max(width, 60)

    def test_header_shows_the_status(self, drawn):
        """Running, left alone, or out of reach."""
        seen, _ = drawn
        alone = Observation(Presence.ALONE, seen.sample)
        lost = Observation(Presence.LOST, seen.sample)

        assert watch_draw.head(seen, "x", 80, 0.0).plain.rstrip().endswith("● running for 0.0 s")
        assert "running, but no process runs it" in watch_draw.head(alone, "x", 80, 0.0).plain
        assert "no answer for 12.0 s" in watch_draw.head(lost, "x", 80, 12.0).plain
        assert "no answer for 4.0 s" in watch_draw.head(seen, "x", 80, 4.0).plain

    def test_bars_show_a_little_as_something(self):
        """And nothing as nothing; the highest fills the chart."""
        assert watch_draw.bars([0, 0.001, 50, 100], 6, 1) == ["   ▁▄█"]
        assert watch_draw.bars([100, 50], 2, 2) == ["█ ", "██"]
        assert watch_draw.bars([], 3, 1) == ["   "]

    @pytest.mark.parametrize(
        ("number", "text"),
        [
            *[(0, "0"), (99_999, "99,999"), (123_456, "123.5k"), (1_234_567, "1.235M")],
            (12_345_678_901, "12.35G"),
        ],
    )
    def test_large_counts_are_short(self, number, text):
        """Seven letters at most."""
        assert watch_draw.short_count(number) == text

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(None, ""), (0, "0s"), (0.34, "0.3s"), (119, "119s"), (120, "2.0m"), (1e9, "9999d")],
    )
    def test_waits_are_short(self, seconds, text):
        """Five letters at most."""
        assert watch_draw.short_time(seconds) == text

    def test_the_bar_of_states_is_as_wide_as_the_terminal(self, drawn):
        """Every state that occurs is visible."""
        seen, _ = drawn
        counts = {"ready": 1_000_000, "busy": 1, "empty": 3}
        sample = msgspec.structs.replace(seen.sample, queues=counts)
        bar, legend = watch_draw.states(sample, 80).plain.split("\n")

        assert len(bar) == 80
        assert legend == "1M queues  1M ready  1 busy  3 empty"

    def test_the_heatmap_has_every_cell(self, drawn):
        """O2: by origin and group, and by depth."""
        seen, _ = drawn
        told = watch_draw.heatmap(seen.sample, 78).plain

        assert "1 pending" in told
        assert "article" in told
        assert "[link" not in told
        assert "unknown" in told
