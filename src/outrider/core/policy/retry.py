"""Retries: how long a failed task waits, and when it is dead (G1)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

_DAY = 86_400.0
_Retries = Annotated[
    int,
    Meta(
        ge=0,
        le=1000,
        description="failures after which a task is retried; the next one makes it dead",
    ),
]
_Base = Annotated[float, Meta(ge=0, le=_DAY, description="seconds after the first failure")]
_Cap = Annotated[
    float, Meta(ge=0, le=30 * _DAY, description="maximum of the wait, in seconds, before jitter")
]
_Jitter = Annotated[float, Meta(ge=0, le=10, description="share of the wait added at random")]
_Spread = Annotated[float, Meta(ge=0, le=_DAY, description="seconds added at random")]


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Waits that double: base·2ⁿ⁻¹ up to the cap, plus jitter."""

    max_retries: _Retries = 3
    base: _Base = 1.0
    cap: _Cap = 300.0
    jitter: _Jitter = 0.5
    spread: _Spread = 0.0


COOLDOWN = Backoff(base=900.0, cap=_DAY, jitter=0.0, spread=300.0)


class Retry(Backoff, frozen=True, forbid_unknown_fields=True):
    """The policy for failures, with the exceptions: blocked visits, and types of task."""

    blocked: Backoff = COOLDOWN
    types: dict[str, Backoff] = {}
    every_failure: Annotated[
        bool,
        Meta(
            description="true: a throttled or unreachable visit fails its task, as any other, and"
            " its queue does not wait; for queues that hold many hosts"
        ),
    ] = False

    def for_failed(self, kind: str) -> Backoff:
        """The policy for a failed task of this type."""
        return self.types.get(kind, self)


def wait_after(failures: int, policy: Backoff, roll: float) -> float:
    """Return the seconds until a task is due after its n-th failure; `roll` is random."""
    wait = min(policy.base * 2.0 ** min(failures - 1, 64), policy.cap)
    return wait * (1 + policy.jitter * roll) + policy.spread * roll


def gives_up(failures: int, policy: Backoff) -> bool:
    """Tell whether this failure is one more than the policy allows."""
    return failures > policy.max_retries
