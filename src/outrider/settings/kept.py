"""A crawl's settings as text that its store keeps, and read back by those who join the crawl.

What names a place of one machine is not kept. What names code is kept by its name and never
imported from there: a store may be written by others, so whoever joins gives it by hand.
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
from outrider.settings.faults import dotted, explained
from outrider.settings.layers import Ground, as_text
from outrider.settings.leaves import KEYS, leaves_of, path_of
from outrider.settings.naming import refers
from outrider.settings.profiles import POLITE, PROFILE
from outrider.settings.reading import laid_over, settings_of
from outrider.settings.showing import name_of, to_mapping
from outrider.settings.tree import Settings

Tree: TypeAlias = dict[str, Any]
Where: TypeAlias = tuple[str, ...]

MOST: Final = 2**20  # characters that a store keeps
NAMELESS: Final = "?"  # begins the name of what cannot be imported
_ORIGINS: Final = "origins"  # beside the sections: where settings are from
_CRAWL: Final = "the crawl"  # of what nobody told
OWN: Final = ("store", "events", "executor", "fetch", "output")  # a worker's own sections win
# What stands for code, and what is a place on one machine.
CODE: Final[tuple[Where, ...]] = (
    ("queue", "key"),
    ("queue", "bypass_depth"),
    ("budget", "cost"),
    ("scope", "function"),
    ("scoring", "scorer"),
    ("focus", "classifier"),
    ("fetch", "detector"),
    ("executor", "pipeline"),
    ("executor", "poll"),
)
_LOCAL: Final[tuple[Where, ...]] = (
    ("store",),
    ("events",),
    ("output", "path"),
    ("fetch", "cache"),
    ("fetch", "robots_cache"),
)


def to_text(ground: Ground) -> str:
    """What a store keeps; without overrides by key if they are very many (their queues know)."""
    settings, tree = ground.settings, _without(to_mapping(ground.settings), _LOCAL)
    for where, value in _coded(tree):
        _put(tree, where, _named(value, _original(settings, where)))
    origins = {path: origin for path, origin in ground.origins.items() if not is_local(path)}
    text = _encoded(tree, origins, ground.profile)
    if len(text) > MOST:
        few = {path: origin for path, origin in origins.items() if path[0] != KEYS}
        text = _encoded(_without(tree, [(KEYS,)]), few, ground.profile)
    if len(text) > MOST:
        raise SettingsError(f"settings of {len(text)} characters are too long: most are {MOST}")
    return text


def joined(text: str, own: Mapping[str, Any], origins: Mapping[Where, str] = {}) -> Ground:
    """The kept settings with one's own over them: whole sections of OWN, and code by its place.

    What cannot be had is left at its default, and said. `origins` are of one's own.
    """
    mine = {section: own[section] for section in OWN if section in own}
    try:
        kept = msgspec.json.decode(text or "{}", type=dict[str, Any])
        told = _told(kept.pop(_ORIGINS, None))
        profile = str(kept.pop(PROFILE, POLITE))
        lacking = list(_given(_without(kept, _LOCAL), own))
        stored = settings_of(kept, is_whole=False)
        settings = _with_own(stored, mine)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, SettingsError) as error:
        what = f"the settings kept with this crawl cannot be read: {error}"
        return Ground(settings_of(mine), dict(origins), lacks=what, is_whole=False)
    from_crawl = {path: told.get(path, _CRAWL) for path, _ in leaves_of(kept)}
    from_here = {path: name for path, name in origins.items() if _counts(path, kept)}
    code = {where: str(value).removeprefix(NAMELESS) for where, value in lacking}
    lacks = "; ".join(_missing(*one) for one in lacking)
    found = {**told, **from_crawl, **from_here}
    doubts = tuple(map(str, contradictions(stored, {**told, **from_crawl}.keys())))
    every = map(str, contradictions(settings, found.keys()))
    clashes = tuple(one for one in every if one not in doubts)
    return Ground(settings, found, profile, lacks, code, doubts=doubts, clashes=clashes)


def _with_own(stored: Settings, own: Tree) -> Settings:
    """One's own sections over the stored ones, each setting checked by itself."""
    with explained(str):
        return laid_over(stored, own)


def is_local(path: Where) -> bool:
    """Whether it is a place on one machine, or what only the process itself can say of it."""
    return any(path[: len(place)] == place for place in _LOCAL)


def is_code(path: Where, value: object) -> bool:
    """Whether a value there is a function or object, or the name of one to be imported."""
    is_place = path in CODE or (path[0] == KEYS and path[-1] == "cost")
    return is_place and _is_code(value)


def _counts(path: Where, kept: Tree) -> bool:
    """Whether what this process says of a setting is heard: its own section, or code put in."""
    return path[0] in OWN or (path in CODE and _found(kept, path) is not None)


def _told(origins: object) -> dict[Where, str]:
    """The origins that were kept; whatever else stands there tells nothing."""
    told = {}
    for origin, names in origins.items() if isinstance(origins, dict) else ():
        for name in names if isinstance(names, list) else ():
            with suppress(SettingsError):
                told[path_of(str(name))] = origin
    return told


def _given(kept: Tree, own: Mapping[str, Any]) -> Iterator[tuple[Where, object]]:
    """Put in what was given by hand, take out what was not, and tell of the latter."""
    for where, value in list(_coded(kept)):
        by_hand = _found(own, where)
        if not _is_code(value):
            continue
        if by_hand is not None:
            _put(kept, where, by_hand)
        else:
            del _found_table(kept, where[:-1])[where[-1]]
            yield where, value


def _missing(where: Where, value: object) -> str:
    name = dotted(where)
    if isinstance(value, str) and value.startswith(NAMELESS):
        return f"{name} was {value[1:]}, which cannot be imported: give it by hand"
    return f"{name} = {value!r} is code, and none is imported for a store: give it by hand"


def _is_code(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return any(
        not isinstance(one, str) or one.startswith(NAMELESS) or refers(one) for one in values
    )


def _named(value: object, original: object) -> object:
    if isinstance(original, str | tuple):
        return value
    name = name_of(original)
    module, _, path = name.partition(":")
    try:
        found = module != "__main__" and attrgetter(path)(sys.modules[module]) is original
    except (AttributeError, KeyError):
        found = False
    return name if found else NAMELESS + name


def _coded(tree: Tree) -> Iterator[tuple[Where, object]]:
    """Where code may stand, and what stands there."""
    keys = tree.get("keys")
    by_key = [("keys", key, "cost") for key in keys] if isinstance(keys, dict) else []
    for where in (*CODE, *by_key):
        value = _found(tree, where)
        if value is not None:
            yield where, value


def _original(settings: Settings, where: Where) -> object:
    if where[0] == "keys":
        return settings.keys[where[1]]["cost"]
    return attrgetter(".".join(where))(settings)


def _found(tree: Mapping[str, Any], where: Where) -> Any:
    return _found_table(tree, where[:-1]).get(where[-1])


def _found_table(tree: Any, where: Where) -> Any:
    for name in where:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def _put(tree: Tree, where: Where, value: object) -> None:
    _found_table(tree, where[:-1])[where[-1]] = value


def _without(tree: Tree, places: Any) -> Tree:
    """The same tree, but for these places."""
    for where in places:
        _found_table(tree, where[:-1]).pop(where[-1], None)
    return tree


def _encoded(tree: Tree, origins: Mapping[Where, str], profile: str) -> str:
    more = {_ORIGINS: as_text(origins), PROFILE: profile if profile != POLITE else None}
    return msgspec.json.encode(
        {**tree, **{name: one for name, one in more.items() if one}}
    ).decode()
