"""Faults of this machine: which errors they are, and what is said of each.

A local fault is a lack of descriptors, memory, threads, processes, ports, disk space or network on
the machine Outrider runs on. It is never charged to a page or to a host: the visit is released and
the executor pauses (executor/fault_pause.py). A reason that begins with `local:` names one.

The network as this machine sees it: whether there is a route to anywhere at all.

A route is asked for by connecting a UDP socket, which sends nothing. The network counts as gone if
there is a route neither to the addresses in question, nor to the one that was reached last, nor to
the rest of the internet. So a host that cannot be reached while others can is at fault itself, and
an internal network without a default route is a network.

File descriptors of this process: the limit is raised, and shared out among connections.

A visit takes a descriptor for its connection, and more for a moment while addresses of a host are
tried beside each other or a name is looked up. What is left over may be kept as idle connections.
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

# ==== local_faults

LOCAL_PREFIX: Final = "local"  # the first word of such a reason

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
_MAX_CAUSES: Final = 10  # causes that are looked through


def is_local(reason: str) -> bool:
    """Whether a reason names a fault of this machine."""
    return reason.partition(":")[0] == LOCAL_PREFIX


def local_fault(reason: str, detail: str = "") -> LocalFault:
    """A reason of the table as the exception that ends a visit without an outcome."""
    wrong, fix = FAULTS[reason]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return LocalFault(f"{wrong.format(files=files, detail=detail)}; {fix}", reason)


def local_reason_of(error: BaseException | None) -> str | None:
    """The reason that an error stands for, or its causes; None: it is no fault of this machine."""
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
        case socket.gaierror():  # its numbers are not those of other errors
            return ENOMEM if error.errno == socket.EAI_MEMORY else None
        case OSError():
            return _reason_of_errno(error)
        case RuntimeError() if str(error) == _NO_THREAD:
            return THREADS
        case _:
            return None


def _reason_of_errno(error: OSError) -> str | None:
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


# ==== network

# Documentation addresses (RFC 5737, RFC 3849): only a default route leads to them.
DEFAULT_ROUTE_ADDRESSES: Final = ("198.51.100.1", "2001:db8::1")

_NO_ROUTE: Final = frozenset(
    (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL)
)
_PORT: Final = 9  # discard


def has_route(address: str) -> bool:
    """Whether this machine knows a way to an address; True where that cannot be found out."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _PORT))
    except OSError as error:
        return error.errno not in _NO_ROUTE and error.errno != errno.EAFNOSUPPORT
    return True


class Network:
    """Remembers what was reached, and says whether the network is gone."""

    def __init__(self, has_route: Callable[[str], bool] = has_route) -> None:
        self._has_route = has_route
        self._reached = ""
        self._is_loopback = True

    def reached(self, address: str) -> None:
        """A connection was made; an address of this machine itself proves less than others do."""
        is_loopback = _is_loopback(address)
        if address and (self._is_loopback or not is_loopback):
            self._reached, self._is_loopback = address, is_loopback

    def leads_to(self, addresses: Iterable[str]) -> bool:
        """Whether there is a route to one of these."""
        return any(map(self._has_route, addresses))

    def is_gone(self, addresses: Iterable[str] = ()) -> bool:
        """Whether there is no route: to these, to what was reached last, to anywhere."""
        known = (self._reached,) if self._reached else ()
        return not self.leads_to((*addresses, *known, *DEFAULT_ROUTE_ADDRESSES))


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return True


# ==== descriptors

WANTED_LIMIT: Final = 65_536  # the limit is raised to this, if the system lets us
RESERVED_DESCRIPTORS: Final = (
    128  # for the store, output, parser processes and clients of the control socket
)
DESCRIPTORS_PER_VISIT: Final = 2


def raise_limit(enough: int = WANTED_LIMIT) -> int:
    """Raise the soft limit of open files as far as the hard one allows; the limit that holds."""
    soft, hard = _limits()
    wanted = max(soft, min(enough, hard))
    while wanted > soft:
        # A system may have a limit below the hard one: macOS names none, and allows 10,240.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(_FILES)[1]))
            return wanted
        wanted //= 2
    return soft


_FILES: Final = resource.RLIMIT_NOFILE


def _limits() -> tuple[int, int]:
    """The soft and the hard limit; none is a very large one."""
    soft, hard = resource.getrlimit(_FILES)
    none = resource.RLIM_INFINITY
    return (2**31 if soft == none else soft), (2**31 if hard == none else hard)


def idle_connections(wanted: int, visits: int) -> int:
    """How many idle connections may be kept beside so many visits at one time; at least one."""
    left = _limits()[0] - RESERVED_DESCRIPTORS - DESCRIPTORS_PER_VISIT * visits
    return max(1, min(wanted, left))


def descriptor_shortage(visits: int) -> str:
    """What to say if so many visits at one time may run out of descriptors; "": they do not."""
    limit = _limits()[0]
    if limit >= RESERVED_DESCRIPTORS + visits:
        return ""
    wanted = RESERVED_DESCRIPTORS + DESCRIPTORS_PER_VISIT * visits
    return (
        f"{limit:,} open files are allowed, few for {visits:,} visits at one time: "
        f"raise the limit (ulimit -n {wanted}), or lower executor.slots"
    )
