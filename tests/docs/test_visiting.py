"""The pages about visits leave nothing out: names, reasons and codes are those of the code."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import outrider
from outrider import blocking, wiring
from outrider.cli import crawl_report, watch_app
from outrider.core.policy.rules import QueueRules
from outrider.core.states import RETIRED_REASONS, SNOOZED_REASONS
from outrider.core.task import Lease, PolitenessState, Task
from outrider.executor.visit import Visit
from outrider.fetch import block_detector, response
from outrider.fetch.page import Page
from outrider.fetch.response import Response
from outrider.output.jsonl import Line

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
VISITING = [ROOT / "src" / "outrider" / room for room in ("fetch", "executor")]


def sections(page):
    """The sections of a page of the reference, by heading."""
    text = (DOCS / "reference" / page).read_text("utf-8")
    return dict(part.split("\n", 1) for part in text.split("\n## ")[1:])


def told(text):
    """The names that a text shows as code."""
    return set(re.findall(r"`(\w+)", text))


def rows(text):
    """The tables of a text: the first column's word → all of its row."""
    return dict(re.findall(r"^\| `([^`(]+)[^|]*\|(.*)$", text, re.MULTILINE))


def public(thing):
    """The names a user may write after a dot."""
    return {name for name in dir(thing) if not name.startswith("_")}


def a_page():
    """One that was fetched."""
    task = Task("default", b"", "https://example.org/", "example.org", "page", 1, 0, 1, 0.0, 1)
    lease = Lease("", 0, 0, task, 1, "", 0.0, 0, 0, QueueRules(), PolitenessState())
    return Page(lease, Response("https://example.org/", 200, (), b"", 0.0, 0.0))


def test_every_name_of_a_page_is_documented():
    """What a handler may ask of a page can be looked up."""
    assert public(a_page()) - told(sections("page.md")["Page"]) == set()


@pytest.mark.parametrize(("heading", "kind"), [("Response", Response), ("Visit", Visit)])
def test_every_name_of_a_class_is_documented(heading, kind):
    """As of a page."""
    assert public(kind) - told(sections("page.md")[heading]) == set()


@pytest.mark.parametrize("heading", ["Page", "Response", "Visit"])
def test_no_name_is_made_up(heading):
    """What the page shows can be written."""
    kinds = {"Page": a_page(), "Response": Response, "Visit": Visit}
    first = re.findall(
        r"^\| ((?:`\w+(?:\(\w*\))?` ?)+)\|", sections("page.md")[heading], re.MULTILINE
    )
    names = {name for cell in first for name in re.findall(r"`(\w+)", cell)}

    assert names <= public(kinds[heading])


def test_signatures_of_crawl_and_opened_are_documented():
    """Every argument, with its default."""
    for text, function in (("crawl", wiring.crawl), ("opened", wiring.opened)):
        given = inspect.signature(function).parameters
        assert set(given) - told(sections("handlers.md")[text]) - signature_names(text) == set()


def signature_names(heading):
    """The arguments in the signature that the page shows."""
    shown = re.search(r"\((.*?)\)", sections("handlers.md")[heading])[1]
    return set(re.findall(r"(\w+)(?:=|,|$)", shown))


def test_the_blocking_twin_takes_the_same():
    """The page says so."""
    ours, theirs = (inspect.signature(one).parameters for one in (blocking.crawl, outrider.crawl))

    assert set(ours) == set(theirs)


def test_report_is_documented():
    """Its fields, and no others."""
    assert set(rows(sections("handlers.md")["CrawlReport"])) == public(wiring.CrawlReport)


def test_parts_of_a_crawl_are_documented():
    """What `opened` gives."""
    crawling = public(wiring.Crawling) | {"executor", "tally", "frontier"}

    assert crawling - told(sections("handlers.md")["opened"]) == set()


def test_record_is_documented_field_by_field():
    """What the output writes, and nothing else."""
    page = sections("output-format.md")["JSON lines"]

    assert set(rows(page)) == set(Line.__struct_fields__)


def test_the_reasons_of_fetching_are_those_of_the_code():
    """Each under its outcome, with its meaning and its details."""
    for word, (kind, meaning, details) in response.REASONS.items():
        row = rows(sections("outcomes-and-reasons.md")[kind.__name__])[word]
        assert meaning in row
        assert [detail for detail in details if f"`{detail}`" not in row] == []


def test_every_detected_block_is_documented():
    """By vendor, under challenge or denial."""
    signs = block_detector
    every = {vendor.reason for vendor in signs.VENDORS} | {
        reason for _, reason in signs.ANY_TITLE_MARKS
    }
    every |= {reason for reason, _ in signs.BLOCK_FIELDS.values()} | {
        why for _, why in signs.BLOCK_REDIRECTS
    }
    every |= {"challenge: captcha", "denied: short page"}
    blocked = rows(sections("outcomes-and-reasons.md")["Blocked"])
    page = {f"{word}: {one}" for word in blocked for one in re.findall(r"`([^`]+)`", blocked[word])}

    assert page == every


def given_reasons():
    """(outcome, word) of every reason that visiting spells out itself."""
    for path in (path for room in VISITING for path in room.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if is_call and node.func.id in {"Failed", "Dropped", "Blocked"} and node.args:
                yield node.func.id, spelt(node.args[0])


def spelt(node):
    """The first word of a text, of a name for one, or None."""
    if isinstance(node, ast.Subscript):  # cut to a length
        node = node.value
    if isinstance(node, ast.JoinedStr):
        node = node.values[0]
    text = node.value if isinstance(node, ast.Constant) else None
    return text.partition(":")[0] if isinstance(text, str) else None


def test_every_literal_reason_is_documented():
    """A new reason in the code is a new line on the page."""
    given = {(kind, word) for kind, word in given_reasons() if word}
    page = sections("outcomes-and-reasons.md")

    assert len(given) > 6
    assert {(kind, word) for kind, word in given if word not in rows(page[kind])} == set()


def test_reasons_of_hosts_and_crawls_are_documented():
    """Why a host rests or was given up, and why a crawl paused."""
    text = sections("outcomes-and-reasons.md")["Of hosts and crawls"]
    every = {*RETIRED_REASONS, *SNOOZED_REASONS, *crawl_report._LIMITS}

    assert {one for one in every if f"`{one}`" not in text} == set()


def test_exit_codes_of_a_crawl_are_documented():
    """Each code with its end."""
    page = (DOCS / "reference" / "commands.md").read_text("utf-8")
    codes = set(re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE))

    assert codes == {(str(code), end) for end, (_, code) in crawl_report.ENDS.items()}


def test_keys_of_watch_are_documented():
    """As its own help tells them."""
    page = (DOCS / "how-to" / "watch-and-steer.md").read_text("utf-8")
    keys = {key for names, _ in watch_app.HELP for key in names.split()}

    assert {key for key in keys if f"`{key}`" not in page} == set()
