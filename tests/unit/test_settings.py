import json
import math
import re
import sys
import types
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import inspect

from outrider.core.policy.politeness import Politeness
from outrider.core.policy.retry import COOLDOWN, Backoff, Retry
from outrider.core.policy.rules import Budget, CrawlRules, Limits, QueueRules
from outrider.core.policy.scope import Scope
from outrider.core.policy.traps import Traps
from outrider.core.policy.weights import Scoring
from outrider.core.url import UrlRules
from outrider.errors import InvalidInput, SettingsError
from outrider.settings import (
    QueueSettings,
    Settings,
    documented_settings,
    from_toml,
    merged,
    override_of,
    render_reference,
    resolve,
    settings_of,
    to_mapping,
)
from outrider.settings import crawl_rules as rules_of
from outrider.settings.code_references import _QUESTIONS
from outrider.settings.consistency import ORDERS
from outrider.settings.errors import dotted_path
from outrider.settings.field_types import struct_kind
from outrider.settings.schema import QueueFields

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"

# The example of the architecture: tests outside this repository rely on these names and defaults.
STABLE = """
[store]
durability = "process"
[politeness]
factor = 5.0
min_delay = 1.0
max_delay = 30.0
respect_crawl_delay = 300.0
count_from = "end"
max_in_flight = 1
delay = -1.0
[budget]
hold_queues = false
balance = 3000
total_budget = -1
cost = "unit"
error_penalty = 0
max_done = 0
max_bytes = 0
[queue]
key = "host"
order = "priority"
tie = "fifo"
breadth_discount = 0.0
max_depth = 10
max_pending = 0
max_pending_per_queue = 0
[lanes]
burst = 5
acquisition = ["article", "refresh", "history"]
[retry]
max_retries = 3
base = 1.0
cap = 300.0
jitter = 0.5
[lease]
seconds = 60.0
max_crashes = 3
[crawl]
pause_at_finish = false
[scope]
[scoring]
[limits]
[events]
"""


def by_path(url):
    """A keying of a user's own."""
    return url.text


class EveryScore:
    """A scorer of a user's own."""

    features = ()

    def score(self, batch):
        """Nothing is sooner than anything."""
        return []


def refusal(value):
    """The message of the refusal of a tree."""
    with pytest.raises(SettingsError) as caught:
        settings_of(value)
    return str(caught.value)


class TestTheTree:
    def test_the_stable_names_have_their_defaults(self):
        """The published example, read whole, is what nobody needs to write."""
        assert from_toml(STABLE) == Settings()

    def test_nothing_given_is_the_default(self):
        """No settings, and an empty mapping, are the defaults."""
        assert settings_of(None) == settings_of({}) == settings_of(Settings()) == Settings()

    def test_sections_are_what_the_policies_take(self):
        """No policy needs its settings converted."""
        tree = settings_of({})

        assert isinstance(tree.scope, Scope)
        assert isinstance(tree.traps, Traps)
        assert isinstance(tree.url, UrlRules)
        for section, known in (
            (tree.scope, Scope()),
            (tree.traps, Traps()),
            (tree.url, UrlRules()),
        ):
            for name in known.__struct_fields__:
                assert getattr(section, name) == getattr(known, name)

    def test_every_number_has_two_bounds(self):
        """Without bounds NaN and the infinities would pass."""
        for _, kind in leaves():
            if isinstance(kind, inspect.IntType | inspect.FloatType):
                assert kind.le is not None
                assert (kind.ge is None) != (kind.gt is None)

    def test_every_field_that_may_hold_anything_is_checked(self):
        """A type that allows every object has a question of its own."""
        open_fields = {
            (struct, field.name)
            for struct in structs()
            for field in struct_kind(struct).fields
            if isinstance(bare(field.type), inspect.UnionType | inspect.AnyType)
        }

        assert open_fields <= set(_QUESTIONS)

    def test_a_tree_cannot_be_changed(self):
        """Everybody may hold the same tree."""
        with pytest.raises(AttributeError):
            Settings().lease = None

    def test_mapping_of_the_caller_is_copied(self):
        """What the caller does later with the mapping changes no settings."""
        override = {"delay": 2.0}
        given = {"keys": {"example.org": override}, "scoring": {"weights": {"nav": 1}}}
        tree = settings_of(given)

        override["delay"] = -5
        given["scoring"]["weights"]["nav"] = math.nan

        assert tree.keys == {"example.org": {"delay": 2.0}}
        assert tree.scoring.weights == {"nav": 1.0}


