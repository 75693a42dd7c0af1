"""The frontier, as users hold it: add, claim, finish, and everything to read and steer a crawl.

`Frontier` is a facade: each method belongs to one of the collaborators that its constructor makes,
and its docstring here says what it promises. `outrider.blocking.Frontier` is generated from this
file by `tests/support/blocking_twin.py`; after a change here, run `make twin`.
"""

from __future__ import annotations

import os
import random
import socket
import uuid
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from outrider.clock import Clock, SystemClock
from outrider.core.outcome import Outcome
from outrider.core.policy.rules import CrawlRules
from outrider.core.progress import Progress
from outrider.core.queue_action import QueueAction
from outrider.core.signals import Cluster, Prediction, State
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease, Link
from outrider.core.url import Url
from outrider.core.worker_totals import WorkerTotals
from outrider.errors import InvalidInput, SettingsError, StoreError
from outrider.events import Event, Listener
from outrider.frontier.add import Adder, ScopeRoots
from outrider.frontier.admin import Admin, QueueAddresses, QueueHandle
from outrider.frontier.claim import Claimer
from outrider.frontier.configure import Configurer
from outrider.frontier.context import CallRecorder, FrontierContext, LeaseSource, Names
from outrider.frontier.event_follower import EventFollower, follow
from outrider.frontier.export import Exporter
from outrider.frontier.finish import Finisher, Visit
from outrider.frontier.live_settings import LiveSettings, SettingsWatcher, base_settings, log
from outrider.frontier.lookup import LeaseFinder
from outrider.frontier.metrics import Metrics, Readings, metrics_of
from outrider.frontier.policies import Policies
from outrider.frontier.progress import ProgressRecorder
from outrider.frontier.reader import Explainer, QueueFilter, Reader, task_state
from outrider.frontier.reports import (
    AddReport,
    Claim,
    DeadLetter,
    Explanation,
    Heatmap,
    QueueSample,
    Reason,
    RestoreReport,
    ScoreReport,
    Stats,
)
from outrider.frontier.rescore import Rescorer
from outrider.frontier.shared_state import Rescoring, SharedState
from outrider.frontier.signals import Predictions, Problems, Rewards
from outrider.settings import AnySettings, Change, Layers, Setting, Settings, layers_of
from outrider.store.protocol import (
    FullStore,
    LeaseView,
    QueueView,
    TaskFilter,
    TaskView,
    Upcoming,
    WorkerView,
)

if TYPE_CHECKING:
    from types import TracebackType


