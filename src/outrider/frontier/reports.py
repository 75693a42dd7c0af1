"""What the frontier returns: values to read, print and compare (O1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final

import msgspec

from outrider.core.breakdown import Breakdown
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Added, Lease
from outrider.store.protocol import CrawlView, QueueView, TaskView

MAX_GROUPS: Final = 1000  # types, and tags, that have counts of their own


class ScoringReport(msgspec.Struct, frozen=True):
    """What scoring a batch took (F9)."""

    count: int = 0
    seconds: float = 0.0
    features: Sequence[str] = ()

    @property
    def mean(self) -> float:
        """Seconds per link."""
        return self.seconds / self.count if self.count else 0.0


class AddReport(msgspec.Struct, frozen=True):
    """What became of the links: how many added, how many refused and why."""

    added: int
    refused: Mapping[str, int]
    answers: Sequence[Added]
    scoring: ScoringReport


class Scored(msgspec.Struct, frozen=True):
    """What adding a link would make of it: a task of this priority, or the reason for a refusal."""

    url: str
    reason: str | None = None  # why it would be refused; None: it would not
    detail: str | None = None
    priority: float | None = None  # this and all that follows: None if it would be refused
    breakdown: Breakdown | None = None
    precedence: int | None = None
    cost: int | None = None
    lane: str | None = None
    type: str | None = None
    key: str | None = None
    depth: int | None = None
    origin: str | None = None
    delay: float | None = None
    fingerprint: bytes | None = None
    known: TaskState | None = None  # the state it is known in; None: it is not, or was not asked


class ScoreReport(msgspec.Struct, frozen=True):
    """What adding links would make of them, in order."""

    answers: Sequence[Scored]
    refused: Mapping[str, int]
    scoring: ScoringReport


class Claim(list[Lease]):
    """The leases of a claim; `wake_in`: seconds until more may be due (None: not by time alone)."""

    __slots__ = ("status", "wake_in")

    def __init__(self, leases: Iterable[Lease], wake_in: float | None, status: CrawlStatus) -> None:
        super().__init__(leases)
        self.wake_in = wake_in
        self.status = status


class Stats(CrawlView, frozen=True, kw_only=True):
    """A crawl in numbers: known = pending + leased + done + dead + dropped."""

    refused: Mapping[str, int]  # by reason, through this frontier
    bypassed: int  # admitted over max_depth by `queue.bypass_depth`, through this frontier
    # Of more than `MAX_GROUPS` types, or tags, those with most tasks have counts of their own.
    type_count: int = 0  # different types, and tags
    tag_count: int = 0
    other_types: Mapping[str, int] = {}  # tasks by state, of all types without counts of their own
    other_tags: Mapping[str, int] = {}

    @property
    def progress(self) -> float:
        """The share of known tasks that are settled: done, dead or dropped."""
        settled = self.done + self.dead + self.dropped
        return settled / self.known if self.known else 0.0


def bounded_groups(view: CrawlView) -> dict[str, Any]:
    """Return a view's types and tags as `Stats` has them: the largest, and what the others sum to.

    Of equal ones the first by name are kept.
    """
    types, other_types = _largest(view.types, MAX_GROUPS)
    tags, other_tags = _largest(view.tags, MAX_GROUPS)
    return {
        "types": types,
        "tags": tags,
        "type_count": len(view.types),
        "tag_count": len(view.tags),
        "other_types": other_types,
        "other_tags": other_tags,
    }


def _largest(
    groups: Mapping[str, Mapping[str, int]], limit: int
) -> tuple[Mapping[str, Mapping[str, int]], Mapping[str, int]]:
    """Return the groups with most tasks by name, and the sums of all others."""
    if len(groups) <= limit:
        return groups, {}
    names = nsmallest(limit, groups, key=lambda name: (-sum(groups[name].values()), name))
    kept, others = set(names), Counter[str]()
    for name, counts in groups.items():
        if name not in kept:
            for state, count in counts.items():
                others[state] += count
    return {name: groups[name] for name in names}, others


class Heatmap(msgspec.Struct, frozen=True):
    """Pending tasks by origin and group, and by depth (O2)."""

    total: int
    cells: Mapping[str, Mapping[str, int]]
    depth: Mapping[str, int]
    updated_at: float

    def __getitem__(self, name: str) -> Any:
        """Return a field: a heatmap can be read like the mapping it is in JSON."""
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def keys(self) -> Sequence[str]:
        """Return the names of the fields, so that `dict(heatmap)` has them all."""
        return self.__struct_fields__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)

    def __len__(self) -> int:
        return len(self.__struct_fields__)


class Attempt(msgspec.Struct, frozen=True):
    """One failed visit."""

    at: float
    worker: str
    error: str


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead task, with everything needed to decide whether to replay it (G2)."""

    url: str
    key: str
    type: str
    tag: str | None
    meta: Mapping[str, Any]
    reason: str
    died_at: float
    attempts: Sequence[Attempt]


def dead_letter(view: TaskView) -> DeadLetter:
    """Make the dead letter of a dead task."""
    attempts = tuple(Attempt(*attempt) for attempt in view.history)
    reason, died_at = view.reason or "", view.finished_at or 0.0
    return DeadLetter(view.url, view.key, view.type, view.tag, view.meta, reason, died_at, attempts)


class QueueSample(msgspec.Struct, frozen=True):
    """The worst queues of those that were read, each as it was then."""

    items: Sequence[QueueView]
    examined: int  # how many queues were read, each counted once
    known: int  # how many there are
    age: float  # seconds since the first of `items` was read


class SuffixView(msgspec.Struct, frozen=True):
    """The sums over several queues."""

    key: str
    queues: Mapping[str, int]  # by state
    pending: int
    in_flight: int
    spent: int


class Term(msgspec.Struct, frozen=True):
    """One part of a priority, and the setting its weight is from."""

    name: str
    value: float
    setting: str | None = None  # None: the link brought it
    weight: Any = None  # the value of the setting
    origin: str | None = None  # the layer of settings that it is from


class Explanation(msgspec.Struct, frozen=True):
    """Why a URL is where it is (O4)."""

    url: str
    identity: str | None
    fingerprint: str | None
    admission: str  # "known", "admissible", or the reason for which it would be refused
    detail: str | None
    task: TaskView | None = None
    breakdown: Breakdown | None = None
    queue: QueueView | None = None
    place: int | None = None  # how many of its queue and lane are before it
    expected_in: float | None = None  # seconds, estimated; None: unknown
    across: int | None = None  # how many of the whole crawl are before it, estimated
    terms: Sequence[Term] = ()
    type: str | None = None  # it has, or would have if it were added; None: it is refused
    typed_by: str | None = None  # what gave it this type, in words


class RestoreReport(msgspec.Struct, frozen=True):
    """What was restored from an export."""

    crawl: str = ""  # its name when it was saved
    queues: int = 0
    tasks: int = 0
    known: int = 0  # items that were there already, and were not changed


class Reason(msgspec.Struct, frozen=True):
    """One thing that keeps a crawl from finishing."""

    what: str
    key: str
    detail: str
