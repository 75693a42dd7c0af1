"""`outrider config`: every setting of a crawl, shown and changed while it runs (N5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Limit, Store, rows
from outrider.cli.showing import found_wrong, instant, note, say, say_json, show_pairs, show_table
from outrider.errors import InvalidInput, SettingsError

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.settings import Change, Setting

DEFAULT: Final = "default"

config = typer.Typer(no_args_is_help=True, help="Show and change a crawl's settings, live.")

_Path = Annotated[
    str, typer.Argument(metavar="PATH", help="Of a setting: politeness.delay, or a section.")
]
_Paths = Annotated[list[str], typer.Argument(metavar="PATH...", help="Of settings, or sections.")]
_Pairs = Annotated[
    list[str],
    typer.Argument(metavar="PATH=VALUE...", help="As in politeness.delay=2; values as in TOML."),
]
_By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who; else user@host.")]


@config.command("show")
def show(
    store: Store,
    *,
    section: Annotated[str | None, typer.Option(help="Only of this section.")] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what somebody said; no defaults.")
    ] = False,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Show every setting: its value, where that is from, and what it means.

    JSON: one object a setting.
    """
    every = on_crawl(store, crawl, lambda frontier: frontier.config())
    found = [one for one in every if not changed or one.origin != DEFAULT]
    _show(found if section is None else _of(found, every, section), as_json=as_json)


@config.command("get")
def get(store: Store, path: _Path, *, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Show one setting with all there is to know of it, or a section."""
    every = on_crawl(store, crawl, lambda frontier: frontier.config())
    found = _of(every, every, path)
    if len(found) == 1 and not as_json:
        show_pairs(pairs_of(found[0]))
    else:
        _show(found, as_json=as_json)


@config.command("set")
def set_(store: Store, pairs: _Pairs, *, by: _By = None, crawl: Crawl = "default") -> None:
    """Change settings, all of them or none: durable, for every worker within seconds."""
    from outrider.settings import parse_assignments, person
    from outrider.settings.paths import leaves_of

    if len(pairs) == 2 and "=" not in pairs[0]:  # as people type it: PATH VALUE
        pairs = ["=".join(pairs)]
    tree = parse_assignments(pairs, "config set")
    on_crawl(store, crawl, lambda frontier: frontier.configure(tree, by=by or person()))
    for path, value in leaves_of(tree):
        _tell(path, f"= {json.dumps(value)}")


@config.command("unset")
def unset(store: Store, paths: _Paths, *, by: _By = None, crawl: Crawl = "default") -> None:
    """Take back what `set` said: what the crawl was started with holds again."""
    from outrider.settings import person

    async def work(frontier: Frontier) -> list[Setting]:
        before = {one.path: one.origin for one in await frontier.config()}
        await frontier.unset(*paths, by=by or person())
        return [one for one in await frontier.config() if one.origin != before.get(one.path)]

    for one in on_crawl(store, crawl, work):
        say(f"{one.path} = {_value(one.value)} ({one.origin})")


@config.command("history")
def history(
    store: Store, *, limit: Limit = None, crawl: Crawl = "default", as_json: Json = False
) -> None:
    """Show who changed what, when, from what to what; the latest last.

    JSON: one object a change.
    """
    changes = on_crawl(store, crawl, lambda frontier: frontier.config_history())
    most = rows(limit, as_json=as_json)
    latest = changes if most is None else changes[-most:]
    if as_json:
        for change in latest:
            say_json(change)
        return
    show_table(("when", "who", "from", "to", "setting"), map(_change, latest))
    if len(latest) < len(changes):
        note(f"only the last {most:,} are shown; --limit 0 shows all")


@config.command("profiles")
def profiles(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Show what each profile sets, or one of them."""
    from outrider.settings.profiles import ABOUT, PROFILES

    if name is not None and name not in PROFILES:
        raise InvalidInput(f"no profile {name!r}; there are {', '.join(PROFILES)}")
    found = {one: PROFILES[one] for one in PROFILES if name in (None, one)}
    if as_json:
        say_json(found)
        return
    for one, tree in found.items():
        say(f"{one}: {ABOUT[one]}")
        for section, fields in tree.items():
            for field, value in fields.items():
                say(f"  {section}.{field} = {json.dumps(value)}")


@config.command("check")
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Settings as TOML.")],
    *,
    as_json: Json = False,
) -> None:
    """Say whether a file of settings is valid; leaves with 1, naming line, path and fix, if not."""
    from outrider.settings import Layers, file_layer
    from outrider.store.address import hide_addresses, show_address

    try:
        layer = file_layer(file)
        Layers(file=layer).base_settings()
    except SettingsError as error:
        if as_json:
            problem = hide_addresses(str(error), [file])
            say_json({"file": show_address(file), "valid": False, "problem": problem})
        found_wrong(str(error))
    if as_json:
        say_json({"file": file, "valid": True, "settings": len(list(layer.leaf_origins()))})
    else:
        say(f"{file}: valid, {len(list(layer.leaf_origins()))} settings")


