import random

import msgspec
import pytest

from outrider import Done, Failed, Frontier, InvalidInput, Link, blocking
from outrider.frontier import export
from outrider.store.factory import open_store
from outrider.testing import FakeClock

SETTINGS = {"politeness": {"delay": 1.0}, "retry": {"jitter": 0.0}}
PAGES = [f"https://{host}.example/{page}" for page in range(4) for host in "abc"]


@pytest.fixture
def clock():
    """A clock that moves only when a test advances it."""
    return FakeClock()


@pytest.fixture
async def store(clock):
    """A store for many crawls."""
    return await open_store("memory://", clock)


@pytest.fixture
def opened(store, clock):
    """Frontiers over the store, by the name of their crawl."""

    def opened(crawl="default", settings=SETTINGS):
        return Frontier.open(store, settings=settings, crawl=crawl, clock=clock, dice=lambda: 0.0)

    return opened


@pytest.fixture
def attached(store, clock):
    """Frontiers that change no rules."""
    return lambda crawl: Frontier.attach(store, crawl=crawl, clock=clock, dice=lambda: 0.0)


@pytest.fixture
async def exported(opened):
    """A crawl under way, as bytes."""
    async with opened() as frontier:
        await frontier.add([*PAGES, Link("https://a.example/x", meta={"n": 1}, tag="t")])
        first, second, _ = await frontier.claim(3)
        await frontier.finish(first, Done(200), links=["https://d.example/"])
        await frontier.finish(second, Failed("HTTP 500"))
        return b"".join([block async for block in frontier.export()])


def cut(data, size):
    """Bytes in pieces, as a file is read."""
    return [data[at : at + size] for at in range(0, len(data), size)]


async def lent(frontier, clock):
    """All that is visited from now on, in order."""
    urls = []
    while True:
        claim = await frontier.claim(2)
        for lease in claim:
            urls.append((lease.url, lease.attempt))
            await frontier.finish(lease, Done(200))
        if claim.wake_in is None:
            return urls
        clock.advance(claim.wake_in or 0.0)


# ---- out and in again


@pytest.mark.parametrize("size", [1, 7, 1000, 10**9])
async def test_a_restored_crawl_visits_what_is_left(exported, attached, clock, size):
    """I5: however its bytes are cut."""
    async with attached("copy") as frontier:
        report = await frontier.restore(cut(exported, size))
        urls = await lent(frontier, clock)

        assert (report.crawl, report.queues, report.tasks, report.known) == ("default", 4, 14, 0)
        assert len(urls) == 13
        assert ("https://b.example/0", 2) in urls
        assert (await frontier.stats()).done == 14


async def test_leased_task_is_exported_as_released(exported, attached, clock):
    """H5: the copy leases it again, as the same attempt."""
    clock.advance(1.0)
    async with attached("copy") as copy:
        await copy.restore([exported])
        claim = await copy.claim(9)

        assert ("https://c.example/0", 1) in [(lease.url, lease.attempt) for lease in claim]


async def test_lines_may_come_from_an_async_iterator(opened, attached):
    """An export can be restored as it comes."""
    async with opened() as frontier, attached("copy") as copy:
        await frontier.add(PAGES)
        report = await copy.restore(frontier.export())

        assert report.tasks == len(PAGES)


async def test_progress_is_reported(exported, attached):
    """R4: a long work shows how far it is."""
    seen = []
    async with attached("copy") as frontier:
        report = await frontier.restore([exported], progress=seen.append)

        assert seen[-1] == report


async def test_waiting_claim_returns_after_a_restore(exported, attached, clock):
    """O3: a restore emits an event, and wakes waiting claims."""
    async with attached("copy") as frontier:
        seen = []
        frontier.subscribe(seen.append)
        await frontier.restore([exported])

        assert [(event.name, event.data["detail"]) for event in seen] == [
            ("crawl-restored", "running")
        ]


def test_the_blocking_twin_does_the_same(clock):
    """R4."""
    with blocking.Frontier.open(clock=clock) as one, blocking.Frontier.open(clock=clock) as other:
        one.add(PAGES)

        assert other.restore(one.export()).tasks == len(PAGES)
        assert [lease.url for lease in other.claim(3)] == PAGES[:3]


async def test_a_large_crawl_comes_in_many_blocks(opened, attached, monkeypatch):
    """Every block is checked by itself."""
    monkeypatch.setattr("outrider.frontier.export.PAGE", 3)
    async with opened() as frontier, attached("copy") as copy:
        await frontier.add(PAGES)
        blocks = [block async for block in frontier.export()]
        report = await copy.restore(blocks)

        assert len(blocks) == 2 + 1 + 5  # head and tail, notes, items
        assert report.tasks == len(PAGES)


# ---- what is no export, or not all of one


