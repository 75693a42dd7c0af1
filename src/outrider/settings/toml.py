"""TOML text as a tree of settings; an error names the source and the line."""

from __future__ import annotations

import os
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from outrider.errors import SettingsError
from outrider.settings.errors import Path as Where
from outrider.settings.errors import translate_errors
from outrider.settings.layers import Layer
from outrider.settings.schema import Settings
from outrider.settings.validation import overlay_settings, read_alone, split_profile


def from_toml(text: str, *, source: str = "settings") -> Settings:
    """Parse TOML text into validated settings."""
    return _read(text, source, read_alone)[1]


def toml_layer(text: str, *, source: str) -> Layer:
    """Parse TOML text into a layer, each setting checked by itself."""
    return Layer(f"file {source}", _read(text, source, _check)[0])


def file_layer(path: str | os.PathLike[str]) -> Layer:
    """Read a TOML file into a layer."""
    name = os.fspath(path)
    try:
        text = Path(name).read_text("utf-8")
    except OSError as error:
        raise SettingsError(f"{name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{name}: not UTF-8: {error}") from error
    return toml_layer(text, source=name)


def _check(tree: dict[str, Any]) -> Settings:
    rest, usual = split_profile(tree)
    return overlay_settings(usual, rest)


def _read(
    text: str, source: str, check: Callable[[dict[str, Any]], Settings]
) -> tuple[dict[str, Any], Settings]:
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{source}: not TOML: {error}") from error
    with translate_errors(lambda fault: f"{source}, line {_line_of(fault.path, text)}: {fault}"):
        return tree, check(tree)


def _line_of(path: Where, text: str) -> int:
    """Find the line of a setting: tomllib keeps no lines, so ever shorter prefixes are parsed."""
    lines = text.replace("\r\n", "\n").split("\n")
    counts = range(len(lines))
    end = bisect_left(counts, x=True, key=lambda count: _reaches(_beginning(lines, count)[0], path))
    return _beginning(lines, end - 1)[1] + 1


def _beginning(lines: Sequence[str], count: int) -> tuple[dict[str, Any], int]:
    """Return the longest prefix of at most so many lines that parses, and its length."""
    while True:
        try:
            return tomllib.loads("\n".join(lines[:count])), count
        except tomllib.TOMLDecodeError:
            count -= 1  # inside a value of several lines


def _reaches(tree: object, path: Where) -> bool:
    for part in path:
        if not isinstance(tree, dict):
            return True
        if part not in tree:
            return False
        tree = tree[part]
    return True
