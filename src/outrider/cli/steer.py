"""Commands that steer a whole crawl: pause, resume, cancel, rescore, predict, problem, signals."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from outrider.cli.open_crawl import on_crawl
from outrider.cli.options import By, Crawl, Json, Key, Pattern, Store, Tag, Type, Yes
from outrider.cli.terminal import (
    confirm,
    exit_with_problem,
    print_json,
    print_line,
    print_note,
    show_table,
)
from outrider.core.signals import Cluster, Prediction
from outrider.core.states import CrawlStatus

if TYPE_CHECKING:
    from outrider.frontier import Frontier


# ---- the status of a crawl: I1, I3


_FIXES: Final = {
    CrawlStatus.FINISHED: "; new work restarts it: add URLs, replay dead letters, revive queues",
    CrawlStatus.CANCELLED: "; use another crawl with --crawl NAME",
}


def pause(store: Store, *, by: By = None, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Pause a crawl: no tasks are leased until it is resumed. Exits with 1 if that fails."""
    _change_status(store, crawl, CrawlStatus.PAUSED, by=by, as_json=as_json)


def resume(store: Store, *, by: By = None, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Resume a paused crawl. Exits with 1 if that fails."""
    _change_status(store, crawl, CrawlStatus.RUNNING, by=by, as_json=as_json)


def cancel(
    store: Store,
    *,
    yes: Yes = False,
    by: By = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Cancel a crawl for good: pending and leased tasks are dropped. Asks for confirmation."""
    confirm(f"Cancel {crawl} for good?", yes=yes)
    _change_status(store, crawl, CrawlStatus.CANCELLED, by=by, as_json=as_json)


def _change_status(
    store: str, crawl: str, wanted: CrawlStatus, *, by: str | None, as_json: bool
) -> None:
    status = on_crawl(store, crawl, lambda frontier: set_status(frontier, wanted), by=by)
    if as_json:
        print_json({"crawl": crawl, "status": status})
    else:
        print_line(f"{crawl} is {status}")
    if status is not wanted:
        exit_with_problem(
            f"a crawl that is {status} cannot become {wanted}{_FIXES.get(status, '')}"
        )


async def set_status(frontier: Frontier, wanted: CrawlStatus) -> CrawlStatus:
    """Change the status, and return the new one."""
    if wanted is CrawlStatus.PAUSED:
        return await frontier.pause()
    if wanted is CrawlStatus.CANCELLED:
        return await frontier.cancel()
    return await frontier.resume()


# ---- rescoring: C8


_NOTE_INTERVAL: Final = 1.0


def rescore(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    *,
    key: Key = None,
    pattern: Pattern = None,
    kind: Type = None,
    tag: Tag = None,
    by: By = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Score pending tasks again: all, or those that match all given options.

    Claims continue meanwhile. Workers rescore by themselves when settings or signals change.
    """
    which = {"key": key, "pattern": pattern, "type": kind, "tag": tag}
    changed = on_crawl(store, crawl, lambda frontier: rescore_tasks(frontier, which), by=by)
    if as_json:
        print_json({"changed": changed})
    else:
        print_line(f"{changed:,} tasks have a new priority")


async def rescore_tasks(frontier: Frontier, which: Mapping[str, str | None]) -> int:
    """Rescore, noting progress every second; return how many tasks changed."""
    work = asyncio.ensure_future(frontier.rescore(**which))
    while not (await asyncio.wait([work], timeout=_NOTE_INTERVAL))[0]:
        job = await frontier.rescoring()
        if job.state == "running":
            print_note(f"{job.looked:,} of {job.pending:,} rescored, {job.changed:,} changed")
    return await work


# ---- signals: F4, F5


class CrawlSignals(msgspec.Struct, frozen=True):
    """All signals of a crawl."""

    predictions: Sequence[Prediction]
    problems: Sequence[Cluster]


def signals(store: Store, *, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Show predictions with their results, and clusters of problems."""
    found = on_crawl(store, crawl, read_signals)
    if as_json:
        print_json(
            {"predictions": found.predictions, "problems": [*map(_cluster_json, found.problems)]}
        )
        return
    rows = [
        (one.state, f"{one.confidence:.2f}", f"{one.lift:.2f}", one.url)
        for one in found.predictions
    ]
    show_table(("prediction", "confidence", "lift", "URL"), rows)
    clusters = [(one.kind, one.scope, one.target, f"{one.count:,}") for one in found.problems]
    show_table(("problem", "scope", "target", "count"), clusters)


async def read_signals(frontier: Frontier) -> CrawlSignals:
    """Read the signals."""
    return CrawlSignals([one async for one in frontier.predictions()], await frontier.problems())


def _cluster_json(cluster: Cluster) -> dict[str, object]:
    names = ("kind", "scope", "target", "count")
    return {name: getattr(cluster, name) for name in names}


def predict(
    store: Store,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL that is worth a visit.")],
    *,
    confidence: Annotated[float, typer.Option(help="Confidence, 0 to 1.")] = 0.8,
    lift: Annotated[float, typer.Option(help="Expected benefit, 0 to 1.")] = 0.5,
    crawl: Crawl = "default",
) -> None:
    """Predict that a URL is worth a visit: it is visited sooner; the visit rates the prediction."""
    moved = on_crawl(store, crawl, lambda frontier: frontier.predict(url, confidence, lift))
    print_line("pending, and moved forward" if moved else "stored for when the URL is found")


def problem(
    store: Store,
    kind: Annotated[
        str, typer.Argument(help="Kind of problem: missing-hub, unknown-pattern, coverage-gap, …")
    ],
    target: Annotated[str, typer.Argument(help="Host, URL, path or word.")],
    *,
    scope: Annotated[str, typer.Option(help="Only prefer pages of this host.")] = "",
    crawl: Crawl = "default",
) -> None:
    """Report a problem: where problems cluster, pages are visited sooner and URLs proposed."""
    found = on_crawl(store, crawl, lambda frontier: frontier.report_problem(kind, scope, target))
    print_line(f"{found.count:,} of this kind within the window")
