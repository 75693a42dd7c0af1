"""Plain functions beside the loop: one that never comes back costs its thread and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

_END: Final = None


class _Worker:
    """A daemon thread that does one job at a time: the process may end while it hangs."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not _END:
            job()

    def do(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def end(self) -> None:
        self._jobs.put(_END)


class Threads:
    """As many threads as there are calls at a time; a cancelled call gives its thread up."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._made = 0
        self.abandoned = 0

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """The function's answer, or what it raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        worker = self._idle.pop() if self._idle else self._new()

        def job() -> None:
            try:
                answer, error = function(*args), None
            except BaseException as raised:  # noqa: BLE001 - it belongs to whoever called
                answer, error = None, raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(_answer, future, answer, error)

        worker.do(job)
        try:
            answer = await future
        except asyncio.CancelledError:
            self.abandoned += 1
            worker.end()
            raise
        except BaseException:
            self._idle.append(worker)
            raise
        self._idle.append(worker)
        return answer

    def _new(self) -> _Worker:
        self._made += 1
        return _Worker(f"outrider-handler-{self._made}")

    def close(self) -> None:
        """Let the idle ones end; a hung one dies with the process."""
        while self._idle:
            self._idle.pop().end()


def _answer(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    elif isinstance(error, StopIteration):  # no future may carry one
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)
