"""URL → a client: what is wrong with a URL is told by name, before anybody is asked anything.

A connection that fails while it is made is made again, with jitter; a command never is, since its
answer may be lost and not its effect.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff

from outrider.errors import InvalidInput
from outrider.store.address import FIX, HIDDEN, is_option, unreadable
from outrider.store.redis.keys import PREFIX

CONNECTIONS: Final = 10
PATIENCE: Final = 4.0  # seconds to wait for a free connection, and for a new one
ANSWER: Final = 20.0  # seconds to wait for an answer
TRIES: Final = 3  # to connect

_SCHEMES: Final = {
    "redis": "redis",
    "valkey": "redis",
    "rediss": "rediss",
    "valkeys": "rediss",
    "unix": "unix",
}
_TLS: Final = (
    *("ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname", "ssl_certfile", "ssl_keyfile"),
)
_is_prefix = re.compile(r"[A-Za-z0-9_.:-]{1,100}").fullmatch


class Address(NamedTuple):
    """What a URL says."""

    url: str  # for the driver
    prefix: str
    place: str  # for people: no password in it

    def __repr__(self) -> str:
        return f"Address({self.place!r}, prefix={self.prefix!r})"


def address_of(url: str, *, also: tuple[str, ...] = ()) -> Address:
    """Read a URL; what is wrong with it is told by name. `also` are more options it may have."""
    check_url(url)
    parts = urlsplit(url)
    place = f"{parts.hostname or 'localhost'}:{_port_of(parts) or 6379}"
    if parts.scheme not in _SCHEMES:
        raise InvalidInput(f"{parts.scheme}:// is no URL of Redis: {', '.join(_SCHEMES)}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not all(map(is_option, options)):
        raise unreadable(parts.scheme)
    prefix = options.pop("prefix", PREFIX)
    if not _is_prefix(prefix):
        raise InvalidInput(f"prefix={prefix!r} must be letters, digits or _.:- up to 100")
    known = (*_TLS, *also) if _SCHEMES[parts.scheme] == "rediss" else ("db", *also)
    for name in options:
        if name not in known:
            raise InvalidInput(_unknown(name, ("prefix", *known)))
    _checked_database(parts.scheme, parts.path, options.get("db", "0"))
    said = parts._replace(scheme=_SCHEMES[parts.scheme], query=urlencode(options))
    place = f"unix:{parts.path}" if parts.scheme == "unix" else place
    return Address(urlunsplit(said), prefix, place)


def _port_of(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:  # its text quotes what may be a part of the password
        what = f"{parts.scheme}://{HIDDEN}: the port is no number from 0 to 65535"
        raise InvalidInput(f"{what}; check the port of the URL: {FIX}") from None


def check_url(url: str) -> None:
    """Refuse a URL that is cut inside a password: any part of it would be quoted as another."""
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may quote the URL
        raise unreadable(scheme) from None
    behind = (parts.query, parts.path if parts.netloc else "")
    if parts.fragment or any("@" in part for part in behind):
        raise unreadable(scheme)


def _unknown(name: str, known: tuple[str, ...]) -> str:
    close = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, known, 1))
    return f"unknown option {name!r} in the URL of Redis: not one of {', '.join(known)}{close}"


def _checked_database(scheme: str, path: str, option: str) -> None:
    database = option if scheme == "unix" else path.strip("/") or option
    if not re.fullmatch("[0-9]{1,4}", database):
        raise InvalidInput(f"the database {database!r} must be a number, as in redis://host:6379/0")


def client_of(address: Address) -> Redis:
    """A client with a pool: ten connections, four seconds to wait for one."""
    said: dict[str, Any] = dict(parse_url(address.url))
    kind = said.pop("connection_class", None) or _plain_kind()
    pool = BlockingConnectionPool(
        max_connections=CONNECTIONS,
        timeout=PATIENCE,
        connection_class=type("Patient", (_Patient, kind), {}),
        socket_connect_timeout=PATIENCE,
        socket_timeout=ANSWER,
        protocol=2,
        **said,
    )
    return Redis.from_pool(pool)


def _plain_kind() -> type[AbstractConnection]:
    from redis.asyncio import Connection  # noqa: PLC0415 - beside its two special forms

    return Connection


class _Patient(AbstractConnection):
    """Tries again to connect, and nothing else."""

    async def connect(self) -> None:
        """See the driver: what fails before anything was asked may be repeated."""
        self.retry = Retry(ExponentialWithJitterBackoff(cap=1.0, base=0.05), TRIES)
        try:
            await super().connect()  # type: ignore[no-untyped-call] # the driver's
        finally:
            self.retry = Retry(NoBackoff(), 0)
