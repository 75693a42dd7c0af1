"""Notes as rows: who writes some holds a lock that is for nothing else, so numbers come in order.

A reader who saw a number can have seen all that are lower: each writer began after the one before
it had committed. Claims, adds and finishes never wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.store.heads.noting import Notes
from outrider.store.postgres import sql
from outrider.store.postgres.arrays import number_array, text_array
from outrider.store.postgres.pipeline import Pipeline
from outrider.store.postgres.rows import Row
from outrider.store.protocol import SharedValue, SharedValueWrite


class Notebook:
    """The notes of one crawl."""

    def __init__(self, wire: Pipeline, crawl: int) -> None:
        self._wire, self._crawl = wire, crawl
        self._found: list[SharedValue] = []

    def since(self, after: int, limit: int) -> list[SharedValue]:
        """See `protocol.Inspect`."""
        return [*map(_noted, self._wire.rows(sql.VALUES_SINCE, (self._crawl, after, limit)))]

    def open_at(self, notes: Sequence[SharedValueWrite], lock: int) -> Notes:
        """What stands where these are to be written, and the last of all; nobody else writes."""
        self._wire.send(sql.LOCK_EXCLUSIVE, (lock,))
        topics, names = (
            text_array(note.topic for note in notes),
            text_array(note.name for note in notes),
        )
        rows = self._wire.rows(sql.VALUES_AT, (topics, names, self._crawl, self._crawl))
        self._found, opened = [*map(_noted, rows)], Notes()
        for one in self._found:
            opened.keep(one)
        return opened

    def write(self, notes: Notes) -> None:
        """Each note that is new, in place of the one it was written over."""
        new = notes.since(self._found[-1].number if self._found else 0)
        if new:
            stay = {note.number for note in notes.since(0)}
            gone = [note.number for note in self._found if note.number not in stay]
            self._wire.send(sql.DELETE_VALUES, (self._crawl, number_array(gone)))
            self._wire.send(sql.INSERT_VALUES, (self._crawl, *_columns(new)))


def _noted(row: Row) -> SharedValue:
    number, at, *words = row
    return SharedValue(number, at / 1000, *words)


def _columns(notes: Sequence[SharedValue]) -> list[str]:
    return [
        number_array(note.number for note in notes),
        number_array(round(note.at * 1000) for note in notes),
        text_array(note.topic for note in notes),
        text_array(note.name for note in notes),
        text_array(note.text for note in notes),
    ]
