"""What a writer that is gone left in doubt, settled by somebody else who knows the store.

Nothing more is written there: whoever writes next begins as after an end in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from glob import escape
from pathlib import Path
from typing import Final

from outrider.errors import OutputError
from outrider.output.filing import FileSink, Record
from outrider.output.journal import SUFFIX, Open, Redo, is_held, last_said
from outrider.output.sink import Visit
from outrider.store.protocol import FullStore


def journals_of(name: str) -> list[Path]:
    """Those of all outputs that were given this name, whatever their format."""
    path = Path(name)
    return sorted(path.parent.glob(f"{escape(path.name)}.*{SUFFIX}"))


async def settle_left(name: str, store: FullStore, *, sync: bool = False) -> None:
    """Of each output of this name that nobody writes.

    What is another store's stays as it is: this one cannot tell.
    """
    for journal in journals_of(name):
        if _is_in_doubt(journal, store.id) and (sink := _taken(journal, name, sync=sync)):
            try:
                await sink.recover(store)
            finally:
                sink.close()


def _taken(journal: Path, name: str, *, sync: bool) -> FileSink | None:
    try:
        return FileSink(journal.with_suffix(""), _Left(Path(name).name), sync=sync)
    except OutputError:
        if is_held(journal):
            return None
        raise


def _is_in_doubt(journal: Path, store: str) -> bool:
    last = last_said(journal)
    return isinstance(last, Redo) or (isinstance(last, Open) and last.store == store)


class _Left:
    """See `Format`: files that are as they are."""

    names: Final = ()

    def __init__(self, stem: str) -> None:
        self._starts = (f"{stem}.", f"{stem}-")

    def owns(self, name: str) -> bool:
        """See `Format`."""
        return name.startswith(self._starts) and Path(name).name == name

    def begin(self, folder: Path, *, is_fresh: bool) -> None:
        """See `Format`."""

    def records(self, visits: Sequence[Visit], length_of: Callable[[str], int]) -> list[Record]:  # noqa: ARG002 - none
        """See `Format`."""
        return []

    def stayed(self, visits: Iterable[int]) -> None:
        """See `Format`."""
