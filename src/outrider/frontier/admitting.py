"""Links in: settings applied, links admitted with every worker's seeds known, tasks stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from outrider.core.act import Set
from outrider.core.task import Added, Lease, Link, Task
from outrider.core.url import Url, parse_url
from outrider.errors import InvalidInput
from outrider.frontier.operating import Operator
from outrider.frontier.reading import Reader
from outrider.frontier.reports import AddReport, ScoringReport
from outrider.settings import Settings, crawl_rules, merged, to_text

NO_SCORING: Final = ScoringReport()
CHUNK: Final = 1000  # links admitted and stored at a time, so that no call holds the loop

_ATTACHED: Final = (
    "configure(): this frontier was attached, and the crawl keeps its settings; "
    "use Frontier.open(..., settings=...)"
)

Links: TypeAlias = Iterable["str | Url | Link"] | AsyncIterable["str | Url | Link"]
T = TypeVar("T")


class Admitting(Operator, Reader):
    """How links become tasks."""

    async def configure(self, changes: Mapping[str, Any]) -> Settings:
        """Change settings of the running crawl: validated whole, acting at once (E5)."""
        _ = self.store
        if self._is_attached:
            raise InvalidInput(_ATTACHED)
        bypassed, settings = self._admission.bypassed, merged(self._settings, changes)
        if settings.events != self._settings.events:
            self._write_events(settings.events.jsonl)
        self._use(settings)
        self._admission.bypassed = bypassed
        await self._apply_rules()
        self._teller.tell("config", changes=sorted(changes))
        return self._settings

    async def _apply_rules(self) -> None:
        rules, text = crawl_rules(self._settings), to_text(self._settings)
        if await self.store.configure(self.crawl, rules, text):
            await self.steer("", Set({}))
        if self._admission.root is not None:
            await self._learn_roots()

    async def _learn_roots(self) -> None:
        """A5: a scope that is bound to the seeds from now on asks which they were."""
        mode, admission = self._settings.scope.mode, self._admission
        if not await self.store.roots(self.crawl, mode):
            admission.roots |= {root async for root in self._roots_of_seeds()}
        await self._share_roots()

    async def _roots_of_seeds(self) -> AsyncIterator[str]:
        async for task in self.tasks():
            url = parse_url(task.url, self._settings.url)
            if not task.depth and task.via is None and isinstance(url, Url):
                yield self._settings.scope.root(url)

    async def _share_roots(self) -> None:
        """What this worker's seeds contribute is every worker's, and theirs is ours."""
        mode, roots = self._settings.scope.mode, self._admission.roots
        if len(roots) > self._roots_seen:
            await self.store.add_roots(self.crawl, mode, sorted(roots))
        fresh = await self.store.roots(self.crawl, mode, after=self._roots_seen)
        self._roots_seen += len(fresh)
        roots.update(fresh)

    async def _admit(
        self,
        links: Sequence[str | Url | Link],
        found_on: Lease | None = None,
        *,
        knows_roots: bool = False,
    ) -> tuple[list[Task | Added], ScoringReport]:
        """What the core says of links, with all workers' seeds known; and what scoring took."""
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
