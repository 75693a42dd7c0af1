"""What is kept of a crawl, a queue and a task: rows that scripts and Python read alike.

A row is one msgpack array. Scripts know its fields by the names and the order they have here, so
a field is added at the end, and never taken away. Lua writes bytes as msgpack strings: such a field
is `Raw` here, and read by `bytes_of`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from outrider.core.states import CrawlStatus

FORMAT: Final = 1  # of all that is kept; a newer one is refused
ROW: Final = 1  # the version of a row
HEAD_BYTES: Final = 64  # of a task, as `texts` sends it

Text: TypeAlias = str | Literal[False]  # False: none
_NOTHING: Final = msgspec.Raw(b"\xa0")


class CrawlRow(msgspec.Struct, array_like=True, gc=False):
    """A crawl's own numbers, and those of its rules that scripts go by."""

    version: int = ROW
    name: str = ""
    epoch: int = 0  # which of its rules hold
    by_turn: bool = False
    tie: str = "fifo"
    discount: float = 0.0
    max_pending: int = 0
    max_pending_each: int = 0
    burst: int = 5
    max_retries: int = 3
    max_crashes: int = 3
    pause_at_finish: bool = False
    limit_tasks: int = 0
    limit_done: int = 0
    limit_bytes: int = 0
    limit_seconds: float = 0.0
    created: int = 0
    clock: int = 0  # the latest moment it knows: time never steps back
    status: CrawlStatus = CrawlStatus.RUNNING
    reason: Text = False
    at_finish: bool = False
    told: bool = True
    count: int = 0
    queues: int = 0
    counter: int = 0
    arrivals: int = 0
    tokens: int = 0
    pending: int = 0
    leased: int = 0
    held: int = 0
    visits: int = 0
    dones: int = 0
    bytes: int = 0
    runs: int = 0
    first: int = -1
    finished: int = -1
    logged: int = 0
    known_buckets: int = 1
    key_buckets: int = 1
    waited_for: bool = False  # a claim found too little: whoever brings work rings
    opens_below: msgspec.Raw = _NOTHING  # eight bytes that sort as the priority does; none: off
    noted: int = 0  # the number of the last note


class QueueRow(msgspec.Struct, array_like=True, gc=False):
    """A queue's numbers; `top` is the first of a lane, `rank` and `spot` where the queue stands."""

    version: int
    key: str
    number: int
    rules: int
    turn: int
    paused: bool = False
    retired: str = ""
    in_flight: int = 0
    named: int = 0
    lent: int = 0
    crashed: int = 0
    standing: int = 0
    place: int = 0
    alarm: int = 0
    session: int = -1
    spent: int = 0
    next_ready: int = 0
    why: str = "delay"
    last_start: int = -1
    last_end: int = -1
    level: int = 0
    calm: int = 0
    throttles_in_row: int = 0
    unreachable_in_row: int = 0
    blocks_in_row: int = 0
    last_delay: float = -1.0
    crawl_delay: float = 0.0
    errors: int = 0
    dones: int = 0
    bytes: int = 0
    done: int = 0
    dead: int = 0
    dropped: int = 0
    last_cost: int = 0
    cost_sum: int = 0
    cost_count: int = 0
    soon: int = -1  # when the first of the delayed is due
    top0: msgspec.Raw = _NOTHING
    top1: msgspec.Raw = _NOTHING
    rank0: msgspec.Raw = _NOTHING
    rank1: msgspec.Raw = _NOTHING
    spot: msgspec.Raw = _NOTHING


class TaskRow(msgspec.Struct, array_like=True, gc=False):
    """A task; the second half is there once something happened to it."""

    version: int
    state: int
    lane: int
    kind: int
    queue: int
    cost: int
    discovered: int  # milliseconds after its crawl was created
    due: int  # 0: since it was discovered
    roll: int
    order: msgspec.Raw  # precedence, priority and tie
    split: int  # where in the text the description ends and the breakdown begins
    text: msgspec.Raw
    token: int = 0
    claimed: int = -1
    finished: int = -1
    answered: int = -1
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    throttles: int = 0
    named: bool = False
    lent: bool = False
    reason: Text = False
    worker: str = ""
    history: list[tuple[float, str, str]] = []
    answer: msgspec.Raw = _NOTHING


class VerdictRow(msgspec.Struct, array_like=True, gc=False):
    """A verdict, in milliseconds; None leaves a count as it is."""

    task: int
    token: int
    outcome: str
    state: int
    links: int
    delay: int
    last_delay: float
    answer: msgspec.Raw | None
    size: int
    throttles_in_row: int | None
    unreachable_in_row: int | None
    blocks_in_row: int | None
    calm: int | None
    crawl_delay: float | None
    level: int | None
    counts: bool
    failed: int
    throttled: int
    retry_in: int
    reason: str | None
    penalty: int
    touched: bool
    snooze: int
    snooze_reason: str | None
    retire: str | None
    revisit: tuple[int, str, int, msgspec.Raw, msgspec.Raw] | None  # after, type, lane, rank, why


class RulesRow(msgspec.Struct, array_like=True, gc=False):
    """The rules of a queue, as far as scripts go by them."""

    precedence: int
    slots: int
    balance: int
    total: int
    hold: bool
    max_done: int
    max_bytes: int
    from_start: bool
    least: float
    respect: float
    paused: bool
    retired: bool
    pace: int  # milliseconds between two leases (visits_per_second); 0: none


def raw(content: bytes) -> msgspec.Raw:
    """Bytes as Lua writes and reads them."""
    size = len(content)
    if size < 32:
        return msgspec.Raw(bytes((0xA0 | size,)) + content)
    if size < 1 << 16:
        return msgspec.Raw(b"\xda" + size.to_bytes(2, "big") + content)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4, "big") + content)


_HEADS: Final = {0xD9: 2, 0xDA: 3, 0xDB: 5}


def bytes_of(value: msgspec.Raw) -> bytes:
    """What `raw` was given."""
    content = bytes(value)
    return content[_HEADS.get(content[0], 1) :]
