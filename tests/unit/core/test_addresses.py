"""The table of special-purpose addresses, against the registries written out by hand."""

from ipaddress import ip_address, ip_network

import pytest

from outrider.core import addresses
from outrider.core.addresses import special_block
from outrider.core.url import Refusal, parse_url
from outrider.fetch.dns import is_special_address

# Every row of the two IANA registries, multicast and what was deprecated; those that carry an IPv4
# address and are judged by it are below.
REGISTRIES = [
    *("0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32"),
    *("192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.0.192/32", "192.0.2.0/24"),
    *("192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
    *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    *("255.255.255.255/32", "::1/128", "::/128", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48"),
    *("100::/64", "100:0:0:1::/64", "2001::/23", "2001::/32", "2001:1::1/128", "2001:1::2/128"),
    *("2001:1::3/128", "2001:2::/48", "2001:3::/32", "2001:4:112::/48", "2001:10::/28"),
    *("2001:20::/28", "2001:30::/28", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20"),
    *("5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
]
EXAMPLES = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"]

# The neighbours of the blocks that are public.
PUBLIC = [
    *("1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"),
    *("128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0"),
    *("191.255.255.255", "192.0.1.0", "192.0.1.255", "192.0.3.0", "192.31.195.255", "192.31.197.0"),
    *("192.52.192.255", "192.52.194.0", "192.88.98.255", "192.88.100.0", "192.167.255.255"),
    *("192.169.0.0", "192.175.47.255", "192.175.49.0", "198.17.255.255", "198.20.0.0"),
    *("198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255"),
    *("2000::", "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:200::", "2001:4860:4860::8888"),
    *("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::", "2003::", "2606:4700::1111"),
    *("2620:4f:7fff:ffff:ffff:ffff:ffff:ffff", "2620:4f:8001::", "2a00:1450::"),
    *("3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "3fff:1000::"),
]
# Not assigned to anybody.
RESERVED = ["1::", "200::", "1fff:ffff::", "4000::", "5eff:ffff::", "5f01::", "8000::", "fe00::"]

CARRIERS = ["::ffff:{}", "64:ff9b::{}"]


def ends_of(network):
    """The first and the last address of a block."""
    block = ip_network(network)
    return [str(block[0]), str(block[-1])]


def literal(address):
    """The address as the host of a URL."""
    return f"http://[{address}]/" if ":" in address else f"http://{address}/"


@pytest.mark.parametrize("network", REGISTRIES)
def test_special_block_is_refused_from_its_first_address_to_its_last(network):
    """By the guard always; as the host of a URL, where no example needs it."""
    for address in ends_of(network):
        assert is_special_address(address)
        refused = parse_url(literal(address))
        assert isinstance(refused, Refusal) is (network not in EXAMPLES)


def test_every_row_of_the_table_is_in_the_registries():
    """None was made up, and none has a name or a source missing."""
    blocks = (*addresses.IPV4_BLOCKS, *addresses.IPV6_BLOCKS, *addresses.OTHER_IPV6_BLOCKS)
    assert {str(block.network) for block in blocks} <= set(REGISTRIES)
    assert {str(block.network) for block in blocks if block.is_example} == set(EXAMPLES)
    assert all(block.name and block.source.startswith("RFC ") for block in blocks)


@pytest.mark.parametrize("address", PUBLIC)
def test_neighbours_of_special_blocks_are_public(address):
    """The blocks end where they end, in every version of Python."""
    assert special_block(address) is None
    assert not isinstance(parse_url(literal(address)), Refusal)


@pytest.mark.parametrize("address", RESERVED)
def test_addresses_that_no_host_is_assigned_are_special(address):
    """Whatever IANA reserves next is guarded already."""
    assert special_block(address).name == "not assigned to hosts"
    assert is_special_address(address)


def carriers_of(address):
    """Spell an IPv4 address in the forms of IPv6 that carry one."""
    number = int(ip_address(address))
    relayed = f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"
    return [*(form.format(address) for form in CARRIERS), relayed]


@pytest.mark.parametrize("network", [each for each in REGISTRIES if ":" not in each])
def test_special_ipv4_address_inside_ipv6_is_special(network):
    """Mapped, translated, and relayed by 6to4."""
    for address in ends_of(network):
        assert all(map(is_special_address, carriers_of(address)))


@pytest.mark.parametrize("address", [each for each in PUBLIC if ":" not in each])
def test_public_ipv4_address_inside_ipv6_is_public(address):
    """Networks without IPv4 reach it that way."""
    assert not any(map(is_special_address, carriers_of(address)))


@pytest.mark.parametrize("address", ["fe80::1%eth0", "ff02::1%1", "2606:4700::1111%lo", "::1%x"])
def test_address_of_one_interface_is_special(address):
    """Only our own network can be meant."""
    assert is_special_address(address)


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "010.0.0.1", "[::1]", "1.2.3.4 "])
def test_what_is_no_address_is_guarded(text):
    """A resolver that returns such things is not trusted."""
    with pytest.raises(ValueError, match="address"):
        special_block(text)
    assert is_special_address(text)
