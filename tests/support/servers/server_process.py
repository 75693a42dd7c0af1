"""One server as a process: started, ended in any manner, started again on the same data.

All of it blocks; from a coroutine, call it through `asyncio.to_thread`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from secrets import randbelow
from threading import Event
from typing import ClassVar, Final, Literal, Self, TypeAlias

Manner: TypeAlias = Literal["orderly", "immediate", "kill"]

PATIENCE: Final = 60.0  # seconds until a server must be up, or gone
_PAUSE: Final = 0.01
_PORTS: Final = range(16_000, 32_000)  # below those that systems give away


class Server(ABC):
    """A place for data and a log, and at times a process."""

    signals: ClassVar[dict[Manner, signal.Signals]]  # how it is told to end

    def __init__(self, place: Path) -> None:
        self.place = place
        self.log = place / "log"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """What opens it."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _is_ready(self) -> bool: ...

    def _user(self) -> str | None:
        """Whom it runs as; None: as we do."""
        return None

    @property
    def pid(self) -> int:
        """The process, or its first one; 0: it is down."""
        return self._process.pid if self._process else 0

    def start(self) -> Self:
        """Return once it answers."""
        user = self._user()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.place,
                user=user,
                group=user and group_of(user),
                extra_groups=[] if user else None,
                start_new_session=True,  # an interrupted test ends its servers itself
            )
        (self.place / "pid").write_text(f"{self.pid} {self.signals['immediate'].name}")
        self._wait_until_ready(self._process)
        return self

    def stop(self, manner: Manner = "orderly") -> None:
        """Return once it is gone; its data stay."""
        if self._process is None:
            return
        self._process.send_signal(self.signals[manner])
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        (self.place / "pid").unlink()

    def restart(self, manner: Manner = "orderly") -> None:
        """End it in this manner and start it on the same data, at the same port."""
        self.stop(manner)
        self.start()

    def freeze(self) -> None:
        """It keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        os.kill(self.pid, signal.SIGCONT)

    def leave(self) -> None:
        """Let it run on after us; whoever shares its directory uses it."""
        if self._process is not None:
            self._process.returncode = 0
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(round(PATIENCE / _PAUSE)):
            if process.poll() is not None:
                break
            with suppress(OSError):
                if self._is_ready():
                    return
            Event().wait(_PAUSE)
        self.stop("kill")
        raise RuntimeError(f"{self.place.name} did not start:\n{self.log.read_text()[-2000:]}")


def free_port() -> int:
    """A port nobody listens on just now, and no outgoing connection is given.

    While a server is down nobody must come by its port, nor a client that looks for it by itself.
    """
    while True:
        port = _PORTS[randbelow(len(_PORTS))]
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def group_of(user: str) -> int:
    """The group of a user."""
    import pwd  # noqa: PLC0415 - not there on every system, and only root needs it

    return pwd.getpwnam(user).pw_gid
