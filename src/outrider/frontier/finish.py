"""Finishing visits: an outcome becomes a verdict, applied with the links of the page (H6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from outrider.core.decide import REFRESH, decide, new_meta_error, outcome_error
from outrider.core.outcome import Again, Outcome
from outrider.core.states import TaskState
from outrider.core.task import Added, Lease, Link, Task
from outrider.core.url import Url
from outrider.core.verdict import Finished, Verdict
from outrider.errors import InvalidInput
from outrider.frontier.add import Adder
from outrider.frontier.claim import Claimer, raise_first
from outrider.frontier.context import ClosedSource, FrontierContext, LeaseSource
from outrider.frontier.live_settings import LiveSettings
from outrider.frontier.policies import Revisits
from outrider.frontier.progress import ProgressRecorder
from outrider.frontier.signals import Predictions, Rewards
from outrider.frontier.store_calls import Batcher
from outrider.store.byte_limits import verdict_bytes, verdicts_bytes

PENDING: Final = TaskState.PENDING
_SEQUENCES: Final = (tuple, list)
_SIZES: Final = (verdicts_bytes, verdict_bytes)
Visit: TypeAlias = "tuple[Lease, Outcome] | tuple[Lease, Outcome, Iterable[str | Url | Link]]"


class Finisher:
    """Decides what outcomes mean, and applies that to the store."""

    def __init__(
        self,
        context: FrontierContext,
        settings: LiveSettings,
        adder: Adder,
        claimer: Claimer,
        predictions: Predictions,
        rewards: Rewards,
        progress: ProgressRecorder,
    ) -> None:
        self.retried = 0  # visits that went wrong, and whose task waits for another one
        self._context = context
        self._policies = context.policies
        self._settings = settings
        self._adder = adder
        self._claimer = claimer
        self._predictions = predictions
        self._rewards = rewards
        self._progress = progress
        self._verdicts: Batcher[Verdict, Finished] = Batcher(
            ClosedSource().finish, _SIZES, is_inline=True
        )

    def use(self, source: LeaseSource) -> None:
        """Finish at this source from now on; `drain` first what was handed in before."""
        self._verdicts = Batcher(
            self._context.timed("finish", source.finish), _SIZES, is_inline=source.is_inline
        )

    async def drain(self) -> None:
        """Wait until all verdicts handed in are applied."""
        await self._verdicts.drain()

    async def finish(
        self, lease: Lease, outcome: Outcome, links: Iterable[str | Url | Link] = ()
    ) -> bool:
        """See `Frontier.finish`."""
        error = self._visit_error((lease, outcome, links), self._max_meta)
        if error is not None:
            raise_first([error], answers=False)
        verdict = await self._verdict(lease, outcome, links)
        finished = await self._apply([lease], [verdict], [outcome])
        return finished[0].applied

    async def finish_many(self, visits: Iterable[Visit]) -> list[bool]:
        """See `Frontier.finish_many`."""
        errors: list[InvalidInput | None] = []
        leases: list[Lease] = []
        verdicts: list[Verdict] = []
        outcomes: list[Outcome] = []
        max_meta = self._max_meta  # one for the whole batch, also if it is changed meanwhile
        has_roots = False  # read once per batch: each read may be a round trip
        for visit in visits:
            error = self._visit_error(visit, max_meta)
            errors.append(error)
            if error is None:
                leases.append(visit[0])
                outcomes.append(visit[1])
                if len(visit) == 2:
                    policies = self._policies
                    verdicts.append(decide(*visit, policies.policy, policies.dice()))
                else:
                    verdicts.append(await self._verdict(*visit, has_roots=has_roots))
                    has_roots = has_roots or bool(visit[2])
        rest = iter(await self._apply(leases, verdicts, outcomes) if verdicts else ())
        answers = [error is None and next(rest).applied for error in errors]
        raise_first(errors, answers)
        return answers

    @property
    def _max_meta(self) -> int:
        return self._policies.settings.queue.max_meta

    def _visit_error(self, visit: Visit, max_meta: int) -> InvalidInput | None:
        if not isinstance(visit, _SEQUENCES) or len(visit) not in (2, 3):
            return InvalidInput(
                f"a visit is (lease, outcome) or (lease, outcome, links): {visit!r}"
            )
        error = self._claimer.lease_error(visit[0])
        if error is not None:
            return error
        if len(visit) == 3 and type(visit[2]) is not list and not isinstance(visit[2], Iterable):
            return InvalidInput(f"links = {visit[2]!r}: a list of URLs or Links")
        wrong = outcome_error(visit[1])
        if wrong is None and type(visit[1]) is Again:
            wrong = new_meta_error(visit[1], max_meta)
        return None if wrong is None else InvalidInput(wrong)

    async def _verdict(
        self,
        lease: Lease,
        outcome: Outcome,
        links: Iterable[str | Url | Link] = (),
        *,
        has_roots: bool = False,
    ) -> Verdict:
        verdict = decide(lease, outcome, self._policies.policy, self._policies.dice())
        found = [links] if isinstance(links, str | Link | Url) else list(links)
        if not found:
            return verdict
        admitted, _ = await self._adder.admit(found, lease, has_roots=has_roots)
        tasks = [one for one in admitted if isinstance(one, Task)]
        if len(tasks) < len(admitted):
            await self._adder.count_refused([one for one in admitted if isinstance(one, Added)])
        # The verdict is not shared yet; a copy of all its fields would cost a tenth of the finish.
        msgspec.structs.force_setattr(verdict, "tasks", tasks)
        return verdict

    async def _apply(
        self, leases: list[Lease], verdicts: list[Verdict], outcomes: list[Outcome]
    ) -> list[Finished]:
        self._settings.require_all()
        revisits = self._policies.revisits
        if revisits is not None and revisits.wants_count:
            await self._count_pages(revisits)
        try:
            finished = await self._verdicts.submit(verdicts)
        finally:
            self._claimer.lease_ended(leases)  # also if cancelled: the batch is applied
        for number, answer in enumerate(finished):
            for added in answer.answers:
                if not added.added:
                    self._adder.refused[added.reason or ""] += 1
            self.retried += answer.state is PENDING and _went_wrong(verdicts[number])
        if self._predictions.has_open:
            await self._predictions.settle(leases, verdicts, finished)
        self._rewards.learn(leases, outcomes, finished)  # F10
        self._progress.finished()
        if self._context.reporter.has_listeners:
            await self._context.reporter.finished(leases, verdicts, finished)
        return finished

    async def _count_pages(self, revisits: Revisits) -> None:
        """Count the pages that are visited again (G3); the same for all workers."""
        view = await self._context.store.crawl(self._context.crawl)
        counts = view.types.get(REFRESH, {})
        revisits.set_page_count(counts.get("pending", 0) + counts.get("leased", 0))


def _went_wrong(verdict: Verdict) -> bool:
    """Whether a visit failed its task or did not reach its host; a throttle may be no failure."""
    return verdict.failed > 0 or verdict.outcome == "unreachable"
