"""Records stand once and whole: with lost leases, unknown answers, and a death at any instant."""

import itertools
import os

import pytest

from outrider import Frontier
from outrider.core.states import TaskState
from outrider.errors import InvalidInput, StoreUnavailable
from outrider.output.jsonl import jsonl_sink
from outrider.output.sink import recover
from outrider.store.protocol import TaskFilter


@pytest.fixture
def opened(tmp_path):
    """The same output, again and again."""
    return lambda **how: jsonl_sink(tmp_path / "news", **how)


@pytest.fixture
def urls(tmp_path, kit):
    """Of the lines, in order."""
    return lambda: [line["url"] for line in kit.lines(tmp_path / "news.jsonl")]


def of(visits):
    """Their URLs."""
    return [visit.lease.url for visit in visits]


async def done_in(frontier):
    """URLs of all finished tasks."""
    page = await frontier.store.tasks("default", TaskFilter(state=TaskState.DONE), limit=10_000)
    return sorted(view.url for view in page.items)


# ---- lost leases


@pytest.mark.parametrize("answers", list(itertools.product((True, False), repeat=4)))
def test_exactly_the_finished_visits_of_a_batch_stay(answers, opened, urls, visits, kit, tmp_path):
    """Whichever leases were lost, items go with their page, and the order stays."""
    first, batch = visits[0], visits[1:5]
    for number, visit in enumerate(batch):
        visit.items = [{"n": number}] * number
    sink = opened()
    sink.write([first])
    sink.settle([True])
    sink.write(batch)
    sink.settle(list(answers))

    stays = [visit for visit, answer in zip(batch, answers, strict=True) if answer]
    assert urls() == of([first, *stays])
    expected = [item for visit in stays for item in visit.items]
    assert kit.lines(tmp_path / "news.items.jsonl") == expected
    sink.write([visits[5]])
    sink.settle([True])
    sink.close()
    assert urls() == of([first, *stays, visits[5]])
    assert not (tmp_path / "news.jsonl.journal").exists()


def test_a_batch_with_nothing_to_write_writes_nothing(opened, urls, visits, tmp_path):
    """Not even the journal."""
    sink = opened()
    before = (tmp_path / "news.jsonl.journal").read_bytes()
    visits[0].page = None
    sink.write([visits[0]])
    sink.settle([False])

    assert (tmp_path / "news.jsonl.journal").read_bytes() == before
    assert urls() == []
    sink.close()


def test_answers_must_be_one_for_each_visit(opened, visits, urls):
    """A wrong count would take out the wrong records."""
    sink = opened()
    sink.write(visits)

    with pytest.raises(InvalidInput, match="5 answers for 6 visits"):
        sink.settle([True] * 5)

    sink.settle([True] * 6)
    sink.close()
    assert urls() == of(visits)


# ---- batches in doubt


async def test_a_batch_of_unknown_fate_is_settled_by_asking_the_store(
    opened, urls, visits, frontier, kit
):
    """Three of six were finished before the store was gone; nothing is written meanwhile."""
    sink = opened()
    sink.write(visits)
    await kit.finish(frontier, visits[::2])
    sink.settle(None)

    with pytest.raises(StoreUnavailable, match="recover"):
        sink.write(visits)
    await recover(sink, frontier.store)

    assert urls() == of(visits[::2])
    sink.write(visits[1:2])
    sink.settle([True])
    sink.close()
    assert urls() == of([*visits[::2], visits[1]])


async def test_an_unknown_batch_is_settled_by_the_next_process(opened, urls, visits, frontier, kit):
    """The journal stays when the sink is closed."""
    sink = opened()
    sink.write(visits)
    await kit.finish(frontier, visits[3:])
    sink.settle(None)
    sink.close()

    again = opened()
    await recover(again, frontier.store)
    again.close()

    assert urls() == of(visits[3:])
    assert await done_in(frontier) == sorted(of(visits[3:]))
    assert len(await frontier.claim(10)) == 3  # what was not finished came back at once


async def test_asking_changes_nothing_that_was_finished(opened, visits, frontier, kit):
    """Counts, attempts and states are what they were."""
    sink = opened()
    sink.write(visits)
    await kit.finish(frontier, visits)
    before = await frontier.store.tasks("default", TaskFilter())
    stats = await frontier.store.crawl("default")
    sink.settle(None)
    await recover(sink, frontier.store)
    sink.close()

    assert await frontier.store.tasks("default", TaskFilter()) == before
    assert await frontier.store.crawl("default") == stats


