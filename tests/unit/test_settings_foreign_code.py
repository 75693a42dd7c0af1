"""Code is never named by data: every setting that may name code, every way in, every spelling.

A canary module is on the import path. A way in takes settings from outside the process; whatever it
takes, the canary is neither imported nor called, and a refusal names the path.
"""

import ast
import asyncio
import json
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from msgspec import inspect

from outrider import Frontier, SettingsError
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import Set
from outrider.errors import OutriderError
from outrider.executor.poll import strategy_of
from outrider.fetch.block_detector import detector_of
from outrider.frontier.export import ExportWriter
from outrider.frontier.live_settings import RUNTIME_SETTINGS
from outrider.settings import Settings, refuse_foreign_code
from outrider.settings.errors import dotted_path
from outrider.settings.field_types import fields_of, struct_kind
from outrider.settings.foreign_code import MAX_POSTED, NAMELESS, code_overrides, code_paths
from outrider.settings.paths import LOCAL_PATHS, tree_of
from outrider.store.export_items import SavedCrawl, SavedEnd, SavedNote
from outrider.store.factory import open_store
from outrider.store.memory import MemoryStore
from outrider.store.protocol import SharedValueWrite
from outrider.testing import FakeClock
from outrider.wiring import joined

CANARY = "canary_of_the_gate"
REFERENCE = f"{CANARY}:anything"
SOURCE = Path(__file__).parents[2] / "src" / "outrider"

# Every setting that may name code; by key in both spellings, and under other letter cases.
PLACES = {
    **{dotted_path(path): (*path,) for path in sorted(code_paths())},
    **{f"by key: {name}": ("keys", "a.example", name) for name in sorted(code_overrides())},
    **{f"nested: {n}": ("keys", "a.example", "budget", n) for n in sorted(code_overrides())},
    **{f"suffix: {name}": ("keys", ".Example", name) for name in sorted(code_overrides())},
}
SPELLINGS = {
    "plain": REFERENCE,
    "attribute": f"{REFERENCE}.score",
    "submodule": f"{CANARY}.anything:score",
    "nameless": NAMELESS + REFERENCE,
    "space": f" {REFERENCE}",
    "line end": f"{REFERENCE}\n",
    "space inside": f"{CANARY} : anything",
    "upper case": REFERENCE.upper(),
    "wide colon": REFERENCE.replace(":", "\uff1a"),
    "wide letter": REFERENCE.replace("c", "\uff43", 1),
    "null": f"{REFERENCE}\0",
    "list": [REFERENCE],
    "list of lists": [[REFERENCE]],
    "list with others": ["host", REFERENCE],
    "table": {"module": CANARY, "function": "anything"},
    "table of one": {REFERENCE: True},
}
SPELLED_OUT = {"plain", "attribute", "submodule", "list"}  # that the process itself might give
HOSTILE = [
    pytest.param(path, value, id=f"{place} {spelling}")
    for place, path in PLACES.items()
    for spelling, value in SPELLINGS.items()
]

_events: list[str] = []


def _watch(event, arguments):
    if event == "import" and str(arguments[0]).casefold().startswith(CANARY):
        _events.append(arguments[0])


sys.addaudithook(_watch)  # it cannot be removed, and ignores all other modules


@pytest.fixture(scope="module", autouse=True)
def canary(tmp_path_factory):
    """A module that fits every place: as a function, a scorer and a stage."""
    folder = tmp_path_factory.mktemp("modules")
    code = "def anything(*_, **__):\n    raise SystemExit('called')\nanything.score = anything\n"
    (folder / f"{CANARY}.py").write_text(code)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    sys.modules.pop(CANARY, None)


@pytest.fixture(autouse=True)
def unused():
    """Whatever a test does, the canary stays where it is."""
    _events.clear()
    yield
    assert (_events, CANARY in sys.modules) == ([], False)


def _hostile_tree(path, value):
    return tree_of([(path, value)])


async def _work(frontier):
    """Whatever a worker does with its settings: read, admit, lease, run."""
    with suppress(OutriderError):
        await frontier.config()
        await frontier.add(["https://a.example/1", "https://b.example/2"])
        await frontier.claim(2)
        strategy_of(frontier.settings.executor)
        detector_of(frontier.settings.fetch.detector)
        async with joined(frontier):
            pass


async def _use(store):
    """Join the crawl as a worker, then open it as its owner."""
    for opened in (Frontier.attach, Frontier.open):
        with suppress(OutriderError):
            async with opened(store, clock=FakeClock()) as frontier:
                await _work(frontier)


