"""Errors of the operating system as `OutputError`: which file, and how to fix it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from outrider.errors import OutputError, OutputFull, OutputUnavailable

_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_RESOURCE_LIMIT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def write_error(path: Path, error: OSError) -> OutputError:
    """The error to raise for a file that could not be opened or written."""
    if error.errno in _DISK_FULL:
        return OutputFull(
            f"{path}: no space to write ({error.strerror}); nothing of this batch was kept: free "
            "space on its disk, and try again"
        )
    if error.errno in _RESOURCE_LIMIT:
        return OutputUnavailable(
            f"{path}: cannot be written now ({error.strerror}); nothing of this batch was kept: "
            "raise the limit of open files (ulimit -n), or lower executor.slots"
        )
    if not path.parent.is_dir():
        return OutputError(f"{path}: there is no directory {path.parent}; create it first")
    return OutputError(f"{path}: cannot be written ({error.strerror}); choose another output")


def changed_error(path: Path, journal: Path, problem: str) -> OutputError:
    """The error to raise for a file that differs from what its journal says."""
    return OutputError(
        f"{path} is not what its journal says: {problem}; nothing was changed. Restore the file "
        f"that was written, or delete {journal} to continue with this one as it is, or choose "
        "another output"
    )
