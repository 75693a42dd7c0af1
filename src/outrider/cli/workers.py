"""`outrider workers`: who works on a crawl, and how they are (M6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Store
from outrider.cli.showing import instant, note, say_json, show_table

if TYPE_CHECKING:
    from outrider.store.protocol import WorkerView

_NAMES: Final = ("worker", "state", "busy", "slots", "visits", "since", "last heard")


def workers(store: Store, *, crawl: Crawl = "default", as_json: Json = False) -> None:
    """List who works on a crawl, in order of their coming: idle, busy, draining or gone.

    Workers say how they are every few seconds. One that is silent for half a minute reads as gone,
    and after a day it is forgotten.
    """
    views = on_crawl(store, crawl, lambda frontier: frontier.workers())
    if as_json:
        for view in views:
            say_json(view)
    elif views:
        show_table(_NAMES, map(_row, views), right=("busy", "slots", "visits"))
    else:
        note("no worker was heard")


def _row(view: WorkerView) -> tuple[object, ...]:
    return (
        *(view.worker, view.state, view.busy, view.slots, view.visits),
        *(instant(view.started_at), instant(view.seen_at)),
    )
