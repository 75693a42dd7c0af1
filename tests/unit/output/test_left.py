"""What a writer left in doubt when it was killed, settled by another one."""

import pytest

from outrider import Frontier
from outrider.errors import OutputError
from outrider.output.journal import Journal, Resting
from outrider.output.jsonl import items_sink, jsonl_sink
from outrider.output.left import journals_of, settle_left
from outrider.output.warc import warc_sink


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
    await settle_left(name, frontier.store)

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
    await settle_left(name, frontier.store)

    assert journals_of(name) == []
    assert (tmp_path / "x.items.jsonl").read_bytes() == b""
    with (tmp_path / "x-00001.warc.gz").open("rb") as file:
        assert len(file.read()) > 0  # what says whose archive it is


async def test_what_another_store_knows_is_left_alone(name, left, urls, kit):
    """This one would say of every visit that it never was."""
    async with Frontier.open("memory://", settings=kit.settings) as stranger:
        await settle_left(name, stranger.store)

    assert urls() == of(left)
    assert journals_of(name) != []


async def test_whoever_still_writes_is_left_alone(name, visits, frontier, kit):
    """Its batch is in doubt for a moment; that is its own affair."""
    sink = jsonl_sink(name)
    sink.write(visits)
    await settle_left(name, frontier.store)
    answers = await kit.finish(frontier, visits)
    sink.settle(answers)
    sink.close()

    assert answers == [True] * 6
    assert [line["url"] for line in kit.lines(f"{name}.jsonl")] == of(visits)


async def test_what_is_not_in_doubt_may_have_been_taken_away(tmp_path, name, frontier):
    """The files of a worker that was killed between two batches are anybody's."""
    journal = Journal(tmp_path / "x[1]-2.jsonl.journal")
    journal.say(Resting([]))
    journal.close()
    (tmp_path / "x[1]-2.none.journal").write_bytes(b"of something else")
    before = journals_of(name)
    await settle_left(name, frontier.store)

    assert journals_of(name) == before


async def test_files_that_were_changed_since_are_not_touched(name, left, frontier, tmp_path):
    """It is said, by name."""
    path = tmp_path / "x[1]-2.jsonl"
    was = path.read_bytes() + b"{}\n"
    path.write_bytes(was)

    with pytest.raises(OutputError, match="is not what its journal says"):
        await settle_left(name, frontier.store)
    assert path.read_bytes() == was
