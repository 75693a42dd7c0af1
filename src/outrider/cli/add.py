"""`outrider add`: URLs from arguments, a file or a pipe; a bad line does not affect the others."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from difflib import get_close_matches
from errno import EAGAIN
from io import FileIO
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol

import msgspec
import typer

from outrider.cli.open_crawl import on_crawl
from outrider.cli.options import Crawl, Json, Profile, Store, parse_seconds
from outrider.cli.terminal import format_counts, print_json, print_line, print_note, progress_line
from outrider.core.task import Link
from outrider.errors import InvalidInput, OutriderError
from outrider.settings import Layer, Layers, environment_layer
from outrider.settings.profiles import PROFILE

if TYPE_CHECKING:
    from outrider.frontier import Frontier


_MAX_SHOWN: Final = 20  # refusals shown one by one; the rest are counted
_DUPLICATE: Final = "duplicate"  # a known URL is not a problem


class Refused(msgspec.Struct, frozen=True):
    """One link that was not added, its line and the reason."""

    line: int | None  # in the file; None: an argument
    url: str
    reason: str
    detail: str | None


class Report(msgspec.Struct):
    """Counts of added and refused links."""

    added: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    problems: list[Refused] = msgspec.field(
        default_factory=list
    )  # the first ones, without duplicates

    @property
    def is_fine(self) -> bool:
        """Whether every link is in the crawl now."""
        return not self.refused.keys() - {_DUPLICATE}

    def refuse(self, one: Refused) -> None:
        """Count a refused link, and keep the first few."""
        self.refused[one.reason] += 1
        if one.reason != _DUPLICATE and len(self.problems) < _MAX_SHOWN:
            self.problems.append(one)


class AddRequest(NamedTuple):
    """What to add: arguments, a file, options of all links; `see` is called after each batch."""

    urls: Iterable[str]
    source: str | None = None
    options: Mapping[str, Any] = {}
    see: Callable[[], None] = lambda: None
    settings: Mapping[str, Any] = {}  # of the crawl, to be changed before


def add(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL", help="URLs to add.")] = None,
    *,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE|-",
            help="File with one URL, or JSON object of Link fields, per line.",
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--type", help="Type of task: page, article, hub, …")
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", min=0, help="Number of links from a seed.")
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option("--priority", help="Number, lower is sooner; or critical, high, low."),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Source label.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Queue key, instead of the host.")
    ] = None,
    known: Annotated[
        str | None,
        typer.Option("--known", help="What to do with known URLs: keep, raise, revisit or set."),
    ] = None,
    origin: Annotated[str | None, typer.Option("--origin", help="How the URL was found.")] = None,
    forced: Annotated[
        bool, typer.Option("--forced", help="Put before all other tasks of the queue.")
    ] = False,
    delay: Annotated[
        float | None,
        typer.Option(
            "--delay", metavar="SECONDS", parser=parse_seconds, help="Time until due: 90, 15m, 2h."
        ),
    ] = None,
    allow_private: Annotated[
        bool,
        typer.Option(
            "--allow-private",
            help="Let the crawl visit private and loopback addresses, from now on.",
        ),
    ] = False,
    profile: Profile = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Add URLs to a crawl; creates the file and the crawl if they do not exist.

    Options apply to every URL; a JSON line's own fields override them. Exits with 1 if a URL was
    refused for another reason than being known already.
    """
    if not urls and source is None:
        raise InvalidInput("add: give URLs, or --from FILE (- is standard input)")
    check_source(source)
    fields = {
        "type": kind,
        "depth": depth,
        "priority": _parse_priority(priority),
        "tag": tag,
        "key": key,
        "known": known,
        "origin": origin,
        "forced": forced or None,
        "delay": delay,
    }
    options = {name: value for name, value in fields.items() if value is not None}
    report = Report()
    with _noted_if_interrupted(report), progress_line() as see:
        settings = {"url": {"allow_private": True}} if allow_private else {}
        given = AddRequest(urls or (), source, options, lambda: see(_summary(report)), settings)
        on_crawl(
            store,
            crawl,
            lambda frontier: add_all(frontier, given, report),
            creates=True,
            opens=True,
            begins=None if profile is None else _new_crawl_layers(profile),
        )
    _show_report(report, as_json=as_json)
    raise typer.Exit(0 if report.is_fine else 1)


def _new_crawl_layers(profile: str) -> Layers:
    layers = Layers(
        environment=environment_layer(), command=Layer("command line", {PROFILE: profile})
    )
    layers.base_settings()  # raises before a file is created
    return layers


@contextmanager
def _noted_if_interrupted(report: Report) -> Iterator[None]:
    """Note how much was added if a user or an error, such as a full disk, interrupts it."""
    try:
        yield
    except (KeyboardInterrupt, OutriderError):
        if report.added or report.refused:
            print_note(f"not everything was read; so far {_summary(report)}")
        raise


async def add_all(frontier: Frontier, given: AddRequest, report: Report) -> None:
    """Add the arguments, then the file, in order; the report is correct after each batch."""
    if given.settings:
        await frontier.configure(given.settings)
    async for lines in _batches(given):
        await _add(frontier, lines, report)
        given.see()


async def _batches(given: AddRequest) -> AsyncIterator[list[Line]]:
    yield [Line(None, link_of(url, given.options)) for url in given.urls]
    if given.source is not None:
        async for lines in read_lines(given.source, given.options):
            yield lines


