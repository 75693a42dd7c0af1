"""A task as it is written and read: its description, once and for all, and why it stands where.

A text is the length of the URL, the URL, the rest of the description less what its queue and kind
tell, and their checksum; then the breakdown with its own. Scripts read no more of it than the URL.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from outrider.clock import to_ms
from outrider.core.breakdown import Breakdown
from outrider.core.order import ordered, unordered
from outrider.core.outcome import Answer
from outrider.core.states import TaskState
from outrider.core.task import KnownRule, Task
from outrider.errors import StoreDamaged
from outrider.store.redis.rows import TaskRow, bytes_of

STATES: Final = tuple(TaskState)
KNOWN: Final = {"keep": 0, "raise": 1, "revisit": 2, "gather": 3}

_encode: Final = msgspec.msgpack.Encoder().encode
_SUM: Final = struct.Struct(">I")
_RANK: Final = struct.Struct(">HQ")
_HEAD: Final = struct.Struct(">16sBBHQ6sHQIIIII")
_URL_AT: Final = 3
_SEVERAL: Final = 3  # of a kind's depth: so many and more


class _Rest(msgspec.Struct, array_like=True, gc=False):
    fingerprint: bytes
    depth: int = -1  # -1: as its kind says
    via: str | None = None
    meta: bytes = b""
    delay: float = 0.0
    known: KnownRule = "keep"


class Kind(NamedTuple):
    """Tasks that count together."""

    type: str
    tag: str | None
    origin: str
    depth: int  # 3 stands for 3 and more


_USUAL: Final = (b"", -1, None, b"", 0, "keep")
_PLAIN: Final = b"\x91\xc4\x10"  # an array of one: sixteen bytes
_DEEP: Final = b"\x92\xc4\x10"  # of two: sixteen bytes and a depth
_rest_of: Final = msgspec.msgpack.Decoder(_Rest).decode
_breakdown_of: Final = msgspec.msgpack.Decoder(Breakdown).decode
_answer_of: Final = msgspec.msgpack.Decoder(Answer).decode
row_of: Final = msgspec.msgpack.Decoder(TaskRow).decode


def sealed(content: bytes) -> bytes:
    """With its checksum."""
    return content + _SUM.pack(crc32(content))


def _opened(content: bytes, what: str) -> bytes:
    body = content[:-4]
    if len(content) < 4 or _SUM.unpack(content[-4:])[0] != crc32(body):
        raise StoreDamaged(f"{what} in Redis is not what was written; restore the server's copy")
    return body


def sorted_bytes(priority: float) -> bytes:
    """Eight bytes that sort as it does."""
    return ordered(priority).to_bytes(8, "big")


def rank_of(precedence: int, priority: float) -> bytes:
    """Ten bytes that sort as the two do."""
    return _RANK.pack(precedence, ordered(priority))


def breakdown_text(breakdown: Breakdown | None) -> bytes:
    """Why a priority is what it is; nothing if nobody said."""
    return b"" if breakdown is None else sealed(_encode(breakdown))


def text_of(task: Task) -> tuple[bytes, int]:
    """The text, and where its description ends."""
    url = task.url.encode()
    body = b"".join((len(url).to_bytes(3, "big"), url, _rest_text(task)))
    body += _SUM.pack(crc32(body))
    return (body if task.breakdown is None else body + breakdown_text(task.breakdown)), len(body)


def _rest_text(task: Task) -> bytes:
    """As `_rest` is written; of most tasks it is a fingerprint, or that and a depth."""
    if task.via is not None or task.meta or task.delay or task.known != "keep":
        return _encode(_rest(task))
    if task.depth <= _SEVERAL:
        return _PLAIN + task.fingerprint
    return b"".join((_DEEP, task.fingerprint, _encode(task.depth)))


def _rest(task: Task) -> list[Any]:
    """What queue and kind do not tell, without what is as usual at its end."""
    depth = task.depth if task.depth > _SEVERAL else -1
    rest = [task.fingerprint, depth, task.via, task.meta, task.delay or 0, task.known]
    while len(rest) > 1 and rest[-1] == _USUAL[len(rest) - 1]:
        rest.pop()
    return rest


def head_of(task: Task, key: int, kind: int, split: int, start: int, end: int) -> bytes:
    """What a script reads of a task; of its text: where its two parts, and the whole, are."""
    return _HEAD.pack(
        task.fingerprint,
        KNOWN[task.known],
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
    """Which tasks it counts with; made as a tuple is, at half the price: every link asks."""
    return tuple.__new__(Kind, (task.type, task.tag, task.origin, min(task.depth, _SEVERAL)))


def written_kind(kind: Kind) -> list[Any]:
    """As scripts know it."""
    named = [] if kind.tag is None else [kind.tag]
    return [kind.type, kind.origin, kind.depth, *named]


@lru_cache(maxsize=65_536)
def read_kind(content: bytes) -> Kind:
    """The kind behind what a script wrote."""
    kind_type, origin, depth, *tag = msgspec.msgpack.decode(content)
    return Kind(kind_type, tag[0] if tag else None, origin, depth)


def tie_of(row: TaskRow) -> int:
    """The last part of its order key."""
    return int.from_bytes(bytes_of(row.order)[10:], "big")


def task_of(crawl: str, row: TaskRow, kind: Kind, key: str) -> Task:
    """The task behind a row."""
    text = bytes_of(row.text)
    body, why = _opened(text[: row.split], "a task"), text[row.split :]
    end = _URL_AT + int.from_bytes(body[:_URL_AT], "big")
    rest = _rest_of(body[end:])
    precedence, bits = _RANK.unpack_from(bytes_of(row.order))
    return Task(
        crawl,
        rest.fingerprint,
        body[_URL_AT:end].decode(),
        key,
        kind.type,
        row.lane,
        kind.depth if rest.depth < 0 else rest.depth,
        precedence,
        unordered(bits),
        row.cost,
        rest.delay,
        rest.known,
        row.roll,
        kind.origin,
        rest.via,
        kind.tag,
        rest.meta,
        _breakdown_of(_opened(why, "a breakdown")) if why else None,
    )


def answer_text(answer: Answer | None) -> bytes:
    """What a host answered."""
    return b"" if answer is None else sealed(_encode(answer))


def answer_of(row: TaskRow) -> Answer | None:
    """What its host answered, if anything."""
    text = bytes_of(row.answer)
    return _answer_of(_opened(text, "an answer")) if text else None
