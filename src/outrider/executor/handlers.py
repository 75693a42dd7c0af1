"""Who handles which type of task (J1), and what their misconduct comes to (J6).

Whatever a handler does, its visit ends in an outcome, unless this machine is at fault.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final, cast

from outrider.core.decide import outcome_error
from outrider.core.outcome import Failed, Outcome
from outrider.errors import InvalidInput, LocalFault
from outrider.executor.threads import Threads
from outrider.executor.visit import Handler, Next, Stage, Visit
from outrider.fetch.local_faults import local_fault_of

DEFAULT: Final = "*"  # handles every type that has no handler of its own


class Handlers:
    """A registry that is frozen once made: types, and the stages around all of them."""

    def __init__(
        self, handlers: Handler | Mapping[str, Handler], stages: Sequence[Stage] = ()
    ) -> None:
        given = handlers if isinstance(handlers, Mapping) else {DEFAULT: handlers}
        self._threads = Threads()
        self._chains = {kind: self._chain(kind, one, stages) for kind, one in given.items()}
        self._default = self._chains.get(DEFAULT, _unhandled)

    def _chain(self, kind: str, handler: Handler, stages: Sequence[Stage]) -> Next:
        if not isinstance(kind, str) or not callable(handler):
            raise InvalidInput(f"handlers[{kind!r}] = {handler!r}: a type of task, and a function")
        chain = cast("Next", handler if _is_async(handler) else self._beside(handler))
        for stage in reversed(stages):
            if not _is_async(stage):
                raise InvalidInput(f"stage {stage!r}: an async function of (visit, next)")
            chain = partial(_through, stage, chain)
        return chain

    def _beside(self, handler: Handler) -> Next:
        return partial(self._threads.call, handler)

    async def outcome_of(self, visit: Visit) -> Outcome:
        """What the visit came to; nothing but a cancellation or a `LocalFault` is ever raised."""
        try:
            outcome = await self._chains.get(visit.lease.type, self._default)(visit)
        except LocalFault:
            raise
        except Exception as error:  # noqa: BLE001 - a handler may be a user's
            return failure_of(error)
        fault = outcome_error(outcome)
        return outcome if fault is None else Failed(f"handler: {fault}"[:500])

    def close(self) -> None:
        """No more calls."""
        self._threads.close()


class HandlerFault(LocalFault):
    """A handler raised what looks like a fault of this machine; it may be the page's after all."""

    def __init__(self, fault: LocalFault, as_failure: str) -> None:
        super().__init__(str(fault), fault.reason)
        self.as_failure = as_failure  # the reason, if it is the page's


def failure_of(error: Exception) -> Failed:
    """What a handler raised, as the page's outcome; `HandlerFault` if this machine is at fault."""
    fault = local_fault_of(error)
    if fault is not None:
        raise HandlerFault(fault, _in_words(error)) from error
    return Failed(_in_words(error))


def _in_words(error: Exception) -> str:
    return f"handler: {type(error).__name__}: {error}"[:500]


def _is_async(function: Any) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - is its call a coroutine function?
    )


def _through(stage: Stage, chain: Next, visit: Visit) -> Awaitable[Outcome]:
    return stage(visit, chain)


async def _unhandled(visit: Visit) -> Outcome:
    return Failed(f"handler: none for type {visit.lease.type!r}")
