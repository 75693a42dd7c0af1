"""The handlers of a crawl by type of task (J1), and the threads in which plain functions run.

Whatever a handler does, its visit ends in an outcome, unless this machine is at fault (J6). A plain
function that never returns costs its thread and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, cast

from outrider.core.decide import outcome_error
from outrider.core.outcome import Failed, Outcome
from outrider.errors import InvalidInput, LocalFault
from outrider.executor.visit import Handler, Next, Stage, Visit
from outrider.fetch.local_faults import local_fault_of

_STOP: Final = None


class _Worker:
    """A daemon thread that runs one job at a time: the process can exit while it hangs."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not _STOP:
            job()

    def do(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def end(self) -> None:
        self._jobs.put(_STOP)


class Threads:
    """A pool of as many threads as calls run at a time; a cancelled call abandons its thread."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._made = 0
        self.abandoned = 0

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the function's result, or raise what it raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        worker = self._idle.pop() if self._idle else self._new()

        def job() -> None:
            try:
                answer, error = function(*args), None
            except BaseException as raised:  # noqa: BLE001 - raised again in the caller
                answer, error = None, raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(_set_result, future, answer, error)

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
        """End the idle threads; one that hangs ends with the process."""
        while self._idle:
            self._idle.pop().end()


def _set_result(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    elif isinstance(error, StopIteration):  # futures refuse it
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)


DEFAULT: Final = "*"  # handles every type that has no handler of its own


class Handlers:
    """Handlers by type of task, each wrapped in the stages; immutable."""

    def __init__(
        self, handlers: Handler | Mapping[str, Handler], stages: Sequence[Stage] = ()
    ) -> None:
        given = handlers if isinstance(handlers, Mapping) else {DEFAULT: handlers}
        self._threads = Threads()
        self._chains = {kind: self._chain(kind, one, stages) for kind, one in given.items()}
        self._default = self._chains.get(DEFAULT, _no_handler)

    def _chain(self, kind: str, handler: Handler, stages: Sequence[Stage]) -> Next:
        if not isinstance(kind, str) or not callable(handler):
            raise InvalidInput(f"handlers[{kind!r}] = {handler!r}: give a task type and a function")
        chain = cast("Next", handler if _is_async(handler) else self._in_thread(handler))
        for stage in reversed(stages):
            if not _is_async(stage):
                raise InvalidInput(f"stage {stage!r}: give an async function of (visit, next)")
            chain = partial(_call_stage, stage, chain)
        return chain

    def _in_thread(self, handler: Handler) -> Next:
        return partial(self._threads.call, handler)

    async def outcome_of(self, visit: Visit) -> Outcome:
        """Return the visit's outcome; raise nothing but a cancellation or a `LocalFault`."""
        try:
            outcome = await self._chains.get(visit.lease.type, self._default)(visit)
        except LocalFault:
            raise
        except Exception as error:  # noqa: BLE001 - a handler may be user code
            return failure_of(error)
        fault = outcome_error(outcome)
        return outcome if fault is None else Failed(f"handler: {fault}"[:500])

    def close(self) -> None:
        """End the threads."""
        self._threads.close()


class HandlerFault(LocalFault):
    """A local fault raised in a handler; the page may be its cause after all."""

    def __init__(self, fault: LocalFault, as_failure: str) -> None:
        super().__init__(str(fault), fault.reason)
        self.as_failure = as_failure  # the reason, if the page is the cause


def failure_of(error: Exception) -> Failed:
    """Return a handler's exception as an outcome; raise `HandlerFault` if it is a local fault."""
    fault = local_fault_of(error)
    if fault is not None:
        raise HandlerFault(fault, _failure_reason(error)) from error
    return Failed(_failure_reason(error))


def _failure_reason(error: Exception) -> str:
    return f"handler: {type(error).__name__}: {error}"[:500]


def _is_async(function: Any) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - is its call a coroutine function?
    )


def _call_stage(stage: Stage, chain: Next, visit: Visit) -> Awaitable[Outcome]:
    return stage(visit, chain)


async def _no_handler(visit: Visit) -> Outcome:
    return Failed(f"handler: none for type {visit.lease.type!r}")
