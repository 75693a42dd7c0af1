"""Rows of a crawl, a queue and a task: msgpack arrays that scripts and Python read alike.

Scripts know a field by its name here (`Q_TURN` for `QueueRow.turn`) and read it by its position,
which is durable: a new field goes to the end, and none is removed. Lua writes bytes as msgpack
strings: such a field is `Raw` here, and read by `bytes_of`.

The structs are the tables of fields: views, export and restore are driven by them. A test compares
them with the fields of the engine, so that none is forgotten.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import PolitenessState

FORMAT: Final = 2  # of all that is stored; a newer one is refused, an older one upgraded
ROW: Final = 1  # the version of a row
SHORT_ROW: Final = 512  # bytes of a task's row that do not count in a result page
HEAD_BYTES: Final = 64  # of a task, as `task_codec` sends it

# Numbers that rows hold instead of names: durable.
STATES: Final = tuple(TaskState)  # pending, leased, done, dead, dropped
STATE_NUMBERS: Final = {state: number for number, state in enumerate(STATES)}
LIST_STATES: Final = {"UNLISTED": 0, "READY": 1, "INACTIVE": 2}
KNOWN_RULES: Final = {"keep": 0, "raise": 1, "revisit": 2, "gather": 3, "set": 4}
ADD_DONE: Final = 128  # added to the rule of a task that becomes known as done

Text: TypeAlias = str | Literal[False]  # False: none
_NO_BYTES: Final = msgspec.Raw(b"\xa0")


class CrawlRow(msgspec.Struct, array_like=True, gc=False):
    """A crawl's state, and those of its rules that scripts apply."""

    version: int = ROW
    name: str = ""
    epoch: int = 0  # version of its rules
    by_turn: bool = False
    tie: str = "fifo"
    discount: float = 0.0
    max_pending: int = 0
    max_pending_per_queue: int = 0
    burst: int = 5
    max_retries: int = 3
    max_crashes: int = 3
    pause_at_finish: bool = False
    limit_tasks: int = 0
    limit_done: int = 0
    limit_bytes: int = 0
    limit_seconds: float = 0.0
    created: int = 0
    clock: int = 0  # the time of its last change: its time never goes back
    status: CrawlStatus = CrawlStatus.RUNNING
    reason: Text = False
    at_finish: bool = False
    rules_applied: bool = True  # every queue has the crawl's current rules
    last_task: int = 0  # the highest number of a task
    last_queue: int = 0  # the same, of a queue
    last_turn: int = 0
    last_arrival: int = 0
    last_token: int = 0
    pending: int = 0
    leased: int = 0
    retired_pending: int = 0  # pending tasks of retired queues
    visits: int = 0
    visits_done: int = 0
    bytes: int = 0
    runs: int = 0
    started: int = -1  # when the first task was added
    finished: int = -1
    last_event: int = 0
    known_buckets: int = 1
    key_buckets: int = 1
    is_awaited: bool = False  # a claim found too little: the next verb that brings work notifies
    opens_below: msgspec.Raw = _NO_BYTES  # priority as eight bytes that sort alike; empty: off
    last_value: int = 0  # the number of the last shared value written
    stay_open: bool = False  # no run of the crawl ends
    critical: int = 0  # pending tasks by named priority; the rest is normal
    high: int = 0
    low: int = 0
    retired_queues: int = 0  # queues by state, in the order of `QueueState`
    paused_queues: int = 0
    empty_queues: int = 0
    busy_queues: int = 0
    snoozed_queues: int = 0
    ready_queues: int = 0
    inactive_queues: int = 0
    recovered: int = 0  # visits done, of tasks that had been blocked
    lists_leases: bool = False  # leases were asked for: their order is kept from then on
    forgotten: int = 0  # tasks that the next add admits again
    id: int = 0  # its number; never given twice


