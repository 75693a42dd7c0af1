"""Validation of claims, shared values and priority updates, before a store receives them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import msgspec

from outrider.errors import InvalidInput
from outrider.store.protocol import NO_PROCESS, ClaimRequest, PriorityUpdate, SharedValueWrite

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[SharedValueWrite]).decode


def validate_claim(request: ClaimRequest) -> None:
    """Raise InvalidInput if a claim has the process name that is reserved (H4)."""
    if request.process == NO_PROCESS:
        raise InvalidInput(
            f"ClaimRequest.process = {NO_PROCESS!r} is no process's name; "
            "for leases that outlive every process, set outlives_process"
        )


def validate_shared_values(values: Sequence[SharedValueWrite]) -> None:
    """Raise InvalidInput if any store could not keep one of the values."""
    try:
        _decode(_encode(list(values)))
    except (msgspec.MsgspecError, TypeError, OverflowError, UnicodeError) as error:
        raise InvalidInput(f"shared values: {error}") from error
    for value in values:
        if "\0" in value.topic + value.name + value.text:
            raise InvalidInput(
                f"shared value {value.topic!r} {value.name!r}: remove the NUL character"
            )


def validate_priority_updates(updates: Sequence[PriorityUpdate]) -> None:
    """Raise InvalidInput if a priority is not a finite number (C2)."""
    for update in updates:
        if not (isfinite(update.seen) and isfinite(update.priority)):
            raise InvalidInput(f"priority {update.priority} of task {update.task} must be finite")
