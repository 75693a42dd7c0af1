"""The conformance suite for stores: one class of tests per topic of the store protocol.

Your store is complete when it passes them unchanged. In one test file, with pytest and
pytest-asyncio (`asyncio_mode = "auto"`):

    from outrider.testing.clock import FakeClock
    from outrider.testing.conformance import *        # AddConformance, ClaimConformance, …
    from outrider.testing.invariants import CheckedStore

    @pytest.fixture
    def clock(): return FakeClock()

    @pytest.fixture
    async def store(clock):                           # empty, using this clock
        store = CheckedStore(MyStore(clock), clock)   # checks the invariants as well
        yield store
        await store.close()

    class TestAdd(AddConformance): ...                # and so on, one class for each

`open_crawl` is among what is imported: it opens the crawl of each test, since no add creates one.
"""

# ruff: noqa: E402 - pytest can explain only what it rewrites before it is imported

from pkgutil import iter_modules

import pytest

from outrider.store.protocol import FullStore

pytest.register_assert_rewrite(*(f"{__name__}.{found.name}" for found in iter_modules(__path__)))

from outrider.testing.conformance.acts import ActsConformance
from outrider.testing.conformance.add import AddConformance
from outrider.testing.conformance.addressing import AddressingConformance
from outrider.testing.conformance.admin import AdminConformance
from outrider.testing.conformance.again import AgainConformance
from outrider.testing.conformance.answers import AnswersConformance
from outrider.testing.conformance.budget import BudgetConformance
from outrider.testing.conformance.cache import CacheConformance
from outrider.testing.conformance.claim import ClaimConformance
from outrider.testing.conformance.counts import CountsConformance
from outrider.testing.conformance.crawl import CrawlConformance
from outrider.testing.conformance.delete import DeletionConformance
from outrider.testing.conformance.drawn_delays import DrawnDelayConformance
from outrider.testing.conformance.event_log import EventLogConformance
from outrider.testing.conformance.export import SavingConformance
from outrider.testing.conformance.filters import FiltersConformance
from outrider.testing.conformance.finish import FinishConformance
from outrider.testing.conformance.forget import ForgetConformance
from outrider.testing.conformance.hosts import HostsConformance
from outrider.testing.conformance.inspect import InspectConformance, UpcomingConformance
from outrider.testing.conformance.known import KnownConformance
from outrider.testing.conformance.lanes import LanesConformance
from outrider.testing.conformance.lease import ExpiryConformance, LeaseConformance
from outrider.testing.conformance.limited_claims import LimitedClaimConformance
from outrider.testing.conformance.listings import QueuesInOrderConformance, QueueTasksConformance
from outrider.testing.conformance.loans import LoansConformance
from outrider.testing.conformance.lookup import LookupConformance
from outrider.testing.conformance.notifications import NotificationsConformance
from outrider.testing.conformance.order import OrderConformance
from outrider.testing.conformance.pace import PaceConformance
from outrider.testing.conformance.politeness import PolitenessConformance, UntouchedConformance
from outrider.testing.conformance.priorities import PricingConformance
from outrider.testing.conformance.restore import RestoringConformance
from outrider.testing.conformance.retry import RetryingConformance
from outrider.testing.conformance.sessions import FocusConformance, SessionsConformance
from outrider.testing.conformance.set_known import SetKnownConformance
from outrider.testing.conformance.set_rules import SettingConformance
from outrider.testing.conformance.shared_values import NotesConformance, StoreValuesConformance
from outrider.testing.conformance.sizes import SizesConformance
from outrider.testing.conformance.snooze import SnoozingConformance
from outrider.testing.conformance.steps import configure
from outrider.testing.conformance.stops import StopsConformance
from outrider.testing.conformance.wake_in import WaitingConformance
from outrider.testing.conformance.workers import WorkersConformance

__all__ = [
    "ActsConformance",
    "AddConformance",
    "AddressingConformance",
    "AdminConformance",
    "AgainConformance",
    "AnswersConformance",
    "BudgetConformance",
    "CacheConformance",
    "ClaimConformance",
    "CountsConformance",
    "CrawlConformance",
    "DeletionConformance",
    "DrawnDelayConformance",
    "EventLogConformance",
    "ExpiryConformance",
    "FiltersConformance",
    "FinishConformance",
    "FocusConformance",
    "ForgetConformance",
    "HostsConformance",
    "InspectConformance",
    "KnownConformance",
    "LanesConformance",
    "LeaseConformance",
    "LimitedClaimConformance",
    "LoansConformance",
    "LookupConformance",
    "NotesConformance",
    "NotificationsConformance",
    "OrderConformance",
    "PaceConformance",
    "PolitenessConformance",
    "PricingConformance",
    "QueueTasksConformance",
    "QueuesInOrderConformance",
    "RestoringConformance",
    "RetryingConformance",
    "SavingConformance",
    "SessionsConformance",
    "SetKnownConformance",
    "SettingConformance",
    "SizesConformance",
    "SnoozingConformance",
    "StopsConformance",
    "StoreValuesConformance",
    "UntouchedConformance",
    "UpcomingConformance",
    "WaitingConformance",
    "WorkersConformance",
    "open_crawl",
]


@pytest.fixture(autouse=True)
async def open_crawl(store: FullStore) -> None:
    """Open the crawl that the tests are about, under the rules of a crawl without settings (I1)."""
    await configure(store)
