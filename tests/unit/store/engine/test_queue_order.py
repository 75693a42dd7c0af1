"""Orders of queues in memory: the index of keys, and the heap of wake times."""

import random

import pytest

from outrider.errors import InvalidInput
from outrider.store.engine import key_index, schedule
from outrider.store.engine.key_index import KeyIndex
from outrider.store.engine.records import SHARD_MASK, SHARDS
from outrider.store.memory import MemoryStore
from outrider.store.queue_order import key_range, validate_order
from outrider.testing.builders import task
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import configure

CRAWL = "default"
KEYS = [f"h{n}.example" for n in range(3000)]


def index_of(keys):
    """Return an index, and the dicts that it is built from."""
    shards = [set() for _ in range(SHARDS)]
    for key in keys:
        shards[hash(key) & SHARD_MASK].add(key)
    return KeyIndex(shards.__getitem__), shards


def test_keys_are_merged_in_order():
    """E8: whatever their hashes are."""
    index, _ = index_of(KEYS)

    assert index.between(*key_range("", ""), 5000) == sorted(KEYS)
    assert index.between("h2", "h3", 3) == ["h2.example", "h20.example", "h200.example"]


def test_index_is_built_a_part_at_a_time(monkeypatch):
    """E8: keys that are added meanwhile are in it once, whichever part they belong to."""
    monkeypatch.setattr(key_index, "MAX_SORTED", 1000)
    index, shards = index_of(KEYS)
    added = []

    while index.between("", "i", 1) is None:
        added += [f"new{len(added)}.example", f"also{len(added)}.example"]
        for key in added[-2:]:
            shards[hash(key) & SHARD_MASK].add(key)
            index.add(key)

    assert len(added) > 2
    assert index.between(*key_range("", ""), 5000) == sorted(KEYS + added)


async def test_listing_waits_while_keys_are_sorted(monkeypatch):
    """E8: a page may be empty, with a cursor to continue from."""
    monkeypatch.setattr(key_index, "MAX_SORTED", 1000)
    store = MemoryStore(FakeClock())
    await configure(store)
    await store.add([task(f"https://{key}/") for key in KEYS])

    pages = [await store.queues_in_order(CRAWL, "key", limit=10) for _ in range(4)]

    assert [len(page.items) for page in pages] == [0, 0, 10, 10]
    assert [page.after for page in pages[:2]] == ["", ""]
    assert [view.key for view in pages[3].items] == sorted(KEYS)[:10]


@pytest.mark.parametrize("most", [1, 100, 1 << 30])
async def test_wake_times_are_walked_or_compared(monkeypatch, most):
    """E8: both ways lead to the same page, also if entries are outdated or there twice."""
    monkeypatch.setattr(schedule, "MAX_WALKED", most)
    dice, clock = random.Random(7), FakeClock()
    store = MemoryStore(clock)
    await configure(store)
    delays = {key: float(dice.randint(1, 40)) for key in KEYS[:300]}
    for _ in range(3):  # an earlier task moves the wake time, and the old entry stays in the heap
        batch = [task(f"https://{k}/{dice.random()}", delay=delays[k]) for k in delays]
        await store.add(batch)
        delays = {key: dice.choice((wait, 50.0)) for key, wait in delays.items()}
    clock.advance(5.0)

    views = [view for view in (await store.queues(CRAWL)).items if view.state == "snoozed"]
    wanted = [view.key for view in sorted(views, key=lambda view: view.wakes_in)]
    found, after = [], ""
    while after is not None:
        page = await store.queues_in_order(CRAWL, "wake", after=after, limit=7)
        found += [view.key for view in page.items]
        after = page.after

    assert found == wanted
    assert len(wanted) > 100


@pytest.mark.parametrize(("prefix", "after"), [("", ""), ("h1", ">h1.example"), ("é", ">z")])
def test_bounds_of_keys(prefix, after):
    """E8: those behind the cursor that begin with the prefix."""
    keys = [*KEYS, "é", "éa", "z", "h1\U0001f577"]
    low, high = key_range(prefix, after)

    assert {key for key in keys if low <= key < high} == {
        key for key in keys if key.startswith(prefix) and (not after or key > after[1:])
    }


def test_cursor_of_the_other_order_is_refused():
    """E8: it would lead anywhere."""
    with pytest.raises(InvalidInput, match="no cursor of order='wake'"):
        validate_order("wake", "", ">a")
