"""The store protocol: `Store` (six hot verbs), `Admin` for operators, `Inspect` for readers (M2).

No driver type crosses it. Every verb may be repeated without harm, because a lost connection
leaves its answer unknown. Durations cross the protocol, instants belong to the store's clock, and
random numbers are drawn by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from outrider.core.breakdown import Breakdown
from outrider.core.histogram import Count
from outrider.core.outcome import Answer
from outrider.core.pick import Streak
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import QueueAction
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import Added, Lease, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.core.worker_totals import NO_TOTALS, WorkerTotals
from outrider.store.export_items import Saved
from outrider.store.queue_order import QueueOrder

STORE_VALUES: Final = ""  # the crawl whose shared values are the store's own; it has nothing else
MAX_FINGERPRINTS: Final = 64  # fingerprints of one claim that are looked up (D5)
FINGERPRINT_BYTES: Final = 16
MAX_CLAIM_KEYS: Final = 100  # keys of one claim (C5)
MAX_ROLLS: Final = 100_000  # random numbers of one claim
MAX_CLAIM_KEY_CHARS: Final = 1024  # no queue has a longer one
MAX_PROCESS_CHARS: Final = 64  # of a process's name
NO_PROCESS: Final = "*"  # no process's name: stored with leases that outlive every process (H4)
WORKER_KEPT_SECONDS: Final = 86_400.0  # a worker silent for longer is listed no more
MAX_WORKER_CHARS: Final = 1024  # of the name of a worker or its host, in heartbeats
MAX_SILENCE: Final = 1e11  # seconds that a heartbeat may last
MAX_WORKERS: Final = 10_000  # of one crawl; above it the one silent longest is forgotten
MAX_TOPIC_CHARS: Final = 64
MAX_NAME_CHARS: Final = 1024
MAX_VALUE_CHARS: Final = 65_536
MAX_PAGE: Final = 10_000  # items of one result page of a listing
MAX_BY_CHARS: Final = 128  # of the name of who acts
COUNTS_AT_END: Final = ("known", "done", "dead", "dropped", "held", "visits")  # of a run
MAX_PUBLISHED: Final = 1000  # events of one batch
MAX_EVENT_NAME_CHARS: Final = 64
MAX_EVENT_CHARS: Final = 4096  # of the data of a published event
MAX_PUBLISHER_CHARS: Final = 64

WhichCrawl: TypeAlias = Literal["any", "new", "known"]
WorkerState: TypeAlias = Literal["idle", "busy", "draining", "gone"]
Notifies: TypeAlias = Literal["never", "mostly", "always"]  # mostly: a notification may be lost
Fingerprint: TypeAlias = Annotated[
    bytes, Meta(min_length=FINGERPRINT_BYTES, max_length=FINGERPRINT_BYTES)
]
Roll: TypeAlias = Annotated[float, Meta(ge=0, lt=1)]
WorkerText: TypeAlias = Annotated[str, Meta(max_length=MAX_WORKER_CHARS)]
ClaimKey: TypeAlias = Annotated[str, Meta(max_length=MAX_CLAIM_KEY_CHARS)]
Item = TypeVar("Item")


class ClaimRequest(msgspec.Struct, frozen=True):
    """Which worker asks for how many leases, with the state of its lane rotation."""

    crawl: str
    worker: str
    limit: int
    lease_for: float = 60.0
    per_queue: int = 0  # 0: no cap but the queue's free slots (C5)
    streak: Streak = Streak()
    # Given: lease only these tasks, whose answers are in the worker's cache (D5).
    fingerprints: Sequence[Fingerprint] = ()
    lend: bool = False  # lend whole queues: one slot each, up to `per_queue` tasks (C7)
    # The process that will hold the leases, if it is not the one that holds the store's file: its
    # leases outlive that one (H4). Stores on servers have no such process, and ignore it.
    process: Annotated[str, Meta(max_length=MAX_PROCESS_CHARS)] = ""
    # The leases last until their deadline, whichever process ends (H4): for visits made elsewhere.
    outlives_process: bool = False
    # Given: lease only from the queues of these keys, as `queue` finds them; for this claim all
    # others are neither ready nor inactive (C5).
    keys: Annotated[Sequence[ClaimKey], Meta(max_length=MAX_CLAIM_KEYS)] = ()
    # Once tasks of so many queues were leased, all other queues are neither (C5); 0: no limit.
    max_queues: Annotated[int, Meta(ge=0)] = 0
    # The i-th is for the i-th lease of the claim; none left: 0. They draw the delays that are
    # uniform and count from the start of a visit (D1).
    rolls: Annotated[Sequence[Roll], Meta(max_length=MAX_ROLLS)] = ()

    def roll(self, place: int) -> float:
        """Return the random number of the lease at a place of the claim."""
        return self.rolls[place] if place < len(self.rolls) else 0.0


class ClaimResult(msgspec.Struct):
    """The leases of a claim, and when to claim again (C6)."""

    leases: list[Lease]
    wake_in: float | None
    status: CrawlStatus
    streak: Streak


class Store(Protocol):
    """The hot path. A seventh verb needs an ADR."""

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """Admit the tasks that are not known (B3, B4), in order; return one answer per task.

        I1: a crawl that does not exist refuses them as one that is cancelled does; none is created.
        """
        ...

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Lease the next tasks. Only a claim wakes queues and ends a run.

        A claim by fingerprint (D5) does neither. It leases those of the first 64 that are pending
        and due, in queues neither paused, retired nor over budget, whatever their next-ready,
        session and slots: such a lease takes no slot and starts no delay until a verdict says so.

        A claim by keys (C5) wakes queues and may end a run as any other; its `wake_in` counts their
        queues alone, and all deadlines. Keys and fingerprints exclude each other.
        """
        ...

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """Renew the leases still held and return them; the others were lost before this call."""
        ...

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """Apply each verdict with the tasks its page found, in one atomic step (H3, H6)."""
        ...

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """Return the leases still held to their queues without penalty (H5)."""
        ...

    async def expire(self, *, limit: int) -> int:
        """End overdue leases, each counted as a crash, by deadline, then arrival (H4)."""
        ...


