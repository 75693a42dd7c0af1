"""What is kept of a task and of a queue in memory: numbers in slots, nothing derived twice.

These structs are invisible to Python's cycle collector (`gc=False`): they never form cycles, and a
full collection over millions of them would stop the frontier for seconds.
"""

from __future__ import annotations

from typing import Final

import msgspec

from outrider.clock import to_ms
from outrider.core.order import DELAYED_BYTES, DELAYED_SHIFT, DUE_BITS, KEY_MASK, LANE_BYTES
from outrider.core.outcome import Answer
from outrider.core.policy.politeness import min_delay_between, pace
from outrider.core.policy.rules import QueueRules
from outrider.core.states import TaskState
from outrider.core.task import PolitenessState, Task
from outrider.store.heads.lines import Line

NEITHER: Final = 0
READY: Final = 1
INACTIVE: Final = 2

CHUNK_BITS: Final = 12  # tasks and queues by number live in dicts of 4096: no growth is a pause
SHARDS: Final = 256  # so do the known fingerprints, by their first byte, and the queues by key

NO_LINE: Final = Line(0, [])  # never pushed to


def _no_line() -> Line:
    return NO_LINE


# Counters of a kind, by state.
COLUMNS: Final = {state: column for column, state in enumerate(TaskState)}


class Kind(msgspec.Struct, gc=False, eq=False):
    """Tasks that count together: one type, tag, origin and depth."""

    type: str
    tag: str | None
    origin: str
    depth: int  # 3 stands for 3 and more
    counts: list[int]
    is_marked: bool = True  # False: its next change is to be noted


class Queue(msgspec.Struct, gc=False, eq=False):
    """A queue's numbers. `standing` says where it stands; keys and alarms in heaps match it."""

    key: str
    number: int
    turn: int
    rules: QueueRules
    paused: bool
    retired: str | None
    # Lines are made when first needed: most queues have one lane and nothing delayed.
    lane0: Line = msgspec.field(default_factory=_no_line)  # due tasks in order, discovery
    lane1: Line = msgspec.field(default_factory=_no_line)  # the same, acquisition
    delayed: Line = msgspec.field(
        default_factory=_no_line
    )  # tasks that are not due, by their instant
    rank0: int = 0  # the key it stands under among the ready, discovery; 0: not there
    rank1: int = 0  # the same, acquisition
    # what holds, read on every claim
    precedence: int = 0
    slots: int = 1
    gap: int = -1  # least milliseconds between two leases; -1: only ends count
    balance: int = 0
    total: int = -1
    hold: bool = False
    has_quota: bool = False
    from_start: bool = False
    # manners and spending, which survive emptiness
    pending: int = 0
    in_flight: int = 0  # slots taken; while it is lent, all that is out on the loan as well
    named: int = 0  # leases by name, which take none
    lent: int = 0  # leases of its loan; nobody else is served meanwhile
    crashed: int = 0  # crashes the loan has counted
    standing: int = NEITHER
    place: int = 0
    alarm: int = 0
    session: int = -1  # spent in the open session; -1: none open
    spent: int = 0
    next_ready: int = 0
    why: str = "delay"
    last_start: int = -1
    last_end: int = -1
    manners: PolitenessState = PolitenessState()
    errors: int = 0
    dones: int = 0
    bytes: int = 0
    done: int = 0
    dead: int = 0
    dropped: int = 0
    last_cost: int = 0
    cost_sum: int = 0
    cost_count: int = 0
    epoch: int = 0  # which of the crawl's rules it was last told of
    is_marked: bool = True  # False: its next change is to be noted
    is_used: bool = True  # lately, by somebody

    def obey(self, rules: QueueRules, epoch: int) -> None:
        """Take over what holds now."""
        self.rules, self.epoch = rules, epoch
        manners, budget = rules.politeness, rules.budget
        self.precedence, self.slots = rules.precedence, manners.max_in_flight
        self.from_start = manners.count_from == "start"
        self.balance, self.total = budget.balance, budget.total_budget
        self.hold = budget.hold_queues
        self.has_quota = bool(budget.max_done or budget.max_bytes)
        self.measure_gap()

    def measure_gap(self) -> None:
        """D1: a lease moves next-ready when counted from the start, with several slots, or paced.

        `visits_per_second` is a promise over all slots of a queue, so it counts with one as well.
        """
        manners, spaced = self.rules.politeness, self.from_start or self.slots > 1
        self.gap = to_ms(min_delay_between(manners, self.manners.crawl_delay)) if spaced else -1
        if manners.visits_per_second:
            self.gap = max(self.gap, to_ms(pace(manners)))

    def keep_pace(self) -> None:
        """D1: 1/visits_per_second passes between two leases, whatever the delays."""
        manners = self.rules.politeness
        if manners.visits_per_second and self.last_start >= 0:
            self.postpone(self.last_start + to_ms(pace(manners)), "delay")

    def lane(self, lane: int) -> Line:
        """The line of a lane, to read."""
        return self.lane1 if lane else self.lane0

    def enter(self, lane: int, key: int, due: int, now: int) -> None:
        """A pending task waits: in its lane if it is due, else with the delayed."""
        if due > now:
            if self.delayed is NO_LINE:
                self.delayed = Line(DELAYED_BYTES, [])
            self.delayed.push(due << DELAYED_SHIFT | key << 1 | lane)
        else:
            self.open_lane(lane).push(key << DUE_BITS | due)

    def open_lane(self, lane: int) -> Line:
        """The line of a lane, to join it."""
        if self.lane(lane) is NO_LINE:
            setattr(self, f"lane{lane}", Line(LANE_BYTES, []))
        return self.lane(lane)

    def leave(self, lane: int, key: int, due: int) -> bool:
        """A task waits no more, wherever it did; whether it did."""
        if self.lane(lane).discard(key << DUE_BITS | due):
            return True
        return self.delayed.discard(due << DELAYED_SHIFT | key << 1 | lane)

    def move(self, lane: int, old: int, new: int, due: int, now: int) -> None:  # noqa: ARG002
        """A task waits under another key, wherever it did."""
        line = self.lane1 if lane else self.lane0
        if not line.swap(old << DUE_BITS | due, new << DUE_BITS | due):
            waits = due << DELAYED_SHIFT | lane
            self.delayed.swap(waits | old << 1, waits | new << 1)

    def ripen(self, now: int) -> None:
        """C6: what has become due joins its lane."""
        delayed = self.delayed
        while delayed.head and delayed.head[0] >> DELAYED_SHIFT <= now:
            entry = delayed.pop()
            self.enter(entry & 1, entry >> 1 & KEY_MASK, entry >> DELAYED_SHIFT, now)

    def over_budget(self) -> bool:
        """E1: spent ≥ total ≥ 0, or a balance of 0."""
        return self.balance == 0 or 0 <= self.total <= self.spent

    def over_quota(self) -> bool:
        """E6: so many visits done, or bytes fetched."""
        budget = self.rules.budget
        return 0 < budget.max_done <= self.dones or 0 < budget.max_bytes <= self.bytes

    def delay_ms(self) -> int:
        """D7: the last delay, or the least if none."""
        last_delay = self.manners.last_delay
        if last_delay >= 0:
            return to_ms(last_delay)
        return to_ms(min_delay_between(self.rules.politeness, self.manners.crawl_delay))

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

    def postpone(self, until: int, why: str) -> None:
        """D1: next-ready never moves back."""
        if until > self.next_ready:
            self.next_ready, self.why = until, why

    def earliest(self) -> int:
        """D1: how far back `wake` may go: the last visit's end (or start) + delay."""
        ended = self.last_start if self.from_start else self.last_end
        floor = ended + self.delay_ms() if self.last_end >= 0 <= ended else 0
        return max(floor, self.last_start + self.gap) if self.last_start >= 0 <= self.gap else floor


