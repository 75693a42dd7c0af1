"""The guard against being sent into somebody's network: it sees every address before it is used.

A name is judged by what it resolves to, each time, and a socket's own address once more before it
connects; so neither a name that changes its mind nor a literal address gets past (K5).

Where connections go instead, by settings: URL, Host header and TLS name stay as they are.

Names become addresses here, remembered for a while, and only those that the guard permits.

One lookup of a name serves all who ask meanwhile, and goes on when they are gone. A failure is
remembered too, but not for long, and not at all if this machine is at fault. The resolver of this
machine counts as out if it does not find the name that it found last.
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

# ==== guard


def is_special_address(address: str) -> bool:
    """Whether nobody on the public internet has this address; nor has what is no address at all."""
    try:
        return special_block(address) is not None
    except ValueError:
        return True


class AddressGuard:
    """Which addresses may be connected to: public ones, and those a person named."""

    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private
        self._named: set[tuple[str, int]] = set()

    def name(self, address: str, port: int) -> None:
        """Permit an address that settings name."""
        self._named.add((address, port))

    def permits(self, address: str) -> bool:
        """Whether a host may lead us there."""
        return self._allow_private or not is_special_address(address)

    def allows(self, address: str, port: int) -> bool:
        """Whether we may connect there."""
        return self.permits(address) or (address, port) in self._named

    def socket(self, info: AddrInfoType) -> socket.socket:
        """A socket for an address that is permitted."""
        family, kind, protocol, _, place = info
        if not self.allows(place[0], place[1]):
            raise NoConnection(PRIVATE_ADDRESS)
        return socket.socket(family, kind, protocol)


# ==== targets

_ADDRESS_PORT: Final = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/\s]+))(?::(\d{1,5}))?", re.ASCII
)


class ConnectTarget(NamedTuple):
    """An address, or a name for one, and a port; without one, the URL's stays."""

    address: str
    port: int | None


class ConnectTo:
    """Who is reached elsewhere: a host by its name, those under a suffix, or everyone (`.`)."""

    def __init__(self, connect_to: Mapping[str, str]) -> None:
        self._targets = {
            host.lower() or ".": _parse_target(host, place) for host, place in connect_to.items()
        }

    def of(self, host: str) -> ConnectTarget | None:
        """The most exact entry's target."""
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


# ==== dns

MAX_NAMES: Final = 20_000  # remembered at most
FAILURE_MAX_AGE: Final = 5.0  # seconds
MAX_PER_FAMILY: Final = 2  # addresses tried: a dead host costs an attempt, or more, for each
LOOKUP_THREADS: Final = 32  # lookups at a time

NO_SUCH_HOST: Final = "dns: no such host"
NO_ANSWER: Final = "dns: no answer"
LOOKUP_FAILED: Final = "dns: failed"
RESOLVING_NOTE: Final = "while resolving"  # marks what ended the wait
# What is said of a name when it may be the resolver that does not answer.
RESOLVER_SUSPECTED: Final = frozenset((NO_ANSWER, LOOKUP_FAILED, "dns: time limit"))
CHECK_TIMEOUT: Final = 10.0  # seconds the resolver gets to find a name that it found before
CHECK_MAX_AGE: Final = 1.0  # seconds the answer to that holds

Lookup: TypeAlias = Callable[[str], Awaitable[tuple[str, ...]]]

_REASONS: Final = {
    socket.EAI_NONAME: NO_SUCH_HOST,
    getattr(socket, "EAI_NODATA", socket.EAI_NONAME): NO_SUCH_HOST,
    socket.EAI_AGAIN: NO_ANSWER,
}


class _CachedLookup(NamedTuple):
    addresses: tuple[str, ...]
    reason: str  # why there are none
    until: float


_CLOSED: Final = _CachedLookup((), LOOKUP_FAILED, 0.0)


