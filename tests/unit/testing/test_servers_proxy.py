"""A line to a server that a test can hold, cut, refuse, slow down or encrypt."""

import asyncio
import ssl

import pytest

from servers import Proxy, ProxyProcess
from servers.proxy import CERTIFICATES

ASKS_GSS = (8).to_bytes(4) + (80_877_104).to_bytes(4)
ASKS_TLS = (8).to_bytes(4) + (80_877_103).to_bytes(4)


@pytest.fixture
async def echo():
    """The address of a server that says again what it is told."""

    async def answer(reader, writer):
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def entered(context):
    """Enter and leave it off the loop, which serves the other end."""
    return await asyncio.to_thread(type(context).__enter__, context)


async def left(context):
    """As above."""
    await asyncio.to_thread(type(context).__exit__, context)


@pytest.fixture(params=[Proxy, ProxyProcess], ids=["thread", "process"])
async def proxy(request, echo):
    """Both kinds: their verbs are the same."""
    proxy = await entered(request.param(f"redis://user:secret@{echo}/0"))
    yield proxy
    await left(proxy)


async def called(proxy, **options):
    """A line through the proxy."""
    port = int(proxy.url.rpartition(":")[2].partition("/")[0])
    return await asyncio.open_connection("127.0.0.1", port, **options)


async def said_again(line, text=b"hello"):
    """What comes back, within ten seconds."""
    reader, writer = line
    writer.write(text)
    return await asyncio.wait_for(reader.readexactly(len(text)), 60.0)


async def hung_up(line):
    """Let go of a line."""
    line[1].close()
    await asyncio.gather(line[1].wait_closed(), return_exceptions=True)


async def test_bytes_pass_both_ways(proxy):
    """And the URL is the server's, but for the address."""
    line = await called(proxy)

    assert proxy.url.startswith("redis://user:secret@127.0.0.1:")
    assert proxy.url.endswith("/0")
    assert await said_again(line) == b"hello"
    await hung_up(line)


async def test_an_end_is_passed_on(proxy):
    """Half a line may be closed: what was said before is still answered."""
    reader, writer = line = await called(proxy)
    writer.write(b"last words")
    writer.write_eof()

    assert await reader.read() == b"last words"
    await hung_up(line)


async def test_a_paused_line_holds_every_byte_and_loses_none(proxy):
    """Old connections and new ones."""
    old = await called(proxy)
    proxy.pause()
    new = await called(proxy)
    waiting = [asyncio.create_task(said_again(line)) for line in (old, new)]
    done, _ = await asyncio.wait(waiting, timeout=0.1)
    proxy.resume()

    assert not done
    assert await asyncio.gather(*waiting) == [b"hello", b"hello"]
    for line in (old, new):
        await hung_up(line)


async def test_a_cut_line_is_gone_and_the_next_is_welcome(proxy):
    """Connections are ended, not the service."""
    old = await called(proxy)
    await said_again(old)
    await asyncio.to_thread(proxy.cut)
    new = await called(proxy)

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await said_again(old)
    assert await said_again(new) == b"hello"
    for line in (old, new):
        await hung_up(line)


async def test_refused_until_accepted_again(proxy):
    """At the same port."""
    await asyncio.to_thread(proxy.refuse)
    with pytest.raises(ConnectionRefusedError):
        await called(proxy)
    await asyncio.to_thread(proxy.accept)
    line = await called(proxy)

    assert await said_again(line) == b"hello"
    await hung_up(line)


async def test_a_slow_line_takes_its_time_each_way(proxy):
    """Chunks do not wait for each other: twenty under way take as long as one."""
    reader, writer = line = await called(proxy)
    await said_again(line)
    proxy.slow_down(0.1)
    now = asyncio.get_running_loop().time
    began = now()
    for _ in range(20):
        writer.write(b"x")
        await asyncio.sleep(0.001)
    await asyncio.wait_for(reader.readexactly(20), 60.0)

    assert now() - began >= 0.2
    assert now() - began < 2.0
    await hung_up(line)


@pytest.mark.parametrize("certificate", CERTIFICATES)
@pytest.mark.parametrize("scheme", ["redis", "postgresql"])
async def test_tls_ends_at_the_proxy(echo, certificate, scheme):
    """A client that knows the certificate accepts it, unless it is expired."""
    trusting = ssl.create_default_context(cafile=CERTIFICATES[certificate])
    proxy = await entered(Proxy(f"{scheme}://{echo}/0", certificate=certificate))
    try:
        line = await called(proxy)
        if scheme == "postgresql":
            assert await asked(line, ASKS_GSS) == b"N"
            assert await asked(line, ASKS_TLS) == b"S"
        if certificate == "expired":
            with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
                await line[1].start_tls(trusting, server_hostname="127.0.0.1")
        else:
            await line[1].start_tls(trusting, server_hostname="127.0.0.1")
            assert await said_again(line) == b"hello"
        await hung_up(line)
    finally:
        await left(proxy)


async def asked(line, question):
    """One byte of an answer."""
    line[1].write(question)
    return await asyncio.wait_for(line[0].readexactly(1), 60.0)
