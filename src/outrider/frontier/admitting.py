"""Links in: admitted with every worker's seeds known, tasks stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from outrider.core.task import Added, Lease, Link, Task
from outrider.core.url import Url
from outrider.errors import InvalidInput
from outrider.frontier.configuring import Configuring
from outrider.frontier.reports import AddReport, ScoringReport

NO_SCORING: Final = ScoringReport()
CHUNK: Final = 1000  # links admitted and stored at a time, so that no call holds the loop

Links: TypeAlias = Iterable["str | Url | Link"] | AsyncIterable["str | Url | Link"]
T = TypeVar("T")


class Admitting(Configuring):
    """How links become tasks."""

    async def _admit(
        self,
        links: Sequence[str | Url | Link],
        found_on: Lease | None = None,
        *,
        knows_roots: bool = False,
    ) -> tuple[list[Task | Added], ScoringReport]:
        """What the core says of links, with all workers' seeds known; and what scoring took."""
        if self._is_news_due:
            await self.listen()
        self._slide()
        self._require_settings()
        is_bound = self._admission.root is not None
        if is_bound and not knows_roots:
            await self._share_roots()
        self._scorer.begin()
        admitted = self._admission.admit(links, are_seeds=found_on is None, found_on=found_on)
        report = self._scorer.report() if found_on is None else NO_SCORING
        if is_bound and len(self._admission.roots) > self._roots_seen:
            await self._share_roots()
        return admitted, report

    async def refusal_of(self, link: str | Url | Link, found_on: Lease) -> str | None:
        """Why a link found on a visit would be refused; None: it is admissible, known or not."""
        ((one,), _) = await self._admit([link], found_on)
        return one.reason if isinstance(one, Added) else None

    async def add(self, links: Links | str | Link, *, answers: bool = True) -> AddReport:
        """Admit links in order; one bad link never spoils the others.

        Lists are applied whole even if the caller is cancelled; other iterables chunk by chunk.
        `answers=False` keeps only the counts, for millions.
        """
        _ = self.store
        if isinstance(links, str | Link | Url):
            links = [links]
        if isinstance(links, list | tuple):
            if len(links) <= CHUNK:
                return await self._add_chunk(links, answers=answers)
            return await asyncio.shield(self._spawn(self._add_all(links, answers=answers)))
        if not isinstance(links, Iterable | AsyncIterable):
            raise InvalidInput(f"add({links!r}): URLs or Links, in anything to iterate over")
        return await self._add_all(links, answers=answers)

    async def _add_all(self, links: Links, *, answers: bool) -> AddReport:
        reports = [await self._add_chunk(chunk, answers=answers) async for chunk in _chunked(links)]
        return _merged(reports)

    async def _add_chunk(self, links: Sequence[str | Url | Link], *, answers: bool) -> AddReport:
        admitted, scoring = await self._admit(links)
        tasks = [one for one in admitted if isinstance(one, Task)]
        stored = iter(await self._adds.submit(tasks) if tasks else ())
        every = [one if isinstance(one, Added) else next(stored) for one in admitted]
        self._stirred.set()
        refused = Counter([answer.reason or "" for answer in every if not answer.added])
        self._refused.update(refused)
        if self._events.is_heard:
            await self._teller.added(every)
        kept = tuple(every) if answers else ()
        return AddReport(len(every) - refused.total(), dict(refused), kept, scoring)


def _merged(reports: list[AddReport]) -> AddReport:
    refused: Counter[str] = Counter()
    for report in reports:
        refused.update(report.refused)
    return AddReport(
        sum(report.added for report in reports),
        dict(refused),
        tuple(answer for report in reports for answer in report.answers),
        ScoringReport(
            sum(report.scoring.count for report in reports),
            sum(report.scoring.seconds for report in reports),
            reports[0].scoring.features if reports else (),
        ),
    )


async def _chunked(links: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[list[T]]:
    if not isinstance(links, AsyncIterable):
        iterator = iter(links)
        while chunk := list(islice(iterator, CHUNK)):
            yield chunk
        return
    chunk = []
    async for link in links:
        chunk.append(link)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
