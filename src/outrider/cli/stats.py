"""`outrider stats`: a crawl in numbers, and with --why what keeps it open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Store
from outrider.cli.showing import (
    count_words,
    fields_of,
    instant,
    say,
    say_json,
    show_pairs,
    show_table,
    size,
)
from outrider.frontier.reports import Reason, Stats
from outrider.frontier.shared_state import Rescoring

if TYPE_CHECKING:
    from outrider.frontier import Frontier

_REASONS: Final = 50  # that keep a crawl open, told in full
_GROUPS: Final = 8  # the largest types and tags
_TASKS: Final = ("pending", "leased", "done", "dead", "dropped")


class Report(msgspec.Struct, frozen=True):
    """The counters, how far rescoring is, and the reasons if they were asked for."""

    stats: Stats
    why: Sequence[Reason] | None
    rescoring: Rescoring


def stats(
    store: Store,
    *,
    why: Annotated[bool, typer.Option("--why", help="Also what keeps the crawl open.")] = False,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Show a crawl in numbers: tasks and queues by state, visits by outcome, bytes."""
    report = on_crawl(store, crawl, lambda frontier: run(frontier, why=why))
    if as_json:
        say_json(_shape(report))
        return
    show_pairs([*_pairs(report.stats), *_rescoring(report.rescoring)])
    if report.why is not None:
        _show_why(report.why)


async def run(frontier: Frontier, *, why: bool) -> Report:
    """Read; nothing changes."""
    reasons = await frontier.why(limit=_REASONS + 1) if why else None
    return Report(await frontier.stats(), reasons, await frontier.rescoring())


def _shape(report: Report) -> dict[str, object]:
    # What was refused is counted by the frontier that refused it: this one did nothing yet.
    fields = fields_of(report.stats, progress=report.stats.progress)
    del fields["refused"], fields["bypassed"]
    fields["rescoring"] = {"state": report.rescoring.state, "progress": report.rescoring.progress}
    return fields if report.why is None else fields | {"why": report.why[:_REASONS]}


def _pairs(stats: Stats) -> Iterator[tuple[str, str]]:
    outcomes = count_words(stats.outcomes)
    yield "crawl", stats.crawl
    yield "status", stats.status + (f" ({stats.reason})" if stats.reason else "")
    yield "known", f"{stats.known:,}, {stats.progress:.1%} settled"
    for name in _TASKS:
        yield f"  {name}", f"{getattr(stats, name):,}"
    if stats.held:
        yield "  held", f"{stats.held:,} of the pending, in retired queues"
    yield "queues", count_words(stats.queues)
    yield "visits", f"{stats.visits:,}" + (f": {outcomes}" if stats.visits else "")
    yield "bytes", size(stats.bytes)
    yield from _groups("types", stats.types)
    yield from _groups("tags", stats.tags)
    yield "created", instant(stats.created_at)
    if stats.runs:
        yield "finished", f"{instant(stats.finished_at)}, run {stats.runs:,}"


def _rescoring(job: Rescoring) -> Iterator[tuple[str, str]]:
    if job.state != "done":
        yield "rescoring", f"{job.state}, {job.progress:.0%}, {job.changed:,} changed"


def _groups(name: str, groups: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str]]:
    sums = Counter({group: sum(counts.values()) for group, counts in groups.items()})
    more = f", … {len(sums):,} in all" if len(sums) > _GROUPS else ""
    if sums:
        yield name, count_words(dict(sums.most_common(_GROUPS))) + more


def _show_why(reasons: Sequence[Reason]) -> None:
    if not reasons:
        say("nothing keeps it open")
        return
    say("what keeps it open:")
    rows = [(reason.what, reason.key, reason.detail) for reason in reasons[:_REASONS]]
    show_table(("state", "queue", "why"), rows)
    if len(reasons) > _REASONS:
        say("… and more: see `outrider queues`")
