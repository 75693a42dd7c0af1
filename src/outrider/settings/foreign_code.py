"""References to code in a tree of settings, and the rule which of them a process may import.

Importing runs code. A reference (`module:function`) is therefore taken only from the process
itself: its command line, its environment, its own file, or the Python caller. A store, a runtime
setting or an export is written by others, so no reference in it is ever imported. `foreign_code`
decides, on the parsed tree, so no spelling of a setting passes by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from msgspec import inspect

from outrider.core.policy.code_field import CODE
from outrider.settings.code_references import is_reference
from outrider.settings.errors import Path
from outrider.settings.field_types import fields_of, struct_kind
from outrider.settings.paths import KEYS
from outrider.settings.schema import Settings
from outrider.settings.validation import adjustable

NAMELESS: Final = "?"  # first character of the name of code that cannot be imported


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
