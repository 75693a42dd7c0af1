"""The proxy in its own process, so that it does not share a core with its users.

Commands go to its standard input; the other side is `__main__.py`.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final, Self

from child_environment import child_environment

_STOP_TIMEOUT: Final = 60.0  # seconds


class ProxyProcess:
    """`with ProxyProcess(server.url) as proxy:` has the verbs of `Proxy`."""

    def __init__(self, url: str, *, certificate: str | None = None) -> None:
        self._words = [url, certificate] if certificate else [url]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __package__, *self._words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=child_environment(),
        )
        self.url = self._read_line()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=_STOP_TIMEOUT)  # it ends with its standard input

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def pause(self) -> None:
        """See `Proxy`."""
        self._send("pause")

    def resume(self) -> None:
        """See `Proxy`."""
        self._send("resume")

    def cut(self) -> None:
        """See `Proxy`."""
        self._send("cut")

    def refuse(self) -> None:
        """See `Proxy`."""
        self._send("refuse")

    def accept(self) -> None:
        """See `Proxy`."""
        self._send("accept")

    def slow_down(self, delay: float) -> None:
        """See `Proxy`."""
        self._send(repr(float(delay)))

    def _send(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        self._read_line()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the proxy exited with {self._process.wait()}")
        return line.rstrip("\n")
