"""`outrider crawls`, `progress` and `delete`: the crawls of a store as jobs (I1, O1)."""

import asyncio

import pytest
import typer

from outrider import Done
from outrider.cli import terminal
from outrider.core.policy.rules import CrawlRules
from outrider.frontier.crawls import CrawlSummary
from outrider.store.protocol import SharedValueWrite


@pytest.fixture
def worked(crawling, clock):
    """Visit a page a second for a minute and a half, with a pause of an hour in between."""

    async def work(frontier):
        await frontier.add([f"https://{n % 7}.example/{n}" for n in range(500)])
        for second in range(90):
            if second == 45:
                await frontier.pause()
                await frontier.claim()
                clock.advance(3600)
                await frontier.resume()
            for lease in await frontier.claim():
                await frontier.finish(lease, Done(200, bytes=1000))
            clock.advance(1)

    crawling(work)


@pytest.mark.usefixtures("worked")
class TestProgress:
    """`outrider progress`."""

    def test_rates_gaps_and_the_time_left_are_shown(self, outrider):
        """O1: for people."""
        answer = outrider("progress", "x")

        assert (answer.code, answer.err) == (0, "")
        lines = answer.out.splitlines()
        shown = dict(line.split(maxsplit=1) for line in lines[:6])
        assert shown["status"].strip() == "running"
        assert shown["worked"].strip() == "on  90.0 s in all"
        assert shown["rate"].strip().startswith("1.0 visits/s, 1.0 done/s, 0.0 failed/s, 1 kB/s")
        assert "about 6.8 min" in answer.out
        assert "·······" in shown["visits/s"]
        assert sum("gap: 60.0 min" in line for line in lines) == 1
        assert len(lines) < 30

    def test_limit_is_about_the_number_of_rows(self, outrider):
        """O1: spread over the whole time; 0 shows every sample."""
        few = outrider("progress", "x", "--limit", "4").out.splitlines()
        every = outrider("progress", "x", "--limit", "0").out.splitlines()

        assert len(few) <= 4 + 10 < len(every)

    def test_json_is_every_sample_with_its_rates(self, outrider):
        """O1: for programs."""
        lines = outrider("progress", "x", "--json").lines

        assert lines[-1]["done"] == 90
        assert lines[0]["rates"] is None
        assert [one["at"] for one in lines] == sorted(one["at"] for one in lines)
        (gap,) = [one["gap"] for one in lines if one["gap"] > 1]
        assert gap == pytest.approx(3600, abs=2)
        assert {round(one["rates"]["visits"], 1) for one in lines[1:-1]} == {1.0}

    def test_stats_show_rate_and_time_left(self, outrider, clock):
        """O1: of the last minute of work; an hour later there is none."""
        answer, shape = outrider("stats", "x"), outrider("stats", "x", "--json").json
        assert "1.0 visits/s" in answer.out
        assert "about 6.8 min" in answer.out
        assert shape["rates"]["visits"] == pytest.approx(1.0, abs=0.02)
        assert shape["time_left"] == pytest.approx(410, abs=5)

        clock.advance(3600)

        shape = outrider("stats", "x", "--json").json
        assert (shape["rates"], shape["time_left"]) == (None, None)
        assert "unknown: nothing has worked on it lately" in outrider("stats", "x").out

    def test_watch_begins_with_what_was_recorded(self, outrider):
        """O1: its first sample has a rate."""
        line, shape = outrider("watch", "x", "--once"), outrider("watch", "x", "--once", "--json")

        assert "1.0 visits/s" in line.out
        assert "about 6.8 min left" in line.out
        assert shape.json["rates"]["visits"] == pytest.approx(1.0, abs=0.1)
        assert shape.json["time_left"] == pytest.approx(410, abs=5)


def test_progress_of_an_unworked_crawl_says_so(outrider, crawling):
    """O1: nothing is made up."""

    async def fill(frontier):
        await frontier.add(["https://a.example/"])

    crawling(fill)

    answer = outrider("progress", "x")

    assert answer.code == 0
    assert "unknown: nothing has worked on it lately" in answer.out
    assert len(outrider("progress", "x", "--json").lines) == 1


@pytest.fixture
def filled(crawling, clock):
    """Four crawls, one of each status, the first the oldest."""

    async def fill(frontier):
        await frontier.add([f"https://{n}.example/" for n in range(4)])
        for lease in await frontier.claim(1 if frontier.crawl != "finished" else 4):
            await frontier.finish(lease, Done(200))
        clock.advance(60)
        if frontier.crawl == "finished":
            await frontier.claim()
        elif frontier.crawl != "running":
            await (frontier.pause() if frontier.crawl == "paused" else frontier.cancel())

    for name in ("finished", "cancelled", "paused", "running"):
        crawling(fill, name=name)


