import socket

import pytest

from outrider.fetch.dns import AddressGuard, is_special_address
from outrider.fetch.response import NoConnection

PRIVATE = [
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),  # noqa: S104
    *("169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1", "192.0.2.1"),
    *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
    *("2002:7f00:1::", "2002:a00:1::", "2001::1", "::ffff:224.0.0.1"),
    *("localhost", "", "1.2.3"),
]
PUBLIC = ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101", "2002:101:101::"]


def info(address, port=80):
    """What a socket is asked to be made for."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_inside_networks_are_guarded(address):
    """Loopback, private, link-local, multicast, reserved, and any of them in IPv6's clothes."""
    assert is_special_address(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_not_guarded(address):
    """Also those that NAT64 and 6to4 translate, which is how some networks reach all the others."""
    assert not is_special_address(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:10.0.0.1"])
def test_no_socket_is_made_for_a_guarded_address(address):
    """The last check sees the very address that would be connected to."""
    with pytest.raises(NoConnection, match="private-address"):
        AddressGuard().socket(info(address))


def test_a_socket_is_made_for_what_is_permitted():
    """Public addresses, and all of them where private ones are allowed."""
    for guard, address in (
        (AddressGuard(), "1.1.1.1"),
        (AddressGuard(allow_private=True), "127.0.0.1"),
    ):
        with guard.socket(info(address)) as made:
            assert (made.family, made.type) == (socket.AF_INET, socket.SOCK_STREAM)


def test_a_named_address_is_exempt_with_its_port_only():
    """What settings name may be connected to; its neighbours on other ports may not."""
    guard = AddressGuard()
    guard.allow("127.0.0.1", 8080)
    guard.socket(info("127.0.0.1", 8080)).close()
    with pytest.raises(NoConnection):
        guard.socket(info("127.0.0.1", 22))
