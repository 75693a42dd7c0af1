"""The decision after a visit: (lease, outcome, policy, roll) → Verdict (D3, D4, G1, G3).

A verdict is plain numbers. Counts of the *task* are changes; counts of the *queue* are set from
what the lease carried, so that N concurrent throttles count once (D3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, assert_never

import msgspec

from outrider.core.link_validation import (
    DEFAULT_MAX_META,
    MAX_META,
    meta_of_outcome,
    priority_error,
    priority_number,
    type_error,
)
from outrider.core.outcome import (
    Again,
    Answer,
    Blocked,
    Done,
    Dropped,
    Failed,
    Last,
    Outcome,
    Throttled,
    Unreachable,
)
from outrider.core.policy.change_rate import updated_answer
from outrider.core.policy.lanes import Lanes
from outrider.core.policy.politeness import (
    DONE_TO_CALM,
    THROTTLES_TO_RETIRE,
    UNREACHABLE_TO_RETIRE,
    delay_after,
    throttle_snooze,
    unreachable_snooze,
)
from outrider.core.policy.retry import Backoff, Retry, gives_up, wait_after
from outrider.core.policy.score import Score, explicit
from outrider.core.states import TaskState
from outrider.core.task import Lease
from outrider.core.verdict import Requeue, Revisit, Verdict

FREE_THROTTLES: Final = 4  # D3: a task keeps its attempts this often, then each counts
REFRESH: Final = "refresh"
_MAX_SECONDS: Final = 10 * 365 * 86_400.0
_MAX_BYTES: Final = 2**53
_REASON_LENGTH: Final = 1000


class Policy(msgspec.Struct, frozen=True):
    """The settings that `decide` needs beside the lease."""

    retry: Retry
    lanes: Lanes
    score: Callable[[Lease, str], Score]  # the priority of a task that comes back as this type
    revisit_in: Callable[[Answer, Last | None], float | None] | None = None  # None: no revisits
    max_meta: int = DEFAULT_MAX_META  # bytes of JSON that a task may come back with


def decide(lease: Lease, outcome: Outcome, policy: Policy, roll: float) -> Verdict:
    """Return the verdict for an outcome; `roll` in [0, 1) is drawn by the caller."""
    match outcome:
        case Done():
            return _done(lease, outcome, policy, roll)
        case Failed():
            return _failed(lease, outcome, policy, roll)
        case Throttled():
            return _throttled(lease, outcome, policy, roll)
        case Blocked():
            return _blocked(lease, outcome, policy, roll)
        case Unreachable():
            return _unreachable(lease, outcome, policy, roll)
        case Dropped():
            return _dropped(lease, outcome, roll)
        case Again():
            return _again(lease, outcome, policy, roll)
        case _:
            assert_never(outcome)


def outcome_error(outcome: object) -> str | None:
    """Return what is wrong with an outcome that a user passed, or None."""
    if type(outcome) is Done and _is_ordinary(outcome):
        return None
    if not isinstance(outcome, Outcome):
        return f"an outcome is one of Done, Failed, Throttled, …, not {type(outcome).__name__}"
    for name in outcome.__struct_fields__:
        value = getattr(outcome, name)
        is_given = name in _NEVER_NONE or value is not None
        if name in _DURATIONS and is_given and not _is_duration(value):
            return f"{type(outcome).__name__}.{name} = {value!r} must be seconds, finite and ≥ 0"
    return _fault_of_kind(outcome)


def new_meta_error(outcome: object, most: int) -> str | None:
    """Return what is wrong with the length of the meta that a task is given; None: nothing (B1).

    `most` is the crawl's limit, which an outcome alone does not know.
    """
    if not isinstance(outcome, Again) or not outcome.meta:
        return None
    meta = meta_of_outcome(outcome.meta, most)
    return f"Again: {meta}" if isinstance(meta, str) else None


def _is_ordinary(outcome: Done) -> bool:
    """Tell cheaply whether an outcome needs no further checks; almost all are such."""
    return (
        type(outcome.seconds) is float
        and 0.0 <= outcome.seconds <= _MAX_SECONDS
        and type(outcome.status) is int
        and type(outcome.bytes) is int
        and 0 <= outcome.bytes < _MAX_BYTES
        and outcome.crawl_delay is outcome.revisit_in is outcome.reward is outcome.throttled is None
    )


def _is_duration(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= _MAX_SECONDS  # type: ignore[operator]


_DURATIONS: Final = frozenset(
    {"seconds", "crawl_delay", "revisit_in", "throttled", "retry_in", "retry_after", "delay"}
)


_NEVER_NONE: Final = frozenset({"seconds", "delay"})


def _fault_of_kind(outcome: Outcome) -> str | None:
    if isinstance(outcome, Dropped | Again) and type(outcome.visited) is not bool:
        name = type(outcome).__name__
        return f"{name}.visited = {outcome.visited!r} must be True or False"
    if isinstance(outcome, Again):
        error = _again_error(outcome)
        return None if error is None else f"Again: {error}"
    if not isinstance(outcome, Done):
        reason = getattr(outcome, "reason", "")
        return None if isinstance(reason, str) else f"a reason is text, not {reason!r}"
    if not isinstance(outcome.status, int) or not isinstance(outcome.bytes, int):
        return f"Done.status and Done.bytes are whole numbers, not {outcome!r}"
    if not 0 <= outcome.bytes < _MAX_BYTES:
        return f"Done.bytes = {outcome.bytes} must be between 0 and 2^53"
    reward = outcome.reward
    if reward is not None and not (isinstance(reward, int | float) and math.isfinite(reward)):
        return f"Done.reward = {outcome.reward!r} must be finite"
    return None


def _again_error(outcome: Again) -> str | None:
    """Return what is wrong with the fields that a task gets; they have the limits of a link's."""
    given = outcome.meta
    reason, meta = outcome.reason, None if given is None else meta_of_outcome(given, MAX_META)
    if reason is not None and not isinstance(reason, str):
        return f"a reason is text, not {reason!r}"
    if type(outcome.front) is not bool:
        return f"front = {outcome.front!r} must be True or False"
    if outcome.priority is not None and (error := priority_error(outcome.priority)) is not None:
        return error
    if outcome.type is not None and (error := type_error(outcome.type)) is not None:
        return error
    return meta if isinstance(meta, str) else None


