"""`outrider export` and `outrider import`: what was written comes back, or is refused by name."""

import asyncio
import gzip
import io
import sys

import pytest

from outrider import Done
from outrider.cli import transfer

A, B = "https://a.example/", "https://b.example/"


@pytest.fixture
def crawl(crawling):
    """A crawl with a visit behind it."""

    async def work(frontier):
        await frontier.add([A, A + "1", B])
        (lease,) = await frontier.claim()
        await frontier.finish(lease, Done(200))

    crawling(work)


@pytest.fixture
def file(crawl, outrider, tmp_path):
    """Its export."""
    path = tmp_path / "crawl.jsonl"
    assert outrider("export", "s", str(path)).code == 0
    return path


def stdin(monkeypatch, data):
    """Let this come through the pipe."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_an_export_is_imported_again(file, outrider):
    """I5: into a crawl of another name."""
    answer = outrider("import", "s", str(file), "--crawl", "copy")

    assert answer == (0, "imported 2 queues, 3 tasks into copy, which is running\n", "")
    assert outrider("stats", "s", "--crawl", "copy", "--json").json["done"] == 1


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_reports_for_programs(crawl, outrider, tmp_path, name):
    """`--json`: one object."""
    path = str(tmp_path / name)
    written = outrider("export", "s", path, "--json").json
    read = outrider("import", "s", path, "--crawl", "copy", "--json").json

    assert (written["crawl"], written["file"]) == ("default", path)
    assert (written["queues"], written["tasks"]) == (2, 3)
    assert (read["crawl"], read["queues"], read["tasks"], read["known"]) == ("default", 2, 3, 0)
    assert (read["into"], read["status"]) == ("copy", "running")


def test_gz_is_compressed(crawl, outrider, tmp_path):
    """By its name alone."""
    path = tmp_path / "x.gz"
    outrider("export", "s", str(path))

    assert gzip.decompress(path.read_bytes()).startswith(b'{"outrider":"export","version":1,')


def test_a_pipe_gets_the_export_alone(crawl, outrider, monkeypatch):
    """What was counted is a remark."""
    written = outrider("export", "s", "--json")
    stdin(monkeypatch, written.out.encode())
    read = outrider("import", "s", "--crawl", "copy")

    assert written.out.startswith('{"outrider":"export"')
    assert written.err.startswith("outrider: exported 2 queues, 3 tasks, ")
    assert read.out.startswith("imported 2 queues, 3 tasks")


# ---- refused


def test_a_file_that_is_there_is_not_written_over(file, outrider):
    """Nothing of it is touched."""
    before = file.read_bytes()
    answer = outrider("export", "s", str(file))

    assert answer.code == 2
    assert "exists; choose another file" in answer.err
    assert file.read_bytes() == before


def test_a_crawl_that_is_not_there_leaves_no_file(store, outrider, tmp_path):
    """The file appears when it is whole."""
    answer = outrider("export", "s", str(tmp_path / "x"), "--crawl", "none")

    assert answer.code == 2
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_fails_leaves_no_file(crawl, outrider, tmp_path, monkeypatch):
    """Nor half of one."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("outrider.frontier.export.ExportWriter.tail", full)
    answer = outrider("export", "s", str(tmp_path / "x"))

    assert (answer.code, answer.err) == (2, "outrider: system error: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


def test_a_crawl_with_tasks_is_not_imported_into(file, outrider):
    """By name, with the way out."""
    answer = outrider("import", "s", str(file))

    assert answer.code == 2
    assert answer.err == (
        f"outrider: {file}: crawl 'default' has 3 tasks: "
        "restore into one that has none, by another name\n"
    )


def test_incomplete_import_is_noted_and_can_be_repeated(file, outrider, monkeypatch):
    """I5: by line; what was restored, and how to go on."""
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.rindex(b"{")])
    cut = outrider("import", "s", str(file), "--crawl", "copy")
    status = outrider("stats", "s", "--crawl", "copy", "--json").json
    file.write_bytes(whole)
    again = outrider("import", "s", str(file), "--crawl", "copy", "--json")

    assert cut.code == 2
    assert "so far imported 2 queues, 3 tasks; import it again to resume" in cut.err
    assert f"{file}: line 12: the export was cut" in cut.err
    assert (status["status"], status["reason"]) == ("paused", "restoring")
    assert (again.code, again.json["known"], again.json["status"]) == (0, 6, "running")


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("x", b"", "x: this is no export: it is empty"),
        ("x", b"https://a.example/\n", "x: line 1: this is no export of Outrider"),
        ("x", b'{"outrider":"export","version":9}\n', "newer release (format 9"),
        ("x", gzip.compress(b"a\n", mtime=0), "x: line 1: this is compressed"),
        ("x.gz", b"plain", "x.gz: it cannot be decompressed"),
        ("x.gz", gzip.compress(b"a" * 10**6, mtime=0)[:-9], "x.gz: "),
    ],
)
def test_what_is_no_export_is_refused_before_a_store_is_opened(
    outrider, tmp_path, monkeypatch, name, data, why
):
    """I5: by name and line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(data)
    answer = outrider("import", "new.outrider", name)

    assert answer.code == 2
    assert why in answer.err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_that_is_not_there_is_refused(outrider, tmp_path, monkeypatch):
    """By name."""
    monkeypatch.chdir(tmp_path)

    assert outrider("import", "new.outrider", "gone") == (
        *(2, "", "outrider: gone: No such file or directory\n"),
    )
    assert list(tmp_path.iterdir()) == []


def test_a_slow_pipe_is_read_as_it_comes():
    """Reading never holds up the store."""
    pieces = iter([b"two", b"three", b""])

    async def all_of_it():
        return [chunk async for chunk in transfer.chunks(b"one", lambda: next(pieces))]

    assert asyncio.run(all_of_it()) == [b"one", b"two", b"three"]