class TaskFilter(msgspec.Struct, frozen=True):
    """Selects the tasks that match every field given (C10, G2)."""

    key: str | None = None
    state: TaskState | None = None
    url: str | None = None
    pattern: str | None = None  # a regular expression searched in the URL
    type: str | None = None
    tag: str | None = None
    reason: str | None = None
    older_than: float | None = None  # seconds since it was discovered
    fingerprint: bytes | None = None


class Step(msgspec.Struct, frozen=True):
    """One bounded step of a long operation: tasks or queues changed, and the next cursor."""

    count: int
    after: int | None  # None: the operation is complete


class Heartbeat(msgspec.Struct, frozen=True):
    """A worker's status, sent every few seconds."""

    worker: WorkerText  # one per process: a process that starts again is another worker
    state: WorkerState  # "gone": its last heartbeat
    host: WorkerText
    pid: Count
    slots: Count
    busy: Count  # slots with a visit
    visits: Count  # ended since it started
    # Seconds of silence after which it is reported as gone.
    lasts: Annotated[float, Meta(ge=0, le=MAX_SILENCE)] = 30.0
    totals: WorkerTotals = NO_TOTALS


class SharedValueWrite(msgspec.Struct, frozen=True):
    """A durable text for all workers of a crawl, to be stored under a topic and a name.

    `seen`: write it only over the value of this number (0: only if there is none).
    """

    topic: Annotated[str, Meta(min_length=1, max_length=MAX_TOPIC_CHARS)]
    name: Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
    text: Annotated[str, Meta(max_length=MAX_VALUE_CHARS)]  # "": deleted
    seen: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class SharedValue(msgspec.Struct, frozen=True):
    """A shared value as stored; later writes have higher numbers."""

    number: int
    at: float
    topic: str
    name: str
    text: str


class PublishedEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event of a worker, for those who follow the crawl (O3)."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_EVENT_NAME_CHARS)]
    at: float
    data: Annotated[str, Meta(max_length=MAX_EVENT_CHARS)]  # a JSON object


class EventBatch(msgspec.Struct, frozen=True):
    """Events of one worker, in order.

    `publisher` is unlike that of any other process, and its batches have rising serials: one that
    was published before, or comes late, is known by them.
    """

    publisher: Annotated[str, Meta(min_length=1, max_length=MAX_PUBLISHER_CHARS)]
    serial: Annotated[int, Meta(ge=1, le=2**53)]
    worker: Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
    events: Annotated[Sequence[PublishedEvent], Meta(min_length=1, max_length=MAX_PUBLISHED)]


class PriorityUpdate(msgspec.Struct, frozen=True, gc=False):
    """A new priority for a pending task, applied only if it still has the one seen (C8)."""

    task: int
    seen: float
    priority: float
    breakdown: Breakdown | None = None


class Admin(Protocol):
    """Operators' changes: live and durable. Long operations run in bounded steps with a cursor.

    `by` says who acts: the act is logged as an event, and the events of its steps carry it (O3).
    Only `configure` and `restore` create a crawl; the other verbs change nothing of one that does
    not exist, and answer as for one without tasks, whose status is `cancelled` (I1).
    """

    async def configure(
        self,
        crawl: str,
        rules: CrawlRules,
        settings: str = "",
        *,
        only: WhichCrawl = "any",
        by: str = "",
    ) -> bool:
        """Open the crawl under these rules, keeping what was set at run time by key.

        `settings` is text of the caller's, kept for workers that join the crawl; "" leaves what is
        kept. True: queues still have old rules, until `steer(crawl, "", Set({}))` has run through.
        `only`: a crawl that is `new`, or one that is `known`, is opened; any other is left alone.
        """
        ...

    async def steer(
        self,
        crawl: str,
        target: str,
        act: QueueAction,
        *,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """Apply an act to a key, a suffix (".org") or, as "", to every queue."""
        ...

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """A5: store what seeds contribute to the scope, for every worker of the crawl."""
        ...

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator", *, by: str = ""
    ) -> CrawlStatus:
        """Pause, resume or cancel a crawl; return its status, unchanged if the move is illegal."""
        ...

    async def drop(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """Set pending tasks to dropped (`operator`)."""
        ...

    async def replay(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """Set dead tasks to pending, with attempts at 0."""
        ...

    async def purge(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """Set dead tasks to dropped (`purged`)."""
        ...

    async def forget(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """C10: set tasks of any state to dropped (`forgotten`), leases ended without punishment.

        The next add admits such a task again, as a revisit does; the count leaves out those that
        were forgotten before.
        """
        ...

    async def delete(self, crawl: str, *, limit: int = 1000, by: str = "") -> Step:
        """I1: remove a crawl with everything that is kept of it, step by step.

        The first step cancels it (`deleting`); until the step with `after` None it is listed,
        leases nothing and refuses adds. An unknown crawl is removed already. `limit` bounds the
        tasks or rows of a step; `after` says that there are more, and is not given back.
        """
        ...

    async def put_values(self, crawl: str, values: Sequence[SharedValueWrite]) -> list[int]:
        """Write shared values in order, each over the one of its topic and name; their numbers.

        0: `seen` did not match, or there is no such crawl, and that one was not written. A write
        that changes nothing keeps the number. A deleted value is kept with an empty text. Values of
        the store itself, of no crawl, are those of `STORE_VALUES`; every other verb refuses that
        name (N1).
        """
        ...

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """C8: change the priority of tasks still pending at the one seen; return how many.

        They keep precedence, tie and due time. Other tasks are left alone.
        """
        ...

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """Record a worker's status and totals, of which each number only grows.

        A worker silent for a day is forgotten, and of more than 10,000 the one silent longest; its
        totals stay in `worker_totals`.
        """
        ...

    async def publish(self, crawl: str, batch: EventBatch) -> None:
        """O3: append a worker's events to the crawl's event log; only the last ones are kept.

        A batch that was published before appends nothing, nor does one to a crawl that is unknown
        or being removed.
        """
        ...

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """I5: import a part of an export, in its order; return how many items were new.

        The crawl must have no tasks when its `SavedCrawl` comes, and leases nothing until its
        `SavedEnd` did. Queues and tasks that are known are left alone, so an import may be
        repeated. A batch with an invalid item is refused whole.
        """
        ...


class CrawlView(msgspec.Struct, frozen=True):
    """A crawl's status and counters: known = pending + leased + done + dead + dropped (O5)."""

    crawl: str
    status: CrawlStatus
    reason: str | None
    known: int
    pending: int
    leased: int
    done: int
    dead: int
    dropped: int
    held: int  # pending in retired queues
    visits: int
    bytes: int
    outcomes: Mapping[str, int]
    types: Mapping[str, Mapping[str, int]]
    tags: Mapping[str, Mapping[str, int]]
    runs: int
    created_at: float
    finished_at: float | None
    timeline: Sequence[tuple[float, str, str]]  # at, status, reason
    # By state as the schedule has them: a queue whose time has come is snoozed until a claim (C1).
    queues: Mapping[str, int] = {}
    bands: Mapping[str, int] = {}  # pending, by named priority: critical, high, normal, low (F8)
    recovered: int = 0  # visits that were done, of tasks that had been blocked


class WorkerView(msgspec.Struct, frozen=True):
    """One worker, from its heartbeats."""

    worker: str
    state: WorkerState
    host: str
    pid: int
    slots: int
    busy: int
    visits: int
    started_at: float  # its first heartbeat
    seen_at: float  # its last one
    totals: WorkerTotals = NO_TOTALS  # with its last hundred decisions


class QueueView(msgspec.Struct, frozen=True):
    """One queue as an operator sees it (E8)."""

    key: str
    state: QueueState
    reason: str | None
    pending: int
    delayed: int
    in_flight: int
    named: int  # of those, leased by fingerprint: they take no slot (D5)
    precedence: int
    balance: int  # left in the open session
    grant: int  # the setting
    spent: int
    total_budget: int
    last_cost: int
    average_cost: float
    done: int
    dead: int
    dropped: int
    bytes: int
    errors_in_row: int
    level: int
    delay: float  # the last one; the minimum before the first visit
    max_in_flight: int
    last_visit_at: float | None
    wakes_in: float | None
    next_url: str | None
    lent: int = 0  # leased tasks of a loan, which takes one slot (C7)


class TaskView(msgspec.Struct, frozen=True):
    """One task as the store knows it (B1)."""

    number: int
    url: str
    key: str
    fingerprint: bytes
    state: TaskState
    type: str
    lane: str
    depth: int
    precedence: int
    priority: float
    breakdown: Breakdown
    cost: int
    origin: str
    via: str | None
    tag: str | None
    meta: Mapping[str, Any]
    attempts: int
    failures: int
    crashes: int
    reason: str | None
    worker: str | None
    discovered_at: float
    due_at: float | None
    claimed_at: float | None
    finished_at: float | None
    answer: Answer | None
    history: Sequence[tuple[float, str, str]]  # at, worker, error: every failed attempt
    text: str = ""  # the URL as it was given, if it is kept; "": it is `url`, or not kept
    typed_by: str = ""  # what gave it its type, if its link did not; "": the link, or the default
    blocks: int = 0  # blocked visits since it was last done


class LeaseFilter(msgspec.Struct, frozen=True):
    """Selects the leases that match every field given (H1)."""

    task: int | None = None  # its number
    fingerprint: bytes | None = None
    token: int | None = None
    worker: str | None = None
    key: str | None = None  # a key, or a suffix, as in `TaskFilter`
    older_than: float | None = None  # seconds since it was claimed


ALL_LEASES: Final = LeaseFilter()


class LeaseView(msgspec.Struct, frozen=True):
    """One lease that is held: `lease` is as the claim returned it, but for the queue's state now.

    Any process may finish, extend or release it. `lease.lease_for` is what the claim asked for.
    """

    lease: Lease
    claimed_at: float
    expires_at: float
    named: bool  # by fingerprint: it takes no slot (D5)
    lent: bool  # part of a loan (C7)


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A pending task as it was added and scored: what scoring it again needs (C8)."""

    number: int
    task: Task


class Upcoming(NamedTuple):
    """A due task: the fingerprint to claim it by, and its URL."""

    fingerprint: bytes
    url: str


class QueuePosition(msgspec.Struct, frozen=True):
    """A pending task's position in its queue and lane: how many are ahead of it."""

    ahead: int
    queue: QueueView


class Heat(msgspec.Struct, frozen=True):
    """Pending tasks by origin and group, and by depth (O2)."""

    total: int
    cells: Mapping[str, Mapping[str, int]]
    depth: Mapping[str, int]
    updated_at: float


class StoreEvent(msgspec.Struct, frozen=True):
    """A rare change: an expiry, a queue's retirement, a crawl's end, an operator's act."""

    sequence: int
    at: float
    name: str
    subject: str
    detail: str
    by: str = ""  # the operator who caused it, if the act said so
    # Of `crawl-finished` (I2): the crawl's tasks by state as its run ended, and its visits so far.
    counts: Mapping[str, int] = {}


class LoggedEvent(msgspec.Struct, frozen=True):
    """An entry of the event log.

    A gap stands for events that were forgotten: its number is that of the last one, its data say
    how many are missing at most (null: that is not known), and it has no time.
    """

    sequence: int
    at: float
    name: str  # "gap": events are missing
    data: str  # a JSON object
    worker: str = ""  # who published it; "": the store itself


class EventPage(msgspec.Struct, frozen=True):
    """A part of the event log, and the highest number so far."""

    events: Sequence[LoggedEvent]
    last: int


class ResultPage(msgspec.Struct, Generic[Item], frozen=True):
    """A bounded part of a list, and the cursor of the next one (None: this is the last)."""

    items: Sequence[Item]
    after: int | None


class CursorPage(msgspec.Struct, Generic[Item], frozen=True):
    """A bounded part of a list whose order is not that of numbers.

    `cursors` are those behind each item; `after` is the cursor of the next page (None: this is the
    last one).
    """

    items: Sequence[Item]
    cursors: Sequence[str]
    after: str | None


class Inspect(Protocol):
    """Readers: no verb changes anything; long lists are returned in result pages."""

    async def crawls(self) -> list[str]:
        """Return the names of all crawls, in order of their creation."""
        ...

    async def crawl(self, crawl: str) -> CrawlView:
        """Return status and counters, without scanning tasks or queues.

        A crawl that does not exist, or not any more, shows as cancelled (`unknown`).
        """
        ...

    async def queue_states(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueState]:
        """Return the states of queues, in order of their numbers."""
        ...

    async def queue(self, crawl: str, key: str) -> QueueView:
        """Return one queue; a key without tasks is an empty queue."""
        ...

    async def queues(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[QueueView]:
        """Return queue views in order of their numbers."""
        ...

    async def queues_in_order(
        self,
        crawl: str,
        order: QueueOrder,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> CursorPage[QueueView]:
        """Return queue views in an order, without reading the queues before them (E8).

        "key": all queues whose key begins with `prefix`, by code points. "wake": those that wait
        for nothing but time, by wake time and number. A page may have fewer queues than there are,
        or none: the work of a call is bounded.
        """
        ...

    async def tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[TaskView]:
        """Return task views in order of their numbers; `limit` bounds the tasks examined."""
        ...

    async def queue_tasks(
        self,
        crawl: str,
        key: str,
        *,
        state: TaskState | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[TaskView]:
        """Return the tasks of the queue of that key, in order of their numbers (E8).

        With a state, those that are shown in it. Tasks of other queues are not read. A page may
        have fewer tasks than there are, or none: the work of a call is bounded.
        """
        ...

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """Return one task by its fingerprint."""
        ...

    async def leases(
        self,
        crawl: str,
        which: LeaseFilter = ALL_LEASES,
        *,
        after: int = 0,
        limit: int = 1000,
    ) -> ResultPage[LeaseView]:
        """Return the matching leases among the next `limit`, in the order they were made (H1).

        By task or fingerprint, that lease alone is looked at. Overdue leases are held until they
        expire. A cancelled crawl has none (I3).
        """
        ...

    async def pending_tasks(
        self, crawl: str, which: TaskFilter, *, after: int = 0, limit: int = 1000
    ) -> ResultPage[Pending]:
        """Return the matching pending tasks among the next `limit` tasks, in order.

        Half the cost of `tasks`, for callers that go through millions.
        """
        ...

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """Return the first due tasks of a queue, both lanes in one order; scans no others."""
        ...

    async def position(self, crawl: str, number: int) -> QueuePosition:
        """Return a task's position in its queue."""
        ...

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """Return the roots of a scope mode in order of arrival, except the first `after`."""
        ...

    async def heatmap(self, crawl: str) -> Heat:
        """Return counts of pending tasks, without scanning tasks."""
        ...

    async def settings(self, crawl: str) -> str:
        """Return the text last stored with the crawl's rules; "" if there is none."""
        ...

    async def values_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[SharedValue]:
        """Return the shared values with a higher number, in order, deleted ones included."""
        ...

    async def workers(self, crawl: str) -> list[WorkerView]:
        """Return the crawl's workers by first heartbeat, then name; silent ones as gone."""
        ...

    async def worker_totals(self, crawl: str) -> WorkerTotals:
        """Return the sum over all workers the crawl ever had, without their decisions."""
        ...

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> ResultPage[Saved]:
        """I5: return everything `restore` needs; a page has at most two items above `limit`.

        Changes made meanwhile are exported as they are when their page is read; no task comes
        before its queue, and no page is exported as done before the links it had.
        """
        ...

    async def events_since(
        self, crawl: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoreEvent]:
        """Return store events after a sequence number; old ones are forgotten."""
        ...

    async def event_log(self, crawl: str, *, after: int = 0, limit: int = 1000) -> EventPage:
        """O3: return the store's events and those that workers published, in one numbering.

        A page has at most `limit` of them after that number, and gaps besides, for all that were
        forgotten. Those that are missing after the last event may be told only with the next one.
        After a number behind the end of the log come a gap of unknown size (`null`, number 0) and
        the log from its beginning: the crawl was made again, and `after` is of the one before.
        """
        ...


class FullStore(Store, Admin, Inspect, Protocol):
    """What `open_store` returns: all three protocols over one store."""

    @property
    def id(self) -> str:
        """A name unlike that of any other store, for as long as this one exists."""
        ...

    @property
    def is_inline(self) -> bool:
        """True: no verb ever suspends, so none can be cancelled half-way or needs a task."""
        ...

    @property
    def notifies(self) -> Notifies:
        """Whether subscribers are notified; unless "always", a waiting caller also polls (C6)."""
        ...

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify`, on the loop, when a claim may find more than it expects (C6).

        That is after a verb of any process brought work earlier than the `wake_in` of the claims
        before it, or changed the crawl's status; and, where notifications may be lost, whenever a
        connection was made that brings them. Returns the unsubscriber, which may be called twice.
        """
        ...

    async def close(self) -> None:
        """Release every resource; nothing acknowledged is lost."""
        ...
