"""Settings that contradict each other, and names that are typos, are refused with the fix."""

import logging

import msgspec
import pytest

from outrider import Frontier, SettingsError
from outrider.core.policy.weights import DISCOVERY, ORIGINS, TASK_TYPES, TYPE_WEIGHTS
from outrider.settings import (
    PROFILES,
    Layer,
    Layers,
    Settings,
    from_toml,
    join_stored,
    merged,
    override_of,
    settings_of,
    to_text,
)
from outrider.settings.consistency import ORDERS, contradictions, given_paths, near_miss
from outrider.settings.paths import tree_of, value_at
from outrider.settings.runtime import Update, apply_updates
from outrider.store.factory import open_store
from outrider.testing import FakeClock

A = "https://a.example/"
CROSSED = {  # per rule: values that cross, the first of the pair first
    ("politeness.min_delay", "politeness.max_delay"): (9.0, 2.0),
    ("fetch.total_timeout", "lease.seconds"): (60.0, 60.0),
    ("fetch.connect_timeout", "fetch.total_timeout"): (30.0, 20.0),
    ("fetch.read_timeout", "fetch.total_timeout"): (30.0, 20.0),
    ("executor.min_slots", "executor.max_slots"): (9, 3),
    ("executor.poll_min", "executor.poll_max"): (20.0, 5.0),
    ("executor.workbench_per_queue", "executor.workbench_tasks"): (9, 3),
    ("revisit.min_age", "revisit.max_age"): (90.0, 30.0),
    ("revisit.min_age", "revisit.every"): (90.0, 60.0),
    ("revisit.every", "revisit.max_age"): (90.0, 30.0),
    ("retry.base", "retry.cap"): (9.0, 3.0),
    ("retry.blocked.base", "retry.blocked.cap"): (9.0, 3.0),
    ("retry.types.nav.base", "retry.types.nav.cap"): (9.0, 3.0),
    ("keys.a.min_delay", "keys.a.max_delay"): (9.0, 2.0),
}


def crossed(less, more):
    """The tree in which these two settings cross, and no others do."""
    values = zip((less, more), CROSSED[less, more], strict=True)
    tree = tree_of((tuple(path.split(".")), value) for path, value in values)
    if "revisit" in tree:
        tree["revisit"] = {"policy": "value", "max_age": 1e6, "min_age": 1.0} | tree["revisit"]
    return tree


def refusal(tree):
    """Why a tree is refused."""
    with pytest.raises(SettingsError) as caught:
        settings_of(tree)
    return str(caught.value)


@pytest.mark.parametrize(("less", "more"), CROSSED)
class TestEveryPair:
    """The same answer whatever layer each of the two is from."""

    def test_settings_that_cross_are_refused_with_both_paths_and_the_fix(self, less, more):
        """The message alone is enough to mend it."""
        said = refusal(crossed(less, more))

        assert less in said
        assert more in said
        assert "lower" in said
        assert "raise" in said

    def test_two_layers_that_cross_are_refused(self, less, more):
        """With the origin of what was not just said."""
        tree = crossed(less, more)
        low = tree_of([(tuple(less.split(".")), CROSSED[less, more][0])])
        layers = Layers(file=Layer("file a.toml", tree), command=Layer("command line", low))

        with pytest.raises(SettingsError, match="is from file a"):
            layers.base_settings()

    def test_runtime_change_that_crosses_is_refused(self, less, more):
        """`configure` asks for the same."""
        tree = crossed(less, more)
        usual = {"revisit": {"policy": "value"}} if "revisit" in tree else {}

        with pytest.raises(SettingsError):
            merged(settings_of(usual), tree)

    def test_runtime_notes_that_cross_leave_the_last_one_out(self, less, more):
        """Notes of older releases are never fatal, and what is left is whole."""
        tree = crossed(less, more)
        notes = [
            Update(path, value, "", 0.0, number)
            for number, (path, value) in enumerate(sorted(_leaves(tree)))
        ]
        laid = apply_updates(Layers().base_settings(), notes)

        assert laid.ignored
        assert not list(contradictions(laid.settings, laid.origins.keys()))

    def test_stored_crawl_with_them_opens_and_tells(self, less, more):
        """Its other settings can still be changed."""
        stored = msgspec.json.encode(crossed(less, more)).decode()
        ground = join_stored(stored, {})

        assert ground.is_whole
        assert len(ground.doubts) == 1
        assert more in ground.doubts[0]
        assert merged(ground.settings, {"lanes": {"burst": 2}}).lanes.burst == 2


