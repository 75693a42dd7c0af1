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
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
)
from outrider.events import Event
from outrider.frontier import Frontier
from outrider.settings import Settings
from outrider.store.opening import checkpoint

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
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoreUnusable",
    "Throttled",
    "Unreachable",
    "__version__",
    "checkpoint",
    "outcome_of",
]
