"""Builders of tasks, rules and verdicts for tests of stores.

Fingerprints come from `core.url` and verdicts from `core.decide`, as in a real crawl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import urlsplit

import msgspec

from outrider.core.breakdown import Breakdown
from outrider.core.decide import Policy, decide
from outrider.core.outcome import (
    Again,
    Blocked,
    Done,
    Dropped,
    Failed,
    Outcome,
    Throttled,
    Unreachable,
)
from outrider.core.policy.lanes import Lanes
from outrider.core.policy.retry import Retry
from outrider.core.policy.rules import (
    BUDGET_FIELDS,
    POLITENESS_FIELDS,
    QUEUE_FIELDS,
    CrawlRules,
    Limits,
    QueueRules,
    override_rules,
)
from outrider.core.policy.score import Score, explicit
from outrider.core.policy.weights import TYPE_WEIGHTS
from outrider.core.task import DISCOVERY, KnownRule, Lease, Task
from outrider.core.url import fingerprint
from outrider.core.verdict import Verdict

URL: Final = "https://a.example/1"


class TaskFields(TypedDict, total=False):
    """Keyword arguments of `task`."""

    crawl: str
    key: str
    fingerprint: bytes
    type: str
    lane: int
    depth: int
    precedence: int
    priority: float
    cost: int
    delay: float
    known: KnownRule
    roll: int
    origin: str
    via: str | None
    tag: str | None
    meta: bytes
    breakdown: Breakdown | None
    text: str
    typed_by: str
    done: bool


_PLAIN: Final[TaskFields] = {
    "crawl": "default",
    "type": "page",
    "lane": DISCOVERY,
    "depth": 0,
    "precedence": 1,
    "priority": 0.0,
    "cost": 1,
}


def task(url: str = URL, **fields: Unpack[TaskFields]) -> Task:
    """Return a task with the host as key, the URL's fingerprint and cost 1, unless given."""
    given: dict[str, Any] = {
        **_PLAIN,
        "key": urlsplit(url).hostname or "",
        "fingerprint": fingerprint(url),
        **fields,
    }
    return Task(url=url, **given)


class RuleFields(TypedDict, total=False):
    """Keyword arguments of `rules`: of politeness, budget and queue state, then of the crawl."""

    factor: float
    min_delay: float
    max_delay: float
    respect_crawl_delay: float
    count_from: str
    max_in_flight: int
    delay: float
    delay_to: float
    visits_per_second: float
    kb_per_second: float
    blocks_to_snooze: int
    hold_queues: bool
    balance: int
    total_budget: int
    error_penalty: int
    max_done: int
    max_bytes: int
    precedence: int
    paused: bool
    retired: bool
    keys: Mapping[str, Mapping[str, object]]
    said: Mapping[str, Mapping[str, object]]
    order: str
    tie: str
    breadth_discount: float
    max_pending: int
    max_pending_per_queue: int
    burst: int
    max_retries: int
    max_crashes: int
    pause_at_finish: bool
    limits: Mapping[str, float]
    opens_below: float | None
    stay_open: bool


_OF_A_QUEUE: Final = POLITENESS_FIELDS | BUDGET_FIELDS | QUEUE_FIELDS


def rules(**fields: Unpack[RuleFields]) -> CrawlRules:
    """Return crawl rules from flat names; others have their defaults."""
    given: dict[str, Any] = dict(fields)
    limits = Limits(**given.pop("limits", {}))
    of_a_queue = {name: given.pop(name) for name in _OF_A_QUEUE & given.keys()}
    return CrawlRules(queue=override_rules(QueueRules(), of_a_queue), limits=limits, **given)


def _by_type(lease: Lease, kind: str) -> Score:
    return explicit(TYPE_WEIGHTS.get(kind, TYPE_WEIGHTS["default"]) + lease.depth)


POLICY: Final = Policy(Retry(), Lanes(), _by_type)


def policy(*, max_retries: int) -> Policy:
    """Return the default policy with another number of retries."""
    return Policy(Retry(max_retries=max_retries), Lanes(), _by_type)


class Circumstances(TypedDict, total=False):
    """Keyword arguments of `verdict`."""

    roll: float
    policy: Policy
    links: Sequence[Task]


def verdict(lease: Lease, outcome: Outcome, **around: Unpack[Circumstances]) -> Verdict:
    """Return the verdict that `decide` makes of an outcome; roll 0 and no links unless given."""
    decided = decide(lease, outcome, around.get("policy", POLICY), around.get("roll", 0.0))
    return msgspec.structs.replace(decided, tasks=tuple(around.get("links", ())))


class DoneFields(TypedDict, total=False):
    """Keyword arguments of `done`."""

    status: int
    seconds: float
    bytes: int
    digest: str
    etag: str
    crawl_delay: float
    revisit_in: float
    from_cache: bool
    throttled: float


def done(lease: Lease, *, links: Sequence[Task] = (), **fields: Unpack[DoneFields]) -> Verdict:
    """Return the verdict of an answered visit."""
    answer: DoneFields = {"status": 200, **fields}
    return verdict(lease, Done(**answer), links=links)


def failed(
    lease: Lease, reason: str = "HTTP 500", *, seconds: float = 0.0, retry_in: float | None = None
) -> Verdict:
    """Return the verdict of a failed visit."""
    return verdict(lease, Failed(reason, seconds, retry_in))


def throttled(lease: Lease, retry_after: float | None = None) -> Verdict:
    """Return the verdict of a throttled visit."""
    return verdict(lease, Throttled(retry_after))


def blocked(lease: Lease, reason: str = "challenge") -> Verdict:
    """Return the verdict of a blocked visit."""
    return verdict(lease, Blocked(reason))


def unreachable(lease: Lease, reason: str = "DNS") -> Verdict:
    """Return the verdict of a visit to an unreachable host."""
    return verdict(lease, Unreachable(reason))


def dropped(lease: Lease, reason: str = "robots") -> Verdict:
    """Return the verdict of a visit that was not made."""
    return verdict(lease, Dropped(reason))


class AgainFields(TypedDict, total=False):
    """Keyword arguments of `again`."""

    reason: str
    seconds: float
    delay: float
    meta: Mapping[str, Any]
    type: str
    priority: float | str
    front: bool
    visited: bool
    crawl_delay: float


def again(lease: Lease, **fields: Unpack[AgainFields]) -> Verdict:
    """Return the verdict of a visit whose task goes back to its queue."""
    return verdict(lease, Again(**fields))


OUTCOMES: Final[Mapping[str, Outcome]] = {
    "done": Done(status=200),
    "failed": Failed("HTTP 500"),
    "throttled": Throttled(),
    "blocked": Blocked("challenge"),
    "unreachable": Unreachable("DNS"),
    "dropped": Dropped("robots"),
    "cached": Done(status=200, from_cache=True),
    "again": Again("later"),
}  # one of each kind
