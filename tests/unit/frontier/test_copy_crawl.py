"""A crawl is copied: whole, compared, begun again, and refused where it cannot be trusted."""

import msgspec
import pytest

from outrider.core.states import CrawlStatus, TaskState
from outrider.errors import InvalidInput, StoreUnavailable
from outrider.frontier.copy_crawl import PAGE, copy_crawl
from outrider.store.export_items import SavedTask
from outrider.store.memory import MemoryStore
from outrider.store.protocol import TaskFilter
from outrider.testing.audit import everything
from outrider.testing.builders import done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.export import rich_crawl
from outrider.testing.conformance.steps import CRAWL, add, claim, configure, crawl, names, visit


@pytest.fixture
def clock():
    """A clock that moves only when a test advances it."""
    return FakeClock()


@pytest.fixture
async def source(clock):
    """A store with something in it, in a moment."""
    store = MemoryStore(clock)
    await configure(store)
    return store


class Fragile(MemoryStore):
    """Breaks after so many batches, or keeps something else than it was given."""

    breaks_after = None
    keeps = staticmethod(lambda item: item)

    async def restore(self, crawl, saved):
        """Fail, or falsify."""
        if self.breaks_after is not None:
            self.breaks_after -= 1
            if self.breaks_after < 0:
                raise StoreUnavailable("gone")
        return await super().restore(crawl, [self.keeps(item) for item in saved])


@pytest.fixture
def target(clock):
    """Where the copy goes."""
    return Fragile(clock)


async def _states(store):
    tasks = await everything(lambda at: store.tasks(CRAWL, TaskFilter(), after=at))
    return {task.url: (task.state, task.attempts, task.answer) for task in tasks}


async def test_a_copy_is_the_same_crawl(source, target, clock):
    """I5: tasks, queues, budgets and politeness state; and it can be crawled."""
    await rich_crawl(source, clock)
    report = await copy_crawl(source, target, CRAWL)

    assert report.fault is None
    assert (report.tasks, report.status) == ((await crawl(source)).known, CrawlStatus.RUNNING)
    assert await _states(target) == await _states(source)


async def test_a_long_crawl_is_copied_page_by_page(source, target):
    """One page at a time is in memory; progress is reported."""
    told = []
    await add(source, *(f"h{n % 7}/{n}" for n in range(2 * PAGE)))
    report = await copy_crawl(source, target, CRAWL, progress=lambda *so_far: told.append(so_far))

    assert (report.queues, report.tasks) == (7, 2 * PAGE)
    assert {part for part, _, _ in told} == {"copied", "source read", "copy read"}
    assert told[-1] == ("copy read", 2 * PAGE, 2 * PAGE)


async def test_a_lease_is_copied_as_released(source, target):
    """The task is pending in the copy; the lease stays valid at the source."""
    await add(source, "a/1", "b/1")
    (lease,) = await claim(source)
    report = await copy_crawl(source, target, CRAWL)

    assert (report.fault, report.leased) == (None, 1)
    assert {state for state, _, _ in (await _states(target)).values()} == {TaskState.PENDING}
    assert (await source.finish([done(lease)]))[0].applied


async def test_interrupted_copy_is_completed(source, target, clock):
    """Until it is complete, the copy leases no tasks."""
    await add(source, *(f"h{n % 7}/{n}" for n in range(3 * PAGE)))
    await claim(source, 3)
    target.breaks_after = 2
    with pytest.raises(StoreUnavailable):
        await copy_crawl(source, target, CRAWL)
    assert await claim(target) == []

    clock.advance(10.0)
    target.breaks_after = None
    report = await copy_crawl(source, target, CRAWL)
    assert (report.fault, report.tasks) == (None, 3 * PAGE)
    assert 0 < report.new < 3 * PAGE
    assert len(await claim(target, 3)) == 3


async def test_a_copy_that_is_there_is_compared_again(source, target):
    """Nothing is written, and the same is found."""
    await add(source, "a/1", "b/1")
    first = await copy_crawl(source, target, CRAWL)
    again = await copy_crawl(source, target, CRAWL)

    assert (again.fault, again.new, again.checksum) == (None, 0, first.checksum)


