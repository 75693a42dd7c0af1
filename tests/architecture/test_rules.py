"""docs/reference/rules.md is the key to the rule ids that code, tests and documents cite."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "rules.md"
TEXT = PAGE.read_text("utf-8")
BUILT, _, PLANNED = TEXT.partition("## Not built yet")

# An id stands alone: `(C4, D1)`, `"""E5: ...`. Not part of a word, a path, a format or a formula.
CITATION = re.compile(r"(?<![\w\-./&#%=@>])([A-S][0-9]{1,2})(?![\w%]| [0-9])")
SEARCHED = [
    *(path for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*.*")),
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
]
KINDS = {".py", ".md", ".lua", ".sql"}


def rules():
    """Each rule of the page with its text."""
    parts = re.split(r"^### ([A-S]\d+) .*$", BUILT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def paths(text, label):
    """List the paths in the line of a rule that begins with a label."""
    found = re.search(rf"^- {label}: (.*)$", text, re.MULTILINE)
    return re.findall(r"`([^`]+)`", found[1]) if found else []


def cited_in(path):
    """List the ids that a file cites."""
    return set(CITATION.findall(path.read_text("utf-8")))


def place_of(path):
    """Find a path of the page below the root, or below the package."""
    return ROOT / path if path.startswith("tests/") else ROOT / "src" / "outrider" / path


def test_every_cited_rule_is_on_the_page():
    """An id in a comment, a test or a document leads to its rule."""
    known = {*rules(), *re.findall(r"\b[A-S]\d+\b", PLANNED)}
    lost = {
        (path.relative_to(ROOT).as_posix(), rule)
        for path in SEARCHED
        if path.suffix in KINDS and path != Path(__file__)
        for rule in cited_in(path) - known
    }

    assert lost == set()


@pytest.mark.parametrize("rule", sorted(rules()))
def test_every_rule_names_code_and_tests_that_cite_it(rule):
    """A rule that is built has a test, and what is named beside it exists and cites it."""
    text = rules()[rule]
    tests = paths(text, "Tests")
    named = [*paths(text, "Decided in"), *tests]

    assert tests, f"{rule}: name the tests that hold it"
    assert all(path.startswith(("tests/", "testing/conformance/")) for path in tests)
    assert [path for path in named if not place_of(path).is_file()] == []
    assert [path for path in named if rule not in cited_in(place_of(path))] == []
