"""New files are created atomically, and never overwrite another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outrider.errors import InvalidInput, StoreFull, StoreUnusable
from outrider.store.embedded.lock import SUFFIX, Lock


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield the path of a draft beside a new file; one that was not published is deleted."""
    _check(target)
    draft = Path(f"{target}.partial")
    lock = Lock(draft)
    try:
        if not lock.take():
            raise InvalidInput(f"{target} is being written by another process; name another file")
    except OSError as error:
        raise StoreUnusable(
            f"{target} cannot be made: {error.strerror}; try another directory"
        ) from error
    try:
        _clear(draft)
        yield draft
    finally:
        _clear(draft)
        Path(f"{draft}{SUFFIX}").unlink(missing_ok=True)
        lock.free()


def _check(target: Path) -> None:
    if os.path.lexists(target):
        raise InvalidInput(f"{target} exists, and nothing is overwritten; name another file")
    if not target.parent.is_dir():
        raise InvalidInput(f"{target}: there is no directory {target.parent}; make it first")


def _clear(draft: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        Path(f"{draft}{end}").unlink(missing_ok=True)


def publish(draft: Path, target: Path) -> None:
    """Sync a draft to the disk, then rename it to its target."""
    log = Path(f"{draft}-wal")
    if log.exists() and log.stat().st_size:
        raise StoreFull(f"{target}: its log could not be checkpointed; make room, and try again")
    _sync(draft)
    try:
        os.link(draft, target)
    except FileExistsError:
        _check(target)
    except OSError:  # a file system without links
        _check(target)
        draft.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
