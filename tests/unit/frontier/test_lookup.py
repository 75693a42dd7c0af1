"""Leases that are looked up: found by any process, finished by another than claimed them (H1)."""

import pytest

from outrider import Done, Failed, Frontier, InvalidInput, Link, blocking
from outrider.store.factory import join_store, open_store

A = "https://a.example/"
SETTINGS = {"politeness": {"delay": 0.0, "max_in_flight": 1000}, "retry": {"max_retries": 1}}


@pytest.fixture
async def store(clock):
    """One store for two frontiers."""
    return await open_store("memory://", clock)


@pytest.fixture
async def first(store, clock):
    """The frontier that claims."""
    async with Frontier.open(store, settings=SETTINGS, clock=clock, worker="one") as frontier:
        yield frontier


@pytest.fixture
async def second(first, store, clock):
    """Another frontier of the same crawl, which claims nothing."""
    async with Frontier.attach(store, clock=clock, worker="two") as frontier:
        yield frontier


async def urls(views):
    """The URLs of an iterator of views."""
    return [view.lease.url async for view in views]


async def test_second_frontier_finishes_a_lease_it_did_not_claim(first, second, clock):
    """H1, H6, G1: with links, and retries counted on."""
    await first.add([A])
    (lease,) = await first.claim()
    await first.finish(lease, Failed("one", retry_in=0.0))
    (claimed,) = await first.claim()
    clock.advance(1)

    found = await second.find_lease(A)
    assert found == claimed
    assert (found.attempt, found.failures, found.worker) == (2, 1, "one")
    assert await second.finish(found, Failed("two"), links=["https://b.example/"])

    view = await first.store.task("default", found.fingerprint)
    assert (view.state, view.failures) == ("dead", 2)
    assert [lease.url for lease in await first.claim()] == ["https://b.example/"]
    assert await first.finish(claimed, Done(200))  # H3: it was finished before
    assert (await first.stats()).done == 0


async def test_lease_is_found_by_each_of_its_names(first, second):
    """H1: and by all of them together."""
    await first.add([A, Link("https://b.example/x", identity="other")])
    leases = {lease.key: lease for lease in await first.claim(2)}
    a, b = leases["a.example"], leases["b.example"]

    assert await second.find_lease("HTTPS://A.example:443/") == a
    assert await second.find_lease(Link("https://b.example/x", identity="other")) == b
    assert await second.find_lease(fingerprint=b.fingerprint) == b
    assert await second.find_lease(token=b.token) == b
    assert await second.find_lease(task=a.task) == a
    every = {"fingerprint": a.fingerprint, "token": a.token, "task": a.task}
    assert await second.find_lease(A, **every) == a


async def test_lease_is_found_by_what_its_link_is_known_by(first, second):
    """A3, B3: a link's own fingerprint counts before its URL, and an identity needs no URL."""
    mark = b"0123456789abcdef"
    await first.add([Link(A, fingerprint=mark), Link("https://b.example/x", identity="item 7")])
    leases = {lease.key: lease for lease in await first.claim(2)}

    assert await second.find_lease(Link(A, fingerprint=mark)) == leases["a.example"]
    assert await second.find_lease(Link("", fingerprint=mark)) == leases["a.example"]
    assert await second.find_lease(Link("", identity="item 7")) == leases["b.example"]
    assert await second.find_lease(A) is None


async def test_lease_that_is_not_there_is_none(first, second):
    """H1: of an unknown URL, of no URL, of another token, of a task that is pending or done."""
    await first.add([A, "https://b.example/"])
    (lease,) = await first.claim()
    pending = "https://b.example/" if lease.url == A else A

    assert await second.find_lease("https://z.example/") is None
    assert await second.find_lease("no url") is None
    assert await second.find_lease(pending) is None
    assert await second.find_lease(lease.url, token=lease.token + 1) is None
    assert await second.find_lease(lease.url, fingerprint=bytes(16)) is None
    for number in (2**70, 2**63, 0, -1):
        assert await second.find_lease(task=number) is None
        assert await second.find_lease(token=number) is None
    await first.finish(lease, Done(200))
    assert await second.find_lease(lease.url) is None


