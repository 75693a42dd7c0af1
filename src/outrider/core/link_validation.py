"""Validation of links: an error names the field and the fix; meta is encoded as it is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from math import inf, isfinite, nan
from operator import attrgetter
from typing import Any, Final, get_args

from msgspec.structs import replace

from outrider.core.policy.queue_key import valid_key
from outrider.core.policy.weights import TYPE_WEIGHTS
from outrider.core.task import DEFAULT_DEPTH, PRIORITIES, KnownRule, Link

DEFAULT_MAX_META: Final = 16_384  # bytes of JSON
MAX_META: Final = 1_048_576  # to which a crawl may raise it
MAX_DELAY: Final = 10 * 365 * 86_400.0

FINGERPRINT_BYTES: Final = 16
_MAX_DEPTH: Final = 1_000_000
_COMMON_TYPES: Final = frozenset({"page", "hub", *TYPE_WEIGHTS})
_TEXT_LIMITS: Final = {
    "via": 8192,
    "origin": 255,
    "tag": 255,
    "identity": 65_536,
    "text": 8192,
}
MAX_PLACES: Final = 8  # words of `found`
_MAX_FOUND: Final = 33 * MAX_PLACES  # characters, one more than the words may have
_PLACE: Final = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII).fullmatch
_texts: Final = attrgetter(*_TEXT_LIMITS)
_NO_TEXTS: Final = (None,) * len(_TEXT_LIMITS)
_KNOWN_RULES: Final = get_args(KnownRule)
# Other crawlers' names in meta for what scoring reads (F3, F6, F7), with the names used here.
ORIGIN_NAME: Final = "discoveryMethod"
META_NAMES: Final = {"knowledgeReuse": "knowledge_reuse", "estimatedCostMs": "estimated_cost_ms"}
# What a value under another crawler's name may be: up to which number, and in words.
_MEASURES: Final = {
    "knowledgeReuse": (1.0, "a number from 0 to 1"),
    "estimatedCostMs": (inf, "milliseconds, a number from 0 on"),
}
_has_no_other_name: Final = frozenset({ORIGIN_NAME, *META_NAMES}).isdisjoint
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def is_ordinary(link: Link) -> bool:
    """Tell cheaply whether a link needs no further checks; almost all are such."""
    return (
        (link.depth is DEFAULT_DEPTH or (type(link.depth) is int and 0 <= link.depth <= _MAX_DEPTH))
        and (link.priority is None or (type(link.priority) is float and isfinite(link.priority)))
        and type(link.type) is str
        and link.type in _COMMON_TYPES
        and link.known == "keep"
        and link.bias == 0.0
        and link.delay == 0.0
        and link.base_priority is None
        and link.key is None
        and link.via is link.origin is link.tag is link.identity is link.text is None
        and not link.done
        and link.fingerprint is None
        and (link.found is None or (type(link.found) is str and found_error(link.found) is None))
        and (not link.meta or (type(link.meta) is dict and _has_no_other_name(link.meta)))
    )


def rename_meta(link: Link) -> Link | str:
    """Give what other crawlers' names in meta say under the names that scoring reads.

    The method of discovery becomes the link's origin. A value that cannot be used, or is given
    under both names and differs, is an error, which is returned. None says nothing.
    """
    meta = link.meta
    if not isinstance(meta, dict) or _has_no_other_name(meta):
        return link
    kept = {name: value for name, value in meta.items() if name != ORIGIN_NAME}
    fault = _rename(kept)
    if fault is not None:
        return fault
    origin = meta.get(ORIGIN_NAME)
    if origin is None:
        return replace(link, meta=kept)
    if link.origin is not None and link.origin != origin:
        return _both_names("origin", link.origin, ORIGIN_NAME, origin)
    if (fault := _value_error(f"meta.{ORIGIN_NAME}", origin, "origin")) is not None:
        return fault
    return replace(link, meta=kept, origin=origin)


def meta_of_outcome(given: Mapping[str, Any], most: int) -> bytes | str:
    """Encode the meta an outcome gives its task, as `encode_meta`; it can give no origin."""
    renamed = rename_meta(Link("", meta=given))
    if isinstance(renamed, str):
        return renamed
    if renamed.origin is not None:
        return f"meta.{ORIGIN_NAME}: the origin of a task stays as it is; leave it out"
    return encode_meta(renamed.meta, most)


def _rename(meta: dict[str, Any]) -> str | None:
    """Rename other crawlers' names in place; return what contradicts or cannot be used."""
    for other, name in META_NAMES.items():
        if other not in meta:
            continue
        value = meta.pop(other)
        if value is not None and (fault := _measure_error(other, value)) is not None:
            return fault
        if name in meta and meta[name] != value:
            return _both_names(f"meta.{name}", meta[name], other, value)
        meta[name] = value
    return None


def _measure_error(name: str, value: object) -> str | None:
    most, wanted = _MEASURES[name]
    is_number = type(value) is int or type(value) is float
    if is_number and 0 <= value <= most:  # type: ignore[operator]
        return None
    return f"meta.{name} = {short_repr(value)} must be {wanted}"


def _both_names(name: str, value: object, other: str, given: object) -> str:
    values = f"{name} = {short_repr(value)} and meta.{other} = {short_repr(given)}"
    return f"{values} say the same thing and differ: give {name} alone"


def link_error(link: Link) -> str | None:
    """Return what is wrong with a link, with the field and the fix; None: nothing."""
    return _number_error(link) or _text_error(link)


