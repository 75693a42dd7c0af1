"""Outcomes in: what happened becomes a verdict, and is applied with the links found (H6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from outrider.core.decide import REFRESH, decide, outcome_error
from outrider.core.outcome import Done, Outcome
from outrider.core.task import Added, Lease, Link, Task
from outrider.core.url import Url
from outrider.core.verdict import Finished, Verdict
from outrider.errors import InvalidInput
from outrider.frontier.lending import Lending
from outrider.frontier.revisits import Revisits
from outrider.frontier.signalling import Signalling

SHARED_AFTER: Final = 50  # rewards; an executor shares them every second besides

Visit: TypeAlias = "tuple[Lease, Outcome] | tuple[Lease, Outcome, Iterable[str | Url | Link]]"


class Finishing(Signalling, Lending):
    """How visits end."""

    async def finish(
        self, lease: Lease, outcome: Outcome, links: Iterable[str | Url | Link] = ()
    ) -> bool:
        """Say what happened, with the links found, in one atomic step.

        True, or False if the lease was lost: then nothing changed.
        """
        self._raise_first([self._fault((lease, outcome, links))], answers=False)
        verdict = await self._verdict(lease, outcome, links)
        finished = await self._submit([lease], [verdict], [outcome])
        return finished[0].applied

    async def finish_many(self, visits: Iterable[Visit]) -> list[bool]:
        """Several at once; an answer each, in order. A bad one is refused, the rest applied."""
        faults: list[InvalidInput | None] = []
        leases: list[Lease] = []
        verdicts: list[Verdict] = []
        outcomes: list[Outcome] = []
        knows_roots = False  # asked once a batch: a store may be far away
        for visit in visits:
            fault = self._fault(visit)
            faults.append(fault)
            if fault is None:
                leases.append(visit[0])
                outcomes.append(visit[1])
                if len(visit) == 2:
                    verdicts.append(decide(*visit, self._policy, self._dice()))
                else:
                    verdicts.append(await self._verdict(*visit, knows_roots=knows_roots))
                    knows_roots = knows_roots or bool(visit[2])
        rest = iter(await self._submit(leases, verdicts, outcomes) if verdicts else ())
        answers = [fault is None and next(rest).applied for fault in faults]
        self._raise_first(faults, answers)
        return answers

    def _fault(self, visit: Visit) -> InvalidInput | None:
        if not isinstance(visit, tuple | list) or len(visit) not in (2, 3):
            return InvalidInput(
                f"a visit is (lease, outcome) or (lease, outcome, links): {visit!r}"
            )
        foreign = self._foreign(visit[0])
        if foreign is not None:
            return foreign
        if len(visit) == 3 and type(visit[2]) is not list and not isinstance(visit[2], Iterable):
            return InvalidInput(f"links = {visit[2]!r}: a list of URLs or Links")
        fault = outcome_error(visit[1])
        return None if fault is None else InvalidInput(fault)

    async def _verdict(
        self,
        lease: Lease,
        outcome: Outcome,
        links: Iterable[str | Url | Link] = (),
        *,
        knows_roots: bool = False,
    ) -> Verdict:
        verdict = decide(lease, outcome, self._policy, self._dice())
        found = [links] if isinstance(links, str | Link | Url) else list(links)
        if not found:
            return verdict
        admitted, _ = await self._admit(found, lease, knows_roots=knows_roots)
        tasks = [one for one in admitted if isinstance(one, Task)]
        if len(tasks) < len(admitted):
            await self._note_refused([one for one in admitted if isinstance(one, Added)])
        # Nobody else has seen it yet; a copy of all its fields would cost a tenth of the finish.
        msgspec.structs.force_setattr(verdict, "tasks", tasks)
        return verdict

    async def _note_refused(self, refused: list[Added]) -> None:
        self._refused.update([answer.reason or "" for answer in refused])
        await self._teller.added(refused)

    async def _submit(
        self, leases: list[Lease], verdicts: list[Verdict], outcomes: list[Outcome]
    ) -> list[Finished]:
        self._require_settings()
        if self._revisits is not None and self._revisits.wants_count:
            await self._count_pages(self._revisits)
        try:
            finished = await self._finishes.submit(verdicts)
        finally:
            self._let_go(leases)  # cancelled or not: it is applied whole
        for answer in finished:
            for added in answer.answers:
                if not added.added:
                    self._refused[added.reason or ""] += 1
        if self._heard.signals.gaps:
            await self._judge_predictions(leases, verdicts, finished)
        self._reward(leases, outcomes, finished)
        if self._events.is_heard:
            await self._teller.finished(leases, verdicts, finished)
        return finished

    def _reward(
        self, leases: list[Lease], outcomes: list[Outcome], finished: list[Finished]
    ) -> None:
        """F10: a learner hears what visits were worth."""
        learn = getattr(self._scorer.inner, "reward", None)
        if learn is None:
            return
        for lease, outcome, answer in zip(leases, outcomes, finished, strict=True):
            if (
                answer.state is not None
                and isinstance(outcome, Done)
                and outcome.reward is not None
            ):
                learn(lease, outcome.reward)
                self._heard.unshared += 1
        if self._heard.unshared >= SHARED_AFTER:
            self._heard.unshared = 0
            self._behind(self._share_rewards())

    async def _count_pages(self, revisits: Revisits) -> None:
        """G3: so many pages come again; all workers are told the same."""
        counts = (await self.store.crawl(self.crawl)).types.get(REFRESH, {})
        revisits.count(counts.get("pending", 0) + counts.get("leased", 0))
