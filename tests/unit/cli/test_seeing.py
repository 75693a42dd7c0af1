"""Commands that look: what they show, in which shape, and that nothing changes by it."""

import asyncio
import json

import msgspec
import pytest

from outrider import Done, Link
from outrider.core.histogram import Histogram, Window
from outrider.core.worker_totals import WorkerTotals
from outrider.frontier import reader
from outrider.frontier.metrics import Latency, Metrics
from outrider.store.protocol import CrawlView, Heartbeat, QueueView, TaskView

A = "https://a.example/"
B = "https://b.example/"
C = "https://c.example/"
LOOKS = [
    ("stats", "--why"),
    ("progress",),
    ("queues",),
    ("tasks",),
    ("explain", A),
    ("heatmap",),
    ("dead", "list"),
    ("dead", "list", "--by-reason"),
    ("queue", "a.example"),
    ("signals",),
]


def called(words, *more):
    """The command line of a look: STORE comes after the command."""
    return [words[0], "x", *words[1:], *more]


@pytest.fixture
def filled(crawling):
    """One done, one with a tag, two more of its queue, one delayed."""

    async def fill(frontier):
        await frontier.add([A])
        (lease,) = await frontier.claim()
        await frontier.finish(lease, Done(200, bytes=5000))
        links = [Link(B, tag="t", type="article", depth=1), B + "1", B + "2", Link(C, delay=60)]
        await frontier.add(links)

    crawling(fill)


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
@pytest.mark.usefixtures("filled")
def test_a_look_changes_no_rule(outrider, store, words):
    """The rules that the crawl's own worker set still hold."""
    before = asyncio.run(store.queue("default", "new.example"))
    assert outrider(*called(words)).code == 0

    assert before.max_in_flight == 1000
    assert asyncio.run(store.queue("default", "new.example")) == before


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_look_makes_no_crawl(outrider, store, words):
    """What is not there is named, with what is."""
    empty = outrider(*called(words))
    outrider("add", "x", A, "--crawl", "news")
    other = outrider(*called(words))

    assert (empty.code, other.code) == (2, 2)
    assert (
        empty.err == "outrider: no crawl 'default' in x: it has none; `outrider add` creates one\n"
    )
    assert (
        other.err
        == "outrider: no crawl 'default' in x: it has news; choose one with --crawl NAME\n"
    )
    assert asyncio.run(store.crawls()) == ["news"]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
@pytest.mark.usefixtures("filled")
def test_every_look_has_json(outrider, words):
    """Each line is a whole object, and ASCII."""
    answer = outrider(*called(words, "--json"))

    assert answer.code == 0
    assert answer.out.isascii()
    assert all(isinstance(json.loads(line), dict) for line in answer.out.splitlines())


