"""The public names are a promise: tests outside this repo use them."""

import importlib
import inspect
import pathlib
import typing

import pytest

import outrider
from outrider import blocking
from outrider.frontier.admin import QueueHandle
from outrider.store.protocol import Admin, Inspect, Store

ROOT = pathlib.Path(outrider.__file__).parent

PROMISED = {
    "Frontier",
    "Link",
    "Settings",
    "Done",
    "Failed",
    "Throttled",
    "Blocked",
    "Unreachable",
    "Dropped",
}
VERBS = {
    *("add", "claim", "finish", "finish_many", "extend", "release", "expire", "leases"),
    *("stats", "heatmap", "explain", "queues", "tasks", "dead", "events"),
    *("pause", "resume", "cancel", "drop", "configure", "replay", "purge", "queue"),
    *("forget", "delete_crawl"),
}
ACTS = {"set", "pause", "resume", "retire", "revive", "snooze", "wake", "view"}

FIELDS = {
    "Link": {
        "url": inspect.Parameter.empty,
        "key": None,
        "type": "page",
        "depth": 0,
        "priority": None,
        "base_priority": None,
        "bias": 0.0,
        "forced": False,
        "origin": None,
        "via": None,
        "tag": None,
        "delay": 0.0,
        "known": "keep",
        "identity": None,
        "meta": {},
        "text": None,
        "done": False,
        "fingerprint": None,
        "found": None,
    },
    "Done": {
        "status": inspect.Parameter.empty,
        "seconds": 0.0,
        "bytes": 0,
        "digest": None,
        "etag": None,
        "last_modified": None,
        "crawl_delay": None,
        "revisit_in": None,
        "reward": None,
        "from_cache": False,
        "throttled": None,
    },
    "Failed": {
        "reason": inspect.Parameter.empty,
        "seconds": 0.0,
        "retry_in": None,
        "crawl_delay": None,
    },
    "Throttled": {"retry_after": None, "seconds": 0.0, "crawl_delay": None},
    "Blocked": {"reason": inspect.Parameter.empty, "seconds": 0.0, "crawl_delay": None},
    "Unreachable": {"reason": inspect.Parameter.empty, "crawl_delay": None},
    "Dropped": {
        "reason": inspect.Parameter.empty,
        "seconds": 0.0,
        "crawl_delay": None,
        "visited": True,
    },
}


def members(kind):
    """The public methods and properties of a class."""
    return [(name, getattr(kind, name)) for name in dir(kind) if not name.startswith("_")]


def test_all_is_what_can_be_imported():
    """Every name of `__all__` is there, and nothing public is left out but the rooms."""
    rooms = {path.stem for path in ROOT.iterdir() if path.suffix in ("", ".py")}
    found = {name for name in vars(outrider) if not name.startswith("_")} - rooms
    later = {"CrawlReport", "crawl"}  # need an extra, and are imported when asked for

    assert found - {"TYPE_CHECKING", "Any"} | later | {"__version__"} == set(outrider.__all__)
    assert len(outrider.__all__) == len(set(outrider.__all__))


def test_the_promised_names_are_there():
    """What users write."""
    assert set(outrider.__all__) >= PROMISED
    assert {name for name, _ in members(outrider.Frontier)} >= VERBS
    assert {name for name, _ in members(QueueHandle)} >= ACTS


@pytest.mark.parametrize("name", sorted(outrider.__all__))
def test_every_public_name_is_documented(name):
    """Where it is made: a class or function says what it promises."""
    value = getattr(outrider, name)
    if isinstance(value, type) or inspect.isfunction(value):
        assert value.__doc__
        assert value.__module__.split(".")[0] == "outrider"


@pytest.mark.parametrize(
    "kind", [outrider.Frontier, blocking.Frontier, QueueHandle, blocking.QueueHandle]
)
def test_every_public_method_has_a_docstring(kind):
    """Its own, not one that it inherits from object."""
    bare = [name for name, member in members(kind) if not (member.__doc__ or "").strip()]

    assert bare == []


@pytest.mark.parametrize("name", sorted({*FIELDS, "Added", "Event", "Lease", "Settings"}))
def test_values_are_introspectable(name):
    """`help`, notebooks, Hypothesis and msgspec ask a class for its signature and its types."""
    kind = getattr(outrider, name)

    assert inspect.signature(kind).parameters
    assert typing.get_type_hints(kind)


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_values_have_the_promised_fields_and_defaults(name):
    """As ARCHITECTURE.md writes them."""
    kind = getattr(outrider, name)

    assert kind.__struct_fields__ == tuple(FIELDS[name])
    required = [key for key, value in FIELDS[name].items() if value is inspect.Parameter.empty]
    made = kind(**dict.fromkeys(required, "x"))
    for key, default in FIELDS[name].items():
        if key not in required:
            assert getattr(made, key) == default


def test_the_public_fields_of_a_lease_are_there():
    """`Lease` has at least these."""
    names = {name for name, _ in members(outrider.Lease)}

    assert names >= {"url", "key", "type", "depth", "attempt", "meta", "token", "worker"}
    assert {name for name, _ in members(outrider.Added)} >= {"url", "added", "reason", "priority"}


def test_errors_have_one_root():
    """Catch OutriderError to catch all of ours."""
    errors = importlib.import_module("outrider.errors")
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    ours = [kind for kind in kinds if kind.__module__ == "outrider.errors"]

    assert all(issubclass(kind, outrider.OutriderError) for kind in ours)
    assert {kind.__name__ for kind in ours} <= set(outrider.__all__)


def test_store_has_six_verbs_in_batches():
    """M2: the hot path is six verbs; the other protocols repeat none of them."""
    hot = {"add", "claim", "extend", "finish", "release", "expire"}

    assert verbs(Store) == hot
    assert not hot & (verbs(Admin) | verbs(Inspect))


def verbs(protocol):
    """List the async methods of a protocol."""
    return {
        name
        for name, value in vars(protocol).items()
        if callable(value) and not name.startswith("_") and value.__code__.co_flags & 0x80
    }
