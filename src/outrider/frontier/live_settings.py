"""The settings of a running crawl, as this worker knows them (N1, N3, N4).

Base settings, runtime settings on top, where each value is from, and the history of changes. A
worker that learns of a change only uses it: the one that made it has applied the crawl's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeAlias

from outrider.errors import SettingsError
from outrider.frontier.context import FrontierContext
from outrider.frontier.event_publisher import FOLLOWED, FOLLOWED_MS, WITH_BREAKDOWN
from outrider.frontier.shared_state import SharedState
from outrider.frontier.store_calls import values_of
from outrider.logs import logger_of
from outrider.settings import (
    BaseSettings,
    Change,
    Layers,
    Setting,
    Settings,
    join_stored,
    list_settings,
)
from outrider.settings.runtime import Update, apply_updates, change_of, update_of
from outrider.settings.schema import KeyLayers
from outrider.store.protocol import SharedValue, SharedValueWrite

RUNTIME_SETTINGS: Final = "config"  # the topic of runtime settings
HISTORY: Final = "config-history"  # the topic of the history
MAX_HISTORY: Final = 1000  # changes that are kept
PAGE: Final = 1000  # shared values read at a time
LISTEN_INTERVAL_MS: Final = 1000  # for a frontier without an executor, which listens more often

SettingsWatcher: TypeAlias = Callable[[Settings, Settings], object]  # given: old, new

log: Final = logger_of(__name__)


class LiveSettings:
    """Keeps the settings in force up to date with the crawl's, and notifies watchers."""

    def __init__(
        self,
        context: FrontierContext,
        shared: SharedState,
        layers: Layers,
        base: BaseSettings,
        *,
        is_attached: bool,
    ) -> None:
        self.is_attached = is_attached  # the crawl keeps the settings it has
        self.layers = layers  # of this process; if attached, they lie over the stored settings
        self.base = base  # all layers below the runtime settings
        self.origins = base.origins
        self.updates: dict[str, Update] = {}  # the runtime settings, by dotted path
        self.ignored: set[int] = set()  # the numbers of runtime settings that cannot be used
        self.history = SettingsHistory()
        self._context = context
        self._shared = shared
        self._stored = ""  # if attached: the text of the stored settings
        self._last_value = 0  # the number of the last shared value that was applied
        self._listened_ms = context.clock.now_ms()
        self._reported: set[str] = set()  # contradictions that were logged
        self._watchers: list[SettingsWatcher] = []

    @property
    def lacks(self) -> str:
        """See `Frontier.lacks`."""
        return self.base.lacks

    def require_all(self) -> None:
        """Raise `SettingsError` if the crawl's settings name code that this process lacks."""
        if self.base.lacks:
            raise SettingsError(self.base.lacks)

    @property
    def queue_key(self) -> object:
        """The setting `queue.key`; None: a function missing here, so a key may be any text."""
        base = self.base
        is_known = base.is_whole and ("queue", "key") not in base.code
        return self._context.policies.settings.queue.key if is_known else None

    async def list_all(self) -> list[Setting]:
        """See `Frontier.config` (N5)."""
        await self.learn()
        return list_settings(self._context.policies.settings, self.origins, self.base.profile)

    async def changes(self) -> list[Change]:
        """See `Frontier.config_history`."""
        values = values_of(self._context.store, self._context.crawl, HISTORY)
        found = [change_of(value.text, value.at) async for value in values]
        return [change for change in found if change is not None]

    def watch(self, watcher: SettingsWatcher) -> Callable[[], None]:
        """See `Frontier.watch_settings`."""
        self._watchers.append(watcher)

        def end() -> None:
            with suppress(ValueError):  # ended twice
                self._watchers.remove(watcher)

        return end

    def base_of(self, layers: Layers) -> BaseSettings:
        """Return the base settings if this process's layers were these."""
        return base_settings(layers, self._stored, is_attached=self.is_attached)

    async def learn(self) -> None:
        """See `Frontier.learn`."""
        if self.is_attached:
            text = await self._context.store.settings(self._context.crawl)
            if text and text != self._stored:  # "": the crawl was removed, or has none
                self._stored = text
                self.base = self.base_of(self.layers)
                self._log_contradictions()
                self.refresh()
        await self.listen()

    def _log_contradictions(self) -> None:
        """Log, once each, the contradictions in the settings that the crawl is stored with."""
        for text in (*self.base.doubts, *self.base.clashes):
            if text not in self._reported:
                self._reported.add(text)
                log.warning(
                    "crawl %r: its settings contradict each other: %s", self._context.crawl, text
                )

    @property
    def is_listen_due(self) -> bool:
        """Whether the shared values were last read too long ago."""
        return self._context.clock.now_ms() - self._listened_ms >= LISTEN_INTERVAL_MS

    async def listen(self) -> None:
        """See `Frontier.listen`."""
        context = self._context
        self._listened_ms = context.clock.now_ms()
        has_updates = False
        followed: list[SharedValue] = []
        while values := await context.store.values_since(
            context.crawl, after=self._last_value, limit=PAGE
        ):
            for value in values:
                if value.number > self._last_value:  # else a concurrent call applied it
                    self._last_value = value.number
                    has_updates |= self._apply_value(value)
                    followed += [value] if value.topic == FOLLOWED else []
            if len(values) < PAGE:
                break
        if has_updates:
            self.refresh()
        if followed:
            await self._publish_events(followed)

    async def _publish_events(self, values: Iterable[SharedValue]) -> None:
        """O3: publish events if one of these values of followers is recent."""
        now = await self._shared.store_now()
        for value in values:
            left = round(value.at * 1000) + FOLLOWED_MS - now
            if left > 0 and value.text:
                has_breakdown = value.name == WITH_BREAKDOWN
                self._context.reporter.publisher.follow_for(left, with_breakdown=has_breakdown)

    def _apply_value(self, value: SharedValue) -> bool:
        """Take over a shared value; return whether it is a runtime setting."""
        if value.topic == RUNTIME_SETTINGS:
            self._apply_update(value)
        elif value.topic == HISTORY:
            self.history.apply_value(value)
        else:
            self._shared.apply_value(value)
        return value.topic == RUNTIME_SETTINGS

    def _apply_update(self, value: SharedValue) -> None:
        self.updates.pop(value.name, None)
        try:
            if value.text:
                update = update_of(value.name, value.text, value.at, value.number)
                self.updates[value.name] = update
        except SettingsError as error:
            log.warning("crawl %r: a setting is ignored: %s", self._context.crawl, error)

    def use_layers(self, layers: Layers) -> None:
        """Use other layers of this process from now on; `refresh` puts them in force."""
        self.layers, self.base = layers, self.base_of(layers)

    def refresh(self) -> None:
        """Apply the runtime settings to the base settings again, and use the result."""
        policies = self._context.policies
        applied = apply_updates(self.base, self.updates.values())
        for update, why in applied.ignored:
            if update.number not in self.ignored:
                log.warning("crawl %r: a setting is ignored: %s", self._context.crawl, why)
        self.ignored = {update.number for update, _ in applied.ignored}
        self.origins = applied.origins
        if (applied.settings, applied.keys) != (policies.settings, policies.key_layers):
            self._use(applied.settings, applied.keys)

    def _use(self, settings: Settings, keys: KeyLayers) -> None:
        policies = self._context.policies
        old = policies.settings
        changed = {"keys"} if keys != policies.key_layers else set()
        policies.use(settings, keys)
        if (old.scoring, old.focus) != (settings.scoring, settings.focus):
            self._shared.scoring_changed()
        names = Settings.__struct_fields__
        changed |= {name for name in names if getattr(old, name) != getattr(settings, name)}
        self._context.reporter.emit("config", changes=sorted(changed))
        for watcher in tuple(self._watchers):
            try:
                watcher(old, settings)
            except Exception:
                log.exception("crawl %r: a watcher of settings failed", self._context.crawl)


