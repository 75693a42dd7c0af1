"""Export and restore of a crawl as JSON lines: a restored copy resumes where the crawl was (I5).

The first line says what the file is, the last one how much it holds. Between them are the items of
the store, and after each block of items a line with the SHA-256 of all bytes before that line. So a
block is used only when it is complete, and a truncated file is detected by its missing last line.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Annotated, Final, NamedTuple, NoReturn, TypeAlias

import msgspec
from msgspec import Meta

from outrider.errors import InvalidInput
from outrider.frontier.context import FrontierContext
from outrider.frontier.reports import RestoreReport
from outrider.frontier.store_calls import values_of
from outrider.store.byte_limits import MAX_CALL_BYTES, parts_by_bytes, saved_bytes
from outrider.store.export_items import (
    RESTORING,
    Saved,
    SavedCrawl,
    SavedEnd,
    SavedNote,
    SavedQueue,
    SavedTask,
    item_error,
)
from outrider.store.protocol import FullStore, SharedValueWrite

PAGE: Final = 500  # items per block: with all they may carry, far below what a connection takes
VERSION: Final = 1
BLOCK_BYTES: Final = 1 << 26  # between two checksums, so that a foreign file cannot fill the memory
BLOCK_LINES: Final = 2_000

_OWN_LINE: Final = b'{"outrider":'
_GZIP: Final = b"\x1f\x8b"
Item: TypeAlias = Saved | SavedNote
_Checksum: TypeAlias = Annotated[str, Meta(min_length=64, max_length=64)]


class Exporter:
    """Exports the frontier's crawl, and restores an export into it."""

    def __init__(self, context: FrontierContext) -> None:
        self._context = context

    async def export(self) -> AsyncIterator[bytes]:
        """See `Frontier.export`."""
        context = self._context
        view = await context.store.crawl(context.crawl)
        if view.reason == RESTORING:
            raise InvalidInput(
                f"crawl {context.crawl!r} is being restored: finish the restore, then export it"
            )
        writer = ExportWriter()
        yield writer.head(context.crawl, context.clock.now_ms() / 1000)
        async for values in shared_values(context.store, context.crawl):
            yield writer.block(values)
        after: int | None = 0
        while after is not None:
            page = await context.store.export(context.crawl, after=after, limit=PAGE)
            after = page.after
            yield writer.block(page.items)
            await asyncio.sleep(0)
        yield writer.tail()

    async def restore(
        self,
        lines: AsyncIterable[bytes] | Iterable[bytes],
        *,
        progress: Callable[[RestoreReport], None] | None,
    ) -> RestoreReport:
        """See `Frontier.restore`."""
        state = _RestoreState(progress)
        try:
            async for chunk in _each(lines):
                for block in state.reader.feed(bytes(chunk)):
                    state.restored(block, await self._restore_block(block, state.early))
                await asyncio.sleep(0)
            state.reader.end()
        except InvalidInput as error:
            raise InvalidInput(f"{error}{state.advice(self._context.crawl)}") from error
        await self._complete(state.end)
        return state.report

    async def _restore_block(self, block: Block, early: EarlyValues) -> int:
        store, crawl = self._context.store, self._context.crawl
        items = _without_end(block)
        try:
            parts = parts_by_bytes(items, saved_bytes, MAX_CALL_BYTES) if items else ()
            new = sum([await store.restore(crawl, part) for part in parts])
            await early.write(store, crawl, block.items, has_crawl=bool(items))
        except InvalidInput as error:
            raise _with_line(block, error) from error
        return new

    async def _complete(self, end: Saved | None) -> None:
        if end is None:
            raise InvalidInput(
                "the export has no item that ends it, so Outrider did not write it; "
                "restore a file that `export` wrote"
            )
        await self._context.store.restore(self._context.crawl, [end])
        await self._context.reporter.store_events()


