"""Bounds of what a client sends: a twin of each declared type, with limited values (M3).

Stores trust the values that this process made. What comes from the socket may be anything of the
right type, so the server decodes a request to the twin first: no number that is not finite or that
a store cannot keep, no text longer than its field may be. Fields are bounded by kind, and those of
`FIELDS` more narrowly; limits that a declared type has itself stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from sys import float_info
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from outrider.core import queue_action as actions
from outrider.core.policy.politeness import Politeness
from outrider.core.policy.rules import Budget, CrawlRules
from outrider.core.task import LeaseId, Task
from outrider.core.verdict import Requeue, Revisit, Verdict
from outrider.store.protocol import ClaimRequest, PriorityUpdate, TaskFilter

_I63: Final = 2**63
MAX_TEXT: Final = 2**20  # characters: the settings of a crawl
MAX_BYTES: Final = 2**21
MAX_URL: Final = 65_536
MAX_COUNT: Final = 2**53
MAX_SECONDS: Final = 1e11  # an instant after it fits into every store

Word = Annotated[str, Meta(max_length=255)]
Name = Annotated[str, Meta(max_length=1024)]
Target = Annotated[str, Meta(max_length=4096)]
Url = Annotated[str, Meta(max_length=MAX_URL)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Cost = Annotated[int, Meta(ge=0, le=65_535)]
Lane = Annotated[int, Meta(ge=0, le=1)]
Finite = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Digest = Annotated[bytes, Meta(min_length=16, max_length=16)]

# Values that are bounded by their kind alone.
_KINDS: Final[Mapping[object, Any]] = {
    str: Annotated[str, Meta(max_length=MAX_TEXT)],
    bytes: Annotated[bytes, Meta(max_length=MAX_BYTES)],
    int: Annotated[int, Meta(ge=-_I63, le=_I63 - 1)],
    float: Finite,
}
_Precedence = Annotated[int, Meta(ge=-(2**31), lt=2**31)]


def _override() -> type:
    """Return the fields that an override of rules by key may have; None removes one (A4)."""
    parts = {**_hints(Politeness), **_hints(Budget), "precedence": _Precedence}
    parts |= {"paused": bool, "retired": bool}
    fields = [(name, hint | None, None) for name, hint in parts.items()]
    return msgspec.defstruct("Override", fields, forbid_unknown_fields=True)


def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


_OVERRIDE: Final = _override()
_OVERRIDES: Final = Mapping[Annotated[str, Meta(max_length=4096)], _OVERRIDE]  # type: ignore[valid-type]

# Fields that are bounded more narrowly than their kind.
FIELDS: Final[Mapping[type, Mapping[str, Any]]] = {
    ClaimRequest: {
        "crawl": Name,
        "worker": Name,
        "limit": Count,
        "lease_for": Seconds,
        "per_queue": Count,
        "max_queues": Count,
    },
    LeaseId: {"crawl": Name},
    TaskFilter: {
        "key": Target | None,
        "url": Url | None,
        "pattern": Url | None,
        "type": Word | None,
        "tag": Word | None,
        "reason": Url | None,
        "older_than": Finite | None,
        "fingerprint": Digest | None,
    },
    PriorityUpdate: {"seen": Finite, "priority": Finite},
    Task: {
        "crawl": Name,
        "fingerprint": Digest,
        "url": Url,
        "key": Name,
        "type": Word,
        "lane": Lane,
        "depth": Count,
        "precedence": Cost,
        "cost": Cost,
        "delay": Seconds,
        "roll": Annotated[int, Meta(ge=0, lt=2**48)],
        "origin": Word,
        "via": Url | None,
        "tag": Word | None,
        "text": Url,
        "typed_by": Word,
    },
    Verdict: {
        "crawl": Name,
        "outcome": Word,
        "delay": Seconds,
        "crawl_delay": Seconds | None,
        "throttles_in_row": Count | None,
        "unreachable_in_row": Count | None,
        "blocks_in_row": Count | None,
        "failed": Count,
        "throttled": Count,
        "retry_in": Seconds,
        "reason": Url | None,
        "penalty": Count,
        "snooze": Seconds,
        "snooze_reason": Word | None,
        "retire": Word | None,
    },
    Revisit: {"after": Seconds, "type": Word, "lane": Lane, "precedence": Cost},
    Requeue: {"after": Seconds, "type": Word, "lane": Lane, "precedence": Cost},
    CrawlRules: {
        "keys": _OVERRIDES,
        "runtime": _OVERRIDES,
        "said": _OVERRIDES,
        "max_pending": Count,
        "max_pending_per_queue": Count,
        "burst": Count,
        "max_retries": Count,
        "max_crashes": Count,
    },
    actions.Set: {"changes": _OVERRIDE},
    actions.Snooze: {"seconds": Seconds},
}

# Parameters of verbs, whichever verb has them.
PARAMETERS: Final[Mapping[str, Any]] = {
    "crawl": Name,
    "key": Target,
    "target": Target,
    "reason": Url,
    "mode": Word,
    "roots": list[Target],
    "limit": Count,
    "number": Annotated[int, Meta(ge=0, le=_I63 - 1)],
    "lease_for": Seconds,
    "fingerprint": Digest,
}


def bounded_parameter(name: str, hint: Any) -> Any:
    """Return the bounded type of a verb's parameter."""
    return PARAMETERS.get(name) or bounded(hint)


def bounded(hint: Any) -> Any:
    """Return a type for the same messages, in which every value is limited."""
    if hint in _KINDS:
        return _KINDS[hint]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct_twin(hint)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_field_defaults"):
        return _tuple_twin(hint)
    return _bounded_parts(hint)


def _bounded_parts(hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, *limits = arguments
        return hint if base in _KINDS else Annotated[bounded(base), *limits]
    if origin in (Union, UnionType):
        return Union[tuple(map(bounded, arguments))]  # noqa: UP007 - of computed types
    if not arguments or not isinstance(origin, type):  # also Literal and Any
        return hint
    return origin[tuple(one if one is ... else bounded(one) for one in arguments)]  # type: ignore[index]


@cache
def _struct_twin(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a struct that encodes as `kind` does."""
    config, own = kind.__struct_config__, FIELDS.get(kind, {})
    hints = _hints(kind)
    fields = []
    for one in msgspec.structs.fields(kind):
        default: Any = {"default": one.default, "default_factory": one.default_factory}
        field = msgspec.field(name=one.encode_name, **default)
        fields.append((one.name, own.get(one.name) or bounded(hints[one.name]), field))
    return msgspec.defstruct(
        kind.__name__,
        fields,
        tag=config.tag,
        tag_field=config.tag_field,
        array_like=config.array_like,
        forbid_unknown_fields=config.forbid_unknown_fields,
        kw_only=True,
    )


@cache
def _tuple_twin(kind: Any) -> Any:
    """Return a named tuple that encodes as `kind` does."""
    own, hints = FIELDS.get(kind, {}), _hints(kind)
    make: Any = NamedTuple
    twin = make(kind.__name__, [(name, own.get(name) or bounded(hints[name])) for name in hints])
    twin.__new__.__defaults__ = tuple(kind._field_defaults.values())
    twin._field_defaults = dict(kind._field_defaults)
    return twin
