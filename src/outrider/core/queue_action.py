"""Queue actions: what operators do to queues by key or suffix; a closed union, tagged (E7)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from outrider.core.policy.rules import Override


class Set(msgspec.Struct, frozen=True, tag=True):
    """Change rules of the queue: balance, total_budget, delay, max_in_flight, precedence, …"""

    changes: Override


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Lease none of its tasks until it is resumed."""


class Resume(msgspec.Struct, frozen=True, tag=True):
    """End a pause."""


class Retire(msgspec.Struct, frozen=True, tag=True):
    """Exclude it from the crawl; it keeps its tasks and does not keep the crawl from finishing."""


class Revive(msgspec.Struct, frozen=True, tag=True):
    """End a retirement, whatever its reason, and clear its counts in a row."""


class Snooze(msgspec.Struct, frozen=True, tag=True):
    """Lease none of its tasks for so many seconds."""

    seconds: float


class Wake(msgspec.Struct, frozen=True, tag=True):
    """End a snooze: back to the last visit's end + delay, never sooner."""


QueueAction: TypeAlias = Set | Pause | Resume | Retire | Revive | Snooze | Wake
