"""Concurrent calls in one turn of the loop become one store call.

A waiter that is cancelled changes nothing: what it handed in is applied whole with its batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from outrider.errors import StoreError

NOT_INLINE = "a store that says is_inline suspended inside a verb; nothing is known of the call"
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Gathers items until the loop turns, calls once, hands the answers back."""

    def __init__(
        self, call: Callable[[list[Item]], Coroutine[Any, Any, list[Answer]]], *, is_inline: bool
    ) -> None:
        self._call = call
        self._is_inline = is_inline
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]] = []
        self._running: set[asyncio.Task[None]] = set()

    def submit(self, items: Sequence[Item]) -> asyncio.Future[list[Answer]]:
        """A future of the answers, one per item."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Answer]] = loop.create_future()
        self._waiting.append((items, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._start)
        return future

    async def drain(self) -> None:
        """Wait until everything handed in was answered."""
        self._start()
        while self._running:
            await asyncio.wait(self._running)

    def _start(self) -> None:
        if self._waiting:
            batch, self._waiting = self._waiting, []
            if self._is_inline:
                with suppress(StoreError):  # told to those who wait
                    run_inline(self._flush(batch))
                return
            task = asyncio.get_running_loop().create_task(self._flush(batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _flush(
        self, batch: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]]
    ) -> None:
        try:
            answers = await self._call([item for items, _ in batch for item in items])
        except GeneratorExit:
            _fail(batch, StoreError(NOT_INLINE))
            raise
        except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
            _fail(batch, error)
            return
        start = 0
        for items, future in batch:
            if not future.done():
                future.set_result(answers[start : start + len(items)])
            start += len(items)


def run_inline(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run what never suspends without a task of its own: a third of a small call's price."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    work.close()
    raise StoreError(NOT_INLINE)


def _fail(
    batch: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]], error: BaseException
) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
