"""The same web in a process of its own: it outlives the crawler and shares no core with it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from outrider.testing.web.graph import Shape
from outrider.testing.web.hits import Hit, read_hits
from outrider.testing.web.presets import WORLDS
from outrider.testing.web.site import Web

_PATIENCE: Final = 60.0  # seconds to end


class Ready(msgspec.Struct, frozen=True):
    """The one line a web says when it is there."""

    port: int
    settings: dict[str, Any]
    record: str


class WebProcess:
    """`with WebProcess(Shape(hosts=4)) as process:` serves until the block ends.

    `program` is what Python runs; one that knows more worlds adds them to `WORLDS` on both sides.
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
        self._process = subprocess.Popen(  # noqa: S603 - our own module, and no shell
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the web ended with {self._process.wait()} before it was ready")
        self._ready = msgspec.json.decode(line, type=Ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=_PATIENCE)  # its standard input ends, and so does it
        if self._scratch is not None:
            self._scratch.cleanup()  # whoever wants the record afterwards names a path for it

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._ready.port

    @property
    def web(self) -> Web:
        """What it serves."""
        return WORLDS[self._world](self._shape).at(self.port)

    def settings(self) -> dict[str, Any]:
        """What a crawler is told so that it finds this web."""
        return self._ready.settings

    def hits(self) -> list[Hit]:
        """The record of all that was answered so far."""
        if self._process.returncode is None:
            self._ask()
        return read_hits(self.record)

    def _ask(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        self._process.stdout.readline()
