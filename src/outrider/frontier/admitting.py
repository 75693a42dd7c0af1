"""Links in: admitted with every worker's seeds known, tasks stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar, cast

from outrider.core.known_link import REFERRING, complete_link
from outrider.core.link_validation import link_error
from outrider.core.task import Added, Lease, Link, Task
from outrider.core.url import Refusal, Url, fingerprint, parse_url
from outrider.errors import InvalidInput
from outrider.frontier.configuring import Configuring
from outrider.frontier.reports import AddReport, ScoringReport

NO_SCORING: Final = ScoringReport()
CHUNK: Final = 1000  # links admitted and stored at a time, so that no call holds the loop
AT_ONCE: Final = 32  # known tasks looked up at a time

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
        if _has_referring(links):
            links = await self._completed(links)
        self._scorer.begin()
        admitted = self._admission.admit(links, are_seeds=found_on is None, found_on=found_on)
        report = self._scorer.report() if found_on is None else NO_SCORING
        if is_bound and len(self._admission.roots) > self._roots_seen:
            await self._share_roots()
        return admitted, report

    async def _completed(self, links: Sequence[str | Url | Link]) -> list[str | Url | Link]:
        """B3: what a link leaves out of a task that it revisits or raises stays as it is."""
        every = list(links)
        places = [
            place
            for place, one in enumerate(every)
            if isinstance(one, Link) and one.known in REFERRING and link_error(one) is None
        ]
        for start in range(0, len(places), AT_ONCE):
            part = places[start : start + AT_ONCE]
            found = await asyncio.gather(*(self._complete(every[place]) for place in part))
            for place, link in zip(part, found, strict=True):
                every[place] = link
        return every

    async def _complete(self, link: Any) -> Link:
        url = link.url if isinstance(link.url, Url) else parse_url(link.url, self._settings.url)
        if isinstance(url, Refusal):
            return cast("Link", link)
        task = await self.store.task(self.crawl, fingerprint(link.identity or url.identity))
        return cast("Link", link) if task is None else complete_link(link, task)

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


def _has_referring(links: Sequence[str | Url | Link]) -> bool:
    """Whether a link is about a known task; a plain loop, since it is run for every add."""
    for one in links:
        if type(one) is Link and one.known != "keep" and one.known in REFERRING:
            return True
    return False


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