def _leaves(tree, path=()):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def test_every_declared_order_is_tried():
    """A rule without values above would never be tested."""
    tried = {tuple(tuple(name.split(".")) for name in pair) for pair in CROSSED}

    assert {(order.less, order.more) for order in ORDERS} <= tried


def test_defaults_and_profiles_contradict_nothing():
    """Each profile is valid by itself."""
    for profile in PROFILES:
        settings = settings_of({"profile": profile})

        assert not list(contradictions(settings, given_paths(settings, Settings())))


@pytest.mark.parametrize(
    "tree",
    [
        {"lease": {"seconds": 5.0}},
        {"fetch": {"total_timeout": 5.0}},
        {"executor": {"max_slots": 3}},
        {"executor": {"min_slots": 100}},
        {"executor": {"poll_min": 900.0}},
        {"executor": {"workbench_tasks": 3}},
        {"revisit": {"max_age": 60.0}},
        {"retry": {"cap": 0.5}},
        {"politeness": {"min_delay": 60.0}},
        {"politeness": {"delay": 2.0, "visits_per_second": 1.0}},
        {"profile": "paced", "keys": {"bucket-0000": {"delay": 60.0}}},
    ],
)
def test_default_yields_to_given_setting(tree):
    """A user who sets one bound need not know the other."""
    settings_of(tree)


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"fetch": {"total_timeout": 60.0}}, "fetch.total_timeout = 60.0: it must be less than"),
        ({"fetch": {"total_timeout": 45.0}, "lease": {"seconds": 45.0}}, "fetch.total_timeout"),
        ({"fetch": {"connect_timeout": 46.0}}, "fetch.connect_timeout = 46.0"),
        ({"retry": {"base": 301.0}}, "retry.base = 301.0"),
        ({"politeness": {"max_delay": 0.5}}, "politeness.max_delay = 0.5: it must be at least"),
        ({"executor": {"poll_max": 5.0}}, "executor.poll_max = 5.0"),
        ({"keys": {".org": {"max_delay": 0.5}}}, 'keys.".org".max_delay = 0.5'),
        (
            {"keys": {".org": {"min_delay": 9}, "a.org": {"max_delay": 8}}},
            'keys."a.org".max_delay = 8.0: it must be at least keys.".org".min_delay = 9.0',
        ),
        ({"keys": {"a.org": {"delay_to": 5}}}, 'keys."a.org".delay_to = 5.0'),
        ({"focus": {"on": True}}, "focus.on = True: no page can match"),
        ({"fetch": {"cache": "x", "cache_bytes": 0}}, "fetch.cache_bytes = 0"),
        (
            {"crawl": {"stay_open": True, "pause_at_finish": True}},
            "crawl.pause_at_finish = True: crawl.stay_open = true never finishes; set one of them",
        ),
    ],
)
def test_value_without_effect_is_refused_beside_a_default(tree, path):
    """It would be called valid and do nothing."""
    assert refusal(tree).startswith(path)


def test_error_in_a_file_names_its_line():
    """As for every other fault of a file."""
    with pytest.raises(SettingsError, match=r"a\.toml, line 2: executor\.min_slots = 9"):
        from_toml("[executor]\nmin_slots = 9\nmax_slots = 3\n", source="a.toml")


def test_queue_set_is_validated_with_the_settings_it_refines():
    """An override by key has the same rules."""
    settings = settings_of({"politeness": {"min_delay": 5.0}})

    assert override_of({"max_delay": 9.0}, "a.example", settings) == {"max_delay": 9.0}
    with pytest.raises(SettingsError, match=r"^queue\.set\(max_delay=2.0\): .*min_delay = 5.0"):
        override_of({"max_delay": 2.0}, "a.example", settings)


# ---- stored crawls


