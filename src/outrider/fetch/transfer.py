"""One request over curl, to an address that was checked before.

curl asks no DNS: it connects to a name that exists nowhere but in the addresses it is told with
it, so nothing can come in between; and it reads nothing from the environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2s
from typing import Final, NamedTuple

from aiohttp.abc import ResolveResult
from curl_cffi import (
    AsyncCurl,
    Curl,
    CurlError,
    CurlHttpVersion,
    CurlInfo,
    CurlMOpt,
    CurlOpt,
    ffi,
    lib,
)
from yarl import URL

from outrider.fetch.connection import IDLE
from outrider.fetch.curl_codes import Asking, reason_of
from outrider.fetch.incoming import Incoming

_ALWAYS: Final = {
    CurlOpt.HTTP_VERSION: CurlHttpVersion.V2TLS,
    CurlOpt.HTTP_CONTENT_DECODING: 0,
    CurlOpt.FOLLOWLOCATION: 0,
    CurlOpt.PROTOCOLS_STR: "http,https",
    CurlOpt.PROXY: "",  # not even the environment's
    CurlOpt.NOSIGNAL: 1,
    CurlOpt.MAXAGE_CONN: int(IDLE),
}


class Patience(NamedTuple):
    """When a request has taken too long, on the loop's clock."""

    connected: float
    done: float
    silence: float  # seconds


class Connections(AsyncCurl):
    """All connections; `most` are kept for reuse."""

    def __init__(self, most: int) -> None:
        super().__init__()
        # AsyncCurl.setopt would hand over where the number is instead of the number.
        lib.curl_multi_setopt(self._curlm, CurlMOpt.MAXCONNECTS, ffi.cast("void *", most))


class _Handle(Curl):
    _WS_RECV_BUFFER_SIZE = 1  # we speak no WebSocket: 128 KiB saved a request


class Transfer:
    """One request; to be closed in the end."""

    def __init__(
        self,
        url: URL,
        headers: Mapping[str, str],
        places: Sequence[ResolveResult],
        incoming: Incoming,
        authorities: str,
    ) -> None:
        self._incoming = incoming
        self._began = asyncio.get_running_loop().time()
        self._curl = _Handle(authorities)
        self._ask: Asking = self._curl.getinfo
        self._detour = ffi.NULL
        for option, value in _ALWAYS.items():
            self._curl.setopt(option, value)
        self._curl.setopt(CurlOpt.URL, str(url.origin()))
        self._curl.setopt(CurlOpt.REQUEST_TARGET, url.raw_path_qs)
        fields = [f"{name}: {value}".encode() for name, value in headers.items()]
        self._curl.setopt(CurlOpt.HTTPHEADER, fields)
        self._curl.setopt(CurlOpt.HEADERFUNCTION, incoming.line)
        self._curl.setopt(CurlOpt.WRITEFUNCTION, incoming.piece)
        self._pin(url.raw_host or "", places)

    def _pin(self, host: str, places: Sequence[ResolveResult]) -> None:
        name = f"{blake2s(host.encode(), digest_size=16).hexdigest()}.invalid"
        port = places[0]["port"]
        addresses = ",".join(_bracketed(place["host"]) for place in places)
        self._detour = lib.curl_slist_append(ffi.NULL, f"::{name}:{port}".encode())
        self._curl.setopt(CurlOpt.CONNECT_TO, self._detour)
        self._curl.setopt(CurlOpt.RESOLVE, [f"+{name}:{port}:{addresses}"])

    async def run(self, connections: Connections, patience: Patience) -> str:
        """Wait until it is over: empty, or the reason why there is no answer."""
        loop = asyncio.get_running_loop()
        self._limit(patience)
        future = connections.add_handle(self._curl)
        try:
            while not future.done():
                due, reason = self._due(patience)
                if due <= loop.time():
                    return reason
                await asyncio.wait((future,), timeout=due - loop.time())
        finally:
            if not future.done():
                connections.remove_handle(self._curl)
        return self._ended(future.exception())

    def _limit(self, patience: Patience) -> None:
        """Tell curl the time to connect too: it shares that out among the addresses."""
        left = min(patience.connected, patience.done) - self._began
        self._curl.setopt(CurlOpt.CONNECTTIMEOUT_MS, max(int(left * 1000), 1))

    def _due(self, patience: Patience) -> tuple[float, str]:
        if not self.sent:
            return min(patience.connected, patience.done), "connect: time limit"
        silent = max(self.sent, self._incoming.heard) + patience.silence
        return min((silent, "time limit: read"), (patience.done, "time limit: total"))

    def _ended(self, error: BaseException | None) -> str:
        if self._incoming.trouble:
            return self._incoming.trouble
        if isinstance(error, CurlError):
            return reason_of(error.code, self._ask, self._incoming)
        if error is not None:
            raise error
        return "" if self._incoming.is_headed else self._incoming.cut()

    @property
    def sent(self) -> float:
        """When the request was sent, on the loop's clock; 0: it was not."""
        seconds: float = self._ask(CurlInfo.PRETRANSFER_TIME)
        return self._began + seconds if seconds else 0.0

    @property
    def peer(self) -> tuple[str, int]:
        """Whom we spoke to."""
        return self._ask(CurlInfo.PRIMARY_IP).decode(), self._ask(CurlInfo.PRIMARY_PORT)

    def close(self) -> None:
        """Forget it; its connection stays."""
        self._curl.close()
        lib.curl_slist_free_all(self._detour)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
