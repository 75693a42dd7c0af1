"""`outrider work` and `workers`: what is a worker's own, where it writes, and who is seen."""

import asyncio
import json
import socket

import pytest

from outrider import Done, Frontier
from outrider.cli import crawl_plan
from outrider.cli.crawl_plan import WorkRequest
from outrider.core.worker_totals import ScalingDecision, WorkerTotals
from outrider.settings import Layer, Layers
from outrider.store.protocol import Heartbeat, WorkerView

A = "https://a.example/"


def asked(**said):
    """A command line."""
    usual = {
        "store": "redis://host/0",
        "crawl": "default",
        "options": {},
        "settings": None,
        "assign": [],
        "log": None,
        "handler": [],
        "isolate": False,
        "stays": False,
    }
    return WorkRequest(**usual | said)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A crawl that is finished, in a file of an empty folder."""
    monkeypatch.chdir(tmp_path)

    asyncio.run(_finished("default", {"scope": {"mode": "host"}}))
    return tmp_path / "x.outrider"


async def _finished(crawl, settings):
    """Visit the only page of a crawl, and ask for more."""
    async with Frontier.open("x.outrider", settings=settings, crawl=crawl) as frontier:
        await frontier.add([A])
        (lease,) = await frontier.claim()
        await frontier.finish(lease, Done(200))
        await frontier.claim()


@pytest.fixture
def host(monkeypatch):
    """This machine has a name of letters that no file should have."""
    monkeypatch.setattr(socket, "gethostname", lambda: "my host/1")
    return "my-host-1"


class TestOwn:
    """What the worker says itself."""

    def test_options_win_over_the_file(self, tmp_path):
        """As with `crawl`; and what is usual stays said, so that it wins over the crawl's."""
        file = tmp_path / "mine.toml"
        file.write_text('[executor]\nslots = 5\ndrain = 1.0\n[fetch]\ncontact = "me"\n')
        own = crawl_plan.own_layers(
            asked(
                settings=str(file),
                options={"executor": {"slots": 64}, "output": {"format": None}},
                assign=["fetch.contact=you"],
            )
        )

        assert own.tree() == {
            "executor": {"slots": 64, "drain": 1.0},
            "fetch": {"contact": "you"},
        }

    def test_what_is_the_crawls_is_named(self):
        """It would be ignored; code is a worker's to give."""
        tree = {"queue": {"max_depth": 3, "key": "my:key"}, "executor": {"slots": 3}}
        own = Layers(command=Layer("command line", tree))

        assert crawl_plan.ignored_settings(own) == ["queue.max_depth"]

    @pytest.mark.parametrize(
        ("said", "stem"),
        [
            ({}, "crawl"),
            ({"crawl": "News of today"}, "news-of-today"),
            ({"store": "/data/x.outrider"}, "/data/x"),
            ({"options": {"output": {"path": "out/pages.warc.gz"}}}, "out/pages"),
        ],
        ids=["server", "named", "file", "output"],
    )
    def test_files_are_named_after_the_crawl(self, said, stem):
        """Or as the output is."""
        wanted = asked(**said)

        assert crawl_plan.worker_stem(wanted, crawl_plan.own_layers(wanted)) == stem

    def test_each_worker_has_files_of_its_own(self):
        """Pages, and the robots.txt it keeps; but for a cache that was named."""
        own = crawl_plan.with_files("x-host-1", Layers()).tree()
        shared = Layers(file=Layer("file", {"fetch": {"robots_cache": "shared"}}))
        named = crawl_plan.with_files("x-host-1", shared).tree()

        assert own["output"] == {"path": "x-host-1"}
        assert own["fetch"] == {"robots_cache": "x-host-1.robots"}
        assert named["fetch"] == {"robots_cache": "shared"}


