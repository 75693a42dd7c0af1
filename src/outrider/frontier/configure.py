"""Changes of a running crawl's settings: whole or not at all, durable, for all its workers.

Each runtime setting is one shared value (N1). The worker that changes settings also applies the
rules that follow from them to the store.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from outrider.core.policy.queue_key import address
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import Set
from outrider.errors import SettingsError, StoreError
from outrider.frontier.add import ScopeRoots
from outrider.frontier.context import FrontierContext
from outrider.frontier.event_reporter import signature
from outrider.frontier.live_settings import RUNTIME_SETTINGS, LiveSettings
from outrider.frontier.store_calls import NO_CRAWL, exists, steer_queues
from outrider.settings import (
    BaseSettings,
    Layer,
    Layers,
    Settings,
    crawl_rules,
    file_layer,
    merged,
    to_text,
)
from outrider.settings.dump import plain
from outrider.settings.errors import Path, dotted_path, translate_errors
from outrider.settings.paths import KEYS, is_under, leaves_of, overlay, path_of, tree_of, value_at
from outrider.settings.runtime import (
    Update,
    apply_updates,
    change_text,
    own_process_reason,
    update_text,
)
from outrider.settings.validation import check_reach
from outrider.store.protocol import SharedValueWrite, WhichCrawl

FILE_INTERVAL: Final = 1.0  # seconds between two looks at a watched file
_OVERRIDE: Final = 3  # parts of the path of one field of an override by key
_LAST: Final = 2**53  # the number of a runtime setting that is not yet written
_COST: Final = ("budget", "cost")
_QUEUE_KEY: Final = ("queue", "key")

_FileStat: TypeAlias = tuple[int, int, int] | None


class _ValidChange(NamedTuple):
    """A change that was found to be valid."""

    layers: Layers  # of this process
    settings: Settings  # in force after the change
    written: Mapping[Path, Any] = {}  # runtime settings to write
    removed: tuple[str, ...] = ()  # runtime settings to remove
    paths: tuple[Path, ...] = ()  # of all settings that may change


class Configurer:
    """Changes settings, one change at a time, and follows settings files."""

    def __init__(self, context: FrontierContext, settings: LiveSettings, roots: ScopeRoots) -> None:
        self._context = context
        self._live = settings
        self._roots = roots
        self._lock = asyncio.Lock()
        self._followers: set[asyncio.Task[None]] = set()  # of files; `close` ends them

    async def configure(self, changes: Mapping[str, Any], *, by: str | None = None) -> Settings:
        """See `Frontier.configure` (E5)."""
        actor = self._context.actor(by)
        async with self._lock:
            await self._live.learn()
            return await self._change(self._validate(changes), actor)

    async def unset(self, *paths: str, by: str | None = None) -> Settings:
        """See `Frontier.unset`."""
        live, actor = self._live, self._context.actor(by)
        async with self._lock:
            await live.learn()
            removed = {name: one.path for path in paths for name, one in self._updates_under(path)}
            left = [one for name, one in live.updates.items() if name not in removed]
            settings = self._validate_updates(live.base, left)
            change = _ValidChange(
                live.layers, settings, {}, tuple(removed), tuple(removed.values())
            )
            return await self._change(change, actor)

    async def follow(
        self, path: str | os.PathLike[str], *, tell: Callable[[str], object]
    ) -> Callable[[], None]:
        """See `Frontier.follow`."""
        file = WatchedFile(path)
        await self._use_file(file.read())
        task = asyncio.get_running_loop().create_task(self._follow(file, tell))
        self._followers.add(task)
        task.add_done_callback(self._followers.discard)

        def end() -> None:
            task.cancel()

        return end

    async def _follow(self, file: WatchedFile, tell: Callable[[str], object]) -> None:
        while True:
            await self._context.clock.sleep(FILE_INTERVAL)
            try:
                layer = file.read_if_changed()
                if layer is not None:
                    await self._use_file(layer)
            except SettingsError as error:
                tell(f"the settings stay as they are: {error}")
            except StoreError:  # it may be back at the next look
                file.retry()

    async def close(self) -> None:
        """Stop following files."""
        for task in self._followers:
            task.cancel()
        if self._followers:
            await asyncio.wait(self._followers)

    async def _use_file(self, layer: Layer) -> None:
        live = self._live
        async with self._lock:
            await live.learn()
            layers = replace(live.layers, file=layer)
            settings = self._validate_updates(live.base_of(layers), live.updates.values())
            now = self._context.policies.settings
            paths = [path for path, _ in (*leaves_of(now), *leaves_of(settings))]
            change = _ValidChange(layers, settings, paths=tuple(dict.fromkeys(paths)))
            await self._change(change, self._context.by, author=layer.origin)

    # ---- validation

    def _validate(self, changes: Mapping[str, Any]) -> _ValidChange:
        merged(self._context.policies.settings, changes)  # raises if the shape is wrong
        given = dict(leaves_of(changes))
        own = {path: value for path, value in given.items() if own_process_reason(path, value)}
        layers, base = self._live.layers, self._live.base
        if own:
            layers = self._layers_with(own)
            base = self._live.base_of(layers)
        written = {path: value for path, value in given.items() if path not in own}
        removed = self._replaced_by(given, own)
        left = [one for name, one in self._live.updates.items() if name not in removed]
        new = [Update(path, value, "", 0.0, _LAST) for path, value in written.items()]
        settings = self._validate_updates(base, [*left, *new])
        self._check_reach(base, settings, given)
        return _ValidChange(layers, settings, written, removed, tuple(given))

    def _check_reach(
        self, base: BaseSettings, settings: Settings, given: Mapping[Path, Any]
    ) -> None:
        """Check that overrides by key can match a queue (A4); of a missing function, any can."""
        if _QUEUE_KEY in base.code and _QUEUE_KEY not in given:
            return
        names = {
            path[1] for path in given if path[0] == KEYS and len(path) > 1
        } & settings.keys.keys()
        with translate_errors(str):
            check_reach(settings, None if _QUEUE_KEY in given else sorted(names))

    def _layers_with(self, own: Mapping[Path, Any]) -> Layers:
        """Return this process's layers with settings that concern it alone."""
        layers = self._live.layers
        if self._live.is_attached:
            raise SettingsError(next(own_process_reason(*leaf) for leaf in own.items()))
        given = layers.given or Layer("given", {})
        tree = given.tree if isinstance(given.tree, Mapping) else tree_of(leaves_of(given.tree))
        return replace(layers, given=replace(given, tree=overlay(tree, tree_of(own.items()))))

    def _replaced_by(self, given: Iterable[Path], own: Iterable[Path]) -> tuple[str, ...]:
        """List runtime settings above or below the given paths: a change replaces them."""
        names = {dotted_path(path) for path in given} - {dotted_path(path) for path in own}
        return tuple(
            name
            for name, one in self._live.updates.items()
            if name not in names
            and any(is_under(path, one.path) or is_under(one.path, path) for path in given)
        )

    def _updates_under(self, text: str) -> list[tuple[str, Update]]:
        path = path_of(text)
        updates = self._live.updates.items()
        found = [(name, one) for name, one in updates if is_under(one.path, path)]
        if not found:
            raise SettingsError(f"{text}: it was not set at run time, so it cannot be unset")
        return found

    def _validate_updates(self, base: BaseSettings, updates: Iterable[Update]) -> Settings:
        """Return the settings with these updates; SettingsError: they are invalid."""
        if not base.is_whole:
            raise SettingsError(base.lacks)
        applied = apply_updates(base, updates)
        for update, why in applied.ignored:
            if update.number not in self._live.ignored:
                raise SettingsError(why)
        policies = self._context.policies
        _ = policies.make(applied.settings, applied.keys)  # raises if a function is missing
        return applied.settings

    # ---- application

    async def _change(self, change: _ValidChange, by: str, *, author: str = "") -> Settings:
        """Apply a change: `by` is for events, `author` or else `by` or the worker for history."""
        live, policies = self._live, self._context.policies
        if change.settings.events != policies.settings.events:
            self._context.reporter.write_to(change.settings.events.jsonl)
        is_shared = not live.is_attached or bool(change.written or change.removed)
        if is_shared:
            author = author or by or self._context.worker
            await self._write(self._writes_of(change, author), self._history_of(change, author))
        live.use_layers(change.layers)
        await live.listen()
        live.refresh()
        if is_shared:
            await self._apply_rules("known", by)
            await self._undo_queue_actions(change.written)
        return policies.settings

    async def _undo_queue_actions(self, written: Mapping[Path, Any]) -> None:
        """Remove what queue actions set before for the keys or suffixes configured now (A4)."""
        fields: dict[str, dict[str, None]] = {}
        for path in written:
            if path[0] == KEYS and len(path) == _OVERRIDE:
                fields.setdefault(path[1], {})[path[2]] = None
        for name, removed in fields.items():
            with suppress(ValueError):  # an override of before such names were refused
                target = address(self._live.queue_key, name)
                # No event is emitted: these queues were not acted on.
                await steer_queues(self._context.store, self._context.crawl, target, Set(removed))

    def _writes_of(self, change: _ValidChange, by: str) -> list[SharedValueWrite]:
        """Return a write for each runtime setting that differs from what is there."""
        there = {one.path: one.value for one in self._live.updates.values()}
        settings = self._context.policies.settings
        writes = [
            SharedValueWrite(
                RUNTIME_SETTINGS,
                dotted_path(path),
                update_text(value, plain(value_at(settings, path)), by),
            )
            for path, value in change.written.items()
            if path not in there or there[path] != value
        ]
        removals = [SharedValueWrite(RUNTIME_SETTINGS, name, "") for name in change.removed]
        return [*removals, *writes]

    def _history_of(self, change: _ValidChange, by: str) -> list[str]:
        """Return an entry of the history for each setting whose value changes."""
        old, new = self._context.policies.settings, change.settings
        pairs = ((path, value_at(old, path), value_at(new, path)) for path in change.paths)
        return [
            change_text(path, plain(before), plain(after), by)
            for path, before, after in pairs
            if before != after
        ]

    async def _write(self, writes: list[SharedValueWrite], history: list[str]) -> None:
        """Write all in one step; entries whose slot another worker took, in the next."""
        while writes or history:
            slots = self._live.history.writes_of(history)
            numbers = await self._context.store.put_values(self._context.crawl, [*writes, *slots])
            if not (any(numbers) or await exists(self._context.store, self._context.crawl)):
                raise SettingsError(NO_CRAWL.format(self._context.crawl))
            answers = numbers[len(writes) :]
            history = [slot.text for slot, number in zip(slots, answers, strict=True) if not number]
            writes = []
            if history:
                await self._live.listen()

    async def open_crawl(self) -> None:
        """Apply the rules of the settings to the store; create the crawl if it is new (I1)."""
        await self._apply_rules("any", "")

    async def _apply_rules(self, only: WhichCrawl, by: str) -> None:
        """Apply the rules of the settings to the store, until no worker changed them meanwhile.

        `by` is the operator who changed them; opening a crawl is no operator's act.
        """
        policies, applied = self._context.policies, None
        while applied is not policies.settings:
            applied = policies.settings
            await self._apply_rules_once(only, by)
            await self._live.listen()

    async def _apply_rules_once(self, only: WhichCrawl, by: str) -> None:
        context = self._context
        text = "" if self._live.is_attached else to_text(self._live.base)
        if await context.store.configure(context.crawl, self._rules(), text, only=only, by=by):
            count = await steer_queues(context.store, context.crawl, "", Set({}), by=by)
            await context.reporter.store_events()
            context.reporter.emit("queue-set", target="", queues=count, **signature(by))
        if context.policies.admission.root is not None:
            await self._roots.learn()

    def _rules(self) -> CrawlRules:
        """Return the rules for the store; functions that this process lacks keep their names."""
        policies, base = self._context.policies, self._live.base
        written = {one.path for one in self._live.updates.values()}
        code = {path: name for path, name in base.code.items() if path not in written}
        settings, keys = policies.settings, policies.key_layers
        if _COST in code:
            settings = replace(settings, budget=replace(settings.budget, cost=code[_COST]))
        if _QUEUE_KEY in code:  # a function may return any key
            settings = replace(settings, queue=replace(settings.queue, key=code[_QUEUE_KEY]))
        by_key = {path: name for path, name in code.items() if path[0] == KEYS}
        if by_key:
            keys = keys._replace(base=overlay(keys.base, tree_of(by_key.items())[KEYS]))
        return crawl_rules(settings, keys)


class WatchedFile:
    """A settings file that is looked at again and again (N3)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._seen = self._read = self._stat()

    def read(self) -> Layer:
        """Return its settings; SettingsError: it cannot be read."""
        return file_layer(self.path)

    def read_if_changed(self) -> Layer | None:
        """Return its settings if it changed, and did not change again since the last look."""
        stat, before = self._stat(), self._seen
        self._seen = stat
        if stat == self._read or stat != before:
            return None
        self._read = stat
        return self.read()

    def retry(self) -> None:
        """Let the next look find it changed: its settings could not be applied."""
        self._read = (-1, -1, -1)

    def _stat(self) -> _FileStat:
        try:
            found = FilePath(self.path).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
