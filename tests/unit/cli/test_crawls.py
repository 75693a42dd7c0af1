"""`outrider progress`: what was done when (O1)."""

import pytest

from outrider import Done


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
