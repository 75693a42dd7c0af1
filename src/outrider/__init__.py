"""Outrider: a crawl frontier and its executor. Lower priority is sooner, everywhere."""

from typing import TYPE_CHECKING, Any

from outrider.core.outcome import (
    Again,
    Blocked,
    Done,
    Dropped,
    Failed,
    Outcome,
    Throttled,
    Unreachable,
    outcome_of,
)
from outrider.core.task import Added, Lease, Link
from outrider.errors import (
    Closed,
    ForeignLease,
    InvalidInput,
    LocalFault,
    OutputError,
    OutputFull,
    OutputUnavailable,
    OutriderError,
    PageTooCostly,
    SettingsError,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreUnattended,
    StoreUnavailable,
    StoreUnresponsive,
    StoreUnusable,
)
from outrider.events import Event
from outrider.frontier import Frontier
from outrider.frontier.crawls import crawls, removed_crawls
from outrider.settings import Settings
from outrider.store.factory import checkpoint

if TYPE_CHECKING:
    from outrider.wiring import CrawlReport, crawl

__version__ = "0.1.0"

__all__ = [
    "Added",
    "Again",
    "Blocked",
    "Closed",
    "CrawlReport",
    "Done",
    "Dropped",
    "Event",
    "Failed",
    "ForeignLease",
    "Frontier",
    "InvalidInput",
    "Lease",
    "Link",
    "LocalFault",
    "Outcome",
    "OutputError",
    "OutputFull",
    "OutputUnavailable",
    "OutriderError",
    "PageTooCostly",
    "Settings",
    "SettingsError",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreUnattended",
    "StoreUnavailable",
    "StoreUnresponsive",
    "StoreUnusable",
    "Throttled",
    "Unreachable",
    "__version__",
    "checkpoint",
    "crawl",
    "crawls",
    "outcome_of",
    "removed_crawls",
]

_OF_AN_EXTRA = frozenset({"CrawlReport", "crawl"})


def __getattr__(name: str) -> Any:
    """What needs the `crawl` extra is imported when it is asked for."""
    if name not in _OF_AN_EXTRA:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from outrider import wiring  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        raise ImportError(
            f"outrider.{name} fetches pages, and {error.name} is not installed: "
            "pip install 'outrider[crawl]'"
        ) from error
    return getattr(wiring, name)
