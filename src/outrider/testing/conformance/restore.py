"""Conformance of `restore`: partial, repeated, and what it refuses (I5)."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import Retire
from outrider.core.states import CrawlStatus
from outrider.errors import InvalidInput
from outrider.store.export_items import (
    RESTORING,
    Saved,
    SavedAnswer,
    SavedCrawl,
    SavedEnd,
    SavedQueue,
    SavedTask,
)
from outrider.store.protocol import FullStore
from outrider.testing.audit import everything
from outrider.testing.builders import done
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.export import COPY, export, restore
from outrider.testing.conformance.steps import (
    CRAWL,
    NO_DELAY,
    RETIRED,
    add,
    ask,
    claim,
    configure,
    crawl,
    key,
    names,
    one,
    state,
    steer,
    url,
    visit,
)


class RestoringConformance:
    """Batches, their order, and their faults."""

    async def test_no_task_is_leased_before_the_end_is_restored(self, store: FullStore) -> None:
        """I5: half a crawl would visit in another order."""
        await add(store, "a/1", "b/1")
        *most, end = await export(store)
        await restore(store, most)

        view = await crawl(store, COPY)
        assert (view.status, view.reason, view.pending) == (CrawlStatus.PAUSED, RESTORING, 2)
        assert await claim(store, crawl=COPY) == []
        assert await store.restore(COPY, [end]) == 1
        assert names(await claim(store, crawl=COPY)) == ["a/1"]

    async def test_what_broke_off_is_begun_again(self, store: FullStore) -> None:
        """I5: what is there is left alone, and the rest follows."""
        await add(store, "a/1", "b/1", "a/2")
        items = await export(store)
        await restore(store, items[:4])

        assert await restore(store, items) == len(items) - 4
        assert (await crawl(store, COPY)).known == 3

    async def test_a_repeated_batch_does_no_harm(self, store: FullStore) -> None:
        """A batch may be repeated after a lost answer; also the last one."""
        await add(store, "a/1", "b/1")
        items = await export(store)
        for item in items:
            counts = [await store.restore(COPY, [item]) for _ in range(2)]
            assert counts == [1, 0]
        lease = await one(store, crawl=COPY)

        assert await store.restore(COPY, items[1:]) == 0
        assert (await store.finish([done(lease)]))[0].applied

    async def test_an_empty_batch_opens_nothing(self, store: FullStore) -> None:
        """I1."""
        assert await store.restore(COPY, []) == 0
        assert COPY not in await store.crawls()

    async def test_a_crawl_that_has_tasks_is_left_alone(self, store: FullStore) -> None:
        """I5: the refusal names the crawl and the way out."""
        await add(store, "a/1")
        items = await export(store)

        with pytest.raises(InvalidInput, match=r"default.*another name"):
            await store.restore(CRAWL, items)
        assert (await crawl(store)).status is CrawlStatus.RUNNING

    async def test_another_export_is_not_mixed_in(self, store: FullStore, clock: FakeClock) -> None:
        """I5: half of one crawl and half of another is neither."""
        await add(store, "a/1")
        await restore(store, (await export(store))[:2])
        clock.advance(1.0)
        await add(store, "b/1", crawl="other")

        with pytest.raises(InvalidInput, match="another export"):
            await store.restore(COPY, await export(store, name="other"))

    async def test_a_crawl_that_was_resumed_meanwhile_takes_nothing_new(
        self, store: FullStore
    ) -> None:
        """I5: an operator who did not wait has what was there."""
        await add(store, "a/1", "a/2")
        items = await export(store)
        await restore(store, items[:3])
        await store.set_status(COPY, CrawlStatus.RUNNING)

        with pytest.raises(InvalidInput, match="not being restored"):
            await restore(store, items[3:])
        assert names(await claim(store, crawl=COPY)) == ["a/1"]

    # ---- while it runs

    async def test_pages_stay_right_while_the_crawl_runs(self, store: FullStore) -> None:
        """I5: a new queue comes before its tasks, and a done page's links come with it."""
        await configure(store, **NO_DELAY)
        await add(store, "a/1", "a/2")
        first = await store.export(CRAWL, limit=2)
        await visit(store)
        await add(store, "b/1", "a/3")
        assert first.after is not None
        rest = await everything(
            lambda at: store.export(CRAWL, after=at or first.after or 0, limit=1)
        )
        items = [*first.items, *rest]

        assert [_named(item) for item in items] == [
            *("crawl", key("a"), url("a/1"), key("b"), url("a/2"), url("b/1"), url("a/3"), "end"),
        ]
        assert await restore(store, items) == len(items)
        assert sorted(names(await claim(store, 9, crawl=COPY))) == ["a/1", "a/2", "a/3", "b/1"]

    async def test_a_visit_after_its_queue_was_exported_counts(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """D7: an export of a crawl that runs never makes a copy impolite."""
        await configure(store, delay=2.0)
        await add(store, "a/1", "a/2", "b/1", "b/2")
        first = await store.export(CRAWL, limit=2)
        clock.advance(1.0)
        await visit(store)
        await one(store)
        assert first.after is not None
        rest = await everything(lambda at: store.export(CRAWL, after=at or first.after or 0))
        await restore(store, [*first.items, *rest])

        assert (await ask(store, 9, crawl=COPY)).wake_in == 2.0
        clock.advance(2.0)
        assert sorted(names(await claim(store, 9, crawl=COPY))) == ["a/2", "b/1"]

    async def test_a_restored_queue_without_due_tasks_is_on_no_list(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """E1: whatever a file says, an empty queue is no reason to ask again at once."""
        await add(store, "a/1", "b/1", delay=5.0)
        head, a, b, *rest = await export(store)
        ready = {"standing": "ready", "session": 0}
        inactive = {"standing": "inactive", "place": 3}
        queues = [msgspec.structs.replace(q, **s) for q, s in ((a, ready), (b, inactive))]
        await restore(store, [head, *queues, *rest])

        assert (await ask(store, crawl=COPY)).wake_in == 5.0
        clock.advance(5.0)
        assert names(await claim(store, 2, crawl=COPY)) == ["a/1", "b/1"]

    # ---- what is refused

    @pytest.mark.parametrize(
        ("kind", "fields"),
        [
            (SavedTask, {"priority": math.nan}),
            (SavedTask, {"priority": math.inf}),
            (SavedTask, {"precedence": 65_536}),
            (SavedTask, {"cost": -1}),
            (SavedTask, {"tie": 2**48}),
            (SavedTask, {"roll": -1}),
            (SavedTask, {"lane": 2}),
            (SavedTask, {"depth": -1}),
            (SavedTask, {"fingerprint": b"short"}),
            (SavedTask, {"state": "leased"}),
            (SavedTask, {"state": "lost"}),
            (SavedTask, {"due": 2**60}),
            (SavedTask, {"discovered": -5}),
            (SavedTask, {"attempts": -1}),
            (SavedTask, {"attempts": 2**70}),
            (SavedTask, {"key": "k" * 256}),
            (SavedTask, {"key": "a\nb"}),
            (SavedTask, {"url": "javascript:void(0)"}),
            (SavedTask, {"meta": "[1]"}),
            (SavedTask, {"meta": '{"a":"' + "x" * 1_100_000 + '"}'}),
            (SavedTask, {"history": ((math.nan, "w", "e"),)}),
            (SavedTask, {"type": 7}),
            (SavedTask, {"answer": SavedAnswer(200)}),
            (SavedTask, {"answered": 5}),
            (SavedTask, {"answer": SavedAnswer(200, looks=-1), "answered": 5}),
            (SavedTask, {"answer": SavedAnswer(200, watched=math.inf), "answered": 5}),
            (SavedQueue, {"spent": -1}),
            (SavedQueue, {"turn": 2**53}),
            (SavedQueue, {"standing": "ready", "session": None}),
            (SavedQueue, {"standing": "inactive", "session": None, "place": 0}),
            (SavedQueue, {"standing": "lying"}),
            (SavedQueue, {"retired": "bored"}),
            (SavedQueue, {"last_delay": math.nan}),
            (SavedQueue, {"next_ready": None}),
            (SavedCrawl, {"rules": CrawlRules(keys={"a": {"speed": 1}})}),
            (SavedCrawl, {"rules": CrawlRules(runtime={"a": {"delay": "soon"}})}),
            (SavedCrawl, {"rules": CrawlRules(runtime={"a": {"precedence": 2**40}})}),
            (SavedCrawl, {"rules": CrawlRules(burst=0)}),
            (SavedCrawl, {"rules": CrawlRules(breadth_discount=math.nan)}),
            (SavedEnd, {"status": "asleep"}),
            (SavedEnd, {"counter": 2**60}),
            (SavedEnd, {"outcomes": {"done": -1}}),
            (SavedEnd, {"status": CrawlStatus.PAUSED, "reason": RESTORING}),
        ],
    )
    async def test_a_batch_with_a_fault_is_refused_whole(
        self, store: FullStore, kind: type[msgspec.Struct], fields: dict[str, Any]
    ) -> None:
        """I5: a file may come from anywhere."""
        await add(store, "a/1")
        items = await export(store)
        place = next(n for n, item in enumerate(items) if isinstance(item, kind))
        items[place] = msgspec.structs.replace(items[place], **fields)

        with pytest.raises(InvalidInput):
            await store.restore(COPY, items)
        assert await store.crawls() == [CRAWL]

    @pytest.mark.parametrize("order", [(0, 2, 1, 3), (1, 0, 2, 3), (0, 1, 3, 2), (1, 2, 3)])
    async def test_items_out_of_order_are_refused(
        self, store: FullStore, order: tuple[int, ...]
    ) -> None:
        """I5: the crawl, its queues, their tasks, the end."""
        await add(store, "a/1")
        items = await export(store)

        with pytest.raises(InvalidInput):
            await store.restore(COPY, [items[place] for place in order])
        assert await store.crawls() == [CRAWL]

    async def test_states_are_counted_not_believed(self, store: FullStore) -> None:
        """O5: known = pending + leased + done + dead + dropped, whatever was said to be visited."""
        await add(store, "a/1", "a/2")
        await steer(store, key("a"), Retire())
        *most, end = await export(store)
        end = msgspec.structs.replace(end, outcomes={"done": 5}, dones=5)
        await restore(store, [*most, end])

        view = await crawl(store, COPY)
        assert (view.known, view.pending, view.held, view.visits) == (2, 2, 2, 5)
        assert (await state(store)) == RETIRED


def _named(item: Saved) -> str:
    if isinstance(item, SavedTask):
        return item.url
    return item.key if isinstance(item, SavedQueue) else str(type(item).__struct_config__.tag)
