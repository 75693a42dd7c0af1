"""`outrider doctor`: what is intact of a file, and what to do; without one, how the machine is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from outrider.cli.options import Json
from outrider.cli.showing import many, say, say_json, show_table, working
from outrider.errors import InvalidInput
from outrider.store.health import CrawlHealth, Diagnosis, Rescued

_COLUMNS: Final = (
    *("known", "intact", "outdated", "lost"),
    *("pending", "leased", "done", "dead", "dropped", "queues"),
)


def doctor(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="The file to examine.", show_default=False),
    ] = None,
    *,
    rescue: Annotated[
        Path | None,
        typer.Option(
            "--rescue",
            metavar="NEW",
            help="Write all that is intact to this new file.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Examine a file: what is intact, what is not, and what to do next. Nothing is written to it.

    Without FILE: how this machine is.
    """
    if file is None and rescue is not None:
        raise InvalidInput("--rescue needs the damaged file: outrider doctor FILE --rescue NEW")
    if file is None:
        _machine(as_json=as_json)
    elif rescue is None:
        _examine(file, as_json=as_json)
    else:
        _rescue(file, rescue, as_json=as_json)


def _examine(file: str, *, as_json: bool) -> None:
    from outrider.clock import SystemClock
    from outrider.store import opening

    with working() as tell:
        found = opening.examine(file, SystemClock(), tell=tell)
    if as_json:
        say_json(found)
    else:
        _show(found)
    raise typer.Exit(0 if found.is_healthy else 1)


def _show(found: Diagnosis) -> None:
    show_table(("", "", found.file), [(f.state, f.what, f.detail) for f in found.findings])
    _show_crawls(found.crawls)
    say("healthy" if found.is_healthy else "damaged; what to do:")
    if not found.is_healthy:
        for advice in found.next:
            say(f"  {advice}")


def _show_crawls(crawls: Sequence[CrawlHealth]) -> None:
    rows = [
        (
            *("?" if (value := getattr(crawl, name)) is None else value for name in _COLUMNS),
            crawl.crawl,
        )
        for crawl in crawls
    ]
    show_table((*_COLUMNS, "crawl"), rows, right=_COLUMNS)


def _rescue(file: str, new: Path, *, as_json: bool) -> None:
    from outrider.clock import SystemClock
    from outrider.store import opening

    with working() as tell:
        saved = opening.rescue(file, new, SystemClock(), tell=tell)
    if as_json:
        say_json(saved)
    else:
        _show_rescued(saved)
    raise typer.Exit(0 if saved.is_whole else 1)


def _show_rescued(saved: Rescued) -> None:
    for crawl in saved.crawls:
        say(
            f"{crawl.crawl}: {crawl.known - crawl.lost:,} of {many(crawl.known, 'task')} rescued, "
            f"{crawl.outdated:,} of them as they were before their last change"
        )
    for name, numbers in saved.lost.items():
        say(f"{name}: nothing is left of the tasks numbered {', '.join(map(str, numbers))}")
    for name in saved.without_rules:
        say(f"{name}: its rules are lost; the default ones hold until a worker brings its own")
    if saved.untold:
        lost = many(saved.untold, "lost page")
        say(f"what stood on {lost} nothing tells: some tasks may be as they were before")
    say(f"written to {saved.file}, and read back")


def _machine(*, as_json: bool) -> None:
    from outrider.cli.doctor_machine import look_around

    remarks = look_around()
    if as_json:
        say_json({"is_healthy": all(remark.is_ok for remark in remarks), "checks": remarks})
    else:
        show_table(
            ("", "", ""),
            [
                ("ok" if r.is_ok else "warn", r.what, f"{r.found}{r.fix and f': {r.fix}'}")
                for r in remarks
            ],
        )
    raise typer.Exit(0 if all(remark.is_ok for remark in remarks) else 1)