# ---- rows


def _of(found: list[Setting], every: list[Setting], path: str) -> list[Setting]:
    """Those at a path or below it; a path of none is refused."""
    if not _under(every, path):
        raise InvalidInput(f"no setting {path}{_hint(path, every)}")
    return _under(found, path)


def _under(every: list[Setting], path: str) -> list[Setting]:
    from outrider.settings.errors import dotted_path
    from outrider.settings.paths import path_of

    name = dotted_path(path_of(path))
    return [one for one in every if one.path == name or one.path.startswith(f"{name}.")]


_INSTEAD: Final = {  # tables of the user's own names: what holds for a name that is not in one
    ("scoring", "weights"): "scoring.weights.default",
    ("scoring", "bonuses"): "scoring.bonuses.link",
    ("retry", "types"): "retry",
}


def _hint(path: str, every: list[Setting]) -> str:
    """What holds instead of an entry that a table does not have, or which path may be meant."""
    from outrider.settings.consistency import NAMES, near_miss
    from outrider.settings.paths import path_of

    parts = path_of(path)
    table = parts[:2]
    if len(parts) > 2 and table in _INSTEAD and not near_miss(parts[2], NAMES[table]):
        return f"; {parts[2]} has no entry of its own, so {_INSTEAD[table]} holds for it"
    close = _close(path, every)
    return f"; did you mean {close}?" if close else ""


def _close(path: str, every: list[Setting]) -> str:
    from difflib import get_close_matches

    names = [one.path for one in every]
    sections = [name.partition(".")[0] for name in names]
    return next(iter(get_close_matches(path, [*dict.fromkeys(sections), *names], 1)), "")


def _show(found: list[Setting], *, as_json: bool) -> None:
    if as_json:
        for one in found:
            say_json(one)
        return
    show_table(
        ("setting", "value", "from", "meaning"),
        [(one.path, _value(one.value), one.origin, one.about) for one in found],
    )


def pairs_of(one: Setting) -> list[tuple[str, str]]:
    """All of a setting, for people."""
    return [
        ("setting", one.path),
        ("value", _value(one.value)),
        ("from", one.origin),
        ("default", _value(one.default)),
        ("allowed", one.allowed),
        ("meaning", one.about),
        ("acts", one.acts),
    ]


def _change(change: Change) -> tuple[object, ...]:
    old, new = _value(change.old), _value(change.new)
    return instant(change.at), change.by, old, new, change.path


def _value(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _tell(path: tuple[str, ...], what: str) -> None:
    from outrider.settings.errors import dotted_path
    from outrider.settings.listing import takes_effect

    say(f"{dotted_path(path)} {what}")
    if takes_effect(path) != "at once":
        note(f"{dotted_path(path)} takes effect {takes_effect(path)}")