class Frontier:
    """Decides which URL is visited next; opened with `async with Frontier.open(...)`."""

    def __init__(
        self,
        store: str | os.PathLike[str] | FullStore,
        *,
        layers: Layers,
        is_attached: bool,
        names: Names,
        clock: Clock,
        dice: Callable[[], float],
    ) -> None:
        base = base_settings(layers, is_attached=is_attached)
        policies = Policies(base.settings, names.crawl, dice)
        context = FrontierContext(store, names, clock=clock, policies=policies)
        shared = SharedState(context)
        settings = LiveSettings(context, shared, layers, base, is_attached=is_attached)
        addresses = QueueAddresses(context, settings)
        rescorer = Rescorer(context, shared, settings, addresses)
        roots = ScopeRoots(context)
        self._context = context
        self._policies = policies
        self._live = settings
        self._rescorer = rescorer
        self._configurer = Configurer(context, settings, roots)
        self._adder = Adder(context, settings, roots, rescorer)
        self._progress = ProgressRecorder(context, shared, settings)
        self._claimer = Claimer(context, settings, self._progress)
        self._predictions = Predictions(context, shared, rescorer)
        self._problems = Problems(
            context, shared, settings, rescorer, self._predictions, self._adder
        )
        self._rewards = Rewards(context, shared, settings, rescorer)
        self._finisher = Finisher(
            context,
            settings,
            self._adder,
            self._claimer,
            self._predictions,
            self._rewards,
            self._progress,
        )
        self._finder = LeaseFinder(context, addresses, self._claimer)
        self._admin = Admin(context, addresses)
        self._reader = Reader(context, addresses, self._adder)
        self._explainer = Explainer(context, settings)
        self._exporter = Exporter(context)

    # ---- opening and closing

    @classmethod
    def open(
        cls,
        store: str | os.PathLike[str] | FullStore = "memory://",
        *,
        settings: AnySettings = None,
        crawl: str = "default",
        clock: Clock | None = None,
        worker: str | None = None,
        by: str = "",
        dice: Callable[[], float] = random.random,
    ) -> Frontier:
        """Make a frontier over a store: enter it with `async with`, or `await` it and `close` it.

        `store` is a URL, or an open store that several frontiers share (one per crawl or worker).
        `by` is who acts: operators' acts are logged with that name, unless they give another one.
        """
        return cls(
            store,
            layers=layers_of(settings),
            is_attached=False,
            names=_names(crawl, worker or _worker_name(), by),
            clock=clock or SystemClock(),
            dice=dice,
        )

    @classmethod
    def attach(
        cls,
        store: str | os.PathLike[str] | FullStore,
        *,
        settings: Mapping[str, Any] | Layers | None = None,
        crawl: str = "default",
        clock: Clock | None = None,
        worker: str | None = None,
        by: str = "",
        dice: Callable[[], float] = random.random,
    ) -> Frontier:
        """Make a frontier as `open` does, but the crawl keeps the settings it has; none is created.

        For processes that read, steer or join a crawl. `settings` are this process's own: of them
        `executor`, `fetch`, `output`, `events` and `store` are laid over the crawl's, and functions
        that the crawl's settings name: code is never imported because a store names it.
        """
        return cls(
            store,
            layers=layers_of(settings),
            is_attached=True,
            names=_names(crawl, worker or _worker_name(), by),
            clock=clock or SystemClock(),
            dice=dice,
        )

    async def __aenter__(self) -> Self:
        if not self._context.is_open:
            store = await self._context.open()
            try:
                await self._start(store)
            except BaseException:
                await self._release()
                raise
        return self

    async def _start(self, store: FullStore) -> None:
        self._adder.use(store)
        self._claimer.use(store)
        self._finisher.use(store)
        self._context.reporter.write_to(self.settings.events.jsonl)
        await self._live.learn()
        for clash in self._live.base.clashes:  # this process can be given other settings
            raise SettingsError(clash)
        if not self.is_attached:
            await self._configurer.open_crawl()
            await self._rescorer.request()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Frontier]:
        """Open it without a `with`: `frontier = await Frontier.open(...)`; then call `close`."""
        return self.__aenter__().__await__()

    async def close(self) -> None:
        """Apply what was handed in, then close the store, if this frontier opened it."""
        if not self._context.is_open:
            return
        self._context.is_closing = True
        await self._configurer.close()
        await self._claimer.close()
        await self._context.background.wait()
        await self._adder.drain()
        await self._finisher.drain()
        with suppress(StoreError):  # rewards that cannot be shared are lost
            await self._rewards.share()
        await self._progress.close()
        await self._context.reporter.publisher.close()
        await self._release()

    async def _release(self) -> None:
        self._claimer.stop_waiting()
        await self._context.release()

    def __repr__(self) -> str:
        state = "open" if self._context.is_open else "closed"
        return f"<Frontier crawl={self.crawl!r} worker={self.worker!r} {state}>"

    # ---- attributes

    @property
    def crawl(self) -> str:
        """The name of the crawl it serves."""
        return self._context.crawl

    @property
    def worker(self) -> str:
        """The name its leases carry."""
        return self._context.worker

    @property
    def by(self) -> str:
        """Who acts through it, unless an act gives another name; "": acts are not signed."""
        return self._context.by

    @property
    def store(self) -> FullStore:
        """The open store, for what the frontier does not offer; its verbs are coroutines."""
        return self._context.store

    @property
    def clock(self) -> Clock:
        """The clock it waits on."""
        return self._context.clock

    @property
    def settings(self) -> Settings:
        """The settings in force, all layers merged, but for those set by key with `queue`."""
        return self._policies.settings

    @property
    def rules(self) -> CrawlRules:
        """The rules that the settings give the crawl's queues, but for those set with `queue`."""
        return self._policies.crawl_rules()

    @property
    def refused(self) -> Mapping[str, int]:
        """Links that this frontier refused since it was opened, by reason."""
        return dict(self._adder.refused)

    @property
    def retried(self) -> int:
        """Visits finished here that went wrong, and whose task waits for another one (O1)."""
        return self._finisher.retried

    @property
    def is_attached(self) -> bool:
        """Whether it was made by `attach`, so that the crawl keeps the settings it has."""
        return self._live.is_attached

    @property
    def lacks(self) -> str:
        """Which of the crawl's settings must be given to this process, in words; "": none."""
        return self._live.lacks

    # ---- adding, claiming, finishing

    async def add(
        self,
        links: Iterable[str | Url | Link] | AsyncIterable[str | Url | Link] | str | Link,
        *,
        answers: bool = True,
    ) -> AddReport:
        """Add links in order; an invalid link does not affect the others.

        Lists are applied whole even if the caller is cancelled; other iterables chunk by chunk.
        `answers=False` keeps only the counts, for millions.
        """
        return await self._adder.add(links, answers=answers)

    async def claim(  # noqa: PLR0913 - the fields of a claim
        self,
        limit: int = 1,
        *,
        wait: float = 0.0,
        per_queue: int | None = None,
        lend: bool = False,
        lease_for: float | None = None,
        worker: str | None = None,
        outlives_process: bool = False,
        keys: Iterable[str] | None = None,
        max_queues: int | None = None,
    ) -> Claim:
        """Lease up to `limit` tasks, best first; with `wait`, ask again for so many seconds.

        With `lend`, each queue is lent as a whole: up to `per_queue` of its tasks (None: no cap)
        take one slot, no other worker gets the queue until they ended, and the caller keeps its
        pace. `lease_for` (seconds) and `worker` replace the setting `lease.seconds` and this
        frontier's name. With `outlives_process` the leases last until their deadline, whichever
        process ends (H4). With `keys` (at most 100) only tasks of these queues are leased, with
        `max_queues` tasks of at most so many (C5). A cancelled claim releases what it leased.
        """
        return await self._claimer.claim(
            limit,
            wait=wait,
            per_queue=per_queue,
            lend=lend,
            lease_for=lease_for,
            worker=worker,
            outlives_process=outlives_process,
            keys=keys,
            max_queues=max_queues,
        )

    async def claim_named(self, fingerprints: Iterable[bytes]) -> Claim:
        """Lease those of up to 64 tasks that are pending and due, whatever their queues wait for.

        For responses that are cached: it takes no slot and begins no delay, so send the host no
        request. Finish with `Done(from_cache=True)`, or release.
        """
        return await self._claimer.claim_named(fingerprints)

    def leases(self, limit: int = 64) -> AsyncIterator[Lease]:
        """Iterate over leases, at most `limit` unfinished at a time; ends with the crawl."""
        return self._claimer.leases(limit)

    async def finish(
        self, lease: Lease, outcome: Outcome, links: Iterable[str | Url | Link] = ()
    ) -> bool:
        """Apply the outcome of a visit, with the links found, in one atomic step.

        Return True; or False if the lease was lost: then nothing changed.
        """
        return await self._finisher.finish(lease, outcome, links)

    async def finish_many(self, visits: Iterable[Visit]) -> list[bool]:
        """Finish several visits; return one result each, in order.

        If one is invalid, the rest is applied, then its error is raised.
        """
        return await self._finisher.finish_many(visits)

    async def extend(
        self, leases: Iterable[Lease], *, lease_for: float | None = None
    ) -> set[Lease]:
        """Renew leases for so many seconds from now; return those that are still held.

        None: each for as long as it was claimed for.
        """
        return await self._claimer.extend(leases, lease_for=lease_for)

    def leased(
        self,
        *,
        key: str | None = None,
        worker: str | None = None,
        older_than: float | None = None,
    ) -> AsyncIterator[LeaseView]:
        """Iterate over the leases that are held, oldest first, of whichever worker (H1).

        `key` is a key or a suffix, `older_than` seconds since the claim. Each view's lease can be
        finished, extended and released through this frontier.
        """
        return self._finder.leased(key, worker, older_than)

    async def find_lease(
        self,
        url: str | Url | Link | None = None,
        *,
        fingerprint: bytes | None = None,
        token: int | None = None,
        task: int | None = None,
    ) -> Lease | None:
        """Return the lease that matches everything given, of whichever worker; None: none does.

        By URL, fingerprint or task number it is found at once; by token alone, all are looked at.
        """
        return await self._finder.find(url, fingerprint, token, task)

    async def release(self, leases: Iterable[Lease]) -> set[Lease]:
        """Give leases back; no attempt is counted. Return those that were still held."""
        return await self._claimer.release(leases)

    async def expire(self, *, limit: int = 1000) -> int:
        """End overdue leases; return how many. Claims do it too, so only sweepers need this."""
        return await self._claimer.expire(limit=limit)

    async def lease_through(self, source: LeaseSource | None) -> None:
        """Claim, finish and release through `source` from now on; None: at the store again.

        For an executor with a workbench. Finishes that were handed in before are applied first.
        """
        used = self.store if source is None else source
        await self._finisher.drain()
        self._claimer.lease_through(used)
        self._finisher.use(used)

    async def score(
        self,
        links: Iterable[str | Url | Link] | AsyncIterable[str | Url | Link] | str | Link,
        *,
        known: bool = False,
    ) -> ScoreReport:
        """Return what `add` would make of each link now, in order; nothing is stored or counted.

        With `known`, the store is asked for each URL whether it is known, and in which state: to
        add such a link is a duplicate, unless its own `known` says otherwise (B3).
        """
        return await self._adder.score(links, known=known)

    def record_calls(self, recorder: CallRecorder | None) -> None:
        """Call `recorder` with each verb of the store that was answered, and its seconds (O1).

        One recorder at a time; None: none. The verbs are add, claim, extend, finish, release and
        expire; those of a source of leases in place of the store's.
        """
        self._context.call_recorder = recorder

    async def refusal_of(self, link: str | Url | Link, found_on: Lease) -> str | None:
        """Return why a link found on a visit would be refused; None: it is admissible, or known."""
        return await self._adder.refusal_of(link, found_on)

    # ---- reading

    async def stats(self) -> Stats:
        """Return counters by state, type and tag, queues by state, status and timeline."""
        return await self._reader.stats()

    async def progress(self) -> Progress:
        """Return samples of the crawl's counters since it began, thinned with age (O1).

        They are taken every few seconds, whichever worker claims and finishes, and kept with the
        crawl. The result tells rates (`rates()`) and the time that is left (`time_left()`).
        """
        return await self._progress.read()

    async def why(self, limit: int = 20) -> list[Reason]:
        """List what keeps the crawl from finishing; empty when nothing does (I2)."""
        return await self._reader.why(limit)

    async def workers(self) -> list[WorkerView]:
        """List the workers of this crawl; those without heartbeats are reported as gone (M6)."""
        return await self._reader.workers()

    async def worker_totals(self) -> WorkerTotals:
        """Return what all workers the crawl ever had have counted together (M6)."""
        return await self._reader.worker_totals()

    async def metrics(self, since: Metrics | None = None) -> Metrics:
        """Return counters, rates and latencies over all workers (O1).

        Rates are those since an earlier reading; without one, of the last minute of activity.
        """
        store, crawl = self.store, self.crawl
        view, progress = await store.crawl(crawl), await self.progress()
        readings = Readings(
            view, progress, await store.workers(crawl), await store.worker_totals(crawl)
        )
        return metrics_of(readings, since)

    async def heatmap(self) -> Heatmap:
        """Count pending tasks by origin and group, and by depth (O2)."""
        return await self._reader.heatmap()

    def queues(  # noqa: PLR0913 - one argument per filter
        self,
        *,
        state: str | None = None,
        sort: str | None = None,
        reverse: bool = False,
        prefix: str | None = None,
        key: str | None = None,
        pattern: str | None = None,
        reason: str | None = None,
        min_spent: int | None = None,
        min_errors: int | None = None,
    ) -> AsyncIterator[QueueView]:
        """Iterate over queue views (E8); `sort` by key, wakes_in, pending, spent or errors.

        Only queues that match everything given: `key` is a key or a suffix, `pattern` a regular
        expression searched in the key, `reason` that of the state, `min_errors` errors in a row.

        Of any number of queues, `key` (all, or those that begin with `prefix`) and `wakes_in`
        (those that only wait for time) are read as far as you iterate. Whatever else is sorted, or
        reversed, must be at most 10,000 queues that match; of more, see `worst_queues`.
        """
        which = QueueFilter(
            state=state,
            reason=reason,
            key=key,
            pattern=pattern,
            min_spent=min_spent,
            min_errors=min_errors,
        )
        return self._reader.queues(which, sort=sort, reverse=reverse, prefix=prefix)

    async def worst_queues(self, by: str, limit: int = 20) -> QueueSample:
        """Return the queues with most `pending`, `spent` or `errors` of those that were read (E8).

        A call reads at most 10,000 queues, for a quarter of a second, and continues where the last
        one stopped: exact for a crawl of so many queues, else a sample with its age.
        """
        return await self._reader.worst_queues(by, limit)

    async def upcoming(self, key: str, limit: int = 64) -> list[Upcoming]:
        """List the first due tasks of a queue, each as (fingerprint, url), for `claim_named`."""
        return await self._reader.upcoming(key, limit)

    def tasks(
        self,
        *,
        key: str | None = None,
        state: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        pattern: str | None = None,
        reason: str | None = None,
        older_than: float | None = None,
    ) -> AsyncIterator[TaskView]:
        """Iterate over tasks that match everything given, in order of their discovery."""
        which = TaskFilter(
            key=key, type=type, tag=tag, pattern=pattern, reason=reason, older_than=older_than
        )
        return self._reader.tasks(which, state)

    def dead(
        self,
        *,
        reason: str | None = None,
        type: str | None = None,
        key: str | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """Iterate over dead letters, with every attempt (G2)."""
        return self._reader.dead(TaskFilter(reason=reason, type=type, key=key))

    async def dead_by_reason(self) -> dict[str, int]:
        """Count dead letters by reason."""
        return await self._reader.dead_by_reason()

    async def explain(self, url: str | Link) -> Explanation:
        """Explain why a URL is where it is, or why it would be refused (O4).

        For a `Link` that is not known, the fields it brings are taken into account.
        """
        return await self._explainer.explain(url)

    # ---- operators' commands

    def queue(self, key: str, *, by: str | None = None) -> QueueHandle:
        """Return the handle of a queue by its key, or of all queues of a suffix such as ".org".

        What is done with it is logged with the name `by`.
        """
        return self._admin.queue(key, by)

    async def steer(self, target: str, act: QueueAction, *, by: str | None = None) -> int:
        """Apply a queue action in bounded steps; return how many queues it reached.

        `target` is a key, a host or a suffix, or empty for every queue; one that can match no key
        of the crawl is refused.
        """
        return await self._admin.steer(target, act, by)

    async def pause(self, *, by: str | None = None) -> CrawlStatus:
        """Lease no tasks until resumed; return the status."""
        return await self._admin.set_status(CrawlStatus.PAUSED, by)

    async def resume(self, *, by: str | None = None) -> CrawlStatus:
        """Lease tasks again; return the status."""
        return await self._admin.set_status(CrawlStatus.RUNNING, by)

    async def cancel(self, *, by: str | None = None) -> CrawlStatus:
        """End the crawl for good: pending and leased tasks are reported as dropped (I3)."""
        return await self._admin.set_status(CrawlStatus.CANCELLED, by)

    async def drop(
        self,
        *,
        key: str | None = None,
        pattern: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        older_than: float | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> int:
        """Drop the pending tasks that match everything given; return how many (C10)."""
        which = TaskFilter(key=key, pattern=pattern, type=type, tag=tag, older_than=older_than)
        return await self._admin.drop(which, dry_run=dry_run, by=by)

    async def forget(  # noqa: PLR0913 - one argument per filter
        self,
        url: str | Link | None = None,
        *,
        key: str | None = None,
        pattern: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        state: str | None = None,
        older_than: float | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> int:
        """Forget tasks of any state that match everything given; return how many (C10).

        They are dropped (`forgotten`), leases among them end without punishment, and the next add
        admits each of them again, as a revisit does.
        """
        which = TaskFilter(
            key=key,
            pattern=pattern,
            type=type,
            tag=tag,
            state=None if state is None else task_state(state),
            older_than=older_than,
        )
        return await self._admin.forget(url, which, dry_run=dry_run, by=by)

    async def delete_crawl(
        self, *, by: str | None = None, progress: Callable[[int], object] | None = None
    ) -> int:
        """Remove the crawl from its store, with all that is kept of it; return how many tasks (I1).

        It is cancelled first, so workers stop. A removal that was interrupted continues when this
        is called again. `progress` is called with how many tasks were removed so far. Links that
        are added afterwards are refused (`cancelled`), until `Frontier.open` begins a new crawl.
        """
        return await self._admin.delete_crawl(by, progress)

    async def replay(
        self,
        url: str | Link | None = None,
        *,
        reason: str | None = None,
        type: str | None = None,
        key: str | None = None,
        all: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> int:
        """Make dead tasks pending again, with no attempts counted; return how many."""
        which = TaskFilter(reason=reason, type=type, key=key)
        return await self._admin.replay(url, which, everything=all, dry_run=dry_run, by=by)

    async def purge(
        self,
        url: str | Link | None = None,
        *,
        reason: str | None = None,
        type: str | None = None,
        key: str | None = None,
        all: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> int:
        """Make dead tasks dropped; return how many."""
        which = TaskFilter(reason=reason, type=type, key=key)
        return await self._admin.purge(url, which, everything=all, dry_run=dry_run, by=by)

    # ---- signals and rescoring

    async def predict(self, url: str, confidence: float, lift: float) -> bool:
        """Predict that a URL is worth a visit; True if it is pending and its priority changed."""
        return bool(await self._predictions.predict_many([(url, confidence, lift)]))

    async def predict_many(self, guesses: Iterable[tuple[str, float, float]]) -> int:
        """Predict many URLs; return how many are pending and changed their priority.

        For more than a hundred, priorities change in the background, and the result is 0.
        """
        return await self._predictions.predict_many(guesses)

    def predictions(self, *, state: State | None = None) -> AsyncIterator[Prediction]:
        """Iterate over predictions, with what came of them."""
        return self._predictions.iterate(state=state)

    async def report_problem(self, kind: str, scope: str, target: str) -> Cluster:
        """Report a problem of the site crawled; return the cluster it was counted in (F5).

        `target` is a host, a URL, a path or a word; pages it matches are visited sooner. A `scope`
        that is a host limits that to its pages.
        """
        return await self._problems.report(kind, scope, target)

    async def problems(self) -> list[Cluster]:
        """List the current clusters of problems, the largest first."""
        return await self._problems.current()

    async def rescore(
        self,
        *,
        key: str | None = None,
        pattern: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        by: str | None = None,
    ) -> int:
        """Score pending tasks again, all or those that match; return how many changed."""
        return await self._rescorer.rescore(key=key, pattern=pattern, type=type, tag=tag, by=by)

    async def rescoring(self) -> Rescoring:
        """Return the progress of rescoring all tasks, whichever worker does it."""
        return await self._rescorer.progress()

    async def keep(self) -> None:
        """Share rewards, and resume rescoring that is wanted, in the background.

        An executor calls it every second; a program without one should do the same.
        """
        self._context.background.run(self._rewards.share())
        self._context.background.run(self._rescorer.resume())

    # ---- settings

    async def configure(self, changes: Mapping[str, Any], *, by: str | None = None) -> Settings:
        """Change settings of the running crawl: validated whole, durable, for all its workers.

        It acts at once (E5), and on other workers within seconds. Settings that every process has
        for itself (functions, paths on its machine) are changed in this process alone, and only if
        it opened the crawl. `by` is who changes them, for history and events; in the history, the
        worker if nothing says so.
        """
        return await self._configurer.configure(changes, by=by)

    async def unset(self, *paths: str, by: str | None = None) -> Settings:
        """Remove the runtime values of these settings, and of all below them."""
        return await self._configurer.unset(*paths, by=by)

    async def follow(
        self, path: str | os.PathLike[str], *, tell: Callable[[str], object] = log.warning
    ) -> Callable[[], None]:
        """Use a settings file, and every change of it while the frontier is open.

        If a later change is invalid, `tell` is called with the error, once, and the settings stay.
        Return the function that ends it.
        """
        return await self._configurer.follow(path, tell=tell)

    async def config(self) -> list[Setting]:
        """List every setting: its value, origin, default and description (N5)."""
        return await self._live.list_all()

    async def config_history(self) -> list[Change]:
        """List the last thousand changes of settings in order: who, when, old, new (N4)."""
        return await self._live.changes()

    def watch_settings(self, watcher: SettingsWatcher) -> Callable[[], None]:
        """Call a function with the old and the new settings at every change, whatever its source.

        Return the function that ends it. What a watcher raises is logged.
        """
        return self._live.watch(watcher)

    async def learn(self) -> None:
        """Use the crawl's settings as they are now: runtime settings and, if attached, stored ones.

        `lacks` names what this process must be given; until then, it can add and finish nothing.
        """
        await self._live.learn()

    async def listen(self) -> None:
        """Apply what other workers have shared since: runtime settings and signals."""
        await self._live.listen()

    # ---- export and events

    def export(self) -> AsyncIterator[bytes]:
        """Iterate over the whole crawl as JSON lines, some lines at a time; claims continue."""
        return self._exporter.export()

    async def restore(
        self,
        lines: Iterable[bytes] | AsyncIterable[bytes],
        *,
        progress: Callable[[RestoreReport], None] | None = None,
    ) -> RestoreReport:
        """Restore an export into a crawl without tasks; it leases no tasks until all is read.

        Items that are there already are not changed: after a failure, call it again.
        """
        return await self._exporter.restore(lines, progress=progress)

    def events(self) -> AsyncIterator[Event]:
        """Iterate over events from now on, as they happen."""
        return self._context.reporter.stream()

    def follow_events(
        self,
        *,
        since: int | None = None,
        names: Collection[str] = (),
        key: str | None = None,
        breakdown: bool = False,
    ) -> AsyncIterator[Event]:
        """Iterate over events of all workers of the crawl, in whichever process they are.

        They are numbered together: `since` resumes after the event of that number, and a `gap`
        says how many are missing; None: from now on. `names` and `key`, a queue's or a suffix,
        select events. Workers publish within about a second, until a minute after the last read.
        """
        context = self._context
        follower = EventFollower(
            context.crawl, context.clock, since=since, names=names, key=key, breakdown=breakdown
        )
        return follow(follower, context.store)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event; return the function that ends it."""
        return self._context.reporter.subscribe(listener)


def _names(crawl: str, worker: str, by: str) -> Names:
    for what, name in (("crawl", crawl), ("worker", worker)):
        if not isinstance(name, str) or not 0 < len(name) <= 255 or not name.isprintable():
            raise InvalidInput(f"{what} = {name!r:.300} must be printable text, 1 to 255 long")
    return Names(crawl, worker, by)


def _worker_name() -> str:
    """Return a name that no other process has, even one that reuses this process number."""
    host = "".join(letter for letter in socket.gethostname()[:64] if letter.isprintable())
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
