"""The closing report of a run: why it ended, its counters, and what was not crawled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.cli.terminal import (
    fields_of,
    format_count,
    format_duration,
    format_size,
    print_line,
    show_pairs,
    show_table,
)
from outrider.core.states import DELETING
from outrider.executor.executor import Ending
from outrider.executor.fault_pause import FaultPause
from outrider.executor.run_counts import RunCounts
from outrider.frontier.reports import Stats
from outrider.wiring import NO_TASK

if TYPE_CHECKING:
    from outrider.frontier import Frontier

MAX_SCANNED: Final = 200_000  # known tasks up to which their reasons are read one by one
_BUDGETS: Final = ("budget", "quota")

# How a run ended → its text and exit code.
ENDS: Final[Mapping[str, tuple[str, int]]] = {
    "finished": ("finished: every page in scope was visited, or is listed below", 0),
    "budget": ("budget reached: {reason}", 3),
    "paused": ("paused: {reason}", 4),
    "blocked": ("blocked: hosts refused most visits", 5),
    "nothing": ("nothing fetched: {reason}", 6),
    "cancelled": ("cancelled by an operator", 7),
    "removed": ("removed: the crawl was deleted from its store; its output files stay", 7),
    "interrupted": ("interrupted: stopped by a signal", 130),
}
_LIMITS: Final = {
    "limit-done": "the limit of pages",
    "limit-tasks": "the limit of known URLs",
    "limit-bytes": "the limit of bytes",
    "limit-seconds": "the limit of time",
}
_PAUSES: Final = {
    "finish": "at finish, as crawl.pause_at_finish says",
    "restoring": "an import into it is not complete",
}
_NO_TASK: Final = "the crawl has nothing to visit; give URLs, here or with `outrider add`"
_HINTS: Final = {
    "max-depth": "--max-depth N",
    "off-scope": "--scope all",
    "private-address": "--allow-private",
}


class Closing(msgspec.Struct, frozen=True):
    """The report of a run that has ended."""

    end: str  # a key of ENDS
    why: str  # the same as a sentence
    code: int
    seconds: float
    fetched: int
    visits: int
    bytes: int
    statuses: Mapping[int, int]
    outcomes: Mapping[str, int]
    missed: Mapping[str, int]  # what was not crawled, by reason
    refused: Mapping[str, int]  # links that this run refused, by reason
    stats: Stats
    faults: Mapping[str, int] = {}  # of this machine: visits that were repeated, by reason
    paused: float = 0.0  # seconds of pauses for them


async def make_closing(
    frontier: Frontier,
    ending: Ending,
    tally: RunCounts,
    seconds: float,
    pause: FaultPause,
    *,
    whole: bool = True,
    resume: str | None = None,
) -> Closing:
    """Build the report; reads the store, changes nothing.

    Not `whole`, for one worker of many: no list of the store is read. `resume` is the command that
    ends a pause; without it, repeating the command that ran ends it.
    """
    stats = await (frontier.stats() if whole else _read_counters(frontier))
    held = await _read_held(frontier) if whole else Counter[str]()
    missed = await _read_missed(frontier, stats, tally) if whole else Counter[str]()
    missed.update({f"held: {reason}": count for reason, count in held.items()})
    if ending.how != "finished" and stats.pending > stats.held:
        missed["still queued"] = stats.pending - stats.held + stats.leased
    end, reason = _classify_end(ending, stats, held, tally)
    if ending.how == "paused" and end in ("budget", "paused"):
        reason += _resume_hint(ending.reason, resume)
    words, code = ENDS[end]
    refused = {reason: count for reason, count in stats.refused.items() if reason != "duplicate"}
    return Closing(
        end=end,
        why=words.format(reason=reason),
        code=code,
        seconds=seconds,
        fetched=tally.fetched,
        visits=tally.visits,
        bytes=tally.bytes,
        statuses=tally.statuses,
        outcomes=tally.outcomes,
        missed=dict(missed.most_common()),
        refused=refused,
        stats=stats,
        faults=dict(pause.counts.most_common()),
        paused=pause.seconds(asyncio.get_running_loop().time()),
    )


async def _read_counters(frontier: Frontier) -> Stats:
    view = await frontier.store.crawl(frontier.crawl)
    return Stats(**fields_of(view), refused={}, bypassed=0)


def _classify_end(
    ending: Ending, stats: Stats, held: Mapping[str, int], tally: RunCounts
) -> tuple[str, str]:
    if ending.how == "stopped":
        return "interrupted", ""
    if ending.how == "cancelled":
        return "removed" if ending.reason == DELETING else "cancelled", ""
    if ending.how == "paused" and ending.reason in _LIMITS:
        return "budget", _LIMITS[ending.reason]
    if _was_blocked(stats, tally):
        return "blocked", ""
    if _fetched_nothing(stats, tally):
        return "nothing", _NO_TASK if ending == NO_TASK else "no page could be read"
    if ending.how == "paused":
        return "paused", _PAUSES.get(ending.reason, ending.reason)
    if any(held.get(name) for name in _BUDGETS):
        return "budget", "hosts have spent their budgets; their pages are held, as listed below"
    return "finished", ""


def _resume_hint(reason: str, resume: str | None) -> str:
    """How to resume a crawl that paused."""
    if reason == "restoring":
        return "; `outrider import` completes it"
    if reason == "finish" and resume is None:
        return "; the same command finishes it"
    if reason == "finish":
        return f"; to finish it, run `{resume}` and work again"
    setting = reason.replace("limit-", "limits.")
    return "" if resume is None else f"; to resume, raise {setting}, run `{resume}` and work again"


def _was_blocked(stats: Stats, tally: RunCounts) -> bool:
    """Whether most visits were challenged or throttled, and pages were lost by that."""
    refusals = tally.outcomes["blocked"] + tally.outcomes["throttled"]
    return refusals > tally.outcomes["done"] and stats.dead + stats.held > 0


def _fetched_nothing(stats: Stats, tally: RunCounts) -> bool:
    """Whether no page was ever fetched: everything done is errors and redirects."""
    others = tally.outcomes["done"] - tally.fetched
    return not tally.fetched and stats.done <= others


async def _read_held(frontier: Frontier) -> Counter[str]:
    """Pages held in retired queues, by reason."""
    held: Counter[str] = Counter()
    async for queue in frontier.queues(state="retired"):
        if queue.pending:
            held[queue.reason or "operator"] += queue.pending
    return held


async def _read_missed(frontier: Frontier, stats: Stats, tally: RunCounts) -> Counter[str]:
    """Dead and dropped tasks by reason: of the store, or of this run if there are too many."""
    if stats.known > MAX_SCANNED:
        names = ("dropped", "failed", "blocked")
        return Counter({why: n for (name, why), n in tally.reasons.items() if name in names})
    missed: Counter[str] = Counter()
    for state in ("dead", "dropped"):
        if getattr(stats, state):
            async for task in frontier.tasks(state=state):
                missed[task.reason or state] += 1
    return missed


def show_closing(closed: Closing, files: Mapping[str, str], resume: str) -> None:
    """Print the closing table; its last line is the command that resumes the crawl."""
    show_summary(closed)
    print_line("")
    show_pairs(files.items())
    print_line(f"{files['crawl']}: resume with: {resume}")


def show_summary(closed: Closing) -> None:
    """Print why the run ended, its counters, and what was not crawled."""
    show_pairs(_summary_pairs(closed))
    if closed.missed:
        print_line("")
        show_table(
            ("not crawled, by reason", "pages"), list(closed.missed.items()), right=["pages"]
        )
    if closed.refused:
        print_line("")
        rows = [(why, n, _HINTS.get(why, "")) for why, n in closed.refused.items()]
        rows.sort(key=lambda row: -row[1])
        show_table(("links refused, by reason", "links", "to include them"), rows, right=["links"])


def _summary_pairs(closed: Closing) -> Iterator[tuple[str, str]]:
    stats, rate = closed.stats, closed.visits / closed.seconds if closed.seconds else 0.0
    yield "ended", closed.why
    visits, elapsed = format_count(closed.visits, "visit"), format_duration(closed.seconds)
    yield "this run", f"{visits} in {elapsed}, {rate:.1f} per second"
    yield "fetched", f"{format_count(closed.fetched, 'page')}, {format_size(closed.bytes)}"
    if closed.statuses:
        codes = sorted(closed.statuses.items())
        yield "statuses", ", ".join(f"{count:,} × {status}" for status, count in codes)
    odd = {name: count for name, count in closed.outcomes.items() if name != "done"}
    if odd:
        yield (
            "other outcomes",
            ", ".join(f"{count:,} {name}" for name, count in sorted(odd.items())),
        )
    if closed.faults:
        causes = ", ".join(f"{count:,} × {reason}" for reason, count in closed.faults.items())
        yield (
            "this machine",
            f"{causes}: {format_duration(closed.paused)} without new visits, then repeated",
        )
    parts = f"{stats.done:,} done, {stats.pending + stats.leased:,} pending"
    yield (
        "the crawl",
        f"{stats.known:,} known: {parts}, {stats.dead:,} dead, {stats.dropped:,} dropped",
    )
