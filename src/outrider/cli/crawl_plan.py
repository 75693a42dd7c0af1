"""Plans of `crawl` and `work`: options become settings, file names and seeds.

Everything is checked before anything is opened.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from outrider.clock import Clock, SystemClock
from outrider.core.url import Url, UrlRules, parse_url
from outrider.errors import InvalidInput, SettingsError
from outrider.executor.handlers import DEFAULT
from outrider.output.jsonl import ITEMS
from outrider.output.worker_files import without_suffix
from outrider.settings import (
    Layer,
    Layers,
    Settings,
    environment_layer,
    file_layer,
    parse_assignments,
    resolve,
)
from outrider.settings.code_references import is_reference
from outrider.settings.errors import dotted_path
from outrider.settings.foreign_code import is_code_path
from outrider.settings.paths import overlay
from outrider.settings.profiles import PROFILE
from outrider.settings.stored import OWN
from outrider.store.address import check_address, hide_addresses, show_address
from outrider.store.factory import peek_file
from outrider.store.health import Holder
from outrider.wiring import SITES, SITES_LAYER, page_functions

SUFFIX: Final = ".outrider"
_OUTPUT_NAMES: Final = {"jsonl": ".jsonl", "warc": "-*.warc.gz"}
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")
_STORE_SUFFIXES: Final = ("", "-wal", "-shm", "-lock")  # a crawl's own files
COMMAND_TIMEOUT: Final = 10.0  # seconds for a command to close the file it opened
LOOK_INTERVAL: Final = 0.1  # seconds between two looks at who holds a file
TELL_AFTER_LOOKS: Final = 10
_LIMIT_OPTIONS: Final = ("--max-pages", "--max-time", "--max-per-host")
_STEM_SUFFIXES: Final = (
    ".jsonl",
    ".items.jsonl",
    ".jsonl.journal",
    ".items.jsonl.journal",
    ".warc.journal",
    ".robots",
    ".log",
)


class CrawlRequest(msgspec.Struct, frozen=True):
    """The command line of `crawl`."""

    urls: Sequence[str]
    seeds: str | None
    store: str | None
    options: Mapping[str, Mapping[str, Any]]  # section → name → value; None: not given
    settings: str | None
    assign: Sequence[str]
    log: str | None
    handler: Sequence[str]  # [TYPE=]MODULE:FUNCTION each
    crawl: str = "default"
    profile: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """A crawl to run: its store, seeds, settings and files."""

    store: str
    urls: tuple[str, ...]
    settings: Settings
    handlers: Mapping[str, str]  # type → module:function
    log: str
    crawl: str = "default"
    layers: Layers | None = None  # that the settings are made of
    file: str | None = None  # of settings, followed while the crawl runs

    @property
    def output_stem(self) -> str:
        """The prefix of output file names."""
        return without_suffix(self.settings.output.path)

    @property
    def files(self) -> dict[str, str]:
        """The files of the crawl, by content, for the closing table."""
        found = {"crawl": show_address(self.store)}
        output = self.settings.output
        if output.path and output.format != "none":
            found["pages"] = self.output_stem + _OUTPUT_NAMES[output.format]
        if output.path and Path(self.output_stem + ITEMS).exists():
            found["items"] = self.output_stem + ITEMS
        if self.log:
            found["log"] = self.log
        return found


def make_plan(request: CrawlRequest) -> Plan:
    """Make the plan, or raise InvalidInput with the first problem."""
    urls = [*request.urls, *(_read_lines(request.seeds) if request.seeds else ())]
    store = request.store or _store_name(urls)
    check_address(store)
    stem = file_stem(store, request.crawl)
    beside = {"output": {"path": stem}, "fetch": {"robots_cache": f"{stem}.robots"}}
    usual = replace(SITES_LAYER, tree=overlay(SITES, beside))
    given = read_layers(request.settings, request.options, request.assign, request.profile)
    layers = replace(given, usual=usual)
    settings = layers.base_settings().settings
    seeds = tuple(_check_url(url, settings.url) for url in urls)
    log = stem + ".log" if request.log is None else request.log
    return Plan(
        *(store, seeds, settings, parse_handlers(request.handler)),
        *(log, request.crawl, layers, request.settings),
    )


def parse_handlers(given: Sequence[str]) -> dict[str, str]:
    """Functions by type of task from `--handler` options; one without a type is for all others."""
    found: dict[str, str] = {}
    for text in given:
        kind, equals, name = text.rpartition("=")
        kind = kind if equals else DEFAULT
        _check_handler(text, kind, name)
        if kind in found:
            whose = "without a type" if kind == DEFAULT else f"of type {kind}"
            raise InvalidInput(
                f"--handler: two {whose}, {found[kind]} and {name}; give one, and let it call both"
            )
        found[kind] = name
    return found


def _check_handler(text: str, kind: str, name: str) -> None:
    if not kind:
        raise InvalidInput(
            f"--handler {text}: there is no type before the =; "
            f"give TYPE={name}, or {name} for every type"
        )
    if not is_reference(name):
        raise InvalidInput(
            f"--handler {text}: {name or 'nothing'} is no function; "
            "give MODULE:FUNCTION or TYPE=MODULE:FUNCTION"
        )


def _read_lines(path: str) -> list[str]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"--from {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"--from {path}: not UTF-8: {error}") from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _with_scheme(text: str) -> str:
    """A URL without a scheme becomes https."""
    return text if "://" in text else f"https://{text}"


def _check_url(text: str, rules: UrlRules) -> str:
    scheme, is_url, _ = text.partition("://")
    if is_url and scheme.lower() not in {"http", "https"}:
        fix = "remove it; give the address of a store with --store"
        raise InvalidInput(f"{show_address(text)} is neither http nor https: {fix}")
    url = parse_url(_with_scheme(text), rules)
    if isinstance(url, Url):
        return url.text
    raise InvalidInput(f"{text}: {url.detail}")


def _store_name(urls: Sequence[str]) -> str:
    """The default store: a file named after the first seed's host."""
    if not urls:
        raise InvalidInput("nothing to crawl: give a URL, or --store FILE to resume a crawl")
    url = parse_url(_with_scheme(urls[0]), UrlRules(allow_private=True))
    host = url.host if isinstance(url, Url) else ""
    return (_NOT_IN_NAMES.sub("-", host).strip("-.") or "crawl") + SUFFIX


