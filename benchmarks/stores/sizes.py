"""Sizes of a benchmark run."""

from __future__ import annotations

import msgspec


class Sizes(msgspec.Struct, frozen=True):
    """A full run."""

    tasks: int = 1_000_000
    queues: int = 1_000_000
    calls: int = 300  # of a kind
    peer: int = 20_000  # new URLs for peers
    held: float = 60.0  # seconds a snapshot is held
    work_seconds: float = 10.0
    cycle_seconds: float = 15.0
    cycle_rate: int = 9_000  # visits a second that there is work for
    crew_tasks: int = 400_000
    crew_seconds: float = 5.0


def quick() -> Sizes:
    """A quick run: targets for a size are checked at a smaller one."""
    return Sizes(
        tasks=50_000,
        queues=50_000,
        calls=60,
        peer=4_000,
        held=10.0,
        work_seconds=2.0,
        cycle_seconds=5.0,
        cycle_rate=6_000,
        crew_tasks=60_000,
        crew_seconds=1.5,
    )
