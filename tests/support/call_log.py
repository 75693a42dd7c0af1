"""Call logs: what a process asked of its store and what was answered, one line per event.

A line is one write to a file opened for appending, so what was written before a kill stays.
`LoggedStore` writes the lines of calls; `replay` feeds them to an `InvariantChecker`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Final, TypeAlias, get_type_hints

import msgspec

from outrider.errors import StoreError, StoreFull
from outrider.store.forwarding import VERBS, ForwardingStore
from outrider.store.protocol import FullStore, Notifies
from outrider.testing.invariants import OBSERVED, Call, InvariantChecker, bind
from outrider.testing.lease_history import Instants


class _Line(msgspec.Struct, frozen=True, tag=True, array_like=True):
    at: int  # milliseconds; microseconds in logs of several processes


class Asked(_Line, frozen=True, tag=True, array_like=True):
    """A call is about to be made."""

    number: int
    verb: str
    raw: msgspec.Raw  # its arguments

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, of their declared types."""
        return msgspec.structs.asdict(_ARGUMENTS[self.verb].decode(self.raw))


class Answered(_Line, frozen=True, tag=True, array_like=True):
    """A call was answered."""

    number: int
    raw: msgspec.Raw  # its answer

    def answer(self, verb: str) -> Any:
        """Return the answer, of the type that the verb declares."""
        return _ANSWERS[verb].decode(self.raw)


class Failed(_Line, frozen=True, tag=True, array_like=True):
    """A call raised an error: a refused one was not applied, any other may have been."""

    number: int
    error: str
    is_refused: bool


class Opening(_Line, frozen=True, tag=True, array_like=True):
    """A process is about to open the file: the process that held it before is dead."""


class Settled(_Line, frozen=True, tag=True, array_like=True):
    """What the reopened file showed of the call that was in flight at the kill."""

    applied: bool
    leased: list[str] = []  # URLs that a claim leased without an answer


class VisitsBegan(_Line, frozen=True, tag=True, array_like=True):
    """Visits began at their hosts."""

    visits: list[tuple[str, str]]  # key, URL


class VisitsEnded(_Line, frozen=True, tag=True, array_like=True):
    """Visits ended at their hosts."""

    visits: list[tuple[str, str]]


Line: TypeAlias = Asked | Answered | Failed | Opening | Settled | VisitsBegan | VisitsEnded

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def _argument_type(verb: str) -> Any:
    declared = VERBS[verb]
    hints = get_type_hints(declared)
    _, *parameters = signature(declared).parameters.values()
    fields = [_field(parameter, hints[parameter.name]) for parameter in parameters]
    return msgspec.defstruct(verb, fields, kw_only=True)


def _field(parameter: Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.default is Parameter.empty:
        return parameter.name, hint
    return parameter.name, hint, parameter.default


_ARGUMENTS: Final = {verb: msgspec.json.Decoder(_argument_type(verb)) for verb in OBSERVED}
_ANSWERS: Final = {
    verb: msgspec.json.Decoder(get_type_hints(VERBS[verb])["return"]) for verb in OBSERVED
}


class LogFile:
    """A log on disk."""

    def __init__(self, path: Path) -> None:
        if path.is_file():  # a kill may have cut the last line short
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, line: Line) -> None:
        """Append a line in one write."""
        os.write(self._file, _encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a log; a last line that was cut short is left out."""
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield _decoder.decode(line)


class LoggedStore(ForwardingStore):
    """Forwards every call to a store, and logs the calls that change a crawl."""

    def __init__(
        self, store: FullStore, write: Callable[[Line], None], now: Callable[[], int]
    ) -> None:
        self._store = store
        self._write = write
        self._now = now
        self._calls = 0

    @property
    def id(self) -> str:
        """The id of the store inside."""
        return self._store.id

    @property
    def is_inline(self) -> bool:
        """Whether the store inside is."""
        return self._store.is_inline

    @property
    def notifies(self) -> Notifies:  # type: ignore[override] # as the store inside does
        """As the store inside."""
        return self._store.notifies

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the store inside."""
        return self._store.subscribe(crawl, notify)

    async def close(self) -> None:
        """Close the store inside."""
        await self._store.close()

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        send = getattr(self._store, verb)
        if verb not in OBSERVED:
            return await send(*args, **kwargs)
        self._calls += 1
        number, arguments = self._calls, bind(verb, args, kwargs)
        self._write(Asked(self._now(), number, verb, msgspec.Raw(_encode(arguments))))
        try:
            answer = await send(*args, **kwargs)
        except StoreError as error:
            is_refused = isinstance(error, StoreFull)
            self._write(Failed(self._now(), number, repr(error)[:300], is_refused))
            raise
        self._write(Answered(self._now(), number, msgspec.Raw(_encode(answer))))
        return answer


class Replay:
    """Feeds the calls of logs to an invariant checker, in the order of their lines.

    `per_ms` is the number of time units per millisecond. `overlapping`: the lines are of several
    processes, whose calls may have overlapped.
    """

    def __init__(
        self, checker: InvariantChecker, *, per_ms: int = 1, overlapping: bool = False
    ) -> None:
        self._checker = checker
        self._per_ms = per_ms
        self._overlapping = overlapping
        self._open: dict[tuple[str, int], tuple[Asked, dict[str, Any]]] = {}

    def follow(self, line: Asked | Answered | Failed, process: str = "") -> None:
        """Observe one line of a process."""
        call = (process, line.number)
        if isinstance(line, Asked):
            arguments = line.arguments
            self._open[call] = line, arguments
            self._checker.begin(line.verb, arguments)
            return
        asked, arguments = self._open.pop(call)
        if isinstance(line, Answered):
            at = Instants(asked.at // self._per_ms, -(-line.at // self._per_ms))
            made = Call(asked.verb, arguments, line.number, at, alone=not self._overlapping)
            self._checker.answered(made, line.answer(asked.verb))
        elif line.is_refused:
            self._checker.not_applied(asked.verb, arguments)
        else:
            self._checker.unanswered(asked.verb, arguments)

    def in_flight(self) -> Mapping[tuple[str, int], tuple[Asked, dict[str, Any]]]:
        """Return the calls without an answer so far."""
        return self._open

    def kill(self) -> None:
        """Observe that the processes died: their calls in flight get no answer."""
        for asked, arguments in self._open.values():
            self._checker.unanswered(asked.verb, arguments)
        self._open.clear()
