"""Validation of what callers give a store, before it looks anything up or changes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, Final

import msgspec

from outrider.core.link_validation import is_text, short_repr
from outrider.core.verdict import Verdict
from outrider.errors import InvalidInput
from outrider.store.byte_limits import MAX_LINKS_BYTES, verdict_bytes
from outrider.store.protocol import (
    MAX_CLAIM_KEY_CHARS,
    MAX_CLAIM_KEYS,
    MAX_PAGE,
    MAX_ROLLS,
    NO_PROCESS,
    STORE_VALUES,
    ClaimRequest,
    EventBatch,
    Heartbeat,
    PriorityUpdate,
    SharedValueWrite,
)

VALUE_VERBS: Final = frozenset({"put_values", "values_since"})  # those that serve `STORE_VALUES`

_encode = msgspec.msgpack.Encoder().encode
_decode_heartbeat = msgspec.msgpack.Decoder(Heartbeat).decode
_decode_batch = msgspec.msgpack.Decoder(EventBatch).decode
_decode = msgspec.msgpack.Decoder(list[SharedValueWrite]).decode


def validate_claim(request: ClaimRequest) -> None:
    """Raise InvalidInput if a claim is for what no store can lease (C5, D1, H4)."""
    if request.keys:
        _validate_keys(request)
    if request.max_queues and not (type(request.max_queues) is int and request.max_queues > 0):
        raise InvalidInput(f"ClaimRequest.max_queues = {request.max_queues!r}: a whole number ≥ 0")
    if request.rolls:
        _validate_rolls(request.rolls)
    if request.process == NO_PROCESS:
        raise InvalidInput(
            f"ClaimRequest.process = {NO_PROCESS!r} is no process's name; "
            "for leases that outlive every process, set outlives_process"
        )


def _validate_rolls(rolls: Sequence[float]) -> None:
    if len(rolls) > MAX_ROLLS:
        raise InvalidInput(f"ClaimRequest.rolls has {len(rolls)} numbers; give {MAX_ROLLS} at most")
    for roll in rolls:
        if not (isinstance(roll, float | int) and 0 <= roll < 1):
            raise InvalidInput(f"ClaimRequest.rolls: {roll!r} must be from 0 to below 1")


def _validate_keys(request: ClaimRequest) -> None:
    keys = request.keys
    if request.fingerprints:
        raise InvalidInput("ClaimRequest.keys and .fingerprints exclude each other: give one")
    if isinstance(keys, str) or not all(isinstance(key, str) and is_text(key) for key in keys):
        raise InvalidInput(f"ClaimRequest.keys = {short_repr(keys)}: a list of keys, each a text")
    if len(keys) > MAX_CLAIM_KEYS:
        raise InvalidInput(f"ClaimRequest.keys has {len(keys)} keys; give {MAX_CLAIM_KEYS} at most")
    longest = max(keys, key=len)
    if len(longest) > MAX_CLAIM_KEY_CHARS:
        raise InvalidInput(
            f"ClaimRequest.keys: {short_repr(longest)} has {len(longest)} characters; no queue's "
            f"key has more than {MAX_CLAIM_KEY_CHARS}"
        )


def validate_crawls(names: Iterable[str]) -> None:
    """Raise InvalidInput if one of the crawls is that of the store's own values (N1)."""
    if STORE_VALUES in names:
        raise InvalidInput(
            f"crawl {STORE_VALUES!r}: the store itself has only shared values; name a crawl"
        )


def validate_call(verb: str, args: Sequence[Any]) -> None:
    """Check the crawls of a verb, whose first argument names them, unless it serves values."""
    if not args or verb in VALUE_VERBS:
        return
    first = args[0]
    if isinstance(first, str):
        validate_crawls((first,))
    elif isinstance(first, ClaimRequest):
        validate_crawls((first.crawl,))
    else:  # tasks, verdicts or leases
        validate_crawls({item.crawl for item in first})


def validate_links(verdict: Verdict) -> int:
    """Return the size of a page's links, which are one step with its finish (H6).

    Raises InvalidInput if no call to a server takes them.
    """
    size = verdict_bytes(verdict)
    if size > MAX_LINKS_BYTES:
        raise InvalidInput(
            f"the links of task {verdict.task} have {size} bytes, and one finish takes at most "
            f"{MAX_LINKS_BYTES}: finish it with fewer or shorter links, and add the others before"
        )
    return size


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


def validate_batch(batch: EventBatch) -> None:
    """Raise InvalidInput if any store could not keep a batch of events (O3)."""
    try:
        _decode_batch(_encode(batch))
    except (msgspec.MsgspecError, TypeError, OverflowError, UnicodeError) as error:
        raise InvalidInput(f"events to publish: {error}") from error
    texts = (text for one in batch.events for text in (one.name, one.data))
    if any("\0" in text for text in (batch.publisher, batch.worker, *texts)):
        raise InvalidInput("events to publish: remove the NUL character")
    if not all(isfinite(one.at) for one in batch.events):
        raise InvalidInput("events to publish: the time of an event must be finite")


def validate_priority_updates(updates: Sequence[PriorityUpdate]) -> None:
    """Raise InvalidInput if a priority is not a finite number (C2)."""
    for update in updates:
        if not (isfinite(update.seen) and isfinite(update.priority)):
            raise InvalidInput(f"priority {update.priority} of task {update.task} must be finite")


def validate_heartbeat(heartbeat: Heartbeat) -> None:
    """Raise InvalidInput if a heartbeat has more, or other values, than stores keep (M6)."""
    totals, about = heartbeat.totals, f"heartbeat of {short_repr(heartbeat.worker)}"
    try:
        _decode_heartbeat(_encode(heartbeat))
    except (msgspec.MsgspecError, TypeError, OverflowError, UnicodeError) as error:
        raise InvalidInput(f"{about}: {error}") from error
    names = (heartbeat.worker, heartbeat.host, *totals.outcomes, *totals.refusals, *totals.latency)
    if any("\0" in text for text in (*names, *(one.reason for one in totals.decisions))):
        raise InvalidInput(f"{about}: remove the NUL character")
    if not all(isfinite(one.at) for one in totals.decisions):
        raise InvalidInput(f"{about}: the time of a decision must be finite")


def validate_limit(limit: int) -> None:
    """Raise InvalidInput unless a result page of that size may be asked for."""
    if type(limit) is not int or not 0 < limit <= MAX_PAGE:
        raise InvalidInput(f"limit={limit!r} must be a whole number from 1 to {MAX_PAGE}")


def validate_page(after: int, limit: int) -> None:
    """Raise InvalidInput unless a result page may begin after that number and have that size."""
    if type(after) is not int or after < 0:
        raise InvalidInput(
            f"after={after!r} must be 0, for the first page, or the `after` of the page before"
        )
    validate_limit(limit)