@pytest.mark.usefixtures("filled")
class TestCrawls:
    """`outrider crawls`."""

    def test_crawls_are_shown_with_status_counts_and_age(self, outrider):
        """I1: running ones first."""
        lines = outrider("crawls", "x").out.splitlines()

        assert [line.split()[0] for line in lines] == [
            *("crawl", "running", "paused", "finished", "cancelled")
        ]
        assert lines[1].split()[1:6] == ["running", "4", "25.0%", "3", "1"]
        assert "paused (operator)" in lines[2]
        assert lines[3].split()[1:8] == ["finished", "(run", "1)", "4", "100.0%", "0", "4"]
        assert "4.0m" in lines[3]

    def test_json_is_in_order_of_creation(self, outrider):
        """I1: one object per line, with all that is known of a crawl."""
        lines = outrider("crawls", "x", "--json").lines

        assert [one["crawl"] for one in lines] == ["finished", "cancelled", "paused", "running"]
        assert lines[0].keys() == {
            *CrawlSummary.__struct_fields__,
            *("progress", "progress_unheld"),
        }
        assert (lines[0]["runs"], lines[0]["age"], lines[0]["time_left"]) == (1, 240.0, 0.0)
        assert lines[0]["finished_at"] is not None
        assert (lines[2]["progress"], lines[2]["reason"]) == (0.25, "operator")

    def test_crawls_of_some_statuses_are_shown(self, outrider):
        """I1: of each that is named."""
        words = ("crawls", "x", "--json", "--status", "paused", "--status", "running")

        assert [one["crawl"] for one in outrider(*words).lines] == ["paused", "running"]
        assert outrider("crawls", "x", "--status", "gone").code == 2

    def test_limit_keeps_the_first_of_the_table(self, outrider):
        """I1: and says how many there are of each status."""
        answer = outrider("crawls", "x", "--limit", "1")

        assert [line.split()[0] for line in answer.out.splitlines()] == ["crawl", "running"]
        assert "1 of 4 are shown" in answer.err
        assert "1 cancelled" in answer.err

    def test_values_of_the_store_itself_are_no_crawl(self, outrider, store):
        """N1."""
        asyncio.run(store.put_values("", [SharedValueWrite("a", "b", "c")]))

        assert len(outrider("crawls", "x", "--json").lines) == 4


def test_empty_store_has_no_crawls(outrider, store):
    """I1: which is no problem."""
    answer = outrider("crawls", "x")

    assert (answer.code, answer.out) == (0, "")
    assert "no crawls in x" in answer.err
    assert (outrider("crawls", "x", "--json").code, outrider("crawls", "x", "--json").out) == (
        0,
        "",
    )


def test_ten_thousand_crawls_are_listed(outrider, store):
    """I1: in a table of the newest."""

    async def fill():
        for number in range(10_000):
            await store.configure(f"c{number}", CrawlRules())

    asyncio.run(fill())

    answer = outrider("crawls", "x", "--limit", "3")

    assert len(answer.out.splitlines()) == 4
    assert "3 of 10,000 are shown (10,000 running)" in answer.err
    assert len(outrider("crawls", "x", "--json").lines) == 10_000


@pytest.mark.usefixtures("filled")
class TestDelete:
    """`outrider delete`."""

    def test_removed_crawl_is_gone(self, outrider, store):
        """I1: and others are not."""
        answer = outrider("delete", "x", "--crawl", "finished")

        assert (answer.code, answer.out) == (0, "removed finished: 4 tasks\n")
        assert asyncio.run(store.crawls()) == ["cancelled", "paused", "running"]

    def test_running_crawl_is_refused_without_force(self, outrider, store):
        """I1: whether or not a worker is there; nothing is changed."""
        answer = outrider("delete", "x", "--crawl", "running", "--yes")

        assert (answer.code, answer.out) == (2, "")
        assert "crawl 'running' is running (0 workers alive, 0 tasks leased)" in answer.err
        assert "--force" in answer.err
        assert asyncio.run(store.crawl("running")).status == "running"
        assert outrider("delete", "x", "--crawl", "running", "--yes", "--force").code == 0
        assert "running" not in asyncio.run(store.crawls())

    def test_crawl_must_be_named(self, outrider, store):
        """I1: `default` is not removed by an omission."""
        answer = outrider("delete", "x", "--yes")

        assert answer.code == 2
        assert "--crawl NAME: there is finished, cancelled, paused, running" in answer.err

    def test_unknown_crawl_is_refused_with_those_there_are(self, outrider):
        """I1: a second removal finds nothing."""
        answer = outrider("delete", "x", "--crawl", "nowhere", "--yes")

        assert answer.code == 2
        assert "no crawl 'nowhere' in x: it has finished, cancelled, paused, running" in answer.err

    def test_user_is_asked_with_what_is_there(self, outrider, store, monkeypatch):
        """I1: and may say no."""
        asked = []

        def no(question, **_):
            asked.append(question)
            raise typer.Abort

        monkeypatch.setattr(terminal, "is_interactive", lambda: True)
        monkeypatch.setattr(typer, "confirm", no)

        answer = outrider("delete", "x", "--crawl", "paused")

        assert answer.code == 1
        assert asked == [
            "Remove crawl paused, which is paused: 4 tasks (3 pending, 1 done), 4 queues, 1 visit?"
        ]
        assert "paused" in asyncio.run(store.crawls())
        assert outrider("delete", "x", "--crawl", "paused", "--yes").code == 0

    def test_removal_that_was_begun_continues(self, outrider, store):
        """I1: without a question."""
        asyncio.run(store.delete("running"))

        answer = outrider("delete", "x", "--crawl", "running", "--json")

        assert answer.json["resumed"] is True
        assert "running" not in asyncio.run(store.crawls())

    def test_who_removed_a_crawl_is_remembered(self, outrider, store):
        """O3: by the store, for the crawl's own events are gone."""
        assert outrider("crawls", "x", "--removed", "--json").lines == []
        outrider("delete", "x", "--crawl", "paused", "--by", "ann")
        outrider("delete", "x", "--crawl", "finished", "--by", "bob")

        lines = outrider("crawls", "x", "--removed", "--json").lines

        found = [(one["crawl"], one["by"], one["known"], one["status"]) for one in lines]
        assert found == [("paused", "ann", 4, "paused"), ("finished", "bob", 4, "finished")]
        assert "ann" in outrider("crawls", "x", "--removed").out
