"""Options of `outrider crawl` → settings, files and seeds: decided before anything is opened."""

from __future__ import annotations

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

from outrider.core.url import Url, UrlRules, parse_url
from outrider.errors import InvalidInput, SettingsError
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
from outrider.settings.paths import overlay
from outrider.settings.profiles import PROFILE
from outrider.store.address import check_address, hide_addresses, show_address
from outrider.store.opening import glance
from outrider.wiring import SITES, SITES_LAYER

SUFFIX: Final = ".outrider"
_ENDINGS: Final = {"jsonl": ".jsonl", "warc": "-*.warc.gz"}
_STEM: Final = re.compile(r"[^a-z0-9.-]+")
_BESIDE: Final = ("", "-wal", "-shm", "-lock")  # a crawl's own files
_SPENT: Final = ("--max-pages", "--max-time", "--max-per-host")
_STEMMED: Final = (
    ".jsonl",
    ".items.jsonl",
    ".jsonl.journal",
    ".items.jsonl.journal",
    ".warc.journal",
    ".robots",
    ".log",
)


class Asked(msgspec.Struct, frozen=True):
    """What the command line said."""

    urls: Sequence[str]
    seeds: str | None
    store: str | None
    options: Mapping[str, Mapping[str, Any]]  # section → name → value; None: not given
    settings: str | None
    assign: Sequence[str]
    log: str | None
    handler: str | None
    crawl: str = "default"
    profile: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """What is to be done, and where it is kept."""

    store: str
    urls: tuple[str, ...]
    settings: Settings
    handler: str | None
    log: str
    crawl: str = "default"
    layers: Layers | None = None  # where the settings are from,
    file: str | None = None  # and the file among them, which is watched

    @property
    def output_stem(self) -> str:
        """What the names of output files begin with."""
        return without_suffix(self.settings.output.path)

    @property
    def files(self) -> dict[str, str]:
        """What a user may look for afterwards."""
        found = {"crawl": show_address(self.store)}
        output = self.settings.output
        if output.path and output.format != "none":
            found["pages"] = self.output_stem + _ENDINGS[output.format]
        if output.path and Path(self.output_stem + ITEMS).exists():
            found["items"] = self.output_stem + ITEMS
        if self.log:
            found["log"] = self.log
        return found


def planned(asked: Asked) -> Plan:
    """The whole plan, or the first thing that is wrong with it."""
    urls = [*asked.urls, *(_lines_of(asked.seeds) if asked.seeds else ())]
    store = asked.store or _named_after(urls)
    check_address(store)
    stem = stem_of(store, asked.crawl)
    beside = {"output": {"path": stem}, "fetch": {"robots_cache": f"{stem}.robots"}}
    usual = replace(SITES_LAYER, tree=overlay(SITES, beside))
    said = layers_of(asked.settings, asked.options, asked.assign, asked.profile)
    layers = replace(said, usual=usual)
    settings = layers.base_settings().settings
    checked = tuple(_checked(url, settings.url) for url in urls)
    log = stem + ".log" if asked.log is None else asked.log
    return Plan(store, checked, settings, asked.handler, log, asked.crawl, layers, asked.settings)


def _lines_of(path: str) -> list[str]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"--from {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"--from {path}: not UTF-8: {error}") from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _given(text: str) -> str:
    """A host without a scheme is taken as https."""
    return text if "://" in text else f"https://{text}"


def _checked(text: str, rules: UrlRules) -> str:
    scheme, is_url, _ = text.partition("://")
    if is_url and scheme.lower() not in {"http", "https"}:
        fix = "leave it out; the address of a store is given with --store"
        raise InvalidInput(f"{show_address(text)} is neither http nor https: {fix}")
    url = parse_url(_given(text), rules)
    if isinstance(url, Url):
        return url.text
    fix = "; --allow-private admits it" if url.reason == "private-address" else ""
    raise InvalidInput(f"{text}: {url.detail}{fix}")


def _named_after(urls: Sequence[str]) -> str:
    """A file named after the first seed's host."""
    if not urls:
        raise InvalidInput("nothing to crawl: give a URL, or --store FILE to go on with one")
    url = parse_url(_given(urls[0]), UrlRules(allow_private=True))
    host = url.host if isinstance(url, Url) else ""
    return (_STEM.sub("-", host).strip("-.") or "crawl") + SUFFIX


