"""Directories where servers live: each ends, servers and all, with the last process that uses it.

Users hold a shared lock, which the system takes from them however they die; a keeper waits for it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Final

_KEEPER: Final = Path(__file__).with_name("keeper.py")
_held: list[IO[str]] = []  # until this process ends
_numbers: Final = count()


def nest(name: str) -> Path:
    """A directory that processes share by its name; it is kept until the last of them ends."""
    path = Path(tempfile.gettempdir()) / f"outrider-{os.getuid()}-{name}"
    _held.append(_joined(path))
    subprocess.Popen(  # noqa: S603 - our own script, and no shell
        [sys.executable, "-SE", str(_KEEPER), str(path)],
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


def _joined(path: Path) -> IO[str]:
    while True:
        path.mkdir(mode=0o755, exist_ok=True)
        if path.stat().st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to somebody else")
        users = (path / "users").open("a")
        fcntl.flock(users, fcntl.LOCK_SH)
        if _is_still(path / "users", users):
            return users
        users.close()  # the last user left just now, and the keeper cleared it away


def _is_still(path: Path, file: IO[str]) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False