def _number_error(link: Link) -> str | None:
    is_whole = link.depth is DEFAULT_DEPTH or type(link.depth) is int
    if not is_whole or not 0 <= link.depth <= _MAX_DEPTH:
        return f"depth = {short_repr(link.depth)} must be a whole number from 0 to 1,000,000"
    if link.priority is not None and (error := priority_error(link.priority)) is not None:
        return error
    if link.base_priority is not None and not _is_finite(link.base_priority):
        return f"base_priority = {short_repr(link.base_priority)} must be finite"
    if not _is_finite(link.bias):
        return f"bias = {short_repr(link.bias)} must be finite"
    if not (_is_finite(link.delay) and 0 <= link.delay <= MAX_DELAY):
        return f"delay = {short_repr(link.delay)} must be seconds from 0 to ten years"
    return None


def _text_error(link: Link) -> str | None:
    if (error := type_error(link.type)) is not None:
        return error
    if link.key is not None and valid_key(link.key) is None:
        return f"key = {short_repr(link.key)} must be printable text, 1 to 255 long"
    if link.known not in _KNOWN_RULES:
        return f"known = {short_repr(link.known)} must be one of {', '.join(_KNOWN_RULES)}"
    if link.found is not None and (error := found_error(link.found)) is not None:
        return error
    if link.done or link.fingerprint is not None:
        fault = _known_error(link)
        if fault is not None:
            return fault
    if _texts(link) == _NO_TEXTS:
        return None
    return next(filter(None, (_field_error(link, name) for name in _TEXT_LIMITS)), None)


def priority_error(priority: object) -> str | None:
    """Return what is wrong with an explicit priority."""
    if _is_finite(priority_number(priority)):
        return None
    return f"priority = {short_repr(priority)} must be finite, or one of {', '.join(PRIORITIES)}"


def type_error(kind: object) -> str | None:
    """Return what is wrong with the type of a task."""
    if isinstance(kind, str) and 0 < len(kind) <= 64 and is_text(kind):
        return None
    return f"type = {short_repr(kind)} must be text, 1 to 64 long"


def found_error(found: object) -> str | None:
    """Return what is wrong with the places where a link was found."""
    if isinstance(found, str) and _are_places(found):
        return None
    return (
        f"found = {short_repr(found)} must be 1 to {MAX_PLACES} words with spaces between them,"
        " each of up to 32 lower-case letters, digits and hyphens, as in 'nav header'"
    )


@lru_cache(maxsize=1024)
def _are_places(found: str) -> bool:
    words = found[:_MAX_FOUND].split(" ")
    is_short = len(found) < _MAX_FOUND and len(words) <= MAX_PLACES
    return is_short and all(map(_PLACE, words))


def _known_error(link: Link) -> str | None:
    """Return what is wrong with a link that is known as done, or brings its fingerprint (B3)."""
    if link.fingerprint is not None and not _is_fingerprint(link.fingerprint):
        return f"fingerprint = {short_repr(link.fingerprint)} must be {FINGERPRINT_BYTES} bytes"
    if type(link.done) is not bool:
        return f"done = {short_repr(link.done)} must be true or false"
    if link.done and link.known not in ("keep", "set"):
        return f"known = {short_repr(link.known)} must be keep or set, since the link is done"
    if link.done and not link.url and link.identity is None and link.fingerprint is None:
        return "url = '': a link without a URL needs an identity or a fingerprint"
    return None


def _is_fingerprint(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == FINGERPRINT_BYTES


def _field_error(link: Link, name: str) -> str | None:
    return _value_error(name, getattr(link, name), name)


def _value_error(shown: str, value: Any, name: str) -> str | None:
    """Return what is wrong with the value of a text field, which is shown under this name."""
    most = _TEXT_LIMITS[name]
    is_fine = isinstance(value, str) and len(value) <= most and is_text(value)
    if value is None or (is_fine and name != "text"):
        return None
    if is_fine and "\0" not in value and len(value.encode()) <= most:
        return None
    bound = f"{most} bytes of UTF-8 without NUL" if name == "text" else f"{most} long"
    return f"{shown} = {short_repr(value)} must be text, at most {bound}"


def encode_meta(meta: Mapping[str, Any], most: int = DEFAULT_MAX_META) -> bytes | str:
    """Encode meta as strict JSON of at most so many bytes, or return what is wrong with it."""
    if not isinstance(meta, dict):
        return f"meta must be a dict, not {type(meta).__name__}"
    try:
        data = _encode(meta).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return f"meta is not JSON: {str(error)[:120]}"
    if len(data) <= most:
        return data
    return f"meta: {len(data)} bytes of JSON, over {most}; to admit more, raise queue.max_meta"


def priority_number(priority: object) -> float:
    """Return a priority given as a number or by name; NaN for anything else."""
    if type(priority) is float:
        return priority
    if isinstance(priority, str):
        return PRIORITIES.get(priority, nan)
    try:
        return float(priority) if isinstance(priority, int | float) else nan
    except OverflowError:
        return inf


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(priority_number(value))


def is_text(value: str) -> bool:
    """Tell whether text can be encoded: lone surrogates cannot."""
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def short_repr(value: object) -> str:
    """Return a short text of any value, for messages."""
    try:
        return repr(value)[:60]
    except Exception:  # noqa: BLE001 - a user's repr, or a number too long to write
        return f"a {type(value).__name__}"
