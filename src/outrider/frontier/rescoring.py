"""Priorities thought again: at once for what a signal touches, in the background for the rest (C8).

One worker at a time goes through all that waits, in bounded steps, and notes how far it is; if it
dies, another goes on from there. Every step may be repeated without harm.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from outrider.errors import StoreUnavailable
from outrider.frontier.addressing import filter_key_of
from outrider.frontier.heard import RESCORE, Rescoring, written
from outrider.frontier.noting import Noting
from outrider.frontier.operating import checked_pattern
from outrider.logs import logger_of
from outrider.settings import Settings, to_mapping
from outrider.store.protocol import Pending, PriorityUpdate, SharedValueWrite, TaskFilter

STEP: Final = 250  # tasks of a step: a claim may wait for some
TURNS: Final = 3  # of the loop after a step: so many it takes until one who slept has its say
TOLD_EVERY: Final = 1000  # milliseconds between two words on the progress
LOST_AFTER: Final = 10_000  # milliseconds of silence after which another goes on
_log = logger_of(__name__)


class Rescorer(Noting):
    """How what waits gets another priority."""

    async def rescore(
        self,
        *,
        key: str | None = None,
        pattern: str | None = None,
        type: str | None = None,
        tag: str | None = None,
    ) -> int:
        """Score pending tasks anew, all or those that match; answers how many changed."""
        self._require_settings()
        by_key = await filter_key_of(self, key)
        which = TaskFilter(key=by_key, pattern=checked_pattern(pattern), type=type, tag=tag)
        changed = await self._rescore_all() if which == TaskFilter() else await self._rescore(which)
        self._teller.tell("rescored", tasks=changed)
        return changed

    async def rescoring(self) -> Rescoring:
        """How far it is with rescoring everything, whoever does it."""
        await self.learn()
        job, digest = self._heard.rescoring, self._digest()
        if not self._number():  # scoring never changed since the first link was scored
            return Rescoring(digest)
        return job if self.lacks or job.digest == digest else Rescoring(digest, "wanted")

    async def _keep_rescored(self) -> None:
        """Go on with what is wanted, if nobody else does; for those who keep a crawl."""
        job = self._heard.rescoring
        if self.lacks or job.state == "done":
            return
        if job.state == "wanted" or await self._store_now() - self._heard.rescoring_at > LOST_AFTER:
            await self._run(job, self._number())

    def _scoring_changed(self) -> None:
        """Other weights, other features: what waits was scored under the old ones."""
        self._heard.signals.use(self._settings.scoring.problems, self._clock.now_ms())
        for group, learnt in self._heard.rewards.items():
            self._teach(group, learnt.visits, learnt.reward)
        if self._store is not None and not self.lacks:
            self._behind(self._want_rescoring())

    def _teach(self, group: str, visits: float, reward: float) -> None:
        hear = getattr(self._scorer.inner, "hear", None)
        if hear is not None:
            hear(group, visits, reward)

    async def _want_rescoring(self, *, again: bool = False) -> None:
        """Say that it is wanted, unless it was done, or is wanted, under these settings.

        Said again until it is: whoever works under older settings notes how far it is meanwhile.
        """
        while self._heard.rescoring.digest != self._digest() or again:
            number, epoch = self._number(), self._heard.rescoring.epoch + again
            pending = (await self.store.crawl(self.crawl)).pending
            wanted = Rescoring(self._digest(), pending=pending, epoch=epoch)
            if await self._say(replace(wanted, state="wanted") if pending else wanted, number):
                break
        if not self._is_attached and not self._is_closing:
            await self._keep_rescored()

    def _digest(self) -> str:
        """Of the settings that hold; it is asked for often, and they seldom change."""
        of, digest = self._heard.digest
        if of is not self._settings:
            digest = digest_of(self._settings)
            self._heard.digest = (self._settings, digest)
        return digest

    def _number(self) -> int:
        """Of the last word on rescoring."""
        return self._heard.numbers[RESCORE].get("all", 0)

    async def _say(self, job: Rescoring, seen: int) -> int:
        """The number it is said under; 0, if somebody said something after what was seen."""
        (number,) = await self._tell([SharedValueWrite(RESCORE, "all", written(job), seen)])
        if not number:
            await self.learn()
        return number

    async def _rescore_all(self) -> int:
        await self.learn()
        number, epoch = self._number(), self._heard.rescoring.epoch
        view = await self.store.crawl(self.crawl)
        job = Rescoring(self._digest(), pending=view.pending, epoch=epoch)
        changed = await self._run(job, number)
        if changed is None:  # somebody else begins: whoever asks is served first
            changed = await self._rescore(TaskFilter())
        return changed

    async def _run(self, job: Rescoring, number: int) -> int | None:
        """All steps from where it stands; how many tasks changed, or None if it is another's."""
        job = replace(job, state="running", by=self.worker)
        if not (number := await self._say(job, number)):
            return None
        told = self._clock.now_ms()
        while number and job.state == "running" and not self._is_closing:
            job = await self._step(job)
            now = self._clock.now_ms()
            if job.state == "done" or now - told >= TOLD_EVERY:
                told, number = now, await self._say(job, number)
            await _others_first()
        if number and job.state == "running":  # we close
            await self._say(replace(job, state="wanted"), number)
        return job.changed

    async def _step(self, job: Rescoring) -> Rescoring:
        page = await self.store.pending_tasks(self.crawl, TaskFilter(), after=job.after, limit=STEP)
        changed = job.changed + await self._reprice(page.items)
        looked = job.looked + len(page.items)
        if page.after is None:
            rescored = getattr(self._scorer.inner, "rescored", None)
            if rescored is not None:
                rescored()
            return replace(job, state="done", looked=looked, changed=changed)
        return replace(job, after=page.after, looked=looked, changed=changed)

    async def _rescore(self, which: TaskFilter) -> int:
        """Those that match, in bounded steps."""
        changed = after = 0
        while not self._is_closing:
            page = await self.store.pending_tasks(self.crawl, which, after=after, limit=STEP)
            changed += await self._reprice(page.items)
            if page.after is None:
                break
            after = page.after
            await _others_first()
        return changed

    def _behind(self, work: Coroutine[Any, Any, object]) -> None:
        """In the background: a store that is away is told of in the log, and looked for again."""
        self._spawn(work).add_done_callback(_log_trouble)

    def _rescore_later(self, which: TaskFilter) -> None:
        """In the background, one after the other; what waits there is wanted once."""
        later = self._heard.later
        later[which] = None
        if not self._heard.is_rescoring:
            self._heard.is_rescoring = True
            self._behind(self._rescore_waiting(later))

    async def _rescore_waiting(self, later: dict[TaskFilter, None]) -> None:
        try:
            while later and not self._is_closing:
                which = next(iter(later))
                del later[which]
                await self._rescore(which)
        finally:
            self._heard.is_rescoring = False
        await self._leave_to_others()

    async def _rescore_marks_later(self, marks: Sequence[bytes]) -> None:
        await self._rescore_marks(marks)
        await self._leave_to_others()

    async def _leave_to_others(self) -> None:
        """Some of it may be left when we close, and somebody else is to do it."""
        if self._is_closing:
            await self._want_rescoring(again=True)

    async def _rescore_marks(self, marks: Sequence[bytes]) -> int:
        """These tasks, if they wait."""
        return sum([await self._rescore(TaskFilter(fingerprint=mark)) for mark in marks])

    async def _reprice(self, waiting: Sequence[Pending]) -> int:
        """C8: what would not change is not written."""
        if not waiting or self._admission.gathers:  # F10: what was gathered cannot be thought again
            return 0
        scores = self._admission.rescore_tasks([one.task for one in waiting])
        prices = [
            PriorityUpdate(one.number, one.task.priority, score.priority + 0.0, score.breakdown)
            for one, score in zip(waiting, scores, strict=True)
            if score is not None
            and (score.priority != one.task.priority or score.breakdown != one.task.breakdown)
        ]
        count = await self.store.update_priorities(self.crawl, prices) if prices else 0
        if count:
            self._stirred.set()
        return count


async def _others_first() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def _log_trouble(task: asyncio.Task[object]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, StoreUnavailable):  # that is told elsewhere
        _log.warning("background task of the frontier failed: %s", error)


def digest_of(settings: Settings) -> str:
    """Tells one way of scoring from another."""
    tree = to_mapping(settings)
    text = msgspec.json.encode([tree.get("scoring"), tree.get("focus")], order="deterministic")
    return hashlib.blake2b(text, digest_size=8).hexdigest()
