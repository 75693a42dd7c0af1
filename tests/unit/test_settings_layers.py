"""Layers of settings: what wins, where it is from, and what is refused with whose name."""

import pytest

from outrider.core.policy.weights import BONUSES, TYPE_WEIGHTS
from outrider.errors import SettingsError
from outrider.settings import (
    PROFILES,
    BaseSettings,
    Layer,
    Layers,
    Settings,
    environment_layer,
    file_layer,
    join_stored,
    layers_of,
    list_settings,
    parse_assignments,
    person,
    settings_of,
    to_text,
    toml_layer,
)
from outrider.settings.foreign_code import code_paths
from outrider.settings.paths import leaves_of, overlay, path_of, tree_of
from outrider.settings.profiles import ABOUT
from outrider.settings.runtime import (
    Update,
    apply_updates,
    own_process_reason,
    update_of,
    update_text,
)

DELAY = ("politeness", "min_delay")


def said(value, *, profile=None):
    """A tree that says one delay, and perhaps a profile."""
    tree = {"politeness": {"min_delay": value}}
    return tree if profile is None else {**tree, "profile": profile}


def update(path, value, number=1):
    """Something said at run time."""
    return Update(path, value, "me", 0.0, number)


class TestWhoWins:
    """N1: defaults < profile < file < environment < command line < given."""

    ORDER = ("usual", "file", "environment", "command", "given")

    @pytest.mark.parametrize("count", range(1, 6))
    def test_the_later_layer_wins(self, count):
        """Each of them over all before it."""
        layers = Layers(
            **{name: Layer(name, said(n)) for n, name in enumerate(self.ORDER[:count], 2)}
        )
        ground = layers.base_settings()

        assert ground.settings.politeness.min_delay == count + 1
        assert ground.origins[DELAY] == self.ORDER[count - 1]

    def test_profile_overrides_usual_settings_and_yields_to_given_ones(self):
        """A profile may change what is usual for a kind of crawl; a person changes both."""
        layers = Layers(
            usual=Layer("usual", {"queue": {"max_depth": 100}, "lease": {"max_crashes": 9}}),
            command=Layer("command line", {"profile": "news", "queue": {"max_pending": 5}}),
        )
        ground = layers.base_settings()

        assert ground.settings.queue.max_depth == 10
        assert ground.settings.queue.max_pending == 5
        assert ground.settings.lease.max_crashes == 9
        assert ground.profile == "news"
        assert ground.origins["queue", "max_depth"] == "profile news"

    def test_the_strongest_layer_names_the_profile(self):
        """One profile holds, whatever others were named below."""
        layers = Layers(
            file=Layer("file", {"profile": "archive"}), command=Layer("c", {"profile": "fast"})
        )

        assert layers.base_settings().settings == settings_of(PROFILES["fast"])

    def test_setting_without_origin_is_the_default(self):
        """And has no other origin."""
        ground = Layers().base_settings()

        assert (ground.settings, ground.origins, ground.profile) == (Settings(), {}, "polite")

    def test_one_layer_may_need_another(self):
        """Only all of them together must be whole."""
        layers = Layers(
            file=Layer("file", {"politeness": {"delay_to": 9}}),
            command=Layer("command line", {"politeness": {"delay": 3}}),
        )

        assert layers.base_settings().settings.politeness.delay_to == 9.0
        with pytest.raises(SettingsError, match=r"politeness\.delay_to"):
            Layers(file=layers.file).base_settings()

    def test_a_tree_made_by_hand_says_what_it_changes(self):
        """So that a file that is laid below it still counts."""
        given = Settings(lease=settings_of({"lease": {"seconds": 5}}).lease)
        layers = layers_of(given)
        with_file = Layers(file=Layer("file", said(7)), given=layers.given)

        assert layers.base_settings().origins == {("lease", "seconds"): "given"}
        assert with_file.base_settings().settings.politeness.min_delay == 7

    def test_overrides_by_key_meet_in_lower_case(self):
        """However they are written."""
        layers = Layers(
            file=Layer("file", {"keys": {"A.example": {"politeness": {"delay": 1}}}}),
            command=Layer("command line", {"keys": {"a.example": {"delay": 2}}}),
        )
        ground = layers.base_settings()

        assert ground.settings.keys == {"a.example": {"delay": 2.0}}
        assert ground.origins == {("keys", "a.example", "delay"): "command line"}


