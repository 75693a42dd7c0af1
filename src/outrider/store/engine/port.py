"""The port of the engine: what a store implements to run crawls on it.

`TaskTable` and `QueueTable` keep the records. A store that keeps every queue within reach (memory,
the embedded file) has no `Loader` and no `FastPath`. A store whose tables hold a working set
(PostgreSQL) brings rows in through its `Loader`, also in the middle of a claim, and may shorten
ordinary visits with a `FastPath`.

Identity of containers: the parts of an engine capture `QueueTable.by_key` and `QueueTable.loaded`,
and what `Leases` and `Schedule` own (`held`, `deadlines`, `ready`, `inactive`, `wakeups`). These
are never rebound, only changed. `TaskTable.known` may be rebound between verbs, so the engine
reads it again in every verb.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from outrider.core.pick import Streak
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.states import TaskState
from outrider.core.task import Lease, LeaseId, Task
from outrider.core.verdict import Verdict
from outrider.core.worker_totals import WorkerTotals
from outrider.store.engine.records import Queue, TaskRecord
from outrider.store.protocol import (
    ClaimRequest,
    EventBatch,
    EventPage,
    Heartbeat,
    SharedValue,
    SharedValueWrite,
    Step,
    StoreEvent,
    WorkerView,
)

if TYPE_CHECKING:
    from outrider.store.engine.engine import CrawlEngine


class Numbers(NamedTuple):
    """Numbers of tasks, and the number after which the next ones are sought (None: no more)."""

    found: list[int]
    after: int | None

    @classmethod
    def page(cls, found: list[int], limit: int, upto: int, last: int) -> Numbers:
        """Return the first of what was found up to a number; `last` is that of the last task."""
        if len(found) > limit:
            return cls(found[:limit], found[limit - 1])
        return cls(found, upto if upto < last else None)


class TaskTable(Protocol):
    """Every known task of one crawl, wherever its record is kept."""

    @property
    def known(self) -> Sequence[dict[bytes, int]]:
        """Numbers by fingerprint, in 256 dicts by first byte; complete for prefetched tasks."""
        ...

    def prefetch(self, tasks: Sequence[Task], numbers: Iterable[int] = ()) -> None:
        """Prepare to add these tasks, and to end the leases of these numbers.

        Afterwards `known` is complete for the tasks, and their queues are loaded (and locked).
        """
        ...

    def load(self, numbers: Iterable[int]) -> None:
        """Load tasks that are about to change in another way, and their queues."""
        ...

    def find(self, fingerprint: bytes) -> int | None:
        """Return the number of the task with that fingerprint."""
        ...

    def is_forgotten(self, number: int) -> bool:
        """Return whether a known task is forgotten (C10); asked while any is."""
        ...

    def get(self, number: int) -> TaskRecord:
        """Return a task, to change it; `KeyError` if there is none of that number."""
        ...

    def first(self, queue: Queue, entry: int) -> TaskRecord:
        """Return the task of an entry that was the first of a lane of this queue, to lease it."""
        ...

    def insert(self, record: TaskRecord) -> None:
        """Insert a new task; its number is the next one."""
        ...

    def update(self, record: TaskRecord) -> None:
        """Record that a task has changed."""
        ...

    def set_tie(self, record: TaskRecord) -> None:
        """Record that a task has a new tie, made of the crawl's last arrival."""
        ...

    def set_queue(self, record: TaskRecord) -> None:
        """Record that a known task was moved to the queue it has now."""
        ...

    def read(self, numbers: Iterable[int]) -> Iterable[TaskRecord]:
        """Return tasks to read only: loads no queue for them, and leaves out gaps."""
        ...

    def in_state(self, numbers: range, state: TaskState) -> Iterable[int]:
        """Return those of the numbers whose tasks may be in that state."""
        ...

    def in_queue(self, queue: int, state: TaskState | None, after: int, limit: int) -> Numbers:
        """Return the first tasks of a queue after a number, in order, at most `limit` (E8).

        With a state: those that may be in it. The work is bounded, so that fewer may be returned
        than there are.
        """
        ...

    def url(self, number: int) -> str:
        """Return the URL of a known task."""
        ...


class QueueTable(Protocol):
    """Every queue of one crawl. The hot loops read `by_key` and `loaded` directly."""

    @property
    def by_key(self) -> Sequence[dict[str, Queue]]:
        """Loaded queues, in 256 dicts by `hash(key) & 255`."""
        ...

    @property
    def loaded(self) -> dict[int, dict[int, Queue]]:
        """Loaded queues by `number >> CHUNK_BITS`, then by number."""
        ...

    def find(self, key: str) -> Queue | None:
        """Return the queue of exactly that key, loaded."""
        ...

    def get(self, number: int) -> Queue:
        """Return the queue of that number, loaded."""
        ...

    def create(self, key: str, number: int, turn: int, rules: QueueRules, epoch: int) -> Queue:
        """Insert a new queue."""
        ...

    def wake_at(self, number: int) -> int:
        """Return a queue's wake time without loading it; 0: it has none."""
        ...

    def read(self, numbers: Sequence[int]) -> Iterable[Queue]:
        """Return queues to read only: loads none of them, and leaves out gaps."""
        ...

    def keys_between(self, low: str, high: str, limit: int) -> list[tuple[str, int]] | None:
        """Return the first keys ≥ low and < high, in order, each with its queue's number (E8).

        None: they are not sorted yet; the next call continues.
        """
        ...

    def matching(self, target: str, after: int) -> Iterator[Queue]:
        """Return the queues after a number that an action on this target covers, loaded."""
        ...

    def load_all(self) -> None:
        """Load every queue: the order among queues changes, or an epoch of rules is dropped."""
        ...


