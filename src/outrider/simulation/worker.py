"""A simulated worker: claims, visits the synthetic web and reports, with random misbehaviour.

It never sends a request without a valid lease (D7): it counts a lease from the moment it asked, and
cuts a visit that would outlast it. It paces borrowed queues by its own verdicts, and releases tasks
that would wait too long (C7).
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
_MAX_SLEEP: Final = 60.0  # seconds, while other workers may add tasks
_MAX_ATTEMPTS: Final = 4
_ODD: Final = 0.03  # share of visits with a rare outcome


class Crashed(Exception):
    """The worker lost its memory of all leases."""


class Held(msgspec.Struct, eq=False):
    """A lease, and until when the worker may rely on it, in milliseconds."""

    lease: Lease
    until: int


class Worker:
    """One worker with its own lane streak; it visits one page at a time."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._name = f"worker-{number}"
        self._spread = 4.0 * (number - 1)  # seconds of delay; the first worker has none
        self._streak = Streak()
        self._outbox: list[Verdict] = []
        self._not_before: dict[str, int] = {}  # by key of borrowed queues

    async def run(self) -> None:
        """Work until the crawl is over and healed."""
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
        self._crash_sometimes()
        held = [Held(lease, until) for lease in claimed.leases]
        while held:
            if self._happens(self._habits.renew):
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
        if self._happens(scenario.lend):
            request = msgspec.structs.replace(request, limit=limit * 4, lend=True)
        if not self._run.is_healed and self._happens(scenario.limited):
            request = self._limited(request)
        if self._run.may_draw:
            rolls = [self._run.dice.random() for _ in range(request.limit)]
            request = msgspec.structs.replace(request, rolls=rolls)
        return request

    def _limited(self, request: ClaimRequest) -> ClaimRequest:
        """Return the claim for some queues only (C5)."""
        dice, known = self._run.dice, self._run.keys()
        if dice.random() < 0.5:
            return msgspec.structs.replace(request, max_queues=dice.randint(1, 2))
        keys = dice.sample(known, min(len(known), dice.randint(1, 3)))
        return msgspec.structs.replace(request, keys=keys)

    async def _rest(self, claimed: ClaimResult, *, is_late: bool) -> None:
        """Sleep until a task may be due (C6), spread over workers; before healing never long."""
        run, wake_in = self._run, claimed.wake_in
        if is_late and claimed.status in _OVER:
            run.is_over = True
            return
        hopeless = is_late and wake_in is None
        require(not hopeless, "liveness", f"{claimed.status}, and only an operator can add work")
        longest = math.inf if is_late else _MAX_SLEEP
        late = run.dice.random() * self._spread
        await self._sleep(min(longest, _MAX_SLEEP if wake_in is None else wake_in + late))

    # ---- visit

    async def _handle(self, held: Held) -> None:
        await self._hang_sometimes(self._habits.hang)
        if self._now() >= held.until:
            return  # D7: the lease is lost, so no request is sent
        if not await self._wait_for_pace(held) or self._happens(self._habits.release):
            await self._run.store.release([held.lease.id])
            return
        outcome, found = await self._visit(held)
        await self._hang_sometimes(self._habits.linger)
        self._outbox.append(self._verdict(held.lease, outcome, found))
        if len(self._outbox) >= self._run.scenario.batch:
            await self._send_outbox()

    async def _wait_for_pace(self, held: Held) -> bool:
        """Wait for the pace of a borrowed queue; return False if the lease ends before (C7)."""
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
        crashes = self._happens(self._habits.crash)
        request.ended = min(now + to_ms(response.seconds), held.until)
        if crashes:
            await self._sleep(run.dice.random() * (request.ended - now) / 1000)
            request.ended = self._now()
            raise Crashed
        request.ended = await self._load(held, now + to_ms(response.seconds))
        request.outcome = self._outcome(response, (request.ended - now) / 1000)
        return request.outcome, response.found if isinstance(request.outcome, Done) else ()

    def _without_a_request(self) -> Outcome | None:
        """Return an outcome without a request: from the cache (D5), or robots.txt (G0)."""
        if self._run.is_healed or self._run.dice.random() >= _ODD:
            return None
        if self._run.dice.random() < 0.5:
            return Dropped("robots")
        return Done(status=200, from_cache=True)

    async def _load(self, held: Held, whole_at: int) -> int:
        """Wait for the page; extend the lease or cut the visit. Return when it ended."""
        while whole_at > held.until:
            await self._sleep_until((self._now() + held.until) // 2)
            lost_at = held.until
            if not await self._try_to_extend(held) or self._now() > lost_at:
                await self._sleep_until(lost_at)
                return lost_at
        await self._sleep_until(whole_at)
        return whole_at

    async def _try_to_extend(self, held: Held) -> bool:
        before = held.until
        if self._run.dice.random() < self._habits.extend:
            await self._renew([held])
        return held.until > before

    async def _renew(self, held: list[Held]) -> None:
        """Extend leases; they count from the moment of asking, which is never too long (H2)."""
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
        """Send verdicts until they are answered, and at times once more (H3)."""
        if not self._outbox:
            return
        verdicts, self._outbox = self._outbox, []
        for _ in range(_MAX_ATTEMPTS):
            try:
                await self._run.store.finish(verdicts)
            except StoreUnavailable:
                await self._sleep(self._run.dice.uniform(0.1, 5.0))
                continue
            if not self._happens(self._habits.repeat):
                return

    # ---- misbehaviour and time

    @property
    def _habits(self) -> Habits:
        return self._run.habits

    def _happens(self, share: float) -> bool:
        return share > 0 and self._run.dice.random() < share

    def _crash_sometimes(self) -> None:
        if self._happens(self._habits.crash):
            raise Crashed

    async def _hang_sometimes(self, share: float) -> None:
        if self._happens(share):
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
