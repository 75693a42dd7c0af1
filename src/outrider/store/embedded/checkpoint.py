"""Copies of a file while its crawl runs: of one moment, and verified before they are published.

The holder is never kept waiting; only its log grows until the copy is made.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from outrider.errors import StoreDamaged
from outrider.store.embedded import log_pages
from outrider.store.embedded.atomic_file import new_file, publish
from outrider.store.embedded.file import damaged, explain_error
from outrider.store.embedded.read_only_file import ReadOnlyFile, find_fault, read_file
from outrider.store.embedded.snapshot import current_snapshot
from outrider.store.health import Copied, CrawlCount, Holder, Tell
from outrider.store.protocol import STORE_VALUES

STEP: Final = 1024  # of SQLite's pages, four megabytes


class Stopped(Exception):
    """The copy was cancelled."""


async def checkpoint(path: Path, copy: Path, tell: Tell = lambda _: None) -> Copied:
    """Make a copy that can be opened like the file itself; `copy` must not exist yet."""
    stop = threading.Event()
    work = asyncio.create_task(asyncio.to_thread(copy_file, path, copy, tell, stop))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])
        work.exception()  # it was asked to stop
        raise


def copy_file(path: Path, copy: Path, tell: Tell, stop: threading.Event) -> Copied:
    """See `checkpoint`; blocks."""
    wrong = find_fault(path)
    if wrong is not None:
        raise StoreDamaged(damaged(path, wrong))
    with new_file(copy) as draft:
        try:
            holder = read_file(path, lambda file: _back_up(file, draft, tell, stop))
            tell("reading the copy")
            result = _verify(draft, copy, holder)
        except StoreDamaged as error:  # the copy has the damage of the file
            raise StoreDamaged(damaged(path, str(error))) from error
        publish(draft, copy)
    return result


def _back_up(file: ReadOnlyFile, draft: Path, tell: Tell, stop: threading.Event) -> Holder | None:
    """Copy one moment: a long read keeps SQLite from restarting the copy at every write."""
    draft.unlink(missing_ok=True)
    draft.touch(file.path.stat().st_mode & 0o777)
    try:
        with closing(_blank(draft)) as target, file.transaction():
            _copy_in_steps(target, file.connection, tell, stop)
    except apsw.CorruptError as error:
        raise StoreDamaged(str(error)) from error
    except apsw.Error as error:
        raise explain_error(draft, error) from error
    return file.holder


def _blank(draft: Path) -> apsw.Connection:
    """Open a draft, which no other process uses and a failure deletes: no locks, no journal."""
    db = apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE, vfs="unix-none")
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")
    return db


def _copy_in_steps(
    target: apsw.Connection, source: apsw.Connection, tell: Tell, stop: threading.Event
) -> None:
    with target.backup("main", source, "main") as backup:
        while not backup.done:
            if stop.is_set():
                raise Stopped
            backup.step(STEP)
            share = 1 - backup.remaining / max(1, backup.page_count)
            tell(f"copying, {share:.0%}")


def _verify(draft: Path, copy: Path, holder: Holder | None) -> Copied:
    """Read every page and piece of the copy; raises if one is wrong."""
    with closing(ReadOnlyFile(draft, None)) as file:
        _check_pieces(file)
        return Copied(
            file=str(copy),
            size=draft.stat().st_size,
            pages=file.last_page,
            holder=holder,
            crawls=[_count(row) for row in _read_pages(file) if row.name != STORE_VALUES],
        )


def _check_pieces(file: ReadOnlyFile) -> None:
    mark = current_snapshot(file.reader)
    found = sum(1 for _ in file.reader.pieces(mark.snapshot))
    if found != mark.pieces:
        raise StoreDamaged(f"snapshot {mark.snapshot} has {found} of {mark.pieces} pieces")


def _read_pages(file: ReadOnlyFile) -> list[log_pages.CrawlRow]:
    last: dict[int, tuple[int, bytes]] = {}
    for expected, (number, data) in enumerate(file.rows(), 1):
        if number != expected:
            raise StoreDamaged(f"page {expected} is missing")
        _, _, flags, crawl, *_ = log_pages.check_page(number, data)
        if flags & log_pages.LAST_PAGE:
            last[crawl] = number, data
    pages = [log_pages.decode_page(*last[crawl]) for crawl in sorted(last)]
    return [log_pages.decode_update(page.update).crawl for page in pages]


def _count(row: log_pages.CrawlRow) -> CrawlCount:
    return CrawlCount(row.name, row.last_task, row.pending, row.leased)
