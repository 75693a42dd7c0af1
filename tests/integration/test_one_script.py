"""M1: a script prints the same on every store, whichever it is given."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("one_script.py")
PATIENCE = 120.0  # seconds


def printed(store):
    """What the script prints on a store, in a process of its own."""
    done = subprocess.run(
        [sys.executable, SCRIPT, store],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def in_memory():
    """What it prints on the memory store."""
    lines = printed("memory://")
    assert len(lines) > 300
    return lines


@pytest.mark.parametrize("kind", ["embedded", "postgres", "redis"])
def test_a_script_prints_on_every_store_what_it_prints_in_memory(kind, in_memory, places, tmp_path):
    """Claims, answers, views, reports and explanations, line by line."""
    store = str(tmp_path / "x.outrider") if kind == "embedded" else places.take(kind)
    for number, (line, wanted) in enumerate(zip(printed(store), in_memory, strict=True)):
        assert line == wanted, f"line {number + 1}"
