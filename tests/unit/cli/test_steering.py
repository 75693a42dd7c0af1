"""Commands that steer: queues, drops, dead letters, and the crawl itself."""

import asyncio

import pytest

from outrider import Failed, Frontier, Link
from outrider.cli import terminal
from outrider.frontier.reports import DeadLetter, SuffixView
from outrider.store.protocol import QueueView

A = "https://a.example/"
B = "https://b.example/"


@pytest.fixture
def person(monkeypatch):
    """A user at a terminal, who gives this answer."""
    asked = []

    def sit(answer):
        def confirm(question, **how):
            asked.append(question)
            if not answer:
                raise terminal.typer.Abort

        monkeypatch.setattr(terminal, "is_interactive", lambda: True)
        monkeypatch.setattr(terminal.typer, "confirm", confirm)
        return asked

    return sit


@pytest.fixture
def filled(outrider, store):
    """Two queues, three tasks."""
    outrider("add", "x", A, A + "1", B)


@pytest.mark.usefixtures("filled")
class TestQueue:
    def test_it_is_shown(self, outrider):
        """E8."""
        shown = outrider("queue", "x", "a.example")

        assert shown.code == 0
        assert "2, 0 of them not yet due" in shown.out
        assert outrider("queue", "x", "a.example", "show").out == shown.out

    def test_the_shape_of_the_json(self, outrider):
        """A queue's view, or a suffix's."""
        one = outrider("queue", "x", "a.example", "--json").json
        many = outrider("queue", "x", ".example", "--json").json

        assert one.keys() == set(QueueView.__struct_fields__)
        assert many == {
            "key": ".example",
            "queues": {"ready": 2},
            "pending": 3,
            "in_flight": 0,
            "spent": 0,
        }
        assert many.keys() == set(SuffixView.__struct_fields__)

    def test_settings_are_typed(self, outrider):
        """E5, E7."""
        changes = [
            "balance=100",
            "total_budget=500",
            "delay=2.0",
            "max_in_flight=3",
            "precedence=-1",
        ]
        view = outrider("queue", "x", "a.example", "set", *changes, "--json").json

        assert (view["grant"], view["total_budget"], view["delay"]) == (100, 500, 2.0)
        assert (view["max_in_flight"], view["precedence"]) == (3, -1)
        assert "100 left of 100" in outrider("queue", "x", "a.example").out

    def test_a_change_is_taken_back_by_none(self, outrider):
        """The next layer holds again."""
        outrider("queue", "x", "a.example", "set", "balance=100")

        assert (
            outrider("queue", "x", "a.example", "set", "balance=none", "--json").json["grant"]
            == 3000
        )

    def test_words_are_text_and_truth(self, outrider):
        """count_from and hold_queues."""
        changes = ["count_from=start", "hold_queues=true"]

        assert outrider("queue", "x", "a.example", "set", *changes).code == 0

    @pytest.mark.parametrize(
        ("acts", "state"),
        [
            (["pause"], "paused"),
            (["pause", "resume"], "ready"),
            (["retire"], "retired"),
            (["retire", "revive"], "ready"),
            (["snooze 60"], "snoozed"),
            (["snooze 2h", "wake"], "ready"),
        ],
    )
    def test_acts_are_answered_with_the_new_view(self, outrider, acts, state):
        """E7."""
        for act in acts:
            answer = outrider("queue", "x", "a.example", *act.split(), "--json")

        assert (answer.code, answer.json["state"]) == (0, state)

    def test_a_suffix_reaches_all_its_queues(self, outrider):
        """E7."""
        told = outrider("queue", "x", ".example", "pause")

        assert "2 paused" in told.out

    def test_no_such_queue_is_nothing_to_show(self, outrider):
        """Leaves with 1, for a suffix too."""
        one, many = outrider("queue", "x", "no.example"), outrider("queue", "x", ".org")

        assert (one.code, many.code) == (1, 1)
        assert one.err == "outrider: no task of no.example was ever added\n"

    def test_an_act_holds_for_queues_to_come(self, outrider):
        """And says so."""
        told = outrider("queue", "x", "no.example", "pause")

        assert (told.code, told.err) == (
            0,
            "outrider: no task of no.example was ever added; it applies to later tasks\n",
        )

    @pytest.mark.parametrize(
        ("words", "fault"),
        [
            (["set", "blance=1"], "did you mean balance?"),
            (["set", "balance=much"], "whole number"),
            (["set", "balance=1.5"], "whole number"),
            (["set", "paused=true"], "queue.pause()"),
            (["set", "balance"], "NAME=VALUE"),
            (["set", "=1"], "NAME=VALUE"),
            (["set", "balance="], "NAME=VALUE"),
            (["set"], "NAME=VALUE"),
            (["snooze"], "seconds"),
            (["snooze", "soon"], "seconds"),
            (["snooze", "1", "2"], "seconds"),
            (["snooze", "9999w"], "ten years"),
            (["pause", "now"], "takes no arguments"),
            (["dance"], "is not one of"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, outrider, words, fault):
        """With code 2, and nothing changes."""
        before = outrider("queue", "x", "a.example").out
        answer = outrider("queue", "x", "a.example", *words)

        assert answer.code == 2
        assert fault in answer.err
        assert outrider("queue", "x", "a.example").out == before

    def test_a_suffix_needs_a_name(self, outrider):
        """Dots alone are none."""
        assert outrider("queue", "x", ".").code == 2


@pytest.mark.usefixtures("filled")
class TestDrop:
    def test_it_drops_what_matches(self, outrider):
        """C10."""
        answer = outrider("drop", "x", "--key", "a.example", "--pattern", "1$")

        assert (answer.code, answer.out) == (0, "dropped: 1 task\n")
        assert len(outrider("tasks", "x", "--state", "pending", "--json").lines) == 2

    def test_a_dry_run_only_counts(self, outrider):
        """Nothing changes."""
        told = outrider("drop", "x", "--key", "a.example", "--dry-run")

        assert (told.code, told.out) == (0, "would be dropped: 2 tasks\n")
        assert len(outrider("tasks", "x", "--state", "pending", "--json").lines) == 3

    def test_the_shape_of_the_json(self, outrider):
        """What was done, or would be."""
        dry = outrider("drop", "x", "--all", "--dry-run", "--json")

        assert dry.json == {"dropped": 3, "dry_run": True}
        assert outrider("drop", "x", "--all", "--json").json == {"dropped": 3, "dry_run": False}

    @pytest.mark.parametrize("words", [[], ["--dry-run"], ["--all", "--key", "a.example"]])
    def test_it_wants_to_know_which(self, outrider, words):
        """No filter, or one too many."""
        answer = outrider("drop", "x", *words)

        assert answer.code == 2
        assert "--all" in answer.err

    def test_nothing_to_drop_leaves_with_1(self, outrider):
        """Dry or not."""
        assert outrider("drop", "x", "--tag", "none").code == 1
        assert outrider("drop", "x", "--tag", "none", "--dry-run").code == 1

    def test_a_person_is_asked_with_the_count(self, outrider, person):
        """And may go on."""
        asked = person(True)

        assert outrider("drop", "x", "--key", "a.example").out == "dropped: 2 tasks\n"
        assert asked == ["Drop 2 tasks?"]

    def test_a_person_may_say_no(self, outrider, person):
        """Then nothing changes."""
        person(False)
        answer = outrider("drop", "x", "--key", "a.example")

        assert (answer.code, answer.out) == (1, "")
        assert len(outrider("tasks", "x", "--state", "pending", "--json").lines) == 3

    @pytest.mark.parametrize("option", ["--yes", "-y", "--dry-run"])
    def test_a_person_is_not_asked_needlessly(self, outrider, person, option):
        """Nor about nothing."""
        asked = person(False)
        outrider("drop", "x", "--key", "a.example", option)
        outrider("drop", "x", "--tag", "none")

        assert asked == []


class TestDead:
    def test_letters_are_listed(self, outrider, dying):
        """G2."""
        dying(a="cut", b="reset", c="cut")
        told = outrider("dead", "x")

        assert told.code == 0
        assert [line.split()[-1] for line in told.out.splitlines()][1:] == [
            A,
            B,
            "https://c.example/",
        ]
        assert outrider("dead", "x", "list").out == told.out

    def test_the_shape_of_the_json(self, outrider, dying):
        """A letter each."""
        dying(a="cut")
        (letter,) = outrider("dead", "x", "list", "--json").lines

        assert letter.keys() == set(DeadLetter.__struct_fields__)
        assert letter["attempts"][0].keys() == {"at", "worker", "error"}
        assert outrider("dead", "x", "show", A, "--json").json == letter

    @pytest.mark.parametrize(
        ("options", "urls"),
        [
            (["--reason", "reset"], [B]),
            (["--key", "a.example"], [A]),
            (["--type", "article"], []),
            (["--limit", "1"], [A]),
        ],
    )
    def test_they_are_filtered(self, outrider, dying, options, urls):
        """All that is given must match."""
        dying(a="cut", b="reset")

        assert [
            one["url"] for one in outrider("dead", "x", "list", "--json", *options).lines
        ] == urls

    def test_they_are_grouped_by_reason(self, outrider, dying):
        """The most frequent first."""
        dying(a="reset", b="cut", c="cut")

        told = outrider("dead", "x", "list", "--by-reason")
        assert [line.split() for line in told.out.splitlines()][1:] == [
            ["2", "cut"],
            ["1", "reset"],
        ]
        assert outrider("dead", "x", "list", "--by-reason", "--json").json == {"cut": 2, "reset": 1}

    def test_one_is_shown_with_every_attempt(self, outrider, dying):
        """G2."""
        dying(a="cut")
        told = outrider("dead", "x", "show", A)

        assert told.code == 0
        assert "attempt 1" in told.out
        assert ": cut" in told.out

    @pytest.mark.parametrize(
        ("url", "what"), [(B, "pending"), ("https://new.example/", "not known"), ("x", "not known")]
    )
    def test_what_is_not_dead_is_not_shown(self, outrider, dying, url, what):
        """Leaves with 1, and says what it is."""
        dying(a="cut")
        outrider("add", "x", B)
        told = outrider("dead", "x", "show", url)

        assert (told.code, told.err) == (1, f"outrider: {url} is not a dead letter: it is {what}\n")

    @pytest.mark.parametrize(
        ("words", "count"),
        [
            (["replay", A], 1),
            (["replay", "--reason", "cut"], 2),
            (["replay", "--key", "b.example"], 1),
            (["replay", "--all"], 3),
        ],
    )
    def test_they_are_replayed(self, outrider, dying, words, count):
        """One, some, all; a preview changes nothing."""
        dying(a="cut", b="reset", c="cut")
        preview = outrider("dead", "x", *words, "--dry-run", "--json")
        answer = outrider("dead", "x", *words, "--json")

        assert preview.json == {"replayed": count, "dry_run": True}
        assert answer.json == {"replayed": count, "dry_run": False}
        assert outrider("stats", "x", "--json").json["pending"] == count

    def test_they_are_purged(self, outrider, dying):
        """They become dropped."""
        dying(a="cut", b="cut")
        answer = outrider("dead", "x", "purge", "--all")

        assert (answer.code, answer.out) == (0, "purged: 2 tasks\n")
        assert outrider("stats", "x", "--json").json["dropped"] == 2

    def test_a_person_is_asked_before_a_purge_only(self, outrider, dying, person):
        """A replay loses nothing."""
        dying(a="cut", b="cut")
        asked = person(False)

        assert outrider("dead", "x", "purge", A).code == 1
        assert outrider("dead", "x", "replay", A).code == 0
        assert asked == ["Purge 1 task?"]

    @pytest.mark.parametrize("act", ["replay", "purge"])
    def test_nothing_found_leaves_with_1(self, outrider, dying, act):
        """A reason that no task has."""
        dying(a="cut")

        assert outrider("dead", "x", act, "--reason", "none").code == 1

    @pytest.mark.parametrize(
        "words",
        [["replay"], ["purge"], ["replay", A, "--all"], ["show"], ["list", A], ["bury"]],
    )
    def test_what_cannot_be_meant_is_refused(self, outrider, dying, words):
        """Code 2, and nothing changes."""
        dying(a="cut")

        assert outrider("dead", "x", *words).code == 2
        assert outrider("stats", "x", "--json").json["dead"] == 1

    def test_meta_and_tag_are_shown(self, outrider, crawling):
        """With all that is needed to judge it."""

        async def work(frontier):
            await frontier.add([Link(A, tag="label", meta={"n": 1})])
            (lease,) = await frontier.claim()
            await frontier.finish(lease, Failed("cut"))

        crawling(work)
        told = outrider("dead", "x", "show", A).out

        assert '{"n":1}' in told
        assert "label" in told


@pytest.mark.usefixtures("filled")
class TestTurns:
    def test_a_crawl_is_paused_and_resumed(self, outrider):
        """I1."""
        assert outrider("pause", "x").out == "default is paused\n"
        assert outrider("pause", "x").code == 0
        assert outrider("resume", "x", "--json").json == {"crawl": "default", "status": "running"}

    def test_cancelling_is_for_good(self, outrider):
        """I3: what cannot be is said, with code 1."""
        assert outrider("cancel", "x").out == "default is cancelled\n"
        answer = outrider("resume", "x")

        assert (answer.code, answer.out) == (1, "default is cancelled\n")
        assert answer.err.startswith("outrider: a crawl that is cancelled cannot become running; ")

    def test_only_work_starts_a_finished_crawl(self, outrider, crawling):
        """I2: and the command says so."""
        outrider("drop", "x", "--all")
        crawling(lambda frontier: frontier.claim())
        answer = outrider("resume", "x")

        assert (answer.code, answer.out) == (1, "default is finished\n")
        assert "add URLs" in answer.err

    def test_a_person_is_asked_before_cancelling(self, outrider, person):
        """And may say no."""
        asked = person(False)

        assert outrider("cancel", "x").code == 1
        assert asked == ["Cancel default for good?"]
        assert outrider("stats", "x", "--json").json["status"] == "running"

    @pytest.mark.parametrize("command", ["pause", "resume", "cancel"])
    def test_no_crawl_is_made(self, outrider, store, command):
        """Code 2."""
        assert (
            outrider(command, "x", "--crawl", "none", *(["--yes"] * (command == "cancel"))).code
            == 2
        )
        assert asyncio.run(store.crawls()) == ["default"]


def test_steering_keeps_the_rules_of_the_crawl(outrider, crawling, store):
    """A command has no settings of its own."""
    crawling(lambda frontier: frontier.add([A]), settings={"budget": {"balance": 7}})
    outrider("queue", "x", "a.example", "set", "delay=2")
    outrider("pause", "x")
    outrider("add", "x", B)

    assert asyncio.run(store.queue("default", "b.example")).grant == 7


class TestAddresses:
    """Hosts and suffixes under a keying of one's own (A4)."""

    @pytest.fixture
    def keyed(self, crawling):
        """A crawl under some keying."""

        def begin(by):
            crawling(lambda frontier: frontier.add([A, B]), settings={"queue": {"key": by}})

        return begin

    @pytest.mark.parametrize("address", ["a.example", "example,a", ".a.example"])
    def test_surt_queue_is_reached_as_people_write_hosts(self, outrider, keyed, address):
        """E7: by host, by its key, by suffix."""
        keyed("surt")
        told = outrider("queue", "x", address, "pause")

        assert told.code == 0
        assert outrider("queue", "x", "example,a", "--json").json["state"] == "paused"
        assert outrider("queue", "x", "example,b", "--json").json["state"] == "ready"
        assert "paused" in outrider("queue", "x", address).out

    @pytest.mark.parametrize("act", [["pause"], ["set", "delay=1"], []])
    @pytest.mark.parametrize("address", [".example", "a.example"])
    def test_address_that_reaches_no_queue_is_refused(self, outrider, keyed, address, act):
        """With the reason and the fix."""
        keyed("buckets:4")
        told = outrider("queue", "x", address, *act)

        assert told.code == 2
        assert f"'{address}' reaches no queue: queues are keyed into 4 buckets" in told.err

    def test_override_that_reaches_no_queue_is_refused(self, outrider, keyed, tmp_path):
        """N2: said at run time, and in a file."""
        keyed("domain")
        said = outrider("config", "set", "x", 'keys."www.a.example".delay=1')
        file = tmp_path / "settings.toml"
        file.write_text('[queue]\nkey = "buckets:4"\n[keys.".org"]\ndelay = 1\n')
        checked = outrider("config", "check", str(file))

        assert said.code == 2
        assert "write 'a.example'" in said.err
        assert checked.code == 1
        assert 'keys.".org"' in checked.err
        assert f"is from file {file}" in checked.err

    def test_suffix_set_at_run_time_wins_over_an_exact_key(self, outrider, crawling):
        """A4: by `config set` and by `queue set`, in both orders."""
        settings = {"keys": {"a.example": {"delay": 9.0}}}
        crawling(lambda frontier: frontier.add([A, B]), settings=settings)
        found = []
        for told in (
            ["config", "set", "x", 'keys.".example".delay=1'],
            ["queue", "x", ".example", "set", "delay=2"],
            ["config", "set", "x", 'keys.".example".delay=3'],
            ["config", "set", "x", 'keys."a.example".delay=4'],
            ["queue", "x", ".example", "set", "delay=5"],
            ["queue", "x", "a.example", "set", "delay=6"],
        ):
            assert outrider(*told).code == 0
            found.append(outrider("queue", "x", "a.example", "--json").json["delay"])

        assert found == [1.0, 2.0, 3.0, 4.0, 4.0, 6.0]


# ---- who does it


@pytest.mark.parametrize(("options", "name"), [((), "user@host"), (("--by", "ann"), "ann")])
@pytest.mark.parametrize(
    "command",
    [
        ("pause", "x"),
        ("resume", "x"),
        ("cancel", "x", "--yes"),
        ("queue", "x", "a.example", "pause"),
        ("drop", "x", "--pattern", "", "--yes"),
        ("dead", "x", "replay", "--all"),
        ("dead", "x", "purge", "--all", "--yes"),
        ("config", "set", "x", "lanes.burst=3"),
        ("config", "unset", "x", "lanes"),
    ],
    ids=" ".join,
)
def test_steering_command_says_who_did_it(monkeypatch, outrider, store, command, options, name):
    """O3: the user at a host, or --by."""
    monkeypatch.setattr("outrider.cli.open_crawl.person", lambda: "user@host")
    outrider("add", "x", A, B)
    outrider("config", "set", "x", "retry.max_retries=0", "lanes.burst=4", "--by", "before")
    asyncio.run(_fail_one(store))
    if command[0] == "resume":
        outrider("pause", "x", "--by", "before")

    shown = outrider(*command, *options)

    assert shown.code == 0, shown.err
    assert asyncio.run(store.events_since("default"))[-1].by == name


async def _fail_one(store):
    async with Frontier.attach(store) as frontier:
        for lease in await frontier.claim(1):
            await frontier.finish(lease, Failed("HTTP 500"))


@pytest.mark.usefixtures("store")
def test_invalid_name_of_who_does_it_is_refused(outrider):
    """O3: code 2, and nothing is changed."""
    outrider("add", "x", A)
    shown = outrider("pause", "x", "--by", "a\nb")

    assert shown.code == 2
    assert "printable" in shown.err
    assert outrider("stats", "x", "--json").json["status"] == "running"


@pytest.mark.usefixtures("filled")
class TestForget:
    def test_forgotten_urls_are_admitted_again(self, outrider):
        """C10: one URL, or what matches."""
        url = outrider("tasks", "x", "--json").lines[0]["url"]

        answer = outrider("forget", "x", url)

        assert (answer.code, answer.out) == (0, "forgotten: 1 task\n")
        assert outrider("forget", "x", "--state", "pending", "--dry-run").out == (
            "would be forgotten: 2 tasks\n"
        )
        assert outrider("add", "x", url, "--json").json["added"] == 1

    @pytest.mark.parametrize("words", [[], ["--dry-run"], ["--all", "--key", "a.example"]])
    def test_a_choice_is_required(self, outrider, words):
        """No filter, or one too many."""
        answer = outrider("forget", "x", *words)

        assert answer.code == 2
        assert "--all" in answer.err

    def test_json_has_the_count(self, outrider):
        """What was forgotten, or would be."""
        dry = outrider("forget", "x", "--all", "--dry-run", "--json")

        assert dry.json == {"forgotten": 3, "dry_run": True}
        assert outrider("forget", "x", "--all", "--json").json["forgotten"] == 3
        assert outrider("forget", "x", "--all").code == 1

    def test_a_person_is_asked_with_the_count(self, outrider, person):
        """As `drop` does."""
        asked = person(True)

        assert outrider("forget", "x", "--all").code == 0
        assert asked == ["Forget 3 tasks?"]
