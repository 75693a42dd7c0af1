"""One request over curl, to an address that was checked before.

curl asks no DNS: it connects to a name that exists nowhere but in the addresses it is told with
it, so nothing can come in between; and it takes no proxy from the environment.
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
from outrider.fetch.curl_codes import Asking, is_lost, reason_of
from outrider.fetch.incoming import Incoming

_ALWAYS: Final = {
    CurlOpt.HTTP_VERSION: CurlHttpVersion.V2TLS,
    CurlOpt.HTTP_CONTENT_DECODING: 0,
    CurlOpt.FOLLOWLOCATION: 0,
    CurlOpt.PROTOCOLS_STR: "http,https",
    CurlOpt.PROXY: "",  # not even the environment's
    CurlOpt.NOSIGNAL: 1,
    CurlOpt.DNS_CACHE_TIMEOUT: 1,  # seconds; an address is told when it is needed
    CurlOpt.MAXAGE_CONN: int(IDLE),
}


class Patience(NamedTuple):
    """When a request has taken too long, on the loop's clock."""

    connected: float
    done: float
    silence: float  # seconds


class Request(NamedTuple):
    """What is asked for, and of whom."""

    url: str
    target: URL  # the same, taken apart
    headers: Mapping[str, str]
    places: Sequence[ResolveResult]  # checked


class Connections(AsyncCurl):
    """All connections; `most` are kept for reuse."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self.keep(most)

    def keep(self, most: int) -> None:
        """Keep so many; what is beyond that is closed when the next request ends."""
        # AsyncCurl.setopt would hand over where the number is instead of the number.
        lib.curl_multi_setopt(self._curlm, CurlMOpt.MAXCONNECTS, ffi.cast("void *", most))

    def close_idle(self) -> None:
        """Keep half as many from now on, and one at least: descriptors are short."""
        self._most = max(1, self._most // 2)
        self.keep(self._most)

    @property
    def is_closed(self) -> bool:
        """Whether all have ended; those who waited are told so as if they were done."""
        return self._curlm is None


class _Handle(Curl):
    _WS_RECV_BUFFER_SIZE = 1  # we speak no WebSocket: 128 KiB saved a request


class Transfer:
    """One request; to be closed in the end."""

    def __init__(
        self, request: Request, incoming: Incoming, authorities: str, *, is_fresh: bool
    ) -> None:
        self.is_lost = False  # with a connection that had served before, and nothing came
        self._incoming = incoming
        self._began = asyncio.get_running_loop().time()
        self._curl = _Handle(authorities)
        self._info: Asking = self._curl.getinfo
        self._detour = ffi.NULL
        for option, value in _ALWAYS.items():
            self._curl.setopt(option, value)
        self._curl.setopt(CurlOpt.FRESH_CONNECT, int(is_fresh))
        self._curl.setopt(CurlOpt.HEADERFUNCTION, incoming.line)
        self._curl.setopt(CurlOpt.WRITEFUNCTION, incoming.piece)
        self._ask_for(request.target, request.headers)
        self._pin(request.target.raw_host or "", request.places)

    def _ask_for(self, target: URL, headers: Mapping[str, str]) -> None:
        self._curl.setopt(CurlOpt.URL, str(target.origin()))
        self._curl.setopt(CurlOpt.REQUEST_TARGET, target.raw_path_qs)
        fields = [f"{name}: {value}".encode() for name, value in headers.items()]
        self._curl.setopt(CurlOpt.HTTPHEADER, fields)

    def _pin(self, host: str, places: Sequence[ResolveResult]) -> None:
        # 64 letters are more than DNS allows between two dots.
        name = f"{blake2s(host.encode()).hexdigest()}.invalid"
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
                # Nobody tells when it is connected, and silence counts from then on.
                await asyncio.wait((future,), timeout=min(due - loop.time(), patience.silence))
        finally:
            if not future.done():
                connections.remove_handle(self._curl)
        return self._incoming.cut() if connections.is_closed else self._ended(future.exception())

    def _limit(self, patience: Patience) -> None:
        """Tell curl the time to connect too: it shares that out among the addresses."""
        left = min(patience.connected, patience.done) - self._began
        self._curl.setopt(CurlOpt.CONNECTTIMEOUT_MS, max(int(left * 1000), 1))

    def _due(self, patience: Patience) -> tuple[float, str]:
        if not self.sent:
            return min(patience.connected, patience.done), "connect: time limit"
        # curl tells of whole lines: a head that takes longer for one counts as silent.
        silent = max(self.sent, self._incoming.heard) + patience.silence
        return min((silent, "time limit: read"), (patience.done, "time limit: total"))

    def _ended(self, error: BaseException | None) -> str:
        if self._incoming.trouble:
            return self._incoming.trouble
        if isinstance(error, CurlError):
            self.is_lost = is_lost(error, self._info, self._incoming)
            return reason_of(error, self._info, self._incoming)
        if error is not None:
            raise error
        return "" if self._incoming.is_headed else self._incoming.cut()

    @property
    def sent(self) -> float:
        """When the request was sent, on the loop's clock; 0: it was not."""
        seconds: float = self._info(CurlInfo.PRETRANSFER_TIME)
        return self._began + seconds if seconds else 0.0

    @property
    def peer(self) -> tuple[str, int]:
        """Whom we spoke to."""
        return self._info(CurlInfo.PRIMARY_IP).decode(), self._info(CurlInfo.PRIMARY_PORT)

    def close(self) -> None:
        """Forget it; its connection stays."""
        self._curl.close()
        lib.curl_slist_free_all(self._detour)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