class TestWork:
    """The command on a file, without a visit."""

    def test_missing_folder_is_refused(self, outrider, tmp_path, file):
        """Before anything is opened."""
        answer = outrider("work", str(file), "--output", str(tmp_path / "no" / "x"))

        assert (answer.code, "there is no directory" in answer.err) == (2, True)

    def test_it_ends_with_the_crawl(self, outrider, file, host):
        """As `crawl` would, and says where it wrote."""
        answer = outrider("work", str(file), "--json", "--quiet", "--set", "queue.max_depth=1")

        assert answer.code == 0, answer.err
        assert answer.json["closing"]["end"] == "finished"
        assert answer.json["files"]["pages"] == f"{file.with_suffix('')}-{host}-1.jsonl"
        assert answer.json["worker"].startswith("my host/1-")
        assert "ignored, because the crawl sets them for all workers: queue.max_depth" in answer.err

    @pytest.mark.parametrize(
        ("settings", "code", "said"),
        [
            (
                {"crawl": {"pause_at_finish": True}},
                4,
                "paused: at finish, as crawl.pause_at_finish says; to finish it, run",
            ),
            (
                {"limits": {"done": 1}},
                3,
                "budget reached: the limit of pages; to resume, raise limits.done, run",
            ),
        ],
        ids=["finish", "limit"],
    )
    def test_worker_on_a_paused_crawl_names_the_command_that_resumes_it(
        self, outrider, file, settings, code, said
    ):
        """A worker resumes nothing: what it says to do does it."""
        asyncio.run(_finished("p", settings))
        first = outrider("work", "x.outrider", "--crawl", "p", "--quiet", "--json")
        resumed = outrider("resume", "x.outrider", "--crawl", "p")
        outrider("config", "set", "x.outrider", "limits.done=0", "--crawl", "p")
        second = outrider("work", "x.outrider", "--crawl", "p", "--quiet")

        way = "`outrider resume x.outrider --crawl p` and work again"
        assert (first.code, first.json["closing"]["why"]) == (code, f"{said} {way}")
        assert (resumed.code, second.code) == (0, 0)

    def test_closing_table_names_the_files(self, outrider, file):
        """For people."""
        answer = outrider("work", str(file))

        assert "finished" in answer.out
        assert "-1.jsonl" in answer.out
        assert "joins 'default'" in answer.err

    def test_the_crawls_settings_are_not_changed(self, outrider, file):
        """Whatever the worker says of them."""
        before = asyncio.run(_kept(file))
        assert outrider("work", str(file), "--slots", "3", "--set", "scope.mode=all").code == 0

        assert asyncio.run(_kept(file)) == before
        assert json.loads(before)["scope"] == {"mode": "host"}

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["nowhere.outrider"], "no such file"),
            (["memory://"], "ends with its process"),
            (["x.outrider", "--crawl", "other"], "it has default"),
            (["x.outrider", "--set", "executor.slots=-1"], "executor.slots"),
            (["x.outrider", "--settings", "no.toml"], "--settings no.toml"),
            (["x.outrider", "--handler", "no_such:thing"], "handler = 'no_such:thing'"),
            (["x.outrider", "--handler", "a=os:no_such"], "handler of type 'a' = 'os:no_such'"),
            (["x.outrider", "--handler", "a=os.path"], "os.path is no function; give MODULE"),
            (["x.outrider", "--handler", "a="], "nothing is no function"),
            (["x.outrider", "--handler", "=os:abort"], "no type before the =; give TYPE=os:abort"),
            (["x.outrider", "--handler", "sitemap=os:abort"], "sitemaps are read for links"),
            (
                ["x.outrider", "--handler", "a=os:abort", "--handler", "a=os:getpid"],
                "two of type a, os:abort and os:getpid; give one",
            ),
            (
                ["x.outrider", "--handler", "os:abort", "--handler", "os:getpid"],
                "two without a type, os:abort and os:getpid",
            ),
            (["nonsense://x"], "no store answers"),
        ],
        ids=[
            *("file", "memory", "crawl", "setting", "settings", "handler", "typed"),
            *("module", "empty", "untyped", "sitemap", "twice", "plain", "url"),
        ],
    )
    @pytest.mark.usefixtures("file")
    def test_work_that_cannot_start_is_refused_with_the_reason(self, outrider, words, said):
        """With 2, and one line."""
        answer = outrider("work", *words)

        assert (answer.code, said in answer.err) == (2, True), answer.err

    def test_functions_of_the_crawl_are_given_by_hand(self, outrider, file):
        """None is imported because a store says so."""
        asyncio.run(_keyed(file, "os:getcwd"))
        without = outrider("work", str(file))
        given = outrider("work", str(file), "--set", "queue.key=os:getcwd")

        assert (without.code, "queue.key = 'os:getcwd' is code" in without.err) == (2, True)
        assert given.code == 0, given.err


