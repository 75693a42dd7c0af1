"""Turns of the event loop in tests: let calls proceed without real time, and see if they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def turns(count: int = 20) -> None:
    """Let all other tasks of the loop run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def started(call: Awaitable[T]) -> asyncio.Future[T]:
    """Start a call, and let it run as far as it can."""
    task = asyncio.ensure_future(call)
    await turns()
    return task


async def prompt(call: Awaitable[T]) -> T:
    """Return the answer of a call that must not wait."""
    task = await started(call)
    if not task.done():
        task.cancel()
        raise AssertionError("it waits")
    return await task


async def cancelled(task: asyncio.Future[T]) -> None:
    """Cancel a call, and wait for its end."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    raise AssertionError("it was not cancelled")
