"""Sinks of any kind: none, several, a user's own; and which one the settings ask for."""

import sys

import pytest

from outrider import Settings
from outrider.errors import OutputError, OutriderError
from outrider.output.factory import open_sink
from outrider.output.jsonl import jsonl_sink
from outrider.output.sink import NoSink, Sinks, recover
from outrider.settings import settings_of


class Own:
    """As a user writes one."""

    def __init__(self):
        self.calls = []
        self.fault = None

    def write(self, visits):
        """Visits come."""
        self.calls.append(("write", len(visits)))
        if self.fault:
            raise self.fault

    def settle(self, answers):
        """They are settled."""
        self.calls.append(("settle", answers))
        if self.fault:
            raise self.fault

    def close(self):
        """No more."""
        self.calls.append(("close",))
        if self.fault:
            raise self.fault


async def test_a_sink_of_ones_own_needs_three_methods(visits, frontier):
    """What it cannot recover is not asked of it."""
    own = Own()
    sink = Sinks(own, NoSink())
    await recover(sink, frontier.store)
    await recover(own, frontier.store)
    sink.write(visits)
    sink.settle([True] * 6)
    sink.close()

    assert own.calls == [("write", 6), ("settle", [True] * 6), ("close",)]


def test_a_batch_is_written_to_all_sinks_or_to_none(tmp_path, visits, kit):
    """Where the second refuses, the first takes its records out again."""
    own, first = Own(), jsonl_sink(tmp_path / "news")
    sink = Sinks(first, own)
    own.fault = ValueError("no")

    with pytest.raises(ValueError, match="no"):
        sink.write(visits)

    assert kit.lines(tmp_path / "news.jsonl") == []
    own.fault = None
    sink.write(visits)
    sink.settle([True] * 6)
    sink.close()
    assert len(kit.lines(tmp_path / "news.jsonl")) == 6


def test_one_sink_that_fails_keeps_no_other_from_settling_and_closing(tmp_path, visits, kit):
    """The failure is told all the same."""
    own, last = Own(), jsonl_sink(tmp_path / "news")
    sink = Sinks(own, last)
    sink.write(visits)
    own.fault = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        sink.settle([False] * 5 + [True])
    with pytest.raises(ValueError, match="no"):
        sink.close()

    assert len(kit.lines(tmp_path / "news.jsonl")) == 1
    assert not (tmp_path / "news.jsonl.journal").exists()


async def test_several_are_recovered_each_by_its_own_journal(tmp_path, visits, frontier, kit):
    """The kill came when one had written and the other had not."""
    names = ("a", "b")
    first, second = (jsonl_sink(tmp_path / name) for name in names)
    first.write(visits)
    kit.bury(first)
    kit.bury(second)
    sink = Sinks(*(jsonl_sink(tmp_path / name) for name in names))
    await recover(sink, frontier.store)
    sink.close()

    assert [kit.lines(tmp_path / f"{name}.jsonl") for name in names] == [[], []]


# ---- from settings


@pytest.mark.parametrize("output", [{}, {"format": "none"}, {"format": "warc"}])
def test_without_a_path_nothing_is_written(output, tmp_path, monkeypatch):
    """The default."""
    monkeypatch.chdir(tmp_path)

    assert isinstance(open_sink(settings_of({"output": output})), NoSink)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["none", "warc"])
def test_items_are_lines_whatever_the_format_of_pages(form, tmp_path, leases, kit):
    """What a user's function made of pages is never dropped."""
    sink = open_sink(settings_of({"output": {"path": str(tmp_path / "news"), "format": form}}))
    visit = kit.visit(leases[0])
    visit.items = [{"n": 1}]
    sink.write([visit])
    sink.settle([True])
    sink.close()

    assert (tmp_path / "news.items.jsonl").read_bytes() == b'{"n":1}\n'
    assert not (tmp_path / "news.jsonl").exists()


def test_lines_are_the_default_format(tmp_path, leases, kit):
    """With the text of pages if `body` says so."""
    sink = open_sink(settings_of({"output": {"path": str(tmp_path / "news"), "body": True}}))
    sink.write([kit.visit(leases[0])])
    sink.close()

    assert kit.lines(tmp_path / "news.jsonl")[0]["body"] == "<p>hello</p>"


def test_archive_names_its_software(tmp_path, leases, kit):
    """The agent hosts were told, and whether robots.txt was obeyed."""
    output = {"path": str(tmp_path / "news"), "format": "warc"}
    settings = settings_of({"output": output, "fetch": {"robots": False}})
    sink = open_sink(settings, user_agent="Mine/1 (+https://me.test)")
    sink.write([kit.responded(leases[0])])
    sink.settle([True])
    sink.close()

    from warcio.archiveiterator import ArchiveIterator  # noqa: PLC0415 - an extra, used here only

    with (tmp_path / "news-00001.warc.gz").open("rb") as file:
        info = next(ArchiveIterator(file)).content_stream().read().decode()
    assert "software: Outrider/" in info
    assert "http-header-user-agent: Mine/1 (+https://me.test)" in info
    assert "robots: ignore" in info
    assert "hostname" not in info


def test_archive_without_its_package_names_what_to_install(tmp_path, monkeypatch):
    """An extra, named as pip wants it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "warcio"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "warcio.warcwriter", None)
    monkeypatch.delitem(sys.modules, "outrider.output.warc", raising=False)
    output = {"path": str(tmp_path / "news"), "format": "warc"}

    with pytest.raises(OutputError, match=r"pip install 'outrider\[warc\]'"):
        open_sink(settings_of({"output": output}))


def test_sync_comes_with_a_store_that_syncs(tmp_path):
    """One promise for both."""
    settings = {"store": {"durability": "sync"}, "output": {"path": str(tmp_path / "news")}}
    sink = open_sink(settings_of(settings))

    assert sink._sync
    sink.close()
    assert not hasattr(open_sink(Settings()), "_sync")


def test_output_errors_are_outrider_errors():
    """Catching the root class catches them."""
    assert issubclass(OutputError, OutriderError)