class TestReading:
    def test_a_mapping_changes_what_it_names_and_nothing_else(self):
        """The rest keeps its default."""
        tree = settings_of({"politeness": {"min_delay": 2}, "queue": {"tie": "lifo"}})

        assert tree == Settings(
            politeness=Politeness(min_delay=2.0), queue=QueueSettings(tie="lifo")
        )

    def test_whole_numbers_may_stand_for_fractions(self):
        """`min_delay = 2` is a float afterwards."""
        assert type(settings_of({"politeness": {"min_delay": 2}}).politeness.min_delay) is float

    def test_a_tree_made_by_hand_is_checked_too(self):
        """Constructors check nothing, so settings_of does."""
        assert refusal(Settings(politeness=Politeness(min_delay=-2))).startswith(
            "politeness.min_delay = -2: give a number from 0 to 86400"
        )

    def test_mappings_may_stand_inside_a_tree_made_by_hand(self):
        """A section given as a mapping becomes its struct."""
        assert settings_of(Settings(politeness={"min_delay": 2})) == Settings(
            politeness=Politeness(min_delay=2.0)
        )

    def test_functions_and_objects_survive(self):
        """What cannot be written in TOML can be given in Python."""
        scorer = EveryScore()
        tree = settings_of(
            Settings(
                queue=QueueSettings(key=by_path, bypass_depth=bool),
                budget=Budget(cost=len),
                scoring=Scoring(scorer=scorer),
            )
        )

        assert tree.queue.key is by_path
        assert tree.queue.bypass_depth is bool
        assert tree.budget.cost is len
        assert tree.scoring.scorer is scorer

    def test_a_scorer_that_is_a_struct_stays_whole(self):
        """An object is never taken for a section."""

        class Fixed(msgspec.Struct):
            factor: float = 2.0

            def score(self, batch):
                return []

        scorer = Fixed()

        assert settings_of({"scoring": {"scorer": scorer}}).scoring.scorer is scorer
        assert "Fixed" in to_mapping(Settings(scoring=Scoring(scorer=scorer)))["scoring"]["scorer"]

    def test_a_part_of_the_cooldown_keeps_the_rest_of_it(self):
        """`retry.blocked` starts from its own defaults, not from those of `retry`."""
        tree = settings_of({"retry": {"blocked": {"base": 60}}})

        assert tree.retry.blocked == msgspec.structs.replace(COOLDOWN, base=60.0)

    def test_a_type_has_a_policy_of_its_own(self):
        """What is left out of `retry.types` has the defaults of a policy."""
        tree = settings_of({"retry": {"base": 9, "types": {"article": {"max_retries": 7}}}})

        assert tree.retry == Retry(base=9.0, types={"article": Backoff(max_retries=7)})

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                {"politeness": {"min_dely": 3}},
                "politeness.min_dely = 3: no such setting; did you mean politeness.min_delay?",
            ),
            (
                {"min_delay": 3},
                "min_delay = 3: no such setting; did you mean politeness.min_delay?",
            ),
            ({"key": "host"}, "key = 'host': no such setting; did you mean keys or queue.key?"),
            ({"zzz": {}}, "zzz = {}: no such setting; known here: store, politeness, budget,"),
            ({"politeness": 3}, "politeness = 3: give a table of settings"),
            ({"politeness": None}, "politeness = None: give a table of settings"),
            ({"politeness": {3: 4}}, "politeness.3 = 4: a name here is text, and not empty"),
            (5, "settings = 5: give a table of settings"),
            ({"queue": {"order": "rr"}}, 'queue.order = \'rr\': give "priority" or "round-robin"'),
            ({"queue": {"tie": 1}}, 'queue.tie = 1: give "fifo", "lifo" or "shuffle"'),
            ({"lease": {"seconds": 0}}, "lease.seconds = 0: give a number over 0 to 604800"),
            ({"budget": {"balance": True}}, "budget.balance = True: give a whole number from 0 to"),
            (
                {"budget": {"balance": 3.0}},
                "budget.balance = 3.0: give a whole number from 0 to 2^53",
            ),
            ({"crawl": {"pause_at_finish": 1}}, "crawl.pause_at_finish = 1: give true or false"),
            ({"lanes": {"acquisition": "nav"}}, "lanes.acquisition = 'nav': give a list of texts"),
            ({"lanes": {"acquisition": ["a", 2]}}, "lanes.acquisition.1 = 2: give text"),
            ({"events": {"jsonl": None}}, "events.jsonl = None: give text"),
            (
                {"scoring": {"weights": {"a b": "x"}}},
                "scoring.weights.\"a b\" = 'x': give a number",
            ),
            ({"retry": {"types": {"nav": {"bse": 1}}}}, "retry.types.nav.bse = 1: no such setting"),
            (
                {"politeness": {"delay": -0.5}},
                "politeness.delay = -0.5: give seconds from 0, or -1",
            ),
            ({"scope": {"include": ["("]}}, "scope.include = ['(']: scope include pattern '('"),
            ({"scope": {"exclude": ["("]}}, "scope.exclude = ['(']: scope exclude pattern '('"),
        ],
    )
    def test_error_names_path_value_and_fix(self, given, message):
        """The message alone is enough to mend it."""
        assert refusal(given).startswith(message)

    @pytest.mark.parametrize(
        ("section", "name", "value", "message"),
        [
            ("queue", "key", "hst", "did you mean 'host'?"),
            ("queue", "key", "buckets:0", "the number of buckets must be 1 to 65536"),
            ("queue", "key", "buckets:n", "the number of buckets must be 1 to 65536"),
            ("queue", "key", "a b:c", "unknown keying"),
            ("queue", "key", None, "give a name, module:function or a function"),
            ("queue", "bypass_depth", "always", "give module:function or a function"),
            ("budget", "cost", "wagg", "did you mean 'wag'?"),
            ("budget", "cost", 3, "give a name, module:function or a function"),
            ("scope", "function", "", "give module:function or a function"),
            ("executor", "pipeline", ["a:b", "stage"], "'stage' is no stage; give module:function"),
            ("scoring", "scorer", "best", "module:name or an object"),
            ("scoring", "scorer", None, "module:name or an object"),
            ("scoring", "scorer", EveryScore, "(not a class) with a method `score`"),
        ],
    )
    def test_names_are_checked_without_importing(self, section, name, value, message):
        """A name is known, or spells a module and what is in it."""
        said = refusal({section: {name: value}})

        assert said.startswith(f"{section}.{name} = {value!r}")
        assert message in said

    @pytest.mark.parametrize("name", ["host", "domain", "surt", "buckets:16", "no.such:thing"])
    def test_known_names_and_references_pass(self, name):
        """Importing is left to `resolve`."""
        assert settings_of({"queue": {"key": name}}).queue.key == name

    @pytest.mark.parametrize(
        "value",
        [math.nan, math.inf, -math.inf, 10**5000, "x" * 10**6],
        ids=["nan", "inf", "-inf", "digits", "text"],
    )
    def test_absurd_values_are_refused_with_a_short_message(self, value):
        """Even one whose digits Python refuses to print."""
        assert len(refusal({"politeness": {"min_delay": value}})) < 300

    def test_a_value_that_cannot_be_printed_is_still_refused(self):
        """A message never depends on a stranger's repr."""

        class Rude:
            def __repr__(self):
                raise RuntimeError

        assert "lease = <Rude>" in refusal({"lease": Rude()})

    def test_refusal_is_an_error_of_the_caller(self):
        """It can be caught as a ValueError, as an InvalidInput, or by its own name."""
        assert issubclass(SettingsError, InvalidInput)
        assert issubclass(SettingsError, ValueError)

    @pytest.mark.parametrize(
        "politeness",
        [
            {"delay": 5, "delay_to": 3},
            {"delay_to": 3},
            {"min_delay": 9, "max_delay": 2},
            {"max_delay": 0.5},
        ],
    )
    def test_bounds_that_crossed_are_refused(self, politeness):
        """Both are allowed alone and absurd together."""
        assert refusal({"politeness": politeness}).startswith("politeness.")

    @pytest.mark.parametrize(
        "politeness", [{"min_delay": 60}, {"max_delay": 1.0}, {"delay": 3, "delay_to": 3}]
    )
    def test_one_bound_may_pass_a_default(self, politeness):
        """Whoever moves one bound need not know the other."""
        settings_of({"politeness": politeness})


