"""The six verbs over shards: tasks go to the shard of their key, and leases end where they began.

What is known is known within a shard: a URL that is added under two keys may be known twice.
Order, lanes and the inactive list hold within a shard. Answers come in the order of the tasks
(B3, B4).

A page's links for other shards are added before the page is finished (H6). A crash between the two
loses nothing: the page is visited again, and its links are known by then (those with the rule
`gather` are counted twice). A lease that is lost between the two has added its links nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final
from zlib import crc32

import msgspec

from outrider.core.pick import Streak
from outrider.core.states import FORGOTTEN, CrawlStatus, TaskState
from outrider.core.task import Added, Lease, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import StoreUnavailable
from outrider.store.byte_limits import MAX_RESULT_BYTES, task_bytes
from outrider.store.protocol import ClaimRequest, ClaimResult, TaskView
from outrider.store.shards.copies import IdentityCopies
from outrider.store.shards.shard_set import (
    FINISHED,
    HOME,
    RUNNING,
    RunStatus,
    ShardSet,
    ShardSummary,
    global_number,
    split_number,
    totals_of,
)
from outrider.store.validation import validate_claim, validate_links

# Seconds by which a lease is extended while its page's links are added to other shards. A worker
# that is killed meanwhile blocks its hosts that long; one that takes longer visits the page again.
LINKS_LEASE_SECONDS: Final = 15.0

_OPEN: Final = (TaskState.PENDING, TaskState.LEASED)

replace = msgspec.structs.replace


class ShardedAdd:
    """Adds tasks, each on the shard of its key."""

    def __init__(self, shards: ShardSet, status: RunStatus, copies: IdentityCopies) -> None:
        self._shards = shards
        self._status = status
        self._copies = copies

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """See `protocol.Store`."""
        crawls = list(dict.fromkeys(task.crawl for task in tasks))
        if len(crawls) == 1:
            return await self._add_to(crawls[0], tasks)
        parts = [[task for task in tasks if task.crawl == crawl] for crawl in crawls]
        answers = [
            await self._add_to(crawl, part) for crawl, part in zip(crawls, parts, strict=True)
        ]
        by_crawl = {crawl: iter(part) for crawl, part in zip(crawls, answers, strict=True)}
        return [next(by_crawl[task.crawl]) for task in tasks]

    async def _add_to(self, crawl: str, tasks: Sequence[Task]) -> list[Added]:
        home = await self._status.home_summary(crawl)
        if home.status is CrawlStatus.CANCELLED or not home.exists:  # I1
            await self._status.refresh(crawl)
            return [Added(task.url, False, "cancelled") for task in tasks]
        if home.max_pending and self._shards.others:
            answers = await self._add_within(crawl, tasks, home.max_pending)
        else:
            answers = await self._spread(tasks)
        is_pending = [not task.done for task in tasks]
        is_work = any(one.added and is_new for one, is_new in zip(answers, is_pending, strict=True))
        await self._update_status(crawl, home, is_work=is_work)
        return answers

    async def _update_status(self, crawl: str, home: ShardSummary, *, is_work: bool) -> None:
        """I2, I4: start a run, or pause at a limit, after tasks were added."""
        if is_work:
            await self._status.work_added(crawl, home)
        if home.is_limited:
            await self._status.refresh(crawl)

    async def _spread(self, tasks: Sequence[Task]) -> list[Added]:
        """Add each task on its shard, in order there.

        An identity without a URL is made known on all shards before a later link to it is added.
        """
        parts = [tasks] if all(task.url for task in tasks) else _parts_of_identities(tasks)
        return [answer for part in parts for answer in await self._spread_at_once(part)]

    async def _spread_at_once(self, tasks: Sequence[Task]) -> list[Added]:
        await self._copies.make_way(tasks)
        known = await self._copies.add(tasks)
        parts: dict[int, list[int]] = {}
        for place, task in enumerate(tasks):
            if place not in known:
                parts.setdefault(self._shards.number_of(task.key), []).append(place)
        answers = await self._shards.gather(
            self._shards[number].add([tasks[place] for place in places])
            for number, places in parts.items()
        )
        by_place = {place: Added(tasks[place].url, False, "duplicate") for place in known}
        for places, added in zip(parts.values(), answers, strict=True):
            by_place.update(zip(places, added, strict=True))
        return [by_place[place] for place in range(len(tasks))]

    async def _add_within(self, crawl: str, tasks: Sequence[Task], limit: int) -> list[Added]:
        """B4: `max_pending` over all shards, exact to one batch per worker."""
        free = limit - totals_of(await self._shards.summaries(crawl)).open
        if len(tasks) <= free:
            return await self._spread(tasks)
        admitted = await self._choose_admitted(tasks, free)
        answers = iter(
            await self._spread([t for t, fits in zip(tasks, admitted, strict=True) if fits])
        )
        return [
            next(answers) if fits else Added(task.url, False, "queue-full")
            for task, fits in zip(tasks, admitted, strict=True)
        ]

    async def _choose_admitted(self, tasks: Sequence[Task], free: int) -> list[bool]:
        """Return for each task whether it is known, or among the first `free` new ones."""
        known = await self._shards.gather(
            self._shards.of_key(t.key).task(t.crawl, t.fingerprint) for t in tasks
        )
        admitted: dict[bytes, bool] = {}
        for task, view in zip(tasks, known, strict=True):
            if task.fingerprint not in admitted:
                is_new = _becomes_pending(task, view)
                admitted[task.fingerprint] = not is_new or free > 0
                free -= is_new
        return [admitted[task.fingerprint] for task in tasks]


def _parts_of_identities(tasks: Sequence[Task]) -> list[list[Task]]:
    """Cut a list before each link to an identity that a link without a URL has or will have."""
    bare = {task.fingerprint for task in tasks if not task.url}
    parts: list[list[Task]] = [[]]
    seen = set[bytes]()
    for task in tasks:
        if task.fingerprint in seen:
            parts.append([])
            seen.clear()
        if task.fingerprint in bare:
            seen.add(task.fingerprint)
        parts[-1].append(task)
    return parts


def _becomes_pending(task: Task, view: TaskView | None) -> bool:
    """Tell whether adding a task makes one more pending."""
    if task.done:
        return False
    if view is None or (view.state, view.reason) == (TaskState.DROPPED, FORGOTTEN):
        return True
    if task.known == "set":
        return view.state is not TaskState.PENDING
    return task.known == "revisit" and view.state not in _OPEN


class ClaimRound:
    """One claim on its way from shard to shard."""

    def __init__(self, request: ClaimRequest) -> None:
        self.request = request
        self.leases: list[Lease] = []
        self.is_cut = False  # some shards were not asked
        self.keys: set[str] = set()  # queues that tasks were leased of (C5)
        self.streak: Streak = request.streak
        self.wakes: list[float | None] = []
        self.room = MAX_RESULT_BYTES
        self.failure: StoreUnavailable | None = None
        self.status = RUNNING

    @property
    def is_full(self) -> bool:
        """Tell whether no further shard need be asked.

        A shard knows nothing of what others gave, and gives `MAX_RESULT_BYTES` itself: with less
        than half of that left none is asked.
        """
        is_full = self.room <= MAX_RESULT_BYTES // 2 or 0 < self.request.limit <= len(self.leases)
        return is_full or self._has_all_queues

    @property
    def _has_all_queues(self) -> bool:
        """C5: a queue is on one shard, so no other shard has more tasks of these."""
        return 0 < self.request.max_queues <= len(self.keys)

    def remaining(self, keys: Sequence[str]) -> ClaimRequest:
        """Return the request for the next shard, with those of its keys that this shard has."""
        request = self.request
        max_queues = request.max_queues and request.max_queues - len(self.keys)
        limit = request.limit - len(self.leases)
        return replace(
            request,
            limit=limit,
            streak=self.streak,
            keys=keys,
            max_queues=max_queues,
            rolls=request.rolls[len(self.leases) :],
        )

    def add(self, leases: Sequence[Lease]) -> None:
        """Add what a shard leased."""
        self.leases += leases
        self.room -= sum(task_bytes(lease.about) for lease in leases)
        if self.request.max_queues:
            self.keys.update(lease.key for lease in leases)

    def result(self) -> ClaimResult:
        """C6: wake early rather than late if a shard did not answer, or was not asked."""
        wake_in: float | None = 0.0
        if self.status is not RUNNING:
            wake_in = None
        elif not self.is_cut and len(self.leases) < self.request.limit and self.failure is None:
            wake_in = min((wake for wake in self.wakes if wake is not None), default=None)
        return ClaimResult(self.leases, wake_in, self.status, self.streak)


class ShardedLeases:
    """Claims tasks from shard after shard; extends, releases and expires leases on theirs."""

    def __init__(self, shards: ShardSet, status: RunStatus) -> None:
        self._shards = shards
        self._status = status
        self._claims = count()

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """See `protocol.Store`: each claim begins at another shard."""
        validate_claim(request)
        claim = ClaimRound(request)
        claim.status = await self._status.refresh(request.crawl)
        if claim.status in (FINISHED, CrawlStatus.CANCELLED):
            return claim.result()
        await self._claim_from_shards(claim)
        if claim.failure is not None and not claim.leases:
            raise claim.failure
        is_empty = not (claim.leases or request.fingerprints or any(claim.wakes))
        if claim.status is RUNNING and is_empty and not await self._stays_open(request.crawl):
            await self._end_run(claim)
        return claim.result()

    async def _claim_from_shards(self, claim: ClaimRound) -> None:
        """Claim from shard after shard, as long as the next one may have something to lease.

        C5: of a claim by keys, from those that have the keys; if these lease nothing, the others
        are asked as well, for their overdue leases and their deadlines.
        """
        keys = self._shards.group_keys(claim.request.keys)
        order = self._claim_order(claim.request.worker)
        for number in sorted(order, key=lambda number: number not in keys) if keys else order:
            has_none = bool(keys) and number not in keys
            if claim.is_full or (has_none and claim.leases):
                claim.is_cut = True
                break
            await self._claim_from(claim, number, keys.get(number, claim.request.keys))

    def _claim_order(self, worker: str) -> Iterator[int]:
        """Yield all shards: workers begin at different ones, and one further at each claim."""
        shards = len(self._shards)
        first = crc32(worker.encode()) + next(self._claims)
        return ((first + step) % shards for step in range(shards))

    async def _claim_from(self, claim: ClaimRound, number: int, keys: Sequence[str]) -> None:
        """Claim from one shard; if it does not answer, the others are asked nevertheless."""
        try:
            claimed = await self._claim_and_check_status(claim, number, claim.remaining(keys))
        except StoreUnavailable as error:
            claim.failure = error
            return
        store = self._shards.home.id
        claim.add(
            [
                replace(lease, store=store, task=global_number(number, lease.task))
                for lease in claimed.leases
            ]
        )
        claim.streak = claimed.streak
        claim.wakes.append(claimed.wake_in)

    async def _claim_and_check_status(
        self, claim: ClaimRound, number: int, request: ClaimRequest
    ) -> ClaimResult:
        shard = self._shards[number]
        claimed = await shard.claim(request, closes=False)
        if claimed.status is claim.status or claim.status is not RUNNING:
            return claimed
        claim.status = await self._status.refresh(request.crawl)  # changed since this claim began
        if claim.status is RUNNING and number != HOME:
            await shard.set_status(request.crawl, RUNNING)
            return await shard.claim(request, closes=False)
        return claimed

    async def _stays_open(self, crawl: str) -> bool:
        return (await self._status.recent_home_summary(crawl)).stays_open

    async def _end_run(self, claim: ClaimRound) -> None:
        claim.status, again = await self._status.end_run(claim.request.crawl)
        if again:
            claim.wakes.append(0.0)

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """See `protocol.Store`."""
        parts = self._by_shard(leases)
        extended = await self._shards.gather(
            self._shards[number].extend(part, lease_for=lease_for) for number, part in parts.items()
        )
        return _with_global_numbers(parts, extended)

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """See `protocol.Store`."""
        parts = self._by_shard(leases)
        released = await self._shards.gather(
            self._shards[number].release(part) for number, part in parts.items()
        )
        return _with_global_numbers(parts, released)

    async def expire(self, *, limit: int) -> int:
        """See `protocol.Store`: the oldest first, within a shard."""
        expired = 0
        for shard in self._shards.all:
            if expired < limit:
                expired += await shard.expire(limit=limit - expired)
        return expired

    def _by_shard(self, leases: Sequence[LeaseId]) -> dict[int, list[LeaseId]]:
        parts: dict[int, list[LeaseId]] = {}
        for lease in leases:
            number, local = split_number(lease.task)
            if self._shards.has(number):
                parts.setdefault(number, []).append(lease._replace(task=local))
        return parts


def _with_global_numbers(
    parts: dict[int, list[LeaseId]], answers: Sequence[set[LeaseId]]
) -> set[LeaseId]:
    pairs = zip(parts, answers, strict=True)
    return {
        lease._replace(task=global_number(n, lease.task)) for n, part in pairs for lease in part
    }


class RoutedVerdict(msgspec.Struct):
    """One verdict on its way to its shard."""

    lease: LeaseId
    shard: int
    verdict: Verdict  # with the shard's own task number, and only the links added with it
    links: Sequence[Task]  # all of them, in order
    is_apart: list[bool]  # for each link: it is added before the verdict, by `ShardedAdd`
    added: Sequence[Added] = ()  # the answers for those

    @property
    def links_apart(self) -> list[Task]:
        """The links that are added before the verdict."""
        return [link for link, apart in zip(self.links, self.is_apart, strict=True) if apart]

    def merge_answers(self, finished: Finished) -> Finished:
        """Return the shard's answer with the answers for all links, in order."""
        if finished.state is None or not self.added:
            return finished
        answers = (iter(finished.answers), iter(self.added))
        return replace(finished, answers=[next(answers[apart]) for apart in self.is_apart])


