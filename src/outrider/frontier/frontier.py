"""The object users hold: add, claim, finish, and everything to see and steer a crawl.

It parses at the edge, asks the core to decide and the store to apply, and only waits itself.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections import Counter
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

import msgspec

from outrider.clock import Clock, SystemClock
from outrider.core.act import Set
from outrider.core.decide import decide, fault_of
from outrider.core.outcome import Outcome
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, Lease, LeaseId, Link, Task
from outrider.core.url import Url, parse_url
from outrider.core.verdict import Finished, Verdict
from outrider.errors import Closed, ForeignLease, InvalidInput
from outrider.events import Event, EventBus, JsonlSink, Listener
from outrider.frontier import policies
from outrider.frontier.batching import Batcher
from outrider.frontier.operating import Operator
from outrider.frontier.reading import Reader
from outrider.frontier.reports import AddReport, Claim, ScoringReport
from outrider.frontier.steering import QueueHandle
from outrider.frontier.telling import Teller
from outrider.settings import Settings, crawl_rules, merged, settings_of
from outrider.store.opening import open_store
from outrider.store.protocol import Claimed, ClaimRequest, FullStore

if TYPE_CHECKING:
    from types import TracebackType

CHUNK: Final = 1000  # links admitted and stored at a time, so that no call holds the loop
POLL: Final = 1.0  # seconds after which a waiting claim looks again: others may share the store
_MAX_LIMIT: Final = 100_000

Links: TypeAlias = Iterable["str | Url | Link"] | AsyncIterable["str | Url | Link"]
Visit: TypeAlias = "tuple[Lease, Outcome] | tuple[Lease, Outcome, Iterable[str | Url | Link]]"
T = TypeVar("T")


class Frontier(Operator, Reader):
    """Decides which URL is visited next; opened with `async with Frontier.open(...)`."""

    def __init__(
        self,
        store: str | os.PathLike[str] | FullStore,
        *,
        settings: Settings,
        crawl: str,
        clock: Clock,
        worker: str,
        dice: Callable[[], float],
    ) -> None:
        self.crawl = crawl
        self.worker = worker
        self._source = store
        self._clock = clock
        self._dice = dice
        self._store: FullStore | None = None
        self._events = EventBus(crawl)
        self._teller = Teller(self._events, clock, crawl)
        self._jsonl: JsonlSink | None = None
        self._stirred = asyncio.Event()  # work may have come
        self._freed = asyncio.Event()  # a lease was given back
        self._streak = ClaimRequest(crawl, worker, 1).streak
        self._refused: Counter[str] = Counter()
        self._held: dict[LeaseId, int] = {}
        self._unseen: list[Claim] = []  # what `leases` claimed and has not handed out
        self._background: set[asyncio.Task[Any]] = set()
        self._use(settings)

    @classmethod
    def open(
        cls,
        store: str | os.PathLike[str] | FullStore = "memory://",
        *,
        settings: Settings | Mapping[str, Any] | None = None,
        crawl: str = "default",
        clock: Clock | None = None,
        worker: str | None = None,
        dice: Callable[[], float] = random.random,
    ) -> Frontier:
        """A frontier over a store: enter it with `async with`, or `await` it and `close` it.

        `store` is a URL, or an open store that several frontiers share (one per crawl or worker).
        """
        if not isinstance(crawl, str) or not 0 < len(crawl) <= 255 or not crawl.isprintable():
            raise InvalidInput(f"crawl = {crawl!r} must be printable text, 1 to 255 long")
        return cls(
            store,
            settings=settings_of(settings),
            crawl=crawl,
            clock=clock or SystemClock(),
            worker=worker or f"worker-{uuid.uuid4().hex[:12]}",
            dice=dice,
        )

    def __repr__(self) -> str:
        state = "open" if self._store else "closed"
        return f"<Frontier crawl={self.crawl!r} worker={self.worker!r} {state}>"

    # ---- opening and closing

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Frontier]:
        """`frontier = await Frontier.open(...)`; then close it yourself."""
        return self.__aenter__().__await__()

    async def _open(self) -> None:
        if self._store is not None:
            return
        source = self._source
        if isinstance(source, str | os.PathLike):
            store = await open_store(os.fspath(source), self._clock)
        else:
            store = source
        self._store = self._teller.store = store
        self._adds: Batcher[Task, Added] = Batcher(store.add, is_inline=store.is_inline)
        self._finishes: Batcher[Verdict, Finished] = Batcher(
            store.finish, is_inline=store.is_inline
        )
        if self.settings.events.jsonl:
            self._jsonl = JsonlSink(self.settings.events.jsonl)
            self._teller.listen()
            self._events.subscribe(self._jsonl)
        await self._apply_rules()

    async def close(self) -> None:
        """Apply what was handed in, then let go of the store (if this frontier opened it)."""
        if self._store is None:
            return
        for claim in self._unseen:
            await self.release(claim)
            claim.clear()
        while self._background:
            await asyncio.wait(self._background)
        await self._adds.drain()
        await self._finishes.drain()
        store, self._store = self._store, None
        if isinstance(self._source, str | os.PathLike):
            await store.close()
        if self._jsonl is not None:
            self._jsonl.close()
            self._events.unsubscribe(self._jsonl)

    @property
    def store(self) -> FullStore:
        """The store underneath, for those who read more than the frontier shows."""
        if self._store is None:
            raise Closed("this frontier is not open: use `async with Frontier.open(...)`")
        return self._store

    @property
    def clock(self) -> Clock:
        """What the frontier waits on."""
        return self._clock

    # ---- settings

    @property
    def settings(self) -> Settings:
        """What holds now, all layers merged but those set by key at run time."""
        return self._settings

    def _use(self, settings: Settings) -> None:
        scorer = policies.scorer_for(settings)
        admission = policies.admission_for(settings, self.crawl, scorer, self._dice)
        if hasattr(self, "_admission"):
            admission.bypassed = self._admission.bypassed
        self._roots_seen = 0
        self._scorer, self._admission = scorer, admission
        self._policy = policies.policy_for(settings, admission)
        self._settings = settings

    async def configure(self, changes: Mapping[str, Any]) -> Settings:
        """Change settings of the running crawl: validated whole, acting at once (E5)."""
        _ = self.store
        self._use(merged(self._settings, changes))
        await self._apply_rules()
        self._teller.tell("config", changes=sorted(changes))
        return self._settings

    async def _apply_rules(self) -> None:
        if await self.store.configure(self.crawl, crawl_rules(self._settings)):
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
        self, links: Sequence[str | Url | Link], found_on: Lease | None = None
    ) -> tuple[list[Task | Added], ScoringReport]:
        """What the core says of links, with all workers' seeds known; and what scoring took."""
        is_bound = self._admission.root is not None
        if is_bound:
            await self._share_roots()
        self._scorer.take_report()
        admitted = self._admission.admit(links, are_seeds=found_on is None, found_on=found_on)
        report = self._scorer.take_report()
        if is_bound:
            await self._share_roots()
        return admitted, report

    # ---- add

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
        await self._teller.added(every)
        kept = tuple(every) if answers else ()
        return AddReport(len(every) - refused.total(), dict(refused), kept, scoring)

    # ---- claim

    async def claim(
        self, limit: int = 1, *, wait: float = 0.0, per_queue: int | None = None
    ) -> Claim:
        """Lease up to `limit` tasks, best first; with `wait`, ask again until something comes.

        A cancelled claim gives back what it took.
        """
        request = self._request(limit, per_queue)
        if not isinstance(wait, int | float) or not wait >= 0:
            raise InvalidInput(f"claim(wait={wait!r}): seconds ≥ 0")
        until = self._clock.now_ms() + (wait * 1000 if limit else 0)
        while True:
            self._stirred.clear()
            claim = await self._claim_once(request)
            left = (until - self._clock.now_ms()) / 1000
            if claim or left <= 0 or claim.status in (CrawlStatus.FINISHED, CrawlStatus.CANCELLED):
                return claim
            most = POLL if claim.wake_in is None else claim.wake_in
            await self._rest(min(left, most), self._stirred)

    def _request(self, limit: int, per_queue: int | None) -> ClaimRequest:
        if type(limit) is not int or not 0 <= limit <= _MAX_LIMIT:
            raise InvalidInput(f"claim({limit!r}): the limit is a whole number, 0 to {_MAX_LIMIT}")
        if per_queue is not None and (type(per_queue) is not int or per_queue < 1):
            raise InvalidInput(f"claim(per_queue={per_queue!r}): a whole number ≥ 1, or None")
        seconds = self._settings.lease.seconds
        return ClaimRequest(self.crawl, self.worker, limit, seconds, per_queue or 0)

    async def _claim_once(self, request: ClaimRequest) -> Claim:
        request = msgspec.structs.replace(request, streak=self._streak)
        store = self.store
        claimed = await (store.claim(request) if store.is_inline else self._shielded(request))
        self._streak = claimed.streak
        for lease in claimed.leases:
            msgspec.structs.force_setattr(lease, "holder", self)
        try:
            await self._teller.claimed(claimed.leases)
        except asyncio.CancelledError:
            self._release_later(claimed.leases)
            raise
        return Claim(claimed.leases, claimed.wake_in, claimed.status)

    async def _shielded(self, request: ClaimRequest) -> Claimed:
        call = self._spawn(self.store.claim(request))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            call.add_done_callback(self._give_back)
            raise

    def _give_back(self, call: asyncio.Future[Claimed]) -> None:
        """A cancelled claim: whoever asked is gone, so its leases are released unseen."""
        if not call.cancelled() and call.exception() is None:
            self._release_later(call.result().leases)

    def _release_later(self, leases: Sequence[Lease]) -> None:
        if leases and self._store is not None:
            _ = self._spawn(self._store.release([lease.id for lease in leases]))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start what goes on even if its caller leaves; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _rest(self, seconds: float, until: asyncio.Event) -> None:
        """Until somebody here brought what is waited for, or the time is over."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleep = asyncio.ensure_future(self._clock.sleep(min(seconds, POLL)))
        stir = asyncio.ensure_future(until.wait())
        try:
            await asyncio.wait({sleep, stir}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            stir.cancel()

    async def leases(self, limit: int = 64) -> AsyncIterator[Lease]:
        """Leases as they come, at most `limit` unfinished at a time; ends with the crawl."""
        if type(limit) is not int or limit < 1:
            raise InvalidInput(f"leases(limit={limit!r}): a whole number ≥ 1")
        while True:
            self._forget_overdue()
            if len(self._held) >= limit:
                self._freed.clear()
                await self._rest(POLL, self._freed)
                continue
            claim = await self.claim(limit - len(self._held), wait=POLL)
            if not claim and claim.status in (CrawlStatus.FINISHED, CrawlStatus.CANCELLED):
                return
            half = round(self._settings.lease.seconds * 500)
            stale = self._clock.now_ms() + half
            self._held.update((lease.id, stale + half) for lease in claim)
            self._unseen.append(claim)
            try:
                while claim:
                    lease = claim.pop(0)
                    # A slow reader lets leases grow old unseen: renew before handing one out.
                    if self._clock.now_ms() < stale or await self.extend([lease]):
                        yield lease
            finally:
                self._unseen.remove(claim)
                if claim:  # the reader left early: what it never saw goes back
                    await self.release(claim)

    def _forget_overdue(self) -> None:
        """A lease nobody finished in time is lost, and must not hold a place for ever."""
        now = self._clock.now_ms()
        self._held = {lease: until for lease, until in self._held.items() if until > now}

    def _let_go(self, leases: Iterable[Lease]) -> None:
        if self._held:
            for lease in leases:
                self._held.pop(lease.id, None)
        self._freed.set()
        self._stirred.set()

    # ---- finish, extend, release, expire

    async def finish(
        self, lease: Lease, outcome: Outcome, links: Iterable[str | Url | Link] = ()
    ) -> bool:
        """Say what happened, with the links found, in one atomic step.

        True, or False if the lease was lost: then nothing changed.
        """
        self._raise_first([self._fault((lease, outcome, links))], answers=False)
        verdict = await self._verdict(lease, outcome, links)
        finished = await self._submit([lease], [verdict])
        return finished[0].applied

    async def finish_many(self, visits: Iterable[Visit]) -> list[bool]:
        """Several at once; an answer each, in order. A bad one is refused, the rest applied."""
        faults: list[InvalidInput | None] = []
        leases: list[Lease] = []
        verdicts: list[Verdict] = []
        for visit in visits:
            fault = self._fault(visit)
            faults.append(fault)
            if fault is None:
                leases.append(visit[0])
                verdicts.append(await self._verdict(*visit))
        rest = iter(await self._submit(leases, verdicts) if verdicts else ())
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
        if len(visit) > 2 and not isinstance(visit[2], Iterable):
            return InvalidInput(f"links = {visit[2]!r}: a list of URLs or Links")
        fault = fault_of(visit[1])
        return None if fault is None else InvalidInput(fault)

    def _raise_first(self, faults: Sequence[InvalidInput | None], answers: object) -> None:
        for fault in faults:
            if isinstance(fault, ForeignLease):
                fault.answers = answers
            if fault is not None:
                raise fault

    def _foreign(self, lease: object) -> InvalidInput | None:
        if not isinstance(lease, Lease):
            return InvalidInput(f"a lease comes from claim(); {type(lease).__name__} is none")
        if lease.store == self.store.id and lease.about.crawl == self.crawl:
            return None
        place = "another store" if lease.store != self.store.id else f"crawl {lease.crawl!r}"
        return ForeignLease(
            f"the lease of {lease.url} (token {lease.token}) is of {place}, this frontier serves "
            f"crawl {self.crawl!r}; hand it to the frontier that claimed it"
        )

    async def _verdict(
        self, lease: Lease, outcome: Outcome, links: Iterable[str | Url | Link] = ()
    ) -> Verdict:
        verdict = decide(lease, outcome, self._policy, self._dice())
        found = [links] if isinstance(links, str | Link | Url) else list(links)
        if not found:
            return verdict
        admitted, _ = await self._admit(found, lease)
        await self._note_refused([one for one in admitted if isinstance(one, Added)])
        tasks = tuple(one for one in admitted if isinstance(one, Task))
        return msgspec.structs.replace(verdict, tasks=tasks)

    async def _note_refused(self, refused: list[Added]) -> None:
        if refused:
            self._refused.update([answer.reason or "" for answer in refused])
            await self._teller.added(refused)

    async def _submit(self, leases: list[Lease], verdicts: list[Verdict]) -> list[Finished]:
        try:
            finished = await self._finishes.submit(verdicts)
        finally:
            self._let_go(leases)  # cancelled or not: it is applied whole
        for answer in finished:
            for added in answer.answers:
                if not added.added:
                    self._refused[added.reason or ""] += 1
        await self._teller.finished(leases, verdicts, finished)
        return finished

    async def extend(self, leases: Iterable[Lease]) -> set[Lease]:
        """Renew leases; those not in the answer were lost."""
        return await self._with_own(leases, self._extend)

    async def _extend(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        seconds = self._settings.lease.seconds
        kept = await self.store.extend(leases, lease_for=seconds)
        until = self._clock.now_ms() + round(seconds * 1000)
        self._held.update((lease, until) for lease in kept if lease in self._held)
        return kept

    async def release(self, leases: Iterable[Lease]) -> set[Lease]:
        """Give leases back unpunished; those not in the answer were lost or finished before."""
        return await self._with_own(leases, self._release)

    async def _release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        freed = await self.store.release(leases)
        for lease in leases:
            self._held.pop(lease, None)
        self._freed.set()
        self._stirred.set()
        return freed

    async def _with_own(
        self, leases: Iterable[Lease], call: Callable[[Sequence[LeaseId]], Any]
    ) -> set[Lease]:
        every = [leases] if isinstance(leases, Lease) else list(leases)
        faults = [self._foreign(lease) for lease in every]
        own = [lease for lease, fault in zip(every, faults, strict=True) if not fault]
        kept = await call([lease.id for lease in own]) if own else set()
        answer = {lease for lease in own if lease.id in kept}
        self._raise_first(faults, answer)
        return answer

    async def expire(self, *, limit: int = 1000) -> int:
        """Take back overdue leases; claims do it too, so only sweepers need this."""
        count = await self.store.expire(limit=limit)
        if count:
            self._stirred.set()
        await self._teller.changed()
        return count

    # ---- steering and seeing: see Operator and Reader

    def queue(self, key: str) -> QueueHandle:
        """A queue by its key, or all queues of a suffix such as ".org"."""
        return QueueHandle(self, key)

    # ---- events

    def events(self) -> AsyncIterator[Event]:
        """Everything that happens from now on, as it happens."""
        self._teller.listen()
        return self._events.stream()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event; answers with the function that ends it."""
        self._teller.listen()
        self._events.subscribe(listener)
        return lambda: self._events.unsubscribe(listener)


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
