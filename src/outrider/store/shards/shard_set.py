"""The shards of one store: what a shard must do, how numbers name it, and how shards are called.

Each shard is a whole store that never ends a run by itself. A task, a queue or a cursor of shard s
is numbered s · 2^44 + its number there, so numbers stay in order from shard to shard. The first
shard is the home of every crawl: its status, rules, shared values and workers are stored there.

`RunStatus` keeps the status of a crawl over all shards (I1, I2, I4). No shard ends a run. A claim
that finds nothing to lease reads all shards twice; if nothing was open and nothing changed between
the two, there was an instant at which nothing was open anywhere, and home ends the run by
compare-and-set. Every add looks afterwards whether home is idle, and every call that ended a run
looks once more whether work was added meanwhile: one of the two sees the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from outrider.core.states import DELETING, CrawlStatus
from outrider.errors import InvalidInput, OutriderError
from outrider.store.byte_limits import MAX_RESULT_BYTES
from outrider.store.protocol import ClaimRequest, ClaimResult, FullStore, ResultPage

HOME: Final = 0
MAX_SHARDS: Final = 1024
_LOCAL_BITS: Final = 44
_LOCAL_MASK: Final = (1 << _LOCAL_BITS) - 1
LAST_LOCAL: Final = _LOCAL_MASK  # no number of a shard is higher

RUNNING, FINISHED = CrawlStatus.RUNNING, CrawlStatus.FINISHED

T = TypeVar("T")


class ShardSummary(msgspec.Struct, frozen=True):
    """One shard's state of a crawl; read at every claim, so it must be cheap."""

    status: CrawlStatus
    reason: str | None
    known: int
    queues: int
    leased: int
    open: int  # pending, without those of retired queues
    dones: int
    bytes: int
    revision: int  # grows with every add, lease, end of a lease and change of status
    is_idle: bool  # no task was added since the last run ended, or ever
    has_started: bool  # there was a pending task; at home: on any shard
    max_pending: int
    is_limited: bool  # the crawl has a limit (I4)
    stays_open: bool  # no run of the crawl ends (I2)
    exists: bool  # it was created there, and not removed since (I1)


class CrawlTotals(NamedTuple):
    """The counts of a crawl over all shards."""

    known: int
    leased: int
    open: int
    dones: int
    bytes: int

    @property
    def is_over(self) -> bool:
        """I2: no queue that is not retired has a task left, if there were any."""
        return not (self.leased or self.open)


class RunEnd(NamedTuple):
    """What ends a run: this shard's revision as it was over, and what its event reports."""

    revision: int
    counts: Mapping[str, int]


def totals_of(summaries: Sequence[ShardSummary]) -> CrawlTotals:
    """Sum the counts of all shards."""
    return CrawlTotals(
        known=sum(one.known for one in summaries),
        leased=sum(one.leased for one in summaries),
        open=sum(one.open for one in summaries),
        dones=sum(one.dones for one in summaries),
        bytes=sum(one.bytes for one in summaries),
    )


class Shard(FullStore, Protocol):
    """What a store must do besides, to be a shard."""

    async def claim(self, request: ClaimRequest, *, closes: bool = True) -> ClaimResult:
        """See `protocol.Store`; without `closes` the run stays open even if nothing is left."""
        ...

    async def summary(self, crawl: str) -> ShardSummary:
        """Return the shard's state of a crawl; changes nothing, an unknown crawl is empty."""
        ...

    async def apply_totals(
        self, crawl: str, totals: CrawlTotals, end: RunEnd | None
    ) -> CrawlStatus:
        """I4, I2: pause the crawl at a limit; end its run if it is over. Return the status.

        The run is ended only if this shard's revision still is that of `end`; None: never.
        """
        ...

    async def start_run(self, crawl: str, by: str = "") -> None:
        """I2: a task was added on some shard, or by an operator: a finished crawl runs again."""
        ...

    async def export_items(self, crawl: str, *, after: int, limit: int) -> ResultPage[Any]:
        """Return queues and tasks of an export, without its first and last item.

        The cursor is never None, and stays where it is once there is nothing new.
        """
        ...