class TestKeys:
    @pytest.mark.parametrize(
        "override",
        [
            {"delay": 2, "balance": 5, "precedence": -1},
            {"politeness": {"delay": 2}, "budget": {"balance": 5}, "precedence": -1},
            {"politeness": {"delay": 2}, "balance": 5, "precedence": -1},
        ],
    )
    def test_overrides_are_flat_afterwards(self, override):
        """Flat fields and tables mean the same."""
        tree = settings_of({"keys": {"example.org": override}})

        assert tree.keys == {"example.org": {"delay": 2.0, "balance": 5, "precedence": -1}}

    def test_letter_case_makes_no_difference(self):
        """Hosts are lower-case, so keys are."""
        tree = settings_of({"keys": {"Example.ORG": {}, ".Net": {"paused": True}}})

        assert tree.keys == {"example.org": {}, ".net": {"paused": True}}

    @pytest.mark.parametrize(
        ("keys", "path"),
        [
            ({"": {}}, "keys.\"''\""),
            ({".": {}}, 'keys."."'),
            ({"*.org": {}}, 'keys."*.org"'),
            ({"a\n": {}}, 'keys."a\\n"'),
            ({"x" * 256: {}}, "keys.xxx"),
            ({"a.org": {}, "A.org": {}}, 'keys."A.org"'),
            ({"a.org": 3}, 'keys."a.org"'),
            ({"a.org": {"delay": 1, "politeness": {"delay": 2}}}, 'keys."a.org".politeness.delay'),
            ({"a.org": {"politeness": {"balance": 2}}}, 'keys."a.org".politeness.balance'),
            ({"a.org": {"budget": 2}}, 'keys."a.org".budget'),
            ({"a.org": {"max_depth": 2}}, 'keys."a.org".max_depth'),
            ({"a.org": {"precedence": 2**31}}, 'keys."a.org".precedence'),
            ({"a.org": {"cost": "dear"}}, 'keys."a.org".cost'),
            ({"a.org": {"delay": math.nan}}, 'keys."a.org".delay'),
        ],
    )
    def test_a_bad_override_is_named(self, keys, path):
        """The path goes down to the field."""
        assert refusal({"keys": keys}).startswith(path)

    def test_parts_share_no_name(self):
        """A flat override says of each field where it belongs."""
        parts = [set(part.__struct_fields__) for part in (Politeness, Budget, QueueFields)]

        assert sum(map(len, parts)) == len(set().union(*parts))

    def test_what_may_be_overridden_is_what_the_rules_apply(self):
        """A standing of the rules without a setting, or the reverse, would do nothing."""
        standing = set(QueueRules.__struct_fields__) - {"politeness", "budget"}

        assert set(QueueFields.__struct_fields__) == standing


