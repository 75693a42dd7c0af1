"""Settings of a running crawl, changed: whole or not at all, durable, and for all its workers.

What is said at run time is a note a setting (N1). Whoever says it applies the rules that follow.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from outrider.core.policy.queue_key import address
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import Set
from outrider.errors import SettingsError, StoreError
from outrider.frontier.following import EVERY, Followed
from outrider.frontier.learning import UPDATES, Learning, log
from outrider.frontier.pages import stepped
from outrider.settings import BaseSettings, Layer, Layers, Settings, crawl_rules, merged, to_text
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
from outrider.store.protocol import SharedValueWrite

_OVERRIDE: Final = 3  # parts of the path of one field of an override by key
_LAST: Final = 2**53  # a number for what is yet to be noted
_COST: Final = ("budget", "cost")
_KEYING: Final = ("queue", "key")


class _Wanted(NamedTuple):
    """A change that was found to be valid."""

    layers: Layers  # what this process says for itself
    settings: Settings  # what holds then
    said: Mapping[Path, Any] = {}  # what all are told,
    gone: tuple[str, ...] = ()  # and the notes that are taken back
    paths: tuple[Path, ...] = ()  # all that may change


class Configuring(Learning):
    """How settings change."""

    async def configure(self, changes: Mapping[str, Any], *, by: str | None = None) -> Settings:
        """Change settings of the running crawl: validated whole, durable, for all its workers.

        It acts at once (E5), and on other workers within seconds. What only a process can say for
        itself (functions, places on its machine) is changed in this one alone, and only if the
        crawl was opened here. `by` says who wants it; the worker, unless given.
        """
        async with self._configuring:
            await self.learn()
            return await self._change(self._wanted(changes), by or self.worker)

    async def unset(self, *paths: str, by: str | None = None) -> Settings:
        """Take back what was said at run time of these settings, and of all below them."""
        async with self._configuring:
            await self.learn()
            gone = {name: one.path for path in paths for name, one in self._said_under(path)}
            left = [one for name, one in self._updates.items() if name not in gone]
            settings = self._valid(self._ground, left)
            wanted = _Wanted(self._layers, settings, {}, tuple(gone), tuple(gone.values()))
            return await self._change(wanted, by or self.worker)

    async def follow(
        self, path: str | os.PathLike[str], *, tell: Callable[[str], object] = log.warning
    ) -> Callable[[], None]:
        """Go by a file of settings, and by what becomes of it while the frontier is open.

        What is wrong with it later is told, once, and changes nothing. Answers with the function
        that ends it.
        """
        followed = Followed(path)
        await self._go_by_file(followed.read())
        task = asyncio.get_running_loop().create_task(self._following(followed, tell))
        self._followers.add(task)
        task.add_done_callback(self._followers.discard)

        def end() -> None:
            task.cancel()

        return end

    async def _following(self, followed: Followed, tell: Callable[[str], object]) -> None:
        while True:
            await self._clock.sleep(EVERY)
            try:
                layer = followed.look()
                if layer is not None:
                    await self._go_by_file(layer)
            except SettingsError as error:
                tell(f"the settings stay as they are: {error}")
            except StoreError:  # it may be back at the next look
                followed.again()

    async def _end_following(self) -> None:
        for task in self._followers:
            task.cancel()
        if self._followers:
            await asyncio.wait(self._followers)

    async def _go_by_file(self, layer: Layer) -> None:
        async with self._configuring:
            await self.learn()
            layers = replace(self._layers, file=layer)
            settings = self._valid(self._grounded(layers), self._updates.values())
            paths = [path for path, _ in (*leaves_of(self._settings), *leaves_of(settings))]
            wanted = _Wanted(layers, settings, paths=tuple(dict.fromkeys(paths)))
            await self._change(wanted, layer.origin)

    # ---- what is wanted, validated

    def _wanted(self, changes: Mapping[str, Any]) -> _Wanted:
        merged(self._settings, changes)  # whatever is wrong with its shape
        said = dict(leaves_of(changes))
        own = {path: value for path, value in said.items() if own_process_reason(path, value)}
        layers, ground = self._layers, self._ground
        if own:
            layers = self._saying(own)
            ground = self._grounded(layers)
        told = {path: value for path, value in said.items() if path not in own}
        gone = self._excluded_by(said, own)
        left = [one for name, one in self._updates.items() if name not in gone]
        new = [Update(path, value, "", 0.0, _LAST) for path, value in told.items()]
        settings = self._valid(ground, [*left, *new])
        self._check_reach(ground, settings, said)
        return _Wanted(layers, settings, told, gone, tuple(said))

    def _check_reach(
        self, ground: BaseSettings, settings: Settings, said: Mapping[Path, Any]
    ) -> None:
        """A4: what is said by key can reach a queue; of a function that is not here, any can."""
        if _KEYING in ground.code and _KEYING not in said:
            return
        names = {
            path[1] for path in said if path[0] == KEYS and len(path) > 1
        } & settings.keys.keys()
        with translate_errors(str):
            check_reach(settings, None if _KEYING in said else sorted(names))

    def _saying(self, own: Mapping[Path, Any]) -> Layers:
        """The layers with what this process says for itself."""
        if self._is_attached:
            raise SettingsError(next(own_process_reason(*leaf) for leaf in own.items()))
        given = self._layers.given or Layer("given", {})
        tree = given.tree if isinstance(given.tree, Mapping) else tree_of(leaves_of(given.tree))
        return replace(self._layers, given=replace(given, tree=overlay(tree, tree_of(own.items()))))

    def _excluded_by(self, said: Iterable[Path], own: Iterable[Path]) -> tuple[str, ...]:
        """Notes that say something else of these settings, or of a table around them."""
        names = {dotted_path(path) for path in said} - {dotted_path(path) for path in own}
        return tuple(
            name
            for name, one in self._updates.items()
            if name not in names
            and any(is_under(path, one.path) or is_under(one.path, path) for path in said)
        )

    def _said_under(self, text: str) -> list[tuple[str, Update]]:
        path = path_of(text)
        found = [(name, one) for name, one in self._updates.items() if is_under(one.path, path)]
        if not found:
            raise SettingsError(f"{text}: nothing was said of it at run time")
        return found

    def _valid(self, ground: BaseSettings, updates: Iterable[Update]) -> Settings:
        """What holds with these; SettingsError: it cannot, and nothing is changed."""
        if not ground.is_whole:
            raise SettingsError(ground.lacks)
        laid_over = apply_updates(ground, updates)
        for update, why in laid_over.ignored:
            if update.number not in self._ignored:
                raise SettingsError(why)
        self._made(laid_over.settings, laid_over.keys)  # functions that cannot be imported
        return laid_over.settings

    # ---- and done

    async def _change(self, wanted: _Wanted, by: str) -> Settings:
        if wanted.settings.events != self._settings.events:
            self._write_events(wanted.settings.events.jsonl)
        is_shared = not self._is_attached or bool(wanted.said or wanted.gone)
        if is_shared:
            await self._note(self._notes_of(wanted, by), self._told_of(wanted, by))
        self._layers, self._ground = wanted.layers, self._grounded(wanted.layers)
        await self.listen()
        self._renew()
        if is_shared:
            await self._apply_rules()
            await self._take_acts_back(wanted.said)
        return self._settings

    async def _take_acts_back(self, said: Mapping[Path, Any]) -> None:
        """A4: what is said now of a key or suffix wins over what an act set there before."""
        fields: dict[str, dict[str, None]] = {}
        for path in said:
            if path[0] == KEYS and len(path) == _OVERRIDE:
                fields.setdefault(path[1], {})[path[2]] = None
        for name, taken in fields.items():
            with suppress(ValueError):  # it reaches nothing, and was said before that was refused
                await self._take_act_back(address(self._keyed_by(), name), Set(taken))

    async def _take_act_back(self, target: str, act: Set) -> None:
        """Without an event: nobody acted on these queues."""
        steps = stepped(lambda after: self.store.steer(self.crawl, target, act, after=after))
        async for _ in steps:
            pass

    def _notes_of(self, wanted: _Wanted, by: str) -> list[SharedValueWrite]:
        """One for each setting that is not said just so already."""
        there = {one.path: one.value for one in self._updates.values()}
        said = [
            SharedValueWrite(
                UPDATES,
                dotted_path(path),
                update_text(value, plain(value_at(self._settings, path)), by),
            )
            for path, value in wanted.said.items()
            if path not in there or there[path] != value
        ]
        return [*(SharedValueWrite(UPDATES, name, "") for name in wanted.gone), *said]

    def _told_of(self, wanted: _Wanted, by: str) -> list[str]:
        """What the history is to keep."""
        old, new = self._settings, wanted.settings
        pairs = ((path, value_at(old, path), value_at(new, path)) for path in wanted.paths)
        return [
            change_text(path, plain(before), plain(after), by)
            for path, before, after in pairs
            if before != after
        ]

    async def _note(self, notes: list[SharedValueWrite], texts: list[str]) -> None:
        """In one step; where another was quicker to take a place in the history, in the next."""
        while notes or texts:
            slots = self._history.notes(texts)
            numbers = await self.store.put_values(self.crawl, [*notes, *slots])
            answers = numbers[len(notes) :]
            texts = [slot.text for slot, number in zip(slots, answers, strict=True) if not number]
            notes = []
            if texts:
                await self.listen()

    async def _apply_rules(self) -> None:
        """Whoever applies last has heard what others said before: no rule is lost between two."""
        applied = None
        while applied is not self._settings:
            applied = self._settings
            await self._apply_once()
            await self.listen()

    async def _apply_once(self) -> None:
        text = "" if self._is_attached else to_text(self._ground)
        if await self.store.configure(self.crawl, self._rules(), text):
            await self.steer("", Set({}))
        if self._admission.root is not None:
            await self._learn_roots()

    def _rules(self) -> CrawlRules:
        """What the store is to apply; code that is not here keeps its name."""
        said = {one.path for one in self._updates.values()}
        code = {path: name for path, name in self._ground.code.items() if path not in said}
        settings, keys = self._settings, self._key_layers
        if _COST in code:
            settings = replace(settings, budget=replace(settings.budget, cost=code[_COST]))
        if _KEYING in code:  # a function may give any key
            settings = replace(settings, queue=replace(settings.queue, key=code[_KEYING]))
        by_key = {path: name for path, name in code.items() if path[0] == KEYS}
        if by_key:
            keys = keys._replace(base=overlay(keys.base, tree_of(by_key.items())[KEYS]))
        return crawl_rules(settings, keys)
