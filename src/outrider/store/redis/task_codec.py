"""Tasks as they are sent to scripts and stored: a head for the script, and a text.

A text is the length of the URL, the URL, the rest of the description without what queue and kind
hold, and a checksum of these; then the breakdown of the priority with its own checksum. Scripts
read only the URL of it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from outrider.clock import to_ms
from outrider.core.breakdown import Breakdown
from outrider.core.order import ordered, unordered
from outrider.core.outcome import Answer
from outrider.core.task import KnownRule, Task
from outrider.errors import StoreDamaged
from outrider.store.engine.fields import arguments, compile_function
from outrider.store.redis.rows import ADD_DONE, KNOWN_RULES, TaskRow, bytes_of

_encode: Final = msgspec.msgpack.Encoder().encode
_CHECKSUM: Final = struct.Struct(">I")
_RANK: Final = struct.Struct(">HQ")
_HEAD: Final = struct.Struct(">16sBBHQ6sHQIIIII")
_URL_AT: Final = 3
_MAX_KIND_DEPTH: Final = 3  # a kind's depth 3 stands for 3 and more


class _Rest(msgspec.Struct, array_like=True, gc=False):
    fingerprint: bytes
    depth: int = -1  # -1: that of its kind
    via: str | None = None
    meta: bytes = b""
    delay: float = 0.0
    known: KnownRule = "keep"
    text: str = ""
    typed_by: str = ""


class Kind(NamedTuple):
    """Tasks that are counted together."""

    type: str
    tag: str | None
    origin: str
    depth: int  # 3 stands for 3 and more


_, _, *_REST_FIELDS = msgspec.structs.fields(_Rest)  # all but fingerprint and depth
_rest_values: Final = attrgetter(*(field.name for field in _REST_FIELDS))
_PLAIN: Final = tuple(field.default for field in _REST_FIELDS)
_DEFAULTS: Final = (b"", -1, *_PLAIN)
_DELAY: Final = _Rest.__struct_fields__.index("delay")
_FINGERPRINT_ONLY: Final = b"\x91\xc4\x10"  # an array of one: sixteen bytes
_WITH_DEPTH: Final = b"\x92\xc4\x10"  # of two: sixteen bytes and a depth
_decode_rest: Final = msgspec.msgpack.Decoder(_Rest).decode
_decode_breakdown: Final = msgspec.msgpack.Decoder(Breakdown).decode
_decode_answer: Final = msgspec.msgpack.Decoder(Answer).decode


def add_checksum(content: bytes) -> bytes:
    """Return content followed by its checksum."""
    return content + _CHECKSUM.pack(crc32(content))


def _verify_checksum(content: bytes, what: str) -> bytes:
    body = content[:-4]
    if len(content) < 4 or _CHECKSUM.unpack(content[-4:])[0] != crc32(body):
        raise StoreDamaged(
            f"{what} in Redis is not what was written: restore the server from a backup"
        )
    return body


def priority_bytes(priority: float) -> bytes:
    """Return eight bytes that sort as the priority does."""
    return ordered(priority).to_bytes(8, "big")


def rank_bytes(precedence: int, priority: float) -> bytes:
    """Return ten bytes that sort as precedence and priority do."""
    return _RANK.pack(precedence, ordered(priority))


def encode_breakdown(breakdown: Breakdown | None) -> bytes:
    """Return the breakdown of a priority as it is stored; empty: none."""
    return b"" if breakdown is None else add_checksum(_encode(breakdown))


def encode_text(task: Task) -> tuple[bytes, int]:
    """Return a task's text, and where its description ends."""
    url = task.url.encode()
    body = b"".join((len(url).to_bytes(3, "big"), url, _encode_rest(task)))
    body += _CHECKSUM.pack(crc32(body))
    return (body if task.breakdown is None else body + encode_breakdown(task.breakdown)), len(body)


def _encode_rest(task: Task) -> bytes:
    """Encode what `_rest` returns; most tasks have a fingerprint only, or that and a depth."""
    values = _rest_values(task)
    if values != _PLAIN:
        return _encode(_rest(task, values))
    if task.depth <= _MAX_KIND_DEPTH:
        return _FINGERPRINT_ONLY + task.fingerprint
    return b"".join((_WITH_DEPTH, task.fingerprint, _encode(task.depth)))