def _done(lease: Lease, outcome: Done, policy: Policy, roll: float) -> Verdict:
    if outcome.from_cache:
        return _from_cache(lease, outcome, policy, roll)
    # D3: the tenth Done in a row lowers the level, and its own delay is already the lower one.
    level = lease.manners.level - (
        lease.manners.level > 0 and lease.manners.calm + 1 >= DONE_TO_CALM
    )
    answer, revisit = _answer_and_revisit(lease, outcome, policy)
    crawl_delay = lease.manners.crawl_delay if outcome.crawl_delay is None else outcome.crawl_delay
    politeness = lease.rules.politeness
    return Verdict(  # by position: half the price, and almost every visit ends here
        lease.about.crawl,
        lease.task,
        lease.token,
        "done",
        TaskState.DONE if revisit is None else TaskState.PENDING,
        delay_after(
            politeness, outcome.seconds, outcome.bytes, crawl_delay, level, roll, lease.delay
        ),
        answer,
        0,
        0,
        0,
        DONE_TO_CALM,
        outcome.crawl_delay,
        revisit,
    )


def _from_cache(lease: Lease, outcome: Done, policy: Policy, roll: float) -> Verdict:
    """D5: the task is done, the visit refunded; the host is untouched unless it throttled."""
    answer, revisit = _answer_and_revisit(lease, outcome, policy)
    verdict = Verdict(
        *_lease_and_outcome(lease, outcome),
        TaskState.DONE if revisit is None else TaskState.PENDING,
        counts=False,
        touched=False,
        answer=answer,
        revisit=revisit,
    )
    if outcome.throttled is None or policy.retry.every_failure:
        return verdict
    return _throttling(lease, outcome, verdict, outcome.throttled, roll)


def _throttling(
    lease: Lease, outcome: Done | Throttled, verdict: Verdict, retry_after: float, roll: float
) -> Verdict:
    """Snooze the queue (D3); level and row are the lease's + 1, however many throttle at once."""
    level, in_row = lease.manners.level + 1, lease.manners.throttles_in_row + 1
    return msgspec.structs.replace(
        verdict,
        touched=True,
        delay=_delay(lease, outcome, level, roll),
        crawl_delay=outcome.crawl_delay,
        snooze=throttle_snooze(level, retry_after, roll),
        snooze_reason="throttled",
        retire="throttled" if in_row >= THROTTLES_TO_RETIRE else None,
        level=level,
        throttles_in_row=in_row,
        unreachable_in_row=0,
        blocks_in_row=0,
        calm=0,
    )


