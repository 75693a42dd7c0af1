"""Validation: mappings, structs made by hand and changes become a validated tree (N2).

What is given is laid over what is current, so a whole tree is a change of the defaults. In tables
with names of the user's own (`keys`, weights, types) None removes an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache, partial
from itertools import repeat
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from outrider.core.policy.link_types import ONE_OR_SEVERAL
from outrider.core.policy.politeness import Politeness
from outrider.core.policy.queue_key import address, valid_key
from outrider.core.policy.rules import Budget
from outrider.settings.code_references import check
from outrider.settings.consistency import contradictions, given_paths, override_errors
from outrider.settings.errors import (
    InvalidSetting,
    Path,
    dotted_path,
    short_repr,
    translate_errors,
    unknown_setting,
)
from outrider.settings.field_types import (
    Field,
    accepts,
    allowed_values,
    fields_of,
    initial_value,
    struct_kind,
)
from outrider.settings.paths import leaves_of, value_at
from outrider.settings.profiles import PROFILE, profile_of
from outrider.settings.reference import homes
from outrider.settings.schema import QueueFields, Settings

_S = TypeVar("_S", bound=msgspec.Struct)
_Overrides: TypeAlias = dict[str, dict[str, Any]]

_NOT_SET: Final[Mapping[str, str]] = {  # set by other calls while a crawl runs
    "cost": "a link is priced when it is added; name the policy under [keys]",
    "paused": "use queue.pause() or queue.resume()",
    "retired": "use queue.retire() or queue.revive()",
}
_PARTS: Final[Mapping[str, type[msgspec.Struct]]] = {"politeness": Politeness, "budget": Budget}


def settings_of(value: Settings | Mapping[str, Any] | None, *, is_whole: bool = True) -> Settings:
    """Return the validated tree of a mapping, or of a tree made by hand.

    A mapping may name the `profile` that it starts from. Unless `is_whole`, contradictions between
    settings are allowed: for settings that were accepted before and are only read back.
    """
    with translate_errors(str):
        given = {} if value is None else value
        return read_alone(given) if is_whole else _read_back(given)


def read_alone(value: Settings | Mapping[str, Any]) -> Settings:
    """Validate a tree by itself; raises InvalidSetting."""
    settings = read(*split_profile(value))
    check_reach(settings)
    return settings


def _read_back(value: Settings | Mapping[str, Any]) -> Settings:
    given, usual = split_profile(value)
    return overlay_settings(usual, given)


def split_profile(
    value: Settings | Mapping[str, Any],
) -> tuple[Settings | Mapping[str, Any], Settings]:
    """Separate what is given from the settings of its profile; raises InvalidSetting."""
    if not isinstance(value, Mapping) or PROFILE not in value:
        return value, Settings()
    rest = {name: entry for name, entry in value.items() if name != PROFILE}
    return rest, read(profile_of(value[PROFILE]), Settings())


def merged(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return the tree with some settings changed, validated whole.

    `keys`, weights and types change entry by entry; None removes an entry or an override.
    """
    with translate_errors(str):
        if isinstance(changes, Mapping) and PROFILE in changes:
            raise InvalidSetting(
                (PROFILE,), changes[PROFILE], "settings begin with it; none is changed to"
            )
        return apply_changes(settings_of(settings, is_whole=False), changes)


def override_of(
    changes: Mapping[str, Any], key: str = "", settings: Settings | None = None
) -> dict[str, Any]:
    """Return a runtime override for a key, flat and validated; None stays: it removes a field.

    With `settings`, the ones it refines, it may not contradict them.
    """
    with translate_errors(_as_argument):
        override = _override(changes, ())
        for name in override.keys() & _NOT_SET.keys():
            raise InvalidSetting((name,), override[name], _NOT_SET[name])
        for fault in () if settings is None else override_errors(settings, key, override, ()):
            raise fault
        return override


def _as_argument(fault: InvalidSetting) -> str:
    return f"queue.set({dotted_path(fault.path)}={short_repr(fault.value)}): {fault.problem}"


def read(value: object, current: Settings) -> Settings:
    """Lay what is given over the current tree, and validate it; raises InvalidSetting."""
    settings = overlay_settings(current, value)
    usual = Settings()
    check_whole(settings, given_paths(current, usual) | _given_by(value, usual))
    return settings


def apply_changes(
    current: Settings, changes: object, origins: AbstractSet[Path] = frozenset()
) -> Settings:
    """Lay a change over the current tree; raises InvalidSetting for what the change makes wrong.

    A contradiction that was there before stays: a stored crawl may have it from before it was
    refused, and must stay changeable. `origins` are the paths that its layers gave.
    """
    settings, usual = overlay_settings(current, changes), Settings()
    given = given_paths(current, usual) | origins
    known = {str(fault) for fault in contradictions(current, given)}
    check_whole(settings, given | _given_by(changes, usual), known)
    return settings


def _given_by(value: object, usual: Settings) -> set[Path]:
    """Return the paths that a mapping names; for a whole tree, those that are not defaults."""
    if isinstance(value, Settings):
        return {path for path, leaf in leaves_of(value) if leaf != value_at(usual, path)}
    return {path for path, _ in leaves_of(value)}


def overlay_settings(current: Settings, value: object) -> Settings:
    """Lay what is given over the current tree, each setting checked by itself."""
    return _section(struct_kind(Settings), value, (), current)


def check_whole(
    settings: Settings, given: AbstractSet[Path], known: AbstractSet[str] = frozenset()
) -> None:
    """Raise the first contradiction between settings that is not known already."""
    for fault in contradictions(settings, given):
        if str(fault) not in known:
            raise fault