class _RestoreState:
    """How far a restore has come."""

    def __init__(self, progress: Callable[[RestoreReport], None] | None) -> None:
        self.reader = ExportReader()
        self.early = EarlyValues()
        self.report = RestoreReport()
        self.end: Saved | None = None
        self._progress = progress

    def restored(self, block: Block, new: int) -> None:
        """Count a block that is in the crawl now."""
        items = _without_end(block)
        if block.items and isinstance(block.items[-1], SavedEnd):
            self.end = block.items[-1]
        self.report = _add_to_report(self.report, items, new)
        if self._progress is not None:
            self._progress(self.report)

    def advice(self, crawl: str) -> str:
        """Return what to add to the error if part of the export is in the crawl already."""
        if self.report == RestoreReport():
            return ""
        return (
            f"; the part before that is in crawl {crawl!r}, which leases no tasks now: "
            "restore the whole export again to complete it, or restore into another crawl"
        )


def _without_end(block: Block) -> list[Saved]:
    """Return the items without the end: a crawl may run only after the last line was checked."""
    items = [item for item in block.items if not isinstance(item, SavedNote)]
    return items[:-1] if items and isinstance(items[-1], SavedEnd) else items


async def shared_values(store: FullStore, crawl: str) -> AsyncIterator[list[SavedNote]]:
    """Yield the crawl's shared values in order, some at a time."""
    block: list[SavedNote] = []
    async for value in values_of(store, crawl):
        block.append(SavedNote(value.topic, value.name, value.text))
        if len(block) == PAGE:
            yield block
            block = []
    if block:
        yield block


class EarlyValues:
    """Shared values come before the crawl whose they are: they wait here until it is created."""

    def __init__(self) -> None:
        self._waiting: list[SharedValueWrite] = []
        self._has_crawl = False

    async def write(
        self, store: FullStore, crawl: str, items: Iterable[object], *, has_crawl: bool
    ) -> None:
        """Write the shared values among the items, if something of the crawl was restored so far.

        A value that is there already is not changed.
        """
        self._waiting += [
            SharedValueWrite(one.topic, one.name, one.text)
            for one in items
            if isinstance(one, SavedNote)
        ]
        self._has_crawl |= has_crawl
        if self._has_crawl and self._waiting:
            values, self._waiting = self._waiting, []
            for start in range(0, len(values), PAGE):
                await store.put_values(crawl, values[start : start + PAGE])


def _with_line(block: Block, error: InvalidInput) -> InvalidInput:
    """Return the error with the line at fault, unless it is about the crawl itself."""
    if str(error).startswith("crawl "):
        return error
    for item, line in zip(block.items, block.lines, strict=True):
        fault = None if isinstance(item, SavedNote) else item_error(item)
        if fault is not None:
            return InvalidInput(f"line {line}: {fault}")
    return InvalidInput(f"lines {block.lines[0]} to {block.lines[-1]}: {error}")


def _add_to_report(report: RestoreReport, items: list[Saved], new: int) -> RestoreReport:
    crawl = items[0].crawl if items and isinstance(items[0], SavedCrawl) else report.crawl
    queues, tasks = count_items(items)
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


# ---- lines


class Head(msgspec.Struct, frozen=True, tag_field="outrider", tag="export"):
    """The first line; fields are only ever added, so that every release can read the version."""

    version: Annotated[int, Meta(ge=1)]
    crawl: str = ""
    at: float = 0.0


class Checksum(msgspec.Struct, frozen=True, tag_field="outrider", tag="sum"):
    """The SHA-256 of all bytes before this line."""

    sha256: _Checksum


class Tail(msgspec.Struct, frozen=True, tag_field="outrider", tag="end"):
    """The last line, with what the file holds."""

    queues: int
    tasks: int
    sha256: _Checksum


class Block(NamedTuple):
    """Items of a complete block, and the numbers of their lines."""

    items: list[Item]
    lines: list[int]


_encode = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder(Item).decode
_decode_head = msgspec.json.Decoder(Head).decode
_decode_own = msgspec.json.Decoder(Checksum | Tail).decode