def shard_of(key: str, count: int) -> int:
    """Return the shard of a queue; upper and lower case of a key share one."""
    digest = blake2b(key.lower().encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def global_number(shard: int, number: int) -> int:
    """Return the number under which callers of the sharded store know a shard's number."""
    return shard << _LOCAL_BITS | number


def split_number(number: int) -> tuple[int, int]:
    """Return the shard of a global number, and the number it has there."""
    return number >> _LOCAL_BITS, number & _LOCAL_MASK


class Part(Protocol):
    """Anything with a cursor: a result page or a step."""

    @property
    def after(self) -> int | None: ...  # noqa: D102


P = TypeVar("P", bound=Part)


class ShardSet:
    """All shards of a store, called together or in turn; `placement` says where a queue is."""

    def __init__(
        self, shards: Sequence[Shard], placement: Callable[[str, int], int] = shard_of
    ) -> None:
        if not 0 < len(shards) <= MAX_SHARDS:
            raise InvalidInput(f"shards = {len(shards)} must be 1 to {MAX_SHARDS}")
        self.all = tuple(shards)
        self._placement = placement
        self.home = self.all[HOME]
        self.others = self.all[HOME + 1 :]
        self.is_inline = all(shard.is_inline for shard in shards)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, number: int) -> Shard:
        return self.all[number]

    def has(self, number: int) -> bool:
        """Tell whether there is a shard of that number."""
        return 0 <= number < len(self.all)

    def number_of(self, key: str) -> int:
        """Return the number of the shard of a queue."""
        return self._placement(key, len(self.all))

    def group_keys(self, keys: Iterable[str]) -> dict[int, list[str]]:
        """Return keys by the number of their shard."""
        found: dict[int, list[str]] = {}
        for key in keys:
            found.setdefault(self.number_of(key), []).append(key)
        return found

    def of_key(self, key: str) -> Shard:
        """Return the shard of a queue."""
        return self.all[self.number_of(key)]

    async def gather(self, calls: Iterable[Awaitable[T]]) -> list[T]:
        """Return all answers, or raise the first error once no call is running any more."""
        if self.is_inline:
            answers = [await _result_or_error(call) for call in calls]
        else:
            answers = await asyncio.gather(*map(_result_or_error, calls))
        for answer in answers:
            if isinstance(answer, OutriderError):
                raise answer
        return answers  # type: ignore[return-value] # no error is among them

    async def summaries(self, crawl: str) -> list[ShardSummary]:
        """Return the state of a crawl on every shard."""
        return await self.gather(shard.summary(crawl) for shard in self.all)

    async def walk(
        self,
        crawl: str,
        ask: Callable[[Shard, int, int], Awaitable[P]],
        after: int,
        limit: int,
        size_of: Callable[[P], int] = lambda _: 0,
        *,
        of_tasks: bool = True,
    ) -> tuple[list[tuple[int, P]], int | None]:
        """Ask shard after shard until `limit` entries were looked at; return pages and cursor.

        Pages that have the bytes of a result page by `size_of` end it, too (M2). Shards
        without entries are passed over: `of_tasks`, or of queues, which may be without tasks while
        a crawl is restored.
        """
        (number, local), pages, room = split_number(after), [], MAX_RESULT_BYTES
        known: list[int] = []
        entries: list[int] = []
        while True:
            page = await ask(self.all[number], local, limit)
            pages.append((number, page))
            room -= size_of(page)
            if page.after is not None:
                return pages, global_number(number, page.after)
            if not known:
                summaries = await self.summaries(crawl)
                known = [one.known for one in summaries]
                entries = known if of_tasks else [one.queues for one in summaries]
            limit -= known[number] - local
            following = (n for n in range(number + 1, len(known)) if entries[n])
            number, local = next(following, HOME), 0
            if number == HOME:
                return pages, None
            if limit <= 0 or room <= 0:
                return pages, global_number(number, 0)


async def _result_or_error(call: Awaitable[T]) -> T | OutriderError:
    try:
        return await call
    except OutriderError as error:
        return error


CountAtEnd: TypeAlias = Callable[[str], Awaitable[Mapping[str, int]]]


