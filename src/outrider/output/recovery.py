"""Recovery of output that killed workers left in doubt, by another worker of the same store.

Nothing is added to those files: the next process that writes to them starts as after a clean end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Final

from outrider.errors import OutputError, StoreError
from outrider.logs import logger_of
from outrider.output.file_sink import FileSink, Record
from outrider.output.journal import SUFFIX, InDoubt, Redo, is_locked, read_last
from outrider.output.sink import Visit
from outrider.output.worker_files import stem_of, try_lock, worker_names
from outrider.store.protocol import FullStore

INTERVAL: Final = 60.0  # seconds: a worker may run for weeks, and others be killed meanwhile

_log: Final = logger_of(__name__)


class OutputRecovery:
    """Settles the output of dead workers of this machine beside one worker's own output.

    Their pages may be visited by any worker, and perhaps no process writes to their files again.
    """

    def __init__(self, path: str, store: FullStore, *, sync: bool = False) -> None:
        self._stem, self._store, self._sync = stem_of(path), store, sync
        self._reported: set[str] = set()

    async def run(self) -> None:
        """Settle everything that dead workers of this store have left until now."""
        await self._settle(self._stem)
        for name in worker_names(self._stem):
            if journals_of(name):  # else the lock would only be in the way of a starting worker
                with try_lock(name) as is_dead:
                    if is_dead:
                        await self._settle(name)

    async def run_every(self, interval: float = INTERVAL) -> None:
        """Run again and again until cancelled; a store that fails is asked the next time."""
        while True:
            await asyncio.sleep(interval)
            with suppress(StoreError):
                await self.run()

    async def _settle(self, name: str) -> None:
        try:
            await settle_files(name, self._store, sync=self._sync)
        except OutputError as error:  # of another worker's files: reported once
            if str(error) not in self._reported:
                _log.warning("left in doubt: %s", error)
            self._reported.add(str(error))


def journals_of(name: str) -> list[Path]:
    """The journals of all outputs of this name, whatever their format."""
    path = Path(name)
    return sorted(path.parent.glob(f"{escape(path.name)}.*{SUFFIX}"))


async def settle_files(name: str, store: FullStore, *, sync: bool = False) -> None:
    """Settle each output of this name that no process writes.

    Visits of another store are left in doubt: this store cannot tell whether they were finished.
    """
    for journal in journals_of(name):
        if _is_in_doubt(journal, store.id) and (sink := _open_dead(journal, name, sync=sync)):
            try:
                await sink.recover(store)
            finally:
                sink.close()


def _open_dead(journal: Path, name: str, *, sync: bool) -> FileSink | None:
    try:
        return FileSink(journal.with_suffix(""), _AnyFormat(Path(name).name), sync=sync)
    except OutputError:
        if is_locked(journal):
            return None
        raise


def _is_in_doubt(journal: Path, store: str) -> bool:
    last = read_last(journal)
    return isinstance(last, Redo) or (isinstance(last, InDoubt) and last.store == store)


class _AnyFormat:
    """Implements `Format` for files that are only cut, never written."""

    names: Final = ()

    def __init__(self, stem: str) -> None:
        self._prefixes = (f"{stem}.", f"{stem}-")

    def owns(self, name: str) -> bool:
        """See `Format`."""
        return name.startswith(self._prefixes) and Path(name).name == name

    def open(self, folder: Path, *, is_fresh: bool) -> None:
        """See `Format`."""

    def records(self, visits: Sequence[Visit], length_of: Callable[[str], int]) -> list[Record]:  # noqa: ARG002 - none
        """See `Format`."""
        return []

    def confirm(self, visits: Iterable[int]) -> None:
        """See `Format`."""
