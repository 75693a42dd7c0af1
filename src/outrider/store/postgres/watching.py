"""A bell for those who wait: one connection listens, and rings when somebody may have brought work.

Where nobody can listen, behind some poolers, nothing rings and nothing else changes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, sql

from outrider.store.postgres.address import Address

PAUSE: Final = 5.0  # seconds, at most, until a lost line is looked for again
RING_EVERY: Final = 0.25  # seconds between two rings of one process for one crawl


def channel_of(store: str) -> str:
    """Where the workers of a store hear of each other."""
    return f"outrider_{store}"


def word_of(crawl: str) -> str:
    """What a crawl is called there: short, whatever its name."""
    return blake2b(crawl.encode(errors="replace"), digest_size=12).hexdigest()


class Watch:
    """Who wants to be rung, by crawl; the line is opened when the first one comes."""

    def __init__(self, address: Address, store: str) -> None:
        self._address, self._channel = address, channel_of(store)
        self._rings: dict[str, list[Callable[[], None]]] = {}
        self._listening: asyncio.Task[None] | None = None

    def add(self, crawl: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring from now on, until the end that is answered."""
        self._rings.setdefault(word_of(crawl), []).append(ring)
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        return lambda: self._remove(word_of(crawl), ring)

    def _remove(self, word: str, ring: Callable[[], None]) -> None:
        with suppress(KeyError, ValueError):
            self._rings[word].remove(ring)

    async def _listen(self) -> None:
        while True:
            with suppress(psycopg.Error, OSError):
                async with await self._connected() as line:
                    await self._hear(line)
            await asyncio.sleep(random.uniform(0.1, 1) * PAUSE)

    async def _connected(self) -> AsyncConnection[Any]:
        return await AsyncConnection.connect(
            self._address.url, autocommit=True, application_name="outrider watch"
        )

    async def _hear(self, line: AsyncConnection[Any]) -> None:
        await line.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
        async for note in line.notifies():
            for ring in tuple(self._rings.get(note.payload, ())):
                ring()

    async def close(self) -> None:
        """Nobody is rung any more."""
        self._rings = {}
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening


class Bell:
    """When this process last rang for a crawl: a few times a second are enough."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def is_due(self, crawl: str) -> bool:
        """Whether to ring now; from then on it counts as done."""
        now = time.perf_counter()
        if now - self._last.get(crawl, -RING_EVERY) < RING_EVERY:
            return False
        self._last[crawl] = now
        return True
