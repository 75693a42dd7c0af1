import asyncio

import pytest

from outrider.testing.web import Site, Web, WebServer
from outrider.testing.web.behaviours import serving
from outrider.testing.web.bombs import endless_body
from outrider.testing.web.connection import Connection

REQUEST = b"GET /%b HTTP/1.1\r\nHost: one.web.test\r\n\r\n"


class Pipe(asyncio.Transport):
    """Takes whatever is written; `is_stuffed` leaves all of it in the buffer until `take`."""

    def __init__(self, protocol, *, is_stuffed=False):
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.protocol, self.is_stuffed = protocol, is_stuffed
        self.left, self.high, self.writes = 0, 1 << 16, 0

    def set_write_buffer_limits(self, high=None, low=None):
        """Over `high`, writing is paused."""
        self.high = high

    def write(self, data):
        """Take it, or leave it."""
        self.writes += 1
        assert self.writes < 1000, "nobody else had a turn"
        self.left += len(data) if self.is_stuffed else 0
        if self.left > self.high:
            self.protocol.pause_writing()

    def take(self):
        """The socket takes what was left."""
        self.left = 0
        self.protocol.resume_writing()

    def is_closing(self):
        """Never."""
        return False

    def resume_reading(self):
        """Nothing was paused."""


@pytest.fixture
async def server():
    """A small page and an endless one."""
    paths = {"/small": serving(b"hello"), "/endless": endless_body}
    async with WebServer(Web([Site("one.web.test", paths=paths)])) as server:
        yield server


async def test_bytes_left_in_the_buffer_are_not_handed_over(server):
    """However few: the hit ends when the socket took the last of them."""
    connection = Connection(server)
    pipe = Pipe(connection, is_stuffed=True)
    connection.connection_made(pipe)
    connection.data_received(REQUEST % b"small")
    await asyncio.sleep(0.01)
    assert list(server.hits) == []

    taken_at = server.now()
    pipe.take()
    await asyncio.sleep(0.01)
    (hit,) = server.hits
    connection.connection_lost(None)

    assert hit.ended_at >= taken_at


async def test_an_endless_answer_to_a_quick_reader_leaves_the_loop_to_others(server):
    """One piece a turn, though the socket would take more."""
    connection = Connection(server)
    pipe = Pipe(connection)
    connection.connection_made(pipe)
    connection.data_received(REQUEST % b"endless")
    for _ in range(20):
        await asyncio.sleep(0)
    connection.connection_lost(None)

    assert 5 < pipe.writes < 25
    assert [hit.is_cut for hit in server.hits] == [True]
