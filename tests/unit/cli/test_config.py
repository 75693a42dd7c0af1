"""`outrider config`: every setting shown, changed, taken back, and remembered."""

import pytest

from outrider import Frontier
from outrider.settings import PROFILES

A = "https://a.example/"


@pytest.fixture
def crawl(crawling):
    """A crawl with settings of its own."""

    async def begin(frontier):
        await frontier.add([A])

    crawling(begin, settings={"politeness": {"delay": 2.0}})


def rows(answer):
    """The settings that were shown, by path."""
    return {row["path"]: row for row in answer.lines}


@pytest.mark.usefixtures("crawl")
class TestShowing:
    """`show` and `get`."""

    def test_every_setting_is_shown_with_its_origin(self, outrider):
        """N5: value, default, origin, what is allowed and what it means."""
        shown = rows(outrider("config", "show", "x", "--json"))

        assert shown["politeness.delay"]["value"] == 2.0
        assert shown["politeness.delay"]["origin"] == "given"
        assert shown["politeness.delay"]["default"] == -1.0
        assert shown["lease.seconds"]["origin"] == "default"
        assert all(row["about"] and row["allowed"] for row in shown.values())

    def test_changed_shows_only_given_settings(self, outrider):
        """Or only a section."""
        assert list(rows(outrider("config", "show", "x", "--changed", "--json"))) == [
            "politeness.delay"
        ]
        section = rows(outrider("config", "show", "x", "--section", "lanes", "--json"))
        assert list(section) == ["lanes.burst", "lanes.acquisition"]

    def test_effective_weights_and_bonuses_are_shown_with_their_origin(self, outrider):
        """Settings that were not given apply too."""
        outrider("config", "set", "x", "scoring.weights.nav=3", "scoring.bonuses.tip=4")
        shown = rows(outrider("config", "show", "x", "--section", "scoring", "--json"))
        one = rows(outrider("config", "get", "x", "scoring.weights.article", "--json"))

        article, nav = (shown[f"scoring.weights.{kind}"] for kind in ("article", "nav"))
        assert one == {"scoring.weights.article": article}
        assert (article["value"], article["default"], article["origin"]) == (0.0, 0.0, "default")
        assert (nav["value"], nav["default"]) == (3.0, 10.0)
        assert nav["origin"].startswith("runtime (")
        assert shown["scoring.bonuses.sitemap"]["value"] == 10.0
        assert (shown["scoring.bonuses.tip"]["value"], shown["scoring.bonuses.tip"]["default"]) == (
            4.0,
            None,
        )
        assert list(rows(outrider("config", "show", "x", "--changed", "--json"))) == [
            "politeness.delay",
            "scoring.weights.nav",
            "scoring.bonuses.tip",
        ]

    @pytest.mark.parametrize(
        ("path", "said"),
        [
            ("scoring.weights.page", "scoring.weights.default applies to it"),
            ("scoring.bonuses.feed", "scoring.bonuses.link applies to it"),
            ("retry.types.nav", "retry applies to it"),
            ("scoring.weights.artcle", "did you mean scoring.weights.article?"),
        ],
    )
    def test_missing_entry_is_refused_with_the_setting_that_applies(self, outrider, path, said):
        """A type without a weight has one all the same."""
        assert said in outrider("config", "get", "x", path).err

    def test_a_person_reads_a_table(self, outrider):
        """With what each means."""
        shown = outrider("config", "show", "x", "--changed").out

        assert "politeness.delay" in shown
        assert "fixed delay" in shown

    def test_one_is_shown_with_all_there_is_to_know(self, outrider):
        """And a section as a table."""
        one = outrider("config", "get", "x", "politeness.delay").out

        assert [line.split()[0] for line in one.splitlines()] == [
            *("setting", "value", "from", "default", "allowed", "meaning", "acts")
        ]
        assert "lanes.acquisition" in outrider("config", "get", "x", "lanes").out
        assert rows(outrider("config", "get", "x", "lanes.burst", "--json"))["lanes.burst"]

    @pytest.mark.parametrize(
        ("path", "meant"), [("politenes", "politeness"), ("lanes.brst", "lanes.burst")]
    )
    def test_a_path_of_nothing_is_refused(self, outrider, path, meant):
        """With the one that was meant."""
        answer = outrider("config", "get", "x", path)

        assert answer.code == 2
        assert f"did you mean {meant}?" in answer.err


