"""The seam: six hot verbs, Admin for operators, Inspect for readers; no driver type crosses it.

Every verb may be repeated without harm: a lost connection leaves the answer unknown. Durations
cross the seam, instants stay with the store, dice arrive as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from outrider.core.breakdown import Breakdown
from outrider.core.outcome import Answer
from outrider.core.pick import Streak
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import QueueAction
from outrider.core.states import CrawlStatus, QueueState, TaskState
from outrider.core.task import Added, Lease, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.store.saved import Saved

NAMES_MOST: Final = 64  # names of one claim that are looked at (D5)
NAME_BYTES: Final = 16
PROCESS_MOST: Final = 64  # characters of a process's name
WORKER_KEPT: Final = 86_400.0  # seconds of silence after which a worker is forgotten
WORKERS_MOST: Final = 10_000  # of one crawl; over it the one silent longest is forgotten
TOPIC_MOST: Final = 64
NAME_MOST: Final = 1024
NOTE_MOST: Final = 65_536

WorkerState: TypeAlias = Literal["idle", "busy", "draining", "gone"]
Name: TypeAlias = Annotated[bytes, Meta(min_length=NAME_BYTES, max_length=NAME_BYTES)]


class ClaimRequest(msgspec.Struct, frozen=True):
    """Who asks for how much, and how the lanes stand with them."""

    crawl: str
    worker: str
    limit: int
    lease_for: float = 60.0
    per_queue: int = 0  # 0: no cap but the queue's free slots (C5)
    streak: Streak = Streak()
    names: Sequence[Name] = ()  # given: lend these, for the cache, and nothing else (D5)
    lend: bool = False  # lend whole queues: one slot each, up to `per_queue` tasks (C7)
    # The process that will hold the leases, if it is not the one that holds the store's file: its
    # leases outlive that one (H4). Stores on servers have no such process, and ignore it.
    process: Annotated[str, Meta(max_length=PROCESS_MOST)] = ""


class Claimed(msgspec.Struct):
    """What a claim brought, and when to ask again (C6)."""

    leases: list[Lease]
    wake_in: float | None
    status: CrawlStatus
    streak: Streak


class Store(Protocol):
    """The hot path; a seventh verb needs an ADR."""

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """Admit what is not known (B3, B4), in order; an answer per task."""
        ...

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Lend the next tasks; only a claim wakes queues and closes a run.

        By name (D5) it does neither. It lends those of the first 64 named that are pending and due,
        of queues neither paused, retired nor over their budget, whatever next-ready, session and
        slots say: such a lease takes no slot, and its host is untouched until a verdict says else.
        """
        ...

    async def extend(self, leases: Sequence[LeaseId], *, lease_for: float) -> set[LeaseId]:
        """Renew the leases still held; the others were lost before this call."""
        ...

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """Apply each verdict with the tasks its page found, in one atomic step (H3, H6)."""
        ...

    async def release(self, leases: Sequence[LeaseId]) -> set[LeaseId]:
        """Take back unpunished those still held (H5)."""
        ...

    async def expire(self, *, limit: int) -> int:
        """Take back overdue leases, each a crash, in (deadline, arrival) order (H4)."""
        ...


class Which(msgspec.Struct, frozen=True):
    """Which tasks: all that match every field given (C10, G2)."""

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
    """One bounded step of a long work: how many it touched, and where to go on (None: done)."""

    count: int
    after: int | None


class Beat(msgspec.Struct, frozen=True):
    """How a worker is: what it says of itself, every few seconds."""

    worker: str  # an incarnation: a process that starts again is another one
    state: WorkerState  # "gone" when it says goodbye
    host: str
    pid: int
    slots: int
    busy: int  # slots with a visit
    visits: int  # ended since it started
    lasts: float = 30.0  # seconds of silence after which it reads as gone


