"""A plain visitor of the local web: bytes out, bytes in, no manners of its own."""

import asyncio
from typing import NamedTuple

import pytest


class Heard(NamedTuple):
    """An answer, as far as it could be read."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes


async def _ask(server, host, target, *, method="GET", most=1 << 20, tls=None, **headers):
    """Send one request on a connection of its own, and read to its end, or so many bytes."""
    port = server.tls_port if tls else server.port
    name = host if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    fields = {"Host": host, "Connection": "close"} | {
        key.replace("_", "-"): value for key, value in headers.items()
    }
    lines = [f"{method} {target} HTTP/1.1", *(f"{key}: {value}" for key, value in fields.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        return heard(await _read(reader, most))
    finally:
        writer.close()


async def _read(reader, most):
    raw = b""
    while len(raw) < most and (piece := await reader.read(1 << 16)):
        raw += piece
    return raw


def heard(raw):
    """Head and body; no status if there is none."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    status = int(words[1]) if first.startswith("HTTP/1.1 ") and words[1].isdigit() else 0
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Heard(status, headers, body, raw)


@pytest.fixture
def ask():
    """Visit a server once."""
    return _ask


async def _recorded(server, count):
    """The hits, once there are so many: visitors do not see when the server writes them down."""
    async with asyncio.timeout(60):
        while len(hits := list(server.hits)) < count:  # noqa: ASYNC110 - nobody to tell us
            await asyncio.sleep(0.005)
    return hits


@pytest.fixture
def recorded():
    """Wait for a server's record."""
    return _recorded
