"""The list of settings: value, default, origin, allowed values and documentation of each (N5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from outrider.core.policy.weights import BONUSES, TYPE_WEIGHTS
from outrider.settings.dump import plain
from outrider.settings.errors import Path, dotted_path
from outrider.settings.field_types import allowed_values, fields_of, struct_kind
from outrider.settings.layers import DEFAULT
from outrider.settings.paths import KEYS, value_at
from outrider.settings.profiles import ABOUT, POLITE, PROFILE, PROFILES
from outrider.settings.reference import description_of
from outrider.settings.schema import Settings
from outrider.settings.validation import adjustable

_AT_START: Final = frozenset({"store", "events", "output", "fetch", PROFILE})
BUILT_IN: Final[Mapping[Path, Mapping[str, float]]] = {  # entries that hold unless given otherwise
    ("scoring", "weights"): TYPE_WEIGHTS,
    ("scoring", "bonuses"): BONUSES,
}
_EXECUTOR: Final = frozenset(  # what an executor follows while it runs
    {
        "slots",
        "min_slots",
        "max_slots",
        "max_memory",
        "handler_timeout",
        "drain",
        "workbench_tasks",
        "workbench_per_queue",
    }
)


class Setting(msgspec.Struct, frozen=True):
    """One setting with its value, origin, default and documentation."""

    path: str
    value: Any
    origin: str
    default: Any
    allowed: str
    about: str
    acts: str  # when a change of it takes effect


def takes_effect(path: Path) -> str:
    """Return when a change of a setting takes effect."""
    is_live = path[0] not in _AT_START and (path[0] != "executor" or path[-1] in _EXECUTOR)
    return "at once" if is_live else "when a worker starts"


def list_settings(settings: Settings, origins: Mapping[Path, str], profile: str) -> list[Setting]:
    """Return all settings; of tables with names of the user's own, their entries."""
    chosen = origins.get((PROFILE,), DEFAULT)
    first = Setting(
        PROFILE,
        profile,
        chosen,
        POLITE,
        " or ".join(PROFILES),
        ABOUT.get(profile, ""),
        takes_effect((PROFILE,)),
    )
    rows = [*_rows(struct_kind(Settings), (), settings), *_overrides(settings.keys)]
    usual = Settings()
    return [
        first,
        *(_row(path, kind, about, (settings, usual), origins) for path, kind, about in rows),
    ]


def _row(
    path: Path,
    kind: inspect.Type,
    about: str,
    trees: tuple[Settings, Settings],
    origins: Mapping[Path, str],
) -> Setting:
    value, default = (plain(_effective(tree, path)) for tree in trees)
    origin = origins.get(path, DEFAULT)
    return Setting(
        dotted_path(path), value, origin, default, allowed_values(kind), about, takes_effect(path)
    )


def _effective(tree: Settings, path: Path) -> object:
    """Return the value at a path; for an entry that was not given, the built-in one."""
    value = value_at(tree, path)
    return BUILT_IN.get(path[:-1], {}).get(path[-1]) if value is None else value


def _rows(
    kind: inspect.Type, path: Path, value: Any, about: str = ""
) -> Iterator[tuple[Path, inspect.Type, str]]:
    match kind:
        case inspect.Metadata():
            yield from _rows(kind.type, path, value, description_of(kind))
        case inspect.StructType():
            for name, field in fields_of(kind).items():
                if (*path, name) != (KEYS,):
                    yield from _rows(field.kind, (*path, name), getattr(value, name))
        case inspect.DictType():
            for name, entry in {**BUILT_IN.get(path, {}), **value}.items():
                yield from _rows(kind.value_type, (*path, name), entry, about)
        case _:
            yield path, kind, about


def _overrides(keys: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[Path, inspect.Type, str]]:
    for key, override in keys.items():
        for name in override:
            yield from _rows(adjustable()[name].kind, (KEYS, key, name), None)
