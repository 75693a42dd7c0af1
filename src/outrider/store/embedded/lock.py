"""Who holds a file: one process at a time, told by a lock the system frees when its holder dies.

The lock's own small file also remembers the last page that was acknowledged, and since which start
of the machine: if that page is gone although nothing but a process died, the file was damaged.
"""

from __future__ import annotations

import fcntl
import os
import re
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from outrider.store.health import Holder

SUFFIX: Final = "-lock"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_LOCKS: Final = Path("/proc/locks")


class Lock:
    """The lock beside a file."""

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}{SUFFIX}")
        self._file = -1
        self._boot = _boot_id()

    def take(self) -> bool:
        """Whether it is ours now."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except BaseException:  # some network file systems lock nothing
            os.close(file)
            raise
        self._file = file
        return True

    def remember(self, page: int) -> None:
        """This page was acknowledged."""
        text = b"%020d %s" % (page, self._boot)
        with suppress(OSError):  # no room: an older page is remembered, and the pages are there
            os.pwrite(self._file, b"%s %08x\n" % (text, zlib.crc32(text)), 0)

    def remembered(self) -> int:
        """The last page acknowledged since the machine started; 0 if that is not known."""
        return _page_in(os.pread(self._file, 200, 0), self._boot)

    def free(self) -> None:
        """Anyone else may take it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _boot_id() -> bytes:
    """Which start of the machine this is; the same for ever where nobody tells."""
    return _BOOT.read_bytes().strip() if _BOOT.exists() else b"-"


def _page_in(text: bytes, boot: bytes) -> int:
    text, _, checksum = text.strip().rpartition(b" ")
    if checksum != b"%08x" % zlib.crc32(text) or not text:
        return 0
    page, _, written = text.partition(b" ")
    return int(page) if written == boot else 0


# ---- for those who only look


def remembered_beside(path: Path) -> int:
    """See `Lock.remembered`, of a lock that may be another's."""
    try:
        return _page_in(Path(f"{path}{SUFFIX}").read_bytes()[:200], _boot_id())
    except FileNotFoundError:
        return 0


def holder_of(path: Path) -> Holder | None:
    """Who holds a file; nobody is kept from taking it for longer than a glance."""
    try:
        file = os.open(f"{path}{SUFFIX}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _holder(file)
    finally:
        os.close(file)


def _holder(file: int) -> Holder | None:
    pid = _told_by_the_system(os.fstat(file))
    if pid is None:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Holder(None, "")
        return None
    return Holder(pid, _command(pid))


def _told_by_the_system(lock: os.stat_result) -> int | None:
    """The process that locks it; None where the system does not tell, or nobody does."""
    device = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    found = re.search(rf"FLOCK +\S+ +WRITE +(\d+) +{device} ", _read(_LOCKS))
    return int(found[1]) if found else None


def _command(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()[:200]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
