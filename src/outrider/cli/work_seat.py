"""Where one of several workers writes: files of its own, that no living other has."""

from __future__ import annotations

import fcntl
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from outrider.errors import InvalidInput

MOST: Final = 10_000  # workers of one crawl on one machine
_ODD: Final = re.compile(r"[^A-Za-z0-9.-]+")


@contextmanager
def seated(stem: str) -> Iterator[str]:
    """What the names of this worker's files begin with: STEM-HOST-N.

    The lowest N that nobody has: whoever starts after a worker that was killed sits down where that
    one sat, and settles what it left in doubt.
    """
    if not Path(stem).parent.is_dir():
        raise InvalidInput(f"{stem}: there is no directory {Path(stem).parent}; make it first")
    host = _ODD.sub("-", socket.gethostname())[:64]
    for number in range(1, MOST + 1):
        name = f"{stem}-{host}-{number}"
        with Path(f"{name}.lock").open("a") as lock:
            if _is_free(lock.fileno()):
                yield name
                return
    raise InvalidInput(f"{stem}: {MOST} workers of this machine write there already")


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