@pytest.mark.usefixtures("filled")
class TestStats:
    def test_counts_are_shown(self, outrider):
        """I1, O5: by state, with queues, outcomes and bytes."""
        lines = outrider("stats", "x").out.splitlines()
        shown = dict(line.split(maxsplit=1) for line in lines)

        assert shown["known"].strip() == "5, 20.0% settled"
        assert (shown["pending"].strip(), shown["done"].strip()) == ("4", "1")
        assert shown["visits"].strip() == "1: 1 done"
        assert shown["bytes"].strip() == "5 kB"
        assert shown["queues"].strip() == "1 empty, 1 snoozed, 1 ready"
        assert shown["types"].strip() == "4 page, 1 article"
        assert shown["tags"].strip() == "1 t"

    def test_the_shape_of_the_json(self, outrider):
        """Every field of a crawl's view, and what is derived of it."""
        shape = outrider("stats", "x", "--json").json

        assert shape.keys() == {
            *CrawlView.__struct_fields__,
            "queues",
            *("progress", "rates", "time_left"),
            *("type_count", "tag_count", "other_types", "other_tags"),
            "rescoring",
        }
        assert (shape["known"], shape["progress"]) == (5, 0.2)

    def test_metrics_of_a_crawl_without_workers_are_its_counters(self, outrider):
        """O1: and say why there are no durations."""
        shown, read = (
            outrider("stats", "x", "--metrics"),
            outrider("stats", "x", "--metrics", "--json"),
        )

        assert "1: 1 done" in shown.out
        assert "p95" not in shown.out
        assert "no worker has sent a heartbeat" in shown.err
        assert read.json.keys() == set(Metrics.__struct_fields__)
        assert read.json["visits_total"] == {"done": 1}
        assert read.json["fetch_seconds"].keys() == set(Latency.__struct_fields__)

    def test_metrics_show_latencies_of_workers(self, outrider, store):
        """O1: percentiles of what live workers did last; of all, once they are gone."""
        series = Histogram({40: 3, 50: 1}, 9.0, 5.5)
        windows = {"fetch": Window({50: 1}, 5.5, 60.0)}
        totals = WorkerTotals({"done": 4}, latency={"fetch": series}, retried=3, windows=windows)
        beat = Heartbeat("w", "busy", "north", 7, 4, 2, 4, totals=totals)
        asyncio.run(store.heartbeat("default", beat))
        live = outrider("stats", "x", "--metrics")
        asyncio.run(store.heartbeat("default", msgspec.structs.replace(beat, state="gone")))
        after = outrider("stats", "x", "--metrics")

        rows = [[*line.split()] for one in (live, after) for line in one.out.splitlines()]
        assert [row for row in rows if row[0] == "fetch"] == [
            ["fetch", "4", "5.31", "5.31", "5.31", "5.50"],
            ["fetch", "4", "0.939", "5.31", "5.31", "5.50"],
        ]
        assert ["retried", "3"] in rows
        assert "the last 1,000 samples of each worker" in live.err
        assert "of all samples: no worker is there" in after.err

    def test_metrics_and_why_exclude_each_other(self, outrider):
        """Two reports at once would be one too many."""
        answer = outrider("stats", "x", "--metrics", "--why")

        assert (answer.code, "exclude each other" in answer.err) == (2, True)

    def test_tags_and_types_are_shown_by_state(self, outrider, crawling):
        """I1: the largest, and what all others sum to."""

        async def add(frontier):
            links = [Link(f"https://d.example/{n}", tag=f"t{n % 150}") for n in range(300)]
            await frontier.add([*links, *[Link(f"https://e.example/{n}", tag="m") for n in "abc"]])

        crawling(add)
        lines = outrider("stats", "x", "--tags", "--types").out.splitlines()

        types = lines.index(next(line for line in lines if line.split()[:1] == ["type"]))
        assert lines[types].split() == [
            *("type", "tasks", "pending", "leased", "done", "dead", "dropped")
        ]
        assert lines[types + 1].split() == ["page", "307", "306", "0", "1", "0", "0"]
        tags = lines.index(next(line for line in lines if line.split()[:1] == ["tag"]))
        assert lines[tags + 1].split() == ["m", "3", "3", "0", "0", "0", "0"]
        assert lines[-1].split() == ["…", "52", "others", "103", "103", "0", "0", "0", "0"]
        assert len(lines) == tags + 1 + 100 + 1

    def test_why_lists_what_keeps_the_crawl_open(self, outrider):
        """I2."""
        told = outrider("stats", "x", "--why", "--json").json["why"]

        assert [(one["what"], one["key"]) for one in told] == [
            ("ready", "b.example"),
            ("snoozed", "c.example"),
        ]
        assert "3 pending" in outrider("stats", "x", "--why").out

    def test_why_of_a_finished_crawl_lists_nothing(self, outrider):
        """When all is settled."""
        outrider("drop", "x", "--all", "--yes")

        assert "nothing keeps it from finishing" in outrider("stats", "x", "--why").out
        assert outrider("stats", "x", "--why", "--json").json["why"] == []

    def test_many_reasons_are_cut(self, outrider):
        """A screen is finite."""
        outrider("add", "x", *(f"https://{n}.example/" for n in range(60)))
        told = outrider("stats", "x", "--why")

        assert told.out.endswith("… and more: see `outrider queues`\n")
        assert len(outrider("stats", "x", "--why", "--json").json["why"]) == 50

    def test_held_tasks_and_ends_are_shown(self, outrider, crawling):
        """E5: those in retired queues."""
        outrider("queue", "x", ".example", "retire")
        crawling(lambda frontier: frontier.claim())
        told = outrider("stats", "x").out

        assert "4 of the pending, in retired queues" in told
        assert "finished (" in told or "finished" in told
        assert "run 1" in told