def _throttled(lease: Lease, outcome: Throttled, policy: Policy, roll: float) -> Verdict:
    if policy.retry.every_failure:
        return _failed_by_host(lease, outcome, policy, roll)
    counts = lease.throttles >= FREE_THROTTLES
    dead = counts and gives_up(lease.failures + 1, policy.retry.for_failed(lease.type))
    verdict = Verdict(
        *_lease_and_outcome(lease, outcome),
        TaskState.DEAD if dead else TaskState.PENDING,
        counts=counts,
        failed=int(counts),
        throttled=1,
        reason="throttled",
    )
    return _throttling(lease, outcome, verdict, outcome.retry_after or 0.0, roll)


def _failed(lease: Lease, outcome: Failed, policy: Policy, roll: float) -> Verdict:
    backoff = policy.retry.for_failed(lease.type)
    return Verdict(
        *_lease_and_outcome(lease, outcome),
        _state_after_failure(lease, backoff),
        failed=1,
        retry_in=_retry_in(lease, outcome.retry_in, backoff, roll),
        reason=outcome.reason[:_REASON_LENGTH],
        penalty=lease.rules.budget.error_penalty,
        delay=_delay(lease, outcome, lease.manners.level, roll),
        crawl_delay=outcome.crawl_delay,
        unreachable_in_row=0,
        blocks_in_row=0,
        calm=0,
    )


def _failed_by_host(
    lease: Lease, outcome: Throttled | Unreachable, policy: Policy, roll: float
) -> Verdict:
    """Fail the task alone (G1): its queue holds other hosts, which are not to wait (D3, D4)."""
    if isinstance(outcome, Throttled):
        reason, least = "throttled", outcome.retry_after or 0.0
    else:
        reason, least = outcome.reason, 0.0
    verdict = _failed(lease, Failed(reason, crawl_delay=outcome.crawl_delay), policy, roll)
    return msgspec.structs.replace(
        verdict,
        outcome=type(outcome).__name__.lower(),
        delay=_delay(lease, outcome, lease.manners.level, roll),
        retry_in=max(verdict.retry_in, least),
    )


def _blocked(lease: Lease, outcome: Blocked, policy: Policy, roll: float) -> Verdict:
    backoff, in_row = policy.retry.blocked, lease.manners.blocks_in_row + 1
    allowed = lease.rules.politeness.blocks_to_snooze
    held = in_row - allowed + 1 if allowed else 0  # D4: the n-th snooze of the row
    return Verdict(
        *_lease_and_outcome(lease, outcome),
        _state_after_failure(lease, backoff),
        failed=1,
        retry_in=_retry_in(lease, None, backoff, roll),
        reason=outcome.reason[:_REASON_LENGTH],
        penalty=lease.rules.budget.error_penalty,
        delay=_delay(lease, outcome, lease.manners.level, roll),
        crawl_delay=outcome.crawl_delay,
        snooze=wait_after(held, backoff, roll) if held > 0 else 0.0,
        snooze_reason="blocked" if held > 0 else None,
        unreachable_in_row=0,
        blocks_in_row=in_row,
        calm=0,
    )


def _unreachable(lease: Lease, outcome: Unreachable, policy: Policy, roll: float) -> Verdict:
    if policy.retry.every_failure:
        return _failed_by_host(lease, outcome, policy, roll)
    in_row = lease.manners.unreachable_in_row + 1
    return Verdict(
        *_lease_and_outcome(lease, outcome),
        TaskState.PENDING,
        counts=False,
        reason=outcome.reason[:_REASON_LENGTH],
        delay=_delay(lease, outcome, lease.manners.level, 0.0),
        crawl_delay=outcome.crawl_delay,
        snooze=unreachable_snooze(in_row),
        snooze_reason="unreachable",
        retire="unreachable" if in_row >= UNREACHABLE_TO_RETIRE else None,
        unreachable_in_row=in_row,
        blocks_in_row=0,
        calm=0,
    )


