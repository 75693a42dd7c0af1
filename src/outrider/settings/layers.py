"""Layers of settings: what each source gives, and the result of laying them over each other (N1).

Defaults < profile < file < environment < command line < what Python passes. Runtime settings are
laid over all of them, in `runtime`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from outrider.settings.consistency import given_paths
from outrider.settings.errors import InvalidSetting, Path, dotted_path, translate_errors
from outrider.settings.paths import is_under, leaves_of, overlay, tree_of, value_at
from outrider.settings.profiles import POLITE, PROFILE, profile_of
from outrider.settings.schema import Settings
from outrider.settings.validation import check_reach, check_whole, overlay_settings

DEFAULT: Final = "default"
_QUIET: Final = ("given", "command line")  # the caller knows what it passed


class Layer(msgspec.Struct, frozen=True):
    """A tree from one source; `origins` are the sources of single leaves."""

    origin: str
    tree: Mapping[str, Any] | Settings
    origins: Mapping[Path, str] = {}

    def leaf_origins(self) -> Iterator[tuple[Path, str]]:
        """Yield every leaf with its origin; for a whole tree, leaves that are not defaults."""
        for path, _ in leaves_of(_given(self.tree)):
            yield path, self.origins.get(path, self.origin)

    def describe_error(self, fault: InvalidSetting) -> str:
        """Return the message of an error, with its origin."""
        near = (
            name
            for path, name in self.origins.items()
            if is_under(fault.path, path) or is_under(path, fault.path)
        )
        origin = next(near, self.origin)
        return str(fault) if origin in _QUIET else f"{origin}: {fault}"


class BaseSettings(msgspec.Struct, frozen=True):
    """The settings below all runtime settings, with their origins.

    `lacks` says in words what is missing of a joined crawl, and `code` names that code; unless it
    `is_whole`, the stored settings could not be read. `doubts` are contradictions that the joined
    crawl was started with, `clashes` those between this process's settings and the crawl's.
    """

    settings: Settings
    origins: Mapping[Path, str] = {}
    profile: str = POLITE
    lacks: str = ""
    code: Mapping[Path, str] = {}
    is_whole: bool = True
    doubts: tuple[str, ...] = ()
    clashes: tuple[str, ...] = ()


class Layers(msgspec.Struct, frozen=True):
    """The sources of settings before a crawl is opened, the weakest first."""

    usual: Layer | None = None  # the defaults of a kind of use
    file: Layer | None = None
    environment: Layer | None = None
    command: Layer | None = None
    given: Layer | None = None

    def base_settings(self) -> BaseSettings:
        """Return the result of all layers, validated whole."""
        settings, origins = Settings(), dict[Path, str]()
        stack = self._stack()
        for layer in stack:
            with translate_errors(layer.describe_error):
                settings = overlay_settings(settings, _sections(layer.tree))
            origins.update(layer.leaf_origins())
        with translate_errors(lambda fault: _locate_error(stack, fault)):
            check_whole(settings, origins.keys() | given_paths(settings, Settings()))
            check_reach(settings)
        return BaseSettings(settings, origins, self.profile)

    def tree(self) -> dict[str, Any]:
        """Return all layers as one tree, not validated."""
        tree: dict[str, Any] = {}
        for layer in self._stack():
            tree = overlay(tree, _sections(layer.tree))
        return tree

    @property
    def profile(self) -> str:
        """The name of the profile below all layers."""
        return str(self._profile()[1])

    def _profile(self) -> tuple[Layer | None, object]:
        for layer in reversed(self._given()):
            if isinstance(layer.tree, Mapping) and PROFILE in layer.tree:
                return layer, layer.tree[PROFILE]
        return None, POLITE

    def _given(self) -> list[Layer]:
        every = (self.usual, self.file, self.environment, self.command, self.given)
        return [layer for layer in every if layer is not None]

    def _stack(self) -> list[Layer]:
        layer, name = self._profile()
        with translate_errors(str if layer is None else layer.describe_error):
            profile = Layer(f"profile {name}", profile_of(name))
        rest = [one for one in self._given() if one is not self.usual]
        return [*([self.usual] if self.usual else []), profile, *rest]


AnySettings: TypeAlias = Settings | Mapping[str, Any] | Layers | None


def layers_of(value: AnySettings) -> Layers:
    """Return any form of settings as layers."""
    if isinstance(value, Layers):
        return value
    return Layers(given=Layer("given", {} if value is None else value))


def _locate_error(stack: list[Layer], fault: InvalidSetting) -> str:
    """Return the message of an error of the whole tree, with the origins of its settings."""
    origins = {path: name for layer in stack for path, name in layer.leaf_origins()}
    sources = []
    for path in (fault.path, *fault.others):
        name = next((name for one, name in origins.items() if is_under(one, path)), "given")
        if name not in _QUIET:
            sources.append(f"{dotted_path(path)} is from {name}")
    return f"{fault} ({'; '.join(sources)})" if sources else str(fault)


def _sections(tree: Mapping[str, Any] | Settings) -> Any:
    given = _given(tree)
    if isinstance(given, Mapping):
        return {name: value for name, value in given.items() if name != PROFILE}
    return given


def _given(tree: Mapping[str, Any] | Settings) -> Any:
    """Return what a tree gives; for a whole tree what differs from the defaults."""
    if not isinstance(tree, Settings):
        return tree
    usual = Settings()
    return tree_of(
        (path, value) for path, value in leaves_of(tree) if value != value_at(usual, path)
    )


def as_text(origins: Mapping[Path, str]) -> dict[str, list[str]]:
    """Group the paths of settings by their origin."""
    found: dict[str, list[str]] = {}
    for path, origin in origins.items():
        found.setdefault(origin, []).append(dotted_path(path))
    return found
