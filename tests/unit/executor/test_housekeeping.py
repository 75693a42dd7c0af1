"""The keeper of an executor: what it asks of the store, and when."""

import asyncio
from types import SimpleNamespace

import pytest

from outrider.executor.housekeeping import Housekeeping
from outrider.executor.outage import Outage
from outrider.executor.worker_counts import WorkerCounts
from outrider.testing import FakeClock


class Frontier:
    """A frontier whose store is asked for a heartbeat and never answers it."""

    crawl = worker = "x"

    def __init__(self):
        self.clock, self.refused, self.retried = FakeClock(), {}, 0
        self.asked = asyncio.Event()
        self.store = self

    async def heartbeat(self, *_):
        """The heartbeat comes after leases were renewed."""
        self.asked.set()
        await asyncio.Event().wait()


class Holding:
    """Leases that are due or not."""

    seconds = 60.0

    def __init__(self, *, is_due):
        self.is_due = is_due

    async def renew(self):
        """Every lease is kept."""
        return []


@pytest.mark.parametrize(("is_due", "is_back"), [(False, False), (True, True)])
async def test_store_is_back_only_when_it_was_asked(is_due, is_back):
    """M6: without an old lease there is nothing to renew, and no sign that the store answers."""
    outage = Outage()
    outage._since = asyncio.get_running_loop().time()
    executor = SimpleNamespace(
        outage=outage,
        lost=lambda _: None,
        in_flight=0,
        is_stopping=False,
        slots=SimpleNamespace(count=1, busy=0, by_state=dict),
        parked_count=0,
        visits=0,
        scaler=SimpleNamespace(decisions=[]),
        counts=WorkerCounts(),
    )
    frontier = Frontier()
    speaking = asyncio.create_task(
        Housekeeping(executor, frontier, Holding(is_due=is_due))._call_store()
    )
    asked = asyncio.create_task(frontier.asked.wait())
    await asyncio.wait([asked, speaking], return_when=asyncio.FIRST_COMPLETED)
    assert asked.done()
    assert outage.is_on is not is_back
    speaking.cancel()
    await asyncio.wait([speaking])
