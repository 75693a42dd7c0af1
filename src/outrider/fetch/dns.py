"""Addresses of hosts: lookups, `fetch.connect_to`, and the guard against private addresses (K5).

The guard checks what a name resolves to, at each lookup, and the address of every socket before it
connects; so neither a name that changes its address nor a literal address gets past it.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

from aiohttp import AddrInfoType
from aiohttp.abc import AbstractResolver, ResolveResult

from outrider.core.addresses import special_block
from outrider.errors import SettingsError
from outrider.fetch.local_faults import is_local, local_reason_of
from outrider.fetch.response import PRIVATE_ADDRESS, NoConnection


def is_special_address(address: str) -> bool:
    """Whether an address is not on the public internet; so is what is no address at all."""
    try:
        return special_block(address) is not None
    except ValueError:
        return True


class AddressGuard:
    """Decides which addresses may be connected to: public ones, and those that settings name."""

    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private
        self._allowed: set[tuple[str, int]] = set()

    def allow(self, address: str, port: int) -> None:
        """Allow an address that settings name."""
        self._allowed.add((address, port))

    def permits(self, address: str) -> bool:
        """Whether a host's name may resolve to this address."""
        return self._allow_private or not is_special_address(address)

    def allows(self, address: str, port: int) -> bool:
        """Whether this address may be connected to."""
        return self.permits(address) or (address, port) in self._allowed

    def socket(self, info: AddrInfoType) -> socket.socket:
        """Open a socket for an address; raise `NoConnection` unless it is allowed."""
        family, kind, protocol, _, place = info
        if not self.allows(place[0], place[1]):
            raise NoConnection(PRIVATE_ADDRESS)
        return socket.socket(family, kind, protocol)


# ---- fetch.connect_to

_ADDRESS_PORT: Final = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/\s]+))(?::(\d{1,5}))?", re.ASCII
)


class ConnectTarget(NamedTuple):
    """Where to connect instead: an address or a name, and a port unless the URL's is kept."""

    address: str
    port: int | None


class ConnectTo:
    """Targets by host name, by suffix (`.example.org`), or for all hosts (`.`).

    URL, Host header and TLS name stay as they are.
    """

    def __init__(self, connect_to: Mapping[str, str]) -> None:
        self._targets = {
            host.lower() or ".": _parse_target(host, place) for host, place in connect_to.items()
        }

    def of(self, host: str) -> ConnectTarget | None:
        """Return the target of the most specific entry."""
        if not self._targets:
            return None
        host = host.rstrip(".")
        found, at = self._targets.get(host), 0
        while found is None and (at := host.find(".", at)) >= 0:
            found = self._targets.get(host[at:])
            at += 1
        return found or self._targets.get(".")


def _parse_target(host: str, place: str) -> ConnectTarget:
    parts = _ADDRESS_PORT.fullmatch(place)
    if parts is None or int(parts[3] or 0) > 0xFFFF:
        raise SettingsError(f'fetch.connect_to["{host}"]: write address:port, not "{place}"')
    return ConnectTarget(parts[1] or parts[2], int(parts[3]) if parts[3] else None)


# ---- lookups

MAX_NAMES: Final = 20_000  # names whose addresses are cached
FAILURE_MAX_AGE: Final = 5.0  # seconds
MAX_PER_FAMILY: Final = 2  # addresses tried: for a dead host, each costs an attempt or more
LOOKUP_THREADS: Final = 32  # lookups at one time

NO_SUCH_HOST: Final = "dns: no such host"
NO_ANSWER: Final = "dns: no answer"
LOOKUP_FAILED: Final = "dns: failed"
RESOLVING_NOTE: Final = "while resolving"  # added to the exception that ended the wait
# Reasons that may be the resolver's fault.
RESOLVER_SUSPECTED: Final = frozenset((NO_ANSWER, LOOKUP_FAILED, "dns: time limit"))
CHECK_TIMEOUT: Final = 10.0  # seconds for the resolver to find a name that it found before
CHECK_MAX_AGE: Final = 1.0  # seconds the result of that check is reused

Lookup: TypeAlias = Callable[[str], Awaitable[tuple[str, ...]]]

_REASONS: Final = {
    socket.EAI_NONAME: NO_SUCH_HOST,
    getattr(socket, "EAI_NODATA", socket.EAI_NONAME): NO_SUCH_HOST,
    socket.EAI_AGAIN: NO_ANSWER,
}


class _CachedLookup(NamedTuple):
    addresses: tuple[str, ...]
    reason: str  # why there are no addresses
    until: float


_CLOSED: Final = _CachedLookup((), LOOKUP_FAILED, 0.0)


