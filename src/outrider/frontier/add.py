"""Adding links: admission, with the seeds of every worker known, then the store.

Scoring links is the same admission, on a copy of it, without the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from outrider.core.admission import Admission, fingerprint_of
from outrider.core.known_link import REFERRING, complete_link
from outrider.core.link_validation import (
    DEFAULT_MAX_META,
    MAX_META,
    encode_meta,
    link_error,
    rename_meta,
)
from outrider.core.policy.scope import BAD_LINK
from outrider.core.policy.score import breakdown_of
from outrider.core.task import LANES, Added, Lease, Link, Task
from outrider.core.url import Refusal, Url, parse_url
from outrider.errors import InvalidInput
from outrider.frontier.context import ClosedSource, FrontierContext
from outrider.frontier.live_settings import LiveSettings
from outrider.frontier.policies import TimedScorer
from outrider.frontier.reports import AddReport, Scored, ScoreReport, ScoringReport
from outrider.frontier.rescore import Rescorer
from outrider.frontier.store_calls import Batcher, items_of
from outrider.logs import logger_of
from outrider.store.byte_limits import MAX_CALL_BYTES, task_bytes, tasks_bytes
from outrider.store.protocol import FullStore, TaskFilter

NO_SCORING: Final = ScoringReport()
CHUNK: Final = 1000  # links admitted and stored at a time, so that no call blocks the loop for long
MAX_WARNINGS: Final = 10  # about links of pages, by one frontier
CONCURRENT_READS: Final = 32  # known tasks read at a time

AnyLink: TypeAlias = str | Url | Link
Links: TypeAlias = Iterable[AnyLink] | AsyncIterable[AnyLink]
T = TypeVar("T")
_SIZES: Final = (tasks_bytes, task_bytes)
_log = logger_of(__name__)


class ScopeRoots:
    """The seeds' roots that a scope is bound to, shared by all workers of the crawl (A5).

    The roots themselves are in the admission; counted here is how many of them the store has.
    """

    def __init__(self, context: FrontierContext) -> None:
        self._context = context
        self._admission = context.policies.admission  # the one that `_seen` counts for
        self._seen = 0

    @property
    def are_new(self) -> bool:
        """Whether this worker's seeds have roots that the store does not have."""
        return len(self._context.policies.admission.roots) > self._count_seen()

    def _count_seen(self) -> int:
        admission = self._context.policies.admission
        if admission is not self._admission:  # other settings: a new admission without roots
            self._admission, self._seen = admission, 0
        return self._seen

    async def learn(self) -> None:
        """Find the roots of earlier seeds, if the scope was not bound to them before."""
        context = self._context
        mode = context.policies.settings.scope.mode
        admission = context.policies.admission
        if not await context.store.roots(context.crawl, mode):
            admission.roots |= {root async for root in self._roots_of_seeds()}
        await self.share()

    async def _roots_of_seeds(self) -> AsyncIterator[str]:
        context = self._context
        async for task in items_of(
            lambda after: context.store.tasks(context.crawl, TaskFilter(), after=after)
        ):
            settings = context.policies.settings
            url = parse_url(task.url, settings.url)
            if not task.depth and task.via is None and isinstance(url, Url):
                yield settings.scope.root(url)

    async def share(self) -> None:
        """Write this worker's roots to the store, and read those of the others."""
        context = self._context
        mode, roots = context.policies.settings.scope.mode, context.policies.admission.roots
        if len(roots) > self._count_seen():
            await context.store.add_roots(context.crawl, mode, sorted(roots))
        await self.read()

    async def read(self) -> None:
        """Read the roots of other workers."""
        context = self._context
        mode, roots = context.policies.settings.scope.mode, context.policies.admission.roots
        fresh = await context.store.roots(context.crawl, mode, after=self._count_seen())
        self._seen += len(fresh)
        roots.update(fresh)


