"""The reference leaves nothing out: pages are compared with the code and with what it does."""

import re
from pathlib import Path

import pytest

import outrider
from outrider import (
    Again,
    Blocked,
    Done,
    Dropped,
    Failed,
    Frontier,
    Link,
    Throttled,
    Unreachable,
    blocking,
    errors,
)
from outrider.core.admission import REDIRECT
from outrider.core.decide import REFRESH
from outrider.core.policy import weights
from outrider.core.policy.score import DefaultScorer
from outrider.core.policy.weights import Scoring
from outrider.core.progress import Progress, ProgressSample
from outrider.core.task import DEFAULT_ORIGIN, Added, Lease
from outrider.events import BACKLOG
from outrider.executor import page_handler as paging
from outrider.fetch import feeds
from outrider.frontier import add, reports, rescore
from outrider.frontier.admin import QueueHandle
from outrider.frontier.crawls import CrawlSummary, RemovedCrawl
from outrider.frontier.signals import PROPOSED
from outrider.store.export_items import SavedCrawl, SavedEnd, SavedQueue, SavedTask
from outrider.store.protocol import QueueView, TaskView, WorkerView
from outrider.testing import FakeClock

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SOURCE = Path(outrider.__file__).parent
OUTCOMES = (Done, Failed, Throttled, Blocked, Unreachable, Dropped)
ROW = re.compile(r"^\| `([a-z-]+)` \| ((?:`\w+` ?)+)\|", re.MULTILINE)


def public(of):
    """The names a user may write after a dot."""
    inherited = dir(list) if issubclass(of, list) else ()
    return {name for name in dir(of) if not name.startswith("_")} - set(inherited)


def handle_names():
    """What a queue handle has; `key` is set when it is made."""
    return public(QueueHandle) | {"key"}


SECTIONS = {
    "Frontier": public(Frontier) | {"crawl", "worker"},
    "Link": public(Link),
    "AddReport": public(reports.AddReport) | public(reports.ScoringReport),
    "ScoreReport": public(reports.ScoreReport) | public(reports.Scored),
    "Added": public(Added),
    "Claim": public(reports.Claim),
    "Lease": public(Lease),
    "Outcomes": {outcome.__name__ for outcome in OUTCOMES}.union(*map(public, OUTCOMES)),
    "Stats": public(reports.Stats),
    "CrawlSummary": public(CrawlSummary) | set(RemovedCrawl.__struct_fields__),
    "Progress": public(Progress) | public(ProgressSample) - {"is_same"},
    "QueueHandle": handle_names(),
    "QueueView": public(QueueView),
    "SuffixView": public(reports.SuffixView),
    "TaskView": public(TaskView),
    "DeadLetter": public(reports.DeadLetter) | public(reports.Attempt),
    "Explanation": public(reports.Explanation),
    "WorkerView": public(WorkerView),
    "Heatmap": public(reports.Heatmap),
    "Reason": public(reports.Reason),
    "RestoreReport": public(reports.RestoreReport),
    "Errors": {name for name in outrider.__all__ if hasattr(errors, name)},
}


def sections():
    """The sections of the page, by heading."""
    text = (REFERENCE / "frontier.md").read_text("utf-8")
    return dict(part.split("\n", 1) for part in text.split("\n## ")[1:])


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_public_name_has_its_line(heading):
    """Whatever a user may write is on the page, under the thing it belongs to."""
    told = set(re.findall(r"`(\w+)", sections()[heading]))

    assert SECTIONS[heading] - told == set()


@pytest.mark.parametrize("item", [SavedCrawl, SavedQueue, SavedTask, SavedEnd])
def test_every_field_of_an_export_has_its_line(item):
    """I5: an export can be read without the code."""
    text = (REFERENCE / "export-format.md").read_text("utf-8")
    parts = dict(part.split("\n", 1) for part in text.split("\n### ")[1:])
    told = set(re.findall(r"`(\w+)`", parts[f"`{item.__struct_config__.tag}`"]))

    assert set(item.__struct_fields__) - told == set()


def test_the_blocking_twin_has_the_same_names():
    """R4: what is written with `await` can be written without."""
    assert public(Frontier) <= public(blocking.Frontier)
    assert public(QueueHandle) <= public(blocking.QueueHandle)


def test_every_public_name_of_the_package_is_on_a_page():
    """`from outrider import …` brings nothing that is not explained."""
    text = "".join(page.read_text("utf-8") for page in REFERENCE.glob("*.md"))
    names = set(outrider.__all__) - {"__version__", "Outcome"}

    assert names - set(re.findall(r"\w+", text)) == set()


def test_every_refusal_is_on_the_page():
    """A reason that somebody counts can be looked up."""
    told = set(re.findall(r"`([a-z-]+)`", sections()["Added"]))
    reasons = {"bad-link", "off-scope", "max-depth", "duplicate", "queue-full", "cancelled"}
    reasons |= outrider.core.url.REASONS
    traps = outrider.core.policy.traps
    reasons |= {traps.PATH_DEPTH, traps.REPEATED_SEGMENT, traps.MANY_PARAMETERS, traps.CALENDAR}

    assert reasons - told == set()


async def everything_that_happens():
    """The events of a crawl in which everything happens at least once."""
    clock, seen = FakeClock(), []
    settings = {"politeness": {"delay": 0.0}, "retry": {"max_retries": 0, "jitter": 0.0}}
    async with Frontier.open(settings=settings, clock=clock) as frontier:
        frontier.subscribe(seen.append)
        await ends_of_visits(frontier, clock)
        await acts_of_operators(frontier)
        await an_import(frontier, seen)
    return seen


