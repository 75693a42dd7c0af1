"""Field types: which values a field accepts, read off its type, for validation and documentation.

Every number of the tree has two bounds, which keeps NaN and the infinities out.
"""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple, cast

import msgspec
from msgspec import inspect

_Number = inspect.IntType | inspect.FloatType


class Field(NamedTuple):
    """A field, and the struct that has it."""

    owner: type
    name: str
    kind: inspect.Type


@cache
def struct_kind(struct: type[msgspec.Struct]) -> inspect.StructType:
    """Return msgspec's description of a struct."""
    return cast("inspect.StructType", inspect.type_info(struct))


def fields_of(kind: inspect.StructType) -> dict[str, Field]:
    """Return the fields of a struct by name."""
    return {field.name: Field(kind.cls, field.name, field.type) for field in kind.fields}


def initial_value(kind: inspect.Type) -> object:
    """Return the initial value of a new entry of an open table."""
    return kind.cls() if isinstance(kind, inspect.StructType) else None


def accepts(kind: inspect.Type, value: object) -> bool:
    """Tell whether a field of this kind accepts a plain value."""
    match kind:
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.LiteralType():
            return isinstance(value, str) and value in kind.values
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool) and _within(kind, value)
        case inspect.FloatType():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return number and _within(kind, cast("float", value))
        case _:
            raise TypeError(f"no setting was of this kind before: {kind}")


def _within(kind: _Number, value: float) -> bool:
    over = value > cast("float", kind.gt) if kind.ge is None else value >= kind.ge
    return over and value <= cast("float", kind.le)


def allowed_values(kind: inspect.Type) -> str:
    """Return what a field of this kind accepts, in words."""
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            return _either([json.dumps(value) for value in kind.values])
        case inspect.IntType():
            return "a whole number " + _bounds(kind)
        case inspect.FloatType():
            return "a number " + _bounds(kind)
        case inspect.VarTupleType() if isinstance(kind.item_type, inspect.StructType):
            return "a list of tables"
        case inspect.VarTupleType():
            return f"a list of {allowed_values(kind.item_type)}s"
        case inspect.StrType():
            return "text"
        case _:
            return "a name or a function"


def _either(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _bounds(kind: _Number) -> str:
    least = f"over {_digits(kind.gt)}" if kind.ge is None else f"from {_digits(kind.ge)}"
    return f"{least} to {_digits(kind.le)}"


def _digits(bound: float | None) -> str:
    if bound == 2**53:
        return "2^53"
    return str(int(bound)) if bound is not None and bound == int(bound) else str(bound)