class Adder:
    """Admits links and adds the tasks made from them; counts refusals by reason."""

    def __init__(
        self,
        context: FrontierContext,
        settings: LiveSettings,
        roots: ScopeRoots,
        rescorer: Rescorer,
    ) -> None:
        self.refused: Counter[str] = Counter()
        self._warned: set[str] = set()  # details of refusals that were logged
        self._context = context
        self._settings = settings
        self._roots = roots
        self._rescorer = rescorer
        self._tasks: Batcher[Task, Added] = Batcher(ClosedSource().add, _SIZES, is_inline=True)

    def use(self, store: FullStore) -> None:
        """Add to this store from now on."""
        self._tasks = Batcher(
            self._context.timed("add", store.add), _SIZES, is_inline=store.is_inline
        )

    async def drain(self) -> None:
        """Wait until all tasks handed in are stored."""
        await self._tasks.drain()

    async def add(self, links: Links | str | Link, *, answers: bool = True) -> AddReport:
        """See `Frontier.add`."""
        _ = self._context.store  # raises if the frontier is not open
        links = _several(links, "add")
        if isinstance(links, list | tuple):
            if len(links) <= CHUNK and not self._has_long_meta:
                return await self._add_chunk(links, answers=answers)
            work = self._add_chunks(links, answers=answers)
            return await asyncio.shield(self._context.background.spawn(work))
        return await self._add_chunks(links, answers=answers)

    @property
    def _has_long_meta(self) -> bool:
        """Whether a chunk of links may have far more bytes than by default."""
        return self._context.policies.settings.queue.max_meta > DEFAULT_MAX_META

    async def _add_chunks(self, links: Links, *, answers: bool) -> AddReport:
        chunks = _chunks(links, _meta_bytes if self._has_long_meta else None)
        reports = [await self._add_chunk(chunk, answers=answers) async for chunk in chunks]
        return _merge(reports)

    async def _add_chunk(self, links: Sequence[AnyLink], *, answers: bool) -> AddReport:
        admitted, scoring = await self.admit(links)
        tasks = [one for one in admitted if isinstance(one, Task)]
        stored = await self._tasks.submit(tasks) if tasks else []
        every = stored
        if len(tasks) < len(admitted):
            rest = iter(stored)
            every = [one if isinstance(one, Added) else next(rest) for one in admitted]
        refused = Counter([answer.reason or "" for answer in every if not answer.added])
        self.refused.update(refused)
        if self._context.reporter.has_listeners:
            await self._context.reporter.added(every, admitted)
        kept = tuple(every) if answers else ()
        return AddReport(len(every) - refused.total(), dict(refused), kept, scoring)

    async def admit(
        self,
        links: Sequence[AnyLink],
        found_on: Lease | None = None,
        *,
        has_roots: bool = False,
    ) -> tuple[list[Task | Added], ScoringReport]:
        """Return a task or a refusal for each link, and what scoring took.

        The roots of all workers' seeds are read first, unless the caller just did (`has_roots`).
        """
        if self._settings.is_listen_due:
            await self._settings.listen()
        self._refresh()
        policies, roots = self._context.policies, self._roots
        is_bound = policies.admission.root is not None
        if is_bound and not has_roots:
            await roots.share()
        if _has_referring(links):
            links = await self._complete_all(links)
        scorer = policies.scorer
        scorer.begin()
        admitted = policies.admission.admit(links, are_seeds=found_on is None, found_on=found_on)
        report = scorer.report() if found_on is None else NO_SCORING
        if is_bound and roots.are_new:
            await roots.share()
        return admitted, report

    def _refresh(self) -> None:
        """Forget problems that are over; raise if a setting is missing in this process."""
        self._rescorer.expire_signals()
        self._settings.require_all()

    async def score(self, links: Links | str | Link, *, known: bool) -> ScoreReport:
        """See `Frontier.score` (F9)."""
        _ = self._context.store  # raises if the frontier is not open
        links = _several(links, "score")
        if self._settings.is_listen_due:
            await self._settings.listen()
        self._refresh()
        if self._context.policies.admission.root is not None:
            await self._roots.read()
        scorer = self._context.policies.scorer.copy()
        admission = _copy(self._context.policies.admission, scorer)
        answers: list[Scored] = []
        async for chunk in _chunks(links):
            whole = await self._complete_all(chunk) if _has_referring(chunk) else chunk
            scored = [_scored(one) for one in admission.admit(whole)]
            answers += await self._look_up(scored) if known else scored
            await asyncio.sleep(0)
        refused = Counter([one.reason for one in answers if one.reason is not None])
        return ScoreReport(tuple(answers), dict(refused), scorer.report())

    async def _look_up(self, scored: list[Scored]) -> list[Scored]:
        """Say of the links that are not refused whether their URLs are known (B3)."""
        context = self._context

        async def look_up(one: Scored) -> Scored:
            if one.fingerprint is None:
                return one
            task = await context.store.task(context.crawl, one.fingerprint)
            return one if task is None else msgspec.structs.replace(one, known=task.state)

        parts = [
            scored[start : start + CONCURRENT_READS]
            for start in range(0, len(scored), CONCURRENT_READS)
        ]
        found = [await asyncio.gather(*map(look_up, part)) for part in parts]
        return [one for part in found for one in part]

    async def refusal_of(self, link: AnyLink, found_on: Lease) -> str | None:
        """See `Frontier.refusal_of`."""
        ((one,), _) = await self.admit([link], found_on)
        if not isinstance(one, Added):
            return None
        self._warn(one)
        return one.reason

    async def count_refused(self, refused: Sequence[Added]) -> None:
        """Count and report links of a page that were refused."""
        reasons = Counter([answer.reason or "" for answer in refused])
        self.refused.update(reasons)
        if BAD_LINK in reasons:
            for answer in refused:
                self._warn(answer)
        await self._context.reporter.added(refused)

    def _warn(self, refused: Added) -> None:
        """Log why a link of a page is a bad one: no answer of `finish` has it."""
        detail = refused.detail
        if refused.reason != BAD_LINK or detail is None or detail in self._warned:
            return
        if len(self._warned) < MAX_WARNINGS:
            self._warned.add(detail)
            _log.warning("link of a page refused as bad-link: %.200s: %s", refused.url, detail)

    async def _complete_all(self, links: Sequence[AnyLink]) -> list[AnyLink]:
        """Fill in what links that revisit or raise a task leave out from that task (B3)."""
        every = list(links)
        places = [
            place
            for place, one in enumerate(every)
            if isinstance(one, Link) and one.known in REFERRING and link_error(one) is None
        ]
        for start in range(0, len(places), CONCURRENT_READS):
            part = places[start : start + CONCURRENT_READS]
            found = await asyncio.gather(*(self._complete(every[place]) for place in part))
            for place, link in zip(part, found, strict=True):
                every[place] = link
        return every

    async def _complete(self, given: Any) -> Link:
        renamed = rename_meta(given)  # what it says in meta comes before what the task says
        link = given if isinstance(renamed, str) else renamed
        policies = self._context.policies
        rules = policies.settings.url
        url = link.url if isinstance(link.url, Url) else parse_url(link.url, rules)
        if isinstance(url, Refusal):
            return cast("Link", link)
        mark = fingerprint_of(link, url)
        task = await self._context.store.task(self._context.crawl, mark)
        if task is None:
            return cast("Link", link)
        key = policies.admission.key
        return complete_link(link, task, url=url, key=key, keeps_text=rules.keep_text)


