"""Options of `outrider work` → this worker's own settings and files; the rest is the crawl's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from outrider.cli.crawl_plan import layers_of, stem_of
from outrider.output.jsonl import ITEMS
from outrider.output.worker_files import without_suffix
from outrider.settings import Layer, Layers, Settings
from outrider.settings.errors import dotted_path
from outrider.settings.foreign_code import is_code_path
from outrider.settings.profiles import PROFILE
from outrider.settings.stored import OWN

_ENDINGS: Final = {"jsonl": ".jsonl", "warc": "-*.warc.gz"}


class Asked(msgspec.Struct, frozen=True):
    """What the command line said."""

    store: str
    crawl: str
    options: Mapping[str, Mapping[str, Any]]  # section → name → value; None: not given
    settings: str | None
    assign: Sequence[str]
    log: str | None
    handler: str | None
    isolate: bool
    stays: bool
    profile: str | None = None


def own_of(asked: Asked) -> Layers:
    """What the file, the environment, the options and `--set` say, checked."""
    layers = layers_of(asked.settings, asked.options, asked.assign, asked.profile)
    layers.base_settings()
    return layers


def ignored(own: Layers) -> list[str]:
    """What was given and is the crawl's to say; a profile may say more than one needs."""
    given = (own.file, own.environment, own.command)
    paths = [path for layer in given if layer for path, _ in layer.leaf_origins()]
    strange = [path for path in paths if path[0] not in (*OWN, PROFILE) and not is_code_path(path)]
    return [dotted_path(name) for name in dict.fromkeys(path[:2] for path in strange)]


def stem(asked: Asked, own: Layers) -> str:
    """What this worker's file names begin with, but for which worker it is."""
    path = own.base_settings().settings.output.path or stem_of(asked.store, asked.crawl)
    return without_suffix(path)


def seated_at(name: str, own: Layers) -> Layers:
    """The same settings with this worker's own files."""
    robots = own.base_settings().settings.fetch.robots_cache or f"{name}.robots"
    beside = {"output": {"path": name}, "fetch": {"robots_cache": robots}}
    return replace(own, given=Layer("seat", beside))


def files_of(name: str, settings: Settings, log: str) -> dict[str, str]:
    """What a user may look for afterwards."""
    found, form = {}, settings.output.format
    if form != "none":
        found["pages"] = name + _ENDINGS[form]
    if Path(name + ITEMS).exists():
        found["items"] = name + ITEMS
    if log:
        found["log"] = log
    return found
