"""Answers as they come in: the head, then no more of the body than is allowed.

A request is repeated only where it cannot have been heard: on a connection that had served before
and was closed without a byte, as servers do with those that were idle.
"""

from __future__ import annotations

from itertools import chain
from typing import Final, cast

from aiohttp import ClientError, ClientOSError, ClientResponse, ServerDisconnectedError, hdrs
from aiohttp.connector import Connection

from outrider.fetch.body import unpack
from outrider.fetch.connection import Handler
from outrider.fetch.reasons import HEADERS, SIZE, SWITCHED
from outrider.fetch.response import Response

_SWITCHING: Final = 101


class Cut(ClientError):
    """The connection ended instead of an answer; its cause says how."""


class Reply(ClientResponse):
    """One answer, which knows whom it is from and when the request was sent."""

    began = 0.0  # on the loop's clock
    address = ""

    async def start(self, connection: Connection) -> ClientResponse:
        """Wait for the head."""
        handler = cast("Handler", connection.protocol)
        handler.begin_answer()
        self.began = self._loop.time()
        self.address = _peer(connection)
        try:
            await super().start(connection)
        except (ClientOSError, ServerDisconnectedError) as error:
            if handler.is_used and not _is_begun(error):
                raise  # aiohttp sends it again, once
            raise Cut from error
        handler.is_used = True
        return self

    async def payload(self, most: int, most_header: int) -> bytes | str:
        """The body as it is sent, or the reason why it is not read."""
        if sum(map(len, chain.from_iterable(self.raw_headers))) > most_header:
            return HEADERS
        if self.status == _SWITCHING:
            return SWITCHED
        if self._is_long(most):
            return SIZE
        body = bytearray()  # in one buffer, however small the pieces are
        while piece := await self.content.readany():
            body += piece
            if len(body) > most:
                return SIZE
        return bytes(body)

    def _is_long(self, most: int) -> bool:
        """Whether it says so, and there is a body at all: a 304 tells the length of another."""
        length = self.headers.get(hdrs.CONTENT_LENGTH)
        return length is not None and not self.content.is_eof() and int(length) > most

    def unpacked(self, payload: bytes, most: int) -> bytes | str:
        """The body, or the reason why it cannot be had."""
        if hdrs.CONTENT_ENCODING not in self.headers:
            return payload
        return unpack(payload, ",".join(self.headers.getall(hdrs.CONTENT_ENCODING)), most)

    def response(self, url: str, body: bytes, packed: bytes | None, at: float) -> Response:
        """All of it as a value; `at` is when the loop's clock began, in seconds since 1970."""
        return Response(
            url,
            self.status,
            tuple([(name.decode("latin-1"), text_of(value)) for name, value in self.raw_headers]),
            body,
            self._loop.time() - self.began,
            at + self.began,
            text_of((self.reason or "").encode("utf-8", "surrogateescape")),
            f"{self.version.major}.{self.version.minor}" if self.version else "1.1",
            self.address,
            packed,
        )


def _peer(connection: Connection) -> str:
    transport = connection.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    return str(peer[0]) if peer else ""


def _is_begun(error: ClientError) -> bool:
    """Whether part of a head came: aiohttp attaches it."""
    return isinstance(error, ServerDisconnectedError) and not isinstance(error.message, str)


def text_of(value: bytes) -> str:
    """UTF-8 if it is, else Latin-1: any bytes at all are text then, and can be written down."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
