"""The faulty store: a store whose calls are lost, delayed or repeated, as by a network.

It only decides how a call arrives; the store inside applies what arrives. A plan chooses the fault
of each call, and a seeded plan always chooses the same ones, so that a failure can be repeated.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from outrider.clock import Clock
from outrider.errors import StoreUnavailable
from outrider.store.forwarding import ForwardingStore
from outrider.store.protocol import FullStore, Notifies


class Fate(StrEnum):
    """What happens to a call."""

    CALM = "calm"  # nothing
    LATE = "late"  # it arrives late
    SLOW = "slow"  # its answer arrives late
    DROP = "drop"  # it never arrives
    UNKNOWN = "unknown"  # it arrives, its answer never does
    DUPLICATE = "duplicate"  # it arrives twice, and the second answer is returned


class Fault(NamedTuple):
    """A fate, and the seconds it takes."""

    fate: Fate
    seconds: float = 0.0


NO_FAULT: Final = Fault(Fate.CALM)
Plan: TypeAlias = Callable[[str], Fault]  # the name of the verb → what happens to the call


class Shares(msgspec.Struct, frozen=True):
    """How often each fault occurs, as shares of 1, and the longest delay."""

    late: float = 0.0
    slow: float = 0.0
    drop: float = 0.0
    unknown: float = 0.0
    duplicate: float = 0.0
    longest: float = 5.0  # seconds


def calm(_verb: str) -> Fault:
    """Let every call through."""
    return NO_FAULT


def seeded(shares: Shares, dice: random.Random) -> Plan:
    """Return a plan of random faults in these shares."""
    fates = (Fate.LATE, Fate.SLOW, Fate.DROP, Fate.UNKNOWN, Fate.DUPLICATE)
    edges = list(accumulate(getattr(shares, fate.value) for fate in fates))

    def plan(_verb: str) -> Fault:
        roll = dice.random()
        if roll >= edges[-1]:
            return NO_FAULT
        fate = next(fate for fate, edge in zip(fates, edges, strict=True) if roll < edge)
        return Fault(fate, dice.random() * shares.longest)

    return plan


class FaultyStore(ForwardingStore):
    """Any store behind an unreliable connection; `heal` repairs the connection."""

    def __init__(self, store: FullStore, clock: Clock, plan: Plan) -> None:
        self._store = store
        self._clock = clock
        self._plan = plan
        self.counts: Counter[str] = Counter()

    @property
    def id(self) -> str:
        """The id of the store inside: leases are the same."""
        return self._store.id

    @property
    def is_inline(self) -> bool:
        """False: a connection takes time."""
        return False

    @property
    def notifies(self) -> Notifies:  # type: ignore[override] # as the store inside does
        """As the store inside, except that a notification may always be lost."""
        return "never" if self._store.notifies == "never" else "mostly"

    def heal(self) -> None:
        """Let every call through from now on."""
        self._plan = calm

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the store inside."""
        return self._store.subscribe(crawl, notify)

    async def close(self) -> None:
        """Close the store inside."""
        await self._store.close()

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        fate, seconds = self._plan(verb)
        send = getattr(self._store, verb)
        if fate is Fate.CALM:
            return await send(*args, **kwargs)
        self.counts[fate.value] += 1
        if fate in (Fate.LATE, Fate.DROP):
            await self._clock.sleep(seconds)
        if fate is Fate.DROP:
            raise StoreUnavailable(f"{verb}: no answer (it never arrived)")
        answer = await send(*args, **kwargs)
        if fate is not Fate.LATE:
            await self._clock.sleep(seconds)
        if fate is Fate.UNKNOWN:
            raise StoreUnavailable(f"{verb}: no answer (it was applied)")
        return await send(*args, **kwargs) if fate is Fate.DUPLICATE else answer