class TestTheEnvironment:
    """OUTRIDER_<SECTION>__<NAME>."""

    def test_values_are_read_as_toml_else_as_text(self):
        """No word needs quotes."""
        layer = environment_layer(
            {
                "OUTRIDER_POLITENESS__MIN_DELAY": "2.5",
                "OUTRIDER_QUEUE__KEY": "domain",
                "OUTRIDER_LANES__ACQUISITION": '["a", "b"]',
                "OUTRIDER_RETRY__BLOCKED__BASE": "3",
                "OUTRIDER__PROFILE": "archive",
                "OUTRIDER__KEYS": '{"a.example" = {delay = 2}}',
            }
        )
        ground = Layers(environment=layer).base_settings()

        assert ground.settings.politeness.min_delay == 2.5
        assert ground.settings.queue.key == "domain"
        assert ground.settings.lanes.acquisition == ("a", "b")
        assert ground.settings.retry.blocked.base == 3.0
        assert ground.settings.keys == {"a.example": {"delay": 2.0}}
        assert ground.profile == "archive"
        assert ground.origins[DELAY] == "environment OUTRIDER_POLITENESS__MIN_DELAY"
        assert ground.origins["keys", "a.example", "delay"] == "environment OUTRIDER__KEYS"

    def test_other_variables_are_none_of_ours(self):
        """Two underscores make a setting; tests and servers have variables with one."""
        others = {"OUTRIDER_SEED": "1", "OUTRIDER_TEST_REDIS": "x", "HOME": "/", "A__B": "1"}

        assert environment_layer(others).tree == {}

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("OUTRIDER_POLITENES__DELAY", "1", "did you mean politeness?"),
            ("OUTRIDER_POLITENESS__DLAY", "1", r"did you mean politeness\.delay?"),
            ("OUTRIDER_POLITENESS__DELAY", "soon", "give a number"),
            ("OUTRIDER__PROFILE", "polit", "did you mean polite?"),
            ("OUTRIDER__PROFILE", "1", "give one of: polite"),
        ],
    )
    def test_error_names_the_variable(self, name, value, message):
        """And the fix."""
        layers = Layers(environment=environment_layer({name: value}))

        with pytest.raises(SettingsError, match=f"^environment {name}: .*{message[:-1]}"):
            layers.base_settings()

    def test_the_real_one_is_asked(self, monkeypatch):
        """When nobody gives another."""
        monkeypatch.setenv("OUTRIDER_LEASE__SECONDS", "7")

        assert environment_layer().tree["lease"] == {"seconds": 7}

    def test_a_person_has_a_name(self, monkeypatch):
        """For the history; a container may know none for its user's number."""
        named = person()
        monkeypatch.setattr("getpass.getuser", lambda: {}["nobody"])

        assert all(name.partition("@")[0] for name in (named, person()))
        assert person().partition("@")[0].isdigit()
        assert named.partition("@")[2] == person().partition("@")[2]


class TestFiles:
    """TOML text."""

    def test_a_file_tells_where_it_is_from(self, tmp_path):
        """By its path."""
        file = tmp_path / "crawl.toml"
        file.write_text('profile = "fast"\n[politeness]\nmin_delay = 4\n')
        ground = Layers(file=file_layer(file)).base_settings()

        assert ground.origins[DELAY] == f"file {file}"
        assert (ground.settings.politeness.min_delay, ground.settings.executor.slots) == (4, 256)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[politeness]\nmin_dely = 1", "x.toml, line 2: politeness.min_dely"),
            ('\nprofile = "fst"', "x.toml, line 2: profile = 'fst': no such profile; did you mean"),
            ("[", "x.toml: not TOML"),
        ],
    )
    def test_error_names_file_and_line(self, text, message):
        """The message alone is enough to mend it."""
        with pytest.raises(SettingsError) as caught:
            toml_layer(text, source="x.toml")

        assert str(caught.value).startswith(message)

    def test_missing_or_undecodable_file_is_an_error(self, tmp_path):
        """By its name."""
        (tmp_path / "odd").write_bytes(b"\xff")
        with pytest.raises(SettingsError, match=r"none\.toml: No such file"):
            file_layer(tmp_path / "none.toml")
        with pytest.raises(SettingsError, match="not UTF-8"):
            file_layer(tmp_path / "odd")


