"""`outrider add`: URLs from arguments, a file or a pipe; one bad line never spoils the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import typer

from outrider.cli.add_source import BadLine, Line, check_source, lines_of, link_of
from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Profile, Store, seconds_of
from outrider.cli.showing import count_words, note, say, say_json, working
from outrider.errors import InvalidInput, OutriderError
from outrider.settings import Layer, Layers, environment_layer
from outrider.settings.profiles import PROFILE

if TYPE_CHECKING:
    from outrider.frontier import Frontier

_SHOWN: Final = 20  # refusals told in full; the rest are counted
_DUPLICATE: Final = "duplicate"  # known already is no news, and no mistake


class Refused(msgspec.Struct, frozen=True):
    """One link that was not added, where it stood, and why."""

    line: int | None  # of the file; None: an argument
    url: str
    reason: str
    detail: str | None


class Report(msgspec.Struct):
    """What became of everything given."""

    added: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    problems: list[Refused] = msgspec.field(default_factory=list)  # the first, duplicates aside

    @property
    def is_fine(self) -> bool:
        """Whether everything is in the crawl now."""
        return not self.refused.keys() - {_DUPLICATE}

    def refuse(self, one: Refused) -> None:
        """Count it, and keep the first few."""
        self.refused[one.reason] += 1
        if one.reason != _DUPLICATE and len(self.problems) < _SHOWN:
            self.problems.append(one)


class Given(NamedTuple):
    """What to add: arguments, a file, what holds for all of them; and who watches."""

    urls: Iterable[str]
    source: str | None = None
    options: Mapping[str, Any] = {}
    see: Callable[[], None] = lambda: None


def add(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL", help="What to add.")] = None,
    *,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FILE|-", help="A URL, or a JSON object of Link fields, a line."
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option("--type", help="page, article, hub, …")] = None,
    depth: Annotated[int | None, typer.Option("--depth", min=0, help="Links from a seed.")] = None,
    priority: Annotated[
        str | None,
        typer.Option("--priority", help="A number, lower is sooner; or critical, high, low."),
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", help="A label of where it comes from.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Its queue, in place of the host.")
    ] = None,
    known: Annotated[
        str | None, typer.Option("--known", help="If known: keep, raise or revisit.")
    ] = None,
    origin: Annotated[str | None, typer.Option("--origin", help="How it was found.")] = None,
    forced: Annotated[bool, typer.Option("--forced", help="Before all else in its queue.")] = False,
    delay: Annotated[
        float | None,
        typer.Option(
            "--delay", metavar="SECONDS", parser=seconds_of, help="Not due before; 90, 15m, 2h."
        ),
    ] = None,
    profile: Profile = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Add URLs to a crawl; creates the file, and the crawl, if there is none.

    Options hold for every URL that does not say otherwise itself. Leaves with 1 if anything was
    refused for another reason than being known already.
    """
    if not urls and source is None:
        raise InvalidInput("add: give URLs, or --from FILE (- is standard input)")
    check_source(source)
    asked = {
        "type": kind,
        "depth": depth,
        "priority": _priority(priority),
        "tag": tag,
        "key": key,
        "known": known,
        "origin": origin,
        "forced": forced or None,
        "delay": delay,
    }
    options = {name: value for name, value in asked.items() if value is not None}
    report = Report()
    with _told_if_cut(report), working() as see:
        given = Given(urls or (), source, options, lambda: see(_summary(report)))
        on_crawl(
            store,
            crawl,
            lambda frontier: run(frontier, given, report),
            creates=True,
            begins=None if profile is None else _beginning(profile),
        )
    _tell(report, as_json=as_json)
    raise typer.Exit(0 if report.is_fine else 1)


def _beginning(profile: str) -> Layers:
    layers = Layers(
        environment=environment_layer(), command=Layer("command line", {PROFILE: profile})
    )
    layers.base_settings()  # what is wrong with it is said before a file is made
    return layers


@contextmanager
def _told_if_cut(report: Report) -> Iterator[None]:
    """Whoever stops a long file, a person or a full disk, learns how far it got."""
    try:
        yield
    except (KeyboardInterrupt, OutriderError):
        if report.added or report.refused:
            note(f"not all was read; until then {_summary(report)}")
        raise


async def run(frontier: Frontier, given: Given, report: Report) -> None:
    """Arguments first, then the file, in order; the report is true at any moment."""
    async for lines in _batches(given):
        await _add(frontier, lines, report)
        given.see()


async def _batches(given: Given) -> AsyncIterator[list[Line]]:
    yield [Line(None, link_of(url, given.options)) for url in given.urls]
    if given.source is not None:
        async for lines in lines_of(given.source, given.options):
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


def _priority(given: str | None) -> float | str | None:
    try:
        return None if given is None else float(given)
    except ValueError:
        return given  # a name, or the link's fault


def _tell(report: Report, *, as_json: bool) -> None:
    if as_json:
        say_json(report)
        return
    say(_summary(report))
    for one in report.problems:
        place = "" if one.line is None else f"line {one.line}: "
        detail = f" ({one.detail})" if one.detail else ""
        note(f"{place}{one.reason}: {one.url[:200]}{detail}")
    rest = report.refused.total() - report.refused[_DUPLICATE] - len(report.problems)
    if rest > 0:
        note(f"… and {rest:,} more")


def _summary(report: Report) -> str:
    reasons = f": {count_words(dict(report.refused.most_common()))}" if report.refused else ""
    return f"added {report.added:,}, refused {report.refused.total():,}{reasons}"
