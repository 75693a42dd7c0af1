"""Errors of settings: inside this package an `InvalidSetting`, outside a SettingsError (N2)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final, TypeAlias

from outrider.errors import SettingsError

Path: TypeAlias = tuple[str, ...]

_BARE: Final = re.compile(r"[A-Za-z0-9_<>-]+").fullmatch
_MAX_SHOWN: Final = 80


class InvalidSetting(Exception):
    """A setting that is refused: its path and value as given, and the problem with its fix.

    `others` are the settings that contradict it, if each is allowed by itself.
    """

    def __init__(
        self, path: Path, value: object, problem: str, others: tuple[Path, ...] = ()
    ) -> None:
        super().__init__(path, value, problem, others)
        self.path, self.value, self.problem, self.others = path, value, problem, others

    def __str__(self) -> str:
        return f"{dotted_path(self.path)} = {short_repr(self.value)}: {self.problem}"


@contextmanager
def translate_errors(sentence: Callable[[InvalidSetting], str]) -> Iterator[None]:
    """Raise the SettingsError that users see for an InvalidSetting."""
    try:
        yield
    except InvalidSetting as fault:
        raise SettingsError(sentence(fault)) from None


def unknown_setting(
    path: Path, value: object, known: Iterable[str], homes: Mapping[str, str]
) -> InvalidSetting:
    """Return the error of an unknown name; `homes` gives the section where a name is known."""
    close = [dotted_path((*path[:-1], near)) for near in get_close_matches(path[-1], known, 1)]
    meant = " or ".join([*close, *filter(None, [homes.get(path[-1])])])
    hint = f"did you mean {meant}?" if meant else f"known here: {', '.join(known)}"
    return InvalidSetting(path, value, f"no such setting; {hint}")


def dotted_path(path: Path) -> str:
    """Return the path as TOML writes it."""
    return ".".join(part if _BARE(part) else json.dumps(part) for part in path) or "settings"


def short_repr(value: object) -> str:
    """Return a short text of the value, for messages."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a user's repr may raise anything, and a huge int has none
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
