"""The guard against being sent into somebody's network: it sees every address before it is used.

A name is judged by what it resolves to, each time, and a socket's own address once more before it
connects; so neither a name that changes its mind nor a literal address gets past (K5).
"""

from __future__ import annotations

import socket

from aiohttp import AddrInfoType

from outrider.core.addresses import special_block
from outrider.fetch.reasons import PRIVATE_ADDRESS, Hindered


def is_guarded(address: str) -> bool:
    """Whether nobody on the public internet has this address; nor has what is no address at all."""
    try:
        return special_block(address) is not None
    except ValueError:
        return True


class Guard:
    """Which addresses may be connected to: public ones, and those a person named."""

    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private
        self._named: set[tuple[str, int]] = set()

    def name(self, address: str, port: int) -> None:
        """Permit an address that settings name."""
        self._named.add((address, port))

    def permits(self, address: str) -> bool:
        """Whether a host may lead us there."""
        return self._allow_private or not is_guarded(address)

    def allows(self, address: str, port: int) -> bool:
        """Whether we may connect there."""
        return self.permits(address) or (address, port) in self._named

    def socket(self, info: AddrInfoType) -> socket.socket:
        """A socket for an address that is permitted."""
        family, kind, protocol, _, place = info
        if not self.allows(place[0], place[1]):
            raise Hindered(PRIVATE_ADDRESS)
        return socket.socket(family, kind, protocol)
