"""Notifications of new work: one connection listens, and calls back when a crawl may have some.

Subscribers of the process that ran a verb are notified at once, those of other processes by NOTIFY.
A notification names the process that sent it, which ignores it. Behind poolers that cannot listen
none arrives from other processes, and nothing else changes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from threading import Lock
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, sql

from outrider.store.postgres.address import Address
from outrider.store.subscriptions import Subscriptions

MAX_RECONNECT_DELAY: Final = 5.0  # seconds until a lost connection is opened again
MIN_NOTIFY_INTERVAL: Final = 0.05  # seconds between two notifications of one process and crawl


def channel_name(store: str) -> str:
    """Return the channel of a store's notifications."""
    return f"outrider_{store}"


def payload(crawl: str, sender: str) -> str:
    """Return what names a crawl and a process in a notification: short, whatever the names are."""
    return f"{_digest(crawl)} {_digest(sender)}"


def _digest(name: str) -> str:
    return blake2b(name.encode(errors="replace"), digest_size=12).hexdigest()


class Listener:
    """The subscribers of one process by crawl; it connects when the first one comes.

    `sender` names this process in its notifications. `connects`: other processes are listened to.
    """

    def __init__(self, address: Address, store: str, sender: str, *, connects: bool) -> None:
        self._address, self._channel, self._connects = address, channel_name(store), connects
        self._sender = _digest(sender)
        self._subscriptions = Subscriptions()
        self._listening: asyncio.Task[None] | None = None
        self._is_connected = False

    def add(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to a crawl; returns what unsubscribes."""
        unsubscribe = self._subscriptions.subscribe(crawl, notify)
        if not self._connects:
            self._subscriptions.ring([crawl])
        elif self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        elif self._is_connected:
            self._subscriptions.ring([crawl])
        return unsubscribe

    def ring(self, crawls: Iterable[str]) -> None:
        """Notify the subscribers of this process, after one of its verbs."""
        self._subscriptions.ring(crawls)

    async def _listen(self) -> None:
        while True:
            with suppress(psycopg.Error, OSError):
                async with await self._connect() as connection:
                    await self._receive(connection)
            self._is_connected = False
            await asyncio.sleep(random.uniform(0.1, 1) * MAX_RECONNECT_DELAY)

    async def _connect(self) -> AsyncConnection[Any]:
        return await AsyncConnection.connect(
            self._address.url, autocommit=True, application_name="outrider watch"
        )

    async def _receive(self, connection: AsyncConnection[Any]) -> None:
        await connection.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
        self._is_connected = True
        self.ring(list(self._subscriptions.by_crawl))  # notifications may have been missed
        async for notification in connection.notifies():
            named, _, sender = notification.payload.partition(" ")
            if sender != self._sender:
                self.ring([c for c in self._subscriptions.by_crawl if _digest(c) == named])

    async def close(self) -> None:
        """Stop listening; no subscriber is called from now on."""
        self._subscriptions.clear()
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening


class NotifyLimiter:
    """When this process last notified others of a crawl: some times a second are enough.

    What is not due is kept for later, so that the last of many notifications is sent too.
    """

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._late: set[str] = set()
        self._lock = Lock()

    def is_due(self, crawl: str) -> bool:
        """Return whether to notify now; if so, it counts as done, otherwise it is kept."""
        now = time.perf_counter()
        with self._lock:
            if now - self._last.get(crawl, -MIN_NOTIFY_INTERVAL) < MIN_NOTIFY_INTERVAL:
                self._late.add(crawl)
                return False
            self._last[crawl] = now
            self._late.discard(crawl)
            return True

    @property
    def has_late(self) -> bool:
        """Whether a notification was kept."""
        return bool(self._late)

    def take_late(self) -> list[str]:
        """Return the crawls whose notifications were kept; they count as notified now."""
        now = time.perf_counter()
        with self._lock:
            crawls, self._late = sorted(self._late), set()
            self._last.update(dict.fromkeys(crawls, now))
        return crawls