async def refusal(frontier, data):
    """Why it is refused."""
    with pytest.raises(InvalidInput) as caught:
        await frontier.restore([data])
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"hello", "line 1: this is no export"),
        (b"hello\nworld\n", "line 1: this is no export"),
        (b'{"url": "https://a.example/"}\n', "line 1: this is no export"),
        (b'{"outrider":"export"}\n', "line 1: this is no export"),
        (b'{"outrider":"export","version":0}\n', "line 1: this is no export"),
        (b'{"outrider":"export","version":2,"new":[]}\n', "newer release .format 2"),
        (b"\x1f\x8b\x08\0\0\0\0\0\n", "compressed"),
        (b"\xff\xfe\n", "line 1: this is no export"),
        (b'{"outrider":"export","version":1}\n', "line 2: the export was cut"),
        (b'{"outrider":"export","version":1}\n{}\n', "line 2: "),
        (b'{"outrider":"export","version":1}\n{"outrider":"sum"}\n', "line 2: "),
        (b'{"outrider":"export","version":1}\n{"is":"task"}\n', "line 2: .*url"),
        (b'{"outrider":"export","version":1}\n' + b"[" * 10**5 + b"\n", "line 2: "),
    ],
)
async def test_what_is_no_export_is_refused_by_its_line(attached, store, data, why):
    """I5: nothing is made of it."""
    async with attached("copy") as frontier:
        assert await refusal(frontier, data) is not None
        with pytest.raises(InvalidInput, match=why):
            await frontier.restore(cut(data, 5))

    assert await store.crawls() == []


async def test_crawl_restored_from_a_truncated_export_leases_no_tasks(exported, attached):
    """I5: at every byte; restoring the whole export completes it."""
    async with attached("copy") as frontier:
        for size in range(0, len(exported) - 1, 97):
            assert await refusal(frontier, exported[:size])
            assert not await frontier.claim()
        report = await frontier.restore([exported])

        assert report.known == report.queues + report.tasks + 1
        assert len(await frontier.claim(9)) > 0


async def test_truncated_export_is_reported(exported, attached):
    """I5: the line, what was restored, and how to go on."""
    lines = exported.count(b"\n")
    async with attached("copy") as frontier:
        text = await refusal(frontier, exported[: exported.rindex(b"{")])

        assert text.startswith(f"line {lines}: the export was cut")
        assert "'copy', which leases no tasks now: restore the whole export again" in text


async def test_every_changed_byte_is_detected(exported, attached):
    """I5: damage is found before it is used, wherever it is."""
    dice = random.Random(5)
    for number in range(300):
        place = dice.randrange(len(exported))
        hurt = bytearray(exported)
        hurt[place] ^= 1 << dice.randrange(8)
        async with attached(f"copy-{number}") as frontier:
            text = await refusal(frontier, bytes(hurt))

            assert text.startswith(("line ", "lines "))
            assert (await frontier.stats()).known in (0, 14)


async def test_something_after_the_end_is_refused(exported, attached):
    """I5: two exports are not one."""
    async with attached("copy") as frontier:
        text = await refusal(frontier, exported + exported)

        assert "something follows the end" in text


def rewritten(data, change):
    """An export with changed items, and true sums."""
    reader, writer = export.ExportReader(), export.ExportWriter()
    items = [change(item) for block in reader.feed(data) for item in block.items]
    return writer.head("x", 0.0) + writer.block(items) + writer.tail()


async def test_a_fault_is_named_by_its_line(exported, attached):
    """I5: also faults that types cannot express."""
    hurt = exported.replace(b"https://d.example/", b"ftp://d.example/xx")
    with pytest.raises(InvalidInput):  # its sum tells first
        list(export.ExportReader().feed(hurt))
    async with attached("copy") as frontier:
        forged = rewritten(
            exported,
            lambda item: (
                msgspec.structs.replace(item, url="ftp://d.example/")
                if getattr(item, "url", None) == "https://d.example/"
                else item
            ),
        )
        line = 1 + forged[: forged.index(b"ftp:")].count(b"\n")

        assert (await refusal(frontier, forged)).startswith(f"line {line}: task.url = 'ftp:")


async def test_foreign_file_cannot_fill_the_memory(attached):
    """I5: lines without an end, and blocks without a sum."""
    head = b'{"outrider":"export","version":1}\n'
    item = b'{"is":"queue","key":"a","turn":1}\n'
    async with attached("copy") as frontier:
        for endless in ([head, *[b"x" * 2**20] * 70], [head, *[item * 100] * 30]):
            with pytest.raises(InvalidInput, match="no checksum for too long"):
                await frontier.restore(endless)


async def test_a_crawl_that_has_tasks_is_refused(exported, opened):
    """I5: by name, with the way out, and nothing is changed."""
    async with opened() as frontier:
        text = await refusal(frontier, exported)

        assert "crawl 'default' has 14 tasks: restore into one that has none" in text
        assert "lends nothing" not in text
        assert (await frontier.stats()).status == "running"


async def test_crawl_being_restored_is_not_exported(exported, attached):
    """I5: it would look like a complete one."""
    async with attached("copy") as frontier:
        await refusal(frontier, exported[:-5])
        with pytest.raises(InvalidInput, match="being restored"):
            [block async for block in frontier.export()]


async def test_shared_values_are_exported_and_restored(opened, attached):
    """F4, N1: signals and runtime settings are in the copy; deleted ones are not."""
    page = PAGES[0]
    async with opened() as first, attached("copy") as second:
        await first.add([page])
        await first.predict(page, 0.8, 0.5)
        await first.configure({"scoring": {"weights": {"nav": 3.0, "hub": 4.0}}})
        await first.unset("scoring.weights.hub")
        await second.restore([chunk async for chunk in first.export()])
        await second.learn()

        assert [(one.url, one.state) async for one in second.predictions()] == [(page, "open")]
        assert second.settings.scoring.weights == {"nav": 3.0}
        await second.add([Link(page + "nav", type="nav")])
        assert (await second.explain(page + "nav")).task.priority == 3.0