def file_stem(store: str, crawl: str = "default") -> str:
    """The prefix of the names of a crawl's other files."""
    if "://" not in store:
        return store.removesuffix(SUFFIX)
    name = _NOT_IN_NAMES.sub("-", crawl.lower()).strip("-.")
    return name if name and crawl != "default" else "crawl"


def read_layers(
    settings: str | None,
    options: Mapping[str, Mapping[str, Any]],
    assign: Sequence[str],
    profile: str | None,
) -> Layers:
    """The settings of the file, the environment and the command line, as layers."""
    given = {
        section: {name: value for name, value in fields.items() if value is not None}
        for section, fields in options.items()
    }
    tree = overlay(
        {name: fields for name, fields in given.items() if fields}, parse_assignments(assign)
    )
    if profile is not None:
        tree[PROFILE] = profile
    return Layers(
        file=None if settings is None else _settings_file(settings),
        environment=environment_layer(),
        command=Layer("command line", tree),
    )


def _settings_file(path: str) -> Layer:
    try:
        return file_layer(path)
    except SettingsError as error:
        raise SettingsError(f"--settings {error}") from error


def prepare_files(plan: Plan, *, start_over: bool, tell: Callable[[str], None]) -> None:
    """Check files and rename old ones before the crawl is opened."""
    _check_plan(plan)
    if "://" not in plan.store:
        asyncio.run(wait_for_command(plan.store, SystemClock(), tell))
    if start_over:
        for name in rename_old_files(plan.store, {file_stem(plan.store), plan.output_stem}):
            tell(f"renamed an old file to {name}")
    if "://" in plan.store:
        return
    check_not_held(plan.store, may_join=True)
    if not plan.urls and not Path(plan.store).exists():
        raise InvalidInput(
            f"no such file: {show_address(plan.store)}; give a URL to start a crawl in it"
        )


def _check_plan(plan: Plan) -> None:
    """Raise what would be refused later, before anything is renamed or created."""
    settings, is_file = plan.settings, "://" not in plan.store
    page_functions(plan.handlers)
    for stage in settings.executor.pipeline:
        resolve(stage, "executor.pipeline")
    for path in (plan.log, settings.output.path, plan.store if is_file else ""):
        folder = Path(path).parent
        if path and not folder.is_dir():
            raise InvalidInput(f"{path}: there is no directory {folder}; create it first")


async def wait_for_command(store: str, clock: Clock, tell: Callable[[str], None]) -> None:
    """Wait while a command holds the file that will close it soon, as a reader does (M3)."""
    for look in range(round(COMMAND_TIMEOUT / LOOK_INTERVAL)):
        holder = _holder_of(store)
        if holder is None or holder.purpose != "command":
            return
        if look == TELL_AFTER_LOOKS:
            tell(f"{show_address(store)} is in use by {holder.name}; waiting until it is closed")
        await clock.sleep(LOOK_INTERVAL)


def _holder_of(store: str) -> Holder | None:
    return peek_file(store)[0] if Path(store).exists() else None