class Note(msgspec.Struct, frozen=True):
    """Something durable to say of a crawl to all its workers, under a topic and a name.

    `seen`: write it only over the note of this number (0: only if there is none).
    """

    topic: Annotated[str, Meta(min_length=1, max_length=TOPIC_MOST)]
    name: Annotated[str, Meta(max_length=NAME_MOST)]
    text: Annotated[str, Meta(max_length=NOTE_MOST)]  # "": it is gone
    seen: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class Noted(msgspec.Struct, frozen=True):
    """A note as it stands; its number is higher than those of all notes written before it."""

    number: int
    at: float
    topic: str
    name: str
    text: str


class Price(msgspec.Struct, frozen=True, gc=False):
    """A pending task's new priority, and the one it was thought to have (C8)."""

    task: int
    seen: float
    priority: float
    breakdown: Breakdown | None = None


class Admin(Protocol):
    """Operators: live and durable. Long works come in bounded steps with a cursor."""

    async def configure(self, crawl: str, rules: CrawlRules, settings: str = "") -> bool:
        """Open the crawl under these rules, keeping what was set at run time by key.

        `settings` is text of the caller's, kept for whoever joins the crawl; "" leaves what is
        kept. True: queues are still to be told of a change, by `steer(crawl, "", Set({}))` to its
        end.
        """
        ...

    async def steer(
        self, crawl: str, target: str, act: QueueAction, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """Apply an act to a key, a suffix (".org") or, as "", to every queue."""
        ...

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """A5: remember what seeds contribute to the scope, for every worker of the crawl."""
        ...

    async def turn(self, crawl: str, status: CrawlStatus, reason: str = "operator") -> CrawlStatus:
        """Pause, resume or cancel a crawl; an illegal move changes nothing. Answers the status."""
        ...

    async def drop(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """Pending tasks become dropped (`operator`)."""
        ...

    async def replay(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """Dead tasks become pending with attempts at 0."""
        ...

    async def purge(
        self, crawl: str, which: Which, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """Dead tasks become dropped (`purged`)."""
        ...

    async def note(self, crawl: str, notes: Sequence[Note]) -> list[int]:
        """Write notes, in order, each over the one of its topic and name; their new numbers.

        0: `seen` did not hold, and nothing was written of that one. A note that would say what is
        said already keeps its number. What is gone is kept as a note without text.
        """
        ...

    async def reprice(self, crawl: str, prices: Sequence[Price]) -> int:
        """C8: give tasks another priority; how many were pending at the one seen, so had it.

        They keep precedence, tie and due time. Others are left alone.
        """
        ...

    async def beat(self, crawl: str, beat: Beat) -> None:
        """A worker says how it is; this may be forgotten when the store is opened again.

        One that was silent for a day is forgotten, and of 10,000 the one silent longest.
        """
        ...

    async def restore(self, crawl: str, saved: Sequence[Saved]) -> int:
        """I5: take in a part of an export, in its order; how many items were not there yet.

        The crawl must have no tasks when its `SavedCrawl` comes, and lends nothing until its
        `SavedEnd` did. Queues and tasks that are known are left alone, so an export may be begun
        again. A batch with a fault is refused whole.
        """
        ...


class CrawlView(msgspec.Struct, frozen=True):
    """A crawl as its counters tell: known = pending + leased + done + dead + dropped (O5)."""

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


class WorkerView(msgspec.Struct, frozen=True):
    """One worker as all others see it."""

    worker: str
    state: WorkerState
    host: str
    pid: int
    slots: int
    busy: int
    visits: int
    started_at: float  # its first beat
    seen_at: float  # its last one


class QueueView(msgspec.Struct, frozen=True):
    """One queue as an operator sees it (E8)."""

    key: str
    state: QueueState
    reason: str | None
    pending: int
    delayed: int
    in_flight: int
    named: int  # of those, lent by name: they take no slot (D5)
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
    delay: float  # the last one, or the least if none
    max_in_flight: int
    last_visit_at: float | None
    wakes_in: float | None
    next_url: str | None
    lent: int = 0  # tasks of it out on a loan; the loan takes one slot (C7)


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
    history: Sequence[tuple[float, str, str]]  # at, worker, error: every attempt that went wrong


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A task that waits, as it was added and priced: what it takes to price it again (C8)."""

    number: int
    task: Task


class Upcoming(NamedTuple):
    """A task that is due: the name a claim knows it by, and its URL."""

    fingerprint: bytes
    url: str


class Place(msgspec.Struct, frozen=True):
    """Where a pending task stands within its queue and lane: how many are before it."""

    ahead: int
    queue: QueueView


class Heat(msgspec.Struct, frozen=True):
    """Pending tasks by origin and group, and by depth (O2)."""

    total: int
    cells: Mapping[str, Mapping[str, int]]
    depth: Mapping[str, int]
    updated_at: float


class Change(msgspec.Struct, frozen=True):
    """Something rare a store did of itself: an expiry, a queue's retirement, a crawl's end."""

    sequence: int
    at: float
    name: str
    subject: str
    detail: str


class Page(msgspec.Struct, frozen=True):
    """A page of views, and the cursor of the next one (None: the last)."""

    items: Sequence[Any]
    after: int | None


class Inspect(Protocol):
    """Readers: nothing here changes anything; long lists come in pages."""

    async def crawls(self) -> list[str]:
        """The names of all crawls, in order of their creation."""
        ...

    async def crawl(self, crawl: str) -> CrawlView:
        """Status and counters, without scanning tasks or queues."""
        ...

    async def census(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """The states of a page of queues."""
        ...

    async def queue(self, crawl: str, key: str) -> QueueView:
        """One queue; a key nobody added to is an empty queue."""
        ...

    async def queues(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """Queue views in order of their numbers."""
        ...

    async def tasks(self, crawl: str, which: Which, *, after: int = 0, limit: int = 1000) -> Page:
        """Task views in order of their numbers; `limit` bounds the tasks looked at."""
        ...

    async def task(self, crawl: str, fingerprint: bytes) -> TaskView | None:
        """One task, by its identity."""
        ...

    async def waiting(self, crawl: str, which: Which, *, after: int = 0, limit: int = 1000) -> Page:
        """The pending tasks among the next `limit` ones that match, in order, each a `Pending`.

        Half the price of `tasks`, for those who go through millions.
        """
        ...

    async def upcoming(self, crawl: str, key: str, *, limit: int = 64) -> list[Upcoming]:
        """The first due tasks of a queue, both lanes in one order; without scanning the others."""
        ...

    async def place(self, crawl: str, number: int) -> Place:
        """Where a task stands."""
        ...

    async def roots(self, crawl: str, mode: str, *, after: int = 0) -> list[str]:
        """The roots of a scope mode, in order of their coming, but for the first `after`."""
        ...

    async def heatmap(self, crawl: str) -> Heat:
        """What is pending, without scanning tasks."""
        ...

    async def settings(self, crawl: str) -> str:
        """The text that was last kept with the crawl's rules; "" if none was."""
        ...

    async def notes(self, crawl: str, *, after: int = 0, limit: int = 1000) -> list[Noted]:
        """The notes with a higher number, in order, each as it stands now; gone ones too."""
        ...

    async def workers(self, crawl: str) -> list[WorkerView]:
        """Who works on this crawl, by their first beat, then by name; the silent read as gone."""
        ...

    async def export(self, crawl: str, *, after: int = 0, limit: int = 1000) -> Page:
        """I5: all that `restore` needs, as `Saved` items; at most two more than `limit` a page.

        What runs meanwhile is told as it is when its page is read; no task is told before its
        queue, and no page as done before the links it had.
        """
        ...

    async def changes(self, crawl: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """What the store did of itself since a sequence number; old ones are forgotten."""
        ...


class FullStore(Store, Admin, Inspect, Protocol):
    """What `open_store` gives: all three protocols over one memory."""

    @property
    def id(self) -> str:
        """Tells this store from every other, for as long as it exists."""
        ...

    @property
    def is_inline(self) -> bool:
        """True: no verb ever suspends, so none can be cancelled half-way or needs a task."""
        ...

    def watch(self, crawl: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring`, on the loop, when somebody may have brought work; answers with its end.

        A hint that may fail to come: whoever waits looks again by itself (C6).
        """
        ...

    async def close(self) -> None:
        """Let go of every resource; nothing acknowledged is lost."""
        ...
