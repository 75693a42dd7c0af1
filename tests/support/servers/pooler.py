"""A PgBouncer in front of PostgreSQL, in transaction mode.

It is in no wheel: `program` is the machine's own, or Debian's package unpacked by `make pooler`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

from servers.server_process import Manner, Server, group_of
from servers.shared_directory import private_directory

_USER: Final = "nobody"  # it refuses to run as root
_SETTINGS: Final = """\
[databases]
* = host=127.0.0.1 port={target} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
ignore_startup_parameters = extra_float_digits, options
"""


class Pooler(Server):
    """`with Pooler(program, server.url) as pooler:` serves the same databases."""

    signals: ClassVar[dict[Manner, signal.Signals]] = {
        "orderly": signal.SIGINT,
        "immediate": signal.SIGKILL,
        "kill": signal.SIGKILL,
    }

    def __init__(self, program: Path, url: str, place: Path | None = None) -> None:
        super().__init__(place or private_directory("pgbouncer"))
        self._target = urlsplit(url)
        self._settings = self.place / "pgbouncer.ini"
        self._program = shutil.copy(program, self.place / "pgbouncer")
        text = _SETTINGS.format(target=self._target.port, port=self.port)
        self._settings.write_text(text)
        if os.getuid() == 0:
            shutil.chown(self.place, _USER, group_of(_USER))

    @property
    def url(self) -> str:
        """The URL for the server's superuser, through the pooler."""
        user, _, _ = self._target.netloc.rpartition("@")
        return f"postgresql://{user}@127.0.0.1:{self.port}{self._target.path}"

    def _command(self) -> list[str]:
        return [str(self._program), str(self._settings)]

    def _is_ready(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5.0):
            return True

    def _user(self) -> str | None:
        return _USER if os.getuid() == 0 else None
