"""The verbs of the seam as the protocol declares them: their annotations are the wire's types."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, Final, TypeAlias, get_type_hints

import msgspec

from outrider.core.states import QueueState
from outrider.errors import InvalidInput, StoreError
from outrider.store.protocol import Admin, Inspect, Page, Pending, QueueView, Store, TaskView
from outrider.store.saved import Saved

Declared: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]

# What a page holds: the one type that the annotations leave open.
_ITEMS: Final[dict[str, Any]] = {
    "census": list[QueueState],
    "export": list[Saved],
    "queues": list[QueueView],
    "tasks": list[TaskView],
    "waiting": list[Pending],
}


class Verb:
    """One verb: how its arguments and its answer are read."""

    def __init__(self, declared: Declared) -> None:
        self.name = declared.__name__
        hints = get_type_hints(declared)
        _, *parameters = signature(declared).parameters.values()
        self._names = [parameter.name for parameter in parameters]
        fields = [_field(parameter, hints[parameter.name]) for parameter in parameters]
        self._arguments = msgspec.msgpack.Decoder(
            msgspec.defstruct(self.name, fields, kw_only=True, forbid_unknown_fields=True)
        )
        self._answer = msgspec.msgpack.Decoder(_answer_type(self.name, hints["return"]))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, by name."""
        return dict(zip(self._names, args, strict=False)) | dict(kwargs)

    def arguments(self, raw: msgspec.Raw) -> dict[str, Any]:
        """The arguments of a request, each of its declared type."""
        try:
            return msgspec.structs.asdict(self._arguments.decode(raw))
        except msgspec.DecodeError as error:
            raise InvalidInput(f"{self.name}: {error}") from error

    def answer(self, raw: msgspec.Raw) -> Any:
        """The answer, of its declared type."""
        try:
            value = self._answer.decode(raw)
        except msgspec.DecodeError as error:
            raise StoreError(f"the answer to {self.name} makes no sense: {error}") from error
        return Page(value.items, value.after) if self.name in _ITEMS else value


def _field(parameter: Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.default is Parameter.empty:
        return parameter.name, hint
    return parameter.name, hint, parameter.default


def _answer_type(name: str, declared: Any) -> Any:
    if name not in _ITEMS:
        return declared
    return msgspec.defstruct(name, [("items", _ITEMS[name]), ("after", int | None)])


VERBS: Final = {
    name: Verb(declared)
    for protocol in (Store, Admin, Inspect)
    for name, declared in vars(protocol).items()
    if iscoroutinefunction(declared)
}
