"""A server process: started, stopped in any manner, started again on the same data.

The calls block; from a coroutine, use `asyncio.to_thread`.
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

START_TIMEOUT: Final = 60.0  # seconds until a server must be up, or gone
_PAUSE: Final = 0.01
_PORTS: Final = range(16_000, 32_000)  # below the ephemeral ports of systems


class Server(ABC):
    """A directory for data and a log, and at times a process."""

    signals: ClassVar[dict[Manner, signal.Signals]]  # that end it

    def __init__(self, place: Path) -> None:
        self.place = place
        self.log = place / "log"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL that opens it."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _is_ready(self) -> bool: ...

    def _user(self) -> str | None:
        """Return the user it runs as; None: the current one."""
        return None

    @property
    def pid(self) -> int:
        """The id of its main process; 0: it is down."""
        return self._process.pid if self._process else 0

    def start(self) -> Self:
        """Start it, and return once it answers."""
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
                start_new_session=True,  # an interrupted test stops its servers itself
            )
        (self.place / "pid").write_text(f"{self.pid} {self.signals['immediate'].name}")
        self._wait_until_ready(self._process)
        return self

    def stop(self, manner: Manner = "orderly") -> None:
        """Stop it, and return once it is gone; its data stay."""
        if self._process is None:
            return
        self._process.send_signal(self.signals[manner])
        try:
            self._process.wait(START_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        (self.place / "pid").unlink()

    def restart(self, manner: Manner = "orderly") -> None:
        """Stop it in this manner and start it on the same data, at the same port."""
        self.stop(manner)
        self.start()

    def freeze(self) -> None:
        """Stop the process: it keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process."""
        os.kill(self.pid, signal.SIGCONT)

    def leave(self) -> None:
        """Let it run after this process, for others that share its directory."""
        if self._process is not None:
            self._process.returncode = 0
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(round(START_TIMEOUT / _PAUSE)):
            if process.poll() is not None:
                break
            with suppress(OSError):
                if self._is_ready():
                    return
            Event().wait(_PAUSE)
        self.stop("kill")
        raise RuntimeError(f"{self.place.name} did not start:\n{self.log.read_text()[-2000:]}")


def free_port() -> int:
    """Return a port that is free, and that is not used for outgoing connections.

    While a server is down no other process may get its port by chance.
    """
    while True:
        port = _PORTS[randbelow(len(_PORTS))]
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def group_of(user: str) -> int:
    """Return the group of a user."""
    import pwd  # noqa: PLC0415 - not on every system, and only root needs it

    return pwd.getpwnam(user).pw_gid
