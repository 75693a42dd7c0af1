"""Special-purpose IP addresses: the table of blocks in which no public web server is (A2, K5).

The blocks are those of the IANA IPv4 and IPv6 Special-Purpose Address Registries (as of October
2025), multicast, and the deprecated forms of IPv6. They are listed here because the `ipaddress`
module knows fewer of them in some versions of Python than in others.

Where IANA calls a part of a block globally reachable (PCP and TURN anycast, AMT, AS112, ORCHIDv2,
drone identifiers), the block is listed all the same: these are served by the nearest machine, which
may be inside the network we run in, or carry no web at all. Of IPv6, only 2000::/3 is assigned to
hosts; everything else is special, but for the forms that carry an IPv4 address, which is judged.
"""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, NamedTuple


class Block(NamedTuple):
    """A block of addresses with its name in the registry and the RFC that reserves it."""

    network: IPv4Network | IPv6Network
    name: str
    source: str
    is_example: bool = False  # used in documentation: read as a URL, but never connected to


def _block(network: str, name: str, source: str, *, is_example: bool = False) -> Block:
    return Block(ip_network(network), name, source, is_example)


IPV4_BLOCKS: Final = (
    _block("0.0.0.0/8", "this network", "RFC 791"),
    _block("10.0.0.0/8", "private use", "RFC 1918"),
    _block("100.64.0.0/10", "shared address space", "RFC 6598"),
    _block("127.0.0.0/8", "loopback", "RFC 1122"),
    _block("169.254.0.0/16", "link-local", "RFC 3927"),
    _block("172.16.0.0/12", "private use", "RFC 1918"),
    # With DS-Lite, the dummy address, PCP and TURN anycast, and NAT64 discovery inside.
    _block("192.0.0.0/24", "IETF protocol assignments", "RFC 6890"),
    _block("192.0.2.0/24", "documentation (TEST-NET-1)", "RFC 5737", is_example=True),
    _block("192.31.196.0/24", "AS112-v4", "RFC 7535"),
    _block("192.52.193.0/24", "AMT", "RFC 7450"),
    _block("192.88.99.0/24", "6to4 relay anycast", "RFC 7526"),
    _block("192.168.0.0/16", "private use", "RFC 1918"),
    _block("192.175.48.0/24", "AS112 direct delegation", "RFC 7534"),
    _block("198.18.0.0/15", "benchmarking", "RFC 2544"),
    _block("198.51.100.0/24", "documentation (TEST-NET-2)", "RFC 5737", is_example=True),
    _block("203.0.113.0/24", "documentation (TEST-NET-3)", "RFC 5737", is_example=True),
    _block("224.0.0.0/4", "multicast", "RFC 5771"),
    _block("240.0.0.0/4", "reserved, and limited broadcast", "RFC 1112, RFC 8190"),
)

# Inside 2000::/3, which is assigned to hosts.
IPV6_BLOCKS: Final = (
    # With Teredo, benchmarking, AMT, AS112-v6, both ORCHIDs and drone identifiers inside.
    _block("2001::/23", "IETF protocol assignments", "RFC 2928"),
    _block("2001:db8::/32", "documentation", "RFC 3849", is_example=True),
    _block("2620:4f:8000::/48", "AS112 direct delegation", "RFC 7534"),
    _block("3fff::/20", "documentation", "RFC 9637"),
)

# Outside of it; the names of the parts are here, `_UNASSIGNED` is the rest.
OTHER_IPV6_BLOCKS: Final = (
    _block("::/128", "unspecified", "RFC 4291"),
    _block("::1/128", "loopback", "RFC 4291"),
    _block("::/96", "IPv4-compatible", "RFC 4291"),
    _block("::ffff:0:0:0/96", "IPv4-translated", "RFC 2765"),
    _block("64:ff9b:1::/48", "local-use IPv4/IPv6 translation", "RFC 8215"),
    _block("100::/64", "discard-only", "RFC 6666"),
    _block("100:0:0:1::/64", "dummy prefix", "RFC 9780"),
    _block("5f00::/16", "segment routing (SRv6)", "RFC 9602"),
    _block("fc00::/7", "unique local", "RFC 4193"),
    _block("fe80::/10", "link-local", "RFC 4291"),
    _block("fec0::/10", "site-local", "RFC 3879"),
    _block("ff00::/8", "multicast", "RFC 4291"),
)
_UNASSIGNED: Final = _block("::/0", "not assigned to hosts", "RFC 4291")
_SCOPED: Final = _block("::/0", "of one network interface", "RFC 4007")
_HOSTS: Final = IPv6Network("2000::/3")

# Forms that carry an IPv4 address, and the bits behind it.
_CARRIERS: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped, RFC 4291
    (IPv6Network("64:ff9b::/96"), 0),  # IPv4/IPv6 translation, RFC 6052
    (IPv6Network("2002::/16"), 80),  # 6to4, RFC 3056
)


def special_block(text: str) -> Block | None:
    """Find the special-purpose block of an address; raise `ValueError` for what is none."""
    address = ip_address(text)
    if isinstance(address, IPv4Address):
        return _found(address, IPV4_BLOCKS)
    if address.scope_id is not None:
        return _SCOPED
    for form, behind in _CARRIERS:
        if address in form:
            carried = IPv4Address(int(address) >> behind & 0xFFFFFFFF)
            return _found(carried, IPV4_BLOCKS)
    if address in _HOSTS:
        return _found(address, IPV6_BLOCKS)
    return _found(address, OTHER_IPV6_BLOCKS) or _UNASSIGNED


def _found(address: IPv4Address | IPv6Address, blocks: tuple[Block, ...]) -> Block | None:
    return next((block for block in blocks if address in block.network), None)
