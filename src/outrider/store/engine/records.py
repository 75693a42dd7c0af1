"""Records of tasks and queues in memory.

These structs are invisible to Python's cycle collector (`gc=False`): they never form cycles, and a
full collection over millions of them would stop the frontier for seconds. Their stored fields are
declared in `engine.fields`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from outrider.clock import to_ms
from outrider.core.order import DELAYED_BYTES, DELAYED_SHIFT, DUE_BITS, KEY_MASK, LANE_BYTES
from outrider.core.outcome import Answer
from outrider.core.policy.politeness import draws_at_start, min_delay_between, pace
from outrider.core.policy.rules import QueueRules
from outrider.core.states import FORGOTTEN, QueueState, TaskState
from outrider.core.task import PolitenessState, Task
from outrider.store.engine.sorted_list import SortedList

# `Queue.list_state`
UNLISTED: Final = 0
READY: Final = 1
INACTIVE: Final = 2

CHUNK_BITS: Final = 12  # records by number are in dicts of 4096: a growing dict never stops a verb
CHUNK_MASK: Final = (1 << CHUNK_BITS) - 1
SHARDS: Final = 256  # fingerprints by their first byte, and queues by key, are in so many dicts
SHARD_MASK: Final = SHARDS - 1

EMPTY_LIST: Final = SortedList(0, [])  # never pushed to


def _empty_list() -> SortedList:
    return EMPTY_LIST


# Columns of `TaskCounts.by_state`.
COLUMNS: Final = {state: column for column, state in enumerate(TaskState)}
# Columns of `CrawlState.queue_counts`.
QUEUE_COLUMNS: Final = {state: column for column, state in enumerate(QueueState)}
_RETIRED, _PAUSED, _EMPTY, _BUSY, _SNOOZED, _READY, _INACTIVE = QUEUE_COLUMNS.values()
UNCOUNTED: Final = -1  # `Queue.counted_as` of a queue that is not counted yet


class TaskCounts(msgspec.Struct, gc=False, eq=False):
    """How many tasks of one type, tag, origin and depth are in each state."""

    type: str
    tag: str | None
    origin: str
    depth: int  # 3 is 3 and more
    by_state: list[int]
    is_dirty: bool = True  # False: the next change is to be recorded


class Queue(msgspec.Struct, gc=False, eq=False):
    """One queue: its lists of pending tasks, its rules, politeness state, spending and counters."""

    key: str
    number: int
    turn: int
    rules: QueueRules
    paused: bool
    retired: str | None
    # Lists are made when first needed: most queues have one lane and no delayed tasks.
    lane0: SortedList = msgspec.field(default_factory=_empty_list)  # due tasks, discovery
    lane1: SortedList = msgspec.field(default_factory=_empty_list)  # due tasks, acquisition
    delayed: SortedList = msgspec.field(default_factory=_empty_list)  # by due time
    ready_key0: int = 0  # the key in the ready list of lane 0; 0: not in it
    ready_key1: int = 0  # the same, lane 1
    # derived from the rules, read on every claim
    precedence: int = 0
    slots: int = 1
    gap: int = -1  # least milliseconds between two leases; -1: only ends of visits count
    balance: int = 0
    total: int = -1
    hold: bool = False
    has_quota: bool = False
    from_start: bool = False
    draws: bool = False  # D1: a lease draws the delay from its start on
    # politeness and spending, which survive emptiness
    pending: int = 0
    in_flight: int = 0  # slots taken; while it is on loan, all leases of the loan as well
    named: int = 0  # leases by fingerprint, which take no slot
    loaned: int = 0  # leases of its loan; no other task is leased meanwhile
    loan_crashes: int = 0  # crashes the loan has counted
    list_state: int = UNLISTED
    inactive_turn: int = 0  # its place in the inactive list of its precedence
    wake_at: int = 0  # when the schedule must look at it again; 0: time alone changes nothing
    session: int = -1  # spent in the open session; -1: none open
    spent: int = 0
    next_ready: int = 0
    wait_reason: str = "delay"
    last_start: int = -1
    last_end: int = -1
    politeness: PolitenessState = PolitenessState()
    errors_in_row: int = 0
    visits_done: int = 0
    bytes: int = 0
    done: int = 0
    dead: int = 0
    dropped: int = 0
    last_cost: int = 0
    cost_sum: int = 0
    cost_count: int = 0
    epoch: int = 0  # of the crawl's rules it has
    is_dirty: bool = True  # False: the next change is to be recorded
    is_used: bool = True  # since the last pass over the cached queues
    counted_as: int = UNCOUNTED  # of `QUEUE_COLUMNS`: the state with which the crawl counts it

    def use_rules(self, rules: QueueRules, epoch: int) -> None:
        """Set the queue's rules and what is derived from them."""
        self.rules, self.epoch = rules, epoch
        politeness, budget = rules.politeness, rules.budget
        self.precedence, self.slots = rules.precedence, politeness.max_in_flight
        self.from_start = politeness.count_from == "start"
        self.draws = self.from_start and draws_at_start(politeness)
        self.balance, self.total = budget.balance, budget.total_budget
        self.hold = budget.hold_queues
        self.has_quota = bool(budget.max_done or budget.max_bytes)
        self.update_gap()

    def update_gap(self) -> None:
        """D1: a lease moves next-ready when counted from the start, with several slots, or paced.

        `visits_per_second` holds over all slots of a queue, so it counts with one as well.
        """
        rules, spaced = self.rules.politeness, self.from_start or self.slots > 1
        self.gap = to_ms(min_delay_between(rules, self.politeness.crawl_delay)) if spaced else -1
        if rules.visits_per_second:
            self.gap = max(self.gap, to_ms(pace(rules)))

    def apply_pace(self) -> None:
        """D1: 1/visits_per_second passes between two leases, whatever the delays."""
        rules = self.rules.politeness
        if rules.visits_per_second and self.last_start >= 0:
            self.postpone(self.last_start + to_ms(pace(rules)), "delay")

    def lane(self, lane: int) -> SortedList:
        """Return the list of a lane, to read."""
        return self.lane1 if lane else self.lane0

    def enter(self, lane: int, key: int, due: int, now: int) -> None:
        """Insert a pending task: into its lane if it is due, else into the delayed list."""
        if due > now:
            if self.delayed is EMPTY_LIST:
                self.delayed = SortedList(DELAYED_BYTES, [])
            self.delayed.push(due << DELAYED_SHIFT | key << 1 | lane)
        else:
            self.lane_to_fill(lane).push(key << DUE_BITS | due)

    def lane_to_fill(self, lane: int) -> SortedList:
        """Return the list of a lane, to insert into it."""
        if self.lane(lane) is EMPTY_LIST:
            setattr(self, f"lane{lane}", SortedList(LANE_BYTES, []))
        return self.lane(lane)

    def leave(self, lane: int, key: int, due: int) -> bool:
        """Remove a pending task from its list; return whether it was in one."""
        if self.lane(lane).discard(key << DUE_BITS | due):
            return True
        return self.delayed.discard(due << DELAYED_SHIFT | key << 1 | lane)

    def rekey(self, lane: int, old: int, new: int, due: int, now: int) -> None:  # noqa: ARG002
        """Give a pending task another order key in the list it is in."""
        line = self.lane1 if lane else self.lane0
        if not line.swap(old << DUE_BITS | due, new << DUE_BITS | due):
            entry = due << DELAYED_SHIFT | lane
            self.delayed.swap(entry | old << 1, entry | new << 1)

    def promote_due(self, now: int) -> None:
        """C6: move delayed tasks that have become due to their lanes."""
        delayed = self.delayed
        while delayed.head and delayed.head[0] >> DELAYED_SHIFT <= now:
            entry = delayed.pop()
            self.enter(entry & 1, entry >> 1 & KEY_MASK, entry >> DELAYED_SHIFT, now)

    def is_over_budget(self) -> bool:
        """E1: spent ≥ total ≥ 0, or a balance of 0."""
        return self.balance == 0 or 0 <= self.total <= self.spent

    def is_over_quota(self) -> bool:
        """E6: the limit of visits done or of bytes fetched is reached."""
        budget = self.rules.budget
        return 0 < budget.max_done <= self.visits_done or 0 < budget.max_bytes <= self.bytes

    def delay_ms(self) -> int:
        """D7: the last delay, or the least if none."""
        last_delay = self.politeness.last_delay
        if last_delay >= 0:
            return to_ms(last_delay)
        return to_ms(min_delay_between(self.rules.politeness, self.politeness.crawl_delay))

    def charge(self, cost: int) -> None:
        """E3: to the total and to the session now open."""
        self.spent += cost
        self.session += cost if self.session >= 0 else 0
        self.last_cost = cost
        self.cost_sum += cost
        self.cost_count += 1

    def refund(self, cost: int) -> None:
        """E3: to the total and to the session now open, never below 0."""
        self.spent = max(0, self.spent - cost)
        if self.session >= 0:
            self.session = max(0, self.session - cost)

    def postpone(self, until: int, reason: str) -> None:
        """D1: next-ready never moves back."""
        if until > self.next_ready:
            self.next_ready, self.wait_reason = until, reason

    def earliest_ready(self) -> int:
        """D1: how far back `wake` may move next-ready: the last visit's end (or start) + delay."""
        ended = self.last_start if self.from_start else self.last_end
        is_known = self.last_end >= 0 or self.draws
        least = ended + self.delay_ms() if is_known and ended >= 0 else 0
        return max(least, self.last_start + self.gap) if self.last_start >= 0 <= self.gap else least


