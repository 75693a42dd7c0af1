"""Where visits are written down: what an executor asks of a sink, and what a sink of a visit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable

from outrider.core.outcome import Outcome
from outrider.core.task import Lease, Link
from outrider.fetch.response import Response
from outrider.store.protocol import FullStore


class Page(Protocol):
    """What is written of a page; see outrider.fetch."""

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
    """What is read of a visit that ended; see outrider.executor."""

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
    """Visits in, a batch at a time; write one of your own to send them anywhere."""

    def write(self, visits: Sequence[Any]) -> None:
        """Before the visits are finished; an error means that none of them is written."""
        ...

    def settle(self, answers: Sequence[bool] | None) -> None:
        """After: one that was not finished is not to stay. None: nobody knows."""
        ...

    def close(self) -> None:
        """No more visits."""
        ...


@runtime_checkable
class Recoverable(Protocol):
    """A sink that can find out what is to stay of a batch in doubt."""

    async def recover(self, store: FullStore) -> None:
        """Ask the store, and leave what was finished."""
        ...


async def recover(sink: Sink, store: FullStore) -> None:
    """After opening a sink, before the first claim: what an earlier process left in doubt."""
    if isinstance(sink, Recoverable):
        await sink.recover(store)


class NoSink:
    """Nothing is written."""

    def write(self, visits: Sequence[Any]) -> None:
        """See `Sink`."""

    def settle(self, answers: Sequence[bool] | None) -> None:
        """See `Sink`."""

    def close(self) -> None:
        """See `Sink`."""


class Sinks:
    """Several as one: a batch is written to all of them or to none."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def write(self, visits: Sequence[Any]) -> None:
        """See `Sink`."""
        for place, sink in enumerate(self._sinks):
            try:
                sink.write(visits)
            except BaseException:
                Sinks(*self._sinks[:place]).settle([False] * len(visits))
                raise

    def settle(self, answers: Sequence[bool] | None) -> None:
        """See `Sink`."""
        with ExitStack() as every:  # also those after one that fails
            for sink in reversed(self._sinks):
                every.callback(sink.settle, answers)

    def close(self) -> None:
        """See `Sink`."""
        with ExitStack() as every:
            for sink in reversed(self._sinks):
                every.callback(sink.close)

    async def recover(self, store: FullStore) -> None:
        """See `Recoverable`."""
        for sink in self._sinks:
            await recover(sink, store)
