import asyncio

import pytest
from aiohttp import ClientPayloadError, ServerDisconnectedError
from aiohttp.streams import StreamReader

from outrider.fetch.http1_connection import ConnectionHandler


@pytest.fixture
async def handler():
    """A connection that is made."""
    handler = ConnectionHandler(asyncio.get_running_loop(), set())
    handler.connection_made(asyncio.Transport())
    return handler


async def body_of(handler):
    """What the body of an answer is read from."""
    payload = StreamReader(handler, 1024, loop=asyncio.get_running_loop())
    handler._payload = payload
    payload.feed_data(b"hello")
    return payload


async def test_broken_connection_fails_the_wait_for_the_body(handler):
    """Not only those who wait for the next head."""
    payload = await body_of(handler)
    handler.set_exception(ServerDisconnectedError(), OSError("why"))
    with pytest.raises(ServerDisconnectedError) as caught:
        await payload.read()
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_body_that_is_whole_stays_readable_when_the_connection_ends(handler):
    """The end came after it."""
    payload = await body_of(handler)
    payload.feed_eof()
    handler.set_exception(ServerDisconnectedError())
    assert await payload.read() == b"hello"


async def test_what_is_known_of_a_broken_body_stays(handler):
    """The first to notice knows best."""
    payload = await body_of(handler)
    payload.set_exception(ClientPayloadError("cut"))
    handler.set_exception(ServerDisconnectedError())
    with pytest.raises(ClientPayloadError):
        await payload.read()
