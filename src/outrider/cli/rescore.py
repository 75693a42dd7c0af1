"""`outrider rescore`: priorities of what waits, thought again, with progress (C8)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Key, Pattern, Store, Tag, Type
from outrider.cli.showing import note, say, say_json

if TYPE_CHECKING:
    from outrider.frontier import Frontier

_EVERY: Final = 1.0


def rescore(
    store: Store,
    *,
    key: Key = None,
    pattern: Pattern = None,
    kind: Type = None,
    tag: Tag = None,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Score pending tasks anew, all or those that match everything given.

    Claims go on meanwhile. Workers do it by themselves when settings or signals change.
    """
    which = {"key": key, "pattern": pattern, "type": kind, "tag": tag}
    changed = on_crawl(store, crawl, lambda frontier: run(frontier, which))
    if as_json:
        say_json({"changed": changed})
    else:
        say(f"{changed:,} tasks have another priority")


async def run(frontier: Frontier, which: Mapping[str, str | None]) -> int:
    """How many changed; now and then, how far it is."""
    work = asyncio.ensure_future(frontier.rescore(**which))
    while not (await asyncio.wait([work], timeout=_EVERY))[0]:
        job = await frontier.rescoring()
        if job.state == "running":
            note(f"{job.looked:,} of {job.pending:,} looked at, {job.changed:,} changed")
    return await work
