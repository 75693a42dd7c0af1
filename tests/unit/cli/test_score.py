"""`outrider score`: an order before a crawl is begun, and the reasons against a visit (F9)."""

import asyncio
import io
import json

import pytest

from outrider import Done
from outrider.cli import score

A = "https://a.example/"
B = "https://b.example/"


@pytest.fixture
def links(tmp_path):
    """A file of URLs, JSON links and mistakes."""
    path = tmp_path / "links.txt"
    lines = [
        A,
        "# a remark",
        json.dumps({"url": A + "1", "type": "article", "meta": {"discoveryMethod": "sitemap"}}),
        json.dumps({"url": A + "2", "typ": "article"}),
        json.dumps({"url": "https://elsewhere.net/", "depth": 1}),
        "ftp://a.example/\x1b[31m",
        A,
    ]
    path.write_text("\n".join(lines))
    return str(path)


def test_links_are_listed_in_the_order_of_their_visits(outrider, links):
    """F9: with every term; what would not be visited comes last, with its line and reason."""
    answer = outrider("score", links, B, "--set", "lanes.burst=1", "--json")

    assert answer.code == 1
    rows = [(one["place"], one["after"], one["url"], one["reason"]) for one in answer.lines]
    assert rows[:3] == [(1, 0.0, A, None), (2, 0.0, B, None), (3, 1.0, A + "1", None)]
    reasons = ["duplicate", "bad-line", "off-scope", "control-characters"]
    assert [reason for *_, reason in rows[3:]] == reasons
    assert [one["given"] for one in answer.lines[3:]] == [f"{links}:{n}" for n in (7, 4, 5, 6)]
    article = answer.lines[2]
    terms = dict(article["breakdown"]["terms"])
    assert (article["priority"], article["lane"], article["origin"]) == (
        -10,
        "acquisition",
        "sitemap",
    )
    assert terms == {"type": 0, "depth": 0, "discovery": -10}
    assert "7 links: 3 would be visited, 4 not" in answer.err


def test_table_shows_terms_and_escapes_what_others_wrote(outrider, links):
    """Q: nothing in a URL reaches the terminal as it is."""
    answer = outrider("score", links)

    assert "type +0, depth +0, discovery -10" in answer.out
    assert f"{links}:4: bad-line" in answer.err
    assert "did you mean type?" in answer.err
    assert "\x1b" not in answer.out + answer.err
    assert "\\x1b[31m" in answer.err


def test_links_without_a_seed_are_off_scope_and_a_note_says_why(outrider, tmp_path):
    """A5: a list of found links alone has no scope of its own."""
    found = tmp_path / "found.jsonl"
    found.write_text('{"url": "https://a.example/", "depth": 1}')

    assert "depth 0" in outrider("score", str(found)).err
    assert "depth 0" not in outrider("score", str(found), A).err
    assert outrider("score", str(found), "--set", "scope.mode=all").code == 0


def test_all_links_in_order_is_success(outrider):
    """Exit codes: 0 only if every link would be visited."""
    answer = outrider("score", B, A)

    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()[1:]] == ["1", "2"]


def test_settings_are_those_of_a_crawl(outrider, tmp_path):
    """N1: profile, file and --set; scope and depth as `crawl` has them by default."""
    file = tmp_path / "s.toml"
    file.write_text("[scoring.weights]\npage = 3.0\n")

    plain = outrider("score", A, "--json").json
    given = outrider("score", A, "--json", "--settings", str(file)).json
    news = outrider("score", A, "--json", "--profile", "news", "--set", "scoring.scorer=fifo").json

    assert (plain["priority"], given["priority"], news["priority"]) == (12, 3, 0)
    unknown = outrider("score", A, "--set", "scoring.scorr=fifo")
    assert (unknown.code, "did you mean" in unknown.err) == (2, True)


def test_nothing_is_written(outrider, tmp_path, monkeypatch):
    """F9: not even events, where the settings name a file for them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text("[events]\njsonl = 'events.jsonl'\n")

    assert outrider("score", A, "--settings", "s.toml").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_settings_and_known_urls_of_a_crawl_are_used(outrider, store, crawling):
    """B3: with --store, without changing anything there."""

    async def work(frontier):
        await frontier.add([A, A + "1"])
        (lease,) = await frontier.claim(1)
        await frontier.finish(lease, Done(200))
        await frontier.predict(B, 0.5, 0.0)

    crawling(work, settings={"scoring": {"weights": {"page": 1.0}}})
    again = json.dumps({"url": A, "known": "revisit"})
    pending = json.dumps({"url": A + "1", "known": "revisit"})
    before = asyncio.run(store.crawl("default"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{again}\n{pending}\n".encode())))
        answer = outrider("score", "--store", "x", "--json", B, A, "-")

    assert [(one["url"], one["reason"]) for one in answer.lines] == [
        (B, None),
        (A, None),
        (A, "duplicate (done)"),
        (A + "1", "duplicate (pending)"),
    ]
    assert answer.lines[0]["priority"] == 1.0 - 5.0
    assert asyncio.run(store.crawl("default")) == before


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("no-such-file",), "no such file; a URL begins with https://"),
        (("/",), "a directory"),
        ((A, "--store", "x", "--profile", "news"), "leave out those given here"),
        ((), "Missing argument"),
    ],
)
def test_what_cannot_be_scored_is_refused(outrider, store, arguments, problem):
    """Exit code 2, with what to do."""
    answer = outrider("score", *arguments)

    assert answer.code == 2
    assert problem in answer.err


def test_too_many_links_are_refused(outrider, tmp_path, monkeypatch):
    """The order is found by claiming all of them."""
    monkeypatch.setattr(score, "MAX_LINKS", 3)
    path = tmp_path / "urls"
    path.write_text("".join(f"{A}{n}\n" for n in range(4)))

    answer = outrider("score", str(path))

    assert (answer.code, "at most 3 links" in answer.err) == (2, True)


def test_rows_beyond_the_limit_are_left_out(outrider):
    """--limit, as in every list."""
    answer = outrider("score", A, B, "--limit", "1")

    assert len(answer.out.splitlines()) == 2
    assert "only the first 1 are shown" in answer.err
