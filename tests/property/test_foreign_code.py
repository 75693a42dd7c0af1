"""No text that a store, a file or an export holds ever makes a process import code.

A canary module can be imported, and every position a reference could stand in gets its name. The
process that opens, joins, reads and works on such a crawl must never import it.
"""

import asyncio
import importlib
import json
import sys
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import inspect

from outrider import Frontier
from outrider.core.policy.rules import CrawlRules
from outrider.errors import OutriderError
from outrider.executor.poll import strategy_of
from outrider.fetch.block_detector import detector_of
from outrider.frontier.export import ExportWriter
from outrider.frontier.live_settings import RUNTIME_SETTINGS
from outrider.settings import Settings
from outrider.settings.field_types import fields_of, struct_kind
from outrider.settings.validation import adjustable
from outrider.store.export_items import SavedCrawl, SavedEnd, SavedNote
from outrider.store.factory import open_store
from outrider.store.memory import MemoryStore
from outrider.store.protocol import SharedValueWrite
from outrider.testing import FakeClock
from outrider.wiring import joined

CANARY = "canary_of_a_store"
REFERENCE = f"{CANARY}:anything"
PAGE = "https://a.example/1"


@pytest.fixture(scope="module", autouse=True)
def canary(tmp_path_factory):
    """A module that fits every place: as a function, a scorer and a stage."""
    folder = tmp_path_factory.mktemp("modules")
    code = (
        "def anything(*_, **__):\n    return 1\nanything.score = anything\nanything.features = ()\n"
    )
    (folder / f"{CANARY}.py").write_text(code)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    sys.modules.pop(CANARY, None)


@pytest.fixture(scope="module")
def imported():
    """The names of all modules that were imported by name."""
    names, original = [], importlib.import_module

    def watched(name, package=None):
        names.append(name)
        return original(name, package)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib, "import_module", watched)
        yield names


def _fields(kind, path=()):
    """Every path of the tree, and how its names are spelt."""
    if isinstance(kind, inspect.Metadata):
        yield from _fields(kind.type, path)
    elif isinstance(kind, inspect.StructType):
        for name, field in fields_of(kind).items():
            yield (*path, name)
            yield from _fields(field.kind, (*path, name))


PATHS = sorted(set(_fields(struct_kind(Settings))))
KEYS = ["a.example", ".example", "A.Example", ".", "*.example", "", "budget"]
BY_KEY = [
    ("keys", key, *part, name)
    for key in KEYS
    for part in ((), ("budget",), ("politeness",), ("budget", "budget"))
    for name in (*adjustable(), "Cost", "cost ")
]
NAMES = sorted({name for path in (*PATHS, *BY_KEY) for name in path} | {"profile", "origins"})

references = st.sampled_from(
    [REFERENCE, f"?{REFERENCE}", f"{CANARY}:anything.score", f" {REFERENCE}", f"{REFERENCE}\n"]
)
leaves = references | st.sampled_from([None, True, 0, 1.5, "host", "unit", "tokens"])
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | references, inner, max_size=3)
    ),
    max_leaves=6,
)
paths = st.sampled_from(BY_KEY) | st.sampled_from(PATHS) | st.tuples(st.sampled_from(NAMES))


def _planted(tree, path, value):
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            return
    tree[path[-1]] = value


@st.composite
def trees(draw):
    """Settings with references to the canary in some places, most of them plausible."""
    tree = {"focus": {"on": True}} if draw(st.booleans()) else {}
    for path in draw(st.lists(paths, max_size=4)):
        _planted(tree, path, draw(references | st.lists(references, max_size=2) | values))
    return tree


def _dotted(path):
    return ".".join(json.dumps(name) for name in path)


kept_texts = st.one_of(trees().map(json.dumps), values.map(json.dumps), st.text(max_size=40))
noted = st.tuples(
    paths.map(_dotted) | paths.map(".".join) | st.text(min_size=1, max_size=20),
    (references | values).map(lambda value: json.dumps({"value": value, "by": REFERENCE}))
    | st.text(min_size=1, max_size=40),
)
runtime = st.lists(noted, max_size=4)
rules = st.sampled_from([CrawlRules(), CrawlRules(keys={"a.example": {"cost": REFERENCE}})])

