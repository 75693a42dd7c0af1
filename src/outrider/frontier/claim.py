"""Claiming tasks: claims that wait, leases as an iterator; leases extended, released, expired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from outrider.core.link_validation import short_repr
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease, LeaseId
from outrider.errors import ForeignLease, InvalidInput
from outrider.frontier.context import ClosedSource, FrontierContext, LeaseSource, time_call
from outrider.frontier.live_settings import LiveSettings
from outrider.frontier.progress import ProgressRecorder
from outrider.frontier.reports import Claim
from outrider.frontier.waiting_room import ROOMS, WaitingClaim, WaitingRoom
from outrider.store.protocol import (
    FINGERPRINT_BYTES,
    MAX_CLAIM_KEYS,
    MAX_FINGERPRINTS,
    ClaimRequest,
    ClaimResult,
    FullStore,
)

MAX_WAIT: Final = 1.0  # seconds of one claim of `leases`
MAX_LIMIT: Final = 100_000
MAX_LEASE: Final = 604_800.0  # seconds, as of the setting `lease.seconds`
MAX_WORKER_CHARS: Final = 255


class Claimer:
    """Leases tasks, and holds the leases that `leases` gave out until they end."""

    def __init__(
        self, context: FrontierContext, settings: LiveSettings, progress: ProgressRecorder
    ) -> None:
        self._context = context
        self._settings = settings
        self._progress = progress
        self._source: LeaseSource = ClosedSource()
        self._store_id = ""
        self._has_drawn = False  # a lease drew its delay
        self._streak = ClaimRequest(context.crawl, context.worker, 1).streak
        self._released = asyncio.Event()  # set when a lease of this frontier ended
        self._held: dict[LeaseId, int] = {}  # leases of `leases`, and when they expire
        self._undelivered: list[Claim] = []  # claimed by `leases`, and not yet yielded
        self._room: WaitingRoom | None = None  # from the first claim that waits on

    def use(self, store: FullStore) -> None:
        """Serve leases of this store from now on."""
        self._store_id = store.id
        self._source = store

    def lease_through(self, source: LeaseSource) -> None:
        """Claim and release through this source from now on."""
        self._source = source

    async def close(self) -> None:
        """Release what `leases` claimed and did not yield."""
        for claim in self._undelivered:
            await self.release(claim)
            claim.clear()

    def stop_waiting(self) -> None:
        """End the claims that wait: the frontier is being closed."""
        if self._room is not None:
            ROOMS.leave(self._context.store, self._room, self)
            self._room = None

    async def claim(  # noqa: PLR0913 - the fields of a claim
        self,
        limit: int,
        *,
        wait: float,
        per_queue: int | None = None,
        lend: bool = False,
        lease_for: float | None = None,
        worker: str | None = None,
        outlives_process: bool = False,
        keys: Iterable[str] | None = None,
        max_queues: int | None = None,
    ) -> Claim:
        """See `Frontier.claim`."""
        _check_claim(limit, per_queue)
        if max_queues is not None:
            _check_max_queues(max_queues)
        if worker is not None:
            _check_worker(worker)
        if not isinstance(wait, int | float) or not wait >= 0:
            raise InvalidInput(f"claim(wait={wait!r}): seconds ≥ 0")
        context, is_timed = self._context, lease_for is not None
        usual = context.policies.settings.lease.seconds
        request = ClaimRequest(
            context.crawl,
            worker or context.worker,
            limit,
            usual if lease_for is None else lease_seconds("claim", lease_for),
            per_queue or 0,
            self._streak,
            (),
            bool(lend),
            "",
            bool(outlives_process),
            () if keys is None else _list_of_keys(keys),
            max_queues or 0,
        )
        if wait and limit:
            claim = await self._claim_in_turn(request, wait, is_timed=is_timed)
        else:
            claim = await self._claim_once(request, is_timed=is_timed)
        if not claim:
            await asyncio.sleep(0)  # a caller that claims in a loop must not block the others
        return claim

    async def _claim_in_turn(self, request: ClaimRequest, wait: float, *, is_timed: bool) -> Claim:
        """Wait among all claims of this process that could get the same tasks."""
        source, store = self._open_source(), self._context.store
        if self._room is None:
            context = self._context
            self._room = ROOMS.join(store, context.crawl, context.clock, self)
        other = None if source is store else id(source)  # a workbench, of which no store notifies
        ask = partial(self._claim_once, request, is_timed=is_timed)
        waiting = WaitingClaim(self, ask, self._is_over, request.limit, wait)
        # Stores notify of deadlines of leases by the earliest of the crawl, not of some queues.
        polls = other is not None or bool(request.keys)
        restriction = other, frozenset(request.keys)
        return await self._room.claim(restriction, waiting, polls=polls)

    async def claim_named(self, fingerprints: Iterable[bytes]) -> Claim:
        """See `Frontier.claim_named`."""
        names = list(fingerprints)
        if len(names) > MAX_FINGERPRINTS or not all(_is_fingerprint(name) for name in names):
            raise InvalidInput(
                f"claim_named: at most {MAX_FINGERPRINTS} fingerprints of 16 bytes each"
            )
        context = self._context
        seconds = context.policies.settings.lease.seconds
        request = ClaimRequest(
            context.crawl, context.worker, len(names), seconds, fingerprints=names
        )
        return await self._claim_once(request)

    async def _claim_once(self, request: ClaimRequest, *, is_timed: bool = False) -> Claim:
        """Claim with this frontier's streak; unless `is_timed`, for as long as the setting says."""
        context = self._context
        if self._settings.is_listen_due:
            await self._settings.listen()
        policies = context.policies
        seconds = request.lease_for if is_timed else policies.settings.lease.seconds
        may_draw = self._has_drawn or policies.may_draw_at_start
        rolls = self._rolls(request) if may_draw else ()
        if rolls or request.streak is not self._streak or request.lease_for != seconds:
            request = msgspec.structs.replace(
                request, lease_for=seconds, streak=self._streak, rolls=rolls
            )
        source = self._open_source()
        call = source.claim(request) if source.is_inline else self._shielded(request)
        record = context.call_recorder
        claimed = await (call if record is None else time_call("claim", call, record))
        self._streak = claimed.streak
        for lease in claimed.leases:
            msgspec.structs.force_setattr(lease, "holder", self)
            if lease.delay >= 0:
                self._has_drawn = True
        self._progress.claimed(claimed.status)
        if context.reporter.has_listeners:
            await self._report(claimed.leases)
        return Claim(claimed.leases, claimed.wake_in, claimed.status)

    def _rolls(self, request: ClaimRequest) -> Sequence[float]:
        """Return a random number for each lease that may draw its delay (D1).

        Whether one does is known by the settings, or by a lease: rules can be set for a queue.
        """
        if request.fingerprints or request.lend:
            return ()
        dice = self._context.policies.dice
        return [dice() for _ in range(request.limit)]

    def _open_source(self) -> LeaseSource:
        _ = self._context.store  # raises if the frontier is not open
        return self._source

    async def _report(self, leases: Sequence[Lease]) -> None:
        try:
            await self._context.reporter.claimed(leases)
        except asyncio.CancelledError:
            self._release_later(leases)
            raise

    async def _shielded(self, request: ClaimRequest) -> ClaimResult:
        call = self._context.background.spawn(self._source.claim(request))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            call.add_done_callback(self._release_result)
            raise

    def _release_result(self, call: asyncio.Future[ClaimResult]) -> None:
        """Release what a cancelled claim leased: its caller never gets it."""
        if not call.cancelled() and call.exception() is None:
            self._release_later(call.result().leases)

    def _release_later(self, leases: Sequence[Lease]) -> None:
        if leases and self._context.is_open:
            work = self._source.release([lease.id for lease in leases])
            _ = self._context.background.spawn(work)

    async def _wait_for_release(self) -> None:
        """Wait until a lease of this frontier ended, or for a second."""
        self._released.clear()
        sleep = asyncio.ensure_future(self._context.clock.sleep(MAX_WAIT))
        is_set = asyncio.ensure_future(self._released.wait())
        try:
            await asyncio.wait({sleep, is_set}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            is_set.cancel()

    async def leases(self, limit: int) -> AsyncIterator[Lease]:
        """See `Frontier.leases`."""
        if type(limit) is not int or limit < 1:
            raise InvalidInput(f"leases(limit={limit!r}): a whole number ≥ 1")
        clock, policies = self._context.clock, self._context.policies
        while True:
            self._forget_expired()
            if len(self._held) >= limit:
                await self._wait_for_release()
                continue
            free = limit - len(self._held)
            claim = await self.claim(free, wait=MAX_WAIT)
            if not claim and self._is_over(claim):
                return
            half = round(policies.settings.lease.seconds * 500)
            stale = clock.now_ms() + half
            self._held.update((lease.id, stale + half) for lease in claim)
            self._undelivered.append(claim)
            try:
                while claim:
                    # While the reader is slow, leases age before they are yielded: extend them.
                    if clock.now_ms() < stale or await self.extend(claim[:1]):
                        yield claim.pop(0)
                    else:
                        claim.pop(0)
            finally:
                self._undelivered.remove(claim)
                if claim:  # the reader stopped early
                    await self.release(claim)

    def _is_over(self, claim: Claim) -> bool:
        """Whether waiting brings nothing: I2: a crawl that stays open may get more work."""
        is_finished = claim.status is CrawlStatus.FINISHED
        stays_open = self._context.policies.settings.crawl.stay_open
        return claim.status is CrawlStatus.CANCELLED or (is_finished and not stays_open)

    def _forget_expired(self) -> None:
        """Forget leases that were not finished in time: they no longer count for the limit."""
        now = self._context.clock.now_ms()
        self._held = {lease: until for lease, until in self._held.items() if until > now}

    def lease_ended(self, leases: Iterable[Lease]) -> None:
        """Forget finished leases, and let `leases` claim again."""
        if self._held:
            for lease in leases:
                self._held.pop(lease.id, None)
        self._released.set()

    async def extend(
        self, leases: Iterable[Lease], *, lease_for: float | None = None
    ) -> set[Lease]:
        """See `Frontier.extend`."""
        given = None if lease_for is None else lease_seconds("extend", lease_for)
        return await self._for_own(leases, lambda own: self._extend(own, given))

    async def _extend(self, leases: Sequence[Lease], given: float | None) -> set[LeaseId]:
        """Extend leases by so many seconds; None: each by as many as it was claimed for."""
        by_length: dict[float, list[LeaseId]] = {}
        for lease in leases:
            seconds = lease.lease_for if given is None else given
            by_length.setdefault(seconds, []).append(lease.id)
        kept: set[LeaseId] = set()
        for seconds, some in by_length.items():
            kept |= await self._extend_some(some, seconds)
        return kept

    async def _extend_some(self, leases: Sequence[LeaseId], seconds: float) -> set[LeaseId]:
        context = self._context
        call = context.store.extend(leases, lease_for=seconds)
        kept = await time_call("extend", call, context.call_recorder)
        until = self._context.clock.now_ms() + round(seconds * 1000)
        self._held.update((lease, until) for lease in kept if lease in self._held)
        return kept

    async def release(self, leases: Iterable[Lease]) -> set[Lease]:
        """See `Frontier.release`."""
        return await self._for_own(leases, self._release)

    async def _release(self, leases: Sequence[Lease]) -> set[LeaseId]:
        ids = [lease.id for lease in leases]
        freed = await self._context.timed("release", self._open_source().release)(ids)
        for lease in ids:
            self._held.pop(lease, None)
        self._released.set()
        return freed

    async def _for_own(
        self,
        leases: Iterable[Lease],
        call: Callable[[Sequence[Lease]], Awaitable[set[LeaseId]]],
    ) -> set[Lease]:
        """Call with those leases that are this frontier's, then raise the first error of others."""
        every = [leases] if isinstance(leases, Lease) else list(leases)
        errors = [self.lease_error(lease) for lease in every]
        own = [lease for lease, error in zip(every, errors, strict=True) if not error]
        kept = await call(own) if own else set()
        answer = {lease for lease in own if lease.id in kept}
        raise_first(errors, answer)
        return answer

    async def expire(self, *, limit: int) -> int:
        """See `Frontier.expire`."""
        if type(limit) is not int or limit < 0:
            raise InvalidInput(f"expire(limit={limit!r}): a whole number ≥ 0")
        context = self._context
        count = await time_call("expire", context.store.expire(limit=limit), context.call_recorder)
        await self._context.reporter.store_events()
        return count

    def lease_error(self, lease: object) -> InvalidInput | None:
        """Return what is wrong with a lease handed in; None: it is one of this frontier's crawl."""
        if not isinstance(lease, Lease):
            return InvalidInput(
                f"a lease is what claim() returns; {type(lease).__name__} is not a lease"
            )
        crawl = self._context.crawl
        if lease.store == self._store_id and lease.about.crawl == crawl:
            return None
        place = "another store" if lease.store != self._store_id else f"crawl {lease.crawl!r}"
        return ForeignLease(
            f"the lease of {lease.url} (token {lease.token}) is of {place}, this frontier serves "
            f"crawl {crawl!r}; hand it to the frontier that claimed it"
        )


def raise_first(errors: Sequence[InvalidInput | None], answers: object) -> None:
    """Raise the first error, if there is one, with the answers for the rest of the call."""
    for error in errors:
        if isinstance(error, ForeignLease):
            error.answers = answers
        if error is not None:
            raise error


def _check_claim(limit: int, per_queue: int | None) -> None:
    if type(limit) is not int or not 0 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"claim({limit!r}): the limit is a whole number, 0 to {MAX_LIMIT}")
    if per_queue is not None and (type(per_queue) is not int or per_queue < 1):
        raise InvalidInput(f"claim(per_queue={per_queue!r}): a whole number ≥ 1, or None")


