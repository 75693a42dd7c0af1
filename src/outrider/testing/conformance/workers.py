"""Conformance of workers: heartbeats, silence and departure (M6)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from outrider.store.protocol import FullStore, Heartbeat
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import CRAWL, add, claim

ONE: Final = Heartbeat("one", "busy", "north", 17, slots=8, busy=3, visits=40, lasts=30.0)
DAY: Final = 86_400.0


async def beat(store: FullStore, worker: str = "one", **said: Any) -> None:
    """A worker says how it is."""
    await store.heartbeat(CRAWL, msgspec.structs.replace(ONE, worker=worker, **said))


async def states(store: FullStore) -> list[tuple[str, str]]:
    """Who is there, and how."""
    return [(one.worker, one.state) for one in await store.workers(CRAWL)]


class WorkersConformance:
    """Workers, seen by all."""

    async def test_a_beat_is_seen_by_all(self, store: FullStore, clock: FakeClock) -> None:
        """M6: the worker's last heartbeat, and the times of its first and last one."""
        began = clock.now_ms() / 1000
        await beat(store, visits=1)
        clock.advance(5)
        await beat(store)

        (view,) = await store.workers(CRAWL)
        said = msgspec.structs.asdict(ONE)
        del said["lasts"]
        seen = msgspec.structs.asdict(view)
        assert (seen.pop("started_at"), seen.pop("seen_at")) == (began, began + 5)
        assert seen == said

    async def test_a_crawl_without_heartbeats_has_no_workers(self, store: FullStore) -> None:
        """M6: a claim alone is no beat, and another crawl's workers are its own."""
        await add(store, "a/1")
        await claim(store)
        await store.heartbeat("another", ONE)

        assert await store.workers(CRAWL) == []
        assert await store.workers("unheard-of") == []
        assert "unheard-of" not in await store.crawls()

    async def test_workers_come_in_order_of_their_first_beats(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """M6: by name if their first heartbeats were at the same instant."""
        await beat(store, "late")
        clock.advance(1)
        for worker in ("b", "a", "late", "c"):
            await beat(store, worker)

        assert [name for name, _ in await states(store)] == ["late", "a", "b", "c"]

    async def test_a_silent_worker_is_shown_as_gone(
        self, store: FullStore, clock: FakeClock
    ) -> None:
        """M6: as long as its own beat lasts; one more beat brings it back."""
        await beat(store, "one", lasts=30.0)
        await beat(store, "two", state="idle", lasts=10.0)
        clock.advance(9.999)
        before = await states(store)
        clock.advance(0.001)
        after = await states(store)
        await beat(store, "two", state="draining")

        assert before == [("one", "busy"), ("two", "idle")]
        assert after == [("one", "busy"), ("two", "gone")]
        assert await states(store) == [("one", "busy"), ("two", "draining")]

    async def test_goodbye_is_seen_at_once(self, store: FullStore) -> None:
        """M6: a worker that ends sends a last heartbeat, and is shown as gone at once."""
        await beat(store)
        await beat(store, state="gone", busy=0)

        assert await states(store) == [("one", "gone")]

    async def test_a_day_of_silence_is_forgotten(self, store: FullStore, clock: FakeClock) -> None:
        """M6: and a worker that returns after that is new."""
        await beat(store, "one")
        clock.advance(1)
        await beat(store, "two")
        clock.advance(DAY - 1.001)
        assert [name for name, _ in await states(store)] == ["one", "two"]
        clock.advance(0.001)
        assert [name for name, _ in await states(store)] == ["two"]

        await beat(store, "one")
        assert [name for name, _ in await states(store)] == ["two", "one"]

    async def test_many_workers_are_all_listed(self, store: FullStore) -> None:
        """M6: as many workers as a crawl may have in practice."""
        for number in range(60):
            await beat(store, f"worker-{number:02d}", pid=number)

        seen = await store.workers(CRAWL)
        assert [one.pid for one in seen] == list(range(60))

    async def test_a_watch_may_end_at_any_time(self, store: FullStore) -> None:
        """C6: a notification is a hint; unsubscribing may be repeated."""
        end = store.subscribe(CRAWL, lambda: None)
        await add(store, "a/1")
        end()
        end()

        assert [lease.url for lease in await claim(store)] == ["https://a.example/1"]
