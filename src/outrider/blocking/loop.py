"""An event loop in a thread of its own: whoever has none hands it their coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from outrider.errors import Closed

T = TypeVar("T")


class Loop:
    """An event loop in a daemon thread: hand it coroutines from anywhere."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work answers."""
        if self._loop.is_closed():
            work.close()
            raise Closed("this frontier was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Item by item; leaving early closes the source."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            self.run(_close(items))

    def call(self, function: Callable[[], T]) -> T:
        """What a function answers, called in the loop's thread."""

        async def called() -> T:
            return function()

        return self.run(called())

    def stop(self) -> None:
        """End it; stopping twice is fine."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()
