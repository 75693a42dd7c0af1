"""A crawl that runs, told otherwise from outside: by another process, and by its file."""

import pytest

from outrider.testing.web import Site, Web
from outrider.testing.web.behaviours import linked

HOST = "told.web.test"
FILE = f"{HOST}.outrider"
PAGES = [f"/{number}" for number in range(200)]
PATH = "mine.toml"


@pytest.fixture
def begun(outrider, serve, until):
    """A crawl that would take long, and has just begun."""

    def begin(*words):
        paths = {path: linked("page") for path in PAGES} | {"/": linked("root", *PAGES)}
        served = serve(Web([Site(HOST, paths=paths, pages=list(paths))]))
        words = outrider.on(served, f"http://{HOST}/", "--quiet", *words, delay=0.5)
        process = outrider.start(*words)
        until(lambda: len(served.hits()) > 2)
        return process

    return begin


@pytest.mark.slow
def test_another_process_changes_the_settings_of_a_running_crawl(outrider, begun):
    """N1: it acts at once, is seen by both with its origin, and is remembered."""
    process = begun()
    changed = outrider("config", "set", FILE, "limits.done=4", "queue.max_depth=3", "--by", "me")
    refused = outrider("config", "set", FILE, "limits.done=9", "queue.max_dept=3")
    ended = outrider.end(process)
    rows = {row["path"]: row for row in outrider.shown("config", "show", FILE, "--json")}
    history = outrider.shown("config", "history", FILE, "--json")

    again = outrider("crawl", "--store", FILE, "--max-pages", "9", "--quiet")

    assert (changed.code, refused.code, ended.code, again.code) == (0, 2, 3, 3)
    assert f"limits.done stays 4: {rows['limits.done']['origin']}; " in again.err
    assert "did you mean queue.max_depth?" in refused.err
    assert rows["limits.done"]["value"] == 4
    assert rows["limits.done"]["origin"].startswith("runtime (me, ")
    assert rows["politeness.delay"]["origin"] == "command line"
    assert rows["lease.max_crashes"]["origin"] == "default of a crawl"
    assert [(one["path"], one["new"], one["by"]) for one in history] == [
        ("limits.done", 4, "me"),
        ("queue.max_depth", 3, "me"),
    ]


@pytest.mark.slow
def test_a_file_is_watched(outrider, begun, until):
    """N3: a wrong one is told and changes nothing; a right one acts while the crawl runs."""
    file = outrider.folder / PATH
    file.write_text("[limits]\ndone = 0\n")
    process = begun("--settings", PATH)
    file.write_text("[limits]\ndon = 4\n")
    assert "limits.don = 4: no such setting" in outrider.heard(process)
    file.write_text("[limits]\ndone = 4\n")
    ended = outrider.end(process)
    rows = {row["path"]: row for row in outrider.shown("config", "show", FILE, "--json")}

    assert ended.code == 3
    assert rows["limits.done"]["origin"] == f"file {PATH}"


def test_the_environment_is_heard(outrider, monkeypatch, tmp_path):
    """Settings of variables count; one that names none is refused by its name."""
    monkeypatch.setenv("OUTRIDER_POLITENESS__MIN_DELY", "3")
    answer = outrider("crawl", "https://a.example/")

    assert answer.code == 2
    assert "environment OUTRIDER_POLITENESS__MIN_DELY: " in answer.err
    assert "did you mean politeness.min_delay?" in answer.err
