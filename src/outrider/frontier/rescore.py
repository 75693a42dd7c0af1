"""Scoring pending tasks again: at once what a signal affects, the rest in the background (C8).

One worker at a time goes through all pending tasks in bounded steps, and publishes its progress; if
it dies, another resumes from there. Every step may be repeated without harm.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from outrider.core.signals import Cluster, host_of, pattern_of
from outrider.core.states import UNKNOWN
from outrider.frontier.admin import QueueAddresses, check_pattern
from outrider.frontier.context import FrontierContext
from outrider.frontier.event_reporter import signature
from outrider.frontier.live_settings import LiveSettings
from outrider.frontier.shared_state import RESCORE, Rescoring, SharedState, encode
from outrider.settings import Settings, to_mapping
from outrider.store.protocol import Pending, PriorityUpdate, SharedValueWrite, TaskFilter

STEP: Final = 250  # tasks per step: a claim may have to wait for one step
TURNS: Final = 3  # of the loop after a step: so many until a task that slept has run
PROGRESS_INTERVAL: Final = 1000  # milliseconds between two publications of the progress
LOST_AFTER: Final = 10_000  # milliseconds without progress after which another worker resumes


class Rescorer:
    """Gives pending tasks the priority that the scorer would give them now."""

    def __init__(
        self,
        context: FrontierContext,
        shared: SharedState,
        settings: LiveSettings,
        addresses: QueueAddresses,
    ) -> None:
        self._context = context
        self._shared = shared
        self._settings = settings
        self._addresses = addresses
        self._digest: tuple[Settings | None, str] = (None, "")  # of the scoring of settings
        self._later: dict[TaskFilter, None] = {}  # to be rescored in the background, in order
        self._is_running = False  # whether a background task works through `_later`
        settings.watch(self._settings_changed)

    async def rescore(
        self,
        *,
        key: str | None,
        pattern: str | None,
        type: str | None,
        tag: str | None,
        by: str | None,
    ) -> int:
        """See `Frontier.rescore`."""
        self._settings.require_all()
        by = self._context.actor(by)
        by_key = await self._addresses.filter_key(key)
        which = TaskFilter(key=by_key, pattern=check_pattern(pattern), type=type, tag=tag)
        if which == TaskFilter():
            changed = await self._rescore_all()
        else:
            changed = await self._rescore_matching(which)
        self._context.reporter.emit("rescored", tasks=changed, **signature(by))
        return changed

    async def progress(self) -> Rescoring:
        """See `Frontier.rescoring`."""
        await self._settings.learn()
        job, digest = self._shared.rescoring, self._current_digest()
        if not self._number():  # the scoring did not change since the first link was scored
            return Rescoring(digest)
        is_current = bool(self._settings.lacks) or job.digest == digest
        return job if is_current else Rescoring(digest, "wanted")

    async def resume(self) -> None:
        """Go on with rescoring that is wanted, unless another worker does."""
        job = self._shared.rescoring
        if self._settings.lacks or job.state == "done":
            return
        if job.state == "wanted" or await self._is_lost():
            await self._run(job, self._number())

    async def _is_lost(self) -> bool:
        return await self._shared.store_now() - self._shared.rescoring_at > LOST_AFTER

    def _settings_changed(self, old: Settings, new: Settings) -> None:
        """Rescore in the background if pending tasks were scored under other settings."""
        is_same = (old.scoring, old.focus) == (new.scoring, new.focus)
        if not is_same and self._context.is_open and not self._settings.lacks:
            self._context.background.run(self.request())

    async def request(self, *, again: bool = False) -> None:
        """Publish that rescoring is wanted, unless it is done or wanted under these settings.

        Repeated until it is written: a worker with older settings may publish its progress first.
        """
        while self._shared.rescoring.digest != self._current_digest() or again:
            number, epoch = self._number(), self._shared.rescoring.epoch + again
            view = await self._context.store.crawl(self._context.crawl)
            if view.reason == UNKNOWN:  # I1: it was removed, so nothing is written any more
                return
            pending = view.pending
            wanted = Rescoring(self._current_digest(), pending=pending, epoch=epoch)
            job = replace(wanted, state="wanted") if pending else wanted
            if await self._publish(job, number):
                break
        if not self._settings.is_attached and not self._context.is_closing:
            await self.resume()

    async def _count_pending(self) -> int:
        return (await self._context.store.crawl(self._context.crawl)).pending

    def _current_digest(self) -> str:
        """Return the digest of the settings in force; cached, since they seldom change."""
        settings = self._context.policies.settings
        of, digest = self._digest
        if of is not settings:
            digest = digest_of(settings)
            self._digest = (settings, digest)
        return digest

    def _number(self) -> int:
        """Return the number of the last value on rescoring."""
        return self._shared.number(RESCORE, "all")

    async def _publish(self, job: Rescoring, seen: int) -> int:
        """Return the number it was written under; 0: another value came after the one seen."""
        write = SharedValueWrite(RESCORE, "all", encode(job), seen)
        (number,) = await self._shared.publish([write])
        if not number:
            await self._settings.learn()
        return number

    async def _rescore_all(self) -> int:
        await self._settings.learn()
        number, epoch = self._number(), self._shared.rescoring.epoch
        pending = await self._count_pending()
        job = Rescoring(self._current_digest(), pending=pending, epoch=epoch)
        changed = await self._run(job, number)
        if changed is None:  # another worker begins: this caller's request is served all the same
            changed = await self._rescore_matching(TaskFilter())
        return changed

    async def _run(self, job: Rescoring, number: int) -> int | None:
        """Run all steps from where the job is; return how many tasks changed.

        None: another worker has taken the job.
        """
        context = self._context
        job = replace(job, state="running", by=context.worker)
        if not (number := await self._publish(job, number)):
            return None
        published = context.clock.now_ms()
        while number and job.state == "running" and not context.is_closing:
            job = await self._step(job)
            now = context.clock.now_ms()
            if job.state == "done" or now - published >= PROGRESS_INTERVAL:
                published, number = now, await self._publish(job, number)
            await _let_others_run()
        if number and job.state == "running":  # this frontier closes: leave the rest to others
            await self._publish(replace(job, state="wanted"), number)
        return job.changed

    async def _step(self, job: Rescoring) -> Rescoring:
        context = self._context
        page = await context.store.pending_tasks(
            context.crawl, TaskFilter(), after=job.after, limit=STEP
        )
        changed = job.changed + await self._update_priorities(page.items)
        looked = job.looked + len(page.items)
        if page.after is None:
            context.policies.scorer.rescored()
            return replace(job, state="done", looked=looked, changed=changed)
        return replace(job, after=page.after, looked=looked, changed=changed)

    async def _rescore_matching(self, which: TaskFilter) -> int:
        """Rescore the tasks that match, in bounded steps; return how many changed."""
        context = self._context
        changed = after = 0
        while not context.is_closing:
            page = await context.store.pending_tasks(context.crawl, which, after=after, limit=STEP)
            changed += await self._update_priorities(page.items)
            if page.after is None:
                break
            after = page.after
            await _let_others_run()
        return changed

    async def _update_priorities(self, pending: Sequence[Pending]) -> int:
        """Score tasks again, and write those whose score changed (C8)."""
        admission = self._context.policies.admission
        if not pending or admission.gathers:  # F10: gathered features cannot be gathered again
            return 0
        scores = admission.rescore_tasks([one.task for one in pending])
        updates = [
            PriorityUpdate(one.number, one.task.priority, score.priority + 0.0, score.breakdown)
            for one, score in zip(pending, scores, strict=True)
            if score is not None
            and (score.priority != one.task.priority or score.breakdown != one.task.breakdown)
        ]
        if not updates:
            return 0
        return await self._context.store.update_priorities(self._context.crawl, updates)

    # ---- what signals affect

    def expire_signals(self) -> None:
        """Forget problems that left the window (F5), and rescore what they boosted."""
        for cluster in self._shared.signals.expire(self._shared.store_ms()):
            self.rescore_later(self.affected_by(cluster))

    def affected_by(self, cluster: Cluster) -> TaskFilter:
        """Return the tasks a cluster may boost; by key only where hosts are the keys."""
        host = host_of(cluster.target)
        if host is None:
            return TaskFilter(pattern=pattern_of(cluster.target))
        is_key = self._context.policies.settings.queue.key == "host"
        return TaskFilter(key=host) if is_key else TaskFilter(pattern=f"://{re.escape(host)}[:/]")

    async def rescore_tasks(self, fingerprints: Sequence[bytes]) -> int:
        """Rescore these tasks, if they are pending; return how many changed."""
        counts = [
            await self._rescore_matching(TaskFilter(fingerprint=mark)) for mark in fingerprints
        ]
        return sum(counts)

    def rescore_tasks_later(self, fingerprints: Sequence[bytes]) -> None:
        """Rescore these tasks in the background."""
        self._context.background.run(self._rescore_tasks_then_leave(fingerprints))

    async def _rescore_tasks_then_leave(self, fingerprints: Sequence[bytes]) -> None:
        await self.rescore_tasks(fingerprints)
        await self._leave_rest()

    def rescore_later(self, which: TaskFilter) -> None:
        """Rescore matching tasks in the background, one filter after the other."""
        self._later[which] = None
        if not self._is_running:
            self._is_running = True
            self._context.background.run(self._rescore_waiting())

    async def _rescore_waiting(self) -> None:
        later = self._later
        try:
            while later and not self._context.is_closing:
                which = next(iter(later))
                del later[which]
                await self._rescore_matching(which)
        finally:
            self._is_running = False
        await self._leave_rest()

    async def _leave_rest(self) -> None:
        """If this frontier closes, ask for rescoring: another worker does what is left."""
        if self._context.is_closing:
            await self.request(again=True)


async def _let_others_run() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def digest_of(settings: Settings) -> str:
    """Return a digest of everything that scores depend on."""
    tree = to_mapping(settings)
    text = msgspec.json.encode([tree.get("scoring"), tree.get("focus")], order="deterministic")
    return hashlib.blake2b(text, digest_size=8).hexdigest()
