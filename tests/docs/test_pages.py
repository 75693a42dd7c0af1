"""The pages are tests: every Python block runs, and the text block after it is what it prints.

The blocks of a page share a namespace. Where a block opens a frontier without a clock, it gets one
that jumps over every wait, so that pages may show what users write and tests need not sleep.
"""

import asyncio
import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from outrider.frontier import frontier as frontier_module
from outrider.testing import FakeClock

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


class Block(NamedTuple):
    """A fenced block: its language, its text and the line it begins on."""

    language: str
    text: str
    line: int


class JumpingClock(FakeClock):
    """Whoever sleeps moves the clock: good for one worker, which is what examples have."""

    async def sleep(self, seconds):
        """Let the others go first, then be there already."""
        await asyncio.sleep(0)
        self.advance(seconds)


def blocks_of(text):
    """The fenced blocks of a page, in order."""
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 2)
        for found in BLOCK.finditer(text)
    ]


def run(page, text):
    """Complain at the first block that raises or prints something else than the page shows."""
    namespace = {"__name__": "__page__"}
    blocks = blocks_of(text)
    for place, block in enumerate(blocks):
        if block.language != "python":
            continue
        after = blocks[place + 1 : place + 2]
        shown = after[0].text if after and after[0].language == "text" else ""
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, namespace)  # noqa: S102 - our own pages
        assert printed.getvalue() == shown, f"{page}, the block of line {block.line}"


def named(pages):
    """The pages as test parameters, by their path."""
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


@pytest.mark.parametrize("page", named(p for p in PAGES if "```python" in p.read_text("utf-8")))
def test_the_examples_of_a_page_run_and_print_what_it_shows(page, monkeypatch):
    """What a reader copies works, and does what the page says."""
    monkeypatch.setattr(frontier_module, "SystemClock", JumpingClock)
    run(page, page.read_text("utf-8"))


@pytest.mark.parametrize("page", named(PAGES))
def test_the_links_of_a_page_lead_somewhere(page):
    """Every relative link names a file of this repository."""
    links = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_index_lists_every_page():
    """A page nobody can find does not exist."""
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / link).resolve() for link in LINK.findall(index.read_text("utf-8"))}

    assert {page for page in PAGES if page.parent != ROOT and page != index} <= listed


@pytest.mark.parametrize("page", named(sorted(ROOT.glob("docs/adr/*.md"))))
def test_a_decision_has_a_context_and_consequences(page):
    """An ADR is one page with the same three parts."""
    text = page.read_text("utf-8")

    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert text.startswith(f"# {page.name[:4]} ")
    assert text.count("\n") <= 80


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "the block of line 2"),
        ("```python\nprint(1)\n```\n", "the block of line 2"),
        ("```python\npass\n```\n\n```text\n1\n```\n", "the block of line 2"),
        ("# a\n\n```python\nraise AssertionError('broken')\n```\n", "broken"),
    ],
)
def test_a_wrong_page_is_found_out(text, complaint):
    """Output that differs, is missing, or never comes, and code that raises, are failures."""
    with pytest.raises(AssertionError, match=complaint):
        run("page.md", text)
