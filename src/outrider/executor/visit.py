"""One visit as handlers and stages see it: the lease, and what the visit has produced so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol, TypeAlias

from outrider.core.outcome import Outcome
from outrider.core.task import Lease, Link
from outrider.fetch.response import Response


class VisitRunner(Protocol):
    """What a visit may ask of the executor that runs it."""

    async def holds(self, visit: Visit, seconds: float) -> bool:
        """Return whether the lease lasts that much longer, after renewing it if necessary (D7)."""
        ...

    def parked(self, visit: Visit) -> AbstractAsyncContextManager[None]:
        """Wait without a slot, so that other visits can run meanwhile."""
        ...


class Visit:
    """From claim to finish. `links` are added with the finish; `page` is what output writes.

    With `cached`, the task was leased by name for this response, and no request may be sent (D5).
    """

    __slots__ = (
        "began",
        "cached",
        "items",
        "lease",
        "links",
        "outcome",
        "page",
        "parked_for",
        "requests",
        "runner",
        "until",
    )

    def __init__(
        self, lease: Lease, runner: VisitRunner | None = None, cached: Response | None = None
    ) -> None:
        self.lease = lease
        self.runner = runner
        self.cached = cached
        self.links: list[Link] = []
        self.items: list[dict[str, Any]] = []  # results of the user's function
        self.page: Any = None
        self.outcome: Outcome | None = None
        self.requests = 0  # that were sent
        self.began = 0.0  # on the loop's clock
        self.parked_for = 0.0  # seconds it waited without a slot, or kept its slot waiting
        self.until = 0.0  # the handler's deadline, on the loop's clock

    @property
    def url(self) -> str:
        """The URL to visit."""
        return self.lease.url

    async def holds(self, seconds: float) -> bool:
        """Return whether the lease lasts that much longer; ask before every request (D7)."""
        return self.runner is None or await self.runner.holds(self, seconds)

    def parked(self) -> AbstractAsyncContextManager[None]:
        """`async with visit.parked():` waits without holding a slot."""
        return nullcontext() if self.runner is None else self.runner.parked(self)


Handler: TypeAlias = Callable[[Visit], Awaitable[Outcome]] | Callable[[Visit], Outcome]
Next: TypeAlias = Callable[[Visit], Awaitable[Outcome]]
Stage: TypeAlias = Callable[[Visit, Next], Awaitable[Outcome]]