def stem_of(store: str, crawl: str = "default") -> str:
    """What the names of other files of this crawl begin with."""
    if "://" not in store:
        return store.removesuffix(SUFFIX)
    name = _STEM.sub("-", crawl.lower()).strip("-.")
    return name if name and crawl != "default" else "crawl"


def layers_of(
    settings: str | None,
    options: Mapping[str, Mapping[str, Any]],
    assign: Sequence[str],
    profile: str | None,
) -> Layers:
    """What a file, the environment and the command line say, each by itself."""
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
        file=None if settings is None else _file(settings),
        environment=environment_layer(),
        command=Layer("command line", tree),
    )


def _file(path: str) -> Layer:
    try:
        return file_layer(path)
    except SettingsError as error:
        raise SettingsError(f"--settings {error}") from error


def begin(plan: Plan, *, start_over: bool, tell: Callable[[str], None]) -> None:
    """What must be so before the crawl is opened."""
    _check(plan)
    if start_over:
        for name in set_aside(plan.store, {stem_of(plan.store), plan.output_stem}):
            tell(f"kept as {name}")
    if "://" in plan.store:
        return
    check_free(plan.store)
    if not plan.urls and not Path(plan.store).exists():
        raise InvalidInput(
            f"no such file: {show_address(plan.store)}; give a URL to begin a crawl in it"
        )


def _check(plan: Plan) -> None:
    """What would be refused later is refused before anything is renamed or made."""
    settings, is_file = plan.settings, "://" not in plan.store
    resolve(plan.handler, "handler")
    for stage in settings.executor.pipeline:
        resolve(stage, "executor.pipeline")
    for path in (plan.log, settings.output.path, plan.store if is_file else ""):
        folder = Path(path).parent
        if path and not folder.is_dir():
            raise InvalidInput(f"{path}: there is no directory {folder}; make it first")


def check_free(store: str) -> None:
    """One crawl runs on a file at a time; a second would only wait for the first."""
    holder = glance(store)[0] if Path(store).exists() else None
    if holder is not None:
        raise InvalidInput(
            f"{show_address(store)} is in use by {holder.name}; "
            f"look on with `{shlex.join(['outrider', 'watch', show_address(store)])}`"
        )


def set_aside(store: str, stems: Collection[str]) -> list[str]:
    """Starting over: what is there gets another name, and nothing is thrown away."""
    if "://" in store:
        place = show_address(store)
        raise InvalidInput(f"--start-over keeps the old crawl as a file, and {place} is none")
    check_free(store)
    old = [path for path in dict.fromkeys(_files_of(store, stems)) if path.exists()]
    mark = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    return [str(path.rename(_free_name(path, mark))) for path in old]


def _free_name(path: Path, mark: str) -> Path:
    """Nothing is ever overwritten, however quickly one starts over."""
    first = path.with_name(f"{path.name}.{mark}")
    names = chain([first], (path.with_name(f"{first.name}-{n}") for n in count(2)))
    return next(name for name in names if not name.exists())


def _files_of(store: str, stems: Collection[str]) -> Iterator[Path]:
    yield from (Path(store + ending) for ending in _BESIDE)
    for stem in filter(None, stems):
        yield from (Path(stem + ending) for ending in _STEMMED)
        base = Path(stem)
        yield from sorted(base.parent.glob(f"{_literal(base.name)}-[0-9]*.warc.gz"))


def _literal(name: str) -> str:
    return re.sub(r"([\[*?])", r"[\1]", name)


def resume_command(
    store: str, arguments: Sequence[str] | None = None, *, limited: bool = False
) -> str:
    """The command line that goes on: the same, but for what would begin anew or stop at once."""
    words = [word for word in (arguments or sys.argv[1:]) if word != "--start-over"]
    if limited:
        words = list(_without(words, _SPENT))
    if not any(word == "--store" or word.startswith("--store=") for word in words):
        words += ["--store", store]
    return shlex.join(["outrider", *(_shown(word, store) for word in words)])


def _shown(word: str, store: str) -> str:
    """A word of a command line, without the secrets of the store's address or of a page's URL."""
    if word in (store, f"--store={store}"):
        return word.removesuffix(store) + show_address(store)
    return hide_addresses(word, [word]) if "://" in word and "@" in word else word


def _without(words: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """A command line less these options and their values."""
    rest = iter(words)
    for word in rest:
        if word in options:
            next(rest, None)
        elif not word.startswith(tuple(f"{option}=" for option in options)):
            yield word
