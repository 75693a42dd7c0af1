"""The signature of each verb of the store protocol: its annotations are the types on the socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, Final, get_type_hints

import msgspec

from outrider.errors import InvalidInput, StoreError
from outrider.store.forwarding import VERBS
from outrider.store.remote.bounds import bounded_parameter


class Signature:
    """One verb: decodes its arguments and its answer to their declared types."""

    def __init__(self, declared: Callable[..., Any]) -> None:
        self.name = declared.__name__
        hints = get_type_hints(declared, include_extras=True)
        _, *parameters = signature(declared).parameters.values()
        self._names = [parameter.name for parameter in parameters]
        fields = [_field(parameter, hints[parameter.name]) for parameter in parameters]
        self._arguments = msgspec.msgpack.Decoder(
            msgspec.defstruct(self.name, fields, kw_only=True, forbid_unknown_fields=True)
        )
        twins = [(name, bounded_parameter(name, hint), *rest) for name, hint, *rest in fields]
        self._bounds = msgspec.msgpack.Decoder(msgspec.defstruct(self.name, twins, kw_only=True))
        self._answer = msgspec.msgpack.Decoder(hints["return"])

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name."""
        return dict(zip(self._names, args, strict=False)) | dict(kwargs)

    def arguments(self, raw: msgspec.Raw) -> dict[str, Any]:
        """Decode the arguments of a request; InvalidInput: one of them is out of its bounds."""
        try:
            self._bounds.decode(raw)
            return msgspec.structs.asdict(self._arguments.decode(raw))
        except msgspec.DecodeError as error:
            raise InvalidInput(f"{self.name}: {error}") from error

    def answer(self, raw: msgspec.Raw) -> Any:
        """Decode the answer."""
        try:
            return self._answer.decode(raw)
        except msgspec.DecodeError as error:
            raise StoreError(f"{self.name}: the answer can't be decoded: {error}") from error


def _field(parameter: Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.default is Parameter.empty:
        return parameter.name, hint
    return parameter.name, hint, parameter.default


SIGNATURES: Final = {name: Signature(declared) for name, declared in VERBS.items()}
