"""Files that cannot be used are refused by name, with the way out, and left as they are."""

import gc
import os
import sqlite3
from pathlib import Path

import pytest

from outrider.errors import StoreDamaged, StoreUnusable
from outrider.store.embedded import EmbeddedStore
from outrider.store.protocol import ClaimRequest
from outrider.testing import FakeClock
from outrider.testing.builders import task
from outrider.testing.conformance.steps import configure


async def made(path, count=300):
    """An open store with some tasks, a few of them lent."""
    store = EmbeddedStore.open(path, FakeClock())
    await configure(store)
    for number in range(count // 10):
        await store.add([task(f"https://h{number % 9}.test/{number}/{n}") for n in range(10)])
    await store.claim(ClaimRequest("default", "w", 5))
    return store


@pytest.fixture
async def closed(tmp_path):
    """A file that was closed in order."""
    path = tmp_path / "crawl.outrider"
    store = await made(path)
    await store.close()
    return path


@pytest.fixture
async def killed(tmp_path, copied):
    """A file whose process was killed: most of it is in its log."""
    path = tmp_path / "crawl.outrider"
    store = await made(path)
    copy = copied(path)
    await store.close()
    return copy


def parts_of(path):
    """Every part of a file without the lock, which opening takes."""
    return {p.name: p.read_bytes() for p in sorted(path.parent.glob(f"{path.name}*")) if _counts(p)}


def _counts(part):
    return part.is_file() and not part.name.endswith(("-lock", "-shm")) and part.stat().st_size


def refused(path, kind=StoreUnusable):
    """Refused by name, with nothing changed; the message."""
    before = parts_of(path)
    with pytest.raises(kind) as caught:
        EmbeddedStore.open(path, FakeClock())
    assert type(caught.value) in (StoreUnusable, StoreDamaged)
    assert str(path) in str(caught.value)
    error = str(caught.value)
    del caught
    gc.collect()  # closes what was opened
    assert parts_of(path) == before
    return error


def test_empty_file_is_damaged(tmp_path):
    """No file of Outrider is ever empty, so another program emptied this one."""
    path = tmp_path / "crawl.outrider"
    path.touch()
    assert f"outrider doctor {path}" in refused(path, StoreDamaged)


@pytest.mark.parametrize("tenth", [1, 4, 7, 9])
async def test_truncated_file_is_refused(closed, tenth):
    """Whole pages or not, wherever it was cut."""
    data = closed.read_bytes()
    closed.write_bytes(data[: len(data) * tenth // 10 - tenth])
    assert f"outrider doctor {closed}" in refused(closed, StoreDamaged)


@pytest.mark.parametrize("length", [1, 15, 16, 99, 100, 512, 4095, 4096])
async def test_file_of_a_few_bytes_is_refused(closed, length):
    """Even the part that says whose file it is may be missing."""
    closed.write_bytes(closed.read_bytes()[:length])
    assert f"outrider doctor {closed}" in refused(closed)


def test_foreign_database_is_refused(tmp_path):
    """Somebody else's SQLite file is not ours to write."""
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE page (id INTEGER PRIMARY KEY, data BLOB)")
    other.commit()
    other.close()
    assert "name another file" in refused(path)


def test_text_file_is_refused(tmp_path):
    """So is anything else."""
    path = tmp_path / "notes.txt"
    path.write_text("https://a.test/\n" * 100)
    assert "not a file of Outrider" in refused(path)


def test_directory_is_refused(tmp_path):
    """With a name that would do."""
    path = tmp_path / "crawls"
    path.mkdir()
    assert f"{path}/" in refused(path)
    assert list(path.iterdir()) == []


async def test_newer_format_is_refused(closed):
    """An old release does not guess."""
    other = sqlite3.connect(closed)
    other.execute("PRAGMA user_version = 2")
    other.commit()
    other.close()
    assert "newer release" in refused(closed)


async def test_read_only_file_is_refused(closed):
    """As root too, who could write it all the same."""
    closed.chmod(0o444)
    assert "read-only" in refused(closed)


def test_missing_directory_is_named(tmp_path):
    """A typing error does not make directories."""
    path = tmp_path / "missing" / "crawl.outrider"
    assert str(path.parent) in refused(path)
    assert not path.parent.exists()


def test_parent_that_is_a_file_is_named(tmp_path):
    """Nor does one that names a file where a directory should be."""
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file" / "crawl.outrider")


def test_log_deleted_after_a_kill_is_noticed(killed):
    """Its last pages were acknowledged, so they are not silently forgotten."""
    Path(f"{killed}-wal").unlink()
    assert f"outrider doctor {killed}" in refused(killed, StoreDamaged)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.6, 0.9, 0.999])
def test_log_truncated_after_a_kill_is_noticed(killed, kept):
    """SQLite would take what is left for all there was; what is left stays as it is."""
    log = Path(f"{killed}-wal")
    os.truncate(log, int(log.stat().st_size * kept))
    assert f"outrider doctor {killed}" in refused(killed, StoreDamaged)


async def test_file_of_a_killed_process_opens(killed):
    """What the tests above change is what they refuse."""
    store = EmbeddedStore.open(killed, FakeClock())
    assert (await store.crawl("default")).known == 300
    await store.close()
