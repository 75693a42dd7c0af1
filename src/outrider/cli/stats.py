"""`outrider stats`, `heatmap` and `workers`: a crawl in numbers (O2, M6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from outrider.cli.crawls import rate_pairs
from outrider.cli.metrics import (
    DECISION_COLUMNS,
    LATENCY_COLUMNS,
    NO_WORKER,
    decision_rows,
    last_decision,
    latency_note,
    latency_rows,
    metric_pairs,
    slots_text,
    worker_pairs,
)
from outrider.cli.open_crawl import on_crawl
from outrider.cli.options import TABLE_ROWS, Crawl, Json, Store
from outrider.cli.terminal import (
    fields_of,
    format_counts,
    format_instant,
    format_size,
    print_json,
    print_line,
    print_note,
    show_pairs,
    show_table,
)
from outrider.core.progress import Progress
from outrider.errors import InvalidInput
from outrider.frontier.metrics import Metrics
from outrider.frontier.reports import Heatmap, Reason, Stats
from outrider.frontier.shared_state import Rescoring

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.store.protocol import WorkerView


_MAX_REASONS: Final = 50  # that keep a crawl open, shown one by one
_MAX_NAMES: Final = 3  # workers that an error message lists
_MAX_GROUPS: Final = 8  # of types and of tags, the largest
_TASKS: Final = ("pending", "leased", "done", "dead", "dropped")


class StatsReport(msgspec.Struct, frozen=True):
    """Counters, progress of the crawl and of rescoring, and reasons if requested."""

    stats: Stats
    why: Sequence[Reason] | None
    rescoring: Rescoring
    progress: Progress


def stats(
    store: Store,
    *,
    why: Annotated[
        bool, typer.Option("--why", help="Also show what keeps the crawl from finishing.")
    ] = False,
    types: Annotated[
        bool, typer.Option("--types", help="Also show tasks by type and state.")
    ] = False,
    tags: Annotated[bool, typer.Option("--tags", help="Also show tasks by tag and state.")] = False,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Show metrics instead: rates, shares and latencies."),
    ] = False,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """Show counters of a crawl: tasks and queues by state, visits by outcome, rate, time left."""
    if metrics:
        if why or types or tags:
            name = "--why" if why else "--types" if types else "--tags"
            raise InvalidInput(f"{name} and --metrics exclude each other: give one")
        _show_metrics(on_crawl(store, crawl, lambda frontier: frontier.metrics()), as_json=as_json)
        return
    report = on_crawl(store, crawl, lambda frontier: read_stats(frontier, why=why))
    if as_json:
        print_json(_stats_json(report))
        return
    show_pairs(
        [
            *_stats_pairs(report.stats),
            *rate_pairs(report.progress),
            *_rescoring_pairs(report.rescoring),
        ]
    )
    shown = report.stats
    if types:
        _show_groups("type", shown.types, shown.other_types, shown.type_count)
    if tags:
        _show_groups("tag", shown.tags, shown.other_tags, shown.tag_count)
    if report.why is not None:
        _show_why(report.why)


async def read_stats(frontier: Frontier, *, why: bool) -> StatsReport:
    """Read the report."""
    reasons = await frontier.why(limit=_MAX_REASONS + 1) if why else None
    stats, rescoring = await frontier.stats(), await frontier.rescoring()
    return StatsReport(stats, reasons, rescoring, await frontier.progress())


def _stats_json(report: StatsReport) -> dict[str, object]:
    # Refusals are counted by the frontier that refused: this one has done nothing.
    fields = fields_of(report.stats, progress=report.stats.progress)
    del fields["refused"], fields["bypassed"]
    fields["rescoring"] = {"state": report.rescoring.state, "progress": report.rescoring.progress}
    fields |= {"rates": report.progress.rates(), "time_left": report.progress.time_left()}
    return fields if report.why is None else fields | {"why": report.why[:_MAX_REASONS]}


def _stats_pairs(stats: Stats) -> Iterator[tuple[str, str]]:
    outcomes = format_counts(stats.outcomes)
    yield "crawl", stats.crawl
    yield "status", stats.status + (f" ({stats.reason})" if stats.reason else "")
    yield "known", f"{stats.known:,}, {stats.progress:.1%} settled"
    for name in _TASKS:
        yield f"  {name}", f"{getattr(stats, name):,}"
    if stats.held:
        yield "  held", f"{stats.held:,} of the pending, in retired queues"
    if stats.bands["normal"] != stats.pending:
        yield "priority", format_counts(stats.bands)
    yield "queues", format_counts(stats.queues)
    yield "visits", f"{stats.visits:,}" + (f": {outcomes}" if stats.visits else "")
    if stats.recovered:
        yield "recovered", f"{stats.recovered:,} done after they had been blocked"
    yield "bytes", format_size(stats.bytes)
    yield from _group_pairs("types", stats.types, stats.type_count)
    yield from _group_pairs("tags", stats.tags, stats.tag_count)
    yield "created", format_instant(stats.created_at)
    if stats.runs:
        yield "finished", f"{format_instant(stats.finished_at)}, run {stats.runs:,}"


def _rescoring_pairs(job: Rescoring) -> Iterator[tuple[str, str]]:
    if job.state != "done":
        yield "rescoring", f"{job.state}, {job.progress:.0%}, {job.changed:,} changed"


def _group_pairs(
    name: str, groups: Mapping[str, Mapping[str, int]], count: int
) -> Iterator[tuple[str, str]]:
    sums = Counter({group: sum(counts.values()) for group, counts in groups.items()})
    more = f", … {count:,} in all" if count > _MAX_GROUPS else ""
    if sums:
        yield name, format_counts(dict(sums.most_common(_MAX_GROUPS))) + more


def _show_groups(
    name: str, groups: Mapping[str, Mapping[str, int]], others: Mapping[str, int], count: int
) -> None:
    """Show the largest types or tags by state, and what all others sum to."""
    ordered = sorted(groups.items(), key=lambda one: (-sum(one[1].values()), one[0]))
    rest = Counter(others)
    for _, counts in ordered[TABLE_ROWS:]:
        rest.update(counts)
    shown: list[tuple[str, Mapping[str, int]]] = ordered[:TABLE_ROWS]
    if rest:
        shown.append((f"… {count - len(shown):,} others", rest))
    rows = [
        (group, sum(counts.values()), *(counts.get(state, 0) for state in _TASKS))
        for group, counts in shown
    ]
    print_line("")
    show_table((name, "tasks", *_TASKS), rows, right=("tasks", *_TASKS))


def _show_why(reasons: Sequence[Reason]) -> None:
    if not reasons:
        print_line("nothing keeps it from finishing")
        return
    print_line("what keeps it from finishing:")
    rows = [(reason.what, reason.key, reason.detail) for reason in reasons[:_MAX_REASONS]]
    show_table(("state", "queue", "why"), rows)
    if len(reasons) > _MAX_REASONS:
        print_line("… and more: see `outrider queues`")


# ---- metrics


def _show_metrics(found: Metrics, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    show_pairs(metric_pairs(found))
    rows = latency_rows(found)
    if rows:
        show_table(LATENCY_COLUMNS, rows, right=LATENCY_COLUMNS[1:])
    print_note(latency_note(found) if found.workers else NO_WORKER)


# ---- heatmap


def heatmap(store: Store, *, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Show pending tasks by origin and by depth."""
    heat = on_crawl(store, crawl, lambda frontier: frontier.heatmap())
    if as_json:
        print_json(heat)
    else:
        show_pairs(_heatmap_pairs(heat))