@pytest.mark.parametrize(
    "wrong", [{}, {"fingerprint": b"x"}, {"fingerprint": "x" * 16}, {"token": "1"}, {"task": 1.5}]
)
async def test_look_up_without_a_proper_name_is_refused(first, wrong):
    """Each argument is named."""
    with pytest.raises(InvalidInput, match="find_lease"):
        await first.find_lease(**wrong)


async def test_leases_are_iterated_oldest_first(first, second, clock):
    """H1: of all workers, or by worker, key and age."""
    await first.add([f"https://{host}.example/{n}" for n in (1, 2) for host in "ab"])
    for number in range(4):
        await first.claim(worker=f"w{number % 2}")
        clock.advance(10)

    every = await urls(second.leased())
    assert len(every) == 4
    assert await urls(second.leased(worker="w1")) == every[1::2]
    assert await urls(second.leased(key="a.example")) == [u for u in every if "//a." in u]
    assert await urls(second.leased(key=".example")) == every
    assert await urls(second.leased(older_than=20)) == every[:2]


async def test_lease_that_was_looked_up_is_extended_and_released_here(first, second, clock):
    """H2, H5: also by `async with`."""
    await first.add([A])
    await first.claim(lease_for=30)
    clock.advance(20)
    lease = await second.find_lease(A)

    assert await second.extend([lease]) == {lease}
    (view,) = [view async for view in second.leased()]
    assert view.expires_at == clock.now() + 30
    with pytest.raises(RuntimeError):
        async with view.lease:
            raise RuntimeError
    assert (await first.stats()).leased == 0


async def test_leased_tasks_are_read_by_their_leases(first, monkeypatch):
    """O5: in order of discovery, without a scan of the crawl; other filters hold as well."""
    await first.add([f"https://{'ab'[n % 2]}.example/{n}" for n in range(3000)])
    claimed = [lease.url for lease in await first.claim(7)]
    await first.add([Link("https://c.example/", priority="critical", tag="t")])
    claimed += [lease.url for lease in await first.claim(1)]
    examined, tasks = [], first.store.tasks

    async def counted(crawl, which, *, after, limit):
        examined.append(limit)
        return await tasks(crawl, which, after=after, limit=limit)

    monkeypatch.setattr(first.store, "tasks", counted)
    found = [task async for task in first.tasks(state="leased")]

    assert sorted(task.url for task in found) == sorted(claimed)
    assert [task.number for task in found] == sorted(task.number for task in found)
    assert sum(examined) < 100
    tagged = [task.url async for task in first.tasks(state="leased", tag="t")]
    assert tagged == ["https://c.example/"]
    of_key = [task.key async for task in first.tasks(state="leased", key="a.example")]
    assert set(of_key) == {"a.example"}


async def test_lease_of_a_files_holder_is_found_through_the_socket(tmp_path, clock):
    """H1, M3: both have the store's id, so each accepts the other's leases."""
    path = str(tmp_path / "crawl.outrider")
    async with Frontier.open(path, settings=SETTINGS, clock=clock) as holder:
        await holder.add([A, "https://b.example/"])
        claimed = await holder.claim(2)
        joined = await join_store(path)
        async with Frontier.attach(joined, clock=clock) as other:
            found = [view.lease async for view in other.leased()]
            assert found == claimed
            assert await other.finish(found[0], Done(200))
            assert await other.release([found[1]]) == {claimed[1]}
            (mine,) = await other.claim()
            assert await holder.finish(await holder.find_lease(mine.url), Done(200))
            assert await other.find_lease(task=2**70) is None  # a number that no socket carries
        await joined.close()


def test_blocking_frontier_holds_what_it_looks_up(clock):
    """H5: `with lease:` releases without `await`."""
    with blocking.Frontier.open(settings=SETTINGS, clock=clock) as frontier:
        frontier.add([A])
        frontier.claim()
        lease = frontier.find_lease(A)
        with pytest.raises(RuntimeError), lease:
            raise RuntimeError
        assert frontier.find_lease(A) is None
        frontier.claim()
        (view,) = list(frontier.leased())
        with pytest.raises(RuntimeError), view.lease:
            raise RuntimeError
        assert list(frontier.leased()) == []
