"""Bits that flip on a disk: what is read is what was written, or the file is named as damaged."""

import random
from collections import Counter
from pathlib import Path

import pytest

from crash.full_view import full_view
from outrider.core.outcome import Blocked, Done, Failed
from outrider.errors import StoreUnusable
from outrider.store.embedded import EmbeddedStore
from outrider.store.protocol import ClaimRequest
from outrider.testing import FakeClock
from outrider.testing.builders import rules, task, verdict
from scale import ROUNDS

CRAWL = "default"
LATER = 1_700_000_100.0
CHUNKS, FLIPS = 2 * ROUNDS, 45
PAGE = 4096  # SQLite's
PARTS = {"closed": {"": 9, "-lock": 1}, "killed": {"": 5, "-wal": 4, "-lock": 1}}


async def worked_on(path):
    """A store with more than a thousand tasks: some settled, some leased, snapshots taken."""
    clock, dice = FakeClock(), random.Random(1)
    store = EmbeddedStore.open(path, clock)
    await store.configure(CRAWL, rules(delay=0.0, max_in_flight=50))
    for batch in range(40):
        clock.advance(0.5)
        urls = [f"https://h{dice.randrange(80)}.test/{batch}/{place}" for place in range(40)]
        await store.add([task(url, delay=dice.choice((0.0, 0.0, 50.0))) for url in urls])
        leases = (await store.claim(ClaimRequest(CRAWL, "w", 10))).leases
        outcomes = (Done(200, bytes=5), Failed("broken"), Blocked("no"))
        await store.finish([verdict(lease, dice.choice(outcomes)) for lease in leases[:7]])
    return store


async def shown(path):
    """Everything that can be read, and what is lent first."""
    store = EmbeddedStore.open(path, FakeClock(LATER))
    try:
        whole = await full_view(store, CRAWL)
        claimed = await store.claim(ClaimRequest(CRAWL, "w", 30))
        return whole, [(lease.id, lease.about, lease.attempt) for lease in claimed.leases]
    finally:
        await store.close()


def laid_out(folder, parts):
    """The only file in a folder, made of these parts."""
    path = folder / "crawl.outrider"
    for old in folder.iterdir():
        old.unlink()
    for part, data in parts.items():
        Path(f"{path}{part}").write_bytes(data)
    return path


def taken_apart(path, names):
    """The parts of a file."""
    return {name: Path(f"{path}{name}").read_bytes() for name in names}


@pytest.fixture
async def original(request, tmp_path, tight, monkeypatch):
    """The parts of a file that was closed in order, or whose process was killed."""
    path = tmp_path / "original.outrider"
    store = await worked_on(path)
    if request.param == "closed":
        await store.close()
    monkeypatch.undo()  # what follows is to be quick
    names = PARTS[request.param]
    parts = taken_apart(path, names)
    if request.param == "killed":
        await store.close()
    folder = tmp_path / "copies"
    folder.mkdir()
    return parts, folder, names


def place_of_structure(data, name, dice):
    """Where SQLite keeps its own: the head of a page, of a frame, of the file, or of a row."""
    gap = 24 if name == "-wal" else 0  # the head of a frame
    start = 32 * bool(gap) + dice.randrange(len(data) // (PAGE + gap)) * (PAGE + gap)
    if dice.random() < 0.3:
        return start + dice.randrange(gap + 16)
    page = start + gap + (100 if start == 0 else 0)
    cells = int.from_bytes(data[page + 3 : page + 5], "big")
    pointer = page + 8 + 2 * dice.randrange(max(1, min(cells, 2000)))
    return start + gap + int.from_bytes(data[pointer : pointer + 2], "big") + dice.randrange(10)


def hurt(parts, names, dice):
    """One bit flipped, or now and then sixteen bytes overwritten."""
    (name,) = dice.choices([*names], [*names.values()])
    data = bytearray(parts[name])
    place = dice.randrange(len(data))
    if name != "-lock" and dice.random() < 0.5:
        place = min(place_of_structure(data, name, dice), len(data) - 1)
    if dice.random() < 0.1:
        data[place : place + 16] = dice.randbytes(len(data[place : place + 16]))
        return {**parts, name: bytes(data)}, f"16 bytes at {place} of {name or 'the file'}"
    bit = dice.randrange(8)
    data[place] ^= 1 << bit
    return {**parts, name: bytes(data)}, f"bit {bit} of byte {place} of {name or 'the file'}"


@pytest.mark.slow
@pytest.mark.parametrize("original", ["closed", "killed"], indirect=True)
@pytest.mark.parametrize("chunk", range(CHUNKS))
async def test_flipped_bit_is_reported_or_harmless(chunk, original):
    """Never another exception, never a wrong value, never a silently emptied store."""
    parts, folder, names = original
    truth = await shown(laid_out(folder, parts))
    dice, results = random.Random(f"{chunk} {[*names]}"), Counter()
    for _ in range(FLIPS):
        hurt_parts, what = hurt(parts, names, dice)
        path = laid_out(folder, hurt_parts)
        try:
            whole, lent = await shown(path)
        except Exception as error:
            is_named = isinstance(error, StoreUnusable) and str(path) in str(error)
            if not is_named:
                raise AssertionError(f"{what} of chunk {chunk}: {error!r}") from error
            results["named"] += 1
            continue
        results["harmless"] += 1
        assert not whole.differs(truth[0]), what
        assert lent == truth[1], what
    assert results["named"] > FLIPS / 10