class RunStatus:
    """The status of a crawl: stored at home, propagated to the other shards."""

    def __init__(self, shards: ShardSet, count: CountAtEnd) -> None:
        self._shards = shards
        self._count_at_end = count
        self._last: dict[str, ShardSummary] = {}

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator", *, by: str = ""
    ) -> CrawlStatus:
        """See `protocol.Admin`: home first, whose status is the crawl's from then on."""
        now = await self._shards.home.set_status(crawl, status, reason, by=by)
        await self._propagate(crawl, now, await self._shards.summaries(crawl))
        return now

    async def refresh(self, crawl: str) -> CrawlStatus:
        """Return home's status, after checking limits and completing what a crash interrupted."""
        home = await self.home_summary(crawl)
        if not home.exists:
            return CrawlStatus.CANCELLED
        if home.status is RUNNING and not (home.is_limited and self._shards.others):
            return RUNNING  # a single shard checks its limits itself
        if home.reason == DELETING:  # it may be gone before the others are asked
            return home.status
        summaries = await self._shards.summaries(crawl)
        totals, status = totals_of(summaries), home.status
        if status is FINISHED and (totals.open or totals.leased):
            await self._shards.home.start_run(crawl)
            status = RUNNING
        if status is RUNNING:
            status = await self._shards.home.apply_totals(crawl, totals, None)
        await self._propagate(crawl, status, summaries)
        return status

    async def home_summary(self, crawl: str) -> ShardSummary:
        """Return home's state of a crawl, and keep it for `recent_home_summary`."""
        self._last[crawl] = home = await self._shards.home.summary(crawl)
        return home

    async def recent_home_summary(self, crawl: str) -> ShardSummary:
        """Return home's state as of the last claim or add, for fields that seldom change."""
        return self._last.get(crawl) or await self.home_summary(crawl)

    async def counts_pending(self, crawl: str) -> bool:
        """B4: tell whether `max_pending` must be checked against the sum of several shards."""
        others = self._shards.others
        return bool(others and (await self.recent_home_summary(crawl)).max_pending)

    async def _propagate(
        self, crawl: str, status: CrawlStatus, summaries: Sequence[ShardSummary]
    ) -> None:
        """Set the status on the other shards: paused, cancelled or running, never finished.

        Not while the crawl is removed: it would begin again on a shard that has removed it.
        """
        if summaries[HOME].reason == DELETING:
            return
        wanted = RUNNING if status is FINISHED else status
        await self._shards.gather(
            shard.set_status(crawl, wanted)
            for shard, one in zip(self._shards.others, summaries[HOME + 1 :], strict=True)
            if one.status is not wanted
        )

    async def end_run(self, crawl: str) -> tuple[CrawlStatus, bool]:
        """I2: end the run if it is over; return the status, and whether to claim again at once."""
        first = await self._shards.summaries(crawl)
        totals = totals_of(first)
        if not (totals.is_over and first[HOME].has_started):
            return RUNNING, False
        counts = await self._count_at_end(crawl)  # unchanged, if the revisions are
        second = await self._shards.summaries(crawl)
        if not totals_of(second).is_over or _revisions(first) != _revisions(second):
            return RUNNING, True
        status = await self._shards.home.apply_totals(
            crawl, totals, RunEnd(second[HOME].revision, counts)
        )
        if status is FINISHED:
            return await self.refresh(crawl), False
        await self._propagate(crawl, status, second)
        return status, status is RUNNING

    async def work_added(self, crawl: str, home: ShardSummary, by: str = "") -> None:
        """I2: a task was added on some shard; start a run if home was idle before."""
        if home.is_idle:
            await self._shards.home.start_run(crawl, by)

    async def queues_returned(self, crawl: str, by: str = "") -> None:
        """I2: queues may have returned with pending tasks; start a run if home is idle."""
        home = await self.home_summary(crawl)
        if home.is_idle and totals_of(await self._shards.summaries(crawl)).open:
            await self._shards.home.start_run(crawl, by)


def _revisions(summaries: Sequence[ShardSummary]) -> list[int]:
    return [one.revision for one in summaries]
