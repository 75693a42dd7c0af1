"""`outrider score`: in which order links would be visited and why, before a crawl is begun (F9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from msgspec.structs import replace

from outrider.cli.add import BadLine, link_of, read_lines
from outrider.cli.open_crawl import on_crawl
from outrider.cli.options import Crawl, Json, Limit, Profile, row_limit
from outrider.cli.terminal import (
    fields_of,
    format_count,
    format_counts,
    print_json,
    print_note,
    show_table,
)
from outrider.core.task import Link
from outrider.errors import InvalidInput
from outrider.frontier import Frontier
from outrider.frontier.reports import Scored, ScoringReport
from outrider.settings import Layer, Layers

if TYPE_CHECKING:
    from outrider.simulation.visit_order import Place

MAX_LINKS: Final = 10_000  # the order is found by claiming them all
_COLUMNS: Final = (
    *("place", "after", "precedence", "priority"),
    *("terms", "lane", "type", "key", "URL"),
)
_NUMBERS: Final = frozenset(_COLUMNS[:4])
_NO_FILES: Final = Layer("score", {"events": {"jsonl": ""}})  # nothing happens: no events
_NO_SEED: Final = (
    "no link is in scope, which is the domains of seeds: links of depth 0. Give those too, or other"
    " settings, as in: --set scope.mode=all"
)
_MAY_VISIT_AGAIN: Final = {"revisit": ("done", "dead", "dropped")}  # by `known` of a link


class Row(NamedTuple):
    """One link: where it was given, its score, and its place in the order."""

    given: str  # FILE:LINE; "": as an argument
    scored: Scored
    place: int | None = None
    after: float | None = None
    reason: str | None = None  # why it would not be visited


class Answer(NamedTuple):
    """All links: those that would be visited, in order, then the others."""

    rows: Sequence[Row]
    scoring: ScoringReport

    @property
    def lacks_seed(self) -> bool:
        """Whether links were out of scope, and none was in it."""
        reasons = {row.scored.reason for row in self.rows}
        return "off-scope" in reasons and None not in reasons


def score(  # noqa: PLR0913 - a command's options are its parameters
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|URL...",
            help="URLs, or files of URLs or JSON links, one per line; -: standard input.",
        ),
    ],
    *,
    store: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="Score as this crawl would, with its settings."),
    ] = None,
    crawl: Crawl = "default",
    settings: Annotated[
        str | None, typer.Option("--settings", metavar="FILE", help="Settings as TOML.")
    ] = None,
    profile: Profile = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any setting: queue.order=…"),
    ] = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Show in which order links would be visited, with every term of their priorities.

    Settings are those that `crawl` would have. Nothing is visited, stored or counted. The order is
    that of one worker whose visits take no time and find no links. Exits with 1 if a link would not
    be visited.
    """
    from outrider.cli.crawl import allow_local_imports
    from outrider.cli.crawl_plan import read_layers
    from outrider.wiring import SITES_LAYER

    _check(sources)
    allow_local_imports()
    if store is None:
        given = read_layers(settings, {}, assign or [], profile)
        layers = replace(given, usual=SITES_LAYER, given=_NO_FILES)
        answer = asyncio.run(_score_alone(sources, layers))
    elif settings or profile or assign:
        raise InvalidInput("score --store: the crawl has its settings; leave out those given here")
    else:
        answer = on_crawl(store, crawl, lambda frontier: _score(frontier, sources, asks_store=True))
    _show(answer, row_limit(limit, as_json=as_json), as_json=as_json)
    if store is None and answer.lacks_seed:
        print_note(_NO_SEED)
    raise typer.Exit(0 if all(row.place is not None for row in answer.rows) else 1)


async def _score_alone(sources: Sequence[str], layers: Layers) -> Answer:
    async with Frontier.open("memory://", settings=layers) as frontier:
        return await _score(frontier, sources, asks_store=False)


async def _score(frontier: Frontier, sources: Sequence[str], *, asks_store: bool) -> Answer:
    from outrider.simulation.visit_order import visit_order

    given = await _read_all(sources)
    links = [link for _, link in given if not isinstance(link, BadLine)]
    report = await frontier.score(links, known=asks_store)
    answers = iter(report.answers)
    rows = [_row(where, link, answers.__next__) for where, link in given]
    waiting = [row for row in rows if row.reason is None]
    places = iter(await visit_order([row.scored for row in waiting], frontier.settings))
    placed = [row if row.reason else _with_place(row, next(places)) for row in rows]
    return Answer(sorted(placed, key=_by_place), report.scoring)


