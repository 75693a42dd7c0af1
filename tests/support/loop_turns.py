"""Waiting in tests without time: a call gets every chance to go on, and is seen to wait or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def turns(count: int = 20) -> None:
    """Let everybody else have their say."""
    for _ in range(count):
        await asyncio.sleep(0)


async def started(call: Awaitable[T]) -> asyncio.Future[T]:
    """A call that had every chance to get as far as it can."""
    task = asyncio.ensure_future(call)
    await turns()
    return task


async def prompt(call: Awaitable[T]) -> T:
    """The answer of a call that has no reason to wait."""
    task = await started(call)
    if not task.done():
        task.cancel()
        raise AssertionError("it waits")
    return await task


async def cancelled(task: asyncio.Future[T]) -> None:
    """Cancel a call and see it gone."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    raise AssertionError("it was not cancelled")
