"""`outrider drop`: pending tasks become dropped; counted first, and a person is asked (C10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from outrider.cli.asking import change
from outrider.cli.opening import on_crawl
from outrider.cli.options import (
    Crawl,
    DryRun,
    Json,
    Key,
    OlderThan,
    Pattern,
    Store,
    Tag,
    Type,
    Yes,
)
from outrider.errors import InvalidInput

if TYPE_CHECKING:
    from outrider.frontier import Frontier

_WHICH: Final = (
    "drop: say which tasks: --key, --pattern, --type, --tag or --older-than; or --all, and not both"
)


def drop(  # noqa: PLR0913 - a command's options are its arguments
    store: Store,
    *,
    key: Key = None,
    pattern: Pattern = None,
    kind: Type = None,
    tag: Tag = None,
    older_than: OlderThan = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything that is pending.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Drop the pending tasks that match everything given.

    A person is shown the count and asked; a program is not. Leaves with 1 if nothing matches.
    """
    which = {"key": key, "pattern": pattern, "type": kind, "tag": tag, "older_than": older_than}
    if all(value is None for value in which.values()) is not everything:
        raise InvalidInput(_WHICH)
    if everything:
        which["pattern"] = ""

    def dropped(only_count: bool) -> int:
        return on_crawl(store, crawl, lambda frontier: run(frontier, which, dry_run=only_count))

    change(dropped, "Drop", "dropped", dry_run=dry_run, yes=yes, as_json=as_json)


async def run(frontier: Frontier, which: Mapping[str, Any], *, dry_run: bool) -> int:
    """How many were dropped, or would be."""
    return await frontier.drop(**which, dry_run=dry_run)
