"""The pages are tests: what they show is run, in order, and must print what they say it prints.

- A Python block is run here; the text block after it is what it prints. The blocks of a page share
  a namespace. Where one opens a frontier without a clock, it gets one that jumps over every wait.
- A console block is run by a shell: what follows `$ ` is typed, the rest is what comes back. `…`
  stands for anything, alone on its line for any lines; times, rates and spaces need not agree.
- A Python or TOML block that begins with `# name.py` or `# name.toml` is a file of that name. Every
  TOML block must be settings.
- `<!-- run: … -->` runs commands that a reader need not see; `<!-- not run: … -->` before a console
  block says why it cannot be.

Whoever crawls finds example.org on this machine; see example_web.
"""

import asyncio
import builtins
import io
import os
import re
import subprocess
import symtable
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import example_web
import pytest

from outrider.frontier import frontier as frontier_module
from outrider.settings import from_toml
from outrider.testing import FakeClock

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PART = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$"
    r"|^<!-- run:\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
NAME = re.compile(r"# ([\w-]+\.(?:py|toml))\n")
LINK = re.compile(r"\[[^\]]+\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
# What differs from run to run: instants, durations and rates.
PASSING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?|\d\d:\d\d:\d\d"
    r"|\d+(?:\.\d+)? (?:ms|s|min|h|a second|per second|pages/s|visits/s)\b"
)
PATIENCE = 120


class Block(NamedTuple):
    """A fenced block: its language, its text, the line it begins on, and why it is not run."""

    language: str
    text: str
    line: int
    why: str | None = None


class JumpingClock(FakeClock):
    """Whoever sleeps moves the clock: good for one worker, which is what examples have."""

    async def sleep(self, seconds):
        """Let the others go first, then be there already."""
        await asyncio.sleep(0)
        self.advance(seconds)


def blocks_of(text):
    """The blocks of a page, in order; hidden commands are of the language "hidden"."""
    return [
        Block(
            found["language"] if found["hidden"] is None else "hidden",
            found["text"] if found["hidden"] is None else found["hidden"],
            text.count("\n", 0, found.start("text" if found["hidden"] is None else "hidden")) + 1,
            found["why"],
        )
        for found in PART.finditer(text)
    ]


def commands_of(text):
    """What is typed, and what comes back, one after the other."""
    shown = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not shown[0], f"a console block begins with a command, not with {shown[0]!r}"
    for part in shown[1:]:
        typed, _, answer = part.partition("\n")
        while answer.startswith("> "):
            line, _, answer = answer.removeprefix("> ").partition("\n")
            typed += f"\n{line}"
        yield typed, answer


def is_shown(shown, printed):
    """Whether what was printed is what a page shows."""
    pattern = "".join(_line_pattern(line) for line in _plain(shown).splitlines())
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _plain(printed).splitlines()))


def _plain(text):
    return re.sub(r" +", " ", re.sub(r" +$", "", PASSING.sub("0 s", text), flags=re.MULTILINE))


def _line_pattern(line):
    if line.strip() == "…":
        return r"(?:[^\n]*\n)*?"
    return re.escape(line).replace("…", "[^\n]*") + r"\n"


class Reading:
    """A page as it is read: one namespace, one folder, one shell's last exit code."""

    def __init__(self, page, folder, commands=None):
        self._page, self._folder = page, folder
        self._path = f"{commands}{os.pathsep}{os.environ['PATH']}"  # noqa: TID251 - for a shell
        self._namespace = {"__name__": "__page__"}
        self._code = 0

    def read(self, text):
        """Complain at the first block that does something else than the page shows."""
        blocks = blocks_of(text)
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            name = NAME.match(block.text)
            if block.language == "toml":
                from_toml(block.text, source=str(self._page))
            if name is not None:
                (self._folder / name[1]).write_text(block.text, "utf-8")
            elif block.language == "python":
                self._run(block, after.text if after and after.language == "text" else "")
            elif block.language == "console" and block.why is None:
                self._type(block)
            elif block.language == "hidden":
                assert not self._shell(block.text), f"{self._page}, line {block.line}"

    def _run(self, block, shown):
        code = compile("\n" * (block.line - 1) + block.text, str(self._page), "exec")
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, self._namespace)  # noqa: S102 - our own pages
        assert printed.getvalue() == shown, f"{self._page}, the block of line {block.line}"

    def _type(self, block):
        for typed, shown in commands_of(block.text):
            printed = self._shell(typed)
            place = f"{self._page}, the block of line {block.line}"
            assert is_shown(shown, printed), f"{place}:\n$ {typed}\n{printed}"

    def _shell(self, typed):
        """What a command prints; `$?` is the code of the one before."""
        done = subprocess.run(
            ["bash", "-c", f"(exit {self._code})\n{typed}"],  # noqa: S607 - whichever is there
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=self._folder,
            env={**os.environ, "PATH": self._path},  # noqa: TID251 - for a shell
            timeout=PATIENCE,
            check=False,
            text=True,
        )
        self._code = done.returncode
        return done.stdout