class TestWorkers:
    """Who is seen."""

    def test_those_who_beat_are_listed(self, outrider, store, crawling):
        """A table for people, a line each for programs."""
        crawling(Frontier.stats)
        for name, state in (("one", "busy"), ("two", "gone")):
            asyncio.run(store.heartbeat("default", Heartbeat(name, state, "north", 7, 4, 2, 99)))
        shown, read = outrider("workers", "x"), outrider("workers", "x", "--json")

        assert [line.split()[:7] for line in shown.out.splitlines()[1:]] == [
            ["one", "busy", "2", "busy,", "2", "idle", "99"],
            ["two", "gone", "4", "before", "99", *shown.out.splitlines()[2].split()[5:7]],
        ]
        assert [line["worker"] for line in read.lines] == ["one", "two"]
        assert read.lines[0].keys() == set(WorkerView.__struct_fields__)

    def test_slots_and_scaling_decisions_are_listed(self, outrider, store, crawling):
        """J2, J3: also of a worker that is gone; text of a worker moves no cursor."""
        crawling(Frontier.stats)
        slots = {"idle": 1, "busy": 2, "draining": 3, "parked": 4}
        for name, state in (("host-1-a", "draining"), ("host-2-b", "gone")):
            decided = (ScalingDecision(5.0, 4, 7, "work"), ScalingDecision(9.0, 7, 3, "\x1b[2J"))
            totals = WorkerTotals({"done": 8}, {"scope": 2}, decisions=decided, slots=slots)
            beat = Heartbeat(name, state, "north", 7, 3, 5, 99, totals=totals)
            asyncio.run(store.heartbeat("default", beat))
        shown = outrider("workers", "x")
        all_of_them = outrider("workers", "x", "--decisions").out.splitlines()
        one = outrider("workers", "x", "2-b").out
        read = outrider("workers", "x", "host-2-b", "--json").json

        assert "2 busy, 3 draining, 1 idle, 4 parked" in shown.out
        assert "7 → 3: \\x1b[2J" in shown.out
        assert [line.split()[0] for line in all_of_them[1:]] == ["host-1-a"] * 2 + ["host-2-b"] * 2
        assert "4 → 7" in all_of_them[1]
        assert "7 on north" in one
        assert "2 scope" in one
        assert one.count("host-2-b") == 3
        assert [d["reason"] for d in read["totals"]["decisions"]] == ["work", "\x1b[2J"]

    @pytest.mark.parametrize(
        ("name", "error"),
        [("nobody", "no worker nobody"), ("host", "2 workers have host in their names, such as")],
    )
    def test_worker_that_cannot_be_told_is_refused(self, outrider, store, crawling, name, error):
        """With the way to find it."""
        crawling(Frontier.stats)
        for worker in ("host-1", "host-2"):
            beat = Heartbeat(worker, "idle", "north", 7, 3, 0, 0)
            asyncio.run(store.heartbeat("default", beat))
        answer = outrider("workers", "x", name)

        assert (answer.code, error in answer.err) == (2, True), answer.err

    def test_crawl_without_workers_is_noted(self, outrider, crawling):
        """An empty list is an answer, not an error."""
        crawling(Frontier.stats)
        shown, read = outrider("workers", "x"), outrider("workers", "x", "--json")

        assert (shown.code, shown.out, read.code, read.out) == (0, "", 0, "")
        assert "no worker has sent a heartbeat" in shown.err


async def _kept(file):
    async with Frontier.attach(file) as frontier:
        return await frontier.store.settings("default")


async def _keyed(file, key):
    async with Frontier.attach(file) as frontier:
        text = json.dumps({"queue": {"key": key}})
        rules = (await frontier.store.export("default", limit=1)).items[0].rules
        await frontier.store.configure("default", rules, text)