def _by_place(row: Row) -> tuple[bool, bool, int]:
    """Sort key: the visited ones in order, then those that wait for ever, then the refused."""
    return row.place is None, row.scored.reason is not None, row.place or 0


def _row(where: str, link: str | Link | BadLine, answer: Callable[[], Scored]) -> Row:
    if isinstance(link, BadLine):
        return Row(where, Scored(link.text, "bad-line", link.fault), reason="bad-line")
    scored = answer()
    return Row(where, scored, reason=scored.reason or _known_reason(link, scored))


def _known_reason(link: str | Link, scored: Scored) -> str | None:
    """Return why an admissible link becomes no visit; None: it does (B3)."""
    rule, is_done = (link.known, link.done) if isinstance(link, Link) else ("keep", False)
    if is_done:
        return "added as done"
    if scored.known is None or rule == "set" or scored.known in _MAY_VISIT_AGAIN.get(rule, ()):
        return None
    return f"duplicate ({scored.known})"


def _with_place(row: Row, place: Place) -> Row:
    return row._replace(place=place.place, after=place.after, reason=place.reason)


# ---- reading


def _check(sources: Sequence[str]) -> None:
    """Raise InvalidInput for files that cannot be read, before anything is."""
    for source in sources:
        if source == "-" or "://" in source:
            continue
        if not Path(source).exists():
            raise InvalidInput(f"score {source}: no such file; a URL begins with https://")
        if Path(source).is_dir():
            raise InvalidInput(f"score {source}: a directory; give a file of links")


async def _read_all(sources: Sequence[str]) -> list[tuple[str, str | Link | BadLine]]:
    """Read all links, each with its place; they are few enough to be claimed one by one."""
    given: list[tuple[str, str | Link | BadLine]] = []
    for source in sources:
        async for where, link in _read(source):
            given.append((where, link))
            if len(given) > MAX_LINKS:
                fix = "give a part of them, as in: head -n 10000 FILE | outrider score -"
                raise InvalidInput(f"score orders at most {MAX_LINKS:,} links; {fix}")
    return given


async def _read(source: str) -> AsyncIterator[tuple[str, str | Link | BadLine]]:
    if "://" in source:
        yield "", link_of(source, {})
        return
    async for lines in read_lines(source, {}):
        for line in lines:
            place = f"line {line.number}" if source == "-" else f"{source}:{line.number}"
            yield place, line.link


# ---- showing


def _show(answer: Answer, limit: int | None, *, as_json: bool) -> None:
    shown = answer.rows[:limit]
    if as_json:
        for row in shown:
            print_json(_as_json(row))
    else:
        _show_rows(shown)
    if len(shown) < len(answer.rows):
        print_note(f"only the first {limit:,} are shown; --limit 0 shows all")
    print_note(_summary(answer))


def _show_rows(rows: Sequence[Row]) -> None:
    placed = [row for row in rows if row.place is not None]
    if placed:
        show_table(_COLUMNS, map(_cells, placed), right=_NUMBERS)
    for row in rows[len(placed) :]:
        print_note(_refusal(row))


def _as_json(row: Row) -> dict[str, Any]:
    place = {"place": row.place, "after": row.after, "given": row.given or None}
    return place | fields_of(row.scored, reason=row.reason)


def _cells(row: Row) -> tuple[object, ...]:
    scored = row.scored
    terms = () if scored.breakdown is None else scored.breakdown.terms
    return (
        *(row.place, f"{row.after:,.1f} s", scored.precedence, f"{scored.priority:g}"),
        ", ".join(f"{name} {value:+g}" for name, value in terms),
        *(scored.lane, scored.type, scored.key, scored.url),
    )


def _refusal(row: Row) -> str:
    where = f"{row.given}: " if row.given else ""
    detail = f" ({row.scored.detail})" if row.scored.detail else ""
    return f"{where}{row.reason}: {row.scored.url[:200]}{detail}"


def _summary(answer: Answer) -> str:
    reasons = Counter(row.reason for row in answer.rows if row.reason is not None)
    total, scoring = len(answer.rows), answer.scoring
    left = f", {reasons.total():,} not: {format_counts(dict(reasons))}" if reasons else ""
    return (
        f"{format_count(total, 'link')}: {total - reasons.total():,} would be visited{left}; "
        f"scoring by {', '.join(scoring.features)} took {scoring.mean * 1e6:,.1f} µs a link"
    )
