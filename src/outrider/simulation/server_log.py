"""The servers' own record of who came when, and its judgement: spacing and concurrency (D1 to D4).

The store is not asked. A request is judged by the instants its host saw, by what the host answered
before, and by the rules its visitor was given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import msgspec

from outrider.clock import to_ms
from outrider.core.outcome import Done, Outcome, Throttled, Unreachable
from outrider.core.policy.politeness import Politeness, pace
from outrider.core.task import Lease
from outrider.simulation.checker import Umpire
from outrider.simulation.task_records import Lent
from outrider.testing.lease_history import require

SHORTEST_SNOOZE: Final = 30.0  # seconds


class Request(msgspec.Struct, eq=False):
    """One request as its host saw it; `ended` is when the host's last byte left, or the cut."""

    lease: Lease
    started: int
    ended: int = 0
    outcome: Outcome | None = None  # None: the visitor died


class Promise(msgspec.Struct, eq=False):
    """No call after this may bring a request before `until`; after a wake, before `least`."""

    call: int
    until: int
    least: int
    why: str


class Record:
    """All requests, in the order they came."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def begin(self, lease: Lease, now: int) -> Request:
        """A request arrives."""
        request = Request(lease, now)
        self.requests.append(request)
        return request

    def judge(self, umpire: Umpire) -> None:
        """Complain at the first request that came too soon, or was one too many."""
        by_key: defaultdict[str, list[Request]] = defaultdict(list)
        for request in self.requests:
            by_key[request.lease.key].append(request)
        for key, requests in by_key.items():
            _judge_concurrency(key, requests)
            _judge_spacing(key, requests, umpire)
            _judge_pace(requests, umpire)


def _judge_concurrency(key: str, requests: list[Request]) -> None:
    """D2: by the most generous of the rules their leases carry."""
    open_: list[Request] = []
    for request in requests:
        open_ = [other for other in open_ if other.ended > request.started]
        open_.append(request)
        most = max(other.lease.rules.politeness.max_in_flight for other in open_)
        require(len(open_) <= most, "D2", f"{key} served {len(open_)} requests at once, of {most}")


def _judge_pace(requests: list[Request], umpire: Umpire) -> None:
    """D1: visits/s, over all slots: 1/rate between two claims that brought a request each."""
    leases = sorted((umpire.lent[one.lease.id] for one in requests), key=lambda lent: lent.call)
    for before, lent in pairwise(leases):
        early = before.at + to_ms(pace(lent.lease.rules.politeness)) - lent.at
        told = f"{lent.lease.url} was leased {early} ms too soon for its visits a second"
        require(before.call == lent.call or early <= 0, "D1", told)


def _judge_spacing(key: str, requests: list[Request], umpire: Umpire) -> None:
    """D1, D3, D4, E7."""
    promises = [*_snoozes(key, umpire), *_promises(requests, umpire)]
    wakes = [call for woken, call in umpire.wakes if woken == key]
    for request in requests:
        lent = umpire.lent[request.lease.id]
        counted = _counted(request, lent)
        for promise in promises:
            if promise.until > counted and promise.call < lent.call:
                woken = any(promise.call < wake < lent.call for wake in wakes)
                early = (promise.least if woken else promise.until) - counted
                told = f"{request.lease.url} came {early} ms early: {promise.why}"
                require(early <= 0, "D1", told)


def _counted(request: Request, lent: Lent) -> int:
    """From the start it is promised between claims, from the end by the server's own record."""
    return lent.at if _from_start(request) else request.started


def _from_start(request: Request) -> bool:
    return request.lease.rules.politeness.count_from == "start"


def _snoozes(key: str, umpire: Umpire) -> Iterable[Promise]:
    for snoozed, call, until in umpire.snoozes:
        if snoozed == key:
            yield Promise(call, until, 0, "the operator snoozed it")


def _promises(requests: list[Request], umpire: Umpire) -> Iterable[Promise]:
    single = all(r.lease.rules.politeness.max_in_flight == 1 for r in requests)
    floor = min(_least(request.lease.rules.politeness) for request in requests)
    for request in requests:
        lent = umpire.lent[request.lease.id]
        if lent.finished_by is not None and request.outcome is not None:
            yield _promise(request, request.outcome, lent, single=single)
        elif single and not _from_start(request):  # D7: its end counts, with an earlier delay
            until = request.ended + to_ms(floor)
            yield Promise(lent.call, until, until, f"after {request.lease.url}, lost")


def _promise(request: Request, outcome: Outcome, lent: Lent, *, single: bool) -> Promise:
    """What a finished visit promises its host."""
    start = lent.at if _from_start(request) else request.ended
    least = start + to_ms(least_delay(request))
    until = max(least, request.ended + to_ms(patience(outcome)))
    # With several slots a wake may go by another visit's end, so nothing is left to promise.
    after_wake = least if single else 0
    return Promise(lent.finished_by or 0, until, after_wake, f"after {request.lease.url}")


def _least(manners: Politeness) -> float:
    return manners.delay if manners.delay >= 0 else manners.min_delay


def least_delay(request: Request) -> float:
    """D1, at least: the clamp of what the host itself measured, and its Crawl-delay."""
    manners = request.lease.rules.politeness
    known = not isinstance(request.outcome, Unreachable)  # how long nobody answered is not told
    took = (request.ended - request.started) / 1000 if known else 0.0
    chosen = max(min(manners.factor * took, manners.max_delay), manners.min_delay)
    chosen = manners.delay if manners.delay >= 0 else chosen
    asked = request.outcome.crawl_delay if isinstance(request.outcome, Done) else None
    return max(chosen, pace(manners), min(asked or 0.0, manners.respect_crawl_delay))


def patience(outcome: Outcome) -> float:
    """D3, D4, at least: what the host asked for, or 30 s."""
    if isinstance(outcome, Throttled):
        return max(outcome.retry_after or 0.0, SHORTEST_SNOOZE)
    return SHORTEST_SNOOZE if isinstance(outcome, Unreachable) else 0.0
