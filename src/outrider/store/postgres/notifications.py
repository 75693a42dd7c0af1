"""Notifications of new work: one connection listens, and calls back when a crawl may have some.

Behind poolers that cannot listen no notification arrives, and nothing else changes.
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

MAX_RECONNECT_DELAY: Final = 5.0  # seconds until a lost connection is opened again
MIN_NOTIFY_INTERVAL: Final = 0.25  # seconds between two notifications of one process and crawl


def channel_name(store: str) -> str:
    """Return the channel of a store's notifications."""
    return f"outrider_{store}"


def payload(crawl: str) -> str:
    """Return what names a crawl in a notification: short, whatever its name is."""
    return blake2b(crawl.encode(errors="replace"), digest_size=12).hexdigest()


class Listener:
    """The subscribers by crawl; it connects when the first one comes."""

    def __init__(self, address: Address, store: str) -> None:
        self._address, self._channel = address, channel_name(store)
        self._subscribers: dict[str, list[Callable[[], None]]] = {}
        self._listening: asyncio.Task[None] | None = None

    def add(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to a crawl; returns what unsubscribes."""
        self._subscribers.setdefault(payload(crawl), []).append(notify)
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        return lambda: self._remove(payload(crawl), notify)

    def _remove(self, name: str, notify: Callable[[], None]) -> None:
        with suppress(KeyError, ValueError):
            self._subscribers[name].remove(notify)

    async def _listen(self) -> None:
        while True:
            with suppress(psycopg.Error, OSError):
                async with await self._connect() as connection:
                    await self._receive(connection)
            await asyncio.sleep(random.uniform(0.1, 1) * MAX_RECONNECT_DELAY)

    async def _connect(self) -> AsyncConnection[Any]:
        return await AsyncConnection.connect(
            self._address.url, autocommit=True, application_name="outrider watch"
        )

    async def _receive(self, connection: AsyncConnection[Any]) -> None:
        await connection.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
        async for notification in connection.notifies():
            for notify in tuple(self._subscribers.get(notification.payload, ())):
                notify()

    async def close(self) -> None:
        """Stop listening; no subscriber is called from now on."""
        self._subscribers = {}
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening


class NotifyLimiter:
    """When this process last notified of a crawl: a few times a second are enough."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def is_due(self, crawl: str) -> bool:
        """Return whether to notify now; if so, it counts as done."""
        now = time.perf_counter()
        if now - self._last.get(crawl, -MIN_NOTIFY_INTERVAL) < MIN_NOTIFY_INTERVAL:
            return False
        self._last[crawl] = now
        return True
