"""A worker: claims, visits the synthetic web, and reports, with the manners of D7 and bad habits.

However badly it behaves towards the store, it never sends a request it holds no lease for: it
counts its lease from the moment it asked, and cuts a visit that would outlast it. What it borrowed
it visits at the pace its own verdicts set, and what would wait too long it gives back (C7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.clock import to_ms
from outrider.core.outcome import Done, Dropped, Failed, Outcome
from outrider.core.pick import Streak
from outrider.core.states import CrawlStatus
from outrider.core.task import Lease
from outrider.core.verdict import Verdict
from outrider.errors import StoreUnavailable
from outrider.simulation.scenario import Habits
from outrider.simulation.web import Found, Response
from outrider.store.protocol import ClaimRequest, ClaimResult
from outrider.testing.lease_history import require

if TYPE_CHECKING:
    from outrider.simulation.run import Run

_OVER: Final = (CrawlStatus.FINISHED, CrawlStatus.CANCELLED)
_PATIENCE: Final = 60.0  # seconds it sleeps at most while others may bring work
_TRIES: Final = 4
_ODD: Final = 0.03  # share of visits that end in one of the rarer ways


class Crashed(Exception):
    """The worker forgot everything it held."""


class Held(msgspec.Struct, eq=False):
    """A lease, and until when the worker may rely on it, in milliseconds."""

    lease: Lease
    until: int


class Worker:
    """One claimer with its own lane streak; visits one page at a time."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._name = f"worker-{number}"
        self._spread = 4.0 * (number - 1)  # seconds; the first is punctual
        self._streak = Streak()
        self._outbox: list[Verdict] = []
        self._not_before: dict[str, int] = {}  # of the queues it borrowed

    async def live(self) -> None:
        """Work until the crawl is over and nothing will bring it back."""
        while not self._run.is_over:
            try:
                await self._round()
            except StoreUnavailable:
                await self._sleep(self._run.dice.uniform(0.1, 3.0))
            except Crashed:
                self._outbox.clear()
                self._not_before.clear()
                self._streak = Streak()
                await self._sleep(self._run.dice.uniform(1.0, 60.0))

    # ---- claim

    async def _round(self) -> None:
        asked, is_late, request = self._now(), self._run.is_healed, self._request()
        claimed = await self._run.store.claim(request)
        self._streak = claimed.streak
        self._not_before = {lease.key: 0 for lease in claimed.leases if request.lend}
        if not claimed.leases:
            await self._rest(claimed, is_late=is_late)
            return
        until = asked + to_ms(self._lease_for())
        self._maybe_crash()
        held = [Held(lease, until) for lease in claimed.leases]
        while held:
            if self._strikes(self._habits.renew):
                await self._renew(held)
            await self._handle(held.pop(0))
        await self._send_outbox()

    def _request(self) -> ClaimRequest:
        scenario = self._run.scenario
        limit = self._run.dice.randint(1, scenario.limit)
        request = ClaimRequest(
            self._run.crawl,
            self._name,
            limit,
            self._lease_for(),
            scenario.per_queue,
            self._streak,
        )
        if not self._strikes(scenario.lend):
            return request
        return msgspec.structs.replace(request, limit=limit * 4, lend=True)

    async def _rest(self, claimed: ClaimResult, *, is_late: bool) -> None:
        """C6: until something may come, and not all at once; amid trouble never for long."""
        run, wake_in = self._run, claimed.wake_in
        if is_late and claimed.status in _OVER:
            run.is_over = True
            return
        hopeless = is_late and wake_in is None
        require(not hopeless, "liveness", f"{claimed.status}, and only a person can bring work")
        longest = math.inf if is_late else _PATIENCE
        late = run.dice.random() * self._spread
        await self._sleep(min(longest, _PATIENCE if wake_in is None else wake_in + late))

    # ---- visit

    async def _handle(self, held: Held) -> None:
        await self._maybe_hang(self._habits.hang)
        if self._now() >= held.until:
            return  # D7: it looks at its lease before sending, and this one is lost
        if not await self._waited(held) or self._strikes(self._habits.release):
            await self._run.store.release([held.lease.id])
            return
        outcome, found = await self._visit(held)
        await self._maybe_hang(self._habits.linger)
        self._outbox.append(self._verdict(held.lease, outcome, found))
        if len(self._outbox) >= self._run.scenario.batch:
            await self._send_outbox()

    async def _waited(self, held: Held) -> bool:
        """C7: who borrowed a queue keeps its pace; False if the lease would not last so long."""
        ready_at = self._not_before.get(held.lease.key, 0)
        if ready_at >= held.until:
            return False
        await self._sleep_until(ready_at)
        return True

    async def _visit(self, held: Held) -> tuple[Outcome, Sequence[Found]]:
        unsent = self._without_a_request()
        if unsent is not None:
            return unsent, ()
        run, lease, now = self._run, held.lease, self._now()
        response = run.scenario.web.visit(lease.url, run.loop.elapsed())
        request = run.server_log.begin(lease, now)
        crashes = self._strikes(self._habits.crash)
        request.ended = min(now + to_ms(response.seconds), held.until)
        if crashes:
            await self._sleep(run.dice.random() * (request.ended - now) / 1000)
            request.ended = self._now()
            raise Crashed
        request.ended = await self._load(held, now + to_ms(response.seconds))
        request.outcome = self._outcome(response, (request.ended - now) / 1000)
        return request.outcome, response.found if isinstance(request.outcome, Done) else ()

    def _without_a_request(self) -> Outcome | None:
        """D5, G0: served from a cache, or kept out by robots.txt."""
        if self._run.is_healed or self._run.dice.random() >= _ODD:
            return None
        if self._run.dice.random() < 0.5:
            return Dropped("robots")
        return Done(status=200, from_cache=True)

    async def _load(self, held: Held, whole_at: int) -> int:
        """Wait for the page; extend, or cut the visit before its lease ends. When it ended."""
        while whole_at > held.until:
            await self._sleep_until((self._now() + held.until) // 2)
            lost_at = held.until
            if not await self._extended(held) or self._now() > lost_at:
                await self._sleep_until(lost_at)
                return lost_at
        await self._sleep_until(whole_at)
        return whole_at

    async def _extended(self, held: Held) -> bool:
        before = held.until
        if self._run.dice.random() < self._habits.extend:
            await self._renew([held])
        return held.until > before

    async def _renew(self, held: list[Held]) -> None:
        """H2: counted from the asking, as the store's count cannot begin before."""
        asked, store = self._now(), self._run.store
        try:
            kept = await store.extend([one.lease.id for one in held], lease_for=self._lease_for())
        except StoreUnavailable:
            return
        for one in held:
            if one.lease.id in kept:
                one.until = asked + to_ms(self._lease_for())

    def _outcome(self, response: Response, took: float) -> Outcome:
        if took < response.seconds:
            return Failed("time limit", took)
        dice = self._run.dice
        if isinstance(response.outcome, Done) and not self._run.is_healed and dice.random() < _ODD:
            return msgspec.structs.replace(response.outcome, revisit_in=dice.uniform(0.0, 90.0))
        return response.outcome

    # ---- report

    def _verdict(self, lease: Lease, outcome: Outcome, found: Sequence[Found]) -> Verdict:
        run = self._run
        verdict = run.decide(lease, outcome, run.policy, run.dice.random())
        if lease.key in self._not_before:
            pause = max(verdict.delay if verdict.touched else 0.0, verdict.snooze)
            ready_at = self._now() + to_ms(pause)
            self._not_before[lease.key] = max(self._not_before[lease.key], ready_at)
        links = tuple(run.tasks(found, on=lease)) if found else ()
        return msgspec.structs.replace(verdict, tasks=links)

    async def _send_outbox(self) -> None:
        """H3: until it is answered, and at times once more for nothing."""
        if not self._outbox:
            return
        verdicts, self._outbox = self._outbox, []
        for _ in range(_TRIES):
            try:
                await self._run.store.finish(verdicts)
            except StoreUnavailable:
                await self._sleep(self._run.dice.uniform(0.1, 5.0))
                continue
            if not self._strikes(self._habits.repeat):
                return

    # ---- habits and time

    @property
    def _habits(self) -> Habits:
        return self._run.habits

    def _strikes(self, share: float) -> bool:
        return share > 0 and self._run.dice.random() < share

    def _maybe_crash(self) -> None:
        if self._strikes(self._habits.crash):
            raise Crashed

    async def _maybe_hang(self, share: float) -> None:
        if self._strikes(share):
            await self._sleep(self._run.dice.random() * 2 * self._lease_for())

    def _lease_for(self) -> float:
        return self._run.scenario.settings.lease.seconds

    def _now(self) -> int:
        return self._run.loop.now_ms()

    async def _sleep(self, seconds: float) -> None:
        await self._run.loop.sleep(seconds)

    async def _sleep_until(self, instant: int) -> None:
        if instant > self._now():
            await self._sleep((instant - self._now()) / 1000)
