"""What is said of a file by those who examine, rescue or copy it: values only, no driver's type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

Tell: TypeAlias = Callable[[str], None]  # hears how far a long look has come
State: TypeAlias = Literal["ok", "note", "damaged"]


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a file; its number is None where the system does not tell."""

    pid: int | None
    command: str

    @property
    def name(self) -> str:
        """As people say it."""
        if self.pid is None:
            return "another process"
        return f"process {self.pid}" + (f" ({self.command})" if self.command else "")


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    what: str
    state: State
    detail: str


class PageHealth(msgspec.Struct, frozen=True):
    """How many pages there should be, how many are intact, and the first of those that are not."""

    last: int
    intact: int
    lost: int
    first_lost: Sequence[int]


class CrawlHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl of a file. Of its tasks, those whose last word is intact, was lost but an earlier one
    is not, and of which nothing is left that names their URL.

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
    """What a rescue wrote; tasks of which nothing names the URL are told by their old numbers."""

    file: str
    pages: int
    crawls: Sequence[CrawlHealth]
    lost: dict[str, Sequence[int]]  # by crawl, the first of them
    without_rules: Sequence[str]  # crawls whose rules were lost: the default ones hold
    untold: int  # lost pages of which nothing tells what stood there

    @property
    def is_whole(self) -> bool:
        """Whether every task's last word is there."""
        return not self.untold and not any(crawl.lost or crawl.outdated for crawl in self.crawls)


class CrawlCount(msgspec.Struct, frozen=True):
    """A crawl's own numbers, as its last page tells them."""

    crawl: str
    known: int
    pending: int
    leased: int


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """A copy that was made and read through."""

    file: str
    size: int
    pages: int
    holder: Holder | None
    crawls: Sequence[CrawlCount]
