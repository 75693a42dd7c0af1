"""A page is finished where it was lent; its links for other shards are added before that (H6).

A crash between the two loses nothing: the page is visited again, and its links are known (those
that gather do so twice). A lease that is lost between the two has added them all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.store.shards.lending import Lending
from outrider.store.shards.shard import parted

# Seconds a lease lasts on while its page's links are added elsewhere. Whoever is killed meanwhile
# keeps its hosts that long; whoever takes longer visits the page once more.
KEPT_FOR: Final = 15.0


class Ending(msgspec.Struct):
    """One verdict, on its way to its shard."""

    lease: LeaseId
    shard: int
    verdict: Verdict  # in the shard's own numbers, and with its own links alone
    links: Sequence[Task]  # all of them, in order
    is_away: list[bool]  # which are added apart
    added: Sequence[Added] = ()  # the answers of those

    @property
    def away(self) -> list[Task]:
        """The links that are added apart."""
        return [link for link, gone in zip(self.links, self.is_away, strict=True) if gone]

    def answered(self, finished: Finished) -> Finished:
        """The shard's answer, with those of all links in order."""
        if finished.state is None or not self.added:
            return finished
        answers = (iter(finished.answers), iter(self.added))
        return msgspec.structs.replace(
            finished, answers=[next(answers[gone]) for gone in self.is_away]
        )


class Finishing(Lending):
    """How visits end."""

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """See `protocol.Store`."""
        away = await self._away(verdicts)
        endings = [_ending(verdict, away) for verdict in verdicts]
        await self._add_away(endings)
        answers = await self._finish_here(endings)
        for crawl in {verdict.crawl for verdict in verdicts}:
            if (await self._limits(crawl)).is_limited:
                await self._standing(crawl)
        return answers

    async def _finish_here(self, endings: Sequence[Ending]) -> list[Finished]:
        """Each on its shard, in order there; a number that is no shard's is nobody's lease."""
        parts: dict[int, list[Ending]] = {}
        for ending in endings:
            if 0 <= ending.shard < len(self._shards):
                parts.setdefault(ending.shard, []).append(ending)
        answers = await self._all(
            self._shards[number].finish([ending.verdict for ending in part])
            for number, part in parts.items()
        )
        by_shard = {number: iter(part) for number, part in zip(parts, answers, strict=True)}
        return [
            ending.answered(next(by_shard[ending.shard]))
            if ending.shard in by_shard
            else Finished(applied=False)
            for ending in endings
        ]

    async def _away(self, verdicts: Sequence[Verdict]) -> set[bytes]:
        """Which links are added apart: those of another shard, and their likes on other pages."""
        return {
            link.fingerprint
            for verdict in verdicts
            for link in verdict.tasks
            if self._shard_of(link.key) != parted(verdict.task)[0]
            or await self._counts_pending(verdict.crawl)
        }

    async def _counts_pending(self, crawl: str) -> bool:
        """B4: whether links must be counted by one who sees all shards."""
        return bool(self._others and (await self._limits(crawl)).max_pending)

    async def _add_away(self, endings: Sequence[Ending]) -> None:
        """Once for each lease still held; that it is, is asked by keeping it a while."""
        firsts = {ending.lease: ending for ending in reversed(endings)}
        wanted = [e for e in endings if any(e.is_away) and firsts[e.lease] is e]
        if not wanted:
            return
        kept = await self.extend([ending.lease for ending in wanted], lease_for=KEPT_FOR)
        held = [ending for ending in wanted if ending.lease in kept]
        answers = iter(await self.add([link for ending in held for link in ending.away]))
        for ending in held:
            ending.added = [next(answers) for gone in ending.is_away if gone]


def _ending(verdict: Verdict, away: set[bytes]) -> Ending:
    shard, local = parted(verdict.task)
    is_away = [link.fingerprint in away for link in verdict.tasks]
    here = [link for link, gone in zip(verdict.tasks, is_away, strict=True) if not gone]
    own = msgspec.structs.replace(verdict, task=local, tasks=here)
    lease = LeaseId(verdict.crawl, verdict.task, verdict.token)
    return Ending(lease, shard, own, verdict.tasks, is_away)