class TestProfiles:
    """N4."""

    @pytest.mark.parametrize("name", PROFILES)
    def test_every_profile_is_valid_and_told(self, name):
        """Each can be named in a mapping, and says what it is for."""
        assert settings_of({"profile": name}) == settings_of(PROFILES[name])
        assert ABOUT[name]

    def test_polite_is_the_default(self):
        """It sets nothing."""
        assert settings_of({"profile": "polite"}) == Settings()

    def test_archive_is_as_heritrix(self):
        """D1, E2 and its patience."""
        tree = settings_of({"profile": "archive"})

        assert (tree.budget.hold_queues, tree.budget.balance) == (True, 3000)
        assert (tree.politeness.factor, tree.politeness.min_delay) == (5.0, 3.0)
        assert (tree.politeness.max_delay, tree.politeness.respect_crawl_delay) == (30.0, 300.0)
        assert (tree.retry.max_retries, tree.retry.base, tree.retry.cap) == (30, 900.0, 900.0)

    def test_news_gives_links_their_types(self):
        """F1: without types, weights and lanes would have nothing to tell apart."""
        tree = settings_of({"profile": "news"})

        assert tree.types.builtin == "news"
        assert (tree.lanes.burst, tree.queue.max_pending) == (5, 10_000)

    def test_paced_is_slow_and_random(self):
        """Seed 003: one queue, 5 to 15 s from starts, by type, shuffled, cooldowns of 15 min."""
        tree = settings_of({"profile": "paced"})

        assert (tree.politeness.delay, tree.politeness.delay_to) == (5.0, 15.0)
        assert (tree.politeness.count_from, tree.politeness.max_in_flight) == ("start", 360)
        assert (tree.queue.key, tree.queue.tie) == ("buckets:1", "shuffle")
        assert tree.scoring.scorer == "type"
        assert (tree.retry.base, tree.retry.spread, tree.retry.max_retries) == (900.0, 300.0, 3)
        assert tree.retry.every_failure

    def test_given_setting_wins_over_its_profile(self):
        """A profile is where settings begin."""
        tree = settings_of({"profile": "fast", "executor": {"slots": 3}})

        assert (tree.executor.slots, tree.politeness.delay) == (3, 0.0)

    def test_a_table_of_the_users_own_has_no_entry_of_a_profile(self):
        """There would be no way to take it back."""
        for tree in PROFILES.values():
            assert {path for path, _ in leaves_of(tree)} <= {
                path for path, _ in leaves_of(Settings())
            }


class TestPaths:
    """Text and trees."""

    @pytest.mark.parametrize(
        ("text", "path"),
        [
            ("politeness.delay", ("politeness", "delay")),
            ('keys."a.example".delay', ("keys", "a.example", "delay")),
            ("keys.'A.example'.politeness.delay", ("keys", "a.example", "delay")),
            ("profile", ("profile",)),
        ],
    )
    def test_a_path_is_written_as_in_toml(self, text, path):
        """Dots inside a name are quoted."""
        assert path_of(text) == path

    @pytest.mark.parametrize(
        "text", ["", "a b", "a = 1\nb", "[a]\nb", "a.b.c.d.e.f.g.h.i", "x" * 5000 + ".", "a.=1"]
    )
    def test_nonsense_is_no_path(self, text):
        """Nothing but one name, of a few parts."""
        with pytest.raises(SettingsError, match="no path of a setting"):
            path_of(text)

    def test_assignments_become_a_tree(self):
        """Several of one section too."""
        pairs = ["politeness.delay=2", "politeness.count_from = start", "queue.key=a:b"]

        assert parse_assignments(pairs) == {
            "politeness": {"delay": 2, "count_from": "start"},
            "queue": {"key": "a:b"},
        }

    @pytest.mark.parametrize("pair", ["politeness.delay", "=3", "a b=3"])
    def test_what_assigns_nothing_is_refused(self, pair):
        """With an example."""
        with pytest.raises(SettingsError, match=r"politeness\.delay"):
            parse_assignments([pair])

    def test_a_value_cannot_bring_more_than_itself(self):
        """What TOML would read as a second line is text."""
        assert parse_assignments(["fetch.contact=1\nx = 2"]) == {"fetch": {"contact": "1\nx = 2"}}

    def test_leaves_make_the_tree_again(self):
        """And a later leaf replaces a table that it excludes."""
        tree = {"a": {"b": 1, "c": [2]}, "d": {"e": {"f": 3}}}

        assert tree_of(leaves_of(tree)) == tree
        assert tree_of([(("a", "b"), 1), (("a",), None), (("a", "c"), 2)]) == {"a": {"c": 2}}
        assert overlay(tree, {"a": {"b": None}})["a"] == {"b": None, "c": [2]}


