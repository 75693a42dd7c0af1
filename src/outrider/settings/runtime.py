"""Runtime settings: one shared value per leaf, laid over all other layers (N1, N4).

Anyone who can write to the store can write them. So none of them may name code, and one that
cannot be applied is left out without affecting the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from outrider.errors import SettingsError
from outrider.settings.errors import InvalidSetting, Path, dotted_path
from outrider.settings.foreign_code import code_in, foreign_code, is_code
from outrider.settings.layers import BaseSettings
from outrider.settings.paths import KEYS, is_under, path_of, tree_of
from outrider.settings.profiles import PROFILE
from outrider.settings.schema import KeyLayers, Settings
from outrider.settings.stored import is_local
from outrider.settings.validation import apply_changes, keys_of

_AT_START: Final = ("store", "events", "output")
_NO_CODE: Final = "code is never imported from a store; name it when the process starts"
_MAX_BY: Final = 200  # characters of a name
_DECODING: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, SettingsError)


class Update(NamedTuple):
    """One runtime setting; a value of None removes an entry of a table."""

    path: Path
    value: Any
    by: str
    at: float
    number: int  # of the shared value

    @property
    def origin(self) -> str:
        """The person or program that set it, and when."""
        return f"runtime ({self.by}, {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M:%SZ})"


class Change(msgspec.Struct, frozen=True):
    """One setting that was changed: who, when, from what to what (N4)."""

    path: str
    old: Any
    new: Any
    by: str
    at: float


class AppliedUpdates(NamedTuple):
    """The settings with all updates, their origins, and ignored updates with reasons."""

    settings: Settings
    origins: Mapping[Path, str]
    ignored: list[tuple[Update, str]]
    keys: KeyLayers  # of `settings.keys`: those below, and those set at run time


class _StoredUpdate(msgspec.Struct, frozen=True):
    value: Any
    by: str = ""
    old: Any = None


class _StoredChange(msgspec.Struct, frozen=True):
    path: str
    by: str
    old: Any = None
    new: Any = None


def update_text(value: object, old: object, by: str) -> str:
    """Encode the shared value of a runtime setting."""
    return msgspec.json.encode(_StoredUpdate(value, by[:_MAX_BY], old)).decode()


def update_of(name: str, text: str, at: float, number: int) -> Update:
    """Decode the shared value of a runtime setting; raises SettingsError if it is not valid."""
    try:
        stored = msgspec.json.decode(text, type=_StoredUpdate)
        path = path_of(name)
        if isinstance(stored.value, dict):
            raise SettingsError("a table; every setting has a shared value of its own")
        if why := own_process_reason(path, stored.value):
            raise SettingsError(why)
        return Update(path, stored.value, stored.by[:_MAX_BY], at, number)
    except _DECODING as error:
        raise SettingsError(f"{name}: {error}") from error


def own_process_reason(path: Path, value: object) -> str:
    """Return why a setting cannot be set for all workers; "": it can."""
    name = dotted_path(path)
    if path[:1] == (PROFILE,):
        return f"{name}: settings begin with a profile, so name it where the crawl is begun"
    if path[0] in _AT_START or is_local(path):
        return f"{name}: every process sets this for itself when it starts"
    if is_code(path, value):
        return f"{name}: {_NO_CODE}"
    return ""


def change_text(path: Path, old: object, new: object, by: str) -> str:
    """Encode a change for the history; very long values are cut."""
    return msgspec.json.encode(
        _StoredChange(dotted_path(path), by[:_MAX_BY], _short(old), _short(new))
    ).decode()


def change_of(text: str, at: float) -> Change | None:
    """Decode a change of the history; None: it cannot be read."""
    try:
        change = msgspec.json.decode(text, type=_StoredChange)
    except _DECODING:
        return None
    return Change(change.path, change.old, change.new, change.by[:_MAX_BY], at)


def _short(value: object) -> object:
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= _MAX_VALUE else text[:_MAX_VALUE] + "…"


_MAX_VALUE: Final = 2000  # characters of a value in the history


def apply_updates(base: BaseSettings, updates: Iterable[Update]) -> AppliedUpdates:
    """Apply updates in their order; those that are not valid are ignored."""
    applied, ignored = sorted(updates, key=lambda update: update.number), []
    own = code_in(base.settings)
    while True:
        try:
            tree = tree_of((one.path, one.value) for one in applied)
            settings = apply_changes(base.settings, tree, base.origins.keys())
            for path, value in foreign_code(settings, own).items():
                raise InvalidSetting(path, value, _NO_CODE)  # noqa: TRY301 - as any other fault of an update
        except InvalidSetting as fault:
            wrong = _conflicting_update(applied, fault)
            applied.remove(wrong)
            ignored.append((wrong, str(fault)))
        else:
            origins = {one.path: one.origin for one in applied}
            keys = _key_layers(base.settings, applied)
            return AppliedUpdates(settings, {**base.origins, **origins}, ignored, keys)


def _key_layers(below: Settings, applied: Iterable[Update]) -> KeyLayers:
    """Separate overrides set at run time (A4), which win, from those below; None removes one."""
    by_key = [one for one in applied if one.path[0] == KEYS and len(one.path) > 1]
    gone = tree_of((one.path, None) for one in by_key if one.value is None)
    new = tree_of((one.path, one.value) for one in by_key if one.value is not None)
    return KeyLayers(keys_of(gone.get(KEYS, {}), below.keys), keys_of(new.get(KEYS, {}), {}))


def _conflicting_update(applied: list[Update], fault: InvalidSetting) -> Update:
    """Return the update that caused an error; if none did, the last one."""
    if fault.others:
        paths = (fault.path, *fault.others)
        crossing = [one for one in applied if any(is_under(one.path, path) for path in paths)]
        return (crossing or applied)[-1]
    there = [one for one in applied if is_under(fault.path, one.path)]
    below = [one for one in applied if is_under(one.path, fault.path)]
    return (there or below or applied)[-1]