def _dropped(lease: Lease, outcome: Dropped, roll: float) -> Verdict:
    """Drop the task (D4, D7); the queue waits only if the host was visited."""
    return Verdict(
        *_lease_and_outcome(lease, outcome),
        TaskState.DROPPED,
        counts=False,
        reason=outcome.reason[:_REASON_LENGTH],
        delay=_delay(lease, outcome, lease.manners.level, roll),
        crawl_delay=outcome.crawl_delay,
        touched=outcome.visited,
    )


def _again(lease: Lease, outcome: Again, policy: Policy, roll: float) -> Verdict:
    """Return the task to its queue (G1): no failure, and no sign of how the host is (D3, D4)."""
    reason, meta = outcome.reason, _new_meta(outcome, policy)
    if isinstance(meta, str):  # the limit was lowered since the outcome was checked
        return _failed(lease, Failed(f"Again: {meta}", seconds=outcome.seconds), policy, roll)
    return Verdict(
        *_lease_and_outcome(lease, outcome),
        TaskState.PENDING,
        counts=outcome.visited,
        reason=None if reason is None else reason[:_REASON_LENGTH],
        delay=_delay(lease, outcome, lease.manners.level, roll),
        crawl_delay=outcome.crawl_delay,
        touched=outcome.visited,
        requeue=_requeue(lease, outcome, meta, policy),
    )


def _new_meta(outcome: Again, policy: Policy) -> bytes | str | None:
    """Return the meta that the task gets, or what is wrong with it; None: it keeps its own."""
    if not outcome.meta:
        return None if outcome.meta is None else b""
    return meta_of_outcome(outcome.meta, policy.max_meta)


def _requeue(lease: Lease, outcome: Again, meta: bytes | None, policy: Policy) -> Requeue:
    about, kind = lease.about, lease.type if outcome.type is None else outcome.type
    changed = about if meta is None else msgspec.structs.replace(about, meta=meta)
    score = _new_score(msgspec.structs.replace(lease, about=changed), outcome, kind, policy)
    return Requeue(
        outcome.delay,
        kind,
        about.lane if kind == lease.type else policy.lanes.lane_of(kind),
        0 if outcome.front else about.precedence,
        about.priority if score is None else score.priority,
        about.breakdown if score is None else score.breakdown,
        meta,
        outcome.front,
    )


def _new_score(lease: Lease, outcome: Again, kind: str, policy: Policy) -> Score | None:
    """Return the explicit score, or that of another type (F8); None: the task keeps its own."""
    if outcome.priority is not None:
        return explicit(priority_number(outcome.priority) + 0.0)
    return None if kind == lease.type else policy.score(lease, kind)


def _lease_and_outcome(lease: Lease, outcome: Outcome) -> tuple[str, int, int, str]:
    return lease.crawl, lease.task, lease.token, type(outcome).__name__.lower()


def _delay(lease: Lease, outcome: Outcome, level: int, roll: float) -> float:
    """Compute the delay (D1); a Crawl-delay read in this visit already applies to it."""
    seconds = 0.0 if isinstance(outcome, Unreachable) else outcome.seconds
    asked = outcome.crawl_delay
    crawl_delay = lease.manners.crawl_delay if asked is None else asked
    return delay_after(lease.rules.politeness, seconds, 0, crawl_delay, level, roll, lease.delay)


def _state_after_failure(lease: Lease, backoff: Backoff) -> TaskState:
    return TaskState.DEAD if gives_up(lease.failures + 1, backoff) else TaskState.PENDING


def _retry_in(lease: Lease, asked: float | None, backoff: Backoff, roll: float) -> float:
    return wait_after(lease.failures + 1, backoff, roll) if asked is None else asked


def _answer_and_revisit(
    lease: Lease, outcome: Done, policy: Policy
) -> tuple[Answer, Revisit | None]:
    """Return the answer to keep, and the revisit (G3); the caller's `revisit_in` wins."""
    answer, after = updated_answer(lease.last, outcome), outcome.revisit_in
    if after is None and policy.revisit_in is not None:
        after = policy.revisit_in(answer, lease.last)
        answer = msgspec.structs.replace(answer, planned=after or 0.0)
    return answer, None if after is None else _revisit(lease, after, policy)


def _revisit(lease: Lease, after: float, policy: Policy) -> Revisit:
    score = policy.score(lease, REFRESH)
    return Revisit(
        after,
        REFRESH,
        policy.lanes.lane_of(REFRESH),
        max(1, lease.about.cost),
        score.priority,
        score.breakdown,
    )
