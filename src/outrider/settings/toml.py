"""TOML text becomes a tree; a fault names the source and the line."""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from outrider.errors import SettingsError
from outrider.settings.faults import Path, explained
from outrider.settings.reading import read
from outrider.settings.tree import Settings


def from_toml(text: str, *, source: str = "settings", over: Settings | None = None) -> Settings:
    """The validated tree that TOML text stands for, laid over another tree or the defaults."""
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{source}: not TOML: {error}") from error
    with explained(lambda fault: f"{source}, line {_line_of(fault.path, text)}: {fault}"):
        return read(tree, over or Settings())


def _line_of(path: Path, text: str) -> int:
    """Where the setting begins; tomllib keeps no lines, so ever shorter beginnings are read."""
    lines = text.replace("\r\n", "\n").split("\n")
    counts = range(len(lines))
    end = bisect_left(counts, x=True, key=lambda count: _reaches(_beginning(lines, count)[0], path))
    return _beginning(lines, end - 1)[1] + 1


def _beginning(lines: Sequence[str], count: int) -> tuple[dict[str, Any], int]:
    """The longest readable beginning of at most so many lines, and its length."""
    while True:
        try:
            return tomllib.loads("\n".join(lines[:count])), count
        except tomllib.TOMLDecodeError:
            count -= 1  # inside a value of several lines


def _reaches(tree: object, path: Path) -> bool:
    for part in path:
        if not isinstance(tree, dict):
            return True
        if part not in tree:
            return False
        tree = tree[part]
    return True
