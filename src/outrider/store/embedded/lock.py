"""The lock of a file: one process holds it at a time, and the system frees it when that one dies.

The lock's own small file has three lines, each with the machine start (boot id) it was written in:

- the last page that was acknowledged: if it is gone although only a process died, the file was
  damaged;
- the process that held the file last: reopening takes back its leases, and those of no other;
- the purpose that the process declared when it took the lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import zlib
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, get_args

from outrider.store.health import Holder, Purpose

SUFFIX: Final = "-lock"
_SIGNED_AT: Final = 256  # where the second line begins, behind newlines
_DECLARED_AT: Final = 512  # the same of the third
_PURPOSES: Final[dict[str, Purpose]] = {purpose or "-": purpose for purpose in get_args(Purpose)}
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_LOCKS: Final = Path("/proc/locks")


class Lock:
    """The lock beside a file."""

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}{SUFFIX}")
        self._file = -1
        self._boot = _boot_id()

    def take(self) -> bool:
        """Try to take the lock; return whether this process has it now."""
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
        """Write down the last acknowledged page."""
        text = b"%020d %s" % (page, self._boot)
        with suppress(OSError):  # no room: an older page is remembered, and the pages are there
            os.pwrite(self._file, b"%s %08x\n" % (text, zlib.crc32(text)), 0)

    def remembered(self) -> int:
        """Return the last page acknowledged since the machine started; 0 if that is not known."""
        return _page_in(os.pread(self._file, 200, 0), self._boot)

    def sign(self, process: str) -> None:
        """Write down which process holds the file; "": it was closed in order."""
        with suppress(OSError):  # no room: the line before stays, and some leases last longer
            self._write_line(process, _SIGNED_AT)

    def declare(self, purpose: Purpose) -> None:
        """Write down why this process holds the file, for those who find it held (M3)."""
        with suppress(OSError):  # no room: the line before stays, and a crawl may wait in vain
            self._write_line(purpose, _DECLARED_AT)

    def _write_line(self, word: str, at: int) -> None:
        text = b"%s %s" % (word.encode() or b"-", self._boot)
        line = b"%s %08x\n" % (text, zlib.crc32(text))
        size = os.fstat(self._file).st_size
        if size < at:  # newlines, which every release skips behind a line
            os.pwrite(self._file, b"\n" * (at - size), size)
        os.pwrite(self._file, line.ljust(200, b"\n"), at)

    def last_holder(self) -> str | None:
        """Return the process signed last since the machine started; None if that is not known."""
        words = _checked(os.pread(self._file, 200, _SIGNED_AT))
        if len(words) != 2 or words[1] != self._boot:
            return None
        return words[0].decode().removeprefix("-")

    def free(self) -> None:
        """Release the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _boot_id() -> bytes:
    """Return an id of this machine start; a constant where the system has none."""
    return _BOOT.read_bytes().strip() if _BOOT.exists() else b"-"


def _page_in(text: bytes, boot: bytes) -> int:
    words = _checked(text)
    return int(words[0]) if len(words) == 2 and words[1] == boot else 0


def _checked(line: bytes) -> list[bytes]:
    """Return the words of a line; none if its checksum differs."""
    text, _, checksum = line.strip().rpartition(b" ")
    return text.split(b" ") if text and checksum == b"%08x" % zlib.crc32(text) else []


# ---- reading a lock without taking it


def remembered_beside(path: Path) -> int:
    """See `Lock.remembered`, of a lock that another process may hold."""
    try:
        return _page_in(Path(f"{path}{SUFFIX}").read_bytes()[:200], _boot_id())
    except FileNotFoundError:
        return 0


def holder_of(path: Path) -> Holder | None:
    """Return the process that holds a file; the lock is tried for a moment only."""
    try:
        file = os.open(f"{path}{SUFFIX}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _holder(file)
    finally:
        os.close(file)


def _holder(file: int) -> Holder | None:
    pid = _locking_process(os.fstat(file))
    if pid is None:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Holder(None, "", _purpose(file))
        return None
    return Holder(pid, _command(pid), _purpose(file))


def _purpose(file: int) -> Purpose:
    """Return what was declared last since the machine started; a release before did not."""
    words = _checked(os.pread(file, 200, _DECLARED_AT))
    is_known = len(words) == 2 and words[1] == _boot_id()
    return _PURPOSES.get(words[0].decode(), "") if is_known else ""


def not_answering(path: Path, seconds: float) -> str:
    """Return the message for a holder that does not answer: since when, and the next step."""
    return f"{_name(path)} holds {path} and does not answer for {seconds:g} s{_advice(path)}"


def not_serving(path: Path, seconds: float) -> str:
    """Return the message for a holder that does not serve its file, and the next step."""
    return f"{_name(path)} holds it and does not serve it for {seconds:g} s{_advice(path)}"


def _name(path: Path) -> str:
    holder = holder_of(path)
    return "a process that has just ended" if holder is None else holder.name


def _advice(path: Path) -> str:
    """Return the state of the holder, when it last wrote, and the next step."""
    holder = holder_of(path)
    pid = "its number" if holder is None or holder.pid is None else str(holder.pid)
    state = _state(holder.pid) if holder is not None and holder.pid is not None else ""
    is_stopped = state in ("T", "t")
    how = "it is stopped" if is_stopped else "it is very busy, or hangs"
    resume = f"continue it with `kill -CONT {pid}`" if is_stopped else "try again"
    return (
        f": {how}{_last_write(path)}; {resume}, or end it with `kill -9 {pid}`: nothing is lost, "
        f"and the next command opens the file; `outrider checkpoint {path} COPY` reads it as it is"
    )


def _state(pid: int) -> str:
    """Return the scheduling state of a process: "T" is stopped; "" if unknown."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].strip()[:1]


def _last_write(path: Path) -> str:
    """Return when a page was last acknowledged: the lock is written then."""
    try:
        at = datetime.fromtimestamp(Path(f"{path}{SUFFIX}").stat().st_mtime, UTC)
    except OSError:
        return ""
    return f", and last wrote at {at.astimezone():%Y-%m-%d %H:%M:%S}"


def _locking_process(lock: os.stat_result) -> int | None:
    """Return the process that locks it, from /proc/locks; None if there is none."""
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
