"""Settings kept with a crawl: what comes back as it was, what stays, and what is given by hand."""

import json

import pytest
from msgspec import inspect

from outrider.errors import SettingsError
from outrider.settings import BaseSettings, Settings, settings_of, to_text
from outrider.settings.field_types import fields_of, struct_kind
from outrider.settings.foreign_code import code_overrides, code_paths
from outrider.settings.stored import join_stored
from outrider.settings.validation import adjustable

WHOLE = {
    "scope": {"mode": "host", "exclude": ["/private"]},
    "queue": {"key": "domain", "max_depth": 3, "tie": "shuffle"},
    "scoring": {"scorer": "fifo", "weights": {"article": 2.0}},
    "retry": {"types": {"article": {"max_retries": 9}}, "blocked": {"base": 5.0}},
    "lanes": {"acquisition": ["article"]},
    "executor": {"slots": 7},
    "fetch": {"contact": "me@example.org", "connect_to": {"a.example": "127.0.0.1:80"}},
    "keys": {".org": {"delay": 3.0, "cost": "wag"}},
}


def by_site(url):
    """A keying of one's own."""
    return url.host


class Scorer:
    """A scorer of one's own."""

    features = ()

    def score(self, batch):
        """All alike."""
        return [0.0 for _ in batch]


def ground(settings):
    """What holds before anything is said at run time."""
    return BaseSettings(settings_of(settings))


def kept_of(settings):
    """The kept text, read."""
    return json.loads(to_text(ground(settings)))


def test_stored_settings_are_read_back():
    """N1: a joiner has the very settings that the crawl was opened with."""
    settings = settings_of(WHOLE)

    assert join_stored(to_text(BaseSettings(settings)), {}).settings == settings
    assert to_text(BaseSettings(Settings())) == "{}"


def test_paths_of_one_machine_are_neither_stored_nor_read():
    """A path of another machine means nothing here, or something else."""
    local = {
        "store": {"durability": "sync"},
        "events": {"jsonl": "/elsewhere/events"},
        "output": {"path": "/elsewhere/out", "format": "warc"},
        "fetch": {"cache": "/elsewhere/cache", "robots_cache": "/elsewhere/r", "follow": False},
    }

    assert kept_of(local) == {"output": {"format": "warc"}, "fetch": {"follow": False}}
    found = join_stored(json.dumps(local), {}).settings
    assert (found.output.path, found.fetch.cache, found.fetch.robots_cache) == ("", "", "")
    assert (found.events.jsonl, found.store.durability) == ("", "process")


def test_ones_own_sections_win():
    """Also where they say what is usual anyway; the crawl's own stay the crawl's."""
    own = {"executor": {"slots": 64}, "fetch": {"contact": "you"}, "queue": {"max_depth": 99}}
    found = join_stored(to_text(ground(WHOLE)), own).settings

    assert (found.executor.slots, found.fetch.contact, found.queue.max_depth) == (64, "you", 3)
    assert found.fetch.connect_to == {"a.example": "127.0.0.1:80"}


@pytest.mark.parametrize(
    ("section", "field", "value", "said"),
    [
        ("queue", "key", "os:getcwd", "queue.key = 'os:getcwd' is code"),
        ("queue", "key", by_site, f"queue.key = '{__name__}:by_site' is code"),
        ("scope", "function", lambda _: True, "<lambda>, which cannot be imported"),
        ("scoring", "scorer", Scorer(), "Scorer, which cannot be imported"),
        ("executor", "pipeline", ["os:getcwd"], "executor.pipeline = ['os:getcwd'] is code"),
        ("keys", "a.example", {"cost": "os:getcwd"}, "keys.\"a.example\".cost = 'os:getcwd'"),
    ],
    ids=["name", "function", "lambda", "object", "stages", "by-key"],
)
def test_code_is_given_by_hand(section, field, value, said):
    """A store may be written by others: nothing it names is imported, and it is said what lacks."""
    text = to_text(
        ground(
            {section: {field: value}, "queue": {"max_depth": 2}}
            if section != "queue"
            else {section: {field: value, "max_depth": 2}}
        )
    )
    found = join_stored(text, {})

    assert said in found.lacks
    assert "pass it in this process" in found.lacks
    assert found.settings.queue.max_depth == 2
    assert getattr(found.settings, section) in (
        getattr(Settings(), section),
        settings_of({"queue": {"max_depth": 2}}).queue,
        {"a.example": {}},
    )


def test_code_that_is_given_is_used():
    """In place of what was kept, be it named or nameless; nothing is lacking then."""
    text = to_text(ground({"queue": {"key": lambda url: url.host}, "scope": {"function": "a:b"}}))
    own = {"queue": {"key": by_site}, "scope": {"function": "a:c"}}
    found = join_stored(text, own)

    assert (found.settings.queue.key, found.settings.scope.function, found.lacks) == (
        by_site,
        "a:c",
        "",
    )


