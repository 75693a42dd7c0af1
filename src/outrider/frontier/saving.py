"""A crawl as JSON lines, out and in again: a copy goes on as the crawl it was saved from (I5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Final

import msgspec

from outrider.errors import InvalidInput
from outrider.frontier.footing import Footing
from outrider.frontier.jsonl import Block, Reader, Writer, counted
from outrider.frontier.pages import noted
from outrider.frontier.reports import RestoreReport
from outrider.store.protocol import FullStore, SharedValueWrite
from outrider.store.saved import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedNote,
    fault_of,
)

PAGE: Final = 500  # items of a block: with all they may carry, far below what a wire takes


class Saver(Footing):
    """The saving half of a frontier."""

    async def export(self) -> AsyncIterator[bytes]:
        """The whole crawl as JSON lines, some lines at a time; claims go on meanwhile."""
        view = await self.store.crawl(self.crawl)
        if view.reason == RESTORING:
            raise InvalidInput(f"crawl {self.crawl!r} is being restored: half of it is no export")
        writer = Writer()
        yield writer.head(self.crawl, self._clock.now_ms() / 1000)
        async for notes in notes_of(self.store, self.crawl):
            yield writer.block(notes)
        after: int | None = 0
        while after is not None:
            page = await self.store.export(self.crawl, after=after, limit=PAGE)
            after = page.after
            yield writer.block(page.items)
            await asyncio.sleep(0)
        yield writer.tail()

    async def restore(
        self,
        lines: AsyncIterable[bytes] | Iterable[bytes],
        *,
        progress: Callable[[RestoreReport], None] | None = None,
    ) -> RestoreReport:
        """Take in what `export` gave, into a crawl without tasks; it lends nothing until whole.

        What is there already is left alone: after a failure, do it again.
        """
        taking = _Taking(progress)
        try:
            async for chunk in _each(lines):
                for block in taking.reader.feed(bytes(chunk)):
                    taking.took(block, await self._take_in(block))
                await asyncio.sleep(0)
            taking.reader.end()
        except InvalidInput as error:
            raise InvalidInput(f"{error}{taking.so_far(self.crawl)}") from error
        await self._finish_restoring(taking.end)
        return taking.report

    async def _take_in(self, block: Block) -> int:
        items = _without_end(block)
        try:
            await write_notes(self.store, self.crawl, block.items)
            return await self.store.restore(self.crawl, items) if items else 0
        except InvalidInput as error:
            raise _by_line(block, error) from error

    async def _finish_restoring(self, end: Saved | None) -> None:
        if end is None:
            raise InvalidInput("the export has no item that ends it: it was not written by us")
        await self.store.restore(self.crawl, [end])
        self._stirred.set()
        await self._teller.changed()


class _Taking:
    """How far a restore has come."""

    def __init__(self, progress: Callable[[RestoreReport], None] | None) -> None:
        self.reader = Reader()
        self.report = RestoreReport()
        self.end: Saved | None = None
        self._progress = progress

    def took(self, block: Block, new: int) -> None:
        """A block is in the crawl."""
        items = _without_end(block)
        if block.items and isinstance(block.items[-1], SavedEnd):
            self.end = block.items[-1]
        self.report = _sum(self.report, items, new)
        if self._progress is not None:
            self._progress(self.report)

    def so_far(self, crawl: str) -> str:
        """What somebody whose export is refused half-way should know."""
        if self.report == RestoreReport():
            return ""
        return (
            f"; what stood before that is in crawl {crawl!r}, which lends nothing now: "
            "restore the whole export again to go on, or into another crawl"
        )


def _without_end(block: Block) -> list[Saved]:
    """A crawl may go on only when the last line was seen, so its end waits for that."""
    items = [item for item in block.items if not isinstance(item, SavedNote)]
    return items[:-1] if items and isinstance(items[-1], SavedEnd) else items


async def notes_of(store: FullStore, crawl: str) -> AsyncIterator[list[SavedNote]]:
    """What is noted of a crawl, in order, some at a time."""
    block: list[SavedNote] = []
    async for note in noted(store, crawl):
        block.append(SavedNote(note.topic, note.name, note.text))
        if len(block) == PAGE:
            yield block
            block = []
    if block:
        yield block


async def write_notes(store: FullStore, crawl: str, items: Iterable[object]) -> None:
    """Note again what was noted; what is said already stays."""
    found = [item for item in items if isinstance(item, SavedNote)]
    if found:
        await store.put_values(
            crawl, [SharedValueWrite(one.topic, one.name, one.text) for one in found]
        )


def _by_line(block: Block, error: InvalidInput) -> InvalidInput:
    """The same, with the line at fault; what is wrong with the crawl stands on none."""
    if str(error).startswith("crawl "):
        return error
    for item, line in zip(block.items, block.lines, strict=True):
        fault = None if isinstance(item, SavedNote) else fault_of(item)
        if fault is not None:
            return InvalidInput(f"line {line}: {fault}")
    return InvalidInput(f"lines {block.lines[0]} to {block.lines[-1]}: {error}")


def _sum(report: RestoreReport, items: list[Saved], new: int) -> RestoreReport:
    crawl = items[0].crawl if items and isinstance(items[0], SavedCrawl) else report.crawl
    queues, tasks = counted(items)
    return msgspec.structs.replace(
        report,
        crawl=crawl,
        queues=report.queues + queues,
        tasks=report.tasks + tasks,
        known=report.known + len(items) - new,
    )


async def _each(lines: AsyncIterable[bytes] | Iterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(lines, AsyncIterable):
        async for chunk in lines:
            yield chunk
    else:
        for chunk in lines:
            yield chunk
