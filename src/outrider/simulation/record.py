"""The servers' own record of who came when, and its judgement: spacing and concurrency (D1 to D4).

The store is not asked. A request is judged by the instants its host saw, by what the host answered
before, and by the rules its visitor was given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from outrider.clock import to_ms
from outrider.core.act import Snooze, Wake
from outrider.core.outcome import Done, Outcome, Throttled, Unreachable
from outrider.core.policy.politeness import Politeness
from outrider.core.task import Lease
from outrider.simulation.umpire import Umpire, matches
from outrider.testing.ledger import InvariantBroken, require


class Request(msgspec.Struct, eq=False):
    """One request as its host saw it; `ended` is when the host's last byte left, or the cut."""

    lease: Lease
    started: int
    ended: int = 0
    outcome: Outcome | None = None  # None: the visitor died


class Promise(msgspec.Struct, eq=False):
    """No claim after `made` may bring a request before `until`; after a wake, before `least`."""

    made: int
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


def too_soon(requests: Iterable[Request], umpire: Umpire) -> int:
    """How many requests broke a promise: the closing line of a demo says so."""
    record, count = Record(), 0
    record.requests = list(requests)
    try:
        record.judge(umpire)
    except InvariantBroken:
        count += 1
    return count


def _judge_concurrency(key: str, requests: list[Request]) -> None:
    """D2: by the most generous of the rules their leases carry."""
    open_: list[Request] = []
    for request in requests:
        open_ = [other for other in open_ if other.ended > request.started]
        open_.append(request)
        most = max(other.lease.rules.politeness.max_in_flight for other in open_)
        require(len(open_) <= most, "D2", f"{key} served {len(open_)} requests at once, of {most}")


def _judge_spacing(key: str, requests: list[Request], umpire: Umpire) -> None:
    """D1, D3, D4, E7."""
    promises = [*_snoozes(key, umpire), *filter(None, (_promise(r, umpire) for r in requests))]
    wakes = [at for at, target, act in umpire.steered if isinstance(act, Wake) and matches(target, key)]
    for request in requests:
        claimed = umpire.lent[request.lease.id].at
        for promise in promises:
            if promise.made <= claimed:
                woken = any(promise.made <= wake <= claimed for wake in wakes)
                until = promise.least if woken else promise.until
                early = until - _counted(request, claimed)
                require(early <= 0, "D1", f"{request.lease.url} came {early} ms early: {promise.why}")


def _counted(request: Request, claimed: int) -> int:
    """From the start it is promised between claims, from the end by the server's own record."""
    from_start = request.lease.rules.politeness.count_from == "start"
    return claimed if from_start else request.started


def _snoozes(key: str, umpire: Umpire) -> Iterable[Promise]:
    for at, target, act in umpire.steered:
        if isinstance(act, Snooze) and matches(target, key):
            yield Promise(at, at + to_ms(act.seconds), 0, "the operator snoozed it")


def _promise(request: Request, umpire: Umpire) -> Promise | None:
    """What a finished visit promises its host; a lost one promises nothing to be sure of."""
    lent = umpire.lent[request.lease.id]
    if lent.finished_at is None or request.outcome is None:
        return None
    manners = request.lease.rules.politeness
    start = lent.at if manners.count_from == "start" else request.ended
    least = start + to_ms(_delay(manners, request))
    until = max(least, request.ended + to_ms(_patience(request.outcome)))
    # With several slots a wake may go by another visit's end, so nothing is left to promise.
    after_wake = least if manners.max_in_flight == 1 else 0
    return Promise(lent.finished_at, until, after_wake, f"after {request.lease.url}")


def _delay(manners: Politeness, request: Request) -> float:
    """D1, at least: the clamp of what the host itself measured, and its Crawl-delay."""
    took = (request.ended - request.started) / 1000
    chosen = max(min(manners.factor * took, manners.max_delay), manners.min_delay)
    chosen = manners.delay if manners.delay >= 0 else chosen
    pace = 1 / manners.visits_per_second if manners.visits_per_second else 0.0
    asked = request.outcome.crawl_delay if isinstance(request.outcome, Done) else None
    return max(chosen, pace, min(asked or 0.0, manners.respect_crawl_delay))


def _patience(outcome: Outcome) -> float:
    """D3, D4, at least: what the host asked for, or 30 s."""
    if isinstance(outcome, Throttled):
        return max(outcome.retry_after or 0.0, 30.0)
    return 30.0 if isinstance(outcome, Unreachable) else 0.0
