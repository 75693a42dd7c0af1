"""File descriptors of this process: the limit is raised, and shared out among connections.

A visit takes a descriptor for its connection, and more for a moment while addresses of a host are
tried beside each other or a name is looked up. What is left over may be kept as idle connections.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

ENOUGH: Final = 65_536  # the limit is raised to this, if the system lets us
RESERVED: Final = 128  # for the store, output, parser processes and clients of the control socket
PER_VISIT: Final = 2


def raise_limit(enough: int = ENOUGH) -> int:
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
    left = _limits()[0] - RESERVED - PER_VISIT * visits
    return max(1, min(wanted, left))


def shortage(visits: int) -> str:
    """What to say if so many visits at one time may run out of descriptors; "": they do not."""
    limit = _limits()[0]
    if limit >= RESERVED + visits:
        return ""
    return (
        f"{limit:,} open files are allowed, few for {visits:,} visits at one time: "
        f"raise the limit (ulimit -n {RESERVED + PER_VISIT * visits}), or lower executor.slots"
    )
