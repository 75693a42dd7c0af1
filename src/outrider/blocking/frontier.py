"""The frontier without `await`: generated from outrider/frontier/frontier.py; do not edit.

After a change there, run `make twin`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec

from outrider.blocking.loop_thread import LoopThread
from outrider.blocking.queue import QueueHandle
from outrider.clock import Clock
from outrider.core.outcome import Outcome
from outrider.core.policy.rules import CrawlRules
from outrider.core.progress import Progress
from outrider.core.queue_action import QueueAction
from outrider.core.signals import Cluster, Prediction, State
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease, Link
from outrider.core.url import Url
from outrider.core.worker_totals import WorkerTotals
from outrider.errors import Closed, InvalidInput
from outrider.events import Event, Listener
from outrider.frontier import Frontier as AsyncFrontier
from outrider.frontier.context import CallRecorder, LeaseSource
from outrider.frontier.finish import Visit
from outrider.frontier.live_settings import SettingsWatcher, log
from outrider.frontier.metrics import Metrics
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
from outrider.frontier.shared_state import Rescoring
from outrider.settings import AnySettings, Change, Layers, Setting, Settings
from outrider.store.protocol import FullStore, LeaseView, QueueView, TaskView, Upcoming, WorkerView

if TYPE_CHECKING:
    from types import TracebackType


class Frontier:
    """`outrider.Frontier` without `await`; use it in a `with`, or `close` it.

    Its methods run in the event loop of a thread of its own. Functions that are given to it, such
    as listeners, are called in that thread.
    """

    def __init__(self, frontier: AsyncFrontier) -> None:
        self._loop = LoopThread()
        try:
            self._frontier = self._loop.run(_open(frontier))
        except BaseException:
            self._loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<blocking {self._frontier!r}>"

    def _hold(self, claim: Claim) -> Claim:
        """Make this the holder of leases, so that `with lease:` releases them without `await`."""
        for lease in claim:
            msgspec.structs.force_setattr(lease, "holder", self)
        return claim

    def _hold_each(self, leases: Iterator[Lease]) -> Iterator[Lease]:
        for lease in leases:
            msgspec.structs.force_setattr(lease, "holder", self)
            yield lease

    def _hold_each_view(self, views: Iterator[LeaseView]) -> Iterator[LeaseView]:
        for view in views:
            msgspec.structs.force_setattr(view.lease, "holder", self)
            yield view

    def _hold_one(self, lease: Lease | None) -> Lease | None:
        if lease is not None:
            msgspec.structs.force_setattr(lease, "holder", self)
        return lease

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
        """Make a frontier over a store: use it in a `with`, or `close` it.

        `store` is a URL, or an open store that several frontiers share (one per crawl or worker).
        `by` is who acts: operators' acts are logged with that name, unless they give another one.
        """
        return cls(
            AsyncFrontier.open(
                store, settings=settings, crawl=crawl, clock=clock, worker=worker, by=by, dice=dice
            )
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
            AsyncFrontier.attach(
                store, settings=settings, crawl=crawl, clock=clock, worker=worker, by=by, dice=dice
            )
        )

    def close(self) -> None:
        """Apply what was handed in, then close the store, if this frontier opened it."""
        try:
            self._loop.run(self._frontier.close())
        except Closed:
            return
        self._loop.stop()

    @property
    def crawl(self) -> str:
        """The name of the crawl it serves."""
        return self._frontier.crawl

    @property
    def worker(self) -> str:
        """The name its leases carry."""
        return self._frontier.worker

    @property
    def by(self) -> str:
        """Who acts through it, unless an act gives another name; "": acts are not signed."""
        return self._frontier.by

    @property
    def store(self) -> FullStore:
        """The open store, for what the frontier does not offer; its verbs are coroutines."""
        return self._frontier.store

    @property
    def clock(self) -> Clock:
        """The clock it waits on."""
        return self._frontier.clock

    @property
    def settings(self) -> Settings:
        """The settings in force, all layers merged, but for those set by key with `queue`."""
        return self._frontier.settings

    @property
    def rules(self) -> CrawlRules:
        """The rules that the settings give the crawl's queues, but for those set with `queue`."""
        return self._frontier.rules

    @property
    def refused(self) -> Mapping[str, int]:
        """Links that this frontier refused since it was opened, by reason."""
        return self._frontier.refused

    @property
    def retried(self) -> int:
        """Visits finished here that went wrong, and whose task waits for another one (O1)."""
        return self._frontier.retried

    @property
    def is_attached(self) -> bool:
        """Whether it was made by `attach`, so that the crawl keeps the settings it has."""
        return self._frontier.is_attached

    @property
    def lacks(self) -> str:
        """Which of the crawl's settings must be given to this process, in words; "": none."""
        return self._frontier.lacks

    def add(
        self, links: Iterable[str | Url | Link] | str | Link, *, answers: bool = True
    ) -> AddReport:
        """Add links in order; an invalid link does not affect the others.

        Lists are applied whole even if the caller is cancelled; other iterables chunk by chunk.
        `answers=False` keeps only the counts, for millions.
        """
        return self._loop.run(self._frontier.add(links, answers=answers))

    def claim(
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
        return self._hold(
            self._loop.run(
                self._frontier.claim(
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
            )
        )

    def claim_named(self, fingerprints: Iterable[bytes]) -> Claim:
        """Lease those of up to 64 tasks that are pending and due, whatever their queues wait for.

        For responses that are cached: it takes no slot and begins no delay, so send the host no
        request. Finish with `Done(from_cache=True)`, or release.
        """
        return self._hold(self._loop.run(self._frontier.claim_named(fingerprints)))

    def leases(self, limit: int = 64) -> Iterator[Lease]:
        """Iterate over leases, at most `limit` unfinished at a time; ends with the crawl."""
        return self._hold_each(self._loop.iterate(self._frontier.leases(limit)))

    def finish(
        self, lease: Lease, outcome: Outcome, links: Iterable[str | Url | Link] = ()
    ) -> bool:
        """Apply the outcome of a visit, with the links found, in one atomic step.

        Return True; or False if the lease was lost: then nothing changed.
        """
        return self._loop.run(self._frontier.finish(lease, outcome, links))

    def finish_many(self, visits: Iterable[Visit]) -> list[bool]:
        """Finish several visits; return one result each, in order.

        If one is invalid, the rest is applied, then its error is raised.
        """
        return self._loop.run(self._frontier.finish_many(visits))

    def extend(self, leases: Iterable[Lease], *, lease_for: float | None = None) -> set[Lease]:
        """Renew leases for so many seconds from now; return those that are still held.

        None: each for as long as it was claimed for.
        """
        return self._loop.run(self._frontier.extend(leases, lease_for=lease_for))

    def leased(
        self, *, key: str | None = None, worker: str | None = None, older_than: float | None = None
    ) -> Iterator[LeaseView]:
        """Iterate over the leases that are held, oldest first, of whichever worker (H1).

        `key` is a key or a suffix, `older_than` seconds since the claim. Each view's lease can be
        finished, extended and released through this frontier.
        """
        return self._hold_each_view(
            self._loop.iterate(self._frontier.leased(key=key, worker=worker, older_than=older_than))
        )

    def find_lease(
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
        return self._hold_one(
            self._loop.run(
                self._frontier.find_lease(url, fingerprint=fingerprint, token=token, task=task)
            )
        )

    def release(self, leases: Iterable[Lease]) -> set[Lease]:
        """Give leases back; no attempt is counted. Return those that were still held."""
        return self._loop.run(self._frontier.release(leases))

    def expire(self, *, limit: int = 1000) -> int:
        """End overdue leases; return how many. Claims do it too, so only sweepers need this."""
        return self._loop.run(self._frontier.expire(limit=limit))

    def lease_through(self, source: LeaseSource | None) -> None:
        """Claim, finish and release through `source` from now on; None: at the store again.

        For an executor with a workbench. Finishes that were handed in before are applied first.
        """
        self._loop.run(self._frontier.lease_through(source))

    def score(
        self, links: Iterable[str | Url | Link] | str | Link, *, known: bool = False
    ) -> ScoreReport:
        """Return what `add` would make of each link now, in order; nothing is stored or counted.

        With `known`, the store is asked for each URL whether it is known, and in which state: to
        add such a link is a duplicate, unless its own `known` says otherwise (B3).
        """
        return self._loop.run(self._frontier.score(links, known=known))

    def record_calls(self, recorder: CallRecorder | None) -> None:
        """Call `recorder` with each verb of the store that was answered, and its seconds (O1).

        One recorder at a time; None: none. The verbs are add, claim, extend, finish, release and
        expire; those of a source of leases in place of the store's.
        """
        self._loop.call(lambda: self._frontier.record_calls(recorder))

    def refusal_of(self, link: str | Url | Link, found_on: Lease) -> str | None:
        """Return why a link found on a visit would be refused; None: it is admissible, or known."""
        return self._loop.run(self._frontier.refusal_of(link, found_on))

    def stats(self) -> Stats:
        """Return counters by state, type and tag, queues by state, status and timeline."""
        return self._loop.run(self._frontier.stats())

    def progress(self) -> Progress:
        """Return samples of the crawl's counters since it began, thinned with age (O1).

        They are taken every few seconds, whichever worker claims and finishes, and kept with the
        crawl. The result tells rates (`rates()`) and the time that is left (`time_left()`).
        """
        return self._loop.run(self._frontier.progress())

    def why(self, limit: int = 20) -> list[Reason]:
        """List what keeps the crawl from finishing; empty when nothing does (I2)."""
        return self._loop.run(self._frontier.why(limit))

    def workers(self) -> list[WorkerView]:
        """List the workers of this crawl; those without heartbeats are reported as gone (M6)."""
        return self._loop.run(self._frontier.workers())

    def worker_totals(self) -> WorkerTotals:
        """Return what all workers the crawl ever had have counted together (M6)."""
        return self._loop.run(self._frontier.worker_totals())

    def metrics(self, since: Metrics | None = None) -> Metrics:
        """Return counters, rates and latencies over all workers (O1).

        Rates are those since an earlier reading; without one, of the last minute of activity.
        """
        return self._loop.run(self._frontier.metrics(since))

    def heatmap(self) -> Heatmap:
        """Count pending tasks by origin and group, and by depth (O2)."""
        return self._loop.run(self._frontier.heatmap())

    def queues(
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
    ) -> Iterator[QueueView]:
        """Iterate over queue views (E8); `sort` by key, wakes_in, pending, spent or errors.

        Only queues that match everything given: `key` is a key or a suffix, `pattern` a regular
        expression searched in the key, `reason` that of the state, `min_errors` errors in a row.

        Of any number of queues, `key` (all, or those that begin with `prefix`) and `wakes_in`
        (those that only wait for time) are read as far as you iterate. Whatever else is sorted, or
        reversed, must be at most 10,000 queues that match; of more, see `worst_queues`.
        """
        return self._loop.iterate(
            self._frontier.queues(
                state=state,
                sort=sort,
                reverse=reverse,
                prefix=prefix,
                key=key,
                pattern=pattern,
                reason=reason,
                min_spent=min_spent,
                min_errors=min_errors,
            )
        )

    def worst_queues(self, by: str, limit: int = 20) -> QueueSample:
        """Return the queues with most `pending`, `spent` or `errors` of those that were read (E8).

        A call reads at most 10,000 queues, for a quarter of a second, and continues where the last
        one stopped: exact for a crawl of so many queues, else a sample with its age.
        """
        return self._loop.run(self._frontier.worst_queues(by, limit))

    def upcoming(self, key: str, limit: int = 64) -> list[Upcoming]:
        """List the first due tasks of a queue, each as (fingerprint, url), for `claim_named`."""
        return self._loop.run(self._frontier.upcoming(key, limit))

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
    ) -> Iterator[TaskView]:
        """Iterate over tasks that match everything given, in order of their discovery."""
        return self._loop.iterate(
            self._frontier.tasks(
                key=key,
                state=state,
                type=type,
                tag=tag,
                pattern=pattern,
                reason=reason,
                older_than=older_than,
            )
        )

    def dead(
        self, *, reason: str | None = None, type: str | None = None, key: str | None = None
    ) -> Iterator[DeadLetter]:
        """Iterate over dead letters, with every attempt (G2)."""
        return self._loop.iterate(self._frontier.dead(reason=reason, type=type, key=key))

    def dead_by_reason(self) -> dict[str, int]:
        """Count dead letters by reason."""
        return self._loop.run(self._frontier.dead_by_reason())

    def explain(self, url: str | Link) -> Explanation:
        """Explain why a URL is where it is, or why it would be refused (O4).

        For a `Link` that is not known, the fields it brings are taken into account.
        """
        return self._loop.run(self._frontier.explain(url))

    def queue(self, key: str, *, by: str | None = None) -> QueueHandle:
        """Return the handle of a queue by its key, or of all queues of a suffix such as ".org".

        What is done with it is logged with the name `by`.
        """
        return QueueHandle(self._loop, self._frontier.queue(key, by=by))

    def steer(self, target: str, act: QueueAction, *, by: str | None = None) -> int:
        """Apply a queue action in bounded steps; return how many queues it reached.

        `target` is a key, a host or a suffix, or empty for every queue; one that can match no key
        of the crawl is refused.
        """
        return self._loop.run(self._frontier.steer(target, act, by=by))

    def pause(self, *, by: str | None = None) -> CrawlStatus:
        """Lease no tasks until resumed; return the status."""
        return self._loop.run(self._frontier.pause(by=by))

    def resume(self, *, by: str | None = None) -> CrawlStatus:
        """Lease tasks again; return the status."""
        return self._loop.run(self._frontier.resume(by=by))

    def cancel(self, *, by: str | None = None) -> CrawlStatus:
        """End the crawl for good: pending and leased tasks are reported as dropped (I3)."""
        return self._loop.run(self._frontier.cancel(by=by))

    def drop(
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
        return self._loop.run(
            self._frontier.drop(
                key=key,
                pattern=pattern,
                type=type,
                tag=tag,
                older_than=older_than,
                dry_run=dry_run,
                by=by,
            )
        )

    def forget(
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
        return self._loop.run(
            self._frontier.forget(
                url,
                key=key,
                pattern=pattern,
                type=type,
                tag=tag,
                state=state,
                older_than=older_than,
                dry_run=dry_run,
                by=by,
            )
        )

    def delete_crawl(
        self, *, by: str | None = None, progress: Callable[[int], object] | None = None
    ) -> int:
        """Remove the crawl from its store, with all that is kept of it; return how many tasks (I1).

        It is cancelled first, so workers stop. A removal that was interrupted continues when this
        is called again. `progress` is called with how many tasks were removed so far. Links that
        are added afterwards are refused (`cancelled`), until `Frontier.open` begins a new crawl.
        """
        return self._loop.run(self._frontier.delete_crawl(by=by, progress=progress))

    def replay(
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
        return self._loop.run(
            self._frontier.replay(
                url, reason=reason, type=type, key=key, all=all, dry_run=dry_run, by=by
            )
        )

    def purge(
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
        return self._loop.run(
            self._frontier.purge(
                url, reason=reason, type=type, key=key, all=all, dry_run=dry_run, by=by
            )
        )

    def predict(self, url: str, confidence: float, lift: float) -> bool:
        """Predict that a URL is worth a visit; True if it is pending and its priority changed."""
        return self._loop.run(self._frontier.predict(url, confidence, lift))

    def predict_many(self, guesses: Iterable[tuple[str, float, float]]) -> int:
        """Predict many URLs; return how many are pending and changed their priority.

        For more than a hundred, priorities change in the background, and the result is 0.
        """
        return self._loop.run(self._frontier.predict_many(guesses))

    def predictions(self, *, state: State | None = None) -> Iterator[Prediction]:
        """Iterate over predictions, with what came of them."""
        return self._loop.iterate(self._frontier.predictions(state=state))

    def report_problem(self, kind: str, scope: str, target: str) -> Cluster:
        """Report a problem of the site crawled; return the cluster it was counted in (F5).

        `target` is a host, a URL, a path or a word; pages it matches are visited sooner. A `scope`
        that is a host limits that to its pages.
        """
        return self._loop.run(self._frontier.report_problem(kind, scope, target))

    def problems(self) -> list[Cluster]:
        """List the current clusters of problems, the largest first."""
        return self._loop.run(self._frontier.problems())

    def rescore(
        self,
        *,
        key: str | None = None,
        pattern: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        by: str | None = None,
    ) -> int:
        """Score pending tasks again, all or those that match; return how many changed."""
        return self._loop.run(
            self._frontier.rescore(key=key, pattern=pattern, type=type, tag=tag, by=by)
        )

    def rescoring(self) -> Rescoring:
        """Return the progress of rescoring all tasks, whichever worker does it."""
        return self._loop.run(self._frontier.rescoring())

    def keep(self) -> None:
        """Share rewards, and resume rescoring that is wanted, in the background.

        An executor calls it every second; a program without one should do the same.
        """
        self._loop.run(self._frontier.keep())

    def configure(self, changes: Mapping[str, Any], *, by: str | None = None) -> Settings:
        """Change settings of the running crawl: validated whole, durable, for all its workers.

        It acts at once (E5), and on other workers within seconds. Settings that every process has
        for itself (functions, paths on its machine) are changed in this process alone, and only if
        it opened the crawl. `by` is who changes them, for history and events; in the history, the
        worker if nothing says so.
        """
        return self._loop.run(self._frontier.configure(changes, by=by))

    def unset(self, *paths: str, by: str | None = None) -> Settings:
        """Remove the runtime values of these settings, and of all below them."""
        return self._loop.run(self._frontier.unset(*paths, by=by))

    def follow(
        self, path: str | os.PathLike[str], *, tell: Callable[[str], object] = log.warning
    ) -> Callable[[], None]:
        """Use a settings file, and every change of it while the frontier is open.

        If a later change is invalid, `tell` is called with the error, once, and the settings stay.
        Return the function that ends it.
        """
        return self._loop.bind(self._loop.run(self._frontier.follow(path, tell=tell)))

    def config(self) -> list[Setting]:
        """List every setting: its value, origin, default and description (N5)."""
        return self._loop.run(self._frontier.config())

    def config_history(self) -> list[Change]:
        """List the last thousand changes of settings in order: who, when, old, new (N4)."""
        return self._loop.run(self._frontier.config_history())

    def watch_settings(self, watcher: SettingsWatcher) -> Callable[[], None]:
        """Call a function with the old and the new settings at every change, whatever its source.

        Return the function that ends it. What a watcher raises is logged.
        """
        return self._loop.bind(self._loop.call(lambda: self._frontier.watch_settings(watcher)))

    def learn(self) -> None:
        """Use the crawl's settings as they are now: runtime settings and, if attached, stored ones.

        `lacks` names what this process must be given; until then, it can add and finish nothing.
        """
        self._loop.run(self._frontier.learn())

    def listen(self) -> None:
        """Apply what other workers have shared since: runtime settings and signals."""
        self._loop.run(self._frontier.listen())

    def export(self) -> Iterator[bytes]:
        """Iterate over the whole crawl as JSON lines, some lines at a time; claims continue."""
        return self._loop.iterate(self._frontier.export())

    def restore(
        self, lines: Iterable[bytes], *, progress: Callable[[RestoreReport], None] | None = None
    ) -> RestoreReport:
        """Restore an export into a crawl without tasks; it leases no tasks until all is read.

        Items that are there already are not changed: after a failure, call it again.
        """
        return self._loop.run(self._frontier.restore(lines, progress=progress))

    def events(self) -> Iterator[Event]:
        """Iterate over events from now on, as they happen."""
        return self._loop.iterate(self._loop.call(self._frontier.events))

    def follow_events(
        self,
        *,
        since: int | None = None,
        names: Collection[str] = (),
        key: str | None = None,
        breakdown: bool = False,
    ) -> Iterator[Event]:
        """Iterate over events of all workers of the crawl, in whichever process they are.

        They are numbered together: `since` resumes after the event of that number, and a `gap`
        says how many are missing; None: from now on. `names` and `key`, a queue's or a suffix,
        select events. Workers publish within about a second, until a minute after the last read.
        """
        return self._loop.iterate(
            self._frontier.follow_events(since=since, names=names, key=key, breakdown=breakdown)
        )

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event; return the function that ends it."""
        return self._loop.bind(self._loop.call(lambda: self._frontier.subscribe(listener)))


async def _open(frontier: AsyncFrontier) -> AsyncFrontier:
    if not isinstance(frontier, AsyncFrontier):
        raise InvalidInput("a blocking frontier is made by outrider.blocking.Frontier.open(...)")
    return await frontier
