"""The same line in a process of its own, so that it shares no core with those who use it.

What it is told goes over its standard input; the other side is `__main__.py`.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final, Self

from child_environment import child_environment

_PATIENCE: Final = 60.0  # seconds to end


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
        self.url = self._heard()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=_PATIENCE)  # its standard input ends, and so does it

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def pause(self) -> None:
        """See `Proxy`."""
        self._say("pause")

    def resume(self) -> None:
        """See `Proxy`."""
        self._say("resume")

    def cut(self) -> None:
        """See `Proxy`."""
        self._say("cut")

    def refuse(self) -> None:
        """See `Proxy`."""
        self._say("refuse")

    def accept(self) -> None:
        """See `Proxy`."""
        self._say("accept")

    def slow_down(self, delay: float) -> None:
        """So many seconds a byte takes, each way."""
        self._say(repr(float(delay)))

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        self._heard()

    def _heard(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the proxy ended with {self._process.wait()}")
        return line.rstrip("\n")