# ---- ways in that must stay readable: code is left out


async def _by_stored_text(store, path, value):
    await store.configure("default", CrawlRules(), json.dumps(_hostile_tree(path, value)))


async def _by_shared_value(store, path, value):
    text = json.dumps({"value": value, "by": REFERENCE})
    for name in (dotted_path(path), ".".join(path)):
        await store.put_values("default", [SharedValueWrite(RUNTIME_SETTINGS, name, text)])


async def _by_rules(store, path, value):
    changes = {path[-1]: value}
    rules = CrawlRules(keys={"a.example": changes}, said={".example": changes})
    with suppress(OutriderError, TypeError, ValueError):  # some rules no store takes
        await store.configure("default", rules)
        await store.steer("default", "b.example", Set(changes))


async def _by_export(store, path, value):
    text = json.dumps(_hostile_tree(path, value))
    note = json.dumps({"value": value})
    writer = ExportWriter()
    lines = [
        writer.head("default", 0.0),
        writer.block([SavedNote(RUNTIME_SETTINGS, dotted_path(path), note)]),
        writer.block([SavedCrawl("default", 0, CrawlRules(), settings=text), SavedEnd()]),
        writer.tail(),
    ]
    with suppress(OutriderError):
        async with Frontier.attach(store, clock=FakeClock()) as frontier:
            await frontier.restore(lines)


KEPT = {
    "stored text": _by_stored_text,
    "shared value": _by_shared_value,
    "rules": _by_rules,
    "export": _by_export,
}


@pytest.mark.parametrize("way", KEPT.values(), ids=[*KEPT])
@pytest.mark.parametrize(("path", "value"), HOSTILE)
def test_code_that_a_store_names_is_left_out(way, path, value):
    """N1: by whoever it was written; the crawl stays readable."""

    async def played():
        store = MemoryStore(FakeClock())
        with suppress(OutriderError):
            await way(store, path, value)
        await _use(store)

    asyncio.run(played())


@pytest.mark.parametrize("way", [_by_stored_text, _by_shared_value], ids=["text", "value"])
@pytest.mark.parametrize("place", PLACES)
async def test_code_that_a_client_of_the_socket_names_is_left_out(way, place, tmp_path):
    """N1: the holder of the file, and whoever joins it later."""
    path, file = PLACES[place], str(tmp_path / "crawl.outrider")
    value = [REFERENCE] if path[-1] == "pipeline" else REFERENCE
    async with Frontier.open(file, clock=FakeClock()) as holder:
        client = await open_store(file, FakeClock())
        with suppress(OutriderError):
            await way(client, path, value)
        await client.close()
        await holder.learn()
        await _work(holder)
    await _use(file)


@pytest.mark.parametrize("place", PLACES)
async def test_attached_frontier_refuses_to_change_code(place):
    """N1: its changes are for all workers; the error names the path."""
    path = PLACES[place]
    value = [REFERENCE] if path[-1] == "pipeline" else REFERENCE
    async with Frontier.attach(MemoryStore(FakeClock()), clock=FakeClock()) as frontier:
        with pytest.raises(SettingsError, match=path[-1]) as refused:
            await frontier.configure(_hostile_tree(path, value))

        assert path[0] in str(refused.value)
        assert await frontier.config_history() == []


# ---- the gate: code is refused


def _spelled(tree):
    yield tree
    yield json.dumps(tree)
    yield json.dumps(tree).encode()


@pytest.mark.parametrize(("path", "value"), HOSTILE)
def test_gate_refuses_code_in_every_spelling(path, value):
    """N1: the error names where it comes from, and the path."""
    for given in _spelled(_hostile_tree(path, value)):
        with pytest.raises(SettingsError, match="the request") as refused:
            refuse_foreign_code(given, "the request")

        assert path[0] in str(refused.value)
        assert any(name in str(refused.value) for name in path[1:])


@pytest.mark.parametrize("place", PLACES)
def test_gate_refuses_functions_and_objects(place):
    """N1: a tree from Python may have them, and comes from outside all the same."""
    path = PLACES[place]
    for value in (print, object(), _Scorer(), (print,)):
        with pytest.raises(SettingsError, match=path[-1]):
            refuse_foreign_code(_hostile_tree(path, value), "the request")


class _Scorer:
    features = ()

    def score(self, batch):
        raise AssertionError(batch)


