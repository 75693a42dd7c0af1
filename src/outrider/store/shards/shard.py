"""One shard of a crawl: a store whole in itself, but that it never ends a run.

Numbers tell their shard: a task, a queue or a cursor of shard s is s · 2^44 + its number there, so
that they stay in order from shard to shard. The first shard is every crawl's home: its status, its
rules, its notes, its workers are kept there.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from outrider.core.states import CrawlStatus
from outrider.store.protocol import ClaimRequest, ClaimResult, FullStore, ResultPage

HOME: Final = 0
SHARDS_MOST: Final = 1024
_LOCAL_BITS: Final = 44
_LOCAL_MASK: Final = (1 << _LOCAL_BITS) - 1


class Pulse(msgspec.Struct, frozen=True):
    """How one shard of a crawl is; read at every claim, so it must be cheap."""

    status: CrawlStatus
    reason: str | None
    known: int
    leased: int
    open: int  # pending, but for retired queues
    dones: int
    bytes: int
    moves: int  # grows with every add, lease, return and change of status
    is_idle: bool  # no task came since the last run ended, or ever
    max_pending: int
    is_limited: bool  # by I4


class Whole(NamedTuple):
    """What all shards of a crawl count together."""

    known: int
    leased: int
    open: int
    dones: int
    bytes: int

    @property
    def is_over(self) -> bool:
        """I2: there were tasks, and nothing unretired is left."""
        return bool(self.known) and not (self.leased or self.open)


def together(pulses: Sequence[Pulse]) -> Whole:
    """The sum of all shards."""
    return Whole(
        sum(pulse.known for pulse in pulses),
        sum(pulse.leased for pulse in pulses),
        sum(pulse.open for pulse in pulses),
        sum(pulse.dones for pulse in pulses),
        sum(pulse.bytes for pulse in pulses),
    )


class Shard(FullStore, Protocol):
    """What a store can do besides, to be a shard."""

    async def claim(self, request: ClaimRequest, *, closes: bool = True) -> ClaimResult:
        """See `protocol.Store`; without `closes` it leaves the run open whatever it finds."""
        ...

    async def pulse(self, crawl: str) -> Pulse:
        """How it is; nothing is changed, and a crawl nobody opened is an empty one."""
        ...

    async def reckon(self, crawl: str, whole: Whole, moves: int | None) -> CrawlStatus:
        """I4, I2: pause the crawl at a limit; close its run, unless this shard moved since `moves`.

        None closes nothing. Answers the status.
        """
        ...

    async def work(self, crawl: str) -> None:
        """I2: a task came somewhere, so a finished crawl runs again."""
        ...

    async def saved(self, crawl: str, *, after: int, limit: int) -> ResultPage[Any]:
        """Queues and tasks of an export, without its beginning and end.

        The cursor is never None, and stays where it is once nothing new is there.
        """
        ...


def shard_of(key: str, count: int) -> int:
    """Where a queue lives; hosts are looked for in lower case."""
    digest = blake2b(key.lower().encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def joined(shard: int, number: int) -> int:
    """A shard's number, as all others know it."""
    return shard << _LOCAL_BITS | number


def parted(number: int) -> tuple[int, int]:
    """The shard, and the number it has there."""
    return number >> _LOCAL_BITS, number & _LOCAL_MASK
