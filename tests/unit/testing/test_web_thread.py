import socket

import pytest

from outrider.testing.web import WebThread, small_world


def get(port, host):
    """The first bytes of an answer."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: line.recv(1 << 16), b""))


def test_a_thread_serves_until_its_block_ends():
    """Whoever waits meanwhile sees every answer in the record at once, and afterwards."""
    with WebThread(small_world(3, hosts=1, pages=2)) as served:
        (place,) = served.settings()["fetch"]["connect_to"].values()
        port = int(place.partition(":")[2])
        for count in range(1, 20):
            assert get(port, "h0001.web.test").startswith(b"HTTP/1.1 200 ")
            assert len(served.hits()) == count
    assert len(served.hits()) == 19
    assert len(list(served.web.urls())) == 2
    with pytest.raises(ConnectionRefusedError):
        get(port, "h0001.web.test")
