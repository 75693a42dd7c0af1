"""The same web on a thread of its own, for tests that wait for other processes meanwhile."""

from __future__ import annotations

import asyncio
from threading import Event, Thread
from typing import Any, Self

from outrider.testing.web.hits import Hit
from outrider.testing.web.server import WebServer
from outrider.testing.web.site import Web


class WebThread:
    """`with WebThread(web) as served:` serves until the block ends."""

    def __init__(self, web: Web) -> None:
        self._server = WebServer(web)
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), name="web", daemon=True)
        self._is_ready = Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        async with self._server:
            self._is_ready.set()
            await self._ended.wait()

    @property
    def web(self) -> Web:
        """What it serves."""
        return self._server.web

    def settings(self) -> dict[str, Any]:
        """What a crawler is told so that it finds this web."""
        return self._server.settings()

    def hits(self) -> list[Hit]:
        """The record of all that was answered so far."""
        if not self._thread.is_alive():
            return list(self._server.hits)
        return asyncio.run_coroutine_threadsafe(self._hits(), self._loop).result()

    async def _hits(self) -> list[Hit]:
        """On its own thread, after whatever was under way: a visitor may be ahead of the record."""
        return list(self._server.hits)