def new_queue(key: str, number: int, turn: int, rules: QueueRules, epoch: int = 0) -> Queue:
    """Return an empty queue under its rules, paused or retired if they say so."""
    retired = "operator" if rules.retired else None
    queue = Queue(key, number, turn, rules, rules.paused, retired)
    queue.use_rules(rules, epoch)
    return queue


def column_of(queue: Queue) -> int:
    """C1: return the column of the state in which the schedule has a queue; compares no time.

    Only a queue that time alone makes servable is on no list and has a wake time: it is snoozed.
    """
    if queue.list_state != UNLISTED:
        return _READY if queue.list_state == READY else _INACTIVE
    if queue.wake_at:
        return _SNOOZED
    if queue.retired is not None:
        return _RETIRED
    if queue.paused:
        return _PAUSED
    return _BUSY if queue.pending or queue.in_flight or queue.named else _EMPTY


class TaskRecord(msgspec.Struct, gc=False, eq=False):
    """A task, its place in its queue, and the history of its visits."""

    number: int
    task: Task
    queue: Queue
    counts: TaskCounts
    key: int  # its order key
    due: int
    discovered: int
    state: TaskState = TaskState.PENDING
    token: int = 0
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    throttles: int = 0
    deadline: int = 0
    claimed: int = -1
    finished: int = -1
    reason: str | None = None
    worker: str | None = None
    answer: Answer | None = None
    history: tuple[tuple[float, str, str], ...] = ()
    body_page: int = 0  # of the embedded file: the log page with its task; 0: not written yet
    stored_key: int = 0  # the order key it is stored under, while another one is; 0: the same
    answered: int = -1  # when the visit that brought its answer ended
    lease_turn: int = 0  # of its lease: the crawl's leases are listed in this order
    leased: int = -1  # when it was leased by fingerprint: `claimed` stays then
    lasts: int = 0  # milliseconds its claim asked for
    named: bool = False  # leased by fingerprint: it takes no slot
    loaned: bool = False  # part of its queue's loan
    process: str = ""  # while leased: see `ClaimRequest.process`; NO_PROCESS: outlives them all
    drawn: float = -1.0  # D1: the delay drawn for its lease; below 0: none
    blocks: int = 0  # blocked visits since it was last done
    # The entry that older log pages have of it, if an add moved it since: queue, lane, key, due.
    left: tuple[int, int, int, int] | None = None

    def restart(self) -> None:
        """B2: a revisit or replay starts with attempts at 0."""
        self.attempts = self.failures = self.crashes = self.throttles = self.blocks = 0
        self.finished = -1

    def is_forgotten(self) -> bool:
        """C10: whether the next add admits it as if it were not known."""
        return self.state is TaskState.DROPPED and self.reason == FORGOTTEN

    def is_untouched(self) -> bool:
        """Return whether nothing happened to it since it became known."""
        is_untried = self.attempts == self.failures == self.crashes == self.throttles == 0
        is_untried = is_untried and not self.blocks
        has_no_result = self.reason is None and self.answer is None and not self.history
        is_unvisited = self.claimed < 0 and self.finished < 0 and self.state is TaskState.PENDING
        return is_untried and has_no_result and is_unvisited

    def add_error(self, at: int, error: str) -> None:
        """G2: add a failed attempt to the history, for the dead letter."""
        self.history = (*self.history, (at / 1000, self.worker or "", error))
