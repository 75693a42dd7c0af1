"""An event loop in a thread of its own: runs coroutines for code without a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from outrider.errors import Closed

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread; any thread may call its methods."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result."""
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
        """Iterate over an async iterator; leaving early closes it."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            self.run(_close(items))

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the loop's thread and return its result."""

        async def run() -> T:
            return function()

        return self.run(run())

    def bind(self, function: Callable[[], T]) -> Callable[[], T]:
        """Return a function that calls this one in the loop's thread."""
        return lambda: self.call(function)

    def stop(self) -> None:
        """Stop the loop and its thread; stopping twice is allowed."""
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