async def _add(frontier: Frontier, lines: list[Line], report: Report) -> None:
    links = [line.link for line in lines if not isinstance(line.link, BadLine)]
    answers = iter((await frontier.add(links)).answers if links else ())
    for line in lines:
        if isinstance(line.link, BadLine):
            report.refuse(Refused(line.number, line.link.text, "bad-line", line.link.fault))
            continue
        answer = next(answers)
        report.added += answer.added
        if not answer.added:
            reason = answer.reason or ""
            report.refuse(Refused(line.number, answer.url, reason, answer.detail))


def _parse_priority(given: str | None) -> float | str | None:
    try:
        return None if given is None else float(given)
    except ValueError:
        return given  # a name; the link checks it


def _show_report(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    print_line(_summary(report))
    for one in report.problems:
        place = "" if one.line is None else f"line {one.line}: "
        detail = f" ({one.detail})" if one.detail else ""
        print_note(f"{place}{one.reason}: {one.url[:200]}{detail}")
    rest = report.refused.total() - report.refused[_DUPLICATE] - len(report.problems)
    if rest > 0:
        print_note(f"… and {rest:,} more")


def _summary(report: Report) -> str:
    reasons = f": {format_counts(dict(report.refused.most_common()))}" if report.refused else ""
    return f"added {report.added:,}, refused {report.refused.total():,}{reasons}"


# ---- lines of a file or a pipe


_CHUNK: Final = 1 << 17  # bytes read at a time: some thousand lines
_MAX_LINE: Final = 1 << 20  # bytes; the limits of a link are far below
_FIELDS: Final = frozenset(Link.__struct_fields__)
# What other crawlers call fields of a link: no spelling would suggest them, or a wrong one.
_NAMES_ELSEWHERE: Final = {
    "kind": "type",
    "url_type": "type",
    "keyword": "tag",
    "payload": "meta",
    "referrer": "via",
    "discoveryMethod": "origin",
    "discovery_method": "origin",
    "next_attempt_at": "delay (seconds from now)",
    "next_visit_after": "delay (seconds from now)",
}


class BadLine(NamedTuple):
    """A line that is not a link: its beginning, and the problem."""

    text: str
    fault: str


class Line(NamedTuple):
    """A link and its line number; None: it was an argument."""

    number: int | None
    link: str | Link | BadLine


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


def link_of(url: str, options: Mapping[str, Any]) -> str | Link:
    """A URL with the options' fields."""
    return Link(url, **options) if options else url


async def read_lines(source: str, options: Mapping[str, Any]) -> AsyncIterator[list[Line]]:
    """Yield the links of a file, or of standard input for "-", in batches as they arrive."""
    with _open_source(source) as stream:
        numbered = _LineNumbers()
        while chunk := await _read_in_thread(lambda: stream.read(_CHUNK)):
            yield list(_links(numbered.feed(chunk), options))
        yield list(_links(numbered.rest(), options))


class _LineNumbers:
    """Splits bytes into numbered lines."""

    def __init__(self) -> None:
        self._count = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        *whole, tail = (self._tail + chunk).split(b"\n")
        self._tail = tail[: _MAX_LINE + 1]  # too long already: the rest is not needed
        for line in whole:
            self._count += 1
            yield self._count, line

    def rest(self) -> Iterator[tuple[int, bytes]]:
        yield self._count + 1, self._tail


def _links(lines: Iterator[tuple[int, bytes]], options: Mapping[str, Any]) -> Iterator[Line]:
    for number, line in lines:
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901 - without the byte order mark
        line = line.strip()  # noqa: PLW2901 - without surrounding space
        if line and not line.startswith(b"#"):
            yield Line(number, _read_link(line, options))


def _read_link(line: bytes, options: Mapping[str, Any]) -> str | Link | BadLine:
    if len(line) > _MAX_LINE:
        return _bad_line(line, f"longer than {_MAX_LINE:,} bytes")
    if line.startswith(b"{"):
        return _read_json_link(line, options)
    try:
        return link_of(line.decode(), options)
    except UnicodeDecodeError:
        return _bad_line(line, "not UTF-8")


def _read_json_link(line: bytes, options: Mapping[str, Any]) -> Link | BadLine:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        unknown = fields.keys() - _FIELDS
        if unknown:
            return _bad_line(line, _unknown_field(min(unknown)))
        return msgspec.convert({**options, **fields}, Link)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _bad_line(line, str(error))


def _unknown_field(name: str) -> str:
    close = [_NAMES_ELSEWHERE.get(name), *get_close_matches(name, _FIELDS, 1)]
    meant = next(filter(None, close), None)
    return f"{name!r} is not a field of a link" + (f"; did you mean {meant}?" if meant else "")


def _bad_line(line: bytes, fault: str) -> BadLine:
    return BadLine(line[:200].decode(errors="replace"), fault)


def check_source(source: str | None) -> None:
    """Raise InvalidInput for a file that cannot be read, before a crawl is created."""
    if source not in (None, "-"):
        with _open_source(source):
            pass


@contextmanager
def _open_source(source: str) -> Iterator[_Readable]:
    if source == "-":
        # Unbuffered: a thread that still reads when the command ends holds no lock.
        yield getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        return
    try:
        stream = FileIO(source)
    except OSError as error:
        raise InvalidInput(f"--from {source}: {error.strerror}") from error
    with stream:
        yield stream


async def _read_in_thread(read: Callable[[], bytes | None]) -> bytes:
    """Read in a daemon thread, so that neither the loop nor the end of the command waits."""
    future: Future[bytes] = Future()
    future.set_running_or_notify_cancel()  # it can no longer be cancelled, only answered

    def work() -> None:
        try:
            data = read()
            if data is None:
                raise BlockingIOError(EAGAIN, "nothing to read, and not allowed to wait")
            future.set_result(data)
        except OSError as error:
            future.set_exception(InvalidInput(f"--from: {error.strerror}"))

    Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(future)
