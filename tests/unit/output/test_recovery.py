"""Output that a killed writer left in doubt, settled by another process."""

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from outrider import Done, Frontier
from outrider.errors import OutputError
from outrider.executor.outage import Outage
from outrider.output.journal import Journal, Settled
from outrider.output.jsonl import items_sink, jsonl_sink
from outrider.output.recovery import OutputRecovery, journals_of, settle_files
from outrider.output.warc import warc_sink
from outrider.output.worker_files import worker_files
from outrider.wiring import opened, recovering


@pytest.fixture
def name(tmp_path):
    """What its files are called, with letters that mean something to a glob."""
    return str(tmp_path / "x[1]-2")


@pytest.fixture
def left(name, visits):
    """It wrote six pages with an item each, and was never told what came of them."""
    for visit in visits:
        visit.items = [{"of": visit.lease.url}]
    sink = jsonl_sink(name)
    sink.write(visits)
    sink.settle(None)
    sink.close()
    return visits


@pytest.fixture
def urls(name, kit):
    """Of the lines, in order; each has its item."""

    def read():
        pages = [line["url"] for line in kit.lines(f"{name}.jsonl")]
        assert [line["of"] for line in kit.lines(f"{name}.items.jsonl")] == pages
        return pages

    return read


def of(visits):
    """Their URLs."""
    return [visit.lease.url for visit in visits]


async def test_what_was_finished_stays_and_the_rest_goes(name, left, urls, frontier, kit):
    """Leases that were held go back; nothing is in doubt then."""
    await kit.finish(frontier, left[1:3])
    await settle_files(name, frontier.store)

    assert urls() == of(left[1:3])
    assert journals_of(name) == []
    assert (await frontier.stats()).pending == 4


async def test_archives_are_settled_too(tmp_path, leases, frontier, kit):
    """A format needs not be known: only how long its files were."""
    name = str(tmp_path / "x")
    sinks = warc_sink(name, info={}), items_sink(name)
    visit = kit.responded(leases[0])
    visit.items = [{"n": 1}]
    for sink in sinks:
        sink.write([visit])
        sink.close()
    await settle_files(name, frontier.store)

    assert journals_of(name) == []
    assert (tmp_path / "x.items.jsonl").read_bytes() == b""
    with (tmp_path / "x-00001.warc.gz").open("rb") as file:
        assert len(file.read()) > 0  # what says whose archive it is


async def test_what_another_store_knows_is_left_alone(name, left, urls, kit):
    """This one would say of every visit that it never was."""
    async with Frontier.open("memory://", settings=kit.settings) as stranger:
        await settle_files(name, stranger.store)

    assert urls() == of(left)
    assert journals_of(name) != []


async def test_output_of_a_live_writer_is_left_alone(name, visits, frontier, kit):
    """Its batch is in doubt for a moment; that is its own affair."""
    sink = jsonl_sink(name)
    sink.write(visits)
    await settle_files(name, frontier.store)
    answers = await kit.finish(frontier, visits)
    sink.settle(answers)
    sink.close()

    assert answers == [True] * 6
    assert [line["url"] for line in kit.lines(f"{name}.jsonl")] == of(visits)


async def test_what_is_not_in_doubt_may_have_been_taken_away(tmp_path, name, frontier):
    """The files of a worker that was killed between two batches are anybody's."""
    journal = Journal(tmp_path / "x[1]-2.jsonl.journal")
    journal.write(Settled([]))
    journal.close()
    (tmp_path / "x[1]-2.none.journal").write_bytes(b"of something else")
    before = journals_of(name)
    await settle_files(name, frontier.store)

    assert journals_of(name) == before


async def test_files_that_were_changed_since_are_not_touched(name, left, frontier, tmp_path):
    """It is said, by name."""
    path = tmp_path / "x[1]-2.jsonl"
    was = path.read_bytes() + b"{}\n"
    path.write_bytes(was)

    with pytest.raises(OutputError, match="is not what its journal says"):
        await settle_files(name, frontier.store)
    assert path.read_bytes() == was


# ---- several workers of one machine


@pytest.fixture
def host(monkeypatch):
    """This machine has a name with characters that no file name should have."""
    monkeypatch.setattr(socket, "gethostname", lambda: "my host/1")
    return "my-host-1"


