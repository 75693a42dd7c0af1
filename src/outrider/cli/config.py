"""`outrider config`: every setting of a crawl, shown and changed while it runs (N5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from outrider.cli.open_crawl import on_crawl
from outrider.cli.options import By, Crawl, Json, Limit, Store, row_limit
from outrider.cli.terminal import (
    exit_with_problem,
    format_instant,
    print_json,
    print_line,
    print_note,
    show_pairs,
    show_table,
)
from outrider.errors import InvalidInput, SettingsError

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.settings import Change, Setting

DEFAULT: Final = "default"

config = typer.Typer(no_args_is_help=True, help="Show and change a crawl's settings while it runs.")

_Path = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="Path of a setting, such as politeness.delay, or of a section."
    ),
]
_Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Paths of settings or sections.")
]
_Pairs = Annotated[
    list[str],
    typer.Argument(metavar="PATH=VALUE...", help="Such as politeness.delay=2; values as in TOML."),
]


@config.command("show")
def show(
    store: Store,
    *,
    section: Annotated[str | None, typer.Option(help="Only settings of this section.")] = None,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="Only settings that differ in origin from the default."),
    ] = False,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Show every setting: its value, the origin of the value, and its meaning.

    JSON: one object per setting.
    """
    every = on_crawl(store, crawl, lambda frontier: frontier.config())
    found = [one for one in every if not changed or one.origin != DEFAULT]
    _show_settings(found if section is None else _at_path(found, every, section), as_json=as_json)


@config.command("get")
def get(store: Store, path: _Path, *, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Show one setting in detail, or a section."""
    every = on_crawl(store, crawl, lambda frontier: frontier.config())
    found = _at_path(every, every, path)
    if len(found) == 1 and not as_json:
        show_pairs(setting_pairs(found[0]))
    else:
        _show_settings(found, as_json=as_json)


@config.command("set")
def set_(store: Store, pairs: _Pairs, *, by: By = None, crawl: Crawl = "default") -> None:
    """Change settings, all or none of them: durable, and used by every worker within seconds."""
    from outrider.settings import parse_assignments
    from outrider.settings.paths import leaves_of

    if len(pairs) == 2 and "=" not in pairs[0]:  # also accepted: PATH VALUE
        pairs = ["=".join(pairs)]
    tree = parse_assignments(pairs, "config set")
    on_crawl(store, crawl, lambda frontier: frontier.configure(tree), by=by)
    for path, value in leaves_of(tree):
        _show_change(path, f"= {json.dumps(value)}")


@config.command("unset")
def unset(store: Store, paths: _Paths, *, by: By = None, crawl: Crawl = "default") -> None:
    """Undo `set`: the value the crawl was started with applies again."""

    async def work(frontier: Frontier) -> list[Setting]:
        before = {one.path: one.origin for one in await frontier.config()}
        await frontier.unset(*paths)
        return [one for one in await frontier.config() if one.origin != before.get(one.path)]

    for one in on_crawl(store, crawl, work, by=by):
        print_line(f"{one.path} = {_json_value(one.value)} ({one.origin})")


@config.command("history")
def history(
    store: Store, *, limit: Limit = None, crawl: Crawl = "default", as_json: Json = False
) -> None:
    """Show the history of changes: time, author, old and new value; the latest last.

    JSON: one object per change.
    """
    changes = on_crawl(store, crawl, lambda frontier: frontier.config_history())
    shown = row_limit(limit, as_json=as_json)
    latest = changes if shown is None else changes[-shown:]
    if as_json:
        for change in latest:
            print_json(change)
        return
    show_table(("when", "who", "from", "to", "setting"), map(_change_row, latest))
    if len(latest) < len(changes):
        print_note(f"only the last {shown:,} are shown; --limit 0 shows all")


@config.command("profiles")
def profiles(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this profile.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Show the settings of each profile, or of one."""
    from outrider.settings.profiles import ABOUT, PROFILES

    if name is not None and name not in PROFILES:
        raise InvalidInput(f"no profile {name!r}; there are {', '.join(PROFILES)}")
    found = {one: PROFILES[one] for one in PROFILES if name in (None, one)}
    if as_json:
        print_json(found)
        return
    for one, tree in found.items():
        print_line(f"{one}: {ABOUT[one]}")
        for section, fields in tree.items():
            for field, value in fields.items():
                print_line(f"  {section}.{field} = {json.dumps(value)}")


@config.command("check")
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Settings file, as TOML.")],
    *,
    as_json: Json = False,
) -> None:
    """Check a settings file; exits with 1, naming line, path and fix, if it is not valid."""
    from outrider.settings import Layers, file_layer
    from outrider.store.address import hide_addresses, show_address

    try:
        layer = file_layer(file)
        Layers(file=layer).base_settings()
    except SettingsError as error:
        if as_json:
            problem = hide_addresses(str(error), [file])
            print_json({"file": show_address(file), "valid": False, "problem": problem})
        exit_with_problem(str(error))
    if as_json:
        print_json({"file": file, "valid": True, "settings": len(list(layer.leaf_origins()))})
    else:
        print_line(f"{file}: valid, {len(list(layer.leaf_origins()))} settings")