class TestKept:
    """Origins travel with the crawl's settings."""

    def test_joining_worker_gets_the_origins_of_settings(self):
        """The profile too."""
        layers = Layers(
            file=Layer("file a.toml", {"profile": "archive", **said(9)}),
            command=Layer("command line", {"output": {"path": "/here"}}),
        )
        found = join_stored(to_text(layers.base_settings()), {})

        assert found.origins[DELAY] == "file a.toml"
        assert found.origins["budget", "hold_queues"] == "profile archive"
        assert ("output", "path") not in found.origins
        assert (found.profile, found.is_whole) == ("archive", True)

    def test_ones_own_sections_have_ones_own_origins(self):
        """And all else is the crawl's."""
        text = to_text(BaseSettings(settings_of({"executor": {"slots": 5}, **said(3)})))
        mine = {("executor", "slots"): "command line", DELAY: "command line"}
        found = join_stored(text, {"executor": {"slots": 9}, **said(1)}, mine)

        assert found.origins == {("executor", "slots"): "command line", DELAY: "the crawl"}

    @pytest.mark.parametrize("garbage", ["3", '{"x": 5}', '{"x": ["["]}', '{"x": [{}]}'])
    def test_origins_that_tell_nothing_do_no_harm(self, garbage):
        """A store is written by others."""
        found = join_stored(f'{{"lease": {{"seconds": 5}}, "origins": {garbage}}}', {})

        assert found.settings.lease.seconds == 5
        assert found.origins == {("lease", "seconds"): "the crawl"}

    def test_code_that_lacks_is_named(self):
        """So that whoever changes something else can leave it alone."""
        text = to_text(BaseSettings(settings_of({"budget": {"cost": "my:cost"}})))

        assert join_stored(text, {}).code == {("budget", "cost"): "my:cost"}


