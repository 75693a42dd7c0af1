"""The programs in examples/ do what they say, against a local web."""

import csv
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.testing.web import small_world

EXAMPLES = Path(__file__).parents[2] / "examples"
SEED = "http://h0001.web.test/"
PAGES, LISTED, PRIVATE = 24, 2, 1  # of the one host there is
DONE = PAGES + LISTED + 1  # its sitemap, too


@pytest.fixture
def example(serve, tmp_path):
    """Runs a program in a folder of its own, with settings that lead it to a small web."""
    served = serve(
        small_world(seed=4, hosts=1, pages=PAGES, links=40, listed=LISTED, private=PRIVATE)
    )
    routes = served.settings()["fetch"]["connect_to"].items()
    lines = ["[politeness]", "delay = 0.01", "[fetch.connect_to]"]
    lines += [f'"{host}" = "{place}"' for host, place in routes]
    (tmp_path / "here.toml").write_text("\n".join(lines), "utf-8")

    def run(name, *words):
        words = [sys.executable, EXAMPLES / name, SEED, *words, "here.toml"]
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run


def test_ten_lines_of_your_own(example):
    """Every page that was fetched comes to the function, once."""
    lines = example("ten_lines.py")

    assert len(lines) == len(set(lines)) == PAGES + LISTED
    assert lines[0] == f"200 {SEED} h0001.web.test 0"


def test_titles_to_csv(example, tmp_path):
    """A row a page; a second run has nothing to do, and the table stays what it was."""
    first = example("titles_to_csv.py", "titles.csv")
    table = (tmp_path / "titles.csv").read_text("utf-8")
    rows = list(csv.DictReader(table.splitlines()))

    assert first == [f"finished: {DONE} done, 0 dead → titles.csv"]
    assert len({row["url"] for row in rows}) == len(rows) == PAGES + LISTED
    assert example("titles_to_csv.py", "titles.csv") == first
    assert (tmp_path / "titles.csv").read_text("utf-8") == table


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        (" =1", "' =1"),
        ("\u00a0=1", "'\u00a0=1"),
        ("\tplain", "'\tplain"),
        ("\uff1d1", "'\uff1d1"),
        ("a=1", "a=1"),
        ("", ""),
        (-3, -3),
        (None, None),
    ],
)
def test_titles_to_csv_writes_no_formula(cell, written, tmp_path):
    """A page's title is other people's text, and a spreadsheet would run it."""
    convert = runpy.run_path(str(EXAMPLES / "titles_to_csv.py"))["write_csv"]
    items, table = tmp_path / "items.jsonl", tmp_path / "out.csv"
    items.write_text(json.dumps({"url": "https://a.example/", "title": cell, "depth": 0}), "utf-8")
    convert(items, table)
    with table.open(encoding="utf-8", newline="") as lines:
        (row,) = csv.DictReader(lines)

    assert row["title"] == str("" if written is None else written)
    assert row["url"] == "https://a.example/"


def test_a_notebook(example):
    """Cell by cell; the crawl can be asked afterwards."""
    lines = example("notebook.py")

    assert lines[0] == f"finished {PAGES + LISTED} pages"
    assert lines[-2:] == [f"{DONE + PRIVATE} known, {DONE} done, {PRIVATE} left alone", "done"]


def test_stages(example):
    """What one stage keeps from being visited or followed is not in the crawl."""
    first, second = example("custom_stage.py")

    assert first == f"finished {DONE - 6} done, {PRIVATE + 3} dropped"
    assert second.startswith("slowest: http://h0001.web.test/")


def test_handlers_by_type(example, tmp_path):
    """Tasks of a type of their own, answered elsewhere."""
    assert example("handlers_by_type.py") == ["finished {'done': 2, 'dropped': 1}"]
    assert '/market/1","price":3.5}' in (tmp_path / "prices.items.jsonl").read_text("utf-8")


def test_a_focused_crawl(example):
    """It ends at its limit, and saw only what is of interest."""
    first, second = example("focused_crawl.py", "the")

    assert first == "paused limit-done 6 done"
    assert second == "6 pages speak of the"


def test_a_warc_archive(example):
    """Every answer is a record that another library reads."""
    assert example("warc_archive.py") == [f"finished {{'warcinfo': 1, 'response': {DONE}}}"]


def test_every_example_is_run_and_listed():
    """Nothing lies there that nobody tries."""
    names = {path.name for path in EXAMPLES.glob("*.py")}
    here, listed = Path(__file__).read_text("utf-8"), (EXAMPLES / "README.md").read_text("utf-8")

    assert {name for name in names if f'"{name}"' not in here or f"({name})" not in listed} == set()
