"""The network as this machine sees it: whether there is a route to anywhere at all.

A route is asked for by connecting a UDP socket, which sends nothing. The network counts as gone if
there is a route neither to the addresses in question, nor to the one that was reached last, nor to
the rest of the internet. So a host that cannot be reached while others can is at fault itself, and
an internal network without a default route is a network.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Final

# Documentation addresses (RFC 5737, RFC 3849): only a default route leads to them.
ANYWHERE: Final = ("198.51.100.1", "2001:db8::1")

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
        return not self.leads_to((*addresses, *known, *ANYWHERE))


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return True
