"""Frontiers on a fake clock, and stores whose calls tests can watch."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from outrider import Frontier
from outrider.store.factory import open_store
from outrider.testing import FakeClock


class RestingClock(FakeClock):
    """Counts its sleepers."""

    def __init__(self):
        super().__init__()
        self.rests = 0

    async def sleep(self, seconds):
        """Count, then sleep."""
        self.rests += 1
        await super().sleep(seconds)


class WatchedStore:
    """Any store, its calls counted; calls of the verbs in `held` wait until `let_go`.

    A call waits before it reaches the store inside, or, with `after=True`, behind it: applied, but
    not yet answered.
    """

    is_inline = False  # it may suspend

    def __init__(self, store, *, after=False):
        self._store = store
        self._after = after
        self._gate = asyncio.Event()
        self._gate.set()
        self.held = frozenset()
        self.errors = {}  # verb → what to raise in place of calling
        self.calls = Counter()
        self.sizes = []  # of the batches handed to add and finish

    def __getattr__(self, name):
        """Whatever is not watched is the inner store's."""
        found = getattr(self._store, name)
        return self._watched(name, found) if asyncio.iscoroutinefunction(found) else found

    def _watched(self, name, call):
        async def watched(*args, **kwargs):
            self.calls[name] += 1
            if name in ("add", "finish"):
                self.sizes.append(len(args[0]))
            if name in self.held and not self._after:
                await self._gate.wait()
            if name in self.errors:
                raise self.errors[name]
            answer = await call(*args, **kwargs)
            if name in self.held and self._after:
                await self._gate.wait()
            return answer

        return watched

    def hold(self, *verbs):
        """From now on calls of these verbs wait."""
        self.held = frozenset(verbs)
        self._gate.clear()

    def let_go(self):
        """Let them all through."""
        self.held = frozenset()
        self._gate.set()


@pytest.fixture
def clock():
    """A clock that moves only when a test advances it."""
    return FakeClock()


@pytest.fixture
async def store(clock):
    """A store that several frontiers may share."""
    store = await open_store("memory://", clock)
    yield store
    await store.close()


@pytest.fixture
async def watched(store):
    """The same, with its calls counted and, if asked, held before they arrive."""
    return WatchedStore(store)


@pytest.fixture
async def unanswered(store):
    """The same, but calls are held up after they were applied."""
    return WatchedStore(store, after=True)


@pytest.fixture
async def opened(clock):
    """Opens frontiers on the fake clock, with dice that show 0, and closes them after the test."""
    async with AsyncExitStack() as stack:

        async def opening(settings=None, store="memory://", **more):
            given = {"clock": clock, "dice": lambda: 0.0, **more}
            frontier = Frontier.open(store, settings=settings, **given)
            return await stack.enter_async_context(frontier)

        yield opening


@pytest.fixture
async def frontier(opened):
    """A frontier with the default settings."""
    return await opened()


@pytest.fixture
async def rude(opened):
    """A frontier without delays, and with as many visits at a time as one likes."""
    return await opened({"politeness": {"delay": 0.0, "max_in_flight": 1000}})


@pytest.fixture(scope="session")
def background():
    """Waits for the background tasks of frontiers."""

    async def wait(*frontiers):
        groups = [frontier._context.background for frontier in frontiers]
        while tasks := [task for group in groups for task in group.running]:
            await asyncio.wait(tasks)

    return wait


@pytest.fixture
def resting():
    """A clock that counts its sleepers."""
    return RestingClock()
