"""Files that are not what they should be, and disks that take no more."""

import errno
import os
import resource
import types
from pathlib import Path

import pytest

from outrider.errors import OutputError, OutputFull, OutputUnavailable
from outrider.output.errors import write_error
from outrider.output.jsonl import jsonl_sink
from outrider.output.sink import recover


@pytest.fixture
def path(tmp_path):
    """The output."""
    return tmp_path / "news.jsonl"


@pytest.fixture
def left(path, visits, kit):
    """What a process left that was killed with a batch in doubt, after one that is settled."""
    sink = jsonl_sink(path)
    sink.write(visits[:2])
    sink.settle([True, True])
    sink.write(visits[2:])
    kit.bury(sink)
    return path


def all_of(path):
    """Every file and its bytes."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


# ---- other files than the journal says


def shorten(path):
    """Into what was settled."""
    os.truncate(path, 100)


def lengthen(path):
    """By another program."""
    path.write_bytes(path.read_bytes() + b'{"url":"https://else.test/"}\n')


def exchange(path):
    """As long as before, but another."""
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (shorten, "it has 100 bytes, and had"),
        (lengthen, "and should have at most"),
        (exchange, "it is another file"),
        (os.unlink, "it is missing"),
    ],
)
def test_output_that_differs_from_its_journal_is_refused_and_unchanged(harm, told, left):
    """The message names the file, what is wrong, and the ways out; nothing is changed."""
    harm(left)
    before = all_of(left)

    for _ in range(2):
        with pytest.raises(OutputError, match=f"news.jsonl is not what.*{told}.*delete .*journal"):
            jsonl_sink(left)

    assert all_of(left) == before


def test_an_output_that_was_cut_after_the_journal_rested_is_refused(path, visits, kit):
    """Also when nothing is in doubt: the journal still knows how long it was."""
    sink = jsonl_sink(path)
    sink.write(visits)
    sink.settle([True] * 6)
    kit.bury(sink)
    os.truncate(path, path.stat().st_size - 1)

    with pytest.raises(OutputError, match="is not what its journal says"):
        jsonl_sink(path)


def test_deleting_the_journal_is_a_way_out(left, visits, kit):
    """What stands there stays, as the message promised."""
    shorten(left)
    left.write_bytes(left.read_bytes() + b'"}\n')
    (left.parent / "news.jsonl.journal").unlink()
    before = left.read_bytes()
    sink = jsonl_sink(left)
    sink.write(visits[:1])
    sink.settle([True])
    sink.close()

    assert left.read_bytes().startswith(before)


async def test_a_record_that_was_acknowledged_and_is_torn_is_not_taken_for_whole(
    left, visits, frontier, kit
):
    """Only a power cut does that, and only without sync: it is said, and nothing changed."""
    await kit.finish(frontier, visits)
    os.truncate(left, left.stat().st_size - 3)
    before = all_of(left)
    sink = jsonl_sink(left)

    with pytest.raises(OutputError, match="a record that was acknowledged is cut short"):
        await recover(sink, frontier.store)

    sink.close()
    assert all_of(left) == before


def test_the_journal_of_another_output_is_refused(left):
    """Copied or renamed by mistake; the other output is not touched."""
    other = left.parent / "other.jsonl.journal"
    other.write_bytes((left.parent / "news.jsonl.journal").read_bytes())
    before = all_of(left)

    with pytest.raises(OutputError, match=r"the journal of another output, with news\.jsonl"):
        jsonl_sink(left.parent / "other")

    assert all_of(left) == before


def test_an_output_is_written_by_one_process_at_a_time(path):
    """A second one is refused."""
    sink = jsonl_sink(path)

    with pytest.raises(OutputError, match=r"news\.jsonl\.journal is held by another process"):
        jsonl_sink(path)

    sink.close()
    jsonl_sink(path).close()


def test_a_program_that_appends_to_the_output_meanwhile_is_noticed_and_not_cut(path, visits):
    """What it wrote is not ours to remove."""
    sink = jsonl_sink(path)
    sink.write(visits[:1])
    sink.settle([True])
    with path.open("ab") as other:
        other.write(b"theirs\n")

    with pytest.raises(OutputError, match="another program changes it"):
        sink.write(visits[1:])

    assert path.read_bytes().endswith(b"theirs\n")
    sink.close()


def test_closing_twice_is_closing_once(path):
    """The second time the journal may be another's."""
    sink = jsonl_sink(path)
    sink.close()
    other = jsonl_sink(path)
    sink.close()

    assert (path.parent / "news.jsonl.journal").exists()
    other.close()


# ---- no space


class FullDisk:
    """The system, with room for so many bytes more; None: for all."""

    def __init__(self, room=None):
        self.room = room

    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, file, data):
        """As much as there is room for."""
        return os.write(file, self._fitting(data))

    def pwrite(self, file, data, at):
        """As much as there is room for."""
        return os.pwrite(file, self._fitting(data), at)

    def _fitting(self, data):
        if self.room is None:
            return data
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = data[: self.room]
        self.room -= len(data)
        return data


