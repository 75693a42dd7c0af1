"""Calls of a store in the right size: small ones batched, long ones in bounded parts.

Concurrent calls in one turn of the event loop become one store call. Long lists and long operations
are read and done part by part, and other tasks of the loop run between two parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from outrider.core.queue_action import QueueAction
from outrider.core.states import UNKNOWN
from outrider.errors import StoreError
from outrider.store.byte_limits import MAX_CALL_BYTES, parts_by_bytes
from outrider.store.protocol import FullStore, ResultPage, SharedValue, Step

NOT_INLINE: Final = (
    "a store with is_inline = True suspended inside a verb; whether the call was applied is unknown"
)
NO_CRAWL: Final = "crawl {!r} does not exist, or not any more: Frontier.open begins it"
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Collects items until the loop turns, then makes one call and distributes the answers.

    Items of many bytes are sent in several calls. A caller that is cancelled changes nothing: its
    items are applied with their batch.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Coroutine[Any, Any, list[Answer]]],
        sizes: tuple[Callable[[Sequence[Item]], int], Callable[[Item], int]],
        *,
        is_inline: bool,
    ) -> None:
        self._call, (self._size_of_all, self._size_of) = call, sizes
        self._is_inline = is_inline
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]] = []
        self._running: set[asyncio.Task[None]] = set()

    def submit(self, items: Sequence[Item]) -> asyncio.Future[list[Answer]]:
        """Return a future of the answers, one per item."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Answer]] = loop.create_future()
        self._waiting.append((items, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._start)
        return future

    async def drain(self) -> None:
        """Wait until all submitted items have their answers."""
        self._start()
        while self._running:
            await asyncio.wait(self._running)

    def _start(self) -> None:
        if self._waiting:
            batch, self._waiting = self._waiting, []
            if self._is_inline:
                with suppress(StoreError):  # the futures have it
                    run_inline(self._flush(batch))
                return
            task = asyncio.get_running_loop().create_task(self._flush(batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _flush(
        self, batch: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]]
    ) -> None:
        try:
            every = [item for items, _ in batch for item in items]
            if len(every) == 1 or self._size_of_all(every) <= MAX_CALL_BYTES:
                answers = await self._call(every)
            else:
                answers = []
                for part in parts_by_bytes(every, self._size_of, MAX_CALL_BYTES):
                    answers += await self._call(part)
        except GeneratorExit:
            _fail(batch, StoreError(NOT_INLINE))
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised where the futures are awaited
            _fail(batch, error)
            return
        start = 0
        for items, future in batch:
            if not future.done():
                future.set_result(answers[start : start + len(items)])
            start += len(items)


def run_inline(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine that never suspends, without a task: a third of the cost of a small call."""
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


async def items_of(read: Callable[[int], Awaitable[ResultPage[Any]]]) -> AsyncIterator[Any]:
    """Yield the items of all result pages."""
    after: int | None = 0
    while after is not None:
        page = await read(after)
        after = page.after
        for item in page.items:
            yield item
        await asyncio.sleep(0)


async def values_of(
    store: FullStore, crawl: str, topic: str | None = None
) -> AsyncIterator[SharedValue]:
    """Yield a crawl's shared values in order, or those of one topic; deleted ones are left out."""
    after = 0
    while values := await store.values_since(crawl, after=after):
        after = values[-1].number
        for value in values:
            if value.text and topic in (None, value.topic):
                yield value
        await asyncio.sleep(0)


async def exists(store: FullStore, crawl: str) -> bool:
    """Tell whether a crawl was created, and not removed since (I1)."""
    return (await store.crawl(crawl)).reason != UNKNOWN


async def run_steps(step: Callable[[int], Awaitable[Step]]) -> int:
    """Run all steps of a long operation; return how many tasks or queues it reached."""
    count = 0
    after: int | None = 0
    while after is not None:
        done = await step(after)
        after = done.after
        count += done.count
        await asyncio.sleep(0)
    return count


async def steer_queues(
    store: FullStore, crawl: str, target: str, action: QueueAction, *, by: str = ""
) -> int:
    """Apply a queue action to all queues that `target` matches; return how many."""
    return await run_steps(lambda after: store.steer(crawl, target, action, after=after, by=by))