def check_reach(settings: Settings, names: Iterable[str] | None = None) -> None:
    """Raise InvalidSetting for an override that can reach no queue under `queue.key` (A4)."""
    for name in settings.keys if names is None else names:
        try:
            address(settings.queue.key, name)
        except ValueError as error:
            problem = f"reaches no queue: {error}"
            raise InvalidSetting(("keys", name), settings.keys.get(name), problem) from None


def keys_of(tree: Mapping[str, Any], current: _Overrides) -> _Overrides:
    """Return overrides by key, validated, over the current ones; raises InvalidSetting."""
    return _keys(tree, ("keys",), current)


def _section(kind: inspect.StructType, value: object, path: Path, current: _S) -> _S:
    fields = fields_of(kind)
    given = {}
    for name, entry in _table(value, path).items():
        if name not in fields:
            raise unknown_setting((*path, name), entry, fields, homes())
        given[name] = _setting(fields[name], entry, (*path, name), getattr(current, name))
    return replace(current, **given)


def _table(value: object, path: Path) -> dict[str, object]:
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if not isinstance(value, Mapping):
        raise InvalidSetting(path, value, "give a table of settings")
    for name, entry in value.items():
        if not isinstance(name, str) or not name:
            raise InvalidSetting(
                (*path, short_repr(name)), entry, "a name here is text, and not empty"
            )
    return dict(value)


def _setting(field: Field, value: object, path: Path, current: Any) -> object:
    if (field.owner, field.name) == (Settings, "keys"):
        return _keys(value, path, current)
    result = _value(field.kind, value, path, current)
    try:
        check(field.owner, field.name, result)
    except ValueError as error:
        raise InvalidSetting(path, value, str(error)) from None
    return result


def _value(kind: inspect.Type, value: object, path: Path, current: Any) -> object:
    match kind:
        case inspect.Metadata():
            one_is_enough = (kind.extra or {}).items() >= ONE_OR_SEVERAL.items()
            value = (value,) if one_is_enough and isinstance(value, str) else value
            return _value(kind.type, value, path, current)
        case inspect.StructType():
            return _section(kind, value, path, current)
        case inspect.DictType():
            return _entries(kind.value_type, value, path, current)
        case inspect.VarTupleType():
            return _items(kind, value, path)
        case inspect.UnionType():
            return value  # a name or an object: `check` decides
        case _:
            return _leaf(kind, value, path)


def _entries(
    kind: inspect.Type, value: object, path: Path, current: Mapping[str, object]
) -> dict[str, object]:
    entries = dict(current)
    for name, entry in _table(value, path).items():
        before = entries.pop(name, initial_value(kind))
        if entry is not None:
            entries[name] = _value(kind, entry, (*path, name), before)
    return entries


def _items(kind: inspect.VarTupleType, value: object, path: Path) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidSetting(path, value, f"give {allowed_values(kind)}")
    item_type = kind.item_type
    places = [(*path, str(number)) for number in range(len(value))]
    if isinstance(item_type, inspect.StructType):
        usual = item_type.cls()
        return tuple(map(partial(_section, item_type), value, places, repeat(usual)))
    return tuple(map(partial(_leaf, item_type), value, places))


def _leaf(kind: inspect.Type, value: Any, path: Path) -> object:
    if not accepts(kind, value):
        raise InvalidSetting(path, value, f"give {allowed_values(kind)}")
    return float(value) if isinstance(kind, inspect.FloatType) else value


def _keys(value: object, path: Path, current: _Overrides) -> _Overrides:
    changes: dict[str, dict[str, Any] | None] = {}
    for name, entry in _table(value, path).items():
        key = _key(name, entry, path)
        if key in changes:
            raise InvalidSetting(
                (*path, name), entry, "given twice, for letter case makes no difference"
            )
        changes[key] = None if entry is None else _override(entry, (*path, name))
    return _layer_overrides(current, changes)


def _key(name: str, entry: object, path: Path) -> str:
    if valid_key(name) is None or name.startswith("*.") or name == ".":
        fix = 'give a queue key, or a suffix such as ".example.org" for a domain and all below it'
        raise InvalidSetting((*path, name), entry, fix)
    return name.lower()


def _layer_overrides(
    current: _Overrides, changes: Mapping[str, dict[str, Any] | None]
) -> _Overrides:
    layered = dict(current)
    for key, change in changes.items():
        before = layered.pop(key, {})
        if change is not None:
            after = {**before, **change}
            layered[key] = {name: entry for name, entry in after.items() if entry is not None}
    return layered


def _override(value: object, path: Path) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for where, entry in _flatten(value, path):
        name = where[-1]
        if name in changes:
            raise InvalidSetting(where, entry, "given twice; keep one")
        changes[name] = None if entry is None else _setting(adjustable()[name], entry, where, None)
    return changes


def _flatten(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    for name, entry in _table(value, path).items():
        where = (*path, name)
        if name in _PARTS:
            yield from _part(_PARTS[name], entry, where)
        elif name in adjustable():
            yield where, entry
        else:
            raise unknown_setting(where, entry, (*adjustable(), *_PARTS), {})


def _part(part: type[msgspec.Struct], value: object, path: Path) -> Iterator[tuple[Path, object]]:
    for name, entry in _table(value, path).items():
        if name not in part.__struct_fields__:
            raise unknown_setting((*path, name), entry, part.__struct_fields__, {})
        yield (*path, name), entry


@cache
def adjustable() -> Mapping[str, Field]:
    """Return every field that an override may have; no two parts share a name."""
    parts = [fields_of(struct_kind(part)) for part in (*_PARTS.values(), QueueFields)]
    return {name: field for part in parts for name, field in part.items()}