async def test_a_finish_that_arrives_after_the_question_is_too_late(
    opened, urls, visits, frontier, kit
):
    """So no answer can become wrong afterwards."""
    sink = opened()
    sink.write(visits)
    sink.settle(None)
    await recover(sink, frontier.store)
    sink.close()

    assert await kit.finish(frontier, visits) == [False] * 6
    assert urls() == []


async def test_pages_visited_again_since_keep_their_first_record(
    opened, urls, leases, kit, frontier
):
    """Once settled a batch is never asked about, though its tokens are not current any more."""
    sink, visit = opened(), kit.visit(leases[0])
    sink.write([visit])
    await frontier.finish(visit.lease, visit.outcome.__class__(200, revisit_in=0.0))
    sink.settle([True])
    (again,) = await frontier.claim(1)
    assert again.url == visit.lease.url
    kit.bury(sink)

    second = opened()
    await recover(second, frontier.store)
    second.close()
    assert urls() == of([visit])


async def test_finished_visits_of_a_cancelled_crawl_stay(opened, urls, visits, frontier, kit):
    """Its leases are all refused, but what was done is done."""
    sink = opened()
    sink.write(visits)
    await kit.finish(frontier, visits[:2])
    await frontier.cancel()
    kit.bury(sink)

    again = opened()
    await recover(again, frontier.store)
    again.close()
    assert urls() == of(visits[:2])


async def test_where_the_store_is_another_whole_records_stay(opened, urls, visits, kit, tmp_path):
    """That store cannot be asked, and its pages are not visited again; torn records go."""
    sink = opened()
    sink.write(visits)
    kit.bury(sink)
    os.truncate(tmp_path / "news.jsonl", (tmp_path / "news.jsonl").stat().st_size - 5)

    again = opened()
    async with Frontier.open("memory://") as other:
        await recover(again, other.store)
    again.close()
    assert urls() == of(visits[:5])


# ---- death


async def crawl(sink, frontier, claimed, kit, step=lambda: None):
    """Four batches: every second loses leases, every second page has items."""
    for number in range(4):
        leases = await claimed(4)
        visits = [kit.visit(lease) for lease in leases]
        for visit in visits:
            has_items = int(visit.lease.url.rpartition("/")[2]) % 2
            visit.items = [{"of": visit.lease.url}, {"also": visit.lease.url}] * has_items
        sink.write(visits)
        step()
        if number % 2:
            await frontier.release(leases[:3:2])
        answers = await kit.finish(frontier, visits)
        step()
        sink.settle(answers)
    sink.close()


async def dies(life, opened, kit):
    """Whether a process dies between opening the output and closing it."""
    sinks = []

    async def live():
        sinks.append(opened())
        await life(sinks[0])

    try:
        await live()
    except kit.Killed:
        for sink in sinks:
            kit.bury(sink)  # the system closes its files
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("sync", [False, True])
async def test_a_death_at_any_instant_leaves_each_finished_visit_once_and_whole(
    torn, sync, opened, urls, kit, system, tmp_path
):
    """Between any two calls of the system, or within a write; again while it recovers."""
    for calls in itertools.count(1):
        async with Frontier.open("memory://", settings=kit.settings) as frontier:
            was_killed = await _lives(calls, torn, frontier, lambda: opened(sync=sync), kit, system)
            sink = opened(sync=sync)
            await recover(sink, frontier.store)
            done = await done_in(frontier)
            assert sorted(urls()) == done
            assert_items(kit, tmp_path, done)
            sink.close()
        for path in tmp_path.iterdir():
            path.unlink()
        if not was_killed:
            break
    assert calls > 30


async def _lives(calls, torn, frontier, opened, kit, system):
    async def claimed(count):
        first = (await frontier.stats()).known
        await frontier.add([f"https://h{n}.test/{n}" for n in range(first, first + count)])
        return await frontier.claim(count)

    mortal = system(kit.Mortal(calls, torn=torn))
    was_killed = await dies(
        lambda sink: crawl(sink, frontier, claimed, kit, mortal.step), opened, kit
    )
    for more in itertools.count(1):  # the next ones die while they recover
        system(kit.Mortal(more, torn=torn))
        if not was_killed or not await dies(lambda sink: _recover(sink, frontier), opened, kit):
            break
    system(os)
    return was_killed


async def _recover(sink, frontier):
    await recover(sink, frontier.store)
    sink.close()


def assert_items(kit, folder, done):
    """Two items of each page that has any, one after the other."""
    path = folder / "news.items.jsonl"
    items = kit.lines(path) if path.exists() else []
    of_pages = [item["of"] for item in items[::2]]
    assert [item["also"] for item in items[1::2]] == of_pages
    assert len(set(of_pages)) == len(of_pages)
    assert set(of_pages) == {url for url in done if int(url.rpartition("/")[2]) % 2}
