"""How this machine is: what a crawl will need of it, each with the fix if it is missing."""

from __future__ import annotations

import asyncio
import platform
import resource
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from outrider.cli.showing import size
from outrider.clock import SystemClock

OLDEST_PYTHON: Final = (3, 11)
OLDEST_SQLITE: Final = (3, 51, 3)
FILES: Final = 1024
ROOM: Final = 1_000_000_000
YEARS: Final = range(2025, 2100)


class Remark(msgspec.Struct, frozen=True):
    """One thing that was looked at; `fix` is empty if it is well."""

    what: str
    is_ok: bool
    found: str
    fix: str = ""


def look_around() -> list[Remark]:
    """Everything, here and now."""
    return [_python(), _sqlite(), _files(), _room(Path()), _clock(), _loop()]


def _python() -> Remark:
    is_ok = sys.version_info[:2] >= OLDEST_PYTHON
    found = f"{platform.python_implementation()} {platform.python_version()}"
    return _remark("Python", is_ok, found, "Outrider needs 3.11 or newer")


def _sqlite() -> Remark:
    """Versions before 3.51.3 can lose a log that is folded while it is written (WAL-reset bug)."""
    try:
        import apsw
    except ModuleNotFoundError:
        return _remark("SQLite", False, "apsw is not installed", "pip install apsw")
    version = apsw.sqlite_lib_version()
    is_ok = tuple(map(int, version.split(".")[:3])) >= OLDEST_SQLITE
    fix = "older ones than 3.51.3 may damage a file; pip install --upgrade apsw"
    return _remark("SQLite", is_ok, f"{version} (apsw {apsw.apsw_version()})", fix)


def _files() -> Remark:
    """A crawl raises its limit as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = "any number at once" if hard == resource.RLIM_INFINITY else f"{hard:,} at once"
    if soft != hard:
        found = f"{found}, once a crawl has raised its limit of {soft:,}"
    fix = "a crawl of many hosts needs more; raise the hard limit: ulimit -Hn 4096"
    return _remark("open files", hard == resource.RLIM_INFINITY or hard >= FILES, found, fix)


def _room(here: Path) -> Remark:
    free = shutil.disk_usage(here).free
    fix = "a million tasks take about half a gigabyte; make room, or use another disk"
    return _remark("disk", free >= ROOM, f"{size(free)} free here", fix)


def _clock() -> Remark:
    clock = SystemClock()
    instants = [clock.now_ms() for _ in range(100)]
    now = datetime.fromtimestamp(instants[-1] / 1000, UTC)
    is_ok = now.year in YEARS and instants == sorted(instants)
    fix = "delays and retries are reckoned by it; set the machine's time"
    return _remark("clock", is_ok, f"{now:%Y-%m-%d %H:%M:%SZ}", fix)


def _loop() -> Remark:
    async def running() -> str:
        await asyncio.sleep(0)
        return type(asyncio.get_running_loop()).__name__

    return _remark("event loop", True, asyncio.run(running()), "")


def _remark(what: str, is_ok: bool, found: str, fix: str) -> Remark:
    return Remark(what, is_ok, found, "" if is_ok else fix)