def _check_max_queues(max_queues: int) -> None:
    if type(max_queues) is not int or max_queues < 1:
        raise InvalidInput(f"claim(max_queues={max_queues!r}): a whole number ≥ 1, or None")


def _list_of_keys(keys: Iterable[str]) -> list[str]:
    """Return the keys of a claim (C5); the store checks each."""
    found = [] if isinstance(keys, str) or not isinstance(keys, Iterable) else list(keys)
    if not 0 < len(found) <= MAX_CLAIM_KEYS:
        raise InvalidInput(
            f"claim(keys={short_repr(keys)}): a list of 1 to {MAX_CLAIM_KEYS} keys, or None for all"
        )
    return found


def lease_seconds(verb: str, seconds: object) -> float:
    """Return how long a lease is to last; it has the bounds of the setting `lease.seconds`."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= MAX_LEASE:  # type: ignore[operator]
        raise InvalidInput(f"{verb}(lease_for={seconds!r}): seconds over 0, at most {MAX_LEASE:g}")
    return float(seconds)  # type: ignore[arg-type]


def _check_worker(worker: object) -> None:
    is_name = isinstance(worker, str) and worker.isprintable()
    if not (is_name and 0 < len(worker) <= MAX_WORKER_CHARS):  # type: ignore[arg-type]
        raise InvalidInput(
            f"claim(worker={worker!r:.100}): printable text, 1 to {MAX_WORKER_CHARS} long, or None"
        )


def _is_fingerprint(name: object) -> bool:
    return isinstance(name, bytes) and len(name) == FINGERPRINT_BYTES