def _rest(task: Task, values: tuple[Any, ...]) -> list[Any]:
    """Return the fields that queue and kind do not hold, without defaults at the end."""
    depth = task.depth if task.depth > _MAX_KIND_DEPTH else -1
    rest = [task.fingerprint, depth, *values]
    if not task.delay:
        rest[_DELAY] = 0  # a byte, where 0.0 has nine
    while len(rest) > 1 and rest[-1] == _DEFAULTS[len(rest) - 1]:
        rest.pop()
    return rest


def encode_head(task: Task, key: int, kind: int, split: int, start: int, end: int) -> bytes:
    """Return what a script reads of a task, with the positions of its text's parts."""
    return _HEAD.pack(
        task.fingerprint,
        KNOWN_RULES[task.known] + ADD_DONE * task.done,
        task.lane,
        task.precedence,
        ordered(task.priority),
        task.roll.to_bytes(6, "big"),
        task.cost,
        to_ms(task.delay) if task.delay > 0 else 0,
        key,
        kind,
        split,
        start,
        end,
    )


def kind_of(task: Task) -> Kind:
    """Return the kind of a task; `tuple.__new__` costs half, and every link needs it."""
    return tuple.__new__(Kind, (task.type, task.tag, task.origin, min(task.depth, _MAX_KIND_DEPTH)))


def encode_kind(kind: Kind) -> list[Any]:
    """Return a kind as scripts store it."""
    tag = [] if kind.tag is None else [kind.tag]
    return [kind.type, kind.origin, kind.depth, *tag]


@lru_cache(maxsize=65_536)
def decode_kind(content: bytes) -> Kind:
    """Return the kind that a script stored."""
    kind_type, origin, depth, *tag = msgspec.msgpack.decode(content)
    return Kind(kind_type, tag[0] if tag else None, origin, depth)


def tie_of(row: TaskRow) -> int:
    """Return the tie, the last part of a task's order key."""
    return int.from_bytes(bytes_of(row.order)[10:], "big")


def decode_task(crawl: str, row: TaskRow, kind: Kind, key: str) -> Task:
    """Return the task that a row holds."""
    text = bytes_of(row.text)
    body, why = _verify_checksum(text[: row.split], "a task"), text[row.split :]
    end = _URL_AT + int.from_bytes(body[:_URL_AT], "big")
    rest = _decode_rest(body[end:])
    precedence, bits = _RANK.unpack_from(bytes_of(row.order))
    breakdown = _decode_breakdown(_verify_checksum(why, "a breakdown")) if why else None
    url = body[_URL_AT:end].decode()
    task: Task = _make_task(
        crawl, row, kind, key, rest, url, precedence, unordered(bits), breakdown
    )
    return task


# Where each field of a task comes from. Compiled, since keyword arguments would take longer, and
# every lease needs it.
_TASK_VALUES: Final = {
    **{name: name for name in ("crawl", "key", "url", "precedence", "priority", "breakdown")},
    **{name: f"row.{name}" for name in ("lane", "cost", "roll")},
    **{name: f"rest.{name}" for name in _Rest.__struct_fields__},
    **{name: f"kind.{name}" for name in Kind._fields},
    "meta": "read_meta(row.meta) if len(bytes(row.meta)) > 1 else rest.meta",
    "done": "False",
    "depth": "kind.depth if rest.depth < 0 else rest.depth",
}


def _read_meta(meta: msgspec.Raw) -> bytes:
    """Return the meta that a visit gave a task, in place of that of its text (G1)."""
    return _verify_checksum(bytes_of(meta), "a task's meta")


_make_task: Final = compile_function(
    "make_task",
    "crawl, row, kind, key, rest, url, precedence, priority, breakdown",
    [f"return Task({', '.join(arguments(Task.__struct_fields__, _TASK_VALUES, {}))})"],
    {"Task": Task, "read_meta": _read_meta},
)


def encode_answer(answer: Answer | None) -> bytes:
    """Return a host's answer as it is stored; empty: none."""
    return b"" if answer is None else add_checksum(_encode(answer))


def decode_answer(row: TaskRow) -> Answer | None:
    """Return what the host answered to a task, if anything."""
    text = bytes_of(row.answer)
    return _decode_answer(_verify_checksum(text, "an answer")) if text else None