def test_gate_names_every_path():
    """N1: one answer for all of them."""
    chosen = [path for place, path in PLACES.items() if not place.startswith("nested")]
    leaves = [(path, REFERENCE) for path in chosen if path[-1] != "pipeline"]
    text = json.dumps(tree_of(leaves))

    with pytest.raises(SettingsError) as refused:
        refuse_foreign_code(text, "the request")

    flat = {("keys", p[1].lower(), p[-1]) if p[0] == "keys" else p for p, _ in leaves}
    assert [p for p in flat if f"{dotted_path(p)} = {REFERENCE!r}" not in str(refused.value)] == []


@pytest.mark.parametrize("path", LOCAL_PATHS, ids=dotted_path)
@pytest.mark.parametrize("value", ["/var/x", "x", "../x", ""])
def test_gate_refuses_paths_of_this_machine(path, value):
    """N1: a request would choose where this machine writes, or that it writes no more."""
    for given in _spelled(_hostile_tree(path, value)):
        with pytest.raises(SettingsError) as refused:
            refuse_foreign_code(given, "the request")

        assert str(refused.value) == (
            f"the request: {dotted_path(path)} = {value!r}: paths of this machine are only named by"
            " the process that runs it; name it on the command line, in the environment, a file or"
            " the program itself"
        )


def test_gate_names_code_and_paths_in_one_answer():
    """N1: with the path of each."""
    tree = {"queue": {"key": REFERENCE}, "fetch": {"cache": "/var/x", "cache_bytes": 5}}
    with pytest.raises(SettingsError) as refused:
        refuse_foreign_code(tree, "the request")

    start = f"the request: queue.key = {REFERENCE!r}, fetch.cache = '/var/x': code and paths of"
    assert str(refused.value).startswith(start)


@pytest.mark.parametrize("spelled", ["Output.path", "output.Path", "output.path.x"])
def test_gate_refuses_unknown_spellings_of_a_path(spelled):
    """N1: what is no setting is refused, so nothing passes by another name."""
    with pytest.raises(SettingsError, match="the request"):
        refuse_foreign_code(_hostile_tree(tuple(spelled.split(".")), "/var/x"), "the request")


def test_every_setting_that_is_a_path_is_behind_the_gate():
    """N1: a new one that says so in its description must be listed."""
    found = {
        path
        for path, kind in _described(struct_kind(Settings))
        if "path of" in kind or "file names" in kind
    }

    assert found == {*LOCAL_PATHS}


def _described(kind, path=()):
    """Every setting that is text, with its description."""
    for name, field in fields_of(kind).items():
        inner = field.kind.type if isinstance(field.kind, inspect.Metadata) else field.kind
        if isinstance(inner, inspect.StructType):
            yield from _described(inner, (*path, name))
        elif isinstance(inner, inspect.StrType):
            extra = field.kind.extra_json_schema if inner is not field.kind else None
            yield (*path, name), (extra or {}).get("description", "")


@pytest.mark.parametrize(
    "text",
    [
        f'{{"queue": {{"key": "{REFERENCE}", "key": "host"}}}}',
        f'{{"queue": {{"key": "{REFERENCE}"}}, "queue": {{}}}}',
        f'queue.key = "{REFERENCE}"\nqueue.key = "host"',
        f'[queue]\nkey = "{REFERENCE}"\n[queue]\nkey = "host"',
        f'{{"keys": {{"a.example": {{"cost": "{REFERENCE}"}}, "A.example": {{}}}}}}',
        f'{{"keys": {{"a.example": {{"cost": "{REFERENCE}", "budget": {{"cost": "unit"}}}}}}}}',
        f'{{"profile": "{REFERENCE}"}}',
        f'{{"Queue": {{"key": "{REFERENCE}"}}}}',
        f'{{"queue": {{"KEY": "{REFERENCE}"}}}}',
        f'{{"queue": {{"key ": "{REFERENCE}"}}}}',
        f'{{"queue": {{"queue": {{"key": "{REFERENCE}"}}}}}}',
        f'{{"settings": {{"queue": {{"key": "{REFERENCE}"}}}}}}',
        f'{{"queue.key": "{REFERENCE}"}}',
        f'\ufeff{{"queue": {{"key": "{REFERENCE}"}}}}',
        f'"queue"."key" = "{REFERENCE}"',
        f"'queue'.'key' = '{REFERENCE}'",
        f'queue."\\u006bey" = "{REFERENCE}"',
        f'queue = {{ key = "{CANARY}\\u003aanything" }}',
        f"queue.key = '''{REFERENCE}'''",
        '{"queue": ' * 100_000,
        "a = " + "[" * 100_000,
        '{"queue": NaN}',
        b"\xff\xfe",
        " " * (MAX_POSTED + 1),
        [("queue", {"key": REFERENCE})],
        None,
    ],
    ids=lambda text: repr(text)[:40],
)
def test_gate_refuses_ambiguous_and_unreadable_texts(text):
    """N1: names given twice, unknown names, nesting, encodings, sizes."""
    with pytest.raises(SettingsError, match="the request: "):
        refuse_foreign_code(text, "the request")


