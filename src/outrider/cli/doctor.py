"""`outrider doctor`: examines a store, or this machine, and says how to fix what is wrong."""

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

import typer

from outrider.cli.options import Json
from outrider.cli.terminal import (
    fields_of,
    format_count,
    format_size,
    print_json,
    print_line,
    progress_line,
    show_table,
)
from outrider.clock import SystemClock
from outrider.errors import InvalidInput, OutriderError, SettingsError
from outrider.frontier.live_settings import RUNTIME_SETTINGS, stored_settings
from outrider.frontier.store_calls import values_of
from outrider.store import factory
from outrider.store.address import show_address
from outrider.store.health import Check, CrawlHealth, Diagnosis, Rescued, check_of
from outrider.store.protocol import FullStore, SharedValue

MAX_CRAWLS: Final = 100  # whose settings are looked at
_COLUMNS: Final = (
    *("known", "intact", "outdated", "lost"),
    *("pending", "leased", "done", "dead", "dropped", "queues"),
)


def doctor(
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="[STORE]", help="File or URL of the store to examine.", show_default=False
        ),
    ] = None,
    *,
    rescue: Annotated[
        Path | None,
        typer.Option(
            "--rescue",
            metavar="NEW",
            help="Write everything intact of a file to this new file.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Examine a store: what is intact or damaged, what its server promises, and what to do.

    Nothing is changed. Without STORE: examine this machine. Exits with 1 if a problem was found.
    """
    if store is None and rescue is not None:
        raise InvalidInput("--rescue needs the damaged file: outrider doctor FILE --rescue NEW")
    if store is None:
        _show_machine(as_json=as_json)
    elif rescue is not None:
        _rescue(store, rescue, as_json=as_json)
    elif factory.is_on_server(store):
        _examine_server(store, as_json=as_json)
    else:
        _examine_file(store, as_json=as_json)


def _examine_file(file: str, *, as_json: bool) -> None:
    contacts: list[Check] = []

    def see(crawl: str, text: str, values: Sequence[SharedValue]) -> None:
        contacts.append(_contact(crawl, text, values))

    with progress_line() as tell:
        found = factory.examine(file, SystemClock(), tell=tell, see_settings=see)
    advice = [_open_files(), *contacts[:MAX_CRAWLS]]
    if as_json:
        print_json(fields_of(found, checks=advice))
    else:
        _show_checks(advice)
        _show_diagnosis(found)
    raise typer.Exit(0 if found.is_healthy and all(check.is_ok for check in advice) else 1)


# ---- a store on a server


def _examine_server(url: str, *, as_json: bool) -> None:
    checks = [*asyncio.run(_server_checks(url)), _open_files()]
    is_healthy = all(check.is_ok for check in checks)
    if as_json:
        print_json({"store": show_address(url), "is_healthy": is_healthy, "checks": checks})
    else:
        _show_checks(checks)
        print_line("healthy" if is_healthy else "problems were found; what to do is behind each")
    raise typer.Exit(0 if is_healthy else 1)


async def _server_checks(url: str) -> list[Check]:
    clock = SystemClock()
    found = await factory.examine_server(url, clock)
    if not found.has_store:
        return [*found.checks]
    try:
        store = await factory.open_store(url, clock)
    except OutriderError as error:
        if any(check.found == str(error) for check in found.checks):
            return [*found.checks]
        return [*found.checks, Check("crawls", False, str(error))]
    try:
        names = await store.crawls()
        contacts = [await _read_contact(store, name) for name in names[:MAX_CRAWLS]]
    finally:
        await store.close()
    return [*found.checks, Check("crawls", True, f"{len(names):,}"), *contacts]


async def _read_contact(store: FullStore, crawl: str) -> Check:
    values = [value async for value in values_of(store, crawl, RUNTIME_SETTINGS)]
    return _contact(crawl, await store.settings(crawl), values)


def _contact(crawl: str, text: str, values: Sequence[SharedValue]) -> Check:
    """Say whether hosts can reach who crawls; only advice, since not every crawl fetches."""
    what = f"contact of {crawl}"
    try:
        contact = stored_settings(text, values).fetch.contact
    except SettingsError as error:
        return Check(what, False, str(error))
    fix = f"hosts cannot reach you: outrider config set STORE fetch.contact=… --crawl {crawl}"
    return Check(what, True, contact) if contact else Check(what, True, "not set", fix)


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
    checks = check_machine()
    if as_json:
        print_json({"is_healthy": all(check.is_ok for check in checks), "checks": checks})
    else:
        _show_checks(checks)
    raise typer.Exit(0 if all(check.is_ok for check in checks) else 1)


def _show_checks(checks: Sequence[Check]) -> None:
    rows = [
        (_state(one), one.what, ": ".join(filter(None, (one.found, one.fix)))) for one in checks
    ]
    show_table(("", "", ""), rows)


def _state(check: Check) -> str:
    if not check.is_ok:
        return "warn"
    return "note" if check.fix else "ok"


# ---- this machine


OLDEST_PYTHON: Final = (3, 11)
OLDEST_SQLITE: Final = (3, 51, 3)
MIN_FILES: Final = 1024
MIN_DISK: Final = 1_000_000_000
YEARS: Final = range(2025, 2100)


def check_machine() -> list[Check]:
    """Run all checks."""
    return [_python(), _sqlite(), _open_files(), _disk(Path()), _clock(), _event_loop()]


def _python() -> Check:
    is_ok = sys.version_info[:2] >= OLDEST_PYTHON
    found = f"{platform.python_implementation()} {platform.python_version()}"
    return check_of("Python", is_ok, found, "Outrider needs 3.11 or newer")


def _sqlite() -> Check:
    """Check the version: before 3.51.3 the WAL-reset bug can lose a write-ahead log."""
    try:
        import apsw
    except ModuleNotFoundError:
        return check_of("SQLite", False, "apsw is not installed", "pip install apsw")
    version = apsw.sqlite_lib_version()
    is_ok = tuple(map(int, version.split(".")[:3])) >= OLDEST_SQLITE
    fix = "versions before 3.51.3 may damage a file; pip install --upgrade apsw"
    return check_of("SQLite", is_ok, f"{version} (apsw {apsw.apsw_version()})", fix)


def _open_files() -> Check:
    """Check the hard limit of open files, up to which a crawl raises its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = "any number at once" if hard == resource.RLIM_INFINITY else f"{hard:,} at once"
    if soft != hard:
        found = f"{found}, once a crawl has raised its limit of {soft:,}"
    fix = "a crawl of many hosts needs more; raise the hard limit: ulimit -Hn 4096"
    return check_of("open files", hard == resource.RLIM_INFINITY or hard >= MIN_FILES, found, fix)


def _disk(here: Path) -> Check:
    free = shutil.disk_usage(here).free
    fix = "a million tasks take about half a gigabyte; free disk space, or use another disk"
    return check_of("disk", free >= MIN_DISK, f"{format_size(free)} free here", fix)


def _clock() -> Check:
    clock = SystemClock()
    instants = [clock.now_ms() for _ in range(100)]
    now = datetime.fromtimestamp(instants[-1] / 1000, UTC)
    is_ok = now.year in YEARS and instants == sorted(instants)
    fix = "delays and retries depend on it; set the machine's time"
    return check_of("clock", is_ok, f"{now:%Y-%m-%d %H:%M:%SZ}", fix)


def _event_loop() -> Check:
    async def running() -> str:
        await asyncio.sleep(0)
        return type(asyncio.get_running_loop()).__name__

    return check_of("event loop", True, asyncio.run(running()), "")
