"""Directories of servers, shared by processes: removed, servers included, after their last user.

Users hold a shared lock, which the system releases however they end; a cleanup process waits for
it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

_CLEANUP: Final = Path(__file__).with_name("cleanup.py")
_numbers: Final = count()


def shared_directory(name: str) -> Path:
    """Return a directory that processes share by name, until the last of them ends."""
    path = Path(tempfile.gettempdir()) / f"outrider-{os.getuid()}-{name}"
    _join(path)
    subprocess.Popen(
        [sys.executable, "-SE", str(_CLEANUP), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # an interrupt of the tests must not reach it
    ).returncode = 0  # it survives this process, so nothing waits for it
    return path


def private_directory(kind: str) -> Path:
    """Return a new directory of this process."""
    path = _private_root() / f"{kind}-{next(_numbers)}"
    path.mkdir()
    return path


@cache
def _private_root() -> Path:
    return shared_directory(f"{os.getpid()}-{os.urandom(4).hex()}")


def _join(path: Path) -> None:
    """Lock a directory until this process ends, by a descriptor that is never closed."""
    while True:
        with suppress(FileNotFoundError):  # the last user has just ended, and cleanup runs
            users = _open_users(path)
            fcntl.flock(users, fcntl.LOCK_SH)
            if _is_same_file(path / "users", users):
                return
            os.close(users)


def _open_users(path: Path) -> int:
    path.mkdir(mode=0o755, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    return os.open(path / "users", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _is_same_file(path: Path, file: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file).st_ino
    except FileNotFoundError:
        return False
