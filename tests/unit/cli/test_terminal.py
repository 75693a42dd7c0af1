"""What reaches a terminal: text of others as text, numbers as people say them."""

import asyncio
import re

import pytest

from outrider import Failed, Link
from outrider.cli import open_crawl, options, terminal
from outrider.errors import InvalidInput

EVIL = "\x1b]0;owned\x07[red]\x9b2J\u202e\u2028\x7f\ud800"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]")  # but for the end of a line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://a.example/ü?q=[bold]", "https://a.example/ü?q=[bold]"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\r\nb\t", "a\\r\\nb\\t"),
        ("\x9b\x7f", "\\x9b\\x7f"),
        ("\u202e\u200b", "\\u202e\\u200b"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
        ("", ""),
    ],
)
def test_whatever_moves_a_cursor_is_written_out(text, shown):
    """And nothing else is touched."""
    assert terminal.printable(text) == shown


@pytest.fixture
def haunted(crawling):
    """A crawl in which all that others write is hostile."""
    evil = EVIL.replace("\ud800", "")

    async def work(frontier):
        link = Link("https://a.example/[red]", key="[red]k", tag=evil, origin=evil, type=evil[:60])
        await frontier.add([Link("https://b.example/", meta={"m": evil}), link])
        for lease in await frontier.claim(10):
            if lease.key == "b.example":
                await frontier.finish(lease, Failed(evil))
            else:
                await frontier.release([lease])

    crawling(work)


LOOKS = [
    ["stats", "x", "--why"],
    ["queues", "x"],
    ["queue", "x", "[red]k"],
    ["tasks", "x"],
    ["explain", "x", "https://a.example/[red]"],
    ["explain", "x", "https://b.example/"],
    ["explain", "x", "https://\x1b[2J/"],
    ["dead", "x", "list"],
    ["dead", "x", "list", "--by-reason"],
    ["dead", "x", "show", "https://b.example/"],
    ["dead", "x", "show", "https://\x1b[2J/"],
    ["heatmap", "x"],
    ["stats", "x", "--crawl", "[red]"],
    ["queue", "x", "\x1b[2J"],
    ["queue", "x", "k", "set", "\x1b[2J=\x9b"],
    ["add", "x", "https://\x1b[2J\x9b/", "\u202e"],
    ["tasks", "\x1b[2J", "--pattern", "(\x1b"],
]


@pytest.mark.usefixtures("haunted")
@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
@pytest.mark.parametrize("how", [[], ["--json"]], ids=["people", "programs"])
def test_no_control_reaches_the_terminal(outrider, words, how):
    """Neither on standard output nor on standard error."""
    answer = outrider(*words, *how)

    assert CONTROLS.findall(answer.out) == []
    assert CONTROLS.findall(answer.err) == []


@pytest.mark.usefixtures("haunted")
def test_markup_of_others_is_text(outrider, monkeypatch):
    """In colour, too: what looks like a style stays as it is."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")

    assert "[red]k" in outrider("queues", "x").out
    assert "https://a.example/[red]" in outrider("tasks", "x").out
    assert "[red]" in outrider("heatmap", "x").out
    assert "[red]k" in outrider("queue", "x", "[red]k").out


@pytest.mark.usefixtures("haunted")
def test_a_table_fits_the_terminal(outrider, monkeypatch):
    """The last column gives way; in a pipe nothing is cut."""
    url = "https://long.example/" + "a" * 300
    outrider("add", "x", url)
    piped = outrider("tasks", "x").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    drawn = outrider("tasks", "x", "--key", "long.example").out

    assert url in piped
    assert "…" in drawn
    assert max(map(len, re.sub("\x1b\\[[0-9;]*m", "", drawn).splitlines())) <= 80


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0, "0.0 s"),
        (119.94, "119.9 s"),
        (120, "2.0 min"),
        (7200, "2.0 h"),
        (2e6, "23.1 d"),
    ],
)
def test_durations_in_words(seconds, words):
    """The unit that fits."""
    assert terminal.format_duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2 MB"), (10**15, "1,000 TB")],
)
def test_sizes_in_words(count, words):
    """Powers of a thousand."""
    assert terminal.format_size(count) == words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5h", 5400), ("15m", 900), ("7d", 604_800), ("1w", 604_800)],
)
def test_durations_are_read(text, seconds):
    """Seconds, or a number with its unit."""
    assert options.parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1y", "1 h", "h", "nan", "inf", "1e3", "١"])
def test_what_is_no_duration_is_refused(text):
    """With the units that are."""
    with pytest.raises(options.typer.BadParameter, match="s, m, h, d or w"):
        options.parse_seconds(text)


# ---- stores


def test_a_missing_file_is_named_and_not_made(outrider, tmp_path):
    """Commands that read or steer create nothing."""
    path = tmp_path / "none.outrider"
    answer = outrider("stats", str(path))

    assert answer.code == 2
    assert answer.err == f"outrider: no such file: {path}; `outrider add` creates one\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["stats"], ["add"]])
def test_memory_is_no_store_for_a_command(outrider, command):
    """It would end with it."""
    answer = outrider(command[0], "memory://", *(["https://a.example/"] * (command == ["add"])))

    assert answer.code == 2
    assert "name a file" in answer.err


def test_an_unknown_kind_of_store_is_refused(outrider):
    """By those who know the kinds."""
    answer = outrider("stats", "nonsense://x")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("outrider: ")
    assert answer.err.count("\n") == 1


def test_a_password_is_not_repeated(outrider, store):
    """Where a store is named in an error."""
    answer = outrider("stats", "postgresql://me:secret@host/db")

    assert "postgresql://host/db" in answer.err
    assert "secret" not in answer.err


def test_an_error_of_the_system_is_one_line(outrider, monkeypatch):
    """Whose file it was, and what is wrong."""

    def broken(*_, **__):
        raise PermissionError(13, "Permission denied", "x.outrider")

    monkeypatch.setattr(open_crawl, "check_store", broken)

    assert outrider("stats", "x") == (2, "", "outrider: x.outrider: Permission denied\n")


def test_many_crawls_are_not_all_listed(outrider, store):
    """An error is one line."""
    for number in range(12):
        outrider("add", "x", "https://a.example/", "--crawl", f"c{number}")
    answer = outrider("stats", "x")

    assert "c9, …; choose one with --crawl NAME" in answer.err
    assert asyncio.run(store.crawls())[-1] == "c11"


def test_a_crawl_has_a_printable_name(outrider, store):
    """Or none."""
    assert outrider("stats", "x", "--crawl", "\x1b").code == 2
    with pytest.raises(InvalidInput, match="printable"):
        open_crawl.on_crawl("x", "", None)
