"""Outrider: a crawl frontier and its executor. Lower priority is sooner, everywhere."""

from outrider.core.outcome import (
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
    OutriderError,
    SettingsError,
    StoreError,
    StoreUnavailable,
)
from outrider.events import Event
from outrider.frontier import Frontier
from outrider.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "Added",
    "Blocked",
    "Closed",
    "Done",
    "Dropped",
    "Event",
    "Failed",
    "ForeignLease",
    "Frontier",
    "InvalidInput",
    "Lease",
    "Link",
    "Outcome",
    "OutriderError",
    "Settings",
    "SettingsError",
    "StoreError",
    "StoreUnavailable",
    "Throttled",
    "Unreachable",
    "__version__",
    "outcome_of",
]