@pytest.fixture
async def clashing():
    """A store with a crawl whose settings contradict each other, as an older release took them."""
    clock = FakeClock()
    store = await open_store("memory://", clock)
    async with Frontier.open(store, clock=clock) as owner:
        await owner.add([A])
        text = (
            '{"executor": {"min_slots": 9, "max_slots": 3}, "scoring": {"bonuses": {"sitmap": 1}}}'
        )
        await store.configure("default", owner.rules, text)
    yield store, clock
    await store.close()


async def test_crawl_stored_with_contradictions_opens_with_a_warning(clashing, caplog):
    """No lock-out: it works, says what to change once, and takes the change."""
    store, clock = clashing
    with caplog.at_level(logging.WARNING):
        async with Frontier.attach(store, clock=clock) as frontier:
            await frontier.learn()
            await frontier.configure({"lanes": {"burst": 2}})
            claimed = await frontier.claim(1)
            await frontier.configure({"executor": {"max_slots": 20, "slots": 10}})
    told = [record.getMessage() for record in caplog.records if "contradict" in record.message]

    assert [lease.url for lease in claimed] == [A]
    assert len(told) == 2
    assert "lower executor.min_slots or raise executor.max_slots" in told[0]
    assert "did you mean scoring.bonuses.sitemap?" in told[1]


async def test_worker_whose_own_settings_clash_with_the_crawl_is_refused(clashing):
    """What it says of itself it can say otherwise."""
    store, clock = clashing
    own = {"fetch": {"total_timeout": 100.0}, "lease": {"seconds": 200.0}}

    with pytest.raises(SettingsError, match=r"fetch\.total_timeout = 100\.0.*lease\.seconds = 60"):
        async with Frontier.attach(store, clock=clock, settings=own):
            pass


# ---- names


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"scoring": {"bonuses": {"sitmap": 5}}},
            "scoring.bonuses.sitmap = 5.0: no such name; did you mean scoring.bonuses.sitemap?",
        ),
        ({"scoring": {"bonuses": {"adaptive-sed": 5}}}, "did you mean scoring.bonuses.adaptive-"),
        ({"scoring": {"bonuses": {"validated-hbu": 5}}}, "did you mean scoring.bonuses.valid"),
        ({"scoring": {"bonuses": {"redirct": 5}}}, "did you mean scoring.bonuses.redirect?"),
        ({"scoring": {"weights": {"artcle": 5}}}, "did you mean scoring.weights.article?"),
        ({"scoring": {"weights": {"defualt": 5}}}, "did you mean scoring.weights.default?"),
        ({"scoring": {"weights": {"nva": 5}}}, "did you mean scoring.weights.nav?"),
        ({"scoring": {"weights": {"Article": 5}}}, "did you mean scoring.weights.article?"),
        ({"retry": {"types": {"histroy": {"base": 1}}}}, "did you mean retry.types.history?"),
        (
            {"lanes": {"acquisition": ["refresh", "artcle"]}},
            "lanes.acquisition.1 = 'artcle': no such name; did you mean 'article'?",
        ),
    ],
)
def test_typo_of_a_known_name_is_refused(tree, said):
    """It would be called valid and do nothing."""
    assert said in refusal(tree)


@pytest.mark.parametrize(
    "tree",
    [
        {"scoring": {"bonuses": {"newsletter": 5, "partner": 3}}},
        {"scoring": {"weights": {"product": 1, "search": 2, "pagination": 1, "a b": 3}}},
        {"scoring": {"weights": {"articles": 1, "article": 2}}},
        {"lanes": {"acquisition": ["product", "article", "articles"]}},
        {"retry": {"types": {"product": {"base": 5}}}},
    ],
)
def test_name_of_the_users_own_is_taken(tree):
    """If it is like no known name, or given beside the one it is like."""
    settings_of(tree)


def test_known_names_are_no_typos_of_each_other():
    """Else one of them could not be set."""
    for known in (ORIGINS, TASK_TYPES, TYPE_WEIGHTS, DISCOVERY):
        assert not [name for name in known if near_miss(name, known)]


def test_settings_survive_being_stored():
    """What is whole raises no doubts when it is read back."""
    ground = Layers(command=Layer("command line", {"executor": {"min_slots": 2}})).base_settings()
    again = join_stored(to_text(ground), {})

    assert (again.doubts, again.clashes) == ((), ())
    assert value_at(again.settings, ("executor", "min_slots")) == 2