class TestMerging:
    def test_a_change_keeps_everything_else(self):
        """Also the other fields of the same section."""
        before = settings_of({"politeness": {"min_delay": 2}, "lease": {"seconds": 5}})
        after = merged(before, {"politeness": {"factor": 1}})

        assert after == settings_of(
            {"politeness": {"min_delay": 2, "factor": 1}, "lease": {"seconds": 5}}
        )

    def test_open_tables_change_entry_by_entry(self):
        """A change of one key, weight or type leaves the others."""
        before = settings_of(
            {
                "keys": {"a.org": {"delay": 1, "balance": 2}, "b.org": {"delay": 3}},
                "scoring": {"weights": {"nav": 1, "article": 2}},
                "retry": {"types": {"nav": {"base": 5}, "article": {"base": 6}}},
            }
        )
        after = merged(
            before,
            {
                "keys": {"A.org": {"politeness": {"delay": 9}}},
                "scoring": {"weights": {"nav": 9}},
                "retry": {"types": {"nav": {"cap": 9}}},
            },
        )

        assert after.keys == {"a.org": {"delay": 9.0, "balance": 2}, "b.org": {"delay": 3.0}}
        assert after.scoring.weights == {"nav": 9.0, "article": 2.0}
        assert after.retry.types == {
            "nav": Backoff(base=5.0, cap=9.0),
            "article": Backoff(base=6.0),
        }

    def test_none_takes_an_entry_back(self):
        """A key, one field of a key, a weight, a type."""
        before = settings_of(
            {
                "keys": {"a.org": {"delay": 1, "balance": 2}, "b.org": {"delay": 3}},
                "scoring": {"weights": {"nav": 1}},
                "retry": {"types": {"nav": {"base": 5}}},
            }
        )
        after = merged(
            before,
            {
                "keys": {"a.org": {"delay": None}, "B.org": None, "unheard.of": None},
                "scoring": {"weights": {"nav": None}},
                "retry": {"types": {"nav": None}},
            },
        )

        assert after == settings_of({"keys": {"a.org": {"balance": 2}}})

    def test_a_whole_section_may_be_given(self):
        """A struct says all of its fields."""
        before = settings_of({"politeness": {"min_delay": 2}})

        assert merged(before, {"politeness": Politeness(factor=1.0)}).politeness == Politeness(
            factor=1.0
        )

    def test_a_refused_change_changes_nothing(self):
        """Neither the tree nor what is inside it, however far the change was read."""
        before = settings_of({"keys": {"a.org": {"delay": 1}}, "scoring": {"weights": {"nav": 1}}})
        changes = {
            "scoring": {"weights": {"nav": 2}},
            "keys": {"a.org": {"delay": 2}},
            "lease": {"seconds": -1},
        }

        with pytest.raises(SettingsError, match=r"^lease\.seconds = -1"):
            merged(before, changes)
        assert before == settings_of(
            {"keys": {"a.org": {"delay": 1}}, "scoring": {"weights": {"nav": 1}}}
        )

    def test_a_change_must_suit_what_is_there(self):
        """The tree is judged whole, not the change alone."""
        with pytest.raises(SettingsError, match=r"^politeness\.delay_to"):
            merged(
                settings_of({"politeness": {"delay": 5, "delay_to": 15}}),
                {"politeness": {"delay": 20}},
            )

    def test_a_bad_base_is_refused(self):
        """A tree made by hand is not trusted because a change of it is good."""
        with pytest.raises(SettingsError, match=r"^lease\.seconds"):
            merged(Settings(lease={"seconds": -1}), {})


