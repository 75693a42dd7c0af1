"""Group commit: a thread writes the pages of all waiting verbs and waits for the disk once.

Pages are readable from the moment they are submitted. After a write that failed, all later ones
fail too, until the store has read its file again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial

from outrider.errors import StoreError
from outrider.store.embedded.file import Row

Waiter = tuple[Sequence[Row], "asyncio.Future[None]"]


class GroupCommit:
    """A thread that appends the pages of many verbs at a time."""

    def __init__(self, append: Callable[[list[Row]], None]) -> None:
        self._append = append
        self._changed = threading.Condition()
        self._waiting: list[Waiter] = []
        self._error: StoreError | None = None
        self._is_closed = False
        self.unwritten: dict[int, bytes] = {}
        self._thread = threading.Thread(target=self._run, daemon=True, name="outrider-write")
        self._thread.start()

    def submit(self, rows: Sequence[Row]) -> asyncio.Future[None]:
        """Return a future that ends when the disk has these pages."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unwritten.update(rows)
        with self._changed:
            self._waiting.append((rows, future))
            self._changed.notify()
        return future

    def clear_error(self) -> None:
        """Forget a failed write: the store has read its file again."""
        with self._changed:
            self._error = None
        self.unwritten.clear()

    def _run(self) -> None:
        while batch := self._next():
            error = self._write([row for rows, _ in batch for row in rows])
            for rows, future in batch:
                _notify(future, partial(self._settle, future, rows, error))

    def _next(self) -> list[Waiter]:
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            batch, self._waiting = self._waiting, []
            return batch

    def _write(self, rows: list[Row]) -> StoreError | None:
        if self._error is None and rows:
            try:
                self._append(rows)
            except StoreError as failure:
                self._error = failure
        return self._error

    def _settle(
        self, future: asyncio.Future[None], rows: Sequence[Row], error: StoreError | None
    ) -> None:
        if error is None:
            for number, _ in rows:
                self.unwritten.pop(number, None)
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def close(self) -> None:
        """Write what was submitted, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()


def _notify(future: asyncio.Future[None], settle: Callable[[], None]) -> None:
    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)
