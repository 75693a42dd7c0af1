"""What is left on the screen when a crawl is over: why it ended, how it went, what is missing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from outrider.cli.showing import duration, fields_of, many, say, show_pairs, show_table, size
from outrider.executor.executor import Ending
from outrider.executor.fault_pause import FaultPause
from outrider.executor.run_counts import RunCounts
from outrider.frontier.reports import Stats

if TYPE_CHECKING:
    from outrider.frontier import Frontier

SCAN: Final = 200_000  # known tasks up to which their reasons are looked up one by one
_BUDGETS: Final = ("budget", "quota")

# What a run came to → what it says, and the exit code.
ENDS: Final[Mapping[str, tuple[str, int]]] = {
    "finished": ("finished: every page in scope was visited, or is listed below", 0),
    "budget": ("budget reached: {reason}", 3),
    "paused": ("paused: {reason}", 4),
    "blocked": ("blocked: hosts turned us away from most pages", 5),
    "nothing": ("nothing fetched: no page could be read", 6),
    "cancelled": ("cancelled by an operator", 7),
    "interrupted": ("interrupted: asked to stop", 130),
}
_LIMITS: Final = {
    "limit-done": "the limit of pages",
    "limit-tasks": "the limit of known URLs",
    "limit-bytes": "the limit of bytes",
    "limit-seconds": "the limit of time",
}
_PAUSES: Final = {
    "finish": "at finish, as crawl.pause_at_finish says",
    "restoring": "an export is being read into it",
}
_HINTS: Final = {
    "max-depth": "--max-depth N",
    "off-scope": "--scope all",
    "private-address": "--allow-private",
}


class Closing(msgspec.Struct, frozen=True):
    """A run that is over."""

    end: str  # a key of ENDS
    why: str  # in words
    code: int
    seconds: float
    fetched: int
    visits: int
    bytes: int
    statuses: Mapping[int, int]
    outcomes: Mapping[str, int]
    missed: Mapping[str, int]  # what was not crawled, by reason
    refused: Mapping[str, int]  # links this run did not take, by reason
    stats: Stats
    faults: Mapping[str, int] = {}  # of this machine: visits begun again, by reason
    paused: float = 0.0  # seconds they took


async def closing(
    frontier: Frontier,
    ending: Ending,
    tally: RunCounts,
    seconds: float,
    pause: FaultPause,
    *,
    whole: bool = True,
    resume: str | None = None,
) -> Closing:
    """Everything worth knowing afterwards; reads the store, changes nothing.

    Not whole: no list of the store is read, for one worker of many. `resume` is the command that
    ends a pause; without it, the command that ran does so itself when it is repeated.
    """
    stats = await (frontier.stats() if whole else _counters(frontier))
    held = await _held(frontier) if whole else Counter[str]()
    missed = await _missed(frontier, stats, tally) if whole else Counter[str]()
    missed.update({f"held: {reason}": count for reason, count in held.items()})
    if ending.how != "finished" and stats.pending > stats.held:
        missed["still queued"] = stats.pending - stats.held + stats.leased
    end, reason = _end(ending, stats, held, tally)
    if ending.how == "paused" and end in ("budget", "paused"):
        reason += _way_on(ending.reason, resume)
    words, code = ENDS[end]
    refused = {reason: count for reason, count in stats.refused.items() if reason != "duplicate"}
    return Closing(
        end,
        words.format(reason=reason),
        code,
        seconds,
        tally.fetched,
        tally.visits,
        tally.bytes,
        tally.statuses,
        tally.outcomes,
        dict(missed.most_common()),
        refused,
        stats,
        dict(pause.counts.most_common()),
        pause.seconds(asyncio.get_running_loop().time()),
    )


async def _counters(frontier: Frontier) -> Stats:
    view = await frontier.store.crawl(frontier.crawl)
    return Stats(**fields_of(view), queues={}, refused={}, bypassed=0)


def _end(
    ending: Ending, stats: Stats, held: Mapping[str, int], tally: RunCounts
) -> tuple[str, str]:
    if ending.how == "stopped":
        return "interrupted", ""
    if ending.how == "cancelled":
        return "cancelled", ""
    if ending.how == "paused" and ending.reason in _LIMITS:
        return "budget", _LIMITS[ending.reason]
    if _was_turned_away(stats, tally):
        return "blocked", ""
    if _fetched_nothing(stats, tally):
        return "nothing", ""
    if ending.how == "paused":
        return "paused", _PAUSES.get(ending.reason, ending.reason)
    if any(held.get(name) for name in _BUDGETS):
        return "budget", "hosts have spent theirs, and hold the pages listed below"
    return "finished", ""


def _way_on(reason: str, resume: str | None) -> str:
    """How a crawl that paused goes on."""
    if reason == "restoring":
        return "; `outrider import` completes it"
    if reason == "finish" and resume is None:
        return "; the same command finishes it"
    if reason == "finish":
        return f"; to finish it, run `{resume}` and work again"
    setting = reason.replace("limit-", "limits.")
    return "" if resume is None else f"; to go on, raise {setting}, run `{resume}` and work again"


def _was_turned_away(stats: Stats, tally: RunCounts) -> bool:
    """Most visits were challenged or throttled, and pages were lost to it."""
    refusals = tally.outcomes["blocked"] + tally.outcomes["throttled"]
    return refusals > tally.outcomes["done"] and stats.dead + stats.held > 0


def _fetched_nothing(stats: Stats, tally: RunCounts) -> bool:
    """No page in this run, and none before it: all that is done are errors and redirects."""
    others = tally.outcomes["done"] - tally.fetched
    return not tally.fetched and stats.done <= others


async def _held(frontier: Frontier) -> Counter[str]:
    """Pages in queues that were given up, by why."""
    held: Counter[str] = Counter()
    async for queue in frontier.queues(state="retired"):
        if queue.pending:
            held[queue.reason or "operator"] += queue.pending
    return held


async def _missed(frontier: Frontier, stats: Stats, tally: RunCounts) -> Counter[str]:
    """Dead and dropped tasks by reason: the store's, or this run's if there are too many."""
    if stats.known > SCAN:
        names = ("dropped", "failed", "blocked")
        return Counter({why: n for (name, why), n in tally.reasons.items() if name in names})
    missed: Counter[str] = Counter()
    for state in ("dead", "dropped"):
        if getattr(stats, state):
            async for task in frontier.tasks(state=state):
                missed[task.reason or state] += 1
    return missed


def show(closed: Closing, files: Mapping[str, str], resume: str) -> None:
    """The closing table; the last line names the file and the command that goes on with it."""
    summary(closed)
    say("")
    show_pairs(files.items())
    say(f"{files['crawl']} goes on with: {resume}")


def summary(closed: Closing) -> None:
    """Why it ended, how it went, and what is missing."""
    show_pairs(_pairs(closed))
    if closed.missed:
        say("")
        show_table(("not crawled, and why", "pages"), list(closed.missed.items()), right=["pages"])
    if closed.refused:
        say("")
        rows = [(why, n, _HINTS.get(why, "")) for why, n in closed.refused.items()]
        rows.sort(key=lambda row: -row[1])
        show_table(("links not taken, and why", "links", "to take them"), rows, right=["links"])


def _pairs(closed: Closing) -> Iterator[tuple[str, str]]:
    stats, rate = closed.stats, closed.visits / closed.seconds if closed.seconds else 0.0
    yield "ended", closed.why
    yield (
        "this run",
        f"{many(closed.visits, 'visit')} in {duration(closed.seconds)}, {rate:.1f} a second",
    )
    yield "fetched", f"{many(closed.fetched, 'page')}, {size(closed.bytes)}"
    if closed.statuses:
        codes = sorted(closed.statuses.items())
        yield "answers", ", ".join(f"{count:,} × {status}" for status, count in codes)
    odd = {name: count for name, count in closed.outcomes.items() if name != "done"}
    if odd:
        yield "otherwise", ", ".join(f"{count:,} {name}" for name, count in sorted(odd.items()))
    if closed.faults:
        causes = ", ".join(f"{count:,} × {reason}" for reason, count in closed.faults.items())
        yield (
            "this machine",
            f"{causes}: {duration(closed.paused)} without new visits, no page charged",
        )
    parts = f"{stats.done:,} done, {stats.pending + stats.leased:,} waiting"
    yield (
        "the crawl",
        f"{stats.known:,} known: {parts}, {stats.dead:,} dead, {stats.dropped:,} dropped",
    )
