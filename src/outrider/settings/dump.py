"""Settings as plain builtins, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from outrider.core.policy.link_types import TypeRule
from outrider.core.policy.retry import Backoff
from outrider.settings.schema import Settings
from outrider.settings.validation import settings_of


def to_mapping(settings: Settings) -> dict[str, Any]:
    """Return what differs from the defaults; functions and objects by name."""
    return _differing(settings_of(settings), Settings())


def _differing(value: msgspec.Struct, default: msgspec.Struct) -> dict[str, Any]:
    names = value.__struct_fields__
    pairs = ((name, getattr(value, name), getattr(default, name)) for name in names)
    return {name: plain(new, old) for name, new, old in pairs if new != old}


def plain(value: object, default: object = None) -> object:
    """Return a value in builtins; of a section, what differs from the default."""
    if isinstance(value, msgspec.Struct) and isinstance(default, msgspec.Struct):
        return _differing(value, default)
    if isinstance(value, Backoff | TypeRule):
        return _differing(value, type(value)())
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | None) else name_of(value)


def name_of(value: object) -> str:
    """Return the name of a function, or of an object's class, whether or not it can be imported."""
    named: Any = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"