@pytest.mark.parametrize(
    ("given", "tree"),
    [
        ({}, {}),
        ("", {}),
        ("{}", {}),
        ({"queue": {"key": "domain"}}, {"queue": {"key": "domain"}}),
        ('{"queue": {"key": "buckets:4"}}', {"queue": {"key": "buckets:4"}}),
        ('profile = "news"\n[lanes]\nburst = 3', {"profile": "news", "lanes": {"burst": 3}}),
        (b'{"keys": {"A.example": {"delay": null}}}', {"keys": {"A.example": {"delay": None}}}),
        ({"budget": {"cost": "wag"}, "scope": {"function": None}},) * 2,
        # A reference where no code is looked for is a text.
        ({"fetch": {"user_agent": REFERENCE}},) * 2,
    ],
    ids=str,
)
def test_gate_returns_settings_without_code(given, tree):
    """N1: as they were given; they are applied by `configure`."""
    assert refuse_foreign_code(given, "the request") == tree


async def test_settings_that_passed_the_gate_can_be_applied():
    """N1: the way of a request."""
    async with Frontier.open(clock=FakeClock()) as frontier:
        posted = refuse_foreign_code('{"lanes": {"burst": 3}}', "PUT /settings")

        assert (await frontier.configure(posted)).lanes.burst == 3


# ---- what the process itself names still works


def own_key(url):
    """A keying of this process."""
    return url.host or ""


def own_scope(url):
    """A scope of this process."""
    return "b.example" not in str(url)


@asynccontextmanager
async def _opened(path, settings):
    async with Frontier.open(path, settings=settings, clock=FakeClock()) as frontier:
        yield frontier


async def test_process_keeps_its_own_functions_beside_a_hostile_client(tmp_path):
    """N1: it opens, is joined through the socket with functions of that process, and reopens."""
    path = str(tmp_path / "crawl.outrider")
    own = {"queue": {"key": own_key}, "scope": {"function": own_scope}}
    links = ["https://a.example/1", "https://b.example/1"]
    async with _opened(path, own) as holder:
        assert (await holder.add(links)).added == 1
        async with _opened(path, own) as second:
            await _by_stored_text(second.store, ("queue", "key"), REFERENCE)
            await _by_shared_value(second.store, ("scope", "function"), REFERENCE)
            await second.listen()
            assert (await second.add([link + "2" for link in links])).added == 1
            assert second.settings.queue.key is own_key
        await holder.listen()
        assert (await holder.add([link + "3" for link in links])).added == 1
        assert holder.settings.scope.function is own_scope
    async with _opened(path, own) as again:
        assert (await again.add([link + "4" for link in links])).added == 1
    async with Frontier.attach(path, settings=own, clock=FakeClock()) as worker:
        assert not worker.lacks
        assert (await worker.add([link + "5" for link in links])).added == 1


def _resolved_names():
    """The settings that some code resolves, as it names them."""
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "resolve":
                yield file.name, ast.unparse(node.args[-1]).removeprefix("f").strip("'")


def test_every_setting_that_is_resolved_is_behind_the_gate():
    """N1: what is imported by name is a marked setting, or a handler of the process itself."""
    marked = {dotted_path(path) for path in code_paths()} | {"keys.{key}.cost", "handler"}

    found = dict.fromkeys(_resolved_names())

    assert len(found) > 8
    assert [one for one in found if one[1] not in marked] == []


def test_modules_are_imported_by_name_in_known_places():
    """N1: settings, and the child processes that the page handler starts with its own names."""
    found = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if "import_module" in file.read_text("utf-8") or "__import__" in file.read_text("utf-8")
    }

    assert found == {"settings/code_references.py", "fetch/child_main.py"}
