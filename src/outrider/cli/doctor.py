"""`outrider doctor`: examines a file, or this machine, and says how to fix what is wrong."""

from __future__ import annotations

import asyncio
import platform
import resource
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from outrider.cli.options import Json
from outrider.cli.terminal import (
    format_count,
    format_size,
    print_json,
    print_line,
    progress_line,
    show_table,
)
from outrider.clock import SystemClock
from outrider.errors import InvalidInput
from outrider.store.health import CrawlHealth, Diagnosis, Rescued

_COLUMNS: Final = (
    *("known", "intact", "outdated", "lost"),
    *("pending", "leased", "done", "dead", "dropped", "queues"),
)


def doctor(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="File to examine.", show_default=False),
    ] = None,
    *,
    rescue: Annotated[
        Path | None,
        typer.Option(
            "--rescue",
            metavar="NEW",
            help="Write everything intact to this new file.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Examine a file: what is intact, what is damaged, and what to do. The file is not changed.

    Without FILE: examine this machine.
    """
    if file is None and rescue is not None:
        raise InvalidInput("--rescue needs the damaged file: outrider doctor FILE --rescue NEW")
    if file is None:
        _show_machine(as_json=as_json)
    elif rescue is None:
        _examine(file, as_json=as_json)
    else:
        _rescue(file, rescue, as_json=as_json)


def _examine(file: str, *, as_json: bool) -> None:
    from outrider.clock import SystemClock
    from outrider.store import factory

    with progress_line() as tell:
        found = factory.examine(file, SystemClock(), tell=tell)
    if as_json:
        print_json(found)
    else:
        _show_diagnosis(found)
    raise typer.Exit(0 if found.is_healthy else 1)


def _show_diagnosis(found: Diagnosis) -> None:
    show_table(("", "", found.file), [(f.state, f.what, f.detail) for f in found.findings])
    _show_crawls(found.crawls)
    print_line("healthy" if found.is_healthy else "damaged; what to do:")
    if not found.is_healthy:
        for advice in found.next:
            print_line(f"  {advice}")


def _show_crawls(crawls: Sequence[CrawlHealth]) -> None:
    rows = [
        (
            *("?" if (value := getattr(crawl, name)) is None else value for name in _COLUMNS),
            crawl.crawl,
        )
        for crawl in crawls
    ]
    show_table((*_COLUMNS, "crawl"), rows, right=_COLUMNS)


def _rescue(file: str, new: Path, *, as_json: bool) -> None:
    from outrider.clock import SystemClock
    from outrider.store import factory

    with progress_line() as tell:
        saved = factory.rescue(file, new, SystemClock(), tell=tell)
    if as_json:
        print_json(saved)
    else:
        _show_rescued(saved)
    raise typer.Exit(0 if saved.is_whole else 1)


def _show_rescued(saved: Rescued) -> None:
    for crawl in saved.crawls:
        print_line(
            f"{crawl.crawl}: {crawl.known - crawl.lost:,} of "
            f"{format_count(crawl.known, 'task')} rescued, "
            f"{crawl.outdated:,} of them in an older state"
        )
    for name, numbers in saved.lost.items():
        print_line(f"{name}: these task numbers are lost: {', '.join(map(str, numbers))}")
    for name in saved.without_rules:
        print_line(f"{name}: its rules are lost; the defaults apply until a worker brings its own")
    if saved.untold:
        lost = format_count(saved.untold, "lost page")
        print_line(f"the content of {lost} is unknown: some tasks may be in an older state")
    print_line(f"written to {saved.file} and verified")


def _show_machine(*, as_json: bool) -> None:
    from outrider.cli.doctor import check_machine

    checks = check_machine()
    if as_json:
        print_json({"is_healthy": all(check.is_ok for check in checks), "checks": checks})
    else:
        show_table(
            ("", "", ""),
            [
                ("ok" if r.is_ok else "warn", r.what, f"{r.found}{r.fix and f': {r.fix}'}")
                for r in checks
            ],
        )
    raise typer.Exit(0 if all(check.is_ok for check in checks) else 1)


# ---- this machine


OLDEST_PYTHON: Final = (3, 11)
OLDEST_SQLITE: Final = (3, 51, 3)
MIN_FILES: Final = 1024
MIN_DISK: Final = 1_000_000_000
YEARS: Final = range(2025, 2100)


class Check(msgspec.Struct, frozen=True):
    """The result of one check; `fix` is empty if it is ok."""

    what: str
    is_ok: bool
    found: str
    fix: str = ""


def check_machine() -> list[Check]:
    """Run all checks."""
    return [_python(), _sqlite(), _open_files(), _disk(Path()), _clock(), _event_loop()]


def _python() -> Check:
    is_ok = sys.version_info[:2] >= OLDEST_PYTHON
    found = f"{platform.python_implementation()} {platform.python_version()}"
    return _check("Python", is_ok, found, "Outrider needs 3.11 or newer")


def _sqlite() -> Check:
    """Check the version: before 3.51.3 the WAL-reset bug can lose a write-ahead log."""
    try:
        import apsw
    except ModuleNotFoundError:
        return _check("SQLite", False, "apsw is not installed", "pip install apsw")
    version = apsw.sqlite_lib_version()
    is_ok = tuple(map(int, version.split(".")[:3])) >= OLDEST_SQLITE
    fix = "versions before 3.51.3 may damage a file; pip install --upgrade apsw"
    return _check("SQLite", is_ok, f"{version} (apsw {apsw.apsw_version()})", fix)


def _open_files() -> Check:
    """Check the hard limit of open files, up to which a crawl raises its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = "any number at once" if hard == resource.RLIM_INFINITY else f"{hard:,} at once"
    if soft != hard:
        found = f"{found}, once a crawl has raised its limit of {soft:,}"
    fix = "a crawl of many hosts needs more; raise the hard limit: ulimit -Hn 4096"
    return _check("open files", hard == resource.RLIM_INFINITY or hard >= MIN_FILES, found, fix)


def _disk(here: Path) -> Check:
    free = shutil.disk_usage(here).free
    fix = "a million tasks take about half a gigabyte; free disk space, or use another disk"
    return _check("disk", free >= MIN_DISK, f"{format_size(free)} free here", fix)


def _clock() -> Check:
    clock = SystemClock()
    instants = [clock.now_ms() for _ in range(100)]
    now = datetime.fromtimestamp(instants[-1] / 1000, UTC)
    is_ok = now.year in YEARS and instants == sorted(instants)
    fix = "delays and retries depend on it; set the machine's time"
    return _check("clock", is_ok, f"{now:%Y-%m-%d %H:%M:%SZ}", fix)


def _event_loop() -> Check:
    async def running() -> str:
        await asyncio.sleep(0)
        return type(asyncio.get_running_loop()).__name__

    return _check("event loop", True, asyncio.run(running()), "")


def _check(what: str, is_ok: bool, found: str, fix: str) -> Check:
    return Check(what, is_ok, found, "" if is_ok else fix)
