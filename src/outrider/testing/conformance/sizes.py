"""Conformance of large tasks: calls, result pages and claims are bounded in bytes (B1, C6, M2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from outrider.core.link_validation import MAX_META
from outrider.core.pick import Streak
from outrider.core.states import TaskState
from outrider.core.task import Lease, Link, Task
from outrider.core.verdict import Verdict
from outrider.frontier import Frontier
from outrider.store.byte_limits import MAX_RESULT_BYTES
from outrider.store.export_items import SavedTask
from outrider.store.protocol import FullStore, ResultPage, TaskFilter
from outrider.testing.builders import again, done, task
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import CRAWL, NO_DELAY, ask, claim, configure, mark, url

COUNT: Final = 11  # more than two result pages of the largest tasks
MAX_PAGE: Final = MAX_RESULT_BYTES + 2 * MAX_META  # of a page, with the task that filled it


def meta_of(number: int, size: int = MAX_META) -> bytes:
    """Return JSON of so many bytes, different for each number."""
    head = b'{"n":%d,"x":"' % number
    return head + b"x" * (size - len(head) - 2) + b'"}'


def large(number: int, host: str = "a", **fields: Any) -> Task:
    """Return a task with as much meta as there may be."""
    given = {"crawl": CRAWL, "meta": meta_of(number), **fields}
    return task(url(f"{host}/{number}"), **given)


async def pages_of(
    read: Callable[[int], Awaitable[ResultPage[Any]]],
) -> list[Sequence[Any]]:
    """Return the items of all result pages."""
    pages, after = [], 0
    while True:
        page = await read(after)
        pages.append(page.items)
        if page.after is None:
            return pages
        assert page.after > after
        after = page.after


def back_with_large_meta(lease: Lease) -> Verdict:
    """Return a verdict by which a task comes back with as much meta as there may be."""
    verdict = again(lease, meta={})
    assert verdict.requeue is not None
    return replace(verdict, requeue=replace(verdict.requeue, meta=meta_of(lease.task)))


def assert_bounded(sizes: Sequence[Sequence[int]], count: int = COUNT) -> None:
    """All items came, in several pages, none of which has many of them."""
    assert sum(map(len, sizes)) == count
    assert len([one for one in sizes if one]) > 1
    assert max(map(sum, sizes)) <= MAX_PAGE


class SizesConformance:
    """Tasks with as much meta as there may be."""

    async def add_large(self, store: FullStore, count: int = COUNT) -> None:
        """Add large tasks, on one queue each."""
        await configure(store, **NO_DELAY)
        answers = await store.add([large(n, "abcdefghijklmnop"[n]) for n in range(count)])
        assert [answer.added for answer in answers] == [True] * count

    async def test_meta_comes_back_as_it_was(self, store: FullStore) -> None:
        """B1: as long as it may be, in lists and leases."""
        await self.add_large(store, 2)

        (lease,) = await claim(store, 1)
        view = await store.task(CRAWL, mark("b/1"))

        assert lease.about.meta in (meta_of(0), meta_of(1))
        assert view is not None
        assert view.meta == msgspec.json.decode(meta_of(1))

    async def test_lists_end_early(self, store: FullStore) -> None:
        """M2: a page has fewer items than asked for, and a cursor."""
        await self.add_large(store)

        views = await pages_of(lambda after: store.tasks(CRAWL, TaskFilter(), after=after))
        pending = await pages_of(
            lambda after: store.pending_tasks(CRAWL, TaskFilter(), after=after)
        )
        few = await pages_of(
            lambda after: store.tasks(
                CRAWL, TaskFilter(state=TaskState.PENDING), after=after, limit=3
            )
        )

        assert_bounded([[len(view.meta["x"]) for view in page] for page in views])
        assert_bounded([[len(one.task.meta) for one in page] for page in pending])
        assert_bounded([[len(view.meta["x"]) for view in page] for page in few])
        assert max(map(len, few)) <= 3
        assert {view.url for page in views for view in page} == {
            one.task.url for page in pending for one in page
        }

    async def test_an_export_ends_its_pages_early(self, store: FullStore) -> None:
        """M2, I5: and is restored as it was."""
        await self.add_large(store)
        pages = await pages_of(lambda after: store.export(CRAWL, after=after))
        saved = [[item for item in page if isinstance(item, SavedTask)] for page in pages]

        for page in pages:
            await store.restore("copy", page)
        copies = await pages_of(lambda after: store.tasks("copy", TaskFilter(), after=after))

        assert_bounded([[len(item.meta) for item in page] for page in saved])
        assert sorted(view.meta["n"] for page in copies for view in page) == [*range(COUNT)]

    async def test_a_claim_ends_early(self, store: FullStore) -> None:
        """C6: with at least one lease, and no wait before the next claim."""
        await self.add_large(store)
        claims = []
        while (claimed := await ask(store, 100)).leases:
            claims.append([len(lease.about.meta) for lease in claimed.leases])
            is_last = sum(map(len, claims)) == COUNT
            assert is_last or claimed.wake_in == 0.0
            await store.finish([done(lease) for lease in claimed.leases])

        assert_bounded(claims)

    async def test_a_claim_of_ordinary_queues_ends_early(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """C6: also where a store has a shorter way for them; lanes continue as they were."""
        await configure(store, min_delay=1.0, burst=2)
        lanes = {"abcdefghijklmnop"[n]: n % 2 for n in range(COUNT)}
        await store.add([large(n, host, lane=lanes[host]) for n, host in enumerate(lanes)])

        claims, streak = [], Streak()
        while (claimed := await ask(store, 100, streak=streak)).leases:
            streak = claimed.streak
            claims.append([lease.lane for lease in claimed.leases])
            assert claimed.wake_in == 0.0 or sum(map(len, claims)) == COUNT
            await store.finish([done(lease) for lease in claimed.leases])
            clock.advance(1)

        assert_bounded([[MAX_META for _ in leases] for leases in claims])
        assert [lane for leases in claims for lane in leases] == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1]

    @pytest.mark.parametrize("way", ["set", "again", "restored"])
    async def test_a_claim_of_tasks_that_became_large_ends_early(
        self, store: FullStore, way: str
    ) -> None:
        """C6: tasks with short texts were in the crawl before, or nothing was."""
        await configure(store, **NO_DELAY)
        hosts, crawl = "abcdefghijklmnop"[:COUNT], CRAWL
        tasks = [large(number, host) for number, host in enumerate(hosts)]
        if way == "restored":
            await store.add(tasks)
            crawl = "copy"
            for page in await pages_of(lambda after: store.export(CRAWL, after=after)):
                await store.restore(crawl, page)
        else:
            await store.add([replace(one, meta=b"") for one in tasks])
        if way == "set":
            await store.add([replace(one, known="set") for one in tasks])
        if way == "again":
            await store.finish([back_with_large_meta(lease) for lease in await claim(store, 100)])

        sizes = []
        while leases := await claim(store, 100, crawl=crawl):
            sizes.append([len(lease.about.meta) for lease in leases])
            await store.finish([done(lease) for lease in leases])

        assert_bounded(sizes)

    async def test_the_list_of_leases_ends_early(self, store: FullStore) -> None:
        """H1, M2: as other lists do."""
        await self.add_large(store)
        while await claim(store, 100):
            pass

        pages = await pages_of(lambda after: store.leases(CRAWL, after=after))

        assert_bounded([[len(view.lease.about.meta) for view in page] for page in pages])

    async def test_a_loan_ends_early(self, store: FullStore) -> None:
        """C6, C7: what is left of the queue waits until the loan has ended."""
        await configure(store, **NO_DELAY)
        await store.add([large(n) for n in range(COUNT)])

        sizes = []
        while leases := await claim(store, 100, lend=True):
            sizes.append([len(lease.about.meta) for lease in leases])
            await store.finish([done(lease) for lease in leases])

        assert_bounded(sizes)

    async def test_a_claim_by_fingerprint_ends_early(self, store: FullStore) -> None:
        """D5, C6: the tasks that were left out can be claimed next."""
        await self.add_large(store)
        names = [mark(f"{'abcdefghijklmnop'[n]}/{n}") for n in range(COUNT)]

        sizes = []
        while leases := await claim(store, 100, fingerprints=names):
            sizes.append([len(lease.about.meta) for lease in leases])
            await store.finish([done(lease) for lease in leases])

        assert_bounded(sizes)

    async def test_a_finish_brings_its_large_links(self, store: FullStore) -> None:
        """H6: in one step, however many bytes they have."""
        await configure(store, **NO_DELAY)
        await store.add([large(0)])
        (lease,) = await claim(store, 1)
        links = [large(n, "b") for n in range(1, COUNT)]

        (finished,) = await store.finish([done(lease, links=links)])

        assert finished.applied
        assert [answer.added for answer in finished.answers] == [True] * (COUNT - 1)
        assert (await store.crawl(CRAWL)).known == COUNT

    async def test_a_step_over_large_tasks_is_bounded(self, store: FullStore) -> None:
        """C10, G2: it ends early too, and the next one continues."""
        await self.add_large(store)
        counts, after = [], 0
        while True:
            step = await store.drop(CRAWL, TaskFilter(), dry_run=False, after=after)
            counts.append(step.count)
            if step.after is None:
                break
            after = step.after

        assert sum(counts) == COUNT
        assert max(counts) < COUNT
        assert (await store.crawl(CRAWL)).dropped == COUNT

    async def test_meta_is_admitted_up_to_the_setting(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """B1, B4: `queue.max_meta`, from nothing up to a megabyte, also while the crawl runs."""
        page, over = "https://a.example/", {"x": "y" * (32_768 - 7)}
        async with Frontier.open(store, clock=clock) as frontier:
            report = await frontier.add([Link(f"{page}1", meta=over)])
            await frontier.configure({"queue": {"max_meta": 32_768}})
            exceeding = await frontier.add([Link(f"{page}1", meta=over)])
            fits = {"x": "y" * (32_768 - 8)}
            fitting = await frontier.add([Link(f"{page}1", meta=fits)])
            await frontier.configure({"queue": {"max_meta": 0}})
            none = await frontier.add([Link(f"{page}2", meta={"x": 1}), Link(f"{page}3", meta={})])

            assert [answer.reason for answer in report.answers] == ["bad-link"]
            assert "32769 bytes" in str(report.answers[0].detail)
            assert "queue.max_meta" in str(report.answers[0].detail)
            assert (exceeding.added, fitting.added) == (0, 1)
            assert [answer.added for answer in none.answers] == [False, True]
            assert (await frontier.claim(1))[0].meta == fits
