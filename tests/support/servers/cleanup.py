"""The cleanup process: waits until a directory is unused, stops its servers, and removes it.

It runs as a separate script with the standard library only, and survives its parent.
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

STOP_TIMEOUT = 5.0  # seconds


def main(place: Path) -> None:
    """Wait for the end of one directory, and clean up."""
    users = (place / "users").open("a")
    fcntl.flock(users, fcntl.LOCK_EX)
    if os.fstat(users.fileno()).st_nlink == 0:
        return  # another cleanup process was first
    servers = [file.read_text().split() for file in place.glob("*/pid")]
    for pid, name in servers:
        _signal(int(pid), signal.Signals[name])
    for pid, _ in servers:
        _wait_for_end(int(pid))
    shutil.rmtree(place, ignore_errors=True)


def _signal(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def _wait_for_end(pid: int) -> None:
    for _ in range(round(STOP_TIMEOUT / 0.02)):
        if not _is_alive(pid):
            return
        Event().wait(0.02)
    _signal(pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    about = Path(f"/proc/{pid}/stat")
    return not about.exists() or ") Z " not in about.read_text()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
