"""Faults of this machine: which errors they are, and what is said of each.

A local fault is a lack of descriptors, memory, threads, processes, ports, disk space or network on
the machine Outrider runs on. It is never charged to a page or to a host: the visit is released and
the executor pauses (executor/fault_pause.py). A reason that begins with `local:` names one.
"""

from __future__ import annotations

import errno
import re
import resource
import socket
from typing import Final

from outrider.errors import LocalFault

LOCAL: Final = "local"  # the first word of such a reason

EMFILE: Final = "local: emfile"
ENOMEM: Final = "local: enomem"
NETWORK: Final = "local: network"
PORTS: Final = "local: eaddrnotavail"
PROCESSES: Final = "local: processes"
RESOLVER: Final = "local: resolver"
THREADS: Final = "local: threads"
CERTIFICATES: Final = "local: certificates"
DISK: Final = "local: disk"

# Wherever they are raised: no host and no page can cause them.
ERRNOS: Final = {
    errno.EMFILE: EMFILE,
    errno.ENFILE: "local: enfile",
    errno.ENOBUFS: "local: enobufs",
    errno.ENOMEM: ENOMEM,
    errno.ENETDOWN: NETWORK,
    errno.ENOSPC: DISK,
    errno.EDQUOT: DISK,
}

# Reason → (what is wrong, what to do about it).
FAULTS: Final[dict[str, tuple[str, str]]] = {
    EMFILE: (
        "too many open files for this process (limit {files})",
        "raise the limit (ulimit -n), or lower executor.slots and fetch.connections",
    ),
    "local: enfile": (
        "too many open files on this machine",
        "close other programs, or raise fs.file-max",
    ),
    "local: enobufs": (
        "no buffers for connections on this machine",
        "lower executor.slots, or close other programs",
    ),
    ENOMEM: ("out of memory", "lower executor.slots, or close other programs"),
    PORTS: (
        "no local port is free for another connection",
        "lower executor.slots, or widen net.ipv4.ip_local_port_range",
    ),
    THREADS: ("no more threads can be started", "raise the limit of processes (ulimit -u)"),
    PROCESSES: (
        "no process can be started ({detail})",
        "raise the limits of processes and files (ulimit -u, ulimit -n), or free memory",
    ),
    NETWORK: ("no network: this machine has no route to any host", "connect it again"),
    RESOLVER: ("the DNS resolver of this machine does not answer", "see /etc/resolv.conf"),
    CERTIFICATES: ("the certificates to trust cannot be read", "check the installation"),
    DISK: ("a disk is full ({detail})", "make room on it"),
}

# What a lower number of visits at one time relieves.
SHORTAGES: Final = frozenset(
    (EMFILE, "local: enfile", "local: enobufs", ENOMEM, PORTS, THREADS, PROCESSES)
)

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
_NO_THREAD: Final = "can't start new thread"  # of a RuntimeError; Python has no class for it
_DEEPEST: Final = 10  # causes that are looked through


def is_local(reason: str) -> bool:
    """Whether a reason names a fault of this machine."""
    return reason.partition(":")[0] == LOCAL


def local_fault(reason: str, detail: str = "") -> LocalFault:
    """A reason of the table as the exception that ends a visit without an outcome."""
    wrong, fix = FAULTS[reason]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return LocalFault(f"{wrong.format(files=files, detail=detail)}; {fix}", reason)


def local_reason_of(error: BaseException | None) -> str | None:
    """The reason that an error stands for, or its causes; None: it is no fault of this machine."""
    for _ in range(_DEEPEST):
        if error is None:
            return None
        reason = _reason_of(error)
        if reason is not None:
            return reason
        error = error.__cause__
    return None


def _reason_of(error: BaseException) -> str | None:
    match error:
        case MemoryError():
            return ENOMEM
        case socket.gaierror():  # its numbers are not those of other errors
            return ENOMEM if error.errno == socket.EAI_MEMORY else None
        case OSError():
            return _of_numbers(error)
        case RuntimeError() if str(error) == _NO_THREAD:
            return THREADS
        case _:
            return None


def _of_numbers(error: OSError) -> str | None:
    """By its number; an error for several addresses has its numbers in its text alone."""
    if error.errno is not None:
        return ERRNOS.get(error.errno)
    numbers = [int(number) for number in _ERRNO.findall(str(error))]
    return next((ERRNOS[number] for number in numbers if number in ERRNOS), None)


def local_fault_of(error: BaseException) -> LocalFault | None:
    """An error as a local fault, if it is one."""
    if isinstance(error, LocalFault):
        return error
    reason = local_reason_of(error)
    return None if reason is None else local_fault(reason, str(error)[:200])