class Resolver(AbstractResolver):
    """What aiohttp asks for the addresses of a host."""

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
        self._asking: dict[str, asyncio.Task[_CachedLookup]] = {}
        self._found = ""  # the name that was found last
        self._checking: asyncio.Task[bool] | None = None
        self._checked_at = 0.0

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - aiohttp's signature
    ) -> list[ResolveResult]:
        """The addresses to try, best first; a host without any is `Hindered`."""
        target = self._targets.of(host)
        if target is not None:
            return await self._named(host, port, target)
        addresses = [each for each in await self._addresses(host) if self._guard.permits(each)]
        if not addresses:
            raise NoConnection(PRIVATE_ADDRESS)
        return [_result(host, address, port) for address in _first_of_each_family(addresses)]

    async def _named(self, host: str, port: int, target: ConnectTarget) -> list[ResolveResult]:
        port = target.port or port
        addresses = await self._addresses(target.address)
        for address in addresses:
            self._guard.name(address, port)
        return [_result(host, address, port) for address in _first_of_each_family(addresses)]

    async def _addresses(self, host: str) -> tuple[str, ...]:
        if _is_literal(host):
            return (host,)
        known = self._known.get(host)
        if known is None or known.until <= asyncio.get_running_loop().time():
            known = await self._asked(host)
        if not known.addresses:
            raise NoConnection(known.reason)
        return known.addresses

    async def _asked(self, host: str) -> _CachedLookup:
        task = self._asking.get(host)
        if task is None:
            task = self._asking[host] = asyncio.create_task(self._ask(host))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            error.add_note(RESOLVING_NOTE)
            raise
        return _CLOSED if task.cancelled() else task.result()

    async def _ask(self, host: str) -> _CachedLookup:
        addresses: tuple[str, ...] = ()
        reason = NO_SUCH_HOST
        try:
            addresses = await self._lookup(host)
        except UnicodeError:  # no name at all
            pass
        except (OSError, MemoryError, RuntimeError) as error:
            reason = _reason_of(error)
        finally:
            del self._asking[host]
        return self._remembered(host, addresses, reason)

    def _remembered(self, host: str, addresses: tuple[str, ...], reason: str) -> _CachedLookup:
        if is_local(reason):
            return _CachedLookup((), reason, 0.0)
        if addresses:
            self._found = host
        age = self._max_age if addresses else min(self._max_age, FAILURE_MAX_AGE)
        known = _CachedLookup(addresses, reason, asyncio.get_running_loop().time() + age)
        self._known[host] = known
        self._known.move_to_end(host)
        if len(self._known) > MAX_NAMES:
            self._known.popitem(last=False)
        return known

    def known(self, host: str) -> tuple[str, ...]:
        """The addresses of a host as far as they are remembered; no lookup is made."""
        target = self._targets.of(host)
        name = host if target is None else target.address
        if _is_literal(name):
            return (name,)
        known = self._known.get(name)
        return () if known is None else known.addresses

    async def is_out(self, host: str) -> bool:
        """Whether this machine's resolver does not answer, as `host` makes one think."""
        if not self._found or self._found == host:
            return False
        now, checking = asyncio.get_running_loop().time(), self._checking
        if checking is None or (checking.done() and now - self._checked_at > CHECK_MAX_AGE):
            checking = self._checking = asyncio.create_task(self._check(self._found))
        await asyncio.wait((checking,))
        return not checking.cancelled() and checking.result()

    async def _check(self, name: str) -> bool:
        is_out = False
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                await self._lookup(name)
        except (OSError, RuntimeError, MemoryError, UnicodeError):  # TimeoutError is an OSError
            is_out = True
        self._checked_at = asyncio.get_running_loop().time()
        return is_out

    async def _ask_system(self, host: str) -> tuple[str, ...]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _system_addresses, host)

    async def close(self) -> None:
        """Ask no more; lookups under way are left to end by themselves."""
        asking = [*self._asking.values(), *([self._checking] if self._checking else [])]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)


def _system_addresses(host: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except socket.gaierror:
        # Without a descriptor it finds neither its files nor a server, and says anything at all.
        os.close(os.open(os.devnull, os.O_RDONLY))
        raise
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))


def _reason_of(error: Exception) -> str:
    """Why a name was not found; what is neither this machine's fault nor DNS is raised."""
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
    """Some of each family, in their order."""
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
