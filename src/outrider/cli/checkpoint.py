"""`outrider checkpoint`: a copy of a file while its crawl runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.options import Json, Store
from outrider.cli.showing import many, note, say, say_json, size, working
from outrider.store.health import Copied


def checkpoint(
    store: Store,
    copy: Annotated[
        Path,
        typer.Argument(metavar="COPY", help="The new file; must not exist.", show_default=False),
    ],
    *,
    as_json: Json = False,
) -> None:
    """Copy a file as it is at this moment, also while a crawl runs.

    The copy appears when it is whole and was read through. It opens like the file itself.
    """
    from outrider.store import opening

    with working() as tell:
        made = asyncio.run(opening.checkpoint(store, copy, tell=tell))
    if as_json:
        say_json(made)
    else:
        _show(made)


def _show(made: Copied) -> None:
    say(f"{made.file}: {size(made.size)}, {many(made.pages, 'page')}, every checksum right")
    for crawl in made.crawls:
        say(
            f"{crawl.crawl}: {crawl.known:,} known, {crawl.pending:,} pending, "
            f"{crawl.leased:,} leased"
        )
    if made.holder is not None:
        note(f"copied beside {made.holder.name}, which went on")