class ExportWriter:
    """Encodes items as the lines of an export."""

    def __init__(self) -> None:
        self._sha256 = sha256()
        self.queues = self.tasks = 0

    def head(self, crawl: str, at: float) -> bytes:
        """Return the first line."""
        return self._hashed(_encode([Head(VERSION, crawl, at)]))

    def block(self, items: Sequence[Item]) -> bytes:
        """Return a block of items and its checksum."""
        queues, tasks = count_items(items)
        self.queues, self.tasks = self.queues + queues, self.tasks + tasks
        lines = self._hashed(_encode(items))
        return lines + self._hashed(_encode([Checksum(self._sha256.hexdigest())]))

    def tail(self) -> bytes:
        """Return the last line."""
        return _encode([Tail(self.queues, self.tasks, self._sha256.hexdigest())])

    def _hashed(self, lines: bytes) -> bytes:
        self._sha256.update(lines)
        return lines


class ExportReader:
    """Decodes the bytes of an export into complete blocks; `InvalidInput` names the line."""

    def __init__(self) -> None:
        self.lines = 0
        self._rest: list[bytes] = []  # the beginning of a line
        self._size = 0
        self._sha256 = sha256()
        self._block = Block([], [])
        self._counts = (0, 0)
        self._is_complete = False

    def feed(self, chunk: bytes) -> Iterator[Block]:
        """Yield the blocks that these bytes complete."""
        first, *others = chunk.split(b"\n")
        self._append(first)
        for line in others:
            whole = b"".join(self._rest)
            self._rest = []
            yield from self._read(whole)
            self._append(line)

    def _append(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._size += len(piece)
        if self._size > BLOCK_BYTES or len(self._block.items) > BLOCK_LINES:
            self._fail("no checksum for too long; this is no export, or a damaged one", 1)

    def end(self) -> None:
        """Check that the export is complete: there are no more bytes."""
        if not (self.lines or any(self._rest)):
            raise InvalidInput("this is no export: it is empty")
        if any(self._rest) and not self.lines:
            list(self._read(b"".join(self._rest)))
        if not self._is_complete or any(self._rest):
            self._fail("the export was cut: its last line is missing", 1)

    def _read(self, line: bytes) -> Iterator[Block]:
        self.lines += 1
        if self.lines == 1:
            _check_head(line)
        elif self._is_complete:
            self._fail("something follows the end of the export")
        elif line.startswith(_OWN_LINE):
            yield from self._read_own(line)
        else:
            self._read_item(line)
        self._sha256.update(line + b"\n")

    def _read_item(self, line: bytes) -> None:
        try:
            self._block.items.append(_decode(line))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self._fail(str(error))
        self._block.lines.append(self.lines)

    def _read_own(self, line: bytes) -> Iterator[Block]:
        try:
            own = _decode_own(line)
        except (msgspec.MsgspecError, UnicodeError) as error:
            self._fail(str(error))
        if own.sha256 != self._sha256.hexdigest():
            self._fail("something before this line is not what was written: checksums differ")
        self._size = 0
        if isinstance(own, Tail):
            self._check_tail(own)
            return
        block, self._block = self._block, Block([], [])
        queues, tasks = count_items(block.items)
        self._counts = (self._counts[0] + queues, self._counts[1] + tasks)
        yield block

    def _check_tail(self, tail: Tail) -> None:
        if self._block.items or (tail.queues, tail.tasks) != self._counts:
            self._fail("the export has other queues and tasks than its last line says")
        self._is_complete = True

    def _fail(self, what: str, ahead: int = 0) -> NoReturn:
        raise InvalidInput(f"line {self.lines + ahead}: {what}")


def count_items(items: Sequence[Item]) -> tuple[int, int]:
    """Return how many queues and tasks are among the items."""
    kinds = Counter(map(type, items))
    return kinds[SavedQueue], kinds[SavedTask]


def _check_head(line: bytes) -> None:
    if line.startswith(_GZIP):
        raise InvalidInput("line 1: this is compressed; unpack it, or name a file that ends in .gz")
    try:
        head = _decode_head(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InvalidInput("line 1: this is no export of Outrider") from None
    if head.version > VERSION:
        raise InvalidInput(
            f"line 1: this export was written by a newer release (format {head.version}; "
            f"this one reads {VERSION}): upgrade Outrider"
        )