def test_code_of_ones_own_replaces_no_plain_choice():
    """The crawl's keying is the crawl's: two workers must not put one URL in two queues."""
    found = join_stored('{"queue": {"key": "domain"}}', {"queue": {"key": by_site}})

    assert (found.settings.queue.key, found.lacks) == ("domain", "")


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"nonsense": 1}', '{"queue": 5}', '{"queue": {"max_depth": -1}}', "[" * 100_000],
    ids=["list", "cut", "newer", "shape", "bounds", "deep"],
)
def test_unreadable_stored_settings_are_reported(text):
    """It may come from a newer release, or from anybody: a looker goes on with the usual."""
    found = join_stored(text, {"executor": {"slots": 3}})

    assert "cannot be read" in found.lacks
    assert found.settings == settings_of({"executor": {"slots": 3}})


def test_too_many_overrides_by_key_are_not_stored():
    """Their queues know them, and the text stays short."""
    keys = {f"host-{n}.example": {"delay": 1.0} for n in range(40_000)}

    assert kept_of({"keys": keys, "queue": {"max_depth": 1}}) == {"queue": {"max_depth": 1}}


def test_settings_without_end_are_refused():
    """What no store takes is said at once."""
    with pytest.raises(SettingsError, match="too long"):
        to_text(ground({"url": {"tracking": ["x" * 1000] * 2000}}))


def test_every_field_that_may_refer_to_code_is_marked():
    """A new setting of this kind must be marked, or references in it would be imported for a store.

    A field is of this kind if its type admits any object, or if its text says `module:`.
    """
    suspects = set(_suspects(struct_kind(Settings), ()))
    by_key = {name for name, field in adjustable().items() if _is_suspect(field.kind)}

    assert suspects == code_paths() == EVERY_CODE_PATH
    assert by_key == code_overrides() == {"cost"}


EVERY_CODE_PATH = {
    ("queue", "key"),
    ("queue", "bypass_depth"),
    ("budget", "cost"),
    ("scope", "function"),
    ("scoring", "scorer"),
    ("focus", "classifier"),
    ("types", "function"),
    ("fetch", "detector"),
    ("executor", "pipeline"),
    ("executor", "poll"),
}


def _suspects(kind, path):
    if path == ("keys",):
        return
    if _is_suspect(kind):
        yield path
    elif isinstance(kind, inspect.Metadata):
        yield from _suspects(kind.type, path)
    elif isinstance(kind, inspect.StructType):
        for name, field in fields_of(kind).items():
            yield from _suspects(field.kind, (*path, name))
    elif isinstance(kind, inspect.DictType):
        yield from _suspects(kind.value_type, (*path, "*"))


def _is_suspect(kind):
    if isinstance(kind, inspect.Metadata):
        return "module:" in str(kind.extra_json_schema) or _is_suspect(kind.type)
    if isinstance(kind, inspect.VarTupleType):
        return _is_suspect(kind.item_type)
    return isinstance(kind, inspect.UnionType | inspect.AnyType)


SPELLINGS = {
    "flat": {"a.example": {"cost": "os:getcwd"}},
    "nested": {"a.example": {"budget": {"cost": "os:getcwd"}}},
    "upper case": {"A.Example": {"budget": {"cost": "os:getcwd"}}},
}


@pytest.mark.parametrize("keys", SPELLINGS.values(), ids=SPELLINGS)
def test_reference_for_a_key_is_foreign_in_every_spelling(keys):
    """The parsed settings are judged, whatever table the reference was written in."""
    found = join_stored(json.dumps({"keys": keys}), {})

    assert found.settings.keys == {"a.example": {}}
    assert found.code == {("keys", "a.example", "cost"): "os:getcwd"}
    assert "keys.\"a.example\".cost = 'os:getcwd' is code" in found.lacks


@pytest.mark.parametrize("own", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("keys", SPELLINGS.values(), ids=SPELLINGS)
def test_reference_for_a_key_is_replaced_by_the_own_one_in_every_spelling(own, keys):
    """The joining process may write its own reference in another table than the crawl did."""
    own = json.loads(json.dumps(own).replace("os:getcwd", "os:getpid"))
    found = join_stored(
        json.dumps({"keys": keys}), {"keys": own}, {("keys", "a.example", "cost"): "me"}
    )

    assert found.settings.keys == {"a.example": {"cost": "os:getpid"}}
    assert (found.code, found.lacks) == ({}, "")
    assert found.origins[("keys", "a.example", "cost")] == "me"


def test_nameless_code_of_a_key_is_reported_in_the_nested_spelling():
    """A lambda cannot be imported by its name: the joining process is told what it was."""
    found = join_stored('{"keys": {"a.example": {"budget": {"cost": "?m:<lambda>"}}}}', {})

    assert found.settings.keys == {"a.example": {}}
    assert "was m:<lambda>, which cannot be imported" in found.lacks
