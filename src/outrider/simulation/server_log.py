"""The servers' log of requests, and its check of spacing and concurrency (D1 to D4).

The store is not asked. A request is checked by the instants at its host, by the host's earlier
answers, and by the rules in the worker's lease.
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
from outrider.testing.lease_history import require
from outrider.testing.visit_history import VisitHistory, VisitLease

MIN_SNOOZE: Final = 30.0  # seconds


class Request(msgspec.Struct, eq=False):
    """One request at its host; `ended` is when its last byte was sent, or it was cut off."""

    lease: Lease
    started: int
    ended: int = 0
    outcome: Outcome | None = None  # None: the worker crashed


class Promise(msgspec.Struct, eq=False):
    """No later call may bring a request before `until`; after a wake, before `least`."""

    call: int
    until: int
    least: int
    why: str


class ServerLog:
    """All requests, in the order they arrived."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def begin(self, lease: Lease, now: int) -> Request:
        """Record the start of a request."""
        request = Request(lease, now)
        self.requests.append(request)
        return request

    def check(self, visits: VisitHistory) -> None:
        """Raise `InvariantBroken` for the first request that was too soon or one too many."""
        by_key: defaultdict[str, list[Request]] = defaultdict(list)
        for request in self.requests:
            by_key[request.lease.key].append(request)
        for key, requests in by_key.items():
            _check_concurrency(key, requests)
            _check_spacing(key, requests, visits)
            _check_pace(requests, visits)


def _check_concurrency(key: str, requests: list[Request]) -> None:
    """Check concurrency by the largest limit in the open requests' leases (D2)."""
    open_: list[Request] = []
    for request in requests:
        open_ = [other for other in open_ if other.ended > request.started]
        open_.append(request)
        limit = max(other.lease.rules.politeness.max_in_flight for other in open_)
        require(
            len(open_) <= limit, "D2", f"{key} served {len(open_)} requests at once, of {limit}"
        )


def _check_pace(requests: list[Request], visits: VisitHistory) -> None:
    """Check visits per second over all slots, between two claims with a request each (D1)."""
    leases = sorted(
        (visits.leases[one.lease.id] for one in requests), key=lambda leased: leased.call
    )
    for before, leased in pairwise(leases):
        early = before.at + to_ms(pace(leased.lease.rules.politeness)) - leased.at
        detail = f"{leased.lease.url} was leased {early} ms too soon for its visits a second"
        require(before.call == leased.call or early <= 0, "D1", detail)


def _check_spacing(key: str, requests: list[Request], visits: VisitHistory) -> None:
    """Check that no request came before an instant that was promised (D1, D3, D4, E7)."""
    promises = [*_snoozes(key, visits), *_promises(requests, visits)]
    wakes = [call for woken, call in visits.wakes if woken == key]
    for request in requests:
        leased = visits.leases[request.lease.id]
        counted = _counted(request, leased)
        for promise in promises:
            if promise.until > counted and promise.call < leased.call:
                woken = any(promise.call < wake < leased.call for wake in wakes)
                early = (promise.least if woken else promise.until) - counted
                detail = f"{request.lease.url} came {early} ms early: {promise.why}"
                require(early <= 0, "D1", detail)


def _counted(request: Request, leased: VisitLease) -> int:
    """Return the instant that counts: of the claim if delays count from the start."""
    return leased.at if _from_start(request) else request.started


def _from_start(request: Request) -> bool:
    return request.lease.rules.politeness.count_from == "start"


def _snoozes(key: str, visits: VisitHistory) -> Iterable[Promise]:
    for snoozed, call, until in visits.snoozes:
        if snoozed == key:
            yield Promise(call, until, 0, "the operator snoozed it")


def _promises(requests: list[Request], visits: VisitHistory) -> Iterable[Promise]:
    single = all(r.lease.rules.politeness.max_in_flight == 1 for r in requests)
    floor = min(_least(request.lease.rules.politeness) for request in requests)
    for request in requests:
        leased = visits.leases[request.lease.id]
        if leased.finished_by is not None and request.outcome is not None:
            yield _promise(request, request.outcome, leased, single=single)
        elif single and not _from_start(request):  # D7: its end counts, with the least delay
            until = request.ended + to_ms(floor)
            yield Promise(leased.call, until, until, f"after {request.lease.url}, lost")


def _promise(request: Request, outcome: Outcome, leased: VisitLease, *, single: bool) -> Promise:
    """Return the promise to a host after a finished visit."""
    start = leased.at if _from_start(request) else request.ended
    least = start + to_ms(least_delay(request))
    until = max(least, request.ended + to_ms(min_snooze(outcome)))
    # With several slots a wake may count from another visit's end, so nothing is promised.
    after_wake = least if single else 0
    return Promise(leased.finished_by or 0, until, after_wake, f"after {request.lease.url}")


def _least(politeness: Politeness) -> float:
    return politeness.delay if politeness.delay >= 0 else politeness.min_delay


def least_delay(request: Request) -> float:
    """Return the least delay after a request, by its duration at the host (D1)."""
    politeness = request.lease.rules.politeness
    known = not isinstance(request.outcome, Unreachable)  # a host without an answer has no duration
    took = (request.ended - request.started) / 1000 if known else 0.0
    chosen = max(min(politeness.factor * took, politeness.max_delay), politeness.min_delay)
    chosen = politeness.delay if politeness.delay >= 0 else chosen
    asked = request.outcome.crawl_delay if isinstance(request.outcome, Done) else None
    return max(chosen, pace(politeness), min(asked or 0.0, politeness.respect_crawl_delay))


def min_snooze(outcome: Outcome) -> float:
    """Return the least snooze after an outcome: what the host asked for, or 30 s (D3, D4)."""
    if isinstance(outcome, Throttled):
        return max(outcome.retry_after or 0.0, MIN_SNOOZE)
    return MIN_SNOOZE if isinstance(outcome, Unreachable) else 0.0
