"""The doctor: finds what is wrong, names it, and leaves no trace."""

import os
import random
import sqlite3
from pathlib import Path

import apsw
import pytest

from outrider import Frontier, InvalidInput
from outrider.errors import StoreUnusable
from outrider.store.embedded import doctor
from outrider.store.embedded.file import CrawlFile
from outrider.store.embedded.lock import holder_of
from outrider.store.factory import examine
from outrider.testing import FakeClock


def states(found):
    """What was said of what."""
    return {finding.what: finding.state for finding in found.findings}


def detail(found, what):
    """The words that go with it."""
    return next(finding.detail for finding in found.findings if finding.what == what)


def traces(path):
    """Everything that a look could have changed."""
    return {
        file.name: (file.stat().st_mtime_ns, file.read_bytes())
        for file in path.parent.iterdir()
        if file.is_file()
    }


@pytest.mark.parametrize("name", ["closed", "killed"])
def test_healthy_file_is_reported_healthy_and_not_changed(request, name, clock):
    """Counts by crawl and state; not a byte is written, no file appears."""
    path = request.getfixturevalue(name)
    before = traces(path)
    found = examine(path, clock)

    assert found.is_healthy, found.findings
    assert (found.pages.lost, found.holder, found.format) == (0, None, 1)
    assert set(states(found).values()) == {"ok"}
    default, news = found.crawls
    assert (default.crawl, news.crawl) == ("default", "news")
    assert default.known == default.intact == 1040
    assert default.known == sum(
        (default.pending, default.leased, default.done, default.dead, default.dropped)
    )
    assert (default.leased, default.dead, default.queues) == (10, 20, 20)
    assert traces(path) == before


async def test_held_file_is_examined_while_it_is_held(closed, clock):
    """The holder is reported; its crawl continues during and after the examination."""
    async with Frontier.open(closed, clock=clock) as frontier:
        await frontier.add(["https://new.example/"])
        before = {name: trace for name, trace in traces(closed).items() if "-shm" not in name}
        found = examine(closed, clock)
        after = {name: trace for name, trace in traces(closed).items() if "-shm" not in name}
        await frontier.add(["https://newer.example/"])

    assert found.is_healthy, found.findings
    assert found.holder.pid == os.getpid()
    assert states(found)["held"] == "note"
    assert found.crawls[0].known == 1041
    assert before == after


def test_changed_page_is_reported_by_number(closed, clock, hurt):
    """With the tasks it was the last word on."""
    hurt(closed, 40)
    found = examine(closed, clock)

    assert not found.is_healthy
    assert found.pages.first_lost == [40]
    assert states(found)["pages"] == "damaged"
    assert "40" in detail(found, "pages")
    assert sum(crawl.lost + crawl.outdated for crawl in found.crawls) == 16
    assert any("--rescue NEW" in advice for advice in found.next)


def test_missing_page_is_reported_by_number(closed, clock):
    """A gap is seen."""
    with sqlite3.connect(closed) as db:
        db.execute("DELETE FROM page WHERE id = 41")
    db.close()
    found = examine(closed, clock)

    assert found.pages.first_lost in ([41], [])  # it may still lie in a leaf that was freed
    assert not found.is_healthy
    assert states(found)["pages"] == "damaged"


def test_missing_last_pages_are_reported(killed, clock):
    """The lock remembers what was acknowledged; the way out names the log."""
    Path(f"{killed}-wal").unlink()
    found = examine(killed, clock)

    assert states(found)["lock"] == "damaged"
    assert "-wal" in detail(found, "lock")
    assert any("put it back" in advice for advice in found.next)


def test_damaged_log_is_reported(killed, clock):
    """SQLite silently stops at a broken frame; the lock and the pages behind it show that."""
    log = Path(f"{killed}-wal")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    with_lock = examine(killed, clock)
    assert not with_lock.is_healthy
    assert states(with_lock)["pages"] == "damaged"
    Path(f"{killed}-lock").unlink()
    found = examine(killed, clock)

    assert states(found)["log"] == "note"
    assert "--rescue" in detail(found, "log")


