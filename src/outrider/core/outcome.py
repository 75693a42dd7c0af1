"""Outcomes of a visit, and what a done task keeps of the last answer (B1, G0, G3).

`Outcome` is a closed union: every reader ends its match in `assert_never`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

TOO_MANY_REQUESTS: Final = 429
SERVICE_UNAVAILABLE: Final = 503
TRY_AGAIN: Final = frozenset({408, 425})  # a time limit, and too early


class Done(msgspec.Struct, frozen=True, gc=False):
    """The host answered: 2xx, 304, 3xx handed on, 401, 403, 404, 410, other 4xx."""

    status: int
    seconds: float = 0.0
    bytes: int = 0
    digest: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    crawl_delay: float | None = None
    revisit_in: float | None = None
    reward: float | None = None
    from_cache: bool = False
    throttled: float | None = None


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The visit failed and may be tried again: 408, 425, 5xx, a time limit, a cut body."""

    reason: str
    seconds: float = 0.0
    retry_in: float | None = None
    crawl_delay: float | None = None


class Throttled(msgspec.Struct, frozen=True, gc=False):
    """The host asked to slow down: 429, or 503 with Retry-After."""

    retry_after: float | None = None
    seconds: float = 0.0
    crawl_delay: float | None = None


class Blocked(msgspec.Struct, frozen=True, gc=False):
    """The host refused the crawler: a challenge or denial page."""

    reason: str
    seconds: float = 0.0
    crawl_delay: float | None = None


class Unreachable(msgspec.Struct, frozen=True, gc=False):
    """The host could not be reached: DNS, connect, TLS."""

    reason: str
    crawl_delay: float | None = None


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """The crawler chose not to visit: robots.txt, an off-scope redirect, type, size.

    Without a request (`visited=False`) the host was not visited, so its delay does not start again.
    """

    reason: str
    seconds: float = 0.0
    crawl_delay: float | None = None
    visited: bool = True


class Again(msgspec.Struct, frozen=True, gc=False):
    """The task goes back to its queue, with other fields if they are given; this is no failure.

    It is due after `delay` seconds, in its old place, or before all others with `front`. Without a
    request (`visited=False`) the host was not visited and no attempt counts.
    """

    reason: str | None = None
    seconds: float = 0.0
    delay: float = 0.0
    meta: Mapping[str, Any] | None = None  # None: as it was
    type: str | None = None
    priority: float | str | None = None
    front: bool = False
    visited: bool = True
    crawl_delay: float | None = None


Outcome: TypeAlias = Done | Failed | Throttled | Blocked | Unreachable | Dropped | Again


def outcome_of(
    status: int,
    *,
    seconds: float = 0.0,
    bytes: int = 0,
    retry_after: float | None = None,
    etag: str | None = None,
    last_modified: str | None = None,
    digest: str | None = None,
) -> Done | Failed | Throttled:
    """Return the outcome of an HTTP status (G0); `retry_after` is the header in seconds.

    A visit without an answer is Unreachable, Failed, Blocked or Dropped: the caller knows which.
    """
    asked_to_wait = status == SERVICE_UNAVAILABLE and retry_after is not None
    if status == TOO_MANY_REQUESTS or asked_to_wait:
        return Throttled(retry_after, seconds)
    if 200 <= status < 500 and status not in TRY_AGAIN:
        return Done(status, seconds, bytes, digest, etag, last_modified)
    return Failed(f"status {status}", seconds, retry_after)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a done task keeps: the last answer, and counts to estimate its change rate."""

    status: int
    bytes: int
    digest: str | None
    etag: str | None
    last_modified: str | None
    looks: int = 0  # visits that could tell whether the page had changed; older ones count less
    changes: int = 0  # of those, how many found it changed
    watched: float = 0.0  # seconds, each wait counted up to the change it ended with
    planned: float = 0.0  # seconds the policy chose until the next visit; 0: it did not


class Last(msgspec.Struct, frozen=True, gc=False):
    """The last answer to a task that is visited again, and how old it is."""

    answer: Answer
    age: float  # seconds since that visit ended
