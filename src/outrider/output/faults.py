"""The system's errors in our words: which file, and what to do."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from outrider.errors import OutputError, OutputFull, OutputUnavailable

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_LACKING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def unwritable(path: Path, error: OSError) -> OutputError:
    """What is said of a file that could not be opened or written."""
    if error.errno in _NO_ROOM:
        return OutputFull(
            f"{path}: no room to write ({error.strerror}); nothing of this batch stays: make room "
            "on its disk, and try again"
        )
    if error.errno in _LACKING:
        return OutputUnavailable(
            f"{path}: cannot be written now ({error.strerror}); nothing of this batch stays: raise "
            "the limit of open files (ulimit -n), or lower executor.slots"
        )
    if not path.parent.is_dir():
        return OutputError(f"{path}: there is no directory {path.parent}; make it first")
    return OutputError(f"{path}: cannot be written ({error.strerror}); name another output")


def changed(path: Path, journal: Path, what: str) -> OutputError:
    """What is said of a file that is not as its journal says."""
    return OutputError(
        f"{path} is not what its journal says: {what}; nothing was changed. Bring back the file "
        f"that was written, or delete {journal} to go on with this one as it is, or name another "
        "output"
    )
