"""One visit as handlers and stages see it: the lease, and what was made of it so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol, TypeAlias

from outrider.core.outcome import Outcome
from outrider.core.task import Lease, Link


class Floor(Protocol):
    """What a visit may ask of whoever runs it."""

    async def holds(self, visit: Visit, seconds: float) -> bool:
        """Whether the lease lasts that much longer; it is renewed if that makes it so (D7)."""
        ...

    def parked(self, visit: Visit) -> AbstractAsyncContextManager[None]:
        """Wait without a slot: others go on meanwhile."""
        ...


class Visit:
    """From claim to finish. `links` are added with the finish; `page` is what output writes."""

    __slots__ = ("began", "floor", "items", "lease", "links", "outcome", "page", "until")

    def __init__(self, lease: Lease, floor: Floor | None = None) -> None:
        self.lease = lease
        self.floor = floor
        self.links: list[Link] = []
        self.items: list[dict[str, Any]] = []  # what the user's function made of the page
        self.page: Any = None
        self.outcome: Outcome | None = None
        self.began = 0.0  # on the loop's clock
        self.until = 0.0  # when its handler must be over, on the loop's clock

    @property
    def url(self) -> str:
        """What to visit."""
        return self.lease.url

    async def holds(self, seconds: float) -> bool:
        """Whether the lease lasts that much longer; ask before every request (D7)."""
        return self.floor is None or await self.floor.holds(self, seconds)

    def parked(self) -> AbstractAsyncContextManager[None]:
        """`async with visit.parked():` waits without holding a slot."""
        return nullcontext() if self.floor is None else self.floor.parked(self)


Handler: TypeAlias = Callable[[Visit], Awaitable[Outcome]] | Callable[[Visit], Outcome]
Next: TypeAlias = Callable[[Visit], Awaitable[Outcome]]
Stage: TypeAlias = Callable[[Visit, Next], Awaitable[Outcome]]
