"""Waits until nobody uses a directory, ends the servers that live there, and removes it.

Started as a script of its own, with the standard library alone: it outlives its parent's death.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event

PATIENCE = 5.0  # seconds


def main(place: Path) -> None:
    """Keep one directory."""
    users = (place / "users").open("a")
    fcntl.flock(users, fcntl.LOCK_EX)
    if os.fstat(users.fileno()).st_nlink == 0:
        return  # another keeper was first
    servers = [file.read_text().split() for file in place.glob("*/pid")]
    for pid, name in servers:
        _tell(int(pid), signal.Signals[name])
    for pid, _ in servers:
        _see_off(int(pid))
    shutil.rmtree(place, ignore_errors=True)


def _tell(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def _see_off(pid: int) -> None:
    for _ in range(round(PATIENCE / 0.02)):
        if not _is_alive(pid):
            return
        Event().wait(0.02)
    _tell(pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    """Whether it runs; one that is dead and not yet buried does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    about = Path(f"/proc/{pid}/stat")
    return not about.exists() or ") Z " not in about.read_text()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
