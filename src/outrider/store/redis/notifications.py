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

RECONNECT_SECONDS: Final = 1.0  # before a broken connection is made again
CANCEL_SECONDS: Final = 0.05  # before a task that did not end is cancelled again


class WorkSubscriber:
    """Calls back when work was added to a crawl; `bases` are those of all shards it may be on."""

    def __init__(self, client: Any, *bases: str) -> None:
        self._client = client
        self._bases = bases
        self._callbacks: dict[str, list[Callable[[], None]]] = {}  # by channel
        self._listeners: list[asyncio.Task[None]] = []  # the last one, and those being cancelled

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` when work was added to a crawl; return the unsubscriber."""
        channels = [channel_of(base, crawl) for base in self._bases]
        lists = [self._callbacks.setdefault(channel, []) for channel in channels]
        for callbacks in lists:
            callbacks.append(notify)
        if len(lists[0]) == 1:
            self._listen_to_all()

        def unsubscribe() -> None:
            for callbacks in lists:
                with suppress(ValueError):
                    callbacks.remove(notify)

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
                async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
                    await subscription.subscribe(*self._callbacks)
                    async for message in subscription.listen():
                        self._notify(message["channel"].decode())
            await asyncio.sleep(RECONNECT_SECONDS)

    def _notify(self, channel: str) -> None:
        for callback in tuple(self._callbacks.get(channel, ())):
            callback()

    async def close(self) -> None:
        """Call back no more, and close the subscription."""
        self._callbacks.clear()
        left = set(self._listeners)
        while left:  # the driver may swallow a cancellation while it connects
            for one in left:
                one.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_SECONDS)
