import json
import signal
import socket
import subprocess
import sys

import pytest

from outrider.testing.web import Asked, Shape, WebProcess, small_world
from outrider.testing.web.__main__ import _parser, shape_of

SHAPE = Shape(seed=3, hosts=2, pages=5)


def get(port, host, target):
    """One answer, whole."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: line.recv(1 << 16), b""))


@pytest.mark.slow
def test_a_process_serves_the_same_web_and_lends_its_record(tmp_path):
    """Byte for byte what is described here; hits can be read while it runs, and after."""
    record = tmp_path / "hits.jsonl"
    web = small_world(3, hosts=2, pages=5)
    with WebProcess(SHAPE, record=record) as process:
        assert list(process.web.urls()) == list(web.urls())
        raw = get(process.port, "h0002.web.test", "/")
        (hit,) = process.hits()
        for count in range(2, 30):  # an answer's hit is there as soon as the answer is
            get(process.port, "h0001.web.test", "/")
            assert len(process.hits()) == count
        routes = process.settings()["fetch"]["connect_to"]
        assert routes == {".web.test": f"127.0.0.1:{process.port}"}
        with socket.create_connection(("127.0.0.1", process.port)) as line:  # who never asks
            line.sendall(b"GET")

    assert raw.endswith(web.sites["h0002.web.test"].answer(Asked("h0002.web.test", "/")).body)
    assert (hit.host, hit.target, hit.status) == ("h0002.web.test", "/", 200)
    assert len(process.hits()) == 29


@pytest.mark.slow
def test_a_process_ends_on_sigterm():
    """With its one line said, and status 0."""
    command = [sys.executable, "-m", "outrider.testing.web", "--hosts", "1", "--pages", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        ready = json.loads(process.stdout.readline())
        assert get(ready["port"], "h0001.web.test", "/market/1").startswith(b"HTTP/1.1 200 ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stdout.read() == b""


def test_flags_win_over_the_shape():
    """And what neither names has its default."""
    options = _parser().parse_args(
        ["--shape", '{"hosts": 3, "doubles": 0.5}', "--hosts", "4", "--page-bytes", "99"]
    )

    assert shape_of(options) == Shape(hosts=4, doubles=0.5, page_bytes=99)