def new_queue(key: str, number: int, turn: int, rules: QueueRules, epoch: int = 0) -> Queue:
    """A queue as it is born: under its rules, and under what operators said of its key."""
    retired = "operator" if rules.retired else None
    queue = Queue(key, number, turn, rules, rules.paused, retired)
    queue.obey(rules, epoch)
    return queue


class Record(msgspec.Struct, gc=False, eq=False):
    """A task and its numbers."""

    number: int
    task: Task
    queue: Queue
    kind: Kind
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
    body: int = 0  # where its task is written; 0: nowhere yet
    left: int = 0  # the key it stood under in its line, while that is not written; 0: the same
    answered: int = -1  # when the visit that brought its answer ended
    named: bool = False  # lent by name: it takes no slot
    lent: bool = False  # part of its queue's loan
    process: str = ""  # while leased: see `ClaimRequest.process`

    def restart(self) -> None:
        """B2: a revisit or replay starts with attempts at 0."""
        self.attempts = self.failures = self.crashes = self.throttles = 0
        self.finished = -1

    def is_plain(self) -> bool:
        """Whether nothing happened to it since it became known."""
        is_untried = self.attempts == self.failures == self.crashes == self.throttles == 0
        is_untold = self.reason is None and self.answer is None and not self.history
        is_unseen = self.claimed < 0 and self.finished < 0 and self.state is TaskState.PENDING
        return is_untried and is_untold and is_unseen

    def remember(self, at: int, error: str) -> None:
        """G2: every attempt that went wrong, for the dead letter."""
        self.history = (*self.history, (at / 1000, self.worker or "", error))