def _heatmap_pairs(heat: Heatmap) -> Iterator[tuple[str, str]]:
    yield "pending", f"{heat.total:,}"
    for origin, groups in heat.cells.items():
        yield f"  {origin}", format_counts(groups)
    yield "depth", ", ".join(f"{depth}: {count:,}" for depth, count in heat.depth.items())


# ---- workers


_WORKER_COLUMNS: Final = (
    *("worker", "state", "slots", "visits", "outcomes", "since", "last heartbeat"),
    "last decision",
)


def workers(
    store: Store,
    worker: Annotated[
        str | None,
        typer.Argument(metavar="[WORKER]", help="Only this one, with its scaling decisions."),
    ] = None,
    *,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Show the last scaling decisions of each.")
    ] = False,
    crawl: Crawl = "default",
    as_json: Json = False,
) -> None:
    """List the workers of a crawl, oldest first: idle, busy, draining or gone.

    Workers send a heartbeat every few seconds. A worker without one for half a minute is reported
    as gone, and removed after a day. Outcomes are counted since each started.
    """
    views = on_crawl(store, crawl, lambda frontier: frontier.workers())
    if worker is not None:
        views = [_worker_named(worker, views)]
    if as_json:
        for view in views:
            print_json(view)
    elif not views:
        print_note(NO_WORKER)
    elif decisions or worker is not None:
        _show_decisions(views, with_details=worker is not None)
    else:
        show_table(_WORKER_COLUMNS, map(_worker_row, views), right=("visits",))


def _worker_named(name: str, views: Sequence[WorkerView]) -> WorkerView:
    """The worker of this name, or the only one whose name has it as a part."""
    found = [view for view in views if view.worker == name]
    found = found or [view for view in views if name in view.worker]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidInput(f"no worker {name}: `outrider workers STORE` lists them")
    names = ", ".join(view.worker for view in found[:_MAX_NAMES])
    raise InvalidInput(f"{len(found)} workers have {name} in their names, such as {names}")


def _show_decisions(views: Sequence[WorkerView], *, with_details: bool) -> None:
    if with_details:
        show_pairs(pair for view in views for pair in worker_pairs(view))
    rows = list(decision_rows(views))
    if rows:
        show_table(DECISION_COLUMNS, rows)
    elif not with_details:
        print_note("no worker has changed its number of slots, or held a change back")


def _worker_row(view: WorkerView) -> tuple[object, ...]:
    return (
        *(view.worker, view.state, slots_text(view), view.visits),
        ", ".join(f"{name} {count:,}" for name, count in sorted(view.totals.outcomes.items())),
        *(format_instant(view.started_at), format_instant(view.seen_at)),
        last_decision(view),
    )
