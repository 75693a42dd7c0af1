"""What every part of a frontier stands on: the store, the clock, and what waits to be applied."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from outrider.clock import Clock
from outrider.core.admission import Admission
from outrider.core.decide import Policy
from outrider.core.policy.rules import CrawlRules
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import Closed, SettingsError, StoreError
from outrider.events import EventBus, JsonlSink
from outrider.frontier.batching import Batcher
from outrider.frontier.heard import Heard
from outrider.frontier.history import History
from outrider.frontier.policies import TimedScorer, admission_for, policy_for, scorer_for
from outrider.frontier.reports import Claim
from outrider.frontier.revisits import Revisits, revisits_for
from outrider.frontier.telling import Teller
from outrider.settings import BaseSettings, Layers, Settings, crawl_rules, join_stored
from outrider.settings.runtime import Update
from outrider.settings.schema import KeyLayers
from outrider.store.opening import open_store
from outrider.store.protocol import ClaimRequest, ClaimResult, FullStore, SharedValue

OFTEN_MS: Final = 2000  # whoever has no executor listens no more often

T = TypeVar("T")
SettingsWatcher: TypeAlias = Callable[[Settings, Settings], object]  # what held, what holds


class Parts(NamedTuple):
    """What settings are made into."""

    scorer: TimedScorer
    admission: Admission
    revisits: Revisits | None
    policy: Policy


class LeaseSource(Protocol):
    """What a frontier claims from, finishes at and releases to: its store, or a workbench."""

    @property
    def is_inline(self) -> bool:
        """Whether no call ever suspends."""
        ...

    def claim(self, request: ClaimRequest) -> Coroutine[Any, Any, ClaimResult]:
        """As `Store.claim`."""
        ...

    def finish(self, verdicts: Sequence[Verdict]) -> Coroutine[Any, Any, list[Finished]]:
        """As `Store.finish`."""
        ...

    def release(self, leases: Sequence[LeaseId]) -> Coroutine[Any, Any, set[LeaseId]]:
        """As `Store.release`."""
        ...


class Footing(ABC):
    """Opened once, closed once; in between it knows its store, its settings and its policies."""

    def __init__(
        self,
        store: str | os.PathLike[str] | FullStore,
        *,
        layers: Layers,
        is_attached: bool,
        crawl: str,
        clock: Clock,
        worker: str,
        dice: Callable[[], float],
    ) -> None:
        self.crawl = crawl
        self.worker = worker
        self._source = store
        self._clock = clock
        self._dice = dice
        self._store: FullStore | None = None
        self._store_id = ""
        self._events = EventBus(crawl)
        self._teller = Teller(self._events, clock, crawl)
        self._jsonl: JsonlSink | None = None
        self._stirred = asyncio.Event()  # work may have come
        self._freed = asyncio.Event()  # a lease was given back
        self._streak = ClaimRequest(crawl, worker, 1).streak
        self._refused: Counter[str] = Counter()
        self._held: dict[LeaseId, int] = {}
        self._unseen: list[Claim] = []  # what `leases` claimed and has not handed out
        self._background: set[asyncio.Task[Any]] = set()
        self._is_attached = is_attached  # the crawl keeps the rules it has
        self._layers = layers  # of an attached frontier: what is laid over the crawl's settings
        self._kept = ""  # of an attached one: the text that the crawl's settings were read from
        self._updates: dict[str, Update] = {}  # said at run time, by the names of their notes
        self._noted = 0  # the last note that was heard,
        self._heard_ms = clock.now_ms()  # and when anybody asked
        self._doubted: set[str] = set()  # contradictions of stored settings that were told
        self._ignored: set[int] = set()  # the numbers of notes that cannot be gone by
        self._history = History()
        self._configuring = asyncio.Lock()  # one change after the other
        self._watchers: list[SettingsWatcher] = []
        self._followers: set[asyncio.Task[None]] = set()  # of files; `close` ends them
        self._end_watch: Callable[[], None] | None = None
        self._heard = Heard()
        self._is_closing = False
        self._ground = self._grounded(layers)
        self._origins = self._ground.origins
        self._settings = self._ground.settings
        self._key_layers = KeyLayers(self._settings.keys, {})
        self._scorer = scorer_for(self._settings, self._heard.signals)
        self._revisits = revisits_for(self._settings.revisit)
        self._use(self._settings, self._key_layers)

    async def _open(self) -> None:
        if self._store is not None:
            return
        source = self._source
        if isinstance(source, str | os.PathLike):
            store = await open_store(
                os.fspath(source), self._clock, durability=self._settings.store.durability
            )
        else:
            store = source
        try:
            self._stand_on(store)
            self._write_events(self._settings.events.jsonl)
            await self.learn()
            for clash in self._ground.clashes:  # this process can be given other settings
                raise SettingsError(clash)  # noqa: TRY301 - the store is released all the same
            if not self._is_attached:
                await self._apply_rules()
        except BaseException:
            await self._release_store()
            raise

    def _stand_on(self, store: FullStore) -> None:
        self._store = self._teller.store = store
        self._store_id = store.id
        self._adds: Batcher[Task, Added] = Batcher(store.add, is_inline=store.is_inline)
        self._use_leases_of(store)

    def _use_leases_of(self, source: LeaseSource) -> None:
        self._lease_source = source
        self._finishes: Batcher[Verdict, Finished] = Batcher(
            source.finish, is_inline=source.is_inline
        )

    async def lease_through(self, source: LeaseSource | None) -> None:
        """Claim, finish and release through `source` from now on; None: at the store again.

        An executor with a workbench uses it. Finishes that were handed in before are applied first.
        """
        store = self.store
        await self._finishes.drain()
        self._use_leases_of(store if source is None else source)

    def _grounded(self, layers: Layers) -> BaseSettings:
        """What holds but for what was said at run time, if this process said so of itself."""
        ground = layers.base_settings()
        return (
            join_stored(self._kept, layers.tree(), ground.origins) if self._is_attached else ground
        )

    def _wait_for_work(self) -> None:
        """Whoever waits wants to be rung; most never wait."""
        if self._end_watch is None:
            self._end_watch = self.store.subscribe(self.crawl, self._stirred.set)

    def _require_settings(self) -> None:
        if self._ground.lacks:
            raise SettingsError(self._ground.lacks)

    async def close(self) -> None:
        """Apply what was handed in, then let go of the store (if this frontier opened it)."""
        if self._store is None:
            return
        self._is_closing = True
        await self._end_following()
        await self._give_back_unseen()
        while self._background:
            await asyncio.wait(self._background)
        await self._adds.drain()
        await self._finishes.drain()
        with suppress(StoreError):  # there may be nobody to hear it
            await self._leave_word()
        await self._release_store()

    async def _release_store(self) -> None:
        """Release the store, if this frontier opened it, and the file of events."""
        if self._end_watch is not None:
            self._end_watch()
            self._end_watch = None
        store, self._store = self._store, None
        if store is not None and isinstance(self._source, str | os.PathLike):
            await store.close()
        self._write_events("")

    def _write_events(self, path: str) -> None:
        """O3: to this file from now on, instead of the one before; "" for none."""
        old, self._jsonl = self._jsonl, _sink(path) if path else None
        if self._jsonl is not None:
            self._teller.listen()
            self._events.subscribe(self._jsonl)
        if old is not None:
            self._events.unsubscribe(old)
            old.close()

    @property
    def store(self) -> FullStore:
        """The store underneath, for those who read more than the frontier shows."""
        if self._store is None:
            raise Closed("this frontier is not open: use `async with Frontier.open(...)`")
        return self._store

    @property
    def _open_lease_source(self) -> LeaseSource:
        _ = self.store  # refused unless open
        return self._lease_source

    @property
    def clock(self) -> Clock:
        """What the frontier waits on."""
        return self._clock

    @property
    def settings(self) -> Settings:
        """What holds now, all layers merged but those set by key with `queue`."""
        return self._settings

    def _made(self, settings: Settings, keys: KeyLayers) -> Parts:
        """Settings name functions that may be missing: everything is made before anything holds."""
        scorer, revisits = self._learners(settings)
        rules = crawl_rules(settings, keys)
        admission = admission_for(settings, self.crawl, scorer, self._dice, rules)
        return Parts(scorer, admission, revisits, policy_for(settings, admission, revisits))

    def _learners(self, settings: Settings) -> tuple[TimedScorer, Revisits | None]:
        """What was learnt stays, if it was not told to be otherwise."""
        now, scorer, revisits = self._settings, self._scorer, self._revisits
        if settings.scoring != now.scoring:
            scorer = scorer_for(settings, self._heard.signals)
        if settings.revisit != now.revisit:
            revisits = revisits_for(settings.revisit)
        return scorer, revisits

    def _use(self, settings: Settings, keys: KeyLayers) -> None:
        parts = self._made(settings, keys)
        self._scorer, self._admission, self._revisits, self._policy = parts
        self._settings, self._key_layers = settings, keys
        self._roots_seen = 0

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start what goes on even if its caller leaves; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _crawl_rules(self) -> CrawlRules:
        return crawl_rules(self._settings, self._key_layers)

    def _keyed_by(self) -> object:
        ground = self._ground
        is_known = ground.is_whole and ("queue", "key") not in ground.code
        return self._settings.queue.key if is_known else None

    @property
    def is_attached(self) -> bool:
        """Whether the crawl was there, and keeps the settings it has."""
        return self._is_attached

    @property
    def lacks(self) -> str:
        """What of the crawl's settings must be given by hand, if attached; "": nothing."""
        return self._ground.lacks

    @abstractmethod
    def _hear(self, note: SharedValue) -> None:
        """What others noted of the crawl, but for its settings."""

    @abstractmethod
    async def _leave_word(self) -> None:
        """Tell others what only we know, before we go."""

    @abstractmethod
    def _slide(self) -> None:
        """Let what was heard grow old."""

    @abstractmethod
    def _scoring_changed(self) -> None:
        """Another scoring or focus holds from now on."""

    @property
    def _is_news_due(self) -> bool:
        """Whether nobody has listened for long; an executor does so more often than that."""
        return self._clock.now_ms() - self._heard_ms >= OFTEN_MS

    @abstractmethod
    async def learn(self) -> None:
        """Go by the settings that the crawl has now."""

    @abstractmethod
    async def listen(self) -> None:
        """Hear what was noted since."""

    @abstractmethod
    async def _end_following(self) -> None:
        """Look at files no more."""

    @abstractmethod
    async def _apply_rules(self) -> None:
        """Tell the store, and learn from it, what the settings say."""

    @abstractmethod
    async def _give_back_unseen(self) -> None:
        """Release what was claimed and never handed out."""


def rules_of(frontier: Footing) -> CrawlRules:
    """What follows from the settings for the crawl's queues, but for operators' acts."""
    return frontier._crawl_rules()  # noqa: SLF001 - for this package and the executor


def keying_of(frontier: Footing) -> object:
    """The setting `queue.key`; None: a function that is not here, so a key may be any text."""
    return frontier._keyed_by()  # noqa: SLF001 - as above


def _sink(path: str) -> JsonlSink:
    try:
        return JsonlSink(path)
    except OSError as error:
        raise SettingsError(
            f"events.jsonl = {path!r} cannot be written: {error.strerror}"
        ) from error
