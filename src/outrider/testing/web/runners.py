"""Runs of the test web outside of the caller's event loop: in a thread, or in a child process.

A thread suits tests that wait for other processes; a process survives the end of the crawler and
does not share a core with it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self

import msgspec

from outrider.testing.web.graph import Shape
from outrider.testing.web.hits import Hit, read_hits
from outrider.testing.web.presets import WORLDS
from outrider.testing.web.server import WebServer
from outrider.testing.web.site import Web

_STOP_TIMEOUT: Final = 60.0  # seconds to end


class Ready(msgspec.Struct, frozen=True):
    """The line a web process prints when it is ready."""

    port: int
    settings: dict[str, Any]
    record: str


class WebProcess:
    """`with WebProcess(Shape(hosts=4)) as process:` serves until the block ends.

    `program` is what Python runs; one with more worlds adds them to `WORLDS` in both processes.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        world: str = "small",
        record: Path | None = None,
        program: Sequence[str] = ("-m", "outrider.testing.web"),
    ) -> None:
        self._shape = shape
        self._world = world
        self._program = program
        self._scratch = tempfile.TemporaryDirectory() if record is None else None
        self.record = record or Path(self._scratch.name if self._scratch else ".") / "hits.jsonl"

    def __enter__(self) -> Self:
        shape = msgspec.json.encode(self._shape).decode()
        command = [sys.executable, *self._program, "--world", self._world]
        command += ["--shape", shape, "--record", str(self.record)]
        self._process = subprocess.Popen(  # noqa: S603 - a module of Outrider, and no shell
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the web process exited with {self._process.wait()} before it was ready"
            )
        self._ready = msgspec.json.decode(line, type=Ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=_STOP_TIMEOUT)  # the process ends with its standard input
        if self._scratch is not None:
            self._scratch.cleanup()  # to keep the record, pass `record`

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._ready.port

    @property
    def web(self) -> Web:
        """The web it serves."""
        return WORLDS[self._world](self._shape).at(self.port)

    def settings(self) -> dict[str, Any]:
        """Return the settings with which a crawler finds this web."""
        return self._ready.settings

    def hits(self) -> list[Hit]:
        """Return the hits of all requests answered so far."""
        if self._process.returncode is None:
            self._wait_for_record()
        return read_hits(self.record)

    def _wait_for_record(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        self._process.stdout.readline()


class WebThread:
    """`with WebThread(web) as served:` serves until the block ends."""

    def __init__(self, web: Web) -> None:
        self._server = WebServer(web)
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), name="web", daemon=True)
        self._is_ready = Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        async with self._server:
            self._is_ready.set()
            await self._ended.wait()

    @property
    def web(self) -> Web:
        """The web it serves."""
        return self._server.web

    def settings(self) -> dict[str, Any]:
        """Return the settings with which a crawler finds this web."""
        return self._server.settings()

    def hits(self) -> list[Hit]:
        """Return the hits of all requests answered so far."""
        if not self._thread.is_alive():
            return list(self._server.hits)
        return asyncio.run_coroutine_threadsafe(self._hits(), self._loop).result()

    async def _hits(self) -> list[Hit]:
        """Read the hits on the server's thread, so that finished answers are recorded."""
        return list(self._server.hits)
