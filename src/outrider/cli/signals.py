"""`outrider signals`, `predict`, `problem`: what a crawl is told about itself (F4, F5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Store
from outrider.cli.showing import say, say_json, show_table
from outrider.core.signals import Cluster, Prediction

if TYPE_CHECKING:
    from outrider.frontier import Frontier


class Told(msgspec.Struct, frozen=True):
    """All signals of a crawl."""

    predictions: Sequence[Prediction]
    problems: Sequence[Cluster]


def signals(store: Store, *, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Show what was predicted and what came of it, and where problems cluster."""
    told = on_crawl(store, crawl, read)
    if as_json:
        say_json({"predictions": told.predictions, "problems": [*map(_shape, told.problems)]})
        return
    rows = [
        (one.state, f"{one.confidence:.2f}", f"{one.lift:.2f}", one.url) for one in told.predictions
    ]
    show_table(("prediction", "confidence", "lift", "URL"), rows)
    found = [(one.kind, one.scope, one.target, f"{one.count:,}") for one in told.problems]
    show_table(("problem", "scope", "target", "count"), found)


async def read(frontier: Frontier) -> Told:
    """Read; nothing changes."""
    return Told([one async for one in frontier.predictions()], await frontier.problems())


def _shape(cluster: Cluster) -> dict[str, object]:
    names = ("kind", "scope", "target", "count")
    return {name: getattr(cluster, name) for name in names}


def predict(
    store: Store,
    url: Annotated[str, typer.Argument(metavar="URL", help="What is worth a visit.")],
    *,
    confidence: Annotated[float, typer.Option(help="How sure you are, 0 to 1.")] = 0.8,
    lift: Annotated[float, typer.Option(help="How much it would bring, 0 to 1.")] = 0.5,
    crawl: Crawl = "default",
) -> None:
    """Say that a URL is worth a visit: it is visited sooner, and its visit says who was right."""
    moved = on_crawl(store, crawl, lambda frontier: frontier.predict(url, confidence, lift))
    say("it waits, and moved forward" if moved else "noted, for when it is found")


def problem(
    store: Store,
    kind: Annotated[str, typer.Argument(help="missing-hub, unknown-pattern, coverage-gap, …")],
    target: Annotated[str, typer.Argument(help="A host, a URL, a path or a word.")],
    *,
    scope: Annotated[str, typer.Option(help="Only pages of this host are visited sooner.")] = "",
    crawl: Crawl = "default",
) -> None:
    """Report a problem: where many cluster, pages are visited sooner, and URLs are proposed."""
    found = on_crawl(store, crawl, lambda frontier: frontier.report_problem(kind, scope, target))
    say(f"{found.count:,} of its kind within the window")
