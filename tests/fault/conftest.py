"""An embedded store that does often what it does rarely, and copies of its files."""

import itertools
import shutil
from pathlib import Path

import pytest

from crash import kill_points

PARTS = ("", "-wal", "-lock")


@pytest.fixture
def tight(monkeypatch):
    """Snapshots of many small pieces, queues sent away, a log that is folded often."""
    for module, constant, value in kill_points.small_constants():
        monkeypatch.setattr(module, constant, value)


@pytest.fixture
def copied(tmp_path):
    """Copies a file as a kill would leave it: its log and its lock go with it."""
    numbers = itertools.count()

    def copy(path, *, parts=PARTS):
        target = tmp_path / f"copy-{next(numbers)}"
        target.mkdir()
        for part in parts:
            source = Path(f"{path}{part}")
            if source.exists():
                shutil.copy(source, f"{target / path.name}{part}")
        return target / path.name

    return copy