# ---- rows


def _at_path(found: list[Setting], every: list[Setting], path: str) -> list[Setting]:
    """The settings at a path or below it; raises InvalidInput if the path does not exist."""
    if not _under(every, path):
        raise InvalidInput(f"no setting {path}{_hint(path, every)}")
    return _under(found, path)


def _under(every: list[Setting], path: str) -> list[Setting]:
    from outrider.settings.errors import dotted_path
    from outrider.settings.paths import path_of

    name = dotted_path(path_of(path))
    return [one for one in every if one.path == name or one.path.startswith(f"{name}.")]


# Tables of users' own names → the setting that applies to a name without an entry.
_FALLBACKS: Final = {
    ("scoring", "weights"): "scoring.weights.default",
    ("scoring", "bonuses"): "scoring.bonuses.link",
    ("retry", "types"): "retry",
}


def _hint(path: str, every: list[Setting]) -> str:
    """A hint for a missing path: the setting that applies instead, or a similar path."""
    from outrider.settings.consistency import NAMES, near_miss
    from outrider.settings.paths import path_of

    parts = path_of(path)
    table = parts[:2]
    if len(parts) > 2 and table in _FALLBACKS and not near_miss(parts[2], NAMES[table]):
        return f"; {parts[2]} has no entry, so {_FALLBACKS[table]} applies to it"
    close = _close_match(path, every)
    return f"; did you mean {close}?" if close else ""


def _close_match(path: str, every: list[Setting]) -> str:
    from difflib import get_close_matches

    names = [one.path for one in every]
    sections = [name.partition(".")[0] for name in names]
    return next(iter(get_close_matches(path, [*dict.fromkeys(sections), *names], 1)), "")


def _show_settings(found: list[Setting], *, as_json: bool) -> None:
    if as_json:
        for one in found:
            print_json(one)
        return
    show_table(
        ("setting", "value", "from", "meaning"),
        [(one.path, _json_value(one.value), one.origin, one.about) for one in found],
    )


def setting_pairs(one: Setting) -> list[tuple[str, str]]:
    """All fields of a setting, as text."""
    return [
        ("setting", one.path),
        ("value", _json_value(one.value)),
        ("from", one.origin),
        ("default", _json_value(one.default)),
        ("allowed", one.allowed),
        ("meaning", one.about),
        ("acts", one.acts),
    ]


def _change_row(change: Change) -> tuple[object, ...]:
    old, new = _json_value(change.old), _json_value(change.new)
    return format_instant(change.at), change.by, old, new, change.path


def _json_value(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _show_change(path: tuple[str, ...], what: str) -> None:
    from outrider.settings.errors import dotted_path
    from outrider.settings.listing import takes_effect

    print_line(f"{dotted_path(path)} {what}")
    if takes_effect(path) != "at once":
        print_note(f"{dotted_path(path)} takes effect {takes_effect(path)}")
