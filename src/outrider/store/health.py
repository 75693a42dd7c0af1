"""Reports of examined stores, and of rescued and copied files: no type of a driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

Tell: TypeAlias = Callable[[str], None]  # receives the progress of a long check
State: TypeAlias = Literal["ok", "note", "damaged"]
# Why a process holds a file: for one command, which closes it again, as a worker of a crawl that
# others decide, or for anything else.
Purpose: TypeAlias = Literal["command", "work", ""]

MAX_CLOCK_DIFFERENCE: Final = 2.0  # seconds
MIN_CONNECTIONS: Final = 10  # what one process may use


class Check(msgspec.Struct, frozen=True):
    """The result of one check; with a `fix` that is ok all the same, it is advice."""

    what: str
    is_ok: bool
    found: str
    fix: str = ""


class ServerHealth(msgspec.Struct, frozen=True):
    """What was found of the servers of a store, and of the store on them."""

    checks: Sequence[Check]
    has_store: bool  # one that can be opened without changing it


def check_of(what: str, is_ok: bool, found: str, fix: str) -> Check:
    """Return the result of a check, with the fix if it is not ok."""
    return Check(what, is_ok, found, "" if is_ok else fix)


def clock_check(what: str, before: int, server: float, after: int) -> Check:
    """Compare a server's time with this machine's before and after it was asked, all in ms."""
    ahead = (server - (before + after) / 2) / 1000
    doubt = (after - before) / 2000
    direction = "ahead of" if ahead >= 0 else "behind"
    found = f"{abs(ahead):,.3f} s {direction} this machine (± {doubt:.3f} s)"
    fix = "delays and instants are by the store's clock; set the clocks of both machines (NTP)"
    return check_of(what, abs(ahead) - doubt <= MAX_CLOCK_DIFFERENCE, found, fix)


def connections_check(what: str, used: int, most: int) -> Check:
    """Say how many connections a server has left."""
    found = f"{used:,} of {most:,} in use"
    fix = f"each process of Outrider uses up to {MIN_CONNECTIONS}; raise the limit, or use fewer"
    return check_of(what, most - used >= MIN_CONNECTIONS, found, fix)


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a file; its number is None where the system does not provide it."""

    pid: int | None
    command: str
    purpose: Purpose = ""  # as it declared

    @property
    def name(self) -> str:
        """Return its name for messages."""
        if self.pid is None:
            return "another process"
        return f"process {self.pid}" + (f" ({self.command})" if self.command else "")


class Finding(msgspec.Struct, frozen=True):
    """One check and its result."""

    what: str
    state: State
    detail: str


class PageHealth(msgspec.Struct, frozen=True):
    """The number of log pages, how many are intact, and the first of those that are not."""

    last: int
    intact: int
    lost: int
    first_lost: Sequence[int]


class CrawlHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl of a file: tasks whose newest record is intact, only an older one is, or none is.

    Counts by state are None where the file does not load.
    """

    crawl: str
    known: int
    intact: int
    outdated: int
    lost: int
    status: str | None = None
    pending: int | None = None
    leased: int | None = None
    done: int | None = None
    dead: int | None = None
    dropped: int | None = None
    queues: int | None = None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What is intact of a file and what is not, and what to do next."""

    file: str
    is_healthy: bool
    format: int | None
    size: int
    log_size: int
    holder: Holder | None
    findings: Sequence[Finding]
    pages: PageHealth
    crawls: Sequence[CrawlHealth]
    next: Sequence[str]


class Rescued(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rescue; tasks without a readable URL are listed by their old numbers."""

    file: str
    pages: int
    crawls: Sequence[CrawlHealth]
    lost: dict[str, Sequence[int]]  # by crawl, the first few
    without_rules: Sequence[str]  # crawls whose rules were lost: they have the default ones
    untold: int  # lost pages with unknown content

    @property
    def is_whole(self) -> bool:
        """Whether every task's newest record is there."""
        return not self.untold and not any(crawl.lost or crawl.outdated for crawl in self.crawls)


class CrawlCount(msgspec.Struct, frozen=True):
    """A crawl's own counters, from its last log page."""

    crawl: str
    known: int
    pending: int
    leased: int


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """A copy that was written and read back."""

    file: str
    size: int
    pages: int
    holder: Holder | None
    crawls: Sequence[CrawlCount]
