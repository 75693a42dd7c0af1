"""A file copied while its store works is what a kill leaves: it shows what its store shows."""

import itertools
import random

import pytest

from crash.full_view import full_view
from outrider.core.outcome import Blocked, Done, Failed
from outrider.store.embedded import EmbeddedStore
from outrider.store.protocol import ClaimRequest
from outrider.testing import FakeClock
from outrider.testing.builders import rules, task, verdict
from scale import ROUNDS

CRAWL = "default"
RULES = rules(
    delay=0.0, max_in_flight=4, keys={"h1.test": {"delay": 0.5}, "h2.test": {"max_in_flight": 1}}
)


class Work:
    """Calls on one store at a clock's pace; no lease is held between two steps."""

    def __init__(self, store, clock, seed):
        self.store, self.clock, self.dice = store, clock, random.Random(seed)

    def tasks(self, most):
        """Some, half of them of few hosts with long lists."""
        dice = self.dice
        return [
            task(
                f"https://h{dice.choice((0, 0, 0, 1, 2, dice.randrange(60)))}.test"
                f"/{dice.randrange(9000)}",
                delay=dice.choice((0.0, 0.0, 0.01, 0.05, 1.0, 100.0)),
                priority=float(dice.randrange(20)),
                known=dice.choice(("keep", "raise", "revisit")),
            )
            for _ in range(dice.randint(1, most))
        ]

    async def step(self):
        """Tasks come, some are visited; time passes."""
        self.clock.advance(self.dice.choice((0.0, 0.003, 0.02, 0.3)))
        await self.store.add(self.tasks(self.dice.choice((1, 3, 60))))
        limit = self.dice.choice((1, 5, 20))
        claimed = await self.store.claim(ClaimRequest(CRAWL, "w", limit))
        self.clock.advance(self.dice.choice((0.0, 0.01)))
        ends = [
            verdict(
                lease,
                self.dice.choice((Done(200), Done(200), Failed("x"), Blocked("y"))),
                links=self.tasks(2),
            )
            for lease in claimed.leases
        ]
        if ends and self.dice.random() < 0.8:
            await self.store.finish(ends)
        else:
            await self.store.release([lease.id for lease in claimed.leases])


@pytest.mark.slow
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("seed", range(2 * ROUNDS))
async def test_copy_taken_at_any_moment_shows_what_its_store_shows(seed, tmp_path, copied):
    """Whatever a snapshot had copied by then, and whatever came in meanwhile (M3)."""
    clock, path = FakeClock(), tmp_path / "crawl.outrider"
    store = EmbeddedStore.open(path, clock)
    await store.configure(CRAWL, RULES)
    work = Work(store, clock, seed)
    for _ in range(20):
        for _ in range(work.dice.randint(1, 12)):
            await work.step()
        copy = EmbeddedStore.open(copied(path), clock)
        shown, truth = await full_view(copy, CRAWL), await full_view(store, CRAWL)
        assert not shown.differs(truth)
        await copy.close()
    await store.close()


async def until_snapshot_is_taken(store, monkeypatch, between):
    """Begin a snapshot now, and do something before each of its pieces."""
    monkeypatch.setattr("outrider.store.embedded.store.SNAPSHOT_AFTER", 0)
    monkeypatch.setattr("outrider.store.embedded.store.SLICE_BYTES", 1)
    await store.add([task("https://begin.test/")])
    monkeypatch.setattr("outrider.store.embedded.store.SNAPSHOT_AFTER", 1 << 60)
    while store._snapshot is not None:
        await between()


@pytest.mark.slow
async def test_queue_loaded_during_a_snapshot_keeps_its_politeness_state(
    tmp_path, copied, monkeypatch
):
    """D7: a queue without work comes into memory and leaves it unasked; no file forgets it."""
    clock, path = FakeClock(), tmp_path / "crawl.outrider"
    monkeypatch.setattr("outrider.store.embedded.queue_cache.IDLE_KEPT", 20)
    store = EmbeddedStore.open(path, clock)
    await store.configure(CRAWL, rules(delay=50.0))
    keys = itertools.cycle(f"h{number}.test" for number in range(600))
    await store.add([task(f"https://{next(keys)}/") for _ in range(600)])
    leases = (await store.claim(ClaimRequest(CRAWL, "w", 1000))).leases
    await store.finish([verdict(lease, Done(200)) for lease in leases])
    await until_snapshot_is_taken(store, monkeypatch, lambda: store.queue(CRAWL, next(keys)))
    copy = EmbeddedStore.open(copied(path), clock)
    await copy.add([task(f"https://{next(keys)}/new") for _ in range(600)])
    claimed = await copy.claim(ClaimRequest(CRAWL, "w", 1000))
    assert {lease.key for lease in claimed.leases} == {"begin.test"}  # no other may be visited yet
    await copy.close()
    await store.close()


