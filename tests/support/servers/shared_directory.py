"""Directories where servers live: each ends, servers and all, with the last process that uses it.

Users hold a shared lock, which the system takes from them however they die; a keeper waits for it.
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


def nest(name: str) -> Path:
    """A directory that processes share by its name; it is kept until the last of them ends."""
    path = Path(tempfile.gettempdir()) / f"outrider-{os.getuid()}-{name}"
    _join(path)
    subprocess.Popen(
        [sys.executable, "-SE", str(_CLEANUP), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # what interrupts the tests must not interrupt it
    ).returncode = 0  # it outlives us: nobody waits for it
    return path


def own_place(kind: str) -> Path:
    """A new directory that nobody else knows."""
    path = _own_nest() / f"{kind}-{next(_numbers)}"
    path.mkdir()
    return path


@cache
def _own_nest() -> Path:
    return nest(f"{os.getpid()}-{os.urandom(4).hex()}")


def _join(path: Path) -> None:
    """Until this process ends: a bare descriptor, which nothing closes before."""
    while True:
        with suppress(FileNotFoundError):  # the last user left just now, and the keeper clears up
            users = _opened(path)
            fcntl.flock(users, fcntl.LOCK_SH)
            if _is_still(path / "users", users):
                return
            os.close(users)


def _opened(path: Path) -> int:
    path.mkdir(mode=0o755, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to somebody else")
    return os.open(path / "users", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _is_still(path: Path, file: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file).st_ino
    except FileNotFoundError:
        return False
