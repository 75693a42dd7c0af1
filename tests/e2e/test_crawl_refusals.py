"""Commands that cannot be begun: exit 2, one line that says why, and nothing made or changed."""

import sys

import pytest

from outrider.cli import main
from outrider.testing.web import small_world

ROOT = "http://h0001.web.test/"
MODULE = "def plain(page):\n    return None\n\nnumber = 1\n"


@pytest.fixture
def refused(outrider, monkeypatch, capsys):
    """What a refused command says; it leaves the folder as it was. It runs in this process."""
    monkeypatch.chdir(outrider.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def refuse(*words):
        before = outrider.files()
        monkeypatch.setattr(sys, "argv", ["outrider", "crawl", *words])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert outrider.files() == before
        return err

    return refuse


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "nothing to crawl"),
        (("http://[::1",), "http://[::1"),
        (("ftp://h0001.web.test/",), "neither http nor https"),
        (("http://127.0.0.1/",), "--allow-private"),
        ((ROOT, "--set", "politeness.dealy=1"), "did you mean politeness.delay?"),
        ((ROOT, "--set", "politeness"), "section.name=value"),
        ((ROOT, "--set", "politeness.delay=soon"), "politeness.delay"),
        ((ROOT, "--settings", "none.toml"), "none.toml"),
        ((ROOT, "--from", "none.txt"), "none.txt"),
        (("--store", "none.outrider"), "no such file: none.outrider"),
        ((ROOT, "--store", "none/here.outrider"), "no directory none"),
        ((ROOT, "--output", "none/pages"), "no directory none"),
        ((ROOT, "--log", "none/visits.log"), "no directory none"),
        ((ROOT, "--handler", "nowhere:parse"), "nowhere"),
        ((ROOT, "--handler", "parse"), "MODULE:FUNCTION"),
        ((ROOT, "--set", 'executor.pipeline=["nowhere:stage"]'), "nowhere"),
        ((ROOT, "--start-over", "--store", "memory://"), "--start-over"),
        ((ROOT, "--format", "xml"), "--format"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_begun_is_refused(refused, words, says):
    """Q: errors say what happened, and what to do."""
    assert says in refused(*words)


@pytest.mark.slow
def test_a_handler_must_be_there_and_be_a_function(outrider, refused):
    """A name that is missing in its module, and one that is no function."""
    (outrider.folder / "unfit_module.py").write_text(MODULE)
    assert "missing" in refused(ROOT, "--handler", "unfit_module:missing")
    assert "number" in refused(ROOT, "--handler", "unfit_module:number")


@pytest.mark.slow
def test_a_file_of_another_kind_is_never_written_to(outrider, refused):
    """K4, M3: neither as output nor as a crawl."""
    (outrider.folder / "mine.jsonl").write_text("not,ours\n")
    assert "mine.jsonl" in refused(ROOT, "--output", "mine")
    (outrider.folder / "other.outrider").write_text("not a crawl either\n" * 100)
    assert "other.outrider" in refused(ROOT, "--store", "other.outrider", "--format", "none")


@pytest.mark.slow
def test_a_crawl_that_exists_is_not_changed_by_a_refusal(outrider, serve, refused):
    """Its file, its pages and its log stay byte for byte, and where they are."""
    served = serve(small_world(1, hosts=1, pages=3, page_bytes=500))
    assert outrider(*outrider.on(served, ROOT, "--quiet")).code == 0
    refused(ROOT, "--handler", "nowhere:parse")
    refused(ROOT, "--output", "none/pages")
    refused(ROOT, "--start-over", "--handler", "nowhere:parse")
    refused(ROOT, "--start-over", "--log", "none/visits.log")
