"""Leases out and back: claims that wait, iterate and give back; leases renewed and released."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from outrider.core.states import CrawlStatus
from outrider.core.task import Lease, LeaseId
from outrider.errors import ForeignLease, InvalidInput
from outrider.frontier.footing import Footing
from outrider.frontier.reports import Claim
from outrider.store.protocol import FINGERPRINT_BYTES, MAX_FINGERPRINTS, ClaimRequest, ClaimResult

POLL: Final = 1.0  # seconds after which a waiting claim looks again: others may share the store
_MAX_LIMIT: Final = 100_000


class Lending(Footing):
    """How tasks are lent."""

    async def claim(
        self,
        limit: int = 1,
        *,
        wait: float = 0.0,
        per_queue: int | None = None,
        lend: bool = False,
    ) -> Claim:
        """Lease up to `limit` tasks, best first; with `wait`, ask again until something comes.

        With `lend`, each queue taken from is lent: up to `per_queue` of its tasks (None: no cap)
        for one slot, and nobody else gets it until they ended. Whoever borrows keeps its pace. A
        cancelled claim gives back what it took.
        """
        self._check_claim(limit, per_queue)
        if not isinstance(wait, int | float) or not wait >= 0:
            raise InvalidInput(f"claim(wait={wait!r}): seconds ≥ 0")
        until = self._clock.now_ms() + (wait * 1000 if limit else 0)
        while True:
            self._stirred.clear()
            claim = await self._claim_once(limit, per_queue or 0, lend=bool(lend))
            left = (until - self._clock.now_ms()) / 1000
            if claim:
                return claim
            if left <= 0 or claim.status in (CrawlStatus.FINISHED, CrawlStatus.CANCELLED):
                await asyncio.sleep(0)  # whoever asks again at once must not starve the others
                return claim
            most = POLL if claim.wake_in is None else claim.wake_in
            self._wait_for_work()
            await self._rest(min(left, most), self._stirred)

    async def claim_named(self, fingerprints: Iterable[bytes]) -> Claim:
        """Lease those of up to 64 tasks that are pending and due, whatever their queues wait for.

        For answers that are at hand: it takes no slot and begins no delay, so nothing may be asked
        of the host. Finish with `Done(from_cache=True)`, or release.
        """
        names = list(fingerprints)
        if len(names) > MAX_FINGERPRINTS or not all(_is_name(name) for name in names):
            raise InvalidInput(
                f"claim_named: at most {MAX_FINGERPRINTS} fingerprints of 16 bytes each"
            )
        return await self._claim_once(len(names), 0, names)

    def _check_claim(self, limit: int, per_queue: int | None) -> None:
        if type(limit) is not int or not 0 <= limit <= _MAX_LIMIT:
            raise InvalidInput(f"claim({limit!r}): the limit is a whole number, 0 to {_MAX_LIMIT}")
        if per_queue is not None and (type(per_queue) is not int or per_queue < 1):
            raise InvalidInput(f"claim(per_queue={per_queue!r}): a whole number ≥ 1, or None")

    async def _claim_once(
        self, limit: int, per_queue: int, names: Sequence[bytes] = (), *, lend: bool = False
    ) -> Claim:
        if self._is_news_due:
            await self.listen()
        seconds = self._settings.lease.seconds
        request = ClaimRequest(
            self.crawl, self.worker, limit, seconds, per_queue, self._streak, names, lend
        )
        source = self._open_lease_source
        claimed = await (source.claim(request) if source.is_inline else self._shielded(request))
        self._streak = claimed.streak
        for lease in claimed.leases:
            msgspec.structs.force_setattr(lease, "holder", self)
        if self._events.is_heard:
            await self._tell_claimed(claimed.leases)
        return Claim(claimed.leases, claimed.wake_in, claimed.status)

    async def _tell_claimed(self, leases: Sequence[Lease]) -> None:
        try:
            await self._teller.claimed(leases)
        except asyncio.CancelledError:
            self._release_later(leases)
            raise

    async def _shielded(self, request: ClaimRequest) -> ClaimResult:
        call = self._spawn(self._lease_source.claim(request))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            call.add_done_callback(self._give_back)
            raise

    def _give_back(self, call: asyncio.Future[ClaimResult]) -> None:
        """A cancelled claim: whoever asked is gone, so its leases are released unseen."""
        if not call.cancelled() and call.exception() is None:
            self._release_later(call.result().leases)

    def _release_later(self, leases: Sequence[Lease]) -> None:
        if leases and self._store is not None:
            _ = self._spawn(self._lease_source.release([lease.id for lease in leases]))

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
                    # A slow reader lets leases grow old unseen: renew before handing one out.
                    if self._clock.now_ms() < stale or await self.extend(claim[:1]):
                        yield claim.pop(0)
                    else:
                        claim.pop(0)
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

    async def _give_back_unseen(self) -> None:
        for claim in self._unseen:
            await self.release(claim)
            claim.clear()

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
        freed = await self._open_lease_source.release(leases)
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
        if type(limit) is not int or limit < 0:
            raise InvalidInput(f"expire(limit={limit!r}): a whole number ≥ 0")
        count = await self.store.expire(limit=limit)
        if count:
            self._stirred.set()
        await self._teller.changed()
        return count

    def _raise_first(self, faults: Sequence[InvalidInput | None], answers: object) -> None:
        for fault in faults:
            if isinstance(fault, ForeignLease):
                fault.answers = answers
            if fault is not None:
                raise fault

    def _foreign(self, lease: object) -> InvalidInput | None:
        if not isinstance(lease, Lease):
            return InvalidInput(f"a lease comes from claim(); {type(lease).__name__} is none")
        if lease.store == self._store_id and lease.about.crawl == self.crawl:
            return None
        place = "another store" if lease.store != self._store_id else f"crawl {lease.crawl!r}"
        return ForeignLease(
            f"the lease of {lease.url} (token {lease.token}) is of {place}, this frontier serves "
            f"crawl {self.crawl!r}; hand it to the frontier that claimed it"
        )


def _is_name(name: object) -> bool:
    return isinstance(name, bytes) and len(name) == FINGERPRINT_BYTES