@pytest.mark.usefixtures("crawl")
class TestChanging:
    """`set`, `unset` and `history`."""

    def test_one_setting_may_be_typed_without_the_sign(self, outrider):
        """N5: `set STORE PATH VALUE` is what people type."""
        outrider("add", "x", "https://a.example/")

        assert outrider("config", "set", "x", "politeness.min_delay", "4").code == 0
        assert outrider("config", "get", "x", "politeness.min_delay", "--json").json["value"] == 4

    def test_settings_are_changed_for_the_crawl(self, outrider, crawling):
        """Durable, and seen by every process that opens it."""
        answer = outrider("config", "set", "x", "politeness.delay=5", "queue.tie=lifo")

        async def seen(frontier):
            view = await frontier.queue("a.example").view()
            return view.delay, frontier.settings.queue.tie

        assert (answer.code, answer.out) == (0, 'politeness.delay = 5\nqueue.tie = "lifo"\n')
        assert crawling(seen, settings={}) == (5.0, "lifo")

    def test_all_or_nothing(self, outrider):
        """One that is wrong spoils the command, and changes nothing."""
        answer = outrider("config", "set", "x", "politeness.delay=5", "queue.tie=none")

        assert answer.code == 2
        assert "queue.tie = 'none'" in answer.err
        assert rows(outrider("config", "get", "x", "politeness.delay", "--json"))[
            "politeness.delay"
        ]["value"] == (2.0)

    def test_setting_that_acts_later_is_noted(self, outrider):
        """So that no user waits for it."""
        answer = outrider("config", "set", "x", "fetch.max_links=5")

        assert "fetch.max_links takes effect when a worker starts" in answer.err

    @pytest.mark.parametrize(
        ("pair", "said"),
        [
            ("politeness.delay", "config set politeness.delay: write"),
            ("scoring.scorer=os:getcwd", "code is never imported"),
            ("output.path=/elsewhere", "sets this for itself"),
            ("profile=fast", "settings begin with it"),
        ],
    )
    def test_setting_of_one_worker_is_refused(self, outrider, pair, said):
        """With the reason."""
        answer = outrider("config", "set", "x", pair)

        assert answer.code == 2
        assert said in answer.err

    def test_what_was_set_is_taken_back(self, outrider):
        """What the crawl was started with holds again."""
        outrider("config", "set", "x", "politeness.delay=5", "lanes.burst=2")
        answer = outrider("config", "unset", "x", "politeness", "lanes.burst")
        again = outrider("config", "unset", "x", "lanes.burst")

        assert answer.out == "politeness.delay = 2.0 (given)\nlanes.burst = 5 (default)\n"
        assert (again.code, "it was not set at run time" in again.err) == (2, True)

    def test_the_history_tells_who_and_when(self, outrider):
        """N4: for people and for programs; the latest last."""
        outrider("config", "set", "x", "politeness.delay=5", "--by", "ann")
        outrider("config", "set", "x", "politeness.delay=6")
        first, last = outrider("config", "history", "x", "--json").lines
        short = outrider("config", "history", "x", "--limit", "1")

        assert (first["path"], first["old"], first["new"]) == ("politeness.delay", 2.0, 5.0)
        assert first["by"] == "ann"
        assert "@" in last["by"]
        assert "ann" not in short.out
        assert "only the last 1" in short.err


class TestBeginning:
    """Profiles and files."""

    def test_profiles_are_listed(self, outrider):
        """Each with what it sets."""
        every = outrider("config", "profiles").out
        fast = outrider("config", "profiles", "fast", "--json").json

        assert all(f"{name}: " in every for name in PROFILES)
        assert fast == {"fast": {name: dict(tree) for name, tree in PROFILES["fast"].items()}}
        assert outrider("config", "profiles", "quick").code == 2

    def test_a_crawl_is_begun_with_a_profile(self, outrider, store):
        """By the first add; later adds cannot change it."""
        assert store
        first = outrider("add", "x", A, "--profile", "archive")
        again = outrider("add", "x", A, "--profile", "fast")
        shown = rows(outrider("config", "show", "x", "--changed", "--json"))

        assert (first.code, again.code) == (0, 2)
        assert "keeps its settings" in again.err
        assert shown["budget.hold_queues"]["origin"] == "profile archive"
        assert shown["profile"]["value"] == "archive"
        assert outrider("add", "y", A, "--profile", "archve").code == 2

    def test_a_file_is_checked(self, outrider, tmp_path):
        """1 if it is wrong, with line, path and fix."""
        good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
        good.write_text('profile = "fast"\n[lanes]\nburst = 2\n')
        bad.write_text("[lanes]\nbrst = 2\n")
        wrong = outrider("config", "check", str(bad))

        assert outrider("config", "check", str(good)).out == f"{good}: valid, 2 settings\n"
        assert outrider("config", "check", str(good), "--json").json["valid"] is True
        assert wrong.code == 1
        assert f"{bad}, line 2: lanes.brst = 2: no such setting; did you mean" in wrong.err
        assert outrider("config", "check", str(bad), "--json").json["valid"] is False
        assert outrider("config", "check", str(tmp_path / "none.toml")).code == 1


def test_a_crawl_that_is_not_there_is_refused(outrider, store):
    """Nothing is made by looking."""
    assert isinstance(Frontier.attach(store), Frontier)
    assert outrider("config", "show", "x").code == 2
