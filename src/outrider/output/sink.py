"""The sink protocol: where an executor writes visits, and what a sink reads of a visit (K4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable

from outrider.core.outcome import Outcome
from outrider.core.task import Lease, Link
from outrider.fetch.response import Response
from outrider.store.protocol import FullStore


class Page(Protocol):
    """The part of a page that is written; see outrider.fetch."""

    @property
    def url(self) -> str: ...  # noqa: D102 - as its name says
    @property
    def status(self) -> int: ...  # noqa: D102
    @property
    def body(self) -> bytes: ...  # noqa: D102
    @property
    def seconds(self) -> float: ...  # noqa: D102
    @property
    def at(self) -> float: ...  # noqa: D102
    @property
    def media_type(self) -> str | None: ...  # noqa: D102
    @property
    def charset(self) -> str | None: ...  # noqa: D102
    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def title(self) -> str | None: ...  # noqa: D102
    @property
    def digest(self) -> str | None: ...  # noqa: D102
    @property
    def canonical(self) -> str | None: ...  # noqa: D102
    @property
    def location(self) -> str | None: ...  # noqa: D102
    @property
    def from_cache(self) -> bool: ...  # noqa: D102
    @property
    def response(self) -> Response | None: ...  # noqa: D102


class Visit(Protocol):
    """The part of an ended visit that sinks read; see outrider.executor."""

    @property
    def lease(self) -> Lease: ...  # noqa: D102 - as its name says
    @property
    def outcome(self) -> Outcome | None: ...  # noqa: D102
    @property
    def page(self) -> Any: ...  # noqa: D102 - a Page, or None
    @property
    def links(self) -> Sequence[Link]: ...  # noqa: D102
    @property
    def items(self) -> Sequence[Mapping[str, Any]]: ...  # noqa: D102


class Sink(Protocol):
    """Takes visits, one batch at a time; implement it to send visits anywhere."""

    def write(self, visits: Sequence[Any]) -> None:
        """Write a batch before its visits are finished; after an error none of them is written."""
        ...

    def settle(self, answers: Sequence[bool] | None) -> None:
        """Keep the last batch's finished visits, remove the others; None: it is unknown which."""
        ...

    def close(self) -> None:
        """Close the sink: no more visits follow."""
        ...


@runtime_checkable
class Recoverable(Protocol):
    """A sink that can find out which visits of a batch in doubt were finished."""

    async def recover(self, store: FullStore) -> None:
        """Ask the store, and keep only visits that were finished."""
        ...


async def recover(sink: Sink, store: FullStore) -> None:
    """Settle what an earlier process left in doubt; call it before the first claim."""
    if isinstance(sink, Recoverable):
        await sink.recover(store)


class NoSink:
    """A sink that writes nothing."""

    def write(self, visits: Sequence[Any]) -> None:
        """See `Sink`."""

    def settle(self, answers: Sequence[bool] | None) -> None:
        """See `Sink`."""

    def close(self) -> None:
        """See `Sink`."""


class Sinks:
    """Several sinks as one: a batch is written to all of them or to none."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def write(self, visits: Sequence[Any]) -> None:
        """See `Sink`."""
        for index, sink in enumerate(self._sinks):
            try:
                sink.write(visits)
            except BaseException:
                Sinks(*self._sinks[:index]).settle([False] * len(visits))
                raise

    def settle(self, answers: Sequence[bool] | None) -> None:
        """See `Sink`."""
        with ExitStack() as stack:  # also the sinks after one that fails
            for sink in reversed(self._sinks):
                stack.callback(sink.settle, answers)

    def close(self) -> None:
        """See `Sink`."""
        with ExitStack() as stack:
            for sink in reversed(self._sinks):
                stack.callback(sink.close)

    async def recover(self, store: FullStore) -> None:
        """See `Recoverable`."""
        for sink in self._sinks:
            await recover(sink, store)
