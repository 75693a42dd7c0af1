"""A crawl's settings as the text that its store keeps, and joining a crawl with them.

Paths of one machine are not stored. Code is stored by its name and never imported from there (see
`foreign_code`): a process that joins the crawl must provide it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec

from outrider.errors import SettingsError
from outrider.settings.consistency import contradictions
from outrider.settings.dump import name_of, plain, to_mapping
from outrider.settings.errors import dotted_path, translate_errors
from outrider.settings.foreign_code import NAMELESS, code_in, foreign_code, is_code_path
from outrider.settings.layers import BaseSettings, as_text
from outrider.settings.paths import (
    KEYS,
    LOCAL_PATHS,
    flat_path,
    leaves_of,
    path_of,
    tree_of,
    value_at,
)
from outrider.settings.profiles import POLITE, PROFILE
from outrider.settings.schema import Settings
from outrider.settings.validation import merged, overlay_settings, settings_of

Tree: TypeAlias = dict[str, Any]
Where: TypeAlias = tuple[str, ...]

MAX_TEXT: Final = 2**20  # characters that a store accepts
_ORIGINS: Final = "origins"  # beside the sections: where settings are from
_CRAWL: Final = "the crawl"  # of settings without an origin
OWN: Final = ("store", "events", "executor", "fetch", "output")  # a worker's own sections win
# What belongs to one machine or process.
_LOCAL: Final[tuple[Where, ...]] = (("store",), ("events",), *LOCAL_PATHS)


def to_text(base: BaseSettings) -> str:
    """Encode the settings for the store; without overrides by key if they are too many."""
    settings, tree = base.settings, _without(to_mapping(base.settings), _LOCAL)
    for where, value in code_in(settings).items():
        if not isinstance(value, str | tuple):
            _put(tree, where, _name_of(value))
    origins = {path: origin for path, origin in base.origins.items() if not is_local(path)}
    text = _encode(tree, origins, base.profile)
    if len(text) > MAX_TEXT:
        few = {path: origin for path, origin in origins.items() if path[0] != KEYS}
        text = _encode(_without(tree, [(KEYS,)]), few, base.profile)
    if len(text) > MAX_TEXT:
        raise SettingsError(
            f"settings of {len(text)} characters are too long; the maximum is {MAX_TEXT}"
        )
    return text


def join_stored(
    text: str, own: Mapping[str, Any], origins: Mapping[Where, str] = {}
) -> BaseSettings:
    """Return the stored settings with this process's own sections (OWN) and code over them.

    Code that is missing stays at its default, and is reported. `origins` are those of this process.
    """
    own_sections, given = {section: own[section] for section in OWN if section in own}, _leaves(own)
    try:
        tree = msgspec.json.decode(text or "{}", type=dict[str, Any])
        stored_origins = _stored_origins(tree.pop(_ORIGINS, None))
        profile = str(tree.pop(PROFILE, POLITE))
        code: dict[Where, Any] = dict(_take_nameless(_without(tree, _LOCAL)))
        stored = settings_of(tree, is_whole=False)
        code |= foreign_code(stored, {})  # every reference from a store is foreign
        stored = merged(stored, tree_of((path, _own_code(path, given)) for path in code))
        settings = _with_own(stored, own_sections)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, SettingsError) as error:
        what = f"the settings kept with this crawl cannot be read: {error}"
        return BaseSettings(settings_of(own_sections), dict(origins), lacks=what, is_whole=False)
    lacking = {path: plain(value) for path, value in code.items() if given.get(path) is None}
    from_crawl = {
        path: stored_origins.get(path, _CRAWL) for path, _ in leaves_of(tree) if path not in code
    }
    from_here = {path: name for path, name in origins.items() if path[0] in OWN or path in code}
    found = {**stored_origins, **from_crawl, **from_here}
    doubts = tuple(map(str, contradictions(stored, {**stored_origins, **from_crawl}.keys())))
    every = map(str, contradictions(settings, found.keys()))
    return BaseSettings(
        settings,
        found,
        profile,
        "; ".join(_missing_code(*one) for one in lacking.items()),
        {path: str(value).removeprefix(NAMELESS) for path, value in lacking.items()},
        doubts=doubts,
        clashes=tuple(one for one in every if one not in doubts),
    )


def _with_own(stored: Settings, own: Tree) -> Settings:
    """Lay this process's sections over the stored ones, each setting checked by itself."""
    with translate_errors(str):
        return overlay_settings(stored, own)


def is_local(path: Where) -> bool:
    """Tell whether a setting is a path of one machine, or belongs to one process."""
    return any(path[: len(place)] == place for place in _LOCAL)


def _stored_origins(origins: object) -> dict[Where, str]:
    """Return the stored origins; anything malformed is ignored."""
    stored_origins = {}
    for origin, names in origins.items() if isinstance(origins, dict) else ():
        for name in names if isinstance(names, list) else ():
            with suppress(SettingsError):
                stored_origins[path_of(str(name))] = origin
    return stored_origins


def _leaves(own: Mapping[str, Any]) -> dict[Where, Any]:
    """Return what this process gives, by the paths at which settings are applied."""
    return dict(leaves_of(own))


def _take_nameless(table: Tree, path: Where = ()) -> Iterator[tuple[Where, object]]:
    """Remove the names of code that cannot be imported: they are not valid as settings."""
    for name, value in list(table.items()):
        where = (*path, name)
        if isinstance(value, dict):
            yield from _take_nameless(value, where)
        elif is_code_path(flat_path(where)) and _is_nameless(value):
            del table[name]
            yield flat_path(where), value


def _is_nameless(value: object) -> bool:
    names = value if isinstance(value, list) else [value]
    return any(isinstance(name, str) and name.startswith(NAMELESS) for name in names)


def _own_code(path: Where, given: Mapping[Where, Any]) -> Any:
    """Return what this process gives for a reference of the crawl, else the default."""
    found = given.get(path)
    return value_at(Settings(), path) if found is None else found


def _missing_code(where: Where, value: object) -> str:
    name = dotted_path(where)
    if isinstance(value, str) and value.startswith(NAMELESS):
        return f"{name} was {value[1:]}, which cannot be imported: pass it in this process"
    why = "is code, and code is never imported from a store"
    return f"{name} = {value!r} {why}: pass it in this process"


def _name_of(code: object) -> str:
    """Return the name of a function or object; one that cannot be imported by it is marked."""
    name = name_of(code)
    module, _, path = name.partition(":")
    try:
        found = module != "__main__" and attrgetter(path)(sys.modules[module]) is code
    except (AttributeError, KeyError):
        found = False
    return name if found else NAMELESS + name


def _found_table(tree: Any, where: Where) -> Any:
    for name in where:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def _put(tree: Tree, where: Where, value: object) -> None:
    _found_table(tree, where[:-1])[where[-1]] = value


def _without(tree: Tree, places: Any) -> Tree:
    """Return the tree without these paths."""
    for where in places:
        _found_table(tree, where[:-1]).pop(where[-1], None)
    return tree


def _encode(tree: Tree, origins: Mapping[Where, str], profile: str) -> str:
    more = {_ORIGINS: as_text(origins), PROFILE: profile if profile != POLITE else None}
    return msgspec.json.encode(
        {**tree, **{name: one for name, one in more.items() if one}}
    ).decode()