class Resolver(AbstractResolver):
    """Resolves host names for both HTTP clients, caching results.

    One lookup of a name serves all callers, and continues when they are cancelled. A failure is
    cached briefly, and a local fault not at all. The system's resolver counts as failing if it does
    not find the name that it found last.
    """

    def __init__(
        self,
        guard: AddressGuard,
        targets: ConnectTo,
        *,
        max_age: float,
        lookup: Lookup | None = None,
    ) -> None:
        self._guard = guard
        self._targets = targets
        self._max_age = max_age
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, "outrider-dns")
        self._lookup = lookup or self._ask_system
        self._known: OrderedDict[str, _CachedLookup] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[_CachedLookup]] = {}
        self._last_found = ""  # the last name that was resolved
        self._checking: asyncio.Task[bool] | None = None
        self._checked_at = 0.0

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - aiohttp's signature
    ) -> list[ResolveResult]:
        """Return the addresses to try, best first; raise `NoConnection` if there are none."""
        target = self._targets.of(host)
        if target is not None:
            return await self._resolve_target(host, port, target)
        addresses = [each for each in await self._addresses(host) if self._guard.permits(each)]
        if not addresses:
            raise NoConnection(PRIVATE_ADDRESS)
        return [_result(host, address, port) for address in _first_of_each_family(addresses)]

    async def _resolve_target(
        self, host: str, port: int, target: ConnectTarget
    ) -> list[ResolveResult]:
        port = target.port or port
        addresses = await self._addresses(target.address)
        for address in addresses:
            self._guard.allow(address, port)
        return [_result(host, address, port) for address in _first_of_each_family(addresses)]

    async def _addresses(self, host: str) -> tuple[str, ...]:
        if _is_literal(host):
            return (host,)
        known = self._known.get(host)
        if known is None or known.until <= asyncio.get_running_loop().time():
            known = await self._look_up(host)
        if not known.addresses:
            raise NoConnection(known.reason)
        return known.addresses

    async def _look_up(self, host: str) -> _CachedLookup:
        task = self._lookups.get(host)
        if task is None:
            task = self._lookups[host] = asyncio.create_task(self._look_up_uncached(host))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            error.add_note(RESOLVING_NOTE)
            raise
        return _CLOSED if task.cancelled() else task.result()

    async def _look_up_uncached(self, host: str) -> _CachedLookup:
        addresses: tuple[str, ...] = ()
        reason = NO_SUCH_HOST
        try:
            addresses = await self._lookup(host)
        except UnicodeError:  # not a host name
            pass
        except (OSError, MemoryError, RuntimeError) as error:
            reason = _reason_of(error)
        finally:
            del self._lookups[host]
        return self._cache_lookup(host, addresses, reason)

    def _cache_lookup(self, host: str, addresses: tuple[str, ...], reason: str) -> _CachedLookup:
        if is_local(reason):
            return _CachedLookup((), reason, 0.0)
        if addresses:
            self._last_found = host
        age = self._max_age if addresses else min(self._max_age, FAILURE_MAX_AGE)
        known = _CachedLookup(addresses, reason, asyncio.get_running_loop().time() + age)
        self._known[host] = known
        self._known.move_to_end(host)
        if len(self._known) > MAX_NAMES:
            self._known.popitem(last=False)
        return known

    def known(self, host: str) -> tuple[str, ...]:
        """Return the cached addresses of a host; no lookup is made."""
        target = self._targets.of(host)
        name = host if target is None else target.address
        if _is_literal(name):
            return (name,)
        known = self._known.get(name)
        return () if known is None else known.addresses

    async def is_failing(self, host: str) -> bool:
        """Whether the system's resolver fails, as the lookup of `host` suggests."""
        if not self._last_found or self._last_found == host:
            return False
        now, checking = asyncio.get_running_loop().time(), self._checking
        if checking is None or (checking.done() and now - self._checked_at > CHECK_MAX_AGE):
            checking = self._checking = asyncio.create_task(self._check(self._last_found))
        await asyncio.wait((checking,))
        return not checking.cancelled() and checking.result()

    async def _check(self, name: str) -> bool:
        is_failing = False
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await self._lookup(name)
        except (OSError, RuntimeError, MemoryError, UnicodeError):  # TimeoutError is an OSError
            is_failing = True
        self._checked_at = asyncio.get_running_loop().time()
        return is_failing

    async def _ask_system(self, host: str) -> tuple[str, ...]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _system_addresses, host)

    async def close(self) -> None:
        """Cancel all lookups; those in threads are left to end by themselves."""
        pending = [*self._lookups.values(), *([self._checking] if self._checking else [])]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)


def _system_addresses(host: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except socket.gaierror:
        # Without a free descriptor getaddrinfo reports any error: raise EMFILE instead.
        os.close(os.open(os.devnull, os.O_RDONLY))
        raise
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))


def _reason_of(error: Exception) -> str:
    """Return why a lookup failed; raise errors that are neither local faults nor DNS's."""
    local = local_reason_of(error)
    if local is not None:
        return local
    if isinstance(error, OSError):
        is_dns = isinstance(error, socket.gaierror)
        return _REASONS.get(error.errno or 0, LOOKUP_FAILED) if is_dns else LOOKUP_FAILED
    raise error


def _is_literal(host: str) -> bool:
    if not (host[-1:].isdigit() or ":" in host):
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _first_of_each_family(addresses: Iterable[str]) -> Iterable[str]:
    """Return the first addresses of each family, in order."""
    families: dict[bool, list[str]] = {}
    for address in addresses:
        families.setdefault(":" in address, []).append(address)
    return chain.from_iterable(islice(family, MAX_PER_FAMILY) for family in families.values())


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=family,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST,
    )