class TestOverrides:
    def test_an_override_is_flat_and_keeps_none(self):
        """None is how a field is taken back."""
        assert override_of({"balance": None, "budget": {"total_budget": 5}, "delay": 2}) == {
            "balance": None,
            "total_budget": 5,
            "delay": 2.0,
        }

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"balanc": 3}, "queue.set(balanc=3): no such setting; did you mean balance?"),
            ({"balance": math.nan}, "queue.set(balance=nan): give a whole number from 0 to 2^53"),
            ({"balance": -1}, "queue.set(balance=-1): give a whole number from 0 to 2^53"),
            ({"delay": math.inf}, "queue.set(delay=inf): give a number from -1 to 86400"),
            ({"delay": -3}, "queue.set(delay=-3): give a number from -1 to 86400"),
            ({"paused": "yes"}, "queue.set(paused='yes'): give true or false"),
            ({"budget": {"balance": -1}}, "queue.set(budget.balance=-1): give a whole number"),
        ],
    )
    def test_error_of_queue_set_quotes_the_call(self, changes, message):
        """The message shows what the operator wrote."""
        with pytest.raises(SettingsError) as caught:
            override_of(changes)

        assert str(caught.value).startswith(message)


class TestToml:
    def test_a_file_has_the_shape_of_the_mapping(self):
        """Tables are sections."""
        tree = from_toml('[politeness]\nmin_delay = 2\n[keys."example.org"]\nbalance = 5\n')

        assert tree == settings_of(
            {"politeness": {"min_delay": 2}, "keys": {"example.org": {"balance": 5}}}
        )

    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("politeness.min_dely = 3", 1),
            ("[politeness]\n\n# about\nmin_dely = 3\nfactor = 1", 4),
            ("[polteness]\nfactor = 1", 1),
            ("[lanes]\nburst = 5\nacquisition = [\n  'a',\n  3,\n]\n[lease]", 3),
            ("[lease]\nseconds = 5\n[keys.'A.org']\nbalance = 1\n[keys.'a.org']\n", 5),
            ("[keys.'a.org'.politeness]\nmin_delay = '''\n\n'''\n", 2),
            ("[scope]\ninclude = ['''\n[lease]\n(''']", 2),
        ],
    )
    def test_error_names_its_source_and_line(self, text, line, newline):
        """The line where the setting begins, whatever its value spans."""
        with pytest.raises(SettingsError, match=rf"^crawl\.toml, line {line}: "):
            from_toml(text.replace("\n", newline), source="crawl.toml")

    @pytest.mark.parametrize("text", ["a =", "[a", "a = 1\na = 2", "a = " + "9" * 5000])
    def test_what_is_not_toml_is_refused(self, text):
        """The reader's own complaint has the line."""
        with pytest.raises(SettingsError, match=r"^crawl\.toml: not TOML: "):
            from_toml(text, source="crawl.toml")

    def test_text_nested_without_end_is_refused(self):
        """Rubbish never raises anything else."""
        with pytest.raises(SettingsError):
            from_toml("a = " + "[" * 100_000)


