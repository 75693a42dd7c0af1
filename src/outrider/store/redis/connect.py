"""Connecting to a server: reading its URL, making a client, checking that the server will do.

A URL is checked before any connection is made. Connecting is retried, with jitter; a command never
is, since its effect may have happened although its answer was lost. A server is checked before it
is used (M5): version, role, memory policy, permissions, and whose keys are under the prefix. What
it does not let this user ask is reported as unchecked; its durability is one sentence.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from redis import exceptions as driver
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff

from outrider.errors import InvalidInput, StoreError, StoreUnavailable, StoreUnusable
from outrider.store.address import FIX, HIDDEN, is_option, unreadable
from outrider.store.redis.keys import PREFIX
from outrider.store.redis.rows import FORMAT
from outrider.store.redis.script_client import SCRIPTS, ScriptClient, translate_error

MAX_CONNECTIONS: Final = 10
CONNECT_TIMEOUT: Final = 4.0  # seconds to wait for a free connection, and for a new one
ANSWER_TIMEOUT: Final = 20.0  # seconds to wait for an answer
CONNECT_RETRIES: Final = 3
MAX_CONNECT_TIME: Final = 10.0  # seconds for all attempts, what a server asks first included
UPGRADE_STEP: Final = 1000  # tasks that one call brings up to date
MIN_VERSION: Final = {"redis": (6, 2), "valkey": (7, 2)}

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
    """The parts of a URL."""

    url: str  # for the driver
    prefix: str
    place: str  # for messages: without the password

    def __repr__(self) -> str:
        return f"Address({self.place!r}, prefix={self.prefix!r})"


def address_of(url: str, *, also: tuple[str, ...] = ()) -> Address:
    """Read a URL, or raise what is wrong with it; `also` are more options it may have."""
    check_url(url)
    parts = urlsplit(url)
    place = f"{parts.hostname or 'localhost'}:{_port_of(parts) or 6379}"
    if parts.scheme not in _SCHEMES:
        raise InvalidInput(
            f"{parts.scheme}:// is no URL of Redis: write one of {', '.join(_SCHEMES)}"
        )
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
    _check_database(parts.scheme, parts.path, options.get("db", "0"))
    plain = parts._replace(scheme=_SCHEMES[parts.scheme], query=urlencode(options))
    place = f"unix:{parts.path}" if parts.scheme == "unix" else place
    return Address(urlunsplit(plain), prefix, place)


def _port_of(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:  # its message may quote a part of the password
        what = f"{parts.scheme}://{HIDDEN}: the port is no number from 0 to 65535"
        raise InvalidInput(f"{what}; check the port of the URL: {FIX}") from None


def check_url(url: str) -> None:
    """Refuse a URL that is split inside a password: a message could quote a part of it."""
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may quote the URL
        raise unreadable(scheme) from None
    behind = (parts.query, parts.path if parts.netloc else "")
    if parts.fragment or any("@" in part for part in behind):
        raise unreadable(scheme)


def _unknown(name: str, known: tuple[str, ...]) -> str:
    close = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, known, 1))
    return f"unknown option {name!r} in the URL of Redis: not one of {', '.join(known)}{close}"


def _check_database(scheme: str, path: str, option: str) -> None:
    database = option if scheme == "unix" else path.strip("/") or option
    if not re.fullmatch("[0-9]{1,4}", database):
        raise InvalidInput(f"the database {database!r} must be a number, as in redis://host:6379/0")


def client_of(address: Address) -> Redis:
    """Return a client with a pool of bounded size."""
    options: dict[str, Any] = dict(parse_url(address.url))
    kind = options.pop("connection_class", None) or _plain_connection()
    pool = BlockingConnectionPool(
        max_connections=MAX_CONNECTIONS,
        timeout=CONNECT_TIMEOUT,
        connection_class=type("RetryingConnection", (_RetryingConnect, kind), {}),
        socket_connect_timeout=CONNECT_TIMEOUT,
        socket_timeout=ANSWER_TIMEOUT,
        protocol=2,
        **options,
    )
    return Redis.from_pool(pool)


def _plain_connection() -> type[AbstractConnection]:
    from redis.asyncio import Connection  # noqa: PLC0415 - beside its two special forms

    return Connection


class _RetryingConnect(AbstractConnection):
    """Retries connecting, and no command; joined with the driver's class for the URL's scheme."""

    async def connect(self) -> None:
        """See the driver; a server that takes connections and answers nothing is given up."""
        self.retry = Retry(ExponentialWithJitterBackoff(cap=1.0, base=0.05), CONNECT_RETRIES)
        try:
            async with asyncio.timeout(MAX_CONNECT_TIME):
                await super().connect()  # type: ignore[no-untyped-call] # the driver's
        except TimeoutError as error:
            await self.disconnect(nowait=True)
            text = f"no answer within {MAX_CONNECT_TIME:.0f} s"
            raise driver.TimeoutError(text) from error
        finally:
            self.retry = Retry(NoBackoff(), 0)


# ---- checking the server

_FSYNC: Final = {
    "always": "appendfsync always: every answered call survives a crash of the server",
    "everysec": "appendfsync everysec: a crash of the server loses up to 1 s",
    "no": "appendfsync no: a crash of the machine loses what the system had not written yet",
}
KEPT_PROMISES: Final = (_FSYNC["always"], _FSYNC["everysec"])
_NO_PERSISTENCE: Final = "no persistence: a crash or restart of the server loses everything"
_SNAPSHOTS: Final = "snapshots alone: a crash of the server loses all since the last ({})"
UNKNOWN_PROMISE: Final = (
    "what its persistence promises could not be checked: CONFIG is forbidden here"
)


async def check_server(scripts: ScriptClient, place: str, *, is_cluster: bool = False) -> str:
    """Return what the server's persistence promises; refuse a server that will not do."""
    try:
        info = await server_info(scripts)
    except (driver.RedisError, driver.RedisClusterException, OSError) as error:
        raise connect_error(error, place) from error
    check_version(info, place)
    check_role(info, place, is_cluster=is_cluster)
    check_policy(info, place)
    return await durability_promise(scripts, info)