@pytest.mark.usefixtures("filled")
class TestQueues:
    def test_every_field_is_there_for_programs(self, outrider):
        """E8."""
        views = outrider("queues", "x", "--json").lines

        assert [view["key"] for view in views] == ["a.example", "b.example", "c.example"]
        assert all(view.keys() == set(QueueView.__struct_fields__) for view in views)

    def test_they_are_filtered_by_state(self, outrider):
        """C1."""
        views = outrider("queues", "x", "--state", "ready", "--json").lines

        assert [view["key"] for view in views] == ["b.example"]

    @pytest.mark.parametrize(
        ("options", "first"),
        [
            (["--sort", "pending"], "b.example"),
            (["--sort", "pending", "--reverse"], "a.example"),
            (["--sort", "spent"], "a.example"),
            (["--sort", "key"], "a.example"),
            (["--sort", "key", "--reverse"], "c.example"),
            (["--sort", "wakes_in"], "c.example"),
            (["--sort", "key", "--prefix", "b"], "b.example"),
            (["--sort", "errors"], "a.example"),
            ([], "a.example"),
        ],
    )
    def test_they_are_sorted(self, outrider, options, first):
        """Numbers of trouble and work: the most first; names and waits: the least."""
        assert outrider("queues", "x", "--json", *options).lines[0]["key"] == first

    def test_of_too_many_the_worst_that_were_read_are_shown(self, outrider, monkeypatch):
        """E8: with a note of how many there are; what no sample can answer is refused."""
        monkeypatch.setattr(reader, "MAX_SORTED", 2)

        answer = outrider("queues", "x", "--json", "--sort", "pending")
        refused = outrider("queues", "x", "--sort", "pending", "--reverse")

        assert [view["key"] for view in answer.lines] == ["b.example", "c.example"]
        assert "of 3 queues that were read within 0 s; there are 3" in answer.err
        assert refused.code == 2
        assert "worst_queues" in refused.err

    def test_a_table_for_people(self, outrider):
        """A line each, and a head."""
        head, *rows = outrider("queues", "x").out.splitlines()

        assert head.split()[:3] == ["key", "state", "pending"]
        assert rows[1].split() == ["b.example", "ready", "3", "0", "0", "0", "0.0", "s", B]
        assert "snoozed (waiting)" in rows[2]

    def test_a_budget_is_shown_beside_the_spending(self, outrider):
        """E1."""
        outrider("queue", "x", "a.example", "set", "total_budget=1000")

        assert "1 of 1,000" in outrider("queues", "x").out

    def test_wide_table_has_budget_spending_and_costs_side_by_side(self, outrider):
        """E8: total, spent, balance left, grant, latest and average cost; none: no limit."""
        outrider("queue", "x", "a.example", "set", "total_budget=1000")

        head, first, second, _ = outrider("queues", "x", "--wide").out.splitlines()

        columns = ["key", "state", "total budget", "spent", "balance", "grant", "last cost"]
        columns += ["average cost", "pending", "done", "errors"]
        assert " ".join(head.split()) == " ".join(columns)
        assert first.split() == [
            "a.example",
            "empty",
            "1,000",
            "1",
            "0",
            "3,000",
            "1",
            "1.00",
            "0",
            "1",
            "0",
        ]
        assert second.split()[:4] == ["b.example", "ready", "none", "0"]

    @pytest.mark.parametrize(
        ("options", "keys"),
        [
            (["--key", "b.example"], "b"),
            (["--key", ".example", "--sort", "key", "--reverse"], "cba"),
            (["--pattern", "^[bc]"], "bc"),
            (["--reason", "waiting"], "c"),
            (["--min-spent", "1"], "a"),
            (["--min-errors", "1"], ""),
            (["--state", "ready", "--min-spent", "0", "--sort", "pending"], "b"),
        ],
    )
    def test_filters_leave_the_queues_that_match(self, outrider, options, keys):
        """E8: as JSON, with every field."""
        lines = outrider("queues", "x", "--json", "--wide", *options).lines

        assert "".join(line["key"][0] for line in lines) == keys
        assert all(line.keys() == set(QueueView.__struct_fields__) for line in lines)

    @pytest.mark.parametrize(
        ("option", "error"),
        [(["--reason", "tired"], "one of budget, quota"), (["--pattern", "("], "pattern '('")],
    )
    def test_invalid_filter_is_refused(self, outrider, option, error):
        """Code 2, with what would be valid."""
        answer = outrider("queues", "x", *option)

        assert (answer.code, error in answer.err) == (2, True)

    @pytest.mark.parametrize("option", [["--state", "asleep"], ["--sort", "size"]])
    def test_an_unknown_word_is_refused_with_those_known(self, outrider, option):
        """Code 2."""
        answer = outrider("queues", "x", *option)

        assert answer.code == 2
        assert "is not one of" in answer.err

    def test_limit_cuts_the_list_and_notes_it(self, outrider):
        """In a table; 0 is no limit."""
        cut, whole = (
            outrider("queues", "x", "--limit", "2"),
            outrider("queues", "x", "--limit", "0"),
        )

        assert (cut.out.count("\n"), whole.out.count("\n")) == (3, 4)
        assert cut.err == "outrider: only the first 2 are shown; --limit 0 shows all\n"
        assert whole.err == ""