class TestShowing:
    def test_defaults_are_left_out(self):
        """A display shows what somebody chose."""
        assert to_mapping(Settings()) == {}

    def test_what_differs_is_plain(self):
        """The mapping can be written as JSON or TOML, and functions are named."""
        tree = settings_of(
            {
                "queue": {"key": by_path},
                "lanes": {"acquisition": ["article"]},
                "retry": {"blocked": {"base": 5}, "types": {"nav": {}}},
                "scoring": {"scorer": EveryScore()},
                "keys": {"a.org": {"delay": 2, "cost": by_path}},
            }
        )

        assert json.loads(json.dumps(to_mapping(tree))) == {
            "queue": {"key": f"{__name__}:by_path"},
            "lanes": {"acquisition": ["article"]},
            "retry": {"blocked": {"base": 5.0}, "types": {"nav": {}}},
            "scoring": {"scorer": f"{__name__}:EveryScore"},
            "keys": {"a.org": {"delay": 2.0, "cost": f"{__name__}:by_path"}},
        }


class TestRules:
    def test_the_defaults_are_the_defaults_of_the_rules(self):
        """A store without settings and one with default settings do the same."""
        assert rules_of(Settings()) == CrawlRules()

    def test_every_number_reaches_the_rules(self):
        """A store learns all that it applies."""
        tree = settings_of(
            {
                "politeness": {"factor": 2},
                "budget": {"balance": 5},
                "queue": {
                    "order": "round-robin",
                    "tie": "shuffle",
                    "breadth_discount": 3,
                    "max_pending": 4,
                    "max_pending_per_queue": 5,
                },
                "lanes": {"burst": 6},
                "retry": {"max_retries": 7},
                "lease": {"max_crashes": 8},
                "crawl": {"pause_at_finish": True},
                "limits": {"done": 9},
                "keys": {"a.org": {"delay": 10, "paused": True}},
            }
        )

        assert rules_of(tree) == CrawlRules(
            queue=QueueRules(Politeness(factor=2.0), Budget(balance=5)),
            keys={"a.org": {"delay": 10.0, "paused": True}},
            order="round-robin",
            tie="shuffle",
            breadth_discount=3.0,
            max_pending=4,
            max_pending_per_queue=5,
            burst=6,
            max_retries=7,
            max_crashes=8,
            pause_at_finish=True,
            limits=Limits(done=9),
        )
        assert rules_of(tree).of("a.org").politeness == Politeness(factor=2.0, delay=10.0)


class TestResolving:
    @pytest.fixture(autouse=True)
    def module(self, monkeypatch):
        """A module of the user's."""
        module = types.ModuleType("of_the_user")
        module.by_path, module.scorer, module.Scorer = by_path, EveryScore(), EveryScore
        module.text = "no function"
        monkeypatch.setitem(sys.modules, "of_the_user", module)
        return module

    def test_a_reference_is_imported(self, module):
        """`module:function` is the function, `module:name` of a scorer the object."""
        assert resolve("of_the_user:by_path", "queue.key") is by_path
        assert resolve("of_the_user:Scorer.score", "budget.cost") is EveryScore.score
        assert resolve("of_the_user:scorer", "scoring.scorer") is module.scorer

    @pytest.mark.parametrize("spec", ["host", "buckets:8", by_path, None, "https://example.org/"])
    def test_everything_else_comes_back_as_it_is(self, spec):
        """Names of ours and objects need no import."""
        assert resolve(spec, "queue.key") is spec

    @pytest.mark.parametrize(
        ("spec", "what", "message"),
        [
            ("no.such:thing", "queue.key", "No module named 'no'; is no.such installed"),
            ("of_the_user:by_pth", "queue.key", "did you mean by_path?"),
            ("of_the_user:text", "queue.key", "that is 'no function'; name a function"),
            ("of_the_user:by_path", "scoring.scorer", "name an object (not a class) with a method"),
            ("of_the_user:Scorer", "scoring.scorer", "name an object (not a class) with a method"),
        ],
    )
    def test_a_reference_to_nothing_is_refused(self, spec, what, message):
        """The setting, the reference and the fix are named."""
        with pytest.raises(SettingsError) as caught:
            resolve(spec, what)

        assert str(caught.value).startswith(f"{what} = {spec!r}: ")
        assert message in str(caught.value)