async def test_copy_that_was_crawled_differs(source, target):
    """It is another crawl by now, and is left alone."""
    await add(source, "a/1", "b/1")
    await copy_crawl(source, target, CRAWL)
    await visit(target)
    report = await copy_crawl(source, target, CRAWL)

    assert "another name" in report.fault
    assert (await crawl(target)).done == 1


async def test_checksum_does_not_depend_on_the_order(source, target):
    """Stores number their tasks as they come."""
    await add(source, "a/1", "b/1", "a/2")
    await copy_crawl(source, target, CRAWL)
    third = MemoryStore(FakeClock())
    items = await everything(lambda at: source.export(CRAWL, after=at))
    head, *rest, end = items
    tasks = [item for item in rest if isinstance(item, SavedTask)]
    queues = [item for item in rest if item not in tasks]
    await third.restore(CRAWL, [head, *queues[::-1], *tasks[::-1], end])

    assert (await copy_crawl(source, third, CRAWL)).fault is None


@pytest.mark.parametrize(
    "change",
    [{"priority": 1.0}, {"reason": "other"}, {"depth": 7}, {"attempts": 1}, {"meta": '{"a":1}'}],
    ids=lambda change: next(iter(change)),
)
async def test_copy_that_differs_is_reported_and_leases_no_tasks(source, target, change):
    """Whatever it is that was not kept as it was given."""
    await add(source, "a/1", "b/1")
    target.keeps = lambda item: (
        msgspec.structs.replace(item, **change)
        if getattr(item, "url", "").endswith("b.example/1")
        else item
    )
    report = await copy_crawl(source, target, CRAWL)

    assert "differs" in report.fault
    assert await claim(target) == []


async def test_copy_without_a_task_is_reported(source, target):
    """By its counts and by its checksum."""
    await add(source, "a/1", "a/2")
    target.keeps = lambda item: (
        msgspec.structs.replace(item, fingerprint=b"\0" * 16)
        if isinstance(item, SavedTask)
        else item
    )
    report = await copy_crawl(source, target, CRAWL)

    assert "2 tasks against 1 and 1" in report.fault


class Restless(MemoryStore):
    """Lends a task while it is read."""

    reads = 0

    async def export(self, crawl, *, after=0, limit=1000):
        """At the second page."""
        self.reads += 1
        if self.reads == 2:
            await claim(self)
        return await super().export(crawl, after=after, limit=limit)


async def test_change_of_the_source_is_reported(clock, target):
    """The message has the fix, and the copy leases no tasks."""
    source = Restless(clock)
    await configure(source)
    await add(source, *(f"h{n % 7}/{n}" for n in range(2 * PAGE)))
    report = await copy_crawl(source, target, CRAWL)

    assert "pause it" in report.fault
    assert await claim(target) == []


async def test_copy_of_a_crawl_paused_for_it_runs(source, target):
    """Only one of the two leases tasks."""
    await add(source, "a/1")
    report = await copy_crawl(source, target, CRAWL, pause=True)

    assert (report.fault, report.status) == (None, CrawlStatus.RUNNING)
    assert await claim(source) == []
    assert names(await claim(target)) == ["a/1"]


async def test_copy_of_a_paused_crawl_is_paused(source, target):
    """The copy is what the crawl is."""
    await add(source, "a/1")
    await source.set_status(CRAWL, CrawlStatus.PAUSED)

    assert (await copy_crawl(source, target, CRAWL, pause=True)).status is CrawlStatus.PAUSED


async def test_a_copy_may_have_another_name(source):
    """Also within one store."""
    await add(source, "a/1")
    report = await copy_crawl(source, source, CRAWL, into="twin")

    assert (report.fault, (await crawl(source, "twin")).known) == (None, 1)


async def test_copy_onto_itself_or_of_a_missing_crawl_is_refused(source, target):
    """A crawl onto itself, one that is not there, one that is half there itself."""
    await add(source, "a/1")
    with pytest.raises(InvalidInput, match="onto itself"):
        await copy_crawl(source, source, CRAWL)
    with pytest.raises(InvalidInput, match="there is default"):
        await copy_crawl(source, target, "other")
    items = (await source.export(CRAWL)).items
    await target.restore("half", items[:1])
    with pytest.raises(InvalidInput, match="half restored"):
        await copy_crawl(target, source, "half")
