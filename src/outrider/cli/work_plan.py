"""Options of `outrider work` → this worker's own settings and files; the rest is the crawl's."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from outrider.cli.crawl_plan import assigned, stem_of, text_of
from outrider.output.jsonl import ITEMS
from outrider.settings import Settings, from_toml, settings_of
from outrider.settings.kept import CODE, OWN

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


def own_of(asked: Asked) -> dict[str, Any]:
    """What the file, the options and `--set` say, in this order, checked and not yet merged."""
    tree: dict[str, Any] = {}
    if asked.settings is not None:
        text = text_of(asked.settings)
        from_toml(text, source=asked.settings)  # so that a fault names its line
        tree = tomllib.loads(text)
    given = {
        section: {name: value for name, value in fields.items() if value is not None}
        for section, fields in asked.options.items()
    }
    tree = laid(laid(tree, given), assigned(asked.assign))
    settings_of(tree)
    return tree


def laid(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """One tree over another, table by table."""
    both = dict(under)
    for name, value in over.items():
        below = both.get(name)
        is_table = isinstance(value, Mapping) and isinstance(below, Mapping)
        both[name] = laid(below, value) if is_table else value  # type: ignore[arg-type] # just asked
    return both


def ignored(own: Mapping[str, Any]) -> list[str]:
    """What was given and is the crawl's to say."""
    others = {name: table for name, table in own.items() if name not in OWN}
    names = [f"{section}.{name}" for section, table in others.items() if table for name in table]
    return [name for name in names if tuple(name.split(".")) not in CODE]


def stem(asked: Asked, own: Mapping[str, Any]) -> str:
    """What this worker's file names begin with, but for which worker it is."""
    path = own.get("output", {}).get("path") or stem_of(asked.store, asked.crawl)
    for ending in (".jsonl", ".gz", ".warc"):
        path = path.removesuffix(ending)
    return str(path)


def seated_at(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings with this worker's own files."""
    robots = own.get("fetch", {}).get("robots_cache") or f"{name}.robots"
    return laid(own, {"output": {"path": name}, "fetch": {"robots_cache": robots}})


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
