"""What a crawl's settings are now, as everybody who works on it learns them (N1, N3).

Whoever learns only goes by it: the rules that follow were applied by whoever made the change.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from outrider.errors import SettingsError
from outrider.frontier.footing import SettingsWatcher
from outrider.frontier.history import HISTORY, PAGE, changes
from outrider.frontier.rooting import Rooting
from outrider.logs import logger_of
from outrider.settings import Change, Setting, Settings, list_settings
from outrider.settings.runtime import apply_updates, update_of
from outrider.settings.schema import KeyLayers
from outrider.store.protocol import SharedValue

UPDATES: Final = "config"  # the topic of settings said at run time

log: Final = logger_of(__name__)


class Learning(Rooting):
    """What holds, where it is from, and who is told when it changes."""

    async def config(self) -> list[Setting]:
        """Every setting: its value, where that is from, its default and what it means (N5)."""
        await self.learn()
        return list_settings(self._settings, self._origins, self._ground.profile)

    async def config_history(self) -> list[Change]:
        """Who changed what, when, from what to what: the last thousand changes, in order (N4)."""
        return await changes(self.store, self.crawl)

    def watch_settings(self, watcher: SettingsWatcher) -> Callable[[], None]:
        """Call a function with what held and what holds, at every change, whatever brought it.

        Answers with the function that ends it. What a watcher raises is logged.
        """
        self._watchers.append(watcher)

        def end() -> None:
            with suppress(ValueError):  # ended twice
                self._watchers.remove(watcher)

        return end

    async def learn(self) -> None:
        """Go by the crawl's settings as they are now: what was said of them at run time, and, if
        attached, what its owner says.

        `lacks` tells what of them cannot be had here; until it is given, nothing can be admitted.
        """
        if self._is_attached:
            text = await self.store.settings(self.crawl)
            if text != self._kept:
                self._kept = text
                self._ground = self._grounded(self._layers)
                self._warn_of_contradictions()
                self._renew()
        await self.listen()

    def _warn_of_contradictions(self) -> None:
        """Tell, once each, what contradicts in the settings that the crawl is stored with."""
        for text in (*self._ground.doubts, *self._ground.clashes):
            if text not in self._doubted:
                self._doubted.add(text)
                log.warning("crawl %r: its settings contradict each other: %s", self.crawl, text)

    async def listen(self) -> None:
        """Hear what was noted of the crawl since: settings said at run time, and signals."""
        self._heard_ms = self._clock.now_ms()
        is_news = False
        while notes := await self.store.values_since(self.crawl, after=self._noted, limit=PAGE):
            for note in notes:
                if note.number > self._noted:  # else another call was quicker
                    self._noted = note.number
                    is_news |= self._takes(note)
            if len(notes) < PAGE:
                break
        if is_news:
            self._renew()

    def _takes(self, note: SharedValue) -> bool:
        """Whether a note is one of settings; others are heard elsewhere."""
        if note.topic == UPDATES:
            self._update(note)
        elif note.topic == HISTORY:
            self._history.saw(note)
        else:
            self._hear(note)
        return note.topic == UPDATES

    def _update(self, note: SharedValue) -> None:
        self._updates.pop(note.name, None)
        try:
            if note.text:
                self._updates[note.name] = update_of(note.name, note.text, note.at, note.number)
        except SettingsError as error:
            log.warning("crawl %r: a setting is ignored: %s", self.crawl, error)

    def _renew(self) -> None:
        """Lay everything over each other once more, and go by it."""
        laid = apply_updates(self._ground, self._updates.values())
        for update, why in laid.ignored:
            if update.number not in self._ignored:
                log.warning("crawl %r: a setting is ignored: %s", self.crawl, why)
        self._ignored = {update.number for update, _ in laid.ignored}
        self._origins = laid.origins
        if (laid.settings, laid.keys) != (self._settings, self._key_layers):
            self._go_by(laid.settings, laid.keys)

    def _go_by(self, settings: Settings, keys: KeyLayers) -> None:
        old, bypassed = self._settings, self._admission.bypassed
        changed = {"keys"} if keys != self._key_layers else set()
        self._use(settings, keys)
        self._admission.bypassed = bypassed
        if (old.scoring, old.focus) != (settings.scoring, settings.focus):
            self._scoring_changed()
        names = Settings.__struct_fields__
        changed |= {name for name in names if getattr(old, name) != getattr(settings, name)}
        self._teller.tell("config", changes=sorted(changed))
        for watcher in list(self._watchers):
            try:
                watcher(old, settings)
            except Exception:
                log.exception("crawl %r: a watcher of settings failed", self.crawl)