class ShardedFinish:
    """Finishes visits on their shards, after adding their links for other shards."""

    def __init__(
        self,
        shards: ShardSet,
        status: RunStatus,
        adding: ShardedAdd,
        leases: ShardedLeases,
        copies: IdentityCopies,
    ) -> None:
        self._copies = copies
        self._shards = shards
        self._status = status
        self._adding = adding
        self._leases = leases

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """See `protocol.Store`."""
        for verdict in verdicts:
            validate_links(verdict)
        apart = await self._links_apart(verdicts)
        routed = [_route(verdict, apart) for verdict in verdicts]
        await self._add_links_apart(routed)
        await self._copies.make_way([link for one in routed for link in one.verdict.tasks])
        answers = await self._finish_on_shards(routed)
        for crawl in {verdict.crawl for verdict in verdicts}:
            if (await self._status.recent_home_summary(crawl)).is_limited:
                await self._status.refresh(crawl)
        return answers

    async def _finish_on_shards(self, routed: Sequence[RoutedVerdict]) -> list[Finished]:
        """Apply each verdict on its shard, in order there; an unknown shard has no such lease."""
        parts: dict[int, list[RoutedVerdict]] = {}
        for one in routed:
            if self._shards.has(one.shard):
                parts.setdefault(one.shard, []).append(one)
        answers = await self._shards.gather(
            self._shards[number].finish([one.verdict for one in part])
            for number, part in parts.items()
        )
        by_shard = {number: iter(part) for number, part in zip(parts, answers, strict=True)}
        return [
            one.merge_answers(next(by_shard[one.shard]))
            if one.shard in by_shard
            else Finished(applied=False)
            for one in routed
        ]

    async def _links_apart(self, verdicts: Sequence[Verdict]) -> set[bytes]:
        """Return the fingerprints of links that are added before the verdicts.

        These are the links of other shards, and the same links on other pages of the call.
        """
        return {
            link.fingerprint
            for verdict in verdicts
            for link in verdict.tasks
            if not link.url
            or self._shards.number_of(link.key) != split_number(verdict.task)[0]
            # A page's link to itself changes nothing only while it is finished (B3).
            or (link.known != "set" and await self._status.counts_pending(verdict.crawl))
        }

    async def _add_links_apart(self, routed: Sequence[RoutedVerdict]) -> None:
        """Add links once for each lease that is still held, which extending the lease tells."""
        firsts = {one.lease: one for one in reversed(routed)}
        wanted = [one for one in routed if any(one.is_apart) and firsts[one.lease] is one]
        if not wanted:
            return
        extended = await self._leases.extend(
            [one.lease for one in wanted], lease_for=LINKS_LEASE_SECONDS
        )
        held = [one for one in wanted if one.lease in extended]
        answers = iter(await self._adding.add([link for one in held for link in one.links_apart]))
        for one in held:
            one.added = [next(answers) for apart in one.is_apart if apart]


def _route(verdict: Verdict, apart: set[bytes]) -> RoutedVerdict:
    shard, local = split_number(verdict.task)
    is_apart = [link.fingerprint in apart for link in verdict.tasks]
    here = [link for link, gone in zip(verdict.tasks, is_apart, strict=True) if not gone]
    own = replace(verdict, task=local, tasks=here)
    lease = LeaseId(verdict.crawl, verdict.task, verdict.token)
    return RoutedVerdict(lease, shard, own, verdict.tasks, is_apart)