class TestReference:
    def test_the_page_is_what_the_tree_says(self):
        """Whoever changes a setting writes the page again, by `render_reference`."""
        assert REFERENCE.read_text(encoding="utf-8") == render_reference()

    def test_every_setting_is_documented(self):
        """Each with what is allowed, its default and its meaning."""
        rows = documented_settings()

        assert all(all(row) for row in rows)
        assert {row[0] for row in rows} >= {dotted_path(path) for path, _ in leaves()}

    def test_every_section_is_described(self):
        """Also those that other rooms own."""
        for field in struct_kind(Settings).fields:
            assert isinstance(field.type, inspect.Metadata)
            assert field.type.extra_json_schema["description"]


def bare(kind):
    """A type without its documentation."""
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def structs():
    """Every struct of the tree."""
    sections = [bare(field.type) for field in struct_kind(Settings).fields]
    return [kind.cls for kind in sections if isinstance(kind, inspect.StructType)] + [Backoff]


def leaves(kind=None, path=()):
    """Every setting that has a fixed place: its path and its type."""
    for field in (kind or struct_kind(Settings)).fields:
        below, where = bare(field.type), (*path, field.name)
        if isinstance(below, inspect.StructType):
            yield from leaves(below, where)
        elif not isinstance(below, inspect.DictType):
            yield where, below


def planted(path, value):
    """The mapping in which only this setting stands."""
    for part in reversed(path):
        value = {part: value}
    return value


def overlaid(*mappings):
    """Mappings laid over each other, the last on top."""
    result = {}
    for mapping in mappings:
        for name, value in mapping.items():
            both = isinstance(value, dict) and isinstance(result.get(name), dict)
            result[name] = overlaid(result[name], value) if both else value
    return result


NAMES = {
    ("queue", "key"): st.sampled_from(["host", "domain", "surt", "buckets:7", "a.b:c", by_path]),
    ("queue", "bypass_depth"): st.sampled_from([None, "a:b", by_path]),
    ("budget", "cost"): st.sampled_from(["zero", "unit", "wag", "anti-calendar", "a:b"]),
    ("scope", "function"): st.sampled_from([None, "a:b", by_path]),
    ("scoring", "scorer"): st.sampled_from(["default", "fifo", "a:b"]),
    ("focus", "classifier"): st.sampled_from(["tokens", "a:b"]),
    ("executor", "pipeline"): st.lists(st.sampled_from(["a:b", "a.b:c.d"])),
    ("focus", "lists"): st.lists(st.sampled_from(["countries"])),
    ("fetch", "detector"): st.sampled_from(["default", "none", "a:b"]),
    ("executor", "poll"): st.sampled_from(["generic", "a:b"]),
    ("types", "function"): st.sampled_from([None, "a:b", by_path]),
    ("types", "rules"): st.lists(
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(["article", "goods"]),
                "pattern": st.sampled_from(["a", "b.*"]),
            },
            optional={
                "found": st.sampled_from(["nav", ["nav", "own-place"]]),
                "on": st.just("hub"),
            },
        ),
        max_size=3,
    ),
    ("scope", "include"): st.lists(st.sampled_from(["a", "b.*"])),
    ("scope", "exclude"): st.lists(st.sampled_from(["a", "b.*"])),
}
# Those that must suit others, and have no effect otherwise: test_settings_consistency has them.
PAIRED = {
    ("politeness", "delay"),
    ("politeness", "delay_to"),
    ("focus", "on"),
    ("crawl", "stay_open"),
} | {order.moot for order in ORDERS}
LEAVES = [leaf for leaf in leaves() if leaf[0] not in PAIRED]


def values(path, kind):
    """Whatever may stand here."""
    if path in NAMES:
        return NAMES[path]
    match kind:
        case inspect.BoolType():
            return st.booleans()
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.IntType():
            return st.integers(kind.ge, kind.le)
        case inspect.FloatType():
            least = kind.gt if kind.ge is None else kind.ge
            return st.floats(least, kind.le, exclude_min=kind.ge is None)
        case inspect.VarTupleType():
            return st.lists(st.text())
    return st.text()


