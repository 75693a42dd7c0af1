"""Processes that write are killed, again and again; a real file, a real kill."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scale import ROUNDS

CHILD = Path(__file__).parent / "kill_child.py"
KILLS = int(os.environ.get("OUTRIDER_CRASHES", 8 * ROUNDS))  # noqa: TID251 - how long to search
FROM = int(os.environ.get("OUTRIDER_FROM", "0"))  # noqa: TID251 - where to begin


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "warc"])
def test_every_finished_visit_has_one_whole_record_however_often_it_is_killed(form, tmp_path):
    """At random moments, and at every kind of call of the system; none torn, doubled or lost."""
    command = [sys.executable, str(CHILD), str(tmp_path), str(FROM), str(KILLS), form]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    assert ended.returncode == 0, ended.stderr
    killed, done = map(int, re.findall(r"\d+", ended.stdout))
    assert killed > KILLS / 2
    assert done > KILLS