@pytest.fixture
def stem(tmp_path):
    """The common prefix of all workers' files."""
    return str(tmp_path / "x")


def in_doubt(name, lease):
    """An output of a dead worker, whose last record is in doubt."""
    sink = items_sink(name)
    sink.write([SimpleNamespace(lease=lease, outcome=Done(200), page=None, items=[{}])])
    sink.close()
    Path(f"{name}.lock").touch()


async def recovered(stem, names, meanwhile=(), damaged=""):
    """Run a worker beside these dead ones until those that die meanwhile are settled."""
    every = [*names, *meanwhile]
    async with Frontier.open("memory://") as frontier, asyncio.timeout(60):
        await frontier.add([f"https://{n}.example/" for n in range(len(every))])
        leases = dict(zip(every, await frontier.claim(len(every)), strict=True))
        for name in names:
            in_doubt(name, leases[name])
        if damaged:
            await asyncio.to_thread(Path(f"{damaged}.items.jsonl").write_bytes, b"of another\n")
        with worker_files(stem) as path:
            recovery = OutputRecovery(path, frontier.store)
            async with recovering(recovery, Outage(), interval=0):
                for name in meanwhile:
                    in_doubt(name, leases[name])
                    while journals_of(name):  # noqa: ASYNC110 - a file sends no notification
                        await asyncio.sleep(0)


def test_worker_takes_the_lowest_free_number(stem, host):
    """It is free again once its worker has ended."""
    with worker_files(stem) as first:
        with worker_files(stem) as second:
            pass
        with worker_files(stem) as again:
            pass

    assert [first, second, again] == [f"{stem}-{host}-{n}" for n in (1, 2, 2)]


async def test_output_of_dead_workers_is_settled(stem, host, tmp_path):
    """By any other worker of the same machine; also the output of the crawl without workers."""
    names = [f"{stem}-{host}-{n}" for n in (1, 2, 10)]
    others = [f"{stem}-{host}-2-1", f"{stem}-north-1"]  # of machines with such names
    await recovered(stem, [stem, *names, *others])

    left = {path.name.partition(".")[0] for path in tmp_path.glob("*.journal")}
    assert left == {Path(name).name for name in (names[0], *others)}  # its own: by its own sink


async def test_output_of_workers_killed_meanwhile_is_settled(stem, host, tmp_path):
    """A worker may run for weeks."""
    await recovered(stem, [], [f"{stem}-{host}-7"])

    assert (tmp_path / f"x-{host}-7.items.jsonl").read_bytes() == b""


async def test_output_that_cannot_be_settled_is_reported_once(stem, host, tmp_path, caplog):
    """And the output of all others is settled."""
    names = [f"{stem}-{host}-{n}" for n in (7, 8)]
    await recovered(stem, names, [f"{stem}-{host}-9"], damaged=names[0])

    assert caplog.text.count("left in doubt: ") == 1
    assert [path.name for path in tmp_path.glob("*.journal")] == [f"x-{host}-7.items.jsonl.journal"]


async def test_output_path_that_only_looks_like_a_workers_is_a_stem(stem, host):
    """Only the lock of `worker_files` makes it a worker's."""
    async with Frontier.open("memory://") as frontier:
        await frontier.add(["https://a.example/"])
        (lease,) = await frontier.claim()
        name = f"{stem}-{host}-3"
        in_doubt(f"{name}-{host}-1", lease)
        await OutputRecovery(name, frontier.store).run()

        assert journals_of(f"{name}-{host}-1") == []


async def test_crawl_with_a_sink_of_its_own_recovers_nothing(stem, tmp_path):
    """Its output path names no files of its own."""
    store = tmp_path / "c.outrider"
    async with Frontier.open(store) as frontier:
        await frontier.add(["https://a.example/"])
        (lease,) = await frontier.claim()
        in_doubt(stem, lease)
    settings = {"output": {"path": stem}}
    sink = SimpleNamespace(write=lambda _: None, settle=lambda _: None, close=lambda: None)
    async with opened(store, settings=settings, sink=sink):
        assert journals_of(stem) != []
    assert journals_of(stem) != []
    async with opened(store, settings=settings):
        assert (tmp_path / "x.items.jsonl").read_bytes() == b""
