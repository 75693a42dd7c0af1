"""Makes HTTP requests as `Client` does, but in HTTP/2 where a host speaks it; needs curl_cffi (K1).

Nothing is followed, nothing is read beyond the limits, nobody is impersonated, and nothing is kept
from one request to the next but connections and addresses.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final

from aiohttp import InvalidURL
from aiohttp.abc import ResolveResult
from yarl import URL

from outrider.clock import Clock
from outrider.errors import SettingsError
from outrider.fetch.client import sendable, target_of
from outrider.fetch.dns import Lookup
from outrider.fetch.getting import Getting
from outrider.fetch.incoming import Incoming
from outrider.fetch.network import Network
from outrider.fetch.reasons import BAD_URL, PRIVATE_ADDRESS, Hindered, Trouble, tell
from outrider.fetch.response import Response
from outrider.fetch.transfer import Connections, Patience, Request, Transfer
from outrider.settings.environment import is_set
from outrider.settings.worker_schema import FetchSettings

_NONE: Final[Mapping[str, str]] = {}
_DISGUISE: Final = "CURL_IMPERSONATE"
_SPELT: Final = re.compile(r"https?://[!-~]+").fullmatch


class Http2Client(Getting):
    """Gets URLs; see `Client`. `_authorities` is a file of certificates to trust."""

    def __init__(
        self,
        settings: FetchSettings,
        *,
        allow_private: bool = False,
        keep_packed: bool = False,
        _clock: Clock | None = None,
        _lookup: Lookup | None = None,
        _authorities: str = "",
        _network: Network | None = None,
    ) -> None:
        if is_set(_DISGUISE):
            raise SettingsError(f"{_DISGUISE} is set, and curl would imitate a browser: unset it")
        super().__init__(
            settings,
            allow_private=allow_private,
            keep_packed=keep_packed,
            _clock=_clock,
            _lookup=_lookup,
            _network=_network,
        )
        self._authorities = _authorities
        self._connections: Connections | None = None

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = _NONE,
        within: float | None = None,
        most: int | None = None,
    ) -> Response | Trouble:
        """Ask for a URL exactly as it is spelt; `within` and `most` narrow what settings allow."""
        began = asyncio.get_running_loop().time()
        patience = self._patience(began, within)
        try:
            target = _target(url)
        except InvalidURL:
            return tell(BAD_URL, 0.0)
        try:
            places = await self._places(target, patience)
        except Hindered as error:
            return await self._trouble(error.reason, 0.0, target.raw_host or "")
        request = Request(url, target, self._headers | sendable(headers), places)
        got, is_lost = await self._asked(request, patience, most)
        if is_lost:
            got, _ = await self._asked(request, patience, most, is_fresh=True)
        return got

    async def _asked(
        self, request: Request, patience: Patience, most: int | None, *, is_fresh: bool = False
    ) -> tuple[Response | Trouble, bool]:
        """What came of it, and whether it cannot have been heard."""
        incoming = self._incoming(most)
        transfer = Transfer(request, incoming, self._authorities, is_fresh=is_fresh)
        try:
            reason = await transfer.run(self._open(), patience)
            told = await self._told(request, transfer, incoming, reason or self._misled(transfer))
            return told, transfer.is_lost
        finally:
            transfer.close()

    def _patience(self, began: float, within: float | None) -> Patience:
        settings = self._settings
        total = settings.total_timeout if within is None else min(within, settings.total_timeout)
        return Patience(began + settings.connect_timeout, began + total, settings.read_timeout)

    async def _places(self, target: URL, patience: Patience) -> Sequence[ResolveResult]:
        """Where to connect to; no other address is ever told to curl."""
        try:
            async with asyncio.timeout_at(min(patience.connected, patience.done)):
                places = await self._resolver.resolve(target.raw_host or "", target.port or 0)
        except TimeoutError:
            raise Hindered("dns: time limit") from None
        if not all(self._guard.allows(place["host"], place["port"]) for place in places):
            raise Hindered(PRIVATE_ADDRESS)
        return places

    def _incoming(self, most: int | None) -> Incoming:
        headers, time = self._settings.max_headers, asyncio.get_running_loop().time
        return Incoming(self._most(most), headers, time)

    def _open(self) -> Connections:
        if self._connections is None:
            self._connections = Connections(self._settings.connections)
        return self._connections

    def _misled(self, transfer: Transfer) -> str:
        """The belt: whom we spoke to is somebody we may speak to."""
        return "" if self._guard.allows(*transfer.peer) else PRIVATE_ADDRESS

    async def _told(
        self, request: Request, transfer: Transfer, incoming: Incoming, reason: str
    ) -> Response | Trouble:
        now = asyncio.get_running_loop().time()
        seconds = now - (transfer.sent or now)
        payload = incoming.payload()
        body = reason or incoming.unpacked(payload)
        if isinstance(body, str):
            return await self._trouble(body, seconds, request.target.raw_host or "")
        self._network.reached(transfer.peer[0])
        return Response(
            request.url,
            incoming.status,
            tuple(incoming.fields),
            body,
            seconds,
            self._clock.now_ms() / 1000 - seconds,
            incoming.reason,
            incoming.version,
            transfer.peer[0],
            payload if self._keep_packed and body is not payload else None,
        )

    def close_idle(self) -> None:
        """See `Getting`."""
        if self._connections is not None:
            self._connections.close_idle()

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()  # type: ignore[no-untyped-call]  # it has no types
        await self._resolver.close()


def _target(url: str) -> URL:
    """What curl takes as it is: no blank, no control character, a host."""
    target = target_of(url.partition("#")[0])
    if not _SPELT(str(target)) or not target.raw_host:
        raise InvalidURL(url)
    return target
