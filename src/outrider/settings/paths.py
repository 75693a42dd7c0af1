"""Paths of settings: the leaves of a tree with their paths, paths as text, and trees overlaid."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from outrider.errors import SettingsError
from outrider.settings.errors import Path

KEYS: Final = "keys"
# Settings that are paths of one machine: each process names them for itself.
LOCAL_PATHS: Final[tuple[Path, ...]] = (
    ("events", "jsonl"),
    ("output", "path"),
    ("fetch", "cache"),
    ("fetch", "robots_cache"),
)
_MAX_PARTS: Final = 8  # parts of a path
_MAX_SHOWN: Final = 80
_PARTS: Final = ("politeness", "budget")  # tables that an override by key may have, and need not


def leaves_of(tree: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value with its path; an override by key is flat and in lower case, as applied."""
    if isinstance(tree, Mapping) or _is_section(tree):
        for name, value in entries_of(tree):
            yield from leaves_of(value, (*path, name))
    elif path:
        yield flat_path(path), tree


def _is_section(value: object) -> bool:
    """Tell a section from a user's function or scorer that happens to be a struct."""
    is_code = callable(value) or hasattr(value, "score")
    return isinstance(value, msgspec.Struct) and not is_code


def entries_of(tree: Any) -> Iterable[tuple[str, Any]]:
    """Return the entries of a table or a section."""
    if isinstance(tree, Mapping):
        return tree.items()
    return ((name, getattr(tree, name)) for name in tree.__struct_fields__)


def flat_path(path: Path) -> Path:
    """Return the path of a setting as applied: overrides by key have no tables of their own."""
    if path[0] != KEYS or len(path) == 1:
        return path
    _, key, *rest = path
    while len(rest) > 1 and rest[0] in _PARTS:
        del rest[0]
    return (KEYS, key.lower(), *rest)


def tree_of(leaves: Iterable[tuple[Path, Any]]) -> dict[str, Any]:
    """Build the tree of these leaves; of two that exclude each other, the later one stays."""
    tree: dict[str, Any] = {}
    for path, value in leaves:
        table = tree
        for name in path[:-1]:
            below = table.get(name)
            table[name] = below = below if isinstance(below, dict) else {}
            table = below
        table[path[-1]] = value
    return tree


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one tree over another, table by table."""
    both = dict(under)
    for name, value in over.items():
        below = both.get(name)
        is_table = isinstance(value, Mapping) and isinstance(below, Mapping)
        both[name] = overlay(below, value) if is_table else value  # type: ignore[arg-type] # checked above
    return both


def value_at(tree: object, path: Path) -> Any:
    """Return the value at a path; None: there is none."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else getattr(tree, name, None)
    return tree


def is_under(path: Path, above: Path) -> bool:
    """Tell whether a path equals the other one or is below it."""
    return path[: len(above)] == above


def path_of(text: str) -> Path:
    """Parse a path as TOML writes it: `keys."a.example".delay` has three parts."""
    tree: Any = _parse_toml(f"{text} = 0") if "\n" not in text else None
    path = []
    while isinstance(tree, dict) and len(tree) == 1:
        ((part, tree),) = tree.items()
        path.append(part)
    if tree != 0 or len(path) > _MAX_PARTS:
        raise SettingsError(
            f"{text[:_MAX_SHOWN]!r} is no path of a setting, as in politeness.delay"
        )
    return flat_path(tuple(path))


def parse_assignments(pairs: Iterable[str], option: str = "--set") -> dict[str, Any]:
    """Parse `politeness.delay=2` into a tree."""
    leaves = []
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not (sign and name.strip()):
            fix = "write section.name=value, as in politeness.delay=2"
            raise SettingsError(f"{option} {pair}: {fix}")
        leaves.append((path_of(name.strip()), read_value(value.strip())))
    return tree_of(leaves)


def read_value(text: str) -> Any:
    """Parse a value as TOML; text that is not TOML is a string, so that words need no quotes."""
    tree = _parse_toml(f"value = {text}")
    return tree["value"] if tree is not None and len(tree) == 1 else text


def _parse_toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
