"""The control socket of a process that has no descriptor left."""

import asyncio
import errno

from outrider.store.factory import open_store
from outrider.store.remote import server as module
from outrider.store.remote.server import StoreServer
from outrider.testing import FakeClock


async def test_clients_wait_while_no_descriptor_is_free(tmp_path, monkeypatch, caplog):
    """It tries again now and then, says nothing, and lets them in as soon as it can."""
    monkeypatch.setattr(module, "ACCEPT_INTERVAL", 0.01)
    loop, tries = asyncio.get_running_loop(), 0
    accept = loop.sock_accept

    async def short(listener):
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", short)
    store = await open_store("memory://", FakeClock())
    server = await StoreServer.open(store, str(tmp_path / "crawl.outrider"))
    _, writer = await asyncio.open_unix_connection(server.path)
    async with asyncio.timeout(60):
        while not server._connections:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
    writer.close()
    await server.close()
    await store.close()

    assert tries >= 4
    assert caplog.messages == []