async def server_info(scripts: ScriptClient) -> Mapping[str, Any]:
    """Return what INFO says; nothing if the server does not let this user ask."""
    try:
        found = await scripts.client.execute_command("INFO")
    except driver.NoPermissionError:
        return {}  # managed servers may forbid INFO
    return found if isinstance(found, dict) else {}


def connect_error(error: Exception, place: str) -> StoreError:
    """Return why the server cannot be used, and the fix."""
    text = str(error)
    if "SSL" in text or "certificate" in text.lower():
        return StoreUnusable(
            f"TLS with Redis at {place} failed ({text}): renew the certificate, name its"
            " authority with ?ssl_ca_certs=FILE, or use redis:// if the server has no TLS"
        )
    if isinstance(error, driver.InvalidResponse) or "rotocol" in text:
        return StoreUnusable(
            f"what answers at {place} is no Redis ({text}): check the host and port of the URL"
        )
    if isinstance(error, driver.AuthenticationError) or "NOAUTH" in text or "WRONGPASS" in text:
        return StoreUnusable(
            f"Redis at {place} refused the user or the password ({text}):"
            " write them as redis://user:password@host"
        )
    if "invalid DB index" in text or "DB index is out of range" in text:
        return StoreUnusable(
            f"Redis at {place} has no such database ({text}): write /0 behind the port"
        )
    found = translate_error(error)
    if isinstance(found, StoreUnavailable):
        return StoreUnavailable(f"no Redis answers at {place} ({text}): is it running?")
    return found


