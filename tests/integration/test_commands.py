"""Commands on a file, each a process of its own; and beside another that holds it and crawls."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from outrider import Done, Failed
from outrider.blocking import Frontier

A = "https://a.example/"
B = "https://b.example/"
MAIN = "from outrider.cli import main; main()"
RUDE = {
    "politeness": {"delay": 0.0, "max_in_flight": 1000},
    "retry": {"max_retries": 0},
    "budget": {"balance": 7},
}


class Answer(NamedTuple):
    """What a command left with, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one object it wrote."""
        return json.loads(self.out)

    @property
    def lines(self):
        """The objects it wrote, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def path(tmp_path):
    """Where the file is, or will be."""
    return str(tmp_path / "crawl.outrider")


@pytest.fixture
def outrider(path):
    """Runs the command on the file, as a shell does."""

    def run(command, *arguments, text=""):
        words = [sys.executable, "-c", MAIN, command, path, *arguments]
        done = subprocess.run(words, capture_output=True, text=True, check=False, input=text)
        return Answer(done.returncode, done.stdout, done.stderr)

    return run


def test_a_file_remembers_from_one_command_to_the_next(outrider, path):
    """Added, seen, steered, dropped: each by another process."""
    assert outrider("add", A, A + "1", B).out == "added 3, refused 0\n"
    assert outrider("add", "--from", "-", text=f"{B}2\nnonsense\n").code == 1
    assert outrider("stats", "--json").json["pending"] == 4
    assert outrider("queue", ".example", "set", "balance=5", "--json").json["pending"] == 4
    assert [view["grant"] for view in outrider("queues", "--json").lines] == [5, 5]
    assert outrider("explain", A).code == 0
    assert outrider("heatmap", "--json").json["total"] == 4
    assert outrider("drop", "--key", "a.example", "--dry-run").out == "would be dropped: 2 tasks\n"
    assert outrider("drop", "--key", "a.example").out == "dropped: 2 tasks\n"
    assert [task["url"] for task in outrider("tasks", "--state", "pending", "--json").lines] == [
        B,
        B + "2",
    ]
    assert outrider("pause").out == "default is paused\n"
    assert outrider("stats", "--json").json["status"] == "paused"
    assert outrider("resume").code == 0
    assert outrider("cancel").code == 0
    assert outrider("add", A + "9").out == "added 0, refused 1: 1 cancelled\n"


def test_dead_letters_of_a_crawl_that_ended_are_judged_later(outrider, path):
    """G2: shown, replayed, purged when no process crawls."""
    with Frontier.open(path, settings=RUDE) as frontier:
        frontier.add([A, B])
        frontier.finish_many([(lease, Failed("cut")) for lease in frontier.claim(2)])

    assert outrider("dead", "list", "--by-reason", "--json").json == {"cut": 2}
    assert "attempt 1" in outrider("dead", "show", A).out
    assert outrider("dead", "replay", A).out == "replayed: 1 task\n"
    assert outrider("dead", "purge", "--all").out == "purged: 1 task\n"
    assert outrider("dead").out.count("\n") == 1


def test_rules_survive_every_command(outrider, path):
    """What one worker set applies to the next one, whatever was read in between."""
    with Frontier.open(path, settings=RUDE) as frontier:
        frontier.add([A])
    outrider("stats")
    outrider("add", B)
    outrider("queue", "b.example", "pause")

    assert outrider("queue", "c.example", "--json").json["grant"] == 7
    assert outrider("queue", "b.example", "--json").json["grant"] == 7


@pytest.mark.parametrize(
    "words",
    [
        ["stats"],
        ["queues"],
        ["queue", "a.example", "pause"],
        ["tasks"],
        ["drop", "--all"],
        ["explain", A],
        ["dead", "replay", "--all"],
        ["heatmap"],
        ["pause"],
        ["resume"],
        ["cancel"],
    ],
    ids=lambda words: words[0],
)
def test_only_add_makes_a_file(outrider, path, words):
    """The others name what is missing."""
    answer = outrider(*words)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"outrider: no such file: {path}; `outrider add` creates one\n"
    assert list(Path(path).parent.iterdir()) == []


def test_nothing_is_made_for_a_list_that_is_missing(outrider, path):
    """The input is looked at first."""
    answer = outrider("add", "--from", path + ".txt")

    assert answer.code == 2
    assert list(Path(path).parent.iterdir()) == []


def test_a_list_may_be_cut_by_its_reader(outrider, path):
    """`| head` ends it without a complaint."""
    outrider("add", "--from", "-", text="\n".join(f"{A}{n}" for n in range(5000)))
    words = [sys.executable, "-c", MAIN, "tasks", path, "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as listing:
        first = listing.stdout.readline()
        listing.stdout.close()
        complaint = listing.stderr.read()

    assert json.loads(first)["url"] == A + "0"
    assert complaint == b""


# ---- two terminals


@pytest.fixture
def crawl(path):
    """A crawl that this process holds and works on."""
    with Frontier.open(path, settings=RUDE) as frontier:
        frontier.add([A, A + "1", B])
        yield frontier


def test_a_second_terminal_sees_what_the_first_does(outrider, crawl):
    """Leases, visits, and what is left."""
    lease, *_ = crawl.claim(1)
    seen = outrider("stats", "--why", "--json").json
    assert (seen["leased"], seen["pending"]) == (1, 2)
    assert seen["why"][0]["what"] == "leased"

    crawl.finish(lease, Done(200))
    assert outrider("stats", "--json").json["done"] == 1
    assert outrider("explain", lease.url, "--json").json["task"]["state"] == "done"


def test_a_second_terminal_steers_the_first(outrider, crawl):
    """At once: the next claim obeys."""
    outrider("queue", "a.example", "pause")
    assert [lease.url for lease in crawl.claim(10)] == [B]

    outrider("queue", "a.example", "resume")
    outrider("pause")
    assert crawl.claim(10) == []
    outrider("resume")
    outrider("drop", "--pattern", "1$")
    assert [lease.url for lease in crawl.claim(10)] == [A]


def test_a_second_terminal_adds_to_the_first(outrider, crawl):
    """And the first one's rules hold for it."""
    assert outrider("add", "https://c.example/").out == "added 1, refused 0\n"
    assert crawl.queue("c.example").view().grant == 7
    assert "https://c.example/" in [lease.url for lease in crawl.claim(10)]


def test_a_second_terminal_replays_for_the_first(outrider, crawl):
    """Dead letters come back."""
    crawl.finish_many([(lease, Failed("cut")) for lease in crawl.claim(10)])
    assert outrider("dead", "replay", "--all", "--json").json == {"replayed": 3, "dry_run": False}

    assert len(crawl.claim(10)) == 3


def test_the_file_is_whole_after_both(outrider, crawl):
    """The next process finds the changes of both."""
    outrider("add", "https://c.example/")
    crawl.finish_many([(lease, Done(200)) for lease in crawl.claim(10)])
    crawl.close()
    seen = outrider("stats", "--json").json

    assert (seen["known"], seen["done"]) == (4, 4)
