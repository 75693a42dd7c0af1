"""A memory store behind its door, a client of it, and a line for those who speak no Outrider."""

import asyncio
from collections import defaultdict

import msgspec
import pytest

from outrider.store.memory import MemoryStore
from outrider.store.remote import RemoteStore, StoreServer, frames
from outrider.testing.clock import FakeClock


class Gated:
    """A memory store that can be made to wait or to fail, and remembers what it was asked."""

    def __init__(self, name="one"):
        self._store = MemoryStore(FakeClock())
        self.id = name
        self.is_inline = False
        self.request = []
        self.gates = defaultdict(asyncio.Event)
        self.shut = set()
        self.error = None

    def __getattr__(self, verb):
        async def call(**arguments):
            self.request.append((verb, arguments))
            self.gates["asked"].set()
            if verb in self.shut:
                await self.gates[verb].wait()
            if self.error is not None:
                raise self.error
            return await getattr(self._store, verb)(**arguments)

        return call


class RawLine:
    """A connection that says whatever it is told."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    def send(self, body):
        """A frame, of any bytes."""
        self.writer.write(len(body).to_bytes(4, "big") + body)

    def ask(self, number, verb, arguments):
        """A request, of any arguments."""
        self.send(msgspec.msgpack.encode((number, verb, arguments)))

    async def hear(self):
        """The next frame's value."""
        return msgspec.msgpack.decode(await frames.read_frame(self.reader))

    async def hello(self, *said):
        """Say hello, as ourselves unless told; what the other side says."""
        self.send(msgspec.msgpack.encode(said or frames.hello()))
        return await self.hear()


@pytest.fixture
def file(tmp_path):
    """The file that the owner holds; nobody here reads it."""
    return str(tmp_path / "crawl")


@pytest.fixture
def owned():
    """The owner's store."""
    return Gated()


@pytest.fixture
async def server(owned, file):
    """The owner's side."""
    server = await StoreServer.open(owned, file)
    yield server
    await server.close()


@pytest.fixture
async def store(server, file):
    """The other side."""
    store = await RemoteStore.connect(file)
    yield store
    await store.close()


@pytest.fixture
async def dial():
    """Makes raw lines to a socket, and hangs up at the end."""
    lines = []

    async def connect(path):
        lines.append(RawLine(*await asyncio.open_unix_connection(path)))
        return lines[-1]

    yield connect
    for connection in lines:
        connection.writer.transport.abort()
        try:
            await connection.writer.wait_closed()
        except OSError:
            continue
