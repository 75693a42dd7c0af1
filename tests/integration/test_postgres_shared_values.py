"""Shared values written by several processes: none is lost or missed (M4, F4, N1)."""

import asyncio
from hashlib import md5

import pytest

from outrider.store.postgres import runner
from outrider.store.protocol import (
    MAX_NAME_CHARS,
    STORE_VALUES,
    ClaimRequest,
    PriorityUpdate,
    SharedValueWrite,
)
from outrider.testing.builders import done, task

CRAWL = "test"
EACH = 100  # of two


def page(number, **fields):
    """Return a page of one host."""
    return task(f"https://a.example/{number}", key="a.example", crawl=CRAWL, **fields)


async def count_up(store, crawl, times):
    """Add 1 to a shared value with compare-and-set, so many times."""
    for _ in range(times):
        while True:
            (note,) = await store.values_since(crawl) or [None]
            number, said = (note.number, int(note.text)) if note else (0, 0)
            (written,) = await store.put_values(
                crawl, [SharedValueWrite("count", "", str(said + 1), number)]
            )
            if written:
                break


@pytest.mark.parametrize("crawl", [CRAWL, STORE_VALUES])
async def test_concurrent_compare_and_set_writes_lose_no_update(stores, monkeypatch, crawl):
    """F5: a writer that was too late learns it, and adds to the current value; none is undone."""
    monkeypatch.setattr(runner, "MAX_ATTEMPTS", 1)
    await asyncio.gather(*(count_up(store, crawl, EACH) for store in stores))

    (note,) = await stores[0].values_since(crawl)
    assert note.text == str(2 * EACH)
    assert note.number == 2 * EACH  # each was written over the one before


async def chatter(store, name, times):
    """Write other texts again and again."""
    for number in range(times):
        await store.put_values(
            CRAWL, [SharedValueWrite(name, str(at), f"{number}") for at in range(3)]
        )


async def follow(store, is_over):
    """Return the values that a reader sees that asks only for higher numbers."""
    heard, last = {}, 0
    while True:
        ends = is_over.is_set()
        for note in await store.values_since(CRAWL, after=last, limit=5):
            assert note.number > last
            heard[note.topic, note.name], last = note.text, note.number
        if ends and not await store.values_since(CRAWL, after=last):
            return heard


async def test_reader_of_shared_values_by_number_misses_none(stores):
    """N1: no lower number becomes visible after a higher one, however many write."""
    is_over = asyncio.Event()
    reading = asyncio.create_task(follow(stores[0], is_over))
    await asyncio.gather(*(chatter(stores[n % 2], f"w{n}", 20) for n in range(4)))
    is_over.set()

    heard = await reading
    assert heard == {(f"w{n}", str(at)): "19" for n in range(4) for at in range(3)}


async def test_name_longer_than_an_index_entry_is_stored(stores):
    """N1: two long names with the same beginning are two."""
    first, second = ("\U0001f600" * (MAX_NAME_CHARS - 1) + end for end in "ab")

    assert await stores[0].put_values(
        CRAWL, [SharedValueWrite("t", first, "a"), SharedValueWrite("t", second, "b")]
    ) == [1, 2]
    assert await stores[1].put_values(CRAWL, [SharedValueWrite("t", second, "c", 2)]) == [3]
    notes = await stores[0].values_since(CRAWL)
    assert [(note.name, note.text) for note in notes] == [(first, "a"), (second, "c")]


async def test_names_with_equal_checksums_stay_apart(stores):
    """N1: names made to collide replace no other value."""
    rest = "cKSMd5zYpgqf1YRDhkmxHkhPWptrkoyz28wnI9V0aHeAuaKnak"
    names = [f"TEXTCOLLBYfGiJUETHQ4h{letter}{rest}" for letter in "AE"]
    assert len({md5(name.encode(), usedforsecurity=False).digest() for name in names}) == 1

    await stores[0].put_values(
        CRAWL, [SharedValueWrite("t", name, "x") for name in (*names, "last")]
    )
    again = [SharedValueWrite("t", name, "y", seen) for seen, name in enumerate(names, 1)]
    assert await stores[1].put_values(CRAWL, again) == [4, 5]


async def test_writing_shared_values_blocks_no_other_verb(line, stores):
    """M4: adds, claims, priority updates and finishes run while all shared values are locked."""
    await stores[0].put_values(CRAWL, [SharedValueWrite("t", "a", "x")])
    with line.transaction():
        line.execute("lock table note in access exclusive mode")
        async with asyncio.timeout(60):
            await stores[0].add([page(1), page(2)])
            assert await stores[0].update_priorities(CRAWL, [PriorityUpdate(2, 0.0, -1.0)]) == 1
            claimed = await stores[1].claim(ClaimRequest(CRAWL, "w", 1))
            ends = [done(lease, links=[page(3)]) for lease in claimed.leases]
            assert [end.applied for end in await stores[0].finish(ends)] == [True]
