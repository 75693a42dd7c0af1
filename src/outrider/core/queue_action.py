"""Queue actions: what operators do to queues by key or suffix; a closed union, tagged (E7)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from outrider.core.policy.rules import Override


class Set(msgspec.Struct, frozen=True, tag=True):
    """Change what holds: balance, total_budget, delay, max_in_flight, precedence, …"""

    changes: Override


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Lend nothing of it until resumed."""


class Resume(msgspec.Struct, frozen=True, tag=True):
    """End a pause."""


class Retire(msgspec.Struct, frozen=True, tag=True):
    """Set it aside; it keeps its tasks and does not hold up the crawl."""


class Revive(msgspec.Struct, frozen=True, tag=True):
    """End a retirement, whatever its reason, and clear its counts in a row."""


class Snooze(msgspec.Struct, frozen=True, tag=True):
    """Leave it alone for so many seconds."""

    seconds: float


class Wake(msgspec.Struct, frozen=True, tag=True):
    """End a snooze: back to the last visit's end + delay, never sooner."""


QueueAction: TypeAlias = Set | Pause | Resume | Retire | Revive | Snooze | Wake