async def an_import(frontier, seen):
    """A crawl that comes back in another store."""
    async with Frontier.open(clock=frontier.clock) as other:
        other.subscribe(seen.append)
        await other.restore(frontier.export())


async def ends_of_visits(frontier, clock):
    """A task for every way a visit can end."""
    ends = {
        "done": Done(status=200),
        "cached": Done(status=200, from_cache=True),
        "failed": Failed("cut"),
        "unreachable": Unreachable("dns"),
        "throttled": Throttled(),
        "dropped": Dropped("robots"),
        "again": Again(delay=60.0),
        "lost": None,
    }
    await frontier.add([f"https://{name}.example/" for name in ends] + ["ftp://no.example/"])
    for lease in await frontier.claim(10):
        outcome = ends[lease.key.removesuffix(".example")]
        if outcome is not None:
            await frontier.finish(lease, outcome)
    clock.advance(3600)
    for lease in await frontier.claim(10):
        await frontier.finish(lease, Done(status=200))
    await frontier.claim(1)


async def acts_of_operators(frontier):
    """Whatever a person can do."""
    await frontier.add(["https://one.example/"])
    queue = frontier.queue("one.example")
    for act in (queue.pause, queue.resume, queue.retire, queue.revive, queue.wake):
        await act()
    await queue.snooze(1.0)
    await queue.set(precedence=1)
    await frontier.configure({"lanes": {"burst": 3}})
    await frontier.report_problem("missing-hub", "one.example", "/news")
    await frontier.rescore()
    await frontier.drop(key="one.example")
    await frontier.replay(all=True)
    await frontier.purge(all=True)
    await frontier.pause()
    await frontier.resume()
    await frontier.forget(pattern="")
    await frontier.cancel()
    await frontier.delete_crawl()


async def test_page_of_events_lists_what_is_emitted():
    """Each event of the page happens, with these data, and no other does."""
    rows = ROW.findall((REFERENCE / "events.md").read_text("utf-8"))
    page = {(name, frozenset(re.findall(r"\w+", data))) for name, data in rows}
    seen = {(event.name, frozenset(event.data)) for event in await everything_that_happens()}

    assert seen == page


def earnings():
    """Two tables of the page: each origin with its bonus, each type with its weight."""
    text = (REFERENCE / "frontier.md").read_text("utf-8")
    text = text.split("### Origins and types\n", 1)[1].split("\n## ")[0]
    row = re.compile(r"^\| `([a-z-]+)` \|.*\| `([a-z-]+)` \|$", re.MULTILINE)
    return [dict(row.findall(part)) for part in text.split("| type |")]


def test_page_lists_the_origins_and_types_of_the_code_with_what_they_earn():
    """F1, F3: those that Outrider gives or knows, and no others."""
    kinds = weights.TASK_TYPES
    origins, types = earnings()

    assert origins == {name: weights.bonus_of(name, Scoring()) for name in weights.ORIGINS}
    assert types == {one: one if one in weights.TYPE_WEIGHTS else "default" for one in kinds}


def test_known_origins_and_types_are_those_the_code_gives():
    """A name in the code that is missing from the lists would be taken for a typo."""
    text = "".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    origins = set(re.findall(r'\borigin="([a-z-]+)"', text)) | {feeds.SITEMAP_ORIGIN, PROPOSED}
    types = set(re.findall(r'Link\([^()]*type="([a-z-]+)"', text)) | {
        feeds.SITEMAP_TYPE,
        REFRESH,
    }

    assert origins | {DEFAULT_ORIGIN, REDIRECT} <= weights.ORIGINS
    assert types <= weights.TASK_TYPES


def test_events_that_the_code_emits_are_on_the_page():
    """Also those that the crawl above does not bring about."""
    text = "".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    page = {name for name, _ in ROW.findall((REFERENCE / "events.md").read_text("utf-8"))}

    assert set(re.findall(r'\btell\("([a-z-]+)", \w+=', text)) <= page


@pytest.mark.parametrize(
    ("page", "pattern", "constant"),
    [
        ("how-to/signals-and-focus.md", r"in steps of ([\d,]+) tasks", rescore.STEP),
        ("reference/frontier.md", r"applied in chunks of ([\d,]+)", add.CHUNK),
        ("reference/events.md", r"falls more than ([\d,]+) behind", BACKLOG),
        ("reference/handlers.md", r"At most ([\d,]+) items and links", paging.MAX_ITEMS),
    ],
)
def test_number_on_a_page_is_that_of_the_code(page, pattern, constant):
    """A constant that changes changes its page."""
    found = re.findall(pattern, (REFERENCE.parent / page).read_text("utf-8"))

    assert [int(one.replace(",", "")) for one in found] == [constant]


@pytest.mark.parametrize("page", sorted(REFERENCE.parent.rglob("*.md")), ids=lambda page: page.stem)
def test_page_has_no_duplicate_heading(page):
    """Two sections on one thing disagree sooner or later."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^##? .*", text, re.MULTILINE)

    assert len(heads) == len(set(heads))


def test_bias_is_added_to_the_base():
    """As the page says: before the base is multiplied."""
    scorer = DefaultScorer(Scoring(base_weight=3.0))
    link = Link("https://a.example/", bias=2.0)
    url = outrider.core.url.Url("https://a.example/", "https://a.example/", "a.example")
    (score,) = scorer.score([(link, url, "a.example", b"")])

    assert score.priority == (12.0 + 2.0) * 3.0
