"""The log of visits on a full disk."""

import errno

from outrider.cli import crawl_progress
from outrider.cli.crawl_progress import VisitLog
from outrider.core.outcome import Done
from outrider.executor.visit import Visit


class Full:
    """A file whose disk is full for a while."""

    def __init__(self, times):
        self.times, self.lines = times, []

    def write(self, data):
        """A line."""
        if self.times:
            self.times -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self.lines.append(data)

    def close(self):
        """Also without room."""
        raise OSError(errno.ENOSPC, "No space left on device")


def test_log_on_a_full_disk_drops_lines_and_notes_it_once(monkeypatch):
    """No visit is lost for it, and no crawl ends."""
    said, full = [], Full(2)
    monkeypatch.setattr(crawl_progress, "print_note", said.append)
    monkeypatch.setattr(crawl_progress, "FileIO", lambda *_: full)
    visit = Visit(type("Lease", (), {"url": "https://a.example/", "attempt": 1})())
    visit.outcome = Done(200)
    with VisitLog("x.log") as log:
        for _ in range(3):
            log([visit])

    assert len(full.lines) == 1
    assert said == ["x.log: cannot be written (No space left on device); lines are left out"]
