"""Faults of this machine: descriptors, memory, threads, processes, ports, disk space, network.

A local fault is never charged to a page or to a host: the visit is released and the executor pauses
(executor/fault_pause.py). Its reason begins with `local:`. The module also raises the limit of open
files, and tests whether the network is gone.
"""

from __future__ import annotations

import errno
import re
import resource
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from outrider.errors import LocalFault

LOCAL_PREFIX: Final = "local"  # the first word of a local fault's reason

EMFILE: Final = "local: emfile"
ENOMEM: Final = "local: enomem"
NETWORK: Final = "local: network"
PORTS: Final = "local: eaddrnotavail"
PROCESSES: Final = "local: processes"
RESOLVER: Final = "local: resolver"
THREADS: Final = "local: threads"
CERTIFICATES: Final = "local: certificates"
DISK: Final = "local: disk"

# No host and no page can cause these, wherever they are raised.
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
    DISK: ("a disk is full ({detail})", "free space on it"),
}

# Faults that a lower number of visits at one time relieves.
SHORTAGES: Final = frozenset(
    (EMFILE, "local: enfile", "local: enobufs", ENOMEM, PORTS, THREADS, PROCESSES)
)

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
_NO_THREAD: Final = "can't start new thread"  # of a RuntimeError; Python has no class for it
_MAX_CAUSES: Final = 10  # causes of an exception that are searched


def is_local(reason: str) -> bool:
    """Whether a reason names a fault of this machine."""
    return reason.partition(":")[0] == LOCAL_PREFIX


def local_fault(reason: str, detail: str = "") -> LocalFault:
    """Return a reason of the table as the exception that ends a visit without an outcome."""
    wrong, fix = FAULTS[reason]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return LocalFault(f"{wrong.format(files=files, detail=detail)}; {fix}", reason)


def local_reason_of(error: BaseException | None) -> str | None:
    """Return the local fault's reason of an error or of its causes; None: it is no local fault."""
    for _ in range(_MAX_CAUSES):
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
        case socket.gaierror():  # its numbers are no errnos
            return ENOMEM if error.errno == socket.EAI_MEMORY else None
        case OSError():
            return _reason_of_errno(error)
        case RuntimeError() if str(error) == _NO_THREAD:
            return THREADS
        case _:
            return None


def _reason_of_errno(error: OSError) -> str | None:
    """Return the reason of its errno; an error of several addresses has errnos in its text."""
    if error.errno is not None:
        return ERRNOS.get(error.errno)
    numbers = [int(number) for number in _ERRNO.findall(str(error))]
    return next((ERRNOS[number] for number in numbers if number in ERRNOS), None)


def local_fault_of(error: BaseException) -> LocalFault | None:
    """Return an error as a `LocalFault`, if it is one."""
    if isinstance(error, LocalFault):
        return error
    reason = local_reason_of(error)
    return None if reason is None else local_fault(reason, str(error)[:200])


# ---- the network

# Documentation addresses (RFC 5737, RFC 3849): only a default route leads to them.
DEFAULT_ROUTE_ADDRESSES: Final = ("198.51.100.1", "2001:db8::1")

_NO_ROUTE: Final = frozenset(
    (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL)
)
_PORT: Final = 9  # discard


def has_route(address: str) -> bool:
    """Whether this machine has a route to an address; True where that is unknown.

    Connecting a UDP socket tells, and sends nothing.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _PORT))
    except OSError as error:
        return error.errno not in _NO_ROUTE and error.errno != errno.EAFNOSUPPORT
    return True


class Network:
    """Decides whether the network is gone: no route to a host, to the last one reached, or at all.

    So a host that cannot be reached while others can is unreachable itself, and an internal network
    without a default route counts as a network.
    """

    def __init__(self, has_route: Callable[[str], bool] = has_route) -> None:
        self._has_route = has_route
        self._reached = ""
        self._is_loopback = True

    def reached(self, address: str) -> None:
        """Remember an address that was connected to; a loopback address proves less than others."""
        is_loopback = _is_loopback(address)
        if address and (self._is_loopback or not is_loopback):
            self._reached, self._is_loopback = address, is_loopback

    def leads_to(self, addresses: Iterable[str]) -> bool:
        """Whether there is a route to one of these addresses."""
        return any(map(self._has_route, addresses))

    def is_gone(self, addresses: Iterable[str] = ()) -> bool:
        """Whether there is no route to these, to the address reached last, or to the internet."""
        known = (self._reached,) if self._reached else ()
        return not self.leads_to((*addresses, *known, *DEFAULT_ROUTE_ADDRESSES))


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return True


# ---- descriptors

WANTED_LIMIT: Final = 65_536  # the limit is raised to this, where the system permits
RESERVED_DESCRIPTORS: Final = (
    128  # for the store, output, child processes and clients of the control socket
)
# One for the connection; more for a moment, while addresses are tried or a name is looked up.
DESCRIPTORS_PER_VISIT: Final = 2


def raise_limit(enough: int = WANTED_LIMIT) -> int:
    """Raise the soft limit of open files as far as the hard one permits; return the new limit."""
    soft, hard = _limits()
    wanted = max(soft, min(enough, hard))
    while wanted > soft:
        # A system may have a limit below the hard one: macOS names none, and permits 10,240.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(_FILES)[1]))
            return wanted
        wanted //= 2
    return soft


_FILES: Final = resource.RLIMIT_NOFILE


def _limits() -> tuple[int, int]:
    """Return the soft and the hard limit; no limit is a very large number."""
    soft, hard = resource.getrlimit(_FILES)
    none = resource.RLIM_INFINITY
    return (2**31 if soft == none else soft), (2**31 if hard == none else hard)


def idle_connections(wanted: int, visits: int) -> int:
    """Return how many idle connections may be kept beside so many visits; at least one."""
    left = _limits()[0] - RESERVED_DESCRIPTORS - DESCRIPTORS_PER_VISIT * visits
    return max(1, min(wanted, left))


def descriptor_shortage(visits: int) -> str:
    """Return a warning if so many visits may run out of descriptors; "": they cannot."""
    limit = _limits()[0]
    if limit >= RESERVED_DESCRIPTORS + visits:
        return ""
    wanted = RESERVED_DESCRIPTORS + DESCRIPTORS_PER_VISIT * visits
    return (
        f"{limit:,} open files are allowed, few for {visits:,} visits at one time: "
        f"raise the limit (ulimit -n {wanted}), or lower executor.slots"
    )