def check_not_held(store: str, *, may_join: bool = False) -> None:
    """Raise InvalidInput if a process holds the file.

    With `may_join`, a worker may hold it: it serves the crawl, and writes other output files. A
    second crawl would write the same ones.
    """
    holder = _holder_of(store)
    if holder is None or (may_join and holder.purpose == "work"):
        return
    place = shlex.quote(show_address(store))
    beside = f"visit pages beside it with `outrider work {place}`, " if may_join else ""
    raise InvalidInput(
        f"{show_address(store)} is in use by {holder.name}; "
        f"watch it with `outrider watch {place}`, {beside}or end it first"
    )


def rename_old_files(store: str, stems: Collection[str]) -> list[str]:
    """Rename the files of the old crawl for --start-over; nothing is deleted."""
    if "://" in store:
        place = show_address(store)
        raise InvalidInput(
            f"--start-over renames the files of the old crawl, but {place} is not a file; "
            "use --crawl NAME"
        )
    check_not_held(store)
    old = [path for path in dict.fromkeys(_old_files(store, stems)) if path.exists()]
    mark = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    return [str(path.rename(_free_name(path, mark))) for path in old]


def _free_name(path: Path, mark: str) -> Path:
    """A file name that does not exist yet, so that nothing is overwritten."""
    first = path.with_name(f"{path.name}.{mark}")
    names = chain([first], (path.with_name(f"{first.name}-{n}") for n in count(2)))
    return next(name for name in names if not name.exists())


def _old_files(store: str, stems: Collection[str]) -> Iterator[Path]:
    yield from (Path(store + ending) for ending in _STORE_SUFFIXES)
    for stem in filter(None, stems):
        yield from (Path(stem + ending) for ending in _STEM_SUFFIXES)
        base = Path(stem)
        yield from sorted(base.parent.glob(f"{_escape_glob(base.name)}-[0-9]*.warc.gz"))


def _escape_glob(name: str) -> str:
    return re.sub(r"([\[*?])", r"[\1]", name)


def resume_command(
    store: str, arguments: Sequence[str] | None = None, *, limited: bool = False
) -> str:
    """The command line that resumes: the same without options that would restart or stop it."""
    words = [word for word in (arguments or sys.argv[1:]) if word != "--start-over"]
    if limited:
        words = list(_without_options(words, _LIMIT_OPTIONS))
    if not any(word == "--store" or word.startswith("--store=") for word in words):
        words += ["--store", store]
    return shlex.join(["outrider", *(_without_secrets(word, store) for word in words)])


def _without_secrets(word: str, store: str) -> str:
    """A word of a command line without the secrets of a store's address or a page's URL."""
    if word in (store, f"--store={store}"):
        return word.removesuffix(store) + show_address(store)
    return hide_addresses(word, [word]) if "://" in word and "@" in word else word


def _without_options(words: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """The words of a command line without these options and their values."""
    rest = iter(words)
    for word in rest:
        if word in options:
            next(rest, None)
        elif not word.startswith(tuple(f"{option}=" for option in options)):
            yield word


# ---- the plan of a worker


class WorkRequest(msgspec.Struct, frozen=True):
    """The command line of `work`."""

    store: str
    crawl: str
    options: Mapping[str, Mapping[str, Any]]  # section → name → value; None: not given
    settings: str | None
    assign: Sequence[str]
    log: str | None
    handler: Sequence[str]  # [TYPE=]MODULE:FUNCTION each
    isolate: bool
    stays: bool
    profile: str | None = None


def own_layers(request: WorkRequest) -> Layers:
    """The worker's settings from file, environment, options and `--set`; checks handlers too."""
    page_functions(parse_handlers(request.handler))
    layers = read_layers(request.settings, request.options, request.assign, request.profile)
    layers.base_settings()
    return layers


def ignored_settings(own: Layers) -> list[str]:
    """Given settings that the crawl decides; those that a profile sets are not listed."""
    given = (own.file, own.environment, own.command)
    paths = [path for layer in given if layer for path, _ in layer.leaf_origins()]
    foreign = [path for path in paths if path[0] not in (*OWN, PROFILE) and not is_code_path(path)]
    return [dotted_path(name) for name in dict.fromkeys(path[:2] for path in foreign)]


def worker_stem(request: WorkRequest, own: Layers) -> str:
    """The prefix of all workers' file names, without host and number."""
    path = own.base_settings().settings.output.path or file_stem(request.store, request.crawl)
    return without_suffix(path)


def with_files(name: str, own: Layers) -> Layers:
    """The same settings with this worker's file names."""
    robots = own.base_settings().settings.fetch.robots_cache or f"{name}.robots"
    beside = {"output": {"path": name}, "fetch": {"robots_cache": robots}}
    return replace(own, given=Layer("worker files", beside))


def worker_output(name: str, settings: Settings, log: str) -> dict[str, str]:
    """The files of a worker, by content, for the closing table."""
    found, form = {}, settings.output.format
    if form != "none":
        found["pages"] = name + _OUTPUT_NAMES[form]
    if Path(name + ITEMS).exists():
        found["items"] = name + ITEMS
    if log:
        found["log"] = log
    return found