def faults(path, kind):
    """Whatever must not stand here."""
    rubbish = st.sampled_from([b"", 1j, {}, {"a": 1}, {1}, object(), math.nan, math.inf, -math.inf])
    match kind:
        case inspect.BoolType():
            return rubbish | st.integers() | st.text() | st.none()
        case inspect.LiteralType():
            return rubbish | st.none() | st.text().filter(lambda text: text not in kind.values)
        case inspect.IntType():
            outside = st.integers(max_value=kind.ge - 1) | st.integers(min_value=kind.le + 1)
            return rubbish | outside | st.booleans() | st.text() | st.floats() | st.none()
        case inspect.FloatType():
            below = (
                st.floats(max_value=kind.gt)
                if kind.ge is None
                else st.floats(max_value=kind.ge, exclude_max=True)
            )
            outside = below | st.floats(min_value=kind.le, exclude_min=True)
            return rubbish | outside | st.booleans() | st.text() | st.none()
        case inspect.VarTupleType():
            return (
                rubbish
                | st.text()
                | st.integers()
                | st.none()
                | st.lists(st.integers(), min_size=1)
            )
        case inspect.StrType():
            return rubbish | st.integers() | st.none() | st.booleans()
    return rubbish | st.integers() | st.just("no such name")


KEYING = ("queue", "key")


@st.composite
def trees(draw):
    """A mapping that is valid."""
    chosen = draw(st.lists(st.sampled_from(LEAVES), unique_by=lambda leaf: leaf[0]))
    by_host = draw(st.booleans())  # what is named under `keys` may reach no queue of other keyings
    planting = [
        planted(path, draw(values(path, kind)))
        for path, kind in chosen
        if not (by_host and path == KEYING)
    ]
    own_types = st.text(min_size=1).map("own type {}".format)  # like no known one: a typo
    keys = st.from_regex(r"\.?[a-z0-9-]{1,8}(\.[a-z]{1,3})?", fullmatch=True)
    overrides = st.fixed_dictionaries(
        {},
        optional={"delay": st.floats(0, 9), "balance": st.integers(0, 9), "paused": st.booleans()},
    )
    tables = {
        "keys": draw(st.dictionaries(keys, overrides, max_size=3)) if by_host else {},
        "scoring": {"weights": draw(st.dictionaries(own_types, st.floats(-9, 9)))},
    }
    tree = overlaid(*planting, tables)
    assume(tree.get("fetch", {}).get("cache_bytes") != 0)  # which contradicts a cache
    return tree


@pytest.mark.slow
class TestEveryTree:
    @given(trees())
    def test_a_valid_tree_is_read_and_shown_without_loss(self, tree):
        """Reading, reading again, merging and showing agree."""
        settings = settings_of(tree)

        assert settings_of(settings) == settings
        assert merged(Settings(), tree) == settings
        assert merged(settings, {}) == settings
        assume(by_path not in (settings.queue.key, settings.queue.bypass_depth))
        assume(by_path not in (settings.scope.function, settings.types.function))
        assert settings_of(to_mapping(settings)) == settings

    @given(trees(), trees())
    def test_a_change_lays_one_tree_over_another(self, before, after):
        """Merging is reading both at once."""
        assume(
            not (before["keys"] or after["keys"])
            or "key" not in overlaid(before, after).get("queue", {})
        )
        assert merged(settings_of(before), after) == settings_of(overlaid(before, after))

    @given(trees(), st.sampled_from(list(leaves())), st.data())
    def test_one_bad_leaf_refuses_the_whole_and_is_named(self, tree, leaf, data):
        """Whatever else is right."""
        path, kind = leaf
        bad = planted(path, data.draw(faults(path, kind)))
        before = settings_of(tree)

        assert re.match(rf"{re.escape(dotted_path(path))}(\.\d+)? = ", refusal(overlaid(tree, bad)))
        with pytest.raises(SettingsError):
            merged(before, bad)
        assert before == settings_of(tree)

    @given(trees(), st.sampled_from(LEAVES), st.text(min_size=1))
    def test_one_unknown_name_refuses_the_whole_and_is_named(self, tree, leaf, name):
        """At any depth."""
        path = (*leaf[0][:-1], name)
        assume(path not in {leaf[:n] for leaf, _ in leaves() for n in range(1, 4)})
        assume(path not in {("keys",), ("retry", "types"), ("scoring", "weights")})

        assert refusal(overlaid(tree, planted(path, 1))).startswith(f"{dotted_path(path)} = ")
