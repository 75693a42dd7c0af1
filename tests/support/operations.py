"""Operations on a store as plain values: a list of them is a test case that can be printed.

An operation names leases by their index among those held, so any operation can be left out and the
others stay valid: that is how a failing case is shrunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from outrider.core.outcome import Outcome
from outrider.core.queue_action import QueueAction
from outrider.core.states import CrawlStatus
from outrider.core.task import KnownRule, Task
from outrider.store.protocol import TaskFilter, WhichCrawl, WorkerState
from outrider.testing.builders import task

HOSTS: Final = ("a.example", "b.example", "c.b.example", "d.org")
CRAWLS: Final = ("x", "y")


class Page(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A task to add: one of few pages of few hosts, so that most are known."""

    host: str
    number: int
    lane: int = 0
    priority: float = 0.0
    precedence: int = 1
    cost: int = 1
    delay: float = 0.0
    known: KnownRule = "keep"
    roll: int = 0
    depth: int = 0
    type: str = "page"
    tag: str | None = None
    origin: str = "opportunistic"
    key: str | None = None  # None: the host
    text: str = ""
    typed_by: str = ""
    done: bool = False

    def task(self, crawl: str) -> Task:
        """Return the task for the store."""
        fields: dict[str, Any] = msgspec.structs.asdict(self)
        host, number = fields.pop("host"), fields.pop("number")
        fields["key"] = self.key or host
        return task(f"https://{host}/{number}", crawl=crawl, **fields)


class Add(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Add tasks."""

    crawl: str
    pages: tuple[Page, ...]


class Claim(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Claim for a worker, which keeps its streak; from `limit` on as `ClaimRequest` has it."""

    crawl: str
    worker: int
    limit: int
    per_queue: int = 0
    lease_for: float = 60.0
    lend: bool = False
    outlives_process: bool = False
    keys: tuple[str, ...] = ()
    max_queues: int = 0
    rolls: tuple[float, ...] = ()


class ClaimNamed(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Claim pages by fingerprint; unknown ones too."""

    crawl: str
    worker: int
    pages: tuple[Page, ...]
    limit: int = 64
    lease_for: float = 60.0
    outlives_process: bool = False


class Finish(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Finish one of the leases held, at times more than once."""

    index: int
    outcome: Outcome
    roll: float = 0.0
    links: tuple[Page, ...] = ()
    times: int = 1


class Extend(msgspec.Struct, frozen=True, tag=True):
    """Extend one of the leases held."""

    index: int
    lease_for: float


class Release(msgspec.Struct, frozen=True, tag=True):
    """Release some of the leases held."""

    index: int
    count: int


class Stale(msgspec.Struct, frozen=True, tag=True):
    """Use a lease that was finished, released or lost."""

    index: int
    verb: Literal["finish", "extend", "release"]


class Expire(msgspec.Struct, frozen=True, tag=True):
    """Expire overdue leases."""

    limit: int


class Steer(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """A queue action, in as many steps as it takes."""

    crawl: str
    target: str
    act: QueueAction
    limit: int = 1000
    by: str = ""


class Configure(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """New rules, by `builders.rules`; swept: applied to every queue at once."""

    crawl: str
    fields: Mapping[str, Any]
    is_swept: bool
    by: str = ""
    only: WhichCrawl = "any"


class SetStatus(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Pause, resume or cancel a crawl."""

    crawl: str
    status: CrawlStatus
    by: str = ""


class Filter(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """A verb that changes the tasks of a filter, in as many steps as it takes."""

    crawl: str
    verb: str
    which: TaskFilter
    arguments: tuple[Any, ...] = ()
    dry_run: bool = False
    limit: int = 1000
    by: str = ""


class Delete(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Remove a crawl, in as many steps as it takes."""

    crawl: str
    limit: int = 1000


class PutValue(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Write a shared value; `seen` counts back from the newest: 0 is its number."""

    crawl: str
    name: str
    text: str
    seen: int | None = None


class SendHeartbeat(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Send a worker's heartbeat, whose totals are made of `done`; at times a late one."""

    crawl: str
    worker: int
    done: int
    bucket: int = 0
    decided: float | None = None  # when a scaling decision was made
    state: WorkerState = "busy"
    pid: int = 7


class Publish(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Publish so many events of a worker; at times a batch that was published before."""

    crawl: str
    worker: int
    serial: int
    count: int = 1


class UpdatePriorities(msgspec.Struct, frozen=True, tag=True, repr_omit_defaults=True):
    """Update the priority of tasks by number, with a current or an outdated `seen`."""

    crawl: str
    tasks: tuple[int, ...]
    priority: float
    is_stale: bool = False


class Advance(msgspec.Struct, frozen=True, tag=True):
    """Let time pass."""

    seconds: float


class Wait(msgspec.Struct, frozen=True, tag=True):
    """Let as much time pass as `wake_in` of the last claim."""


Op: TypeAlias = (
    Add
    | Claim
    | ClaimNamed
    | Finish
    | Extend
    | Release
    | Stale
    | Expire
    | Steer
    | Configure
    | SetStatus
    | Filter
    | Delete
    | PutValue
    | SendHeartbeat
    | Publish
    | UpdatePriorities
    | Advance
    | Wait
)
