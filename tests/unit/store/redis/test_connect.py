"""URLs of Redis: errors name what is wrong, and quote no password."""

import pytest

from outrider.errors import InvalidInput
from outrider.store.redis.connect import CONNECT_TIMEOUT, MAX_CONNECTIONS, address_of, client_of


@pytest.mark.parametrize(
    ("url", "prefix", "place"),
    [
        ("redis://host", "outrider", "host:6379"),
        ("redis://user:secret@host:7000/2", "outrider", "host:7000"),
        ("valkey://host/0?prefix=mine", "mine", "host:6379"),
        ("valkeys://host?ssl_ca_certs=/ca.pem", "outrider", "host:6379"),
        ("unix:///run/redis.sock?db=3&prefix=x", "x", "unix:/run/redis.sock"),
    ],
)
def test_url_names_place_and_prefix(url, prefix, place):
    """M1: a server or a socket, and a prefix of keys."""
    address = address_of(url)

    assert (address.prefix, address.place) == (prefix, place)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://host/nine", "database 'nine' must be a number"),
        ("redis://host:port/0", "check the port of the URL"),
        ("redis://host:99999/0", "check the port of the URL"),
        ("redis://host/0?prefx=a", "did you mean 'prefix'"),
        ("redis://host/0?ssl_ca_certs=/ca.pem", "unknown option 'ssl_ca_certs'"),
        ("redis://host/0?prefix={a}", "letters, digits"),
        ("redis://host/0?prefix=", "letters, digits"),
        ("http://host", "is no URL of Redis"),
    ],
)
def test_wrong_url_is_refused_by_name(url, says):
    """N2: the thing, the place, the fix; before any connection is made."""
    with pytest.raises(InvalidInput, match=says):
        address_of(url)


def test_password_is_not_quoted():
    """Messages go into logs."""
    assert "secret" not in address_of("redis://user:secret@host:7000/2").place
    with pytest.raises(InvalidInput) as refused:
        address_of("redis://user:secret@host/x?prefx=1")
    assert "secret" not in str(refused.value)


async def test_pool_is_bounded():
    """M5: ten connections, and four seconds to wait for one."""
    client = client_of(address_of("redis://host"))

    assert (
        (client.connection_pool.max_connections, client.connection_pool.timeout)
        == (
            MAX_CONNECTIONS,
            CONNECT_TIMEOUT,
        )
        == (10, 4.0)
    )
    await client.aclose()
