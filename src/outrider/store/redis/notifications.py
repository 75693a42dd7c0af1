"""Notifications of work: one subscription for all crawls that are waited for.

A notification may be lost: a broken connection is made again, and every waiting caller also claims
again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from redis.exceptions import RedisError

from outrider.store.redis.keys import channel_of
from outrider.store.subscriptions import Subscriptions

RECONNECT_SECONDS: Final = 1.0  # before a broken connection is made again
CANCEL_SECONDS: Final = 0.05  # before a task that did not end is cancelled again


class WorkSubscriber:
    """Calls back when a claim may find more; `bases` are those of all shards of the store."""

    def __init__(self, client: Any, *bases: str) -> None:
        self._client = client
        self._bases = bases
        self._subscriptions = Subscriptions()
        self._crawls: dict[str, str] = {}  # by channel
        self._listeners: list[asyncio.Task[None]] = []  # the last one, and those being cancelled

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` when a claim may find more, and once when the server listens."""
        unsubscribe = self._subscriptions.subscribe(crawl, notify)
        channels = dict.fromkeys((channel_of(base, crawl) for base in self._bases), crawl)
        if channels.keys() <= self._crawls.keys():
            self._subscriptions.ring([crawl])
        else:
            listened_to = self._subscriptions.by_crawl
            known = {name: one for name, one in self._crawls.items() if one in listened_to}
            self._crawls = known | channels
            self._listen_to_all()
        return unsubscribe

    def _listen_to_all(self) -> None:
        """Replace the listener by one for all channels known now."""
        self._listeners = [one for one in self._listeners if not one.done()]
        for one in self._listeners:
            one.cancel()
        self._listeners.append(asyncio.get_running_loop().create_task(self._listen()))

    async def _listen(self) -> None:
        while True:
            with suppress(RedisError, OSError):
                async with self._client.pubsub() as subscription:
                    await subscription.subscribe(*self._crawls)
                    # The confirmation notifies as well: some may have been missed before.
                    async for message in subscription.listen():
                        self._subscriptions.ring([self._crawls[message["channel"].decode()]])
            await asyncio.sleep(RECONNECT_SECONDS)

    async def close(self) -> None:
        """Call back no more, and close the subscription."""
        self._subscriptions.clear()
        left = set(self._listeners)
        while left:  # the driver may swallow a cancellation while it connects
            for one in left:
                one.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_SECONDS)