@pytest.mark.slow
async def test_task_due_during_a_snapshot_is_pending_once(tmp_path, copied, monkeypatch):
    """C6: no page has them, since no verb changed them; a long list is cut into pieces."""
    clock, path = FakeClock(), tmp_path / "crawl.outrider"
    monkeypatch.setattr("outrider.store.embedded.queue_codec.PIECE_BYTES", 4096)
    store = EmbeddedStore.open(path, clock)
    await store.configure(CRAWL, rules(delay=0.0))
    await store.add(
        [task(f"https://a.test/{n}", delay=20 - n / 100 if n % 2 else 0.0) for n in range(2000)]
    )

    async def between():
        clock.advance(0.5)
        claimed = await store.claim(ClaimRequest(CRAWL, "w", 1))
        await store.release([lease.id for lease in claimed.leases])

    await until_snapshot_is_taken(store, monkeypatch, between)
    copy = EmbeddedStore.open(copied(path), clock)
    assert not (await full_view(copy, CRAWL)).differs(await full_view(store, CRAWL))
    await copy.close()
    await store.close()


async def copied_whole(tasks, path, clock, monkeypatch):
    """A store of these tasks, after a snapshot of all of them."""
    store = EmbeddedStore.open(path, clock)
    await store.configure(CRAWL, rules())
    await store.add(tasks)
    await until_snapshot_is_taken(store, monkeypatch, lambda: store.crawl(CRAWL))
    return store


@pytest.mark.slow
async def test_queue_packed_before_the_order_changed_is_sorted_by_the_new_order(
    tmp_path, copied, monkeypatch
):
    """C3: ready keys are in no page, and may be outdated in a snapshot."""
    clock, path = FakeClock(), tmp_path / "crawl.outrider"
    tasks = [task(f"https://h{n}.test/", priority=float(-n)) for n in range(50)]
    store = await copied_whole(tasks, path, clock, monkeypatch)
    await store.configure(CRAWL, rules(order="round-robin"))
    copy = EmbeddedStore.open(copied(path), clock)
    request = ClaimRequest(CRAWL, "w", 100)
    expected = [lease.key for lease in (await store.claim(request)).leases]
    assert [lease.key for lease in (await copy.claim(request)).leases] == expected
    assert expected[:2] == ["h0.test", "h1.test"]
    await copy.close()
    await store.close()


@pytest.mark.slow
async def test_queue_whose_tasks_became_due_after_a_snapshot_is_ready(
    tmp_path, copied, monkeypatch
):
    """C6: no page says that a task became due; the row of its queue says that it is ready."""
    clock, path = FakeClock(), tmp_path / "crawl.outrider"
    late = task("https://late.test/", delay=10.0, priority=100.0)
    store = await copied_whole([late, task("https://next.test/")], path, clock, monkeypatch)
    clock.advance(11.0)
    request = ClaimRequest(CRAWL, "w", 1)
    (lent,) = (await store.claim(request)).leases
    assert lent.key != "late.test"  # it is ready behind others
    monkeypatch.setattr("outrider.store.embedded.store.SNAPSHOT_AT_CLOSE", -1)
    copy = EmbeddedStore.open(copied(path), clock)
    await copy.close()
    copy = EmbeddedStore.open(copy.path, clock)
    keys = []
    while claimed := (await copy.claim(request)).leases:
        keys.append(claimed[0].key)
    assert "late.test" in keys
    wake_in = (await copy.claim(request)).wake_in
    assert wake_in is not None
    assert wake_in > 0  # not at once: no queue is ready any more
    await copy.close()
    await store.close()
