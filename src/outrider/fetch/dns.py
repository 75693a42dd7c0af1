"""Names become addresses here, remembered for a while, and only those that the guard permits.

One lookup of a name serves all who ask meanwhile, and goes on when they are gone. A failure is
remembered too, but not for long.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

from outrider.fetch.guard import Guard
from outrider.fetch.reasons import PRIVATE_ADDRESS, Hindered
from outrider.fetch.targets import Target, Targets

NAMES: Final = 20_000  # remembered at most
FAILURE_AGE: Final = 5.0  # seconds
EACH_FAMILY: Final = 2  # addresses tried: a dead host costs an attempt, or more, for each
THREADS: Final = 32  # lookups at a time

NO_SUCH_HOST: Final = "dns: no such host"
NO_ANSWER: Final = "dns: no answer"
FAILED: Final = "dns: failed"
RESOLVING: Final = "while resolving"  # marks what ended the wait

Lookup: TypeAlias = Callable[[str], Awaitable[tuple[str, ...]]]

_REASONS: Final = {
    socket.EAI_NONAME: NO_SUCH_HOST,
    getattr(socket, "EAI_NODATA", socket.EAI_NONAME): NO_SUCH_HOST,
    socket.EAI_AGAIN: NO_ANSWER,
}


class _Known(NamedTuple):
    addresses: tuple[str, ...]
    reason: str  # why there are none
    until: float


_CLOSED: Final = _Known((), FAILED, 0.0)


class Resolver(AbstractResolver):
    """What aiohttp asks for the addresses of a host."""

    def __init__(
        self,
        guard: Guard,
        targets: Targets,
        *,
        max_age: float,
        lookup: Lookup | None = None,
    ) -> None:
        self._guard = guard
        self._targets = targets
        self._max_age = max_age
        self._threads = ThreadPoolExecutor(THREADS, "outrider-dns")
        self._lookup = lookup or self._ask_system
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, asyncio.Task[_Known]] = {}

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
            raise Hindered(PRIVATE_ADDRESS)
        return [_result(host, address, port) for address in _few(addresses)]

    async def _named(self, host: str, port: int, target: Target) -> list[ResolveResult]:
        port = target.port or port
        addresses = await self._addresses(target.address)
        for address in addresses:
            self._guard.name(address, port)
        return [_result(host, address, port) for address in _few(addresses)]

    async def _addresses(self, host: str) -> tuple[str, ...]:
        if _is_literal(host):
            return (host,)
        known = self._known.get(host)
        if known is None or known.until <= asyncio.get_running_loop().time():
            known = await self._asked(host)
        if not known.addresses:
            raise Hindered(known.reason)
        return known.addresses

    async def _asked(self, host: str) -> _Known:
        task = self._asking.get(host)
        if task is None:
            task = self._asking[host] = asyncio.create_task(self._ask(host))
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            error.add_note(RESOLVING)
            raise
        return _CLOSED if task.cancelled() else task.result()

    async def _ask(self, host: str) -> _Known:
        addresses: tuple[str, ...] = ()
        reason = NO_SUCH_HOST
        try:
            addresses = await self._lookup(host)
        except socket.gaierror as error:
            reason = _REASONS.get(error.errno or 0, FAILED)
        except UnicodeError:  # no name at all
            pass
        except OSError:
            reason = FAILED
        finally:
            del self._asking[host]
        return self._remembered(host, addresses, reason)

    def _remembered(self, host: str, addresses: tuple[str, ...], reason: str) -> _Known:
        age = self._max_age if addresses else min(self._max_age, FAILURE_AGE)
        known = _Known(addresses, reason, asyncio.get_running_loop().time() + age)
        self._known[host] = known
        self._known.move_to_end(host)
        if len(self._known) > NAMES:
            self._known.popitem(last=False)
        return known

    async def _ask_system(self, host: str) -> tuple[str, ...]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _system_addresses, host)

    async def close(self) -> None:
        """Ask no more; lookups under way are left to end by themselves."""
        asking = tuple(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)


def _system_addresses(host: str) -> tuple[str, ...]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))


def _is_literal(host: str) -> bool:
    if not (host[-1:].isdigit() or ":" in host):
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _few(addresses: Iterable[str]) -> Iterable[str]:
    """Some of each family, in their order."""
    families: dict[bool, list[str]] = {}
    for address in addresses:
        families.setdefault(":" in address, []).append(address)
    return chain.from_iterable(islice(family, EACH_FAMILY) for family in families.values())


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