class TestRuntime:
    """What is said while a crawl runs."""

    def test_it_wins_over_everything(self):
        """In the order it was said."""
        ground = layers_of(said(3)).base_settings()
        found = apply_updates(ground, [update(DELAY, 8, 2), update(DELAY, 5, 1)])

        assert found.settings.politeness.min_delay == 8.0
        assert found.origins[DELAY] == "runtime (me, 1970-01-01 00:00:00Z)"

    def test_what_does_not_fit_is_left_out_alone(self):
        """The rest holds, and it is told which did not, and why."""
        ground = Layers().base_settings()
        updates = [
            update(("politeness", "delay_to"), 3, 1),
            update(("lease", "seconds"), 7, 2),
            update(("no", "such"), 7, 3),
            update(("lease",), 4, 4),
            update(("queue", "tie"), "none", 5),
        ]
        found = apply_updates(ground, updates)

        assert found.settings == settings_of({"lease": {"seconds": 7}})
        assert {one.number for one, _ in found.ignored} == {1, 3, 4, 5}

    def test_runtime_setting_with_a_foreign_reference_is_left_out_alone(self):
        """The parsed result is judged, even if an update was made without reading its note."""
        ground = BaseSettings(settings_of({"queue": {"key": "own.module:key"}}))
        updates = [
            update(("keys", "a.example", "cost"), "os:getcwd", 1),
            update(("keys", "a.example", "delay"), 7.0, 2),
            update(("queue", "key"), "os:getcwd", 3),
            update(("executor", "pipeline"), ["os:getcwd"], 4),
            update(("lease", "seconds"), 7, 5),
        ]
        found = apply_updates(ground, updates)

        assert {one.number for one, _ in found.ignored} == {1, 3, 4}
        assert found.settings == settings_of(
            {
                "queue": {"key": "own.module:key"},
                "keys": {"a.example": {"delay": 7.0}},
                "lease": {"seconds": 7},
            }
        )

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("politeness.delay", "{"),
            ("politeness.delay", "[]"),
            ("politeness.delay", '{"by": "me"}'),
            ("politeness.delay", '{"value": {"a": 1}}'),
            ("politeness.delay", '{"value": ' + "[" * 30_000 + "}"),
            ("[x", '{"value": 1}'),
            ("", '{"value": 1}'),
            ("scoring.scorer", '{"value": "os:getcwd"}'),
            ("executor.pipeline", '{"value": ["os:getcwd"]}'),
            ('keys."a.example".cost', '{"value": "os:getcwd"}'),
            ('keys."a.example".budget.cost', '{"value": "os:getcwd"}'),
            ('keys."A.example".budget.politeness.cost', '{"value": "os:getcwd"}'),
            ("events.jsonl", '{"value": "/tmp/x"}'),
            ("output.path", '{"value": "/tmp/x"}'),
            ("fetch.cache", '{"value": "/tmp/x"}'),
            ("profile", '{"value": "fast"}'),
        ],
        ids=range(16),
    )
    def test_a_note_that_may_not_be_believed_is_refused(self, name, text):
        """It is anybody's who can write to the store."""
        with pytest.raises(SettingsError):
            update_of(name, text, 0.0, 1)

    def test_runtime_settings_are_read_back(self):
        """Value, author and number."""
        text = update_text([1, "x"], None, "me")

        assert update_of("lanes.acquisition", text, 5.0, 7) == Update(
            ("lanes", "acquisition"), [1, "x"], "me", 5.0, 7
        )

    @pytest.mark.parametrize("path", [*sorted(code_paths()), ("keys", "a.example", "cost")])
    def test_no_code_travels(self, path):
        """Wherever it may stand."""
        value = ["a:b"] if path[-1] == "pipeline" else "a:b"

        assert "code" in own_process_reason(path, value)


class TestListing:
    """N5."""

    def test_every_setting_is_there_with_all_there_is_to_know(self):
        """Fixed ones always, those of the user's own tables as far as they are given."""
        ground = layers_of({"scoring": {"weights": {"nav": 3}}, "keys": {"a": {"delay": 1}}})
        rows = {row.path: row for row in _rows(ground.base_settings())}

        fixed = {path for path, _ in leaves_of(Settings())}
        built_in = len(TYPE_WEIGHTS) + len(BONUSES)  # with the weight that is given
        assert len(rows) == len(fixed) + built_in + 2  # an override by key, and the profile
        assert rows["scoring.weights.nav"].value == 3.0
        assert rows["keys.a.delay"].origin == "given"
        assert rows["queue.key"].allowed == "a name or a function"
        assert all(row.about and row.allowed for row in rows.values())

    def test_it_says_when_a_change_is_felt(self):
        """What is read once acts on whoever starts."""
        rows = {row.path: row.acts for row in _rows(Layers().base_settings())}

        assert rows["politeness.delay"] == rows["executor.slots"] == "at once"
        assert rows["fetch.max_body"] == rows["executor.watchdog"] == "when a worker starts"

    def test_functions_are_shown_by_name(self):
        """They cannot be written otherwise."""
        rows = {
            row.path: row for row in _rows(layers_of({"budget": {"cost": len}}).base_settings())
        }

        assert rows["budget.cost"].value == "builtins:len"


def _rows(ground):
    return list_settings(ground.settings, ground.origins, ground.profile)
