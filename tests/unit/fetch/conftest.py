"""Real sockets on the loopback: servers that do as they are told, clients that leave nothing."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from outrider.fetch.http1 import Http1Client
from outrider.fetch.http2 import Http2Client
from outrider.settings.worker_schema import FetchSettings

PATIENCE = {"connect_timeout": 30.0, "read_timeout": 30.0, "total_timeout": 60.0}

# For `web.test`, with its key; nobody signed it.
CERTIFICATE = Path(__file__).with_name("certificate.pem")


class Server:
    """Answers each request by its path: bytes are sent as they are, anything else is called.

    After bytes the connection stays open; a call ends it.
    """

    def __init__(self, answers):
        self.answers = answers
        self.heads = []  # of requests, as they came
        self.connections = 0
        self._tasks = set()
        self._server = None

    async def start(self, tls=None):
        """Listen."""
        self._server = await asyncio.start_server(self._met, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def _met(self, reader, writer):
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader, writer):
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        answer = self.answers[head.split()[1].decode()]
        if callable(answer):
            await answer(reader, writer)
            return False
        writer.write(answer)
        await writer.drain()
        return True

    async def stop(self):
        """Be gone, which waits until all clients are."""
        self._server.close()
        if self._tasks:
            _, left = await asyncio.wait(tuple(self._tasks), timeout=60)
            assert not left, "a connection was left open"
        await self._server.wait_closed()


class Net:
    """All servers and clients of one test."""

    def __init__(self, kind):
        self._kind = kind
        self._servers, self._clients = [], []

    async def serve(self, answers, tls=None):
        """One more server."""
        server = Server(answers)
        self._servers.append(server)
        return await server.start(tls)

    def client(
        self,
        *,
        allow_private=True,
        keep_packed=False,
        keep_request=False,
        _lookup=None,
        _tls=None,
        **settings,
    ):
        """One more client."""
        trust = "_authorities" if self._kind is Http2Client else "_tls"
        client = self._kind(
            FetchSettings(**PATIENCE | settings),
            allow_private=allow_private,
            keep_packed=keep_packed,
            keep_request=keep_request,
            _lookup=_lookup,
            **({} if _tls is None else {trust: _tls}),
        )
        self._clients.append(client)
        return client

    async def stop(self):
        """End all of it."""
        for client in self._clients:
            await client.close()
        for server in self._servers:
            await server.stop()


@pytest.fixture
def kind():
    """Which client is tested."""
    return Http1Client


@pytest.fixture
async def net(kind, caplog):
    """Servers and clients that are gone after the test, without a task, a socket or a word left."""
    complaints, net = [], Net(kind)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with caplog.at_level(logging.INFO):
        yield net
        sessions = [getattr(each, "_session", None) for each in net._clients]
        connectors = [each.connector for each in sessions if each]
        in_use = [handler for each in connectors for handler in each._acquired]
        await net.stop()
        idle = [handler for each in connectors for handler in each.idle]
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert (in_use, idle, tasks, complaints) == ([], [], set(), [])
    assert caplog.messages == []


@pytest.fixture
def server_tls():
    """What a server needs to be `web.test`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    return context


@pytest.fixture
def client_tls(kind):
    """What a client needs to trust it."""
    if kind is Http2Client:
        return str(CERTIFICATE)
    return ssl.create_default_context(cafile=CERTIFICATE)
