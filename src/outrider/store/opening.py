"""URL → store: the only namer of concrete stores."""

from __future__ import annotations

from outrider.clock import Clock
from outrider.errors import InvalidInput
from outrider.store.memory import MemoryStore
from outrider.store.protocol import FullStore


async def open_store(url: str, clock: Clock) -> FullStore:
    """Open the store a URL names; the caller closes it."""
    if url == "memory://":
        return MemoryStore(clock)
    raise InvalidInput(f"no store answers to {url[:200]!r}; this release opens 'memory://'")
