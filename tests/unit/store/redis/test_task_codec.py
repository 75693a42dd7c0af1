"""Tasks are decoded as they were encoded; damaged ones are refused."""

import msgspec
import pytest

from outrider.core.breakdown import Breakdown
from outrider.core.outcome import Answer
from outrider.errors import StoreDamaged
from outrider.store.redis.rows import HEAD_BYTES, ROW, TaskRow, bytes_of, raw
from outrider.store.redis.task_codec import (
    decode_answer,
    decode_kind,
    decode_task,
    encode_answer,
    encode_head,
    encode_kind,
    encode_text,
    kind_of,
    priority_bytes,
    rank_bytes,
    tie_of,
)
from outrider.testing.builders import task

FULL = task(
    "https://a.example/ä?x=1",
    crawl="c",
    key="Ä.example",
    type="article",
    lane=1,
    depth=7,
    precedence=3,
    priority=-2.5,
    cost=3,
    delay=4.25,
    known="revisit",
    roll=2**48 - 1,
    origin="sitemap",
    via="https://b.example/",
    tag="t",
    meta=b'{"a":1}',
    breakdown=Breakdown("explicit", (("explicit", -2.5),)),
)


def row(one, text=None, answer=b""):
    """Return the row of a task as a script writes it."""
    written, split = encode_text(one)
    order = rank_bytes(one.precedence, one.priority) + (77).to_bytes(6, "big")
    return TaskRow(
        ROW,
        state=0,
        lane=one.lane,
        kind=1,
        queue=1,
        cost=one.cost,
        discovered=0,
        due=0,
        roll=one.roll,
        order=raw(order),
        split=split,
        text=raw(written if text is None else text),
        answer=raw(answer),
    )


@pytest.mark.parametrize(
    "one",
    [
        FULL,
        task("https://a.example/", crawl="c"),
        task("https://a.example/", crawl="c", depth=3),
        task("https://a.example/", crawl="c", depth=4),
        task("https://a.example/", crawl="c", depth=300),
        task("https://a.example/", crawl="c", via=""),
        task("https://a.example/", crawl="c", meta=b"{}"),
        task("https://a.example/", crawl="c", delay=0.5),
        task("https://a.example/", crawl="c", known="raise"),
    ],
    ids=["full", "plain", "depth-3", "depth-4", "depth-300", "via", "meta", "delay", "known"],
)
def test_task_is_decoded_as_it_was_encoded(one):
    """B1: every field, through the description, the row and the kind."""
    kind = decode_kind(msgspec.msgpack.encode(encode_kind(kind_of(one))))

    assert decode_task("c", row(one), kind, one.key) == one
    assert tie_of(row(one)) == 77


@pytest.mark.parametrize("place", [0, 5, 12, 30, -1])
def test_damaged_text_is_refused(place):
    """One bit in the description or the breakdown is enough."""
    text = bytearray(encode_text(FULL)[0])
    text[place] ^= 1

    with pytest.raises(StoreDamaged, match="not what was written"):
        decode_task("c", row(FULL, bytes(text)), kind_of(FULL), FULL.key)


def test_answer_is_decoded_as_it_was_encoded():
    """G3: a damaged one is refused."""
    answer = Answer(200, 7, "d", None, "Mon", 3, 1, 2.5, 60.0)
    text = encode_answer(answer)

    assert decode_answer(row(FULL)) is None
    assert decode_answer(row(FULL, answer=text)) == answer
    with pytest.raises(StoreDamaged):
        decode_answer(row(FULL, answer=text[:-1] + b"\0"))


@pytest.mark.parametrize("size", [0, 1, 31, 32, 255, 256, 65_535, 65_536])
def test_bytes_are_decoded_as_lua_writes_them(size):
    """Of any length and content."""
    content = bytes(range(256)) * (size // 256 + 1)

    assert bytes_of(raw(content[:size])) == content[:size]


def test_ranks_sort_as_precedence_and_priority_do():
    """C2: negative numbers too, and -0.0 is 0.0."""
    ranks = [(0, 5.0), (1, -1e300), (1, -2.5), (1, -0.0), (1, 1e-300), (1, 3.0), (2, -9.0)]

    assert [rank_bytes(*one) for one in ranks] == sorted(rank_bytes(*one) for one in ranks)
    assert rank_bytes(1, -0.0) == rank_bytes(1, 0.0)


def test_head_has_the_length_that_scripts_assume():
    """They find the next head by it."""
    assert len(encode_head(FULL, 1, 1, 1, 2, 3)) == HEAD_BYTES


def test_priorities_sort_as_bytes():
    """C9: scripts compare bytes; -0.0 is 0.0."""
    priorities = [-1e308, -2.5, -5e-324, 0.0, 5e-324, 1.0, 1e308]

    assert sorted(priorities, key=priority_bytes) == priorities
    assert priority_bytes(-0.0) == priority_bytes(0.0)
    assert rank_bytes(7, -2.5)[2:] == priority_bytes(-2.5)
