"""`outrider heatmap`: what is pending, by origin and by depth (O2)."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Store
from outrider.cli.showing import count_words, say_json, show_pairs
from outrider.frontier.reports import Heatmap


def heatmap(store: Store, *, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Show what is pending, by origin and by depth."""
    heat = on_crawl(store, crawl, lambda frontier: frontier.heatmap())
    if as_json:
        say_json(heat)
    else:
        show_pairs(_pairs(heat))


def _pairs(heat: Heatmap) -> Iterator[tuple[str, str]]:
    yield "pending", f"{heat.total:,}"
    for origin, groups in heat.cells.items():
        yield f"  {origin}", count_words(groups)
    yield "depth", ", ".join(f"{depth}: {count:,}" for depth, count in heat.depth.items())