def stored_settings(text: str, values: Iterable[SharedValue]) -> Settings:
    """Return the settings of a crawl that is only looked at: as stored, with what was set since."""
    updates = []
    for value in values:
        if value.topic == RUNTIME_SETTINGS and value.text:
            with suppress(SettingsError):  # its own workers say so
                updates.append(update_of(value.name, value.text, value.at, value.number))
    return apply_updates(join_stored(text, {}), updates).settings


def base_settings(layers: Layers, stored: str = "", *, is_attached: bool) -> BaseSettings:
    """Return the settings below the runtime settings: these layers, or over the stored ones."""
    base = layers.base_settings()
    return join_stored(stored, layers.tree(), base.origins) if is_attached else base


class SettingsHistory:
    """The slots of the history of changes: each change is a shared value in its own slot (N4).

    A write names the value it replaces, so no two writers share a slot; the oldest is replaced
    first.
    """

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}  # name → number of its value, the oldest first

    def apply_value(self, value: SharedValue) -> None:
        """Take over that a slot was written."""
        self._slots.pop(value.name, None)
        self._slots[value.name] = value.number

    def writes_of(self, texts: Iterable[str]) -> list[SharedValueWrite]:
        """Assign slots to changes: free ones first, then the oldest."""
        latest = list(texts)[-MAX_HISTORY:]
        free = [name for name in map(_slot_name, range(MAX_HISTORY)) if name not in self._slots]
        taken = [(name, 0) for name in free] + list(self._slots.items())
        return [
            SharedValueWrite(HISTORY, name, text, seen)
            for text, (name, seen) in zip(latest, taken, strict=False)
        ]


def _slot_name(slot: int) -> str:
    return f"{slot:04}"