class QueueRow(msgspec.Struct, array_like=True, gc=False):
    """A queue's state; empty bytes: none."""

    version: int
    key: str
    number: int
    rules: int
    turn: int
    paused: bool = False
    retired: str = ""
    in_flight: int = 0
    named: int = 0
    loaned: int = 0
    loan_crashes: int = 0
    list_state: int = 0  # of `LIST_STATES`
    inactive_turn: int = 0  # its place in the inactive list
    wake_at: int = 0  # 0: time alone changes nothing
    session: int = -1
    spent: int = 0
    next_ready: int = 0
    wait_reason: str = "delay"
    last_start: int = -1
    last_end: int = -1
    level: int = 0
    calm: int = 0
    throttles_in_row: int = 0
    unreachable_in_row: int = 0
    blocks_in_row: int = 0
    last_delay: float = -1.0
    crawl_delay: float = 0.0
    errors_in_row: int = 0
    visits_done: int = 0
    bytes: int = 0
    done: int = 0
    dead: int = 0
    dropped: int = 0
    last_cost: int = 0
    cost_sum: int = 0
    cost_count: int = 0
    next_due: int = -1  # when the first delayed task is due; -1: none is delayed
    top0: msgspec.Raw = _NO_BYTES  # the entry of the first due task of a lane
    top1: msgspec.Raw = _NO_BYTES
    ready_key0: msgspec.Raw = _NO_BYTES  # the member that the queue has in a ready list
    ready_key1: msgspec.Raw = _NO_BYTES
    inactive_key: msgspec.Raw = _NO_BYTES  # the same, in the inactive list
    counted_as: int = -1  # the state with which its crawl counts it; -1: not counted yet


class TaskRow(msgspec.Struct, array_like=True, gc=False):
    """A task; the fields from `token` on are stored once it was leased, or changed otherwise."""

    version: int
    state: int  # an index of `STATES`
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
    loaned: bool = False
    reason: Text = False
    worker: str = ""
    history: list[tuple[float, str, str]] = []
    answer: msgspec.Raw = _NO_BYTES
    meta: msgspec.Raw = _NO_BYTES  # with a checksum: replaces that of the text; empty: none does
    drawn: float = -1.0  # while leased: the delay drawn for the lease; below 0: none
    blocks: int = 0
    leased: int = -1  # when it was leased by fingerprint
    lasts: int = 0  # milliseconds its last claim asked for
    lease_turn: int = 0  # that its last lease took


class VerdictRow(msgspec.Struct, array_like=True, gc=False):
    """A verdict as `finish` sends it, in milliseconds; None leaves a counter as it is."""

    task: int
    token: int
    outcome: str
    state: int  # an index of `STATES`
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
    revisit: (
        tuple[int, str, int, msgspec.Raw, msgspec.Raw] | None
    )  # after, type, lane, rank, breakdown
    # after, type, lane, rank, breakdown, meta, whether it goes to the front
    requeue: tuple[int, str, int, msgspec.Raw, msgspec.Raw, msgspec.Raw | None, bool] | None


class RulesRow(msgspec.Struct, array_like=True, gc=False):
    """The rules of a queue, as far as scripts apply them."""

    precedence: int
    slots: int
    balance: int
    total: int
    hold: bool
    max_done: int
    max_bytes: int
    from_start: bool
    min_delay: float
    respect_crawl_delay: float
    paused: bool
    retired: bool
    pace: int  # milliseconds between two leases (visits_per_second); 0: none
    spread: (
        float  # seconds; a lease draws its delay from `min_delay` to so much more; 0: it does not
    )


def queue_counts(row: CrawlRow) -> list[int]:
    """Return how many queues of a crawl are in each state, in the order of `QueueState`."""
    return [getattr(row, f"{state.value}_queues") for state in QueueState]


def raw(content: bytes) -> msgspec.Raw:
    """Return bytes as Lua writes and reads them."""
    size = len(content)
    if size < 32:
        return msgspec.Raw(bytes((0xA0 | size,)) + content)
    if size < 1 << 16:
        return msgspec.Raw(b"\xda" + size.to_bytes(2, "big") + content)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4, "big") + content)


_HEADER_BYTES: Final = {0xD9: 2, 0xDA: 3, 0xDB: 5}


def bytes_of(value: msgspec.Raw) -> bytes:
    """Return what `raw` was given."""
    content = bytes(value)
    return content[_HEADER_BYTES.get(content[0], 1) :]


decode_crawl_row: Final = msgspec.msgpack.Decoder(CrawlRow).decode
decode_queue_row: Final = msgspec.msgpack.Decoder(QueueRow).decode
decode_task_row: Final = msgspec.msgpack.Decoder(TaskRow).decode


def politeness_of(row: QueueRow) -> PolitenessState:
    """Return the politeness state in a queue's row."""
    return PolitenessState(
        level=row.level,
        calm=row.calm,
        throttles_in_row=row.throttles_in_row,
        unreachable_in_row=row.unreachable_in_row,
        blocks_in_row=row.blocks_in_row,
        last_delay=row.last_delay,
        crawl_delay=row.crawl_delay,
    )