class Loader(Protocol):
    """Brings rows into the tables and the schedule of a store that holds a working set.

    The order of calls in a claim is `begin_claim`, `load_candidates`, `load_first_tasks`, then any
    number of `load_inactive`, `may_be_over`, `wake_in`; in a claim by fingerprint `load_named`
    replaces the three in the middle.
    """

    def load_totals(self) -> None:
        """Make the totals of the state complete (they may be differences until then)."""
        ...

    def load_last_numbers(self) -> None:
        """Make the last numbers of the state those given by all processes."""
        ...

    def load_leases(self, after: int, limit: int) -> None:
        """Load the leases of the queues in a result page of an export."""
        ...

    def load_lease_page(self, after: int, limit: int) -> None:
        """Load the next leases after a turn, in order: one more than so many, to read."""
        ...

    def load_overdue(self, limit: int, now: int) -> None:
        """Load overdue leases, at most so many."""
        ...

    def begin_claim(self, request: ClaimRequest, now: int) -> None:
        """Load overdue leases at the start of a claim; later questions may be sent ahead."""
        ...

    def load_candidates(self, request: ClaimRequest) -> None:
        """Load queues whose wake time has come, and the first `limit` of each ready list."""
        ...

    def load_first_tasks(self, request: ClaimRequest) -> None:
        """Load the tasks this claim may lease, and the best inactive queues."""
        ...

    def load_inactive(self) -> None:
        """Load more of the inactive list, and advance `Schedule.inactive_edge`."""
        ...

    def load_named(self, fingerprints: Sequence[bytes]) -> Iterable[TaskRecord]:
        """Load and return those of these tasks that can be leased by fingerprint."""
        ...

    def wakes_after(self, at: int, number: int, limit: int) -> list[tuple[int, int]]:
        """Return the first wake times, each with its queue, after one and its queue (E8)."""
        ...

    def may_be_over(self) -> bool:
        """Return whether no task is left to wait for; if so, the totals are complete."""
        ...

    def load_keys(self, keys: Sequence[str]) -> list[Queue]:
        """C5: load and return the queues of a claim's keys that it may lease from, each once."""
        ...

    def wake_in(self, request: ClaimRequest, now: int) -> float | None:
        """C6: return the seconds to the next deadline or wake time that concerns a claim."""
        ...


class FastLeases(NamedTuple):
    """What the fast path leased; whether the engine has nothing to add."""

    leases: list[Lease]
    streak: Streak
    is_complete: bool
    is_cut: bool = False  # they reached the bytes of a claim: no more are leased


class FastPath(Protocol):
    """Ordinary visits moved by the store itself, without loading their queues."""

    def lease(self, request: ClaimRequest, now: int) -> FastLeases:
        """Lease tasks of queues that need no rescheduling."""
        ...

    def finish(self, verdicts: Sequence[Verdict], now: int) -> set[tuple[int, int]]:
        """Apply ordinary verdicts; return their tasks and tokens."""
        ...

    def extend(self, leases: Sequence[LeaseId], deadline: int) -> set[LeaseId]:
        """H2: extend leases; return those that were held."""
        ...


class Journal(Protocol):
    """What a crawl keeps besides tasks and queues: scope roots, shared values, workers, events."""

    def add_roots(self, mode: str, roots: Iterable[str]) -> None:
        """A5: add what seeds contribute to the scope."""
        ...

    def roots(self, mode: str, after: int) -> list[str]:
        """Return the roots of a mode in the order they were added, without the first `after`."""
        ...

    def all_roots(self) -> dict[str, list[str]]:
        """Return the roots by mode."""
        ...

    def put_values(self, values: Sequence[SharedValueWrite], now: int) -> list[int]:
        """N1: write shared values; return a number for each, 0 if another value was there."""
        ...

    def values_since(self, after: int, limit: int) -> list[SharedValue]:
        """Return the shared values with a higher number, in order."""
        ...

    def heartbeat(self, heartbeat: Heartbeat, now: int) -> None:
        """Record a worker's heartbeat."""
        ...

    def workers(self, now: int) -> list[WorkerView]:
        """Return the workers by their first heartbeat."""
        ...

    def worker_totals(self) -> WorkerTotals:
        """Return the totals of all workers there ever were."""
        ...

    def events(self, after: int, limit: int) -> list[StoreEvent]:
        """O3: return the events with a higher number, in order."""
        ...

    def publish(self, batch: EventBatch) -> None:
        """O3: append a worker's events to the log, unless the ring has them."""
        ...

    def event_log(self, after: int, limit: int) -> EventPage:
        """O3: return a page of the store's events and those of workers."""
        ...


class Crawls(Protocol):
    """The crawls of a store by name, and its clock."""

    def now(self) -> int:
        """Return the time in milliseconds; never steps back (H7)."""
        ...

    def open(self, name: str) -> CrawlEngine:
        """I1: return a crawl to change it; the first call creates it."""
        ...

    def existing(self, name: str) -> CrawlEngine | None:
        """Return a crawl to change it, if it exists."""
        ...

    def exists(self, name: str) -> bool:
        """Tell whether a crawl was created, and not removed since."""
        ...

    def reading(self, name: str, *, totals: bool = False) -> CrawlEngine:
        """Return a crawl to read it; one that does not exist is an empty one.

        `totals`: the totals of its state are complete.
        """
        ...

    def names(self) -> list[str]:
        """Return the names of the crawls in order of their creation."""
        ...

    def delete(self, name: str, limit: int) -> Step:
        """I1: make a step of removing a crawl, which was cancelled for that (`DELETING`)."""
        ...

    def expiring(self) -> Iterable[CrawlEngine]:
        """Return the crawls that may have overdue leases, to change them."""
        ...

    def as_stored(self, rules: CrawlRules) -> CrawlRules:
        """Return rules as this store reads them back."""
        ...