def _several(links: Links | str | Link, verb: str) -> Links:
    """Return links as an iterable; raise InvalidInput if they are none."""
    if isinstance(links, str | Link | Url):
        return [links]
    if not isinstance(links, Iterable | AsyncIterable):
        raise InvalidInput(
            f"{verb}({links!r:.60}): give URLs or Links, in an iterable or async iterable"
        )
    return links


def _copy(admission: Admission, scorer: TimedScorer) -> Admission:
    """Copy an admission, so that what it decides leaves no trace: seeds, counts and dice."""
    return msgspec.structs.replace(admission, scorer=scorer, roots=set(admission.roots), roll=None)


def _scored(answer: Task | Added) -> Scored:
    if isinstance(answer, Added):
        return Scored(answer.url, answer.reason, answer.detail)
    return Scored(
        answer.url,
        None,
        None,
        answer.priority,
        breakdown_of(answer),
        answer.precedence,
        answer.cost,
        LANES[answer.lane],
        answer.type,
        answer.key,
        answer.depth,
        answer.origin,
        answer.delay,
        answer.fingerprint,
    )


def _has_referring(links: Sequence[AnyLink]) -> bool:
    """Tell whether a link is about a known task; a plain loop, since it runs for every add."""
    for one in links:
        if type(one) is Link and one.known != "keep" and one.known in REFERRING:
            return True
    return False


def _merge(reports: list[AddReport]) -> AddReport:
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


async def _chunks(
    links: Iterable[T] | AsyncIterable[T], size_of: Callable[[T], int] | None = None
) -> AsyncIterator[list[T]]:
    """Yield the links in chunks; `size_of` bounds these in bytes, too."""
    if size_of is None and not isinstance(links, AsyncIterable):
        iterator = iter(links)
        while chunk := list(islice(iterator, CHUNK)):
            yield chunk
        return
    chunk, size = [], 0
    async for link in _each(links):
        chunk.append(link)
        size += 0 if size_of is None else size_of(link)
        if len(chunk) == CHUNK or size >= MAX_CALL_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


async def _each(links: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(links, AsyncIterable):
        async for link in links:
            yield link
    else:
        for link in links:
            yield link


def _meta_bytes(link: AnyLink) -> int:
    meta = encode_meta(link.meta, MAX_META) if type(link) is Link and link.meta else b""
    return len(meta) if isinstance(meta, bytes) else 0