@pytest.mark.parametrize("room", [0, 1, 300, 900, 1500, 4000])
def test_on_a_full_disk_nothing_of_a_batch_stays_and_it_may_be_tried_again(
    room, path, visits, kit, system
):
    """Wherever the room ends: in the journal, in the pages, in the items."""
    for visit in visits:
        visit.items = [{"of": visit.lease.url, "text": "x" * 1000}]
    disk, sink = system(FullDisk()), jsonl_sink(path)
    sink.write(visits[:1])
    sink.settle([True])
    before = path.read_bytes()
    disk.room = room
    for _ in range(3):
        with pytest.raises(OutputFull, match=r"news.*no space.*free space") as caught:
            sink.write(visits[1:])
        assert caught.value.retryable
        assert path.read_bytes() == before
    disk.room = None
    sink.write(visits[1:])
    sink.settle([True] * 5)
    sink.close()

    assert len(kit.lines(path)) == 6
    assert len(kit.lines(path.parent / "news.items.jsonl")) == 6


@pytest.mark.parametrize("room", [0, 1, 200, 2000])
async def test_a_disk_that_is_full_when_a_batch_is_settled_loses_nothing(
    room, path, visits, kit, system, frontier
):
    """What is to go stays in doubt until there is room; then it goes."""
    disk, sink = system(FullDisk()), jsonl_sink(path)
    sink.write(visits)
    await frontier.release([visits[0].lease])
    answers = await kit.finish(frontier, visits)
    disk.room = room
    with pytest.raises(OutputFull):
        sink.settle(answers)
    disk.room = None
    sink.settle(answers)
    sink.close()

    assert [line["url"] for line in kit.lines(path)] == [one.lease.url for one in visits[1:]]


@pytest.mark.parametrize("room", [0, 1, 200, 2000])
async def test_a_process_that_ends_on_a_full_disk_leaves_what_the_next_can_settle(
    room, path, visits, kit, system, frontier
):
    """The same, with another process making the end of it."""
    disk, sink = system(FullDisk()), jsonl_sink(path)
    sink.write(visits)
    await frontier.release([visits[0].lease])
    answers = await kit.finish(frontier, visits)
    disk.room = room
    with pytest.raises(OutputFull):
        sink.settle(answers)
    sink.close()
    disk.room = None
    again = jsonl_sink(path)
    await recover(again, frontier.store)
    again.close()

    assert [line["url"] for line in kit.lines(path)] == [one.lease.url for one in visits[1:]]


def test_a_batch_that_was_settled_on_a_full_disk_is_settled(path, visits, kit, system):
    """That the journal cannot say so is no reason to stop."""
    disk, sink = system(FullDisk()), jsonl_sink(path)
    sink.write(visits[:3])
    disk.room = 0
    sink.settle([True] * 3)
    disk.room = None
    sink.write(visits[3:])
    sink.settle([True] * 3)
    sink.close()

    assert len(kit.lines(path)) == 6


def test_a_file_that_may_not_grow_is_a_full_disk(path, visits, kit):
    """The real system, by RLIMIT_FSIZE."""
    sink = jsonl_sink(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    visits[1].page.title = "x" * 20_000  # more than the journal needs
    resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, limits[1]))
    try:
        with pytest.raises(OutputFull, match=r"news\.jsonl"):
            sink.write(visits)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b""
    sink.write(visits)
    sink.settle([True] * 6)
    sink.close()

    assert len(kit.lines(path)) == 6


def test_a_disk_that_cannot_be_synced_is_an_error_and_leaves_nothing(path, visits, system):
    """With `sync` a write is not done before it is safe."""

    class Failing(types.SimpleNamespace):
        is_broken = False

        def __getattr__(self, name):
            return getattr(os, name)

        def fsync(self, file):
            if self.is_broken:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk = system(Failing())
    sink = jsonl_sink(path, sync=True)
    disk.is_broken = True

    with pytest.raises(OutputError, match=r"cannot be written"):
        sink.write(visits)

    assert path.read_bytes() == b""
    disk.is_broken = False
    sink.write(visits)
    sink.close()


def test_with_sync_journal_and_output_are_safe_before_a_write_returns(path, visits, system):
    """The journal first, then the files, then their folder if one is new."""

    class Watching(types.SimpleNamespace):
        def __getattr__(self, name):
            return getattr(os, name)

        def fsync(self, file):
            self.calls.append(Path(f"/proc/self/fd/{file}").readlink().name)

    disk = system(Watching(calls=[]))
    sink = jsonl_sink(path, sync=True)
    sink.write(visits[:1])
    assert disk.calls == ["news.jsonl.journal", "news.jsonl", path.parent.name]
    sink.settle([True])
    sink.write(visits[1:])
    assert disk.calls[3:] == ["news.jsonl.journal", "news.jsonl"]
    sink.settle([True] * 5)
    sink.close()


def test_file_that_cannot_be_opened_for_want_of_descriptors_is_no_fault_of_the_file(tmp_path):
    """It may be tried again: the error says what is short."""
    short = write_error(tmp_path / "news.jsonl", OSError(errno.EMFILE, "Too many open files"))
    denied = write_error(tmp_path / "news.jsonl", OSError(errno.EACCES, "Permission denied"))

    assert isinstance(short, OutputUnavailable)
    assert (short.retryable, denied.retryable) == (True, False)
    assert "ulimit -n" in str(short)
