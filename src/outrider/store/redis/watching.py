"""Whoever waits for work is rung: one listener for all that wait, and only while somebody does.

A ring may be lost: a broken connection is made again, and whoever waits looks by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from redis.exceptions import RedisError

from outrider.store.redis.keys import channel_of

PAUSE: Final = 1.0  # seconds before a broken line is tried again
AGAIN: Final = 0.05  # seconds before a listener that did not end is told so again


class Bell:
    """Rings of all crawls of a store."""

    def __init__(self, client: Any, *bases: str) -> None:
        self._client = client
        self._bases = bases  # of all shards whose work is told
        self._rings: dict[str, list[Callable[[], None]]] = {}
        self._listeners: list[asyncio.Task[None]] = []  # the last one, and those that are to end

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Ring when somebody brought work to a crawl; answers with its end."""
        channels = [channel_of(base, crawl) for base in self._bases]
        lists = [self._rings.setdefault(channel, []) for channel in channels]
        for rings in lists:
            rings.append(notify)
        if len(lists[0]) == 1:
            self._listen_anew()

        def end() -> None:
            for rings in lists:
                with suppress(ValueError):
                    rings.remove(notify)

        return end

    def _listen_anew(self) -> None:
        self._listeners = [one for one in self._listeners if not one.done()]
        for one in self._listeners:
            one.cancel()
        self._listeners.append(asyncio.get_running_loop().create_task(self._listen()))

    async def _listen(self) -> None:
        while True:
            with suppress(RedisError, OSError):
                async with self._client.pubsub(ignore_subscribe_messages=True) as line:
                    await line.subscribe(*self._rings)
                    async for message in line.listen():
                        self._ring(message["channel"].decode())
            await asyncio.sleep(PAUSE)

    def _ring(self, channel: str) -> None:
        for ring in tuple(self._rings.get(channel, ())):
            ring()

    async def close(self) -> None:
        """Nobody is rung any more."""
        self._rings.clear()
        left = set(self._listeners)
        while left:  # the driver may swallow a cancellation while it connects
            for one in left:
                one.cancel()
            _, left = await asyncio.wait(left, timeout=AGAIN)