@pytest.mark.parametrize("share", [0.0001, 0.3, 0.9])
def test_truncated_file_is_reported(closed, clock, share):
    """However much is left."""
    os.truncate(closed, int(closed.stat().st_size * share) // 4096 * 4096 + 100)
    found = examine(closed, clock)

    assert not found.is_healthy
    assert states(found)["size"] == "damaged"


def test_empty_file_is_reported_damaged(closed, clock):
    """No file of Outrider is ever empty."""
    os.truncate(closed, 0)
    found = examine(closed, clock)

    assert (found.is_healthy, found.pages.intact) == (False, 0)
    assert states(found)["file"] == "damaged"


def test_changed_header_does_not_hide_intact_pages(closed, clock):
    """Its schema identifies it, and its pages are found without SQLite."""
    data = closed.read_bytes()
    closed.write_bytes(b"\0" * 100 + data[100:])
    found = examine(closed, clock)

    assert states(found)["file"] == "damaged"
    assert found.pages.lost == 0
    assert [crawl.intact for crawl in found.crawls] == [1040, 1040]


def test_changed_tree_does_not_hide_intact_leaves(closed, clock):
    """The root of the pages points to nowhere: every leaf is found all the same."""
    db = sqlite3.connect(closed)
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'page'").fetchone()
    db.close()
    data = bytearray(closed.read_bytes())
    data[(root - 1) * 4096 : root * 4096] = bytes(4096)
    closed.write_bytes(data)
    found = examine(closed, clock)

    assert states(found)["pages"] == "damaged"
    assert "tree" in detail(found, "pages")
    assert found.pages.lost == 0
    assert [crawl.lost for crawl in found.crawls] == [0, 0]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"<html>" * 1000, "not a file of Outrider"),
        (None, "no such file"),
        ("sql", "not a file of"),
    ],
)
def test_foreign_file_is_refused(tmp_path, clock, content, complaint):
    """By name; a stranger's database is not looked into."""
    path = tmp_path / "other"
    if content == "sql":
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE t (x)")
        db.close()
    elif content is not None:
        path.write_bytes(content)

    with pytest.raises(StoreUnusable, match=complaint):
        examine(path, clock)


def test_newer_format_and_directory_are_refused(closed, clock, tmp_path):
    """Nothing is guessed."""
    db = apsw.Connection(str(closed))
    db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(StoreUnusable, match="newer release"):
        examine(closed, clock)
    with pytest.raises(StoreUnusable, match="is not a file"):
        examine(tmp_path, clock)
    with pytest.raises(InvalidInput, match="outrider export"):
        examine("memory://", clock)


def test_large_file_gets_the_quick_check(closed, clock, monkeypatch):
    """It says which one it was."""
    monkeypatch.setattr(doctor, "LARGE_FILE", 0)

    assert "quick_check: ok" in detail(examine(closed, clock), "sqlite")


def test_check_of_sqlite_ends_at_its_timeout(closed, monkeypatch):
    """It says when SQLite's was ended; ours go on."""
    monkeypatch.setattr(doctor, "PROGRESS", 1)
    found = examine(closed, Hurried())

    assert states(found)["sqlite"] == "note"
    assert "was ended" in detail(found, "sqlite")
    assert found.is_healthy


class Hurried(FakeClock):
    """A minute passes whenever it is asked."""

    def now_ms(self):
        """Much later than before."""
        self.advance(60)
        return super().now_ms()


def test_changed_metadata_is_reported_by_name(closed, clock):
    """The file's own values have checksums too."""
    db = apsw.Connection(str(closed))
    db.execute("UPDATE meta SET value = zeroblob(20) WHERE name = 'secret'")
    db.execute("DELETE FROM meta WHERE name = 'id'")
    db.close()
    found = examine(closed, clock)

    assert states(found)["meta"] == "damaged"
    assert "secret" in detail(found, "meta")
    assert "'id' is missing" in detail(found, "meta")
    assert states(found)["load"] == "damaged"


def test_missing_piece_of_a_snapshot_is_reported(closed, clock):
    """Pages are all there, but it does not load as it is."""
    db = apsw.Connection(str(closed))
    db.execute("DELETE FROM piece WHERE id = (SELECT min(id) + 2 FROM piece)")
    db.close()
    found = examine(closed, clock)

    assert states(found)["snapshot"] == states(found)["load"] == "damaged"
    assert found.pages.lost == 0
    assert [crawl.intact for crawl in found.crawls] == [1040, 1040]


def test_process_without_the_lock_is_not_reported_as_holder(tmp_path, closed):
    """A lock that is left over, and none at all."""
    assert holder_of(closed) is None
    assert holder_of(tmp_path / "nothing") is None


def test_flipped_bit_is_reported_unless_it_is_harmless(closed, clock):
    """Whatever the store refuses, the doctor calls damaged; 20 places by one seed."""
    rng, whole = random.Random(5), closed.read_bytes()
    for _ in range(20):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        closed.write_bytes(data)
        try:
            is_healthy = examine(closed, clock).is_healthy
        except StoreUnusable:
            continue
        if is_healthy:
            CrawlFile(closed).close()


def test_row_of_another_type_is_not_a_page(closed, clock):
    """A flipped bit can make a number or a text of it."""
    db = apsw.Connection(str(closed))
    db.execute("UPDATE page SET data = 5 WHERE id = 30")
    db.execute("UPDATE page SET data = 'text' WHERE id = 31")
    db.execute("UPDATE piece SET data = 7 WHERE id = (SELECT min(id) FROM piece)")
    db.close()
    found = examine(closed, clock)

    assert found.pages.first_lost == [30, 31]
    assert states(found)["snapshot"] == "damaged"


async def test_damaged_file_in_use_gets_the_advice_to_end_its_holder(closed, clock, hurt):
    """Its holder has not met the damage yet."""
    hurt(closed, 5)
    async with Frontier.open(closed, clock=clock) as frontier:
        found = examine(closed, clock)
        await frontier.add(["https://new.example/"])

    assert found.pages.first_lost == [5]
    assert f"end process {os.getpid()}" in found.next[0]
