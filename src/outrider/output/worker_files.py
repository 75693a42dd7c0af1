"""File names of one worker among several of a machine: STEM-HOST-N, which no live worker shares.

Each worker holds a lock beside its files. A name whose lock is free belongs to a worker that has
ended, so a process that gets the lock may settle what that worker left in doubt.
"""

from __future__ import annotations

import fcntl
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from outrider.errors import InvalidInput

MAX_WORKERS: Final = 10_000  # of one crawl on one machine
_OUTPUT_SUFFIXES: Final = (".jsonl", ".gz", ".warc")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]+")


@contextmanager
def worker_files(stem: str) -> Iterator[str]:
    """Lock and return STEM-HOST-N with the lowest free N, as the prefix of a worker's file names.

    A worker that is started again thus continues with the files of one that has ended. Use it as
    `output.path` of a worker that `outrider.wiring.joined` runs.
    """
    if not Path(stem).parent.is_dir():
        raise InvalidInput(f"{stem}: there is no directory {Path(stem).parent}; create it first")
    for number in range(1, MAX_WORKERS + 1):
        name = f"{stem}-{_host()}-{number}"
        with try_lock(name) as is_locked:
            if is_locked:
                yield name
                return
    raise InvalidInput(f"{stem}: {MAX_WORKERS} workers of this machine write there already")


def without_suffix(path: str) -> str:
    """An output path without the suffix of a format."""
    for suffix in _OUTPUT_SUFFIXES:
        path = path.removesuffix(suffix)
    return path


def stem_of(path: str) -> str:
    """The stem of an output path: STEM if it is STEM-HOST-N of `worker_files`, else itself."""
    name = without_suffix(path)
    stem, _, number = name.rpartition(f"-{_host()}-")
    is_worker = stem and number.isdecimal() and Path(f"{name}.lock").exists()
    return stem if is_worker else name


def worker_names(stem: str) -> list[str]:
    """The names that workers of this machine have, or had, under a stem."""
    first = Path(f"{stem}-{_host()}")
    if not first.parent.is_dir():
        return []
    match = re.compile(rf"({re.escape(first.name)}-[0-9]+)\.lock").fullmatch
    names = [found[1] for path in first.parent.iterdir() if (found := match(path.name))]
    return [str(first.with_name(name)) for name in sorted(names)]


@contextmanager
def try_lock(name: str) -> Iterator[bool]:
    """Lock a worker's name for the block, and yield whether that succeeded."""
    with Path(f"{name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _host() -> str:
    return _UNSAFE.sub("-", socket.gethostname())[:64]
