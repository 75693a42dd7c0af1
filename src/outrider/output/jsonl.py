"""Output as JSON lines: one line per page, and items of handlers in a second file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from outrider.core.outcome import Done
from outrider.errors import InvalidInput, OutputError
from outrider.output.append_files import AppendFile
from outrider.output.errors import write_error
from outrider.output.file_sink import FileSink, Record
from outrider.output.sink import Page, Visit

SUFFIX: Final = ".jsonl"
ITEMS: Final = ".items.jsonl"

_FIRST: Final = {SUFFIX: b'{"url":', ITEMS: b"{"}  # how files of Outrider begin
_encode = msgspec.json.Encoder().encode


class Line(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The fields of a page's line; fields without a value are left out."""

    url: str
    status: int
    at: str  # time of the request: ISO 8601, UTC, milliseconds
    seconds: float
    bytes: int  # of the body, decompressed
    depth: int = -1
    type: str | None = None
    charset: str | None = None
    title: str | None = None
    via: str | None = None
    tag: str | None = None
    digest: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    redirect: str | None = None
    canonical: str | None = None
    from_cache: bool = False
    meta: msgspec.Raw | None = None
    links: list[str] | None = None
    body: str | None = None


def jsonl_sink(path: str | Path, *, body: bool = False, sync: bool = False) -> FileSink:
    """Write pages to `<path>.jsonl`, items to `<path>.items.jsonl`; `path` may end in `.jsonl`."""
    stem = Path(path)
    stem = stem.with_name(stem.name.removesuffix(SUFFIX))
    return FileSink(stem.with_name(stem.name + SUFFIX), JsonLines(stem.name, body=body), sync=sync)


def items_sink(path: str | Path, *, sync: bool = False) -> FileSink:
    """Write only the items of handlers, to `<path>.items.jsonl`."""
    stem = Path(path)
    form = JsonLines(stem.name, pages=False)
    return FileSink(stem.with_name(stem.name + ITEMS), form, sync=sync)


class JsonLines:
    """Implements `Format` as JSON lines."""

    def __init__(self, stem: str, *, body: bool = False, pages: bool = True) -> None:
        self._body = body
        self._writes_pages = pages
        self._pages, self._items = f"{stem}{SUFFIX}", f"{stem}{ITEMS}"
        self.names = (self._pages, self._items) if pages else (self._items,)

    def owns(self, name: str) -> bool:
        """See `Format`."""
        return name in self.names

    def open(self, folder: Path, *, is_fresh: bool) -> None:
        """See `Format`."""
        if is_fresh:
            for name in self.names:
                _check_lines(folder / name, _FIRST[ITEMS if name == self._items else SUFFIX])
            if self._writes_pages:
                AppendFile(folder / self._pages).close()  # a crawl of no page has an empty file

    def records(self, visits: Sequence[Visit], length_of: Callable[[str], int]) -> list[Record]:  # noqa: ARG002 - a file has no maximal length
        """See `Format`."""
        records = []
        for index, visit in enumerate(visits):
            if not isinstance(visit.outcome, Done):
                continue
            if visit.page is not None and self._writes_pages:
                line = page_line(visit.page, visit.outcome, visit, body=self._body)
                records.append(Record(index, self._pages, line))
            if visit.items:
                records.append(Record(index, self._items, item_lines(visit.lease.url, visit.items)))
        return records

    def confirm(self, visits: Iterable[int]) -> None:
        """See `Format`."""


def page_line(page: Page, done: Done, visit: Visit, *, body: bool) -> bytes:
    """Encode one page as a line."""
    task = visit.lease.about
    line = Line(
        page.url,
        page.status,
        datetime.fromtimestamp(page.at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
        round(page.seconds, 6),
        len(page.body),
        task.depth,
        page.media_type,
        page.charset,
        page.title,
        task.via,
        task.tag,
        page.digest,
        done.etag,
        done.last_modified,
        page.location if 300 <= page.status < 400 else None,
        page.canonical,
        page.from_cache,
        _meta(task.meta),
        [url if isinstance(url := link.url, str) else url.text for link in visit.links],
        page.text if body else None,
    )
    try:
        return _encode(line) + b"\n"
    except UnicodeEncodeError:  # a header may contain any bytes
        return _encode(_printable(line)) + b"\n"


def _meta(meta: bytes) -> msgspec.Raw | None:
    if not meta:
        return None
    return msgspec.Raw(msgspec.json.format(meta, indent=-1) if b"\n" in meta else meta)


def _printable(line: Line) -> Line:
    """The same line with every byte that is not text replaced."""
    texts = {
        name: _replace_surrogates(value)
        for name, value in msgspec.structs.asdict(line).items()
        if isinstance(value, str)
    }
    links = [_replace_surrogates(link) for link in line.links or ()]
    return msgspec.structs.replace(line, **texts, links=links)


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def item_lines(url: str, items: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode the items of a page, one per line; raise InvalidInput if one is not JSON."""
    try:
        return b"".join([_item_line(item) for item in items])
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"an item of {url} is not JSON: {str(error)[:200]}") from error


def _item_line(item: Mapping[str, Any]) -> bytes:
    line = _encode(item) + b"\n"
    if line[:1] != b"{":
        raise TypeError(f"{type(item).__name__}, must be a dict")
    return line


def _check_lines(path: Path, first: bytes) -> None:
    """Raise OutputError if a file without a journal is not complete lines of Outrider."""
    try:
        with path.open("rb") as file:
            head, size = file.read(len(first)), file.seek(0, 2)
            file.seek(max(0, size - 1))
            last = file.read()
    except FileNotFoundError:
        return
    except OSError as error:
        raise write_error(path, error) from error
    if head and head != first:
        raise OutputError(f"{path} is a file, but not output of Outrider; choose another output")
    if last not in (b"", b"\n"):
        raise OutputError(
            f"{path} ends in the middle of a line, and no journal explains it; complete "
            "or remove its last line, or choose another output"
        )
