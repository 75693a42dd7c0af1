"""Makes HTTP requests: one request, one value, whatever the host does (K1).

Nothing is followed, nothing is read beyond the limits, and nothing is kept from one request to the
next but connections and addresses.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from ssl import SSLContext
from typing import Final, cast

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, InvalidURL
from yarl import URL

from outrider.clock import Clock
from outrider.fetch.connection import Connector
from outrider.fetch.dns import Lookup
from outrider.fetch.getting import Getting
from outrider.fetch.network import Network
from outrider.fetch.reasons import Trouble, tell
from outrider.fetch.reply import Reply
from outrider.fetch.response import Response
from outrider.fetch.troubles import RAISED, reason_of
from outrider.settings.worker_schema import FetchSettings

FIELDS: Final = 256  # header fields of one answer

_NONE: Final[Mapping[str, str]] = {}
_SOON: Final = 0.001  # seconds; to aiohttp 0 means no limit
_NEVER: Final = 1e9  # aiohttp would round longer limits up to whole seconds
_SENDABLE: Final = re.compile(r"[\t -~\x80-\U0010ffff]*").fullmatch


class Client(Getting):
    """Gets URLs in HTTP/1.1."""

    def __init__(
        self,
        settings: FetchSettings,
        *,
        allow_private: bool = False,
        keep_packed: bool = False,
        _clock: Clock | None = None,
        _lookup: Lookup | None = None,
        _tls: SSLContext | bool = True,
        _network: Network | None = None,
    ) -> None:
        super().__init__(
            settings,
            allow_private=allow_private,
            keep_packed=keep_packed,
            _clock=_clock,
            _lookup=_lookup,
            _network=_network,
        )
        self._tls = _tls
        self._limits = self._limits_of(settings.total_timeout)
        self._session: ClientSession | None = None

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
        at = self._clock.now_ms() / 1000 - began
        try:
            reply = await self._sent(url, headers, within)
            try:
                return await self._read(url, reply, most, at)
            finally:
                if not reply.closed:
                    reply.close()
        except RAISED as error:
            reason, seconds = reason_of(error), asyncio.get_running_loop().time() - began
        return await self._trouble(reason, seconds, _host_of(url))

    async def _sent(self, url: str, headers: Mapping[str, str], within: float | None) -> Reply:
        """The head of the answer."""
        session = self._session or self._open()
        request = session.request(
            "GET",
            target_of(url),
            headers=sendable(headers) if headers else None,
            allow_redirects=False,
            timeout=self._limits if within is None else self._limits_of(within),
        )
        return cast("Reply", await request)

    async def _read(
        self, url: str, reply: Reply, most: int | None, at: float
    ) -> Response | Trouble:
        limit = self._most(most)
        payload = await reply.payload(limit, 4 * self._settings.max_headers)
        body = payload if isinstance(payload, str) else reply.unpacked(payload, limit)
        if isinstance(payload, str) or isinstance(body, str):
            return tell(str(body), asyncio.get_running_loop().time() - reply.began)
        packed = payload if self._keep_packed and body is not payload else None
        response = reply.response(url, body, packed, at)
        self._network.reached(response.address)
        return response

    def _open(self) -> ClientSession:
        settings = self._settings
        self._session = ClientSession(
            connector=Connector(self._resolver, self._guard, settings.connections, ssl=self._tls),
            response_class=Reply,
            cookie_jar=DummyCookieJar(),
            headers=self._headers,
            timeout=self._limits,
            auto_decompress=False,
            trust_env=False,
            max_line_size=settings.max_headers,
            max_field_size=settings.max_headers,
            max_headers=FIELDS,
        )
        return self._session

    def _limits_of(self, total: float) -> ClientTimeout:
        settings = self._settings
        total = max(min(total, settings.total_timeout), _SOON)
        return ClientTimeout(
            total=total,
            connect=settings.connect_timeout,
            sock_read=settings.read_timeout,
            ceil_threshold=_NEVER,
        )

    def close_idle(self) -> None:
        """See `Getting`."""
        connector = None if self._session is None else self._session.connector
        if isinstance(connector, Connector):
            connector.close_idle()

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()


def target_of(url: str) -> URL:
    """The URL as it is spelt, or `InvalidURL`."""
    try:
        if url.find("?") == len(url) - 1:  # yarl forgets a query without a character
            bare = URL(url[:-1], encoded=True)
            return bare.with_path(bare.raw_path + "?", encoded=True)
        return URL(url, encoded=True)
    except ValueError as error:
        raise InvalidURL(url) from error


def _host_of(url: str) -> str:
    """The host that was looked up, for a URL that may be none."""
    try:
        return target_of(url).raw_host or ""
    except InvalidURL:
        return ""


def sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that can be sent: an ETag of a host may hold anything."""
    return {name: value for name, value in headers.items() if _SENDABLE(value)}