def check_version(info: Mapping[str, Any], place: str) -> None:
    """Raise `StoreUnusable` for a server that is too old."""
    kind = "valkey" if "valkey_version" in info else "redis"
    version = str(info.get(f"{kind}_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < MIN_VERSION[kind]:
        minimum = ".".join(map(str, MIN_VERSION[kind]))
        raise StoreUnusable(
            f"{kind.title()} at {place} is {version}, and {minimum} is the oldest that will do:"
            " upgrade it"
        )


def check_role(info: Mapping[str, Any], place: str, *, is_cluster: bool) -> None:
    """Raise `StoreUnusable` for a replica, and for a node of a cluster opened by itself."""
    if info.get("role", "master") not in ("master", "primary"):
        raise StoreUnusable(f"Redis at {place} is a replica, which is read-only: name its primary")
    if info.get("cluster_enabled") in (1, "1") and not is_cluster:
        raise StoreUnusable(
            f"Redis at {place} is a node of a cluster: open it as redis+cluster://{place}"
        )


def check_policy(info: Mapping[str, Any], place: str) -> None:
    """Raise `StoreUnusable` for a server that evicts keys."""
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreUnusable(
            f"Redis at {place} evicts keys when its memory is full (maxmemory-policy {policy}):"
            " set maxmemory-policy noeviction"
        )


async def durability_promise(scripts: ScriptClient, info: Mapping[str, Any]) -> str:
    """Return what the server's persistence promises, in one sentence."""
    if info.get("aof_enabled") not in (0, "0", None):
        fsync = await read_setting(scripts, "appendfsync")
        return UNKNOWN_PROMISE if fsync is None else _FSYNC.get(fsync, f"appendfsync {fsync}")
    save = await read_setting(scripts, "save")
    if save is None:
        return UNKNOWN_PROMISE
    return _SNAPSHOTS.format(f"save {save}") if save else _NO_PERSISTENCE


async def read_setting(scripts: ScriptClient, name: str) -> str | None:
    """Return a setting of the server; None: it does not let this user ask."""
    try:
        found = await scripts.client.execute_command("CONFIG GET", name)
    except driver.ResponseError:
        return None  # managed servers forbid it
    values = list(found.values()) if isinstance(found, dict) else list(found)[1:]
    value = values[0] if values else None
    return value.decode() if isinstance(value, bytes) else value


async def init_store(scripts: ScriptClient, place: str, *, shard: int = 0, shards: int = 1) -> str:
    """Return the store's id; create the store if there is none, refuse keys of other programs."""
    try:
        found = await scripts.evaluate(
            SCRIPTS["init_store"], 1, scripts.base, FORMAT, uuid.uuid4().hex, shard, shards
        )
    except (driver.RedisError, driver.RedisClusterException, OSError) as error:
        raise connect_error(error, place) from error
    words = [word.decode() if isinstance(word, bytes) else str(word) for word in found]
    match words:
        case ["foreign", key]:
            raise StoreUnusable(
                f"Redis at {place} has a key {key!r} that is not Outrider's:"
                " choose another prefix with ?prefix="
            )
        case ["format", version]:
            raise StoreUnusable(
                f"the store at {place} was written by a newer Outrider (format {version}, this"
                f" one reads {FORMAT}): upgrade this one"
            )
        case ["refused", command, why]:
            raise StoreUnusable(
                f"Redis at {place} does not let this user call {command} ({why}):"
                f" ACL SETUSER name +@all ~{scripts.base.split(':')[0]}:* grants all it needs"
            )
        case [version, store_id, was_shard, of_shards]:
            _check_shard(place, (int(was_shard), int(of_shards)), (shard, shards))
            if int(version) < FORMAT:
                await upgrade_store(scripts)
            return store_id
        case _:
            raise StoreUnusable(
                f"the store at {place} says {words!r}, which is not Outrider's:"
                " choose another prefix with ?prefix="
            )


async def upgrade_store(scripts: ScriptClient, *, step: int = UPGRADE_STEP) -> None:
    """Bring a store of an older format up to date, in bounded steps; processes may do so at once.

    Those that still run the older release must have ended: what they add is not in the new format.
    """
    for crawl in await scripts.crawl_names():
        while await scripts.run("upgrade", crawl, step):
            pass
    await scripts.run("upgrade", "", 0)


def _check_shard(place: str, was: tuple[int, int], now: tuple[int, int]) -> None:
    if was != now:
        raise StoreUnusable(
            f"the store at {place} is shard {was[0]} of {was[1]}, and was opened as shard"
            f" {now[0]} of {now[1]}:"
            " open it under the URL it was made with"
        )
