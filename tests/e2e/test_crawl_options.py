"""Where a crawl's seeds and settings come from, and what it writes of pages."""

import pytest
from warcio.archiveiterator import ArchiveIterator

from outrider.testing.web import small_world

ROOT = "http://h0001.web.test/"
STEM = "h0001.web.test"


@pytest.fixture
def served(serve):
    """A small web."""
    return serve(small_world(6, hosts=2, pages=5, page_bytes=800))


@pytest.mark.slow
def test_seeds_and_settings_may_come_from_files(outrider, served):
    """Options win over the file, and --set over both."""
    first, second = served.web.seeds()
    (outrider.folder / "seeds.txt").write_text(f"# mine\n{second}\n\n")
    (outrider.folder / "mine.toml").write_text(
        "[politeness]\ndelay = 60\n[limits]\ndone = 2\n[scope]\nmode = 'host'\n"
    )
    words = outrider.on(served, first, "--from", "seeds.txt", "--settings", "mine.toml", "--quiet")
    done = outrider(*words, "--max-pages", 7, "--set", "limits.done=9", "--store", "x.outrider")
    assert done.code == 3, done.err
    assert len(outrider.lines("x.jsonl")) == 9
    assert {hit.host for hit in served.hits()} == {"h0001.web.test", "h0002.web.test"}


@pytest.mark.slow
def test_pages_are_written_with_what_is_known_of_them(outrider, served):
    """K4: links, title, validators, referrer; with --body the text too."""
    assert outrider(*outrider.on(served, ROOT, "--quiet", "--body", "--output", "out")).code == 0
    lines = {line["url"]: line for line in outrider.lines("out.jsonl")}
    assert sorted(lines) == sorted(served.web.urls())
    line = lines[f"{ROOT}market/1"]
    assert (line["status"], line["depth"], line["via"]) == (200, 1, ROOT)
    assert (line["title"], line["etag"]) == ("h0001.web.test 1", '"6-0-1"')
    assert f"{ROOT}council/2" in line["links"]
    assert line["body"].startswith("<!doctype html>")
    assert len(line["body"]) == line["bytes"]


@pytest.mark.slow
def test_pages_may_be_written_as_warc(outrider, served):
    """K4: re-read by warcio: what was sent, as it was sent, with its request."""
    done = outrider(*outrider.on(served, ROOT, "--quiet", "--format", "warc"))
    assert done.code == 0, done.err
    bodies = {}
    for path in outrider.folder.glob("*.warc.gz"):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                if record.rec_type == "response":
                    assert record.rec_headers["WARC-Target-URI"] not in bodies
                    bodies[record.rec_headers["WARC-Target-URI"]] = record.content_stream().read()
    assert sorted(bodies) == sorted(served.web.urls())
    assert all(body.startswith(b"<!doctype html>") for body in bodies.values())
    assert not list(outrider.folder.glob("*.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("http2", [False, True])
def test_archive_profile_writes_responses_with_their_requests(outrider, served, http2):
    """N4, K4: of every page one pair, whichever client fetches."""
    words = outrider.on(served, ROOT, "--quiet", "--profile", "archive")
    done = outrider(*words, "--delay", 0, "--set", f"fetch.http2={str(http2).lower()}")
    assert done.code == 0, done.err
    pairs, paths = {}, {}
    for path in outrider.folder.glob("*.warc.gz"):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                url = record.rec_headers["WARC-Target-URI"]
                if record.rec_type != "warcinfo":
                    pairs.setdefault(url, []).append(record.rec_type)
                if record.rec_type == "request":
                    paths[url] = record.http_headers.statusline
                    assert record.http_headers["User-Agent"].startswith("Outrider/")
    assert sorted(pairs) == sorted(served.web.urls())
    assert all(kinds == ["response", "request"] for kinds in pairs.values())
    assert all(url.endswith(line.removesuffix(" HTTP/1.1")) for url, line in paths.items())


@pytest.mark.slow
def test_format_option_overrides_that_of_the_archive_profile(outrider, served):
    """N1: the command line comes after the profile."""
    words = outrider.on(served, ROOT, "--quiet", "--profile", "archive", "--format", "jsonl")
    done = outrider(*words, "--delay", 0)

    assert done.code == 0, done.err
    assert len(outrider.lines(f"{STEM}.jsonl")) == 10
    assert not list(outrider.folder.glob("*.warc.gz"))


@pytest.mark.slow
def test_nothing_but_the_crawl_need_be_written(outrider, served):
    """--format none and --log "": the file, and what is kept beside it."""
    words = outrider.on(served, ROOT, "--quiet", "--format", "none", "--log", "")
    done = outrider(*words, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["closing"]["fetched"] == 10
    assert done.json["files"] == {"crawl": f"{STEM}.outrider"}
    kinds = {name.removeprefix(STEM) for name in outrider.files()}
    assert kinds == {".outrider", ".outrider-lock", ".robots"}


@pytest.mark.slow
def test_every_visit_is_in_the_log(outrider, served):
    """One line each, wherever it is asked to be."""
    assert outrider(*outrider.on(served, ROOT, "--quiet", "--log", "visits.log")).code == 0
    lines = (outrider.folder / "visits.log").read_text().splitlines()
    assert len(lines) == 10
    assert all(" done 200 " in line for line in lines)
    assert not (outrider.folder / f"{STEM}.log").exists()


@pytest.mark.slow
def test_hosts_get_the_contact(outrider, served):
    """K1: name, version, and where to complain."""
    words = ("--quiet", "--contact", "https://me.example/", "--max-pages", 1)
    assert outrider(*outrider.on(served, ROOT, *words)).code == 3
    (agent,) = {hit.agent for hit in served.hits()}
    assert agent.startswith("Outrider/")
    assert "https://me.example/" in agent