def named(pages):
    """The pages as test parameters, by their path."""
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


def is_run(page):
    """Whether there is anything to run on it."""
    return any(
        block.language in {"python", "console", "toml"}
        for block in blocks_of(page.read_text("utf-8"))
    )


@pytest.mark.parametrize("page", named(filter(is_run, PAGES)))
def test_the_examples_of_a_page_run_and_print_what_it_shows(page, monkeypatch, tmp_path, here):
    """What a reader copies works, and does what the page says."""
    monkeypatch.setattr(frontier_module, "SystemClock", JumpingClock)
    monkeypatch.chdir(tmp_path)
    example_web.stand_in(here.port, monkeypatch.setattr)
    Reading(page, tmp_path, here.commands).read(page.read_text("utf-8"))


def unbound(text):
    """The global names that a block of Python uses, and neither imports nor makes."""
    top = symtable.symtable(text, "block", "exec")
    tables = [top]
    for table in tables:
        tables += table.get_children()
    found = [(table, name) for table in tables for name in table.get_symbols()]
    made = {name.get_name() for table, name in found if table is top and name.is_local()}
    used = {name.get_name() for _, name in found if name.is_global() and name.is_referenced()}
    return used - made - set(dir(builtins))


@pytest.mark.parametrize("page", named(page for page in PAGES if page.parent.name == "migration"))
def test_an_example_of_a_migration_can_be_copied_alone(page):
    """Each is a program of its own: it imports what it uses."""
    blocks = [one for one in blocks_of(page.read_text("utf-8")) if one.language == "python"]
    assert {one.line: names for one in blocks if (names := unbound(one.text))} == {}


@pytest.mark.parametrize("page", named(PAGES))
def test_a_command_on_a_page_is_in_a_console_block(page):
    """There it is run; elsewhere nobody would notice that it is wrong."""
    shells = [b.text for b in blocks_of(page.read_text("utf-8")) if b.language in {"sh", ""}]

    assert [text for text in shells if re.search(r"^\s*outrider ", text, re.MULTILINE)] == []


@pytest.mark.parametrize("page", named(PAGES))
def test_links_of_a_page_resolve(page):
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
        ("```console\n$ echo 1\n2\n```\n", "the block of line 2"),
        ("```console\n$ true\n$ echo 1\n```\n", "the block of line 2"),
        ("```console\n$ true\n1\n```\n", "the block of line 2"),
        ("```console\noutrider stats\n```\n", "begins with a command"),
        ("<!-- run:\nfalse; echo no such thing\n-->\n", "line 2"),
    ],
)
def test_wrong_page_fails(text, complaint, tmp_path):
    """Output that differs, is missing, or never comes, and code that raises, are failures."""
    with pytest.raises(AssertionError, match=complaint):
        Reading("page.md", tmp_path).read(text)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("in 5.2 s\n", "in 61 s\n"),
        ("00:00:01  done 3\n", "00:17:00 done 3  \n"),
        ("a\n…\nz\n", "a\nb\nc\nz\n"),
        ("a\n…\nz\n", "a\nz\n"),
        ("one … three\n", "one two three\n"),
    ],
)
def test_what_differs_from_run_to_run_may_differ(shown, printed):
    """Times, rates, widths of tables, and what a page leaves out."""
    assert is_shown(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"), [("done 3\n", "done 4\n"), ("a\n", "a\nb\n"), ("a\nb\n", "a\n")]
)
def test_other_differences_fail(shown, printed):
    """Counts and lines are what they are."""
    assert not is_shown(shown, printed)


def test_a_file_on_a_page_is_there_for_its_commands(tmp_path):
    """And the code of a command for the next one."""
    file = "```toml\n# a.toml\n[limits]\ndone = 3\n```\n"
    typed = (
        "```console\n$ grep -c done a.toml; false\n1\n$ echo $?\n1\n$ printf 'a\n> b'\na\nb\n```\n"
    )
    Reading("page.md", tmp_path).read(file + typed)