@pytest.mark.usefixtures("filled")
class TestTasks:
    def test_every_field_is_there_for_programs(self, outrider):
        """B1; the fingerprint in hexadecimal."""
        (view,) = outrider("tasks", "x", "--tag", "t", "--json").lines

        assert view.keys() == set(TaskView.__struct_fields__)
        assert len(bytes.fromhex(view["fingerprint"])) == 16
        assert (view["url"], view["type"], view["depth"]) == (B, "article", 1)

    @pytest.mark.parametrize(
        ("options", "urls"),
        [
            (["--state", "done"], [A]),
            (["--key", "c.example"], [C]),
            (["--type", "article"], [B]),
            (["--tag", "t"], [B]),
            (["--pattern", "[12]$"], [B + "1", B + "2"]),
            (["--key", "b.example", "--pattern", "1"], [B + "1"]),
            (["--limit", "2"], [A, B]),
            (["--limit", "0"], [A, B, B + "1", B + "2", C]),
            (["--older-than", "1d"], []),
        ],
    )
    def test_they_match_everything_given(self, outrider, options, urls):
        """In order of their discovery."""
        assert [one["url"] for one in outrider("tasks", "x", "--json", *options).lines] == urls

    def test_age_is_counted_from_the_discovery(self, outrider, clock):
        """With a unit."""
        clock.advance(3600)
        outrider("add", "x", "https://d.example/")
        clock.advance(3600)

        assert len(outrider("tasks", "x", "--older-than", "90m", "--json").lines) == 5
        assert len(outrider("tasks", "x", "--older-than", "1800", "--json").lines) == 6

    def test_reasons_are_matched(self, outrider):
        """Why it was dropped."""
        outrider("drop", "x", "--key", "c.example")

        assert [
            one["url"] for one in outrider("tasks", "x", "--reason", "operator", "--json").lines
        ] == [C]

    def test_people_see_a_hundred_and_programs_all(self, outrider):
        """Nothing is cut behind a program's back."""
        outrider("add", "x", *(f"{A}{n}" for n in range(200)))

        assert outrider("tasks", "x").out.count("\n") == 101
        assert "--limit 0" in outrider("tasks", "x").err
        assert len(outrider("tasks", "x", "--json").lines) == 205

    @pytest.mark.parametrize(
        ("option", "word"),
        [
            (["--pattern", "["], "regular expression"),
            (["--state", "asleep"], "is not one of"),
            (["--older-than", "soon"], "seconds"),
            (["--older-than", "-5"], ""),
            (["--limit", "-1"], ""),
        ],
    )
    def test_a_bad_filter_is_refused(self, outrider, option, word):
        """Code 2, in words."""
        answer = outrider("tasks", "x", *option)

        assert answer.code == 2
        assert word in answer.err


@pytest.mark.usefixtures("filled")
class TestExplain:
    def test_a_known_url_tells_its_story(self, outrider):
        """O4."""
        told = outrider("explain", "x", B + "1")

        assert told.code == 0
        for text in (
            "known",
            "pending",
            "page, depth 0",
            "12 (base)",
            "b.example: ready",
            "before it",
        ):
            assert text in told.out
        assert told.err == ""

    def test_a_done_one_its_answer(self, outrider):
        """B3: for every URL ever seen."""
        assert "status 200, 5,000 bytes" in outrider("explain", "x", A).out

    def test_a_dead_one_its_attempts(self, outrider, dying):
        """G2."""
        outrider("drop", "x", "--all")
        dying(d="cut off")
        told = outrider("explain", "x", "https://d.example/").out

        assert "dead (cut off)" in told
        assert "failed" in told

    def test_an_unknown_one_that_would_be_admitted(self, outrider):
        """By the crawl's own settings."""
        told = outrider("explain", "x", "https://new.example/")

        assert (told.code, "admissible" in told.out) == (0, True)
        assert "scoring.weights.default = 12.0 (default)" in told.out

    def test_one_that_would_be_refused(self, outrider):
        """Leaves with 1."""
        told = outrider("explain", "x", "ftp://new.example/")

        assert told.code == 1
        assert "refused: scheme" in told.out

    def test_the_shape_of_the_json(self, outrider):
        """The explanation's own fields."""
        shape = outrider("explain", "x", B + "1", "--json").json

        assert (shape["admission"], shape["place"], shape["task"]["state"]) == (
            "known",
            0,
            "pending",
        )

    def test_a_paused_queue_has_no_time(self, outrider):
        """It unknown."""
        outrider("queue", "x", "b.example", "pause")

        assert "unknown" in outrider("explain", "x", B).out

    def test_where_it_was_found_and_when_it_is_due(self, outrider, crawling):
        """B1."""
        link = Link("https://d.example/", via=A, tag="t", delay=60.0)
        crawling(lambda frontier: frontier.add([link]))
        told = outrider("explain", "x", "https://d.example/").out

        for text in ("found on", "tag", "due"):
            assert text in told


@pytest.mark.usefixtures("filled")
def test_the_heatmap_sums_up_what_is_pending(outrider):
    """O2."""
    assert outrider("heatmap", "x", "--json").json["total"] == 4
    told = outrider("heatmap", "x").out
    assert "1 article, 3 other" in told
    assert "0: 3, 1: 1" in told
