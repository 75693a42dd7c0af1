"""Group commit: one thread writes what has gathered, waits for the disk once, and tells all.

Pages are readable from the moment they were handed in. After a write that failed, whatever came
behind it fails too, until the store has read its file anew.
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
    """Hands pages to a thread that appends them, many verbs at a time."""

    def __init__(self, append: Callable[[list[Row]], None]) -> None:
        self._append = append
        self._changed = threading.Condition()
        self._waiting: list[Waiter] = []
        self._fault: StoreError | None = None
        self._is_closed = False
        self.unwritten: dict[int, bytes] = {}
        self._thread = threading.Thread(target=self._run, daemon=True, name="outrider-write")
        self._thread.start()

    def submit(self, rows: Sequence[Row]) -> asyncio.Future[None]:
        """A future that ends when the disk has these pages."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unwritten.update(rows)
        with self._changed:
            self._waiting.append((rows, future))
            self._changed.notify()
        return future

    def clear_error(self) -> None:
        """The file was read anew: what failed is forgotten."""
        with self._changed:
            self._fault = None
        self.unwritten.clear()

    def _run(self) -> None:
        while batch := self._next():
            fault = self._write([row for rows, _ in batch for row in rows])
            for rows, future in batch:
                _tell(future, partial(self._settle, future, rows, fault))

    def _next(self) -> list[Waiter]:
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            batch, self._waiting = self._waiting, []
            return batch

    def _write(self, rows: list[Row]) -> StoreError | None:
        if self._fault is None and rows:
            try:
                self._append(rows)
            except StoreError as error:
                self._fault = error
        return self._fault

    def _settle(
        self, future: asyncio.Future[None], rows: Sequence[Row], fault: StoreError | None
    ) -> None:
        if fault is None:
            for number, _ in rows:
                self.unwritten.pop(number, None)
        if future.done():
            return
        if fault is None:
            future.set_result(None)
        else:
            future.set_exception(fault)

    def close(self) -> None:
        """Write what has gathered, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()


def _tell(future: asyncio.Future[None], settle: Callable[[], None]) -> None:
    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)
