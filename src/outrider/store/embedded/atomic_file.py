"""New files appear whole or not at all, and never in place of another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outrider.errors import InvalidInput, StoreFull, StoreUnusable
from outrider.store.embedded.lock import SUFFIX, Lock


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A draft beside a file that is not there yet; whatever was not placed is gone at the end."""
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
    """Let the draft have its name, once the disk has it."""
    log = Path(f"{draft}-wal")
    if log.exists() and log.stat().st_size:
        raise StoreFull(f"{target}: its log could not be folded into it; make room, and try again")
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
