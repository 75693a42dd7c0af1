"""References to code in a tree of settings, and which of them a process may import (N1).

Paths of this machine are another thing that only the process itself may name: it writes there.

Importing runs code. A reference (`module:function`) is therefore taken only from the process
itself: its command line, its environment, its own file, or the Python caller. A store, a runtime
setting, an export or a request is written by others, so no reference in it is ever imported.
`foreign_code` decides, on the parsed tree, so no spelling of a setting passes by it. What is read
back (`stored`, `runtime`) leaves such a reference out and reports it, since a crawl must stay
readable; what is asked for now is refused by `refuse_foreign_code`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NoReturn

from msgspec import inspect

from outrider.core.policy.code_field import CODE
from outrider.errors import SettingsError
from outrider.settings.code_references import is_reference
from outrider.settings.errors import Path, dotted_path, short_repr, translate_errors
from outrider.settings.field_types import fields_of, struct_kind
from outrider.settings.paths import KEYS, LOCAL_PATHS, leaves_of
from outrider.settings.schema import Settings
from outrider.settings.validation import adjustable, overlay_settings, split_profile

NAMELESS: Final = "?"  # first character of the name of code that cannot be imported
MAX_POSTED: Final = 2**20  # characters of settings as text
_FIX: Final = "name it on the command line, in the environment, a file or the program itself"


def refuse_foreign_code(given: Mapping[str, Any] | str | bytes, where: str) -> dict[str, Any]:
    """Return the tree of settings that another program sent, if it names no code and no path.

    For whatever takes settings from outside the process, such as a request. `given` is a tree, or
    JSON or TOML text; `where` says what it is, for errors. SettingsError: settings name code or
    paths of this machine, such as `output.path`, or the tree is not valid, so that no unknown
    spelling passes. Nothing is imported. Use the tree that is returned: what was checked is then
    what is used.
    """
    tree = _tree_of(given, where)
    try:
        with translate_errors(lambda fault: f"{where}: {fault}"):
            rest, usual = split_profile(tree)
            named = foreign_code(overlay_settings(usual, rest), code_in(usual))
    except RecursionError:
        raise SettingsError(f"{where}: tables are nested too deeply") from None
    local = {path: value for path, value in leaves_of(rest) if path in LOCAL_PATHS}
    if named or local:
        raise SettingsError(f"{where}: {_refusal(named, local)}")
    return tree


def _refusal(code: Mapping[Path, Any], local: Mapping[Path, Any]) -> str:
    values = [f"{dotted_path(path)} = {short_repr(value)}" for path, value in code.items()]
    values += [f"{dotted_path(path)} = {short_repr(value)}" for path, value in local.items()]
    what = "code is" if not local else f"{'code and ' if code else ''}paths of this machine are"
    return f"{', '.join(values)}: {what} only named by the process that runs it; {_FIX}"


def _tree_of(given: object, where: str) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, str | bytes):
        raise SettingsError(f"{where}: give a table of settings, or its JSON or TOML text")
    if len(given) > MAX_POSTED:
        raise SettingsError(f"{where}: longer than {MAX_POSTED} characters")
    kind = "text"
    try:
        text = given if isinstance(given, str) else given.decode()
        kind = "JSON" if text.lstrip().startswith("{") else "TOML"
        return _parse_json(text) if kind == "JSON" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{where}: not valid {kind}: {error}") from error


def _parse_json(text: str) -> dict[str, Any]:
    tree = json.loads(text, object_pairs_hook=_table_of, parse_constant=_refuse_constant)
    assert isinstance(tree, dict)  # noqa: S101 - it begins with a brace
    return tree


def _table_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a table; ValueError: a name is given twice, and readers differ in which one counts."""
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{short_repr(name)} is given twice; keep one")
        table[name] = value
    return table


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def foreign_code(settings: Settings, own: Mapping[Path, Any]) -> dict[Path, Any]:
    """Every reference to code in the settings that `own` does not have at the same place."""
    found = code_in(settings)
    return {path: value for path, value in found.items() if not _same(value, own.get(path))}


def code_in(settings: Settings) -> dict[Path, Any]:
    """Every reference to code in parsed settings: by name, as a function or as an object."""
    found = dict(_marked_fields(struct_kind(Settings), settings, ()))
    names = code_overrides()
    for key, override in settings.keys.items():
        found.update({(KEYS, key, name): override[name] for name in names & override.keys()})
    return {path: value for path, value in found.items() if value is not None and _is_code(value)}


def is_code(path: Path, value: object) -> bool:
    """Whether a value at this path is a function or object, or the name of one to be imported."""
    return is_code_path(path) and _is_code(value)


def is_code_path(path: Path) -> bool:
    """Whether the setting at this path may refer to code."""
    if path[:1] == (KEYS,):
        return len(path) == 3 and path[2] in code_overrides()
    return path in code_paths()


@cache
def code_paths() -> frozenset[Path]:
    """The paths of all marked settings, except those that override them by key."""
    return frozenset(path for path, _ in _marked_fields(struct_kind(Settings), Settings(), ()))


@cache
def code_overrides() -> frozenset[str]:
    """The names of the marked settings that an override by key may have."""
    return frozenset(name for name, field in adjustable().items() if is_marked(field.kind))


def is_marked(kind: inspect.Type) -> bool:
    """Whether the type of a field says that the field may refer to code."""
    return isinstance(kind, inspect.Metadata) and (kind.extra or {}).items() >= CODE.items()


def _marked_fields(kind: inspect.Type, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if is_marked(kind):
        yield path, value
        return
    match kind:
        case inspect.Metadata():
            yield from _marked_fields(kind.type, value, path)
        case inspect.StructType():
            for name, field in fields_of(kind).items():
                yield from _marked_fields(field.kind, getattr(value, name), (*path, name))
        case inspect.DictType() if path != (KEYS,):
            for name, entry in value.items():
                yield from _marked_fields(kind.value_type, entry, (*path, name))
        case _:
            return


def _is_code(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_code, value))
    return not isinstance(value, str) or value.startswith(NAMELESS) or is_reference(value)


def _same(value: object, other: object) -> bool:
    """Objects are compared by identity: the `==` of a user's object may do anything."""
    if isinstance(value, str | tuple):
        return type(value) is type(other) and value == other
    return value is other