NESTED = json.dumps({"keys": {"a.example": {"budget": {"cost": REFERENCE}}}})
NESTED_NOTE = ('keys."a.example".budget.cost', json.dumps({"value": REFERENCE}))


async def _work(frontier):
    """Whatever a worker does with its settings: read, admit, lease, run."""
    with suppress(OutriderError):
        await frontier.config()
        await frontier.config_history()
        await frontier.add([PAGE, "https://b.example/2"])
        await frontier.claim(2)
        strategy_of(frontier.settings.executor)
        detector_of(frontier.settings.fetch.detector)
        async with joined(frontier):
            pass


async def _visit(store):
    """Join the crawl as a worker, then open it as its owner."""
    for opened in (Frontier.attach, Frontier.open):
        with suppress(OutriderError):
            async with opened(store, clock=FakeClock()) as frontier:
                await _work(frontier)


def _assert_unused(imported):
    assert CANARY not in sys.modules
    assert CANARY not in imported


@given(text=kept_texts, rules=rules, notes=runtime)
@example(text=NESTED, rules=CrawlRules(), notes=[])
@example(text="{}", rules=CrawlRules(), notes=[NESTED_NOTE])
def test_worker_of_a_hostile_store_imports_nothing(imported, text, rules, notes):
    """The kept settings, the rules and the runtime settings are a store's to say."""

    async def played():
        store = MemoryStore(FakeClock())
        await store.configure("default", rules, text)
        with suppress(OutriderError):  # a name that no store takes
            await store.put_values(
                "default", [SharedValueWrite(RUNTIME_SETTINGS, name, said) for name, said in notes]
            )
        await _visit(store)

    asyncio.run(played())

    _assert_unused(imported)


def _exported(text, rules, notes):
    writer = ExportWriter()
    yield writer.head("default", 0.0)
    yield writer.block([SavedNote(RUNTIME_SETTINGS, name, said) for name, said in notes])
    yield writer.block([SavedCrawl("default", 0, rules, settings=text), SavedEnd()])
    yield writer.tail()


@given(text=kept_texts, rules=rules, notes=runtime)
@example(text=NESTED, rules=CrawlRules(), notes=[NESTED_NOTE])
def test_worker_of_a_restored_export_imports_nothing(imported, text, rules, notes):
    """An export is a file that anybody may have written."""

    async def played():
        store = MemoryStore(FakeClock())
        with suppress(OutriderError):
            async with Frontier.attach(store, clock=FakeClock()) as frontier:
                await frontier.restore(_exported(text, rules, notes))
                await _work(frontier)
        await _visit(store)

    asyncio.run(played())

    _assert_unused(imported)


@pytest.mark.parametrize("kind", ["embedded", "postgres", "redis", "remote"])
async def test_worker_of_a_foreign_store_imports_nothing(kind, imported, places, tmp_path):
    """Whichever store holds the text, and also through the process that has the file open."""
    file = str(tmp_path / "foreign.outrider")
    url = file if kind in {"embedded", "remote"} else places.take(kind)
    writer = await open_store(url, FakeClock())
    await writer.configure("default", CrawlRules(), NESTED)
    await writer.put_values("default", [SharedValueWrite(RUNTIME_SETTINGS, *NESTED_NOTE)])
    if kind != "remote":
        await writer.close()
    async with Frontier.attach(url, clock=FakeClock()) as frontier:
        await _work(frontier)
        lacks, settings = frontier.lacks, frontier.settings
    if kind == "remote":
        await writer.close()

    _assert_unused(imported)
    assert "cost" in lacks
    assert settings.keys == {"a.example": {}}


def test_canary_is_imported_for_the_process_itself(imported):
    """The same reference, given by the process: otherwise the tests above could not fail."""

    async def played():
        store = MemoryStore(FakeClock())
        await store.configure("default", CrawlRules(), NESTED)
        own = {"keys": {"a.example": {"cost": REFERENCE}}}
        async with Frontier.attach(store, settings=own, clock=FakeClock()) as frontier:
            return (await frontier.add([PAGE])).added

    try:
        assert asyncio.run(played()) == 1
        assert CANARY in imported
    finally:
        sys.modules.pop(CANARY, None)
        imported.clear()
