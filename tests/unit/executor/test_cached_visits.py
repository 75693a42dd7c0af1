import asyncio

from outrider import Done, Failed, Frontier, Link, Throttled
from outrider.executor.cached_visits import CachedVisits
from outrider.executor.executor import Executor
from outrider.executor.handlers import Handlers
from outrider.executor.visit import Visit
from outrider.fetch.cache import CacheFile, ResponseCache
from outrider.fetch.response import Response

FAST = {"politeness": {"delay": 0.0}, "limits": {"done": 4}, "executor": {"slots": 1}}
URLS = [f"https://a.example/{n}" for n in range(6)]


class Host:
    """A handler that throttles at one URL, and uses cached responses as the fetcher does."""

    def __init__(self, throttles=URLS[1], body=b"kept"):
        self.throttles, self.body = throttles, body
        self.asked, self.cached = [], []

    async def __call__(self, visit):
        """One visit."""
        if visit.cached is not None:
            assert visit.cached.body == self.body
            self.cached.append(visit.url)
            visit.links.append(Link(f"{visit.url}/found", depth=1))
            return Done(200, from_cache=True)
        self.asked.append(visit.url)
        return Throttled(3600.0) if visit.url == self.throttles else Done(200)


async def add(frontier, cache, stored, **fields):
    """Add the URLs in order, with cached responses of some."""
    await frontier.add([Link(url, priority=float(n), **fields) for n, url in enumerate(URLS)])
    now = frontier.clock.now_ms() / 1000
    for fingerprint, url in await frontier.upcoming("a.example"):
        if url in stored:
            cache.put(fingerprint, Response(url, 200, (), b"kept", 0.1, now))


async def test_while_a_host_throttles_its_next_pages_come_from_the_cache():
    """D5: those that were kept, without asking the host again; the others wait."""
    cache, host, seen = ResponseCache(CacheFile(None)), Host(), []
    async with Frontier.open(settings=FAST) as frontier:
        await add(frontier, cache, URLS[2:5])
        await Executor(
            frontier,
            Handlers(host),
            observer=seen.extend,
            cached_visits=CachedVisits(frontier, cache),
        ).run()
        view = await frontier.queue("a.example").view()
        stats = await frontier.stats()

    assert host.asked == URLS[:2]
    assert host.cached == URLS[2:5]
    kept = [visit for visit in seen if isinstance(visit.outcome, Done) and visit.outcome.from_cache]
    assert [visit.url for visit in kept] == URLS[2:5]
    assert (view.reason, view.pending) == ("throttled", 2 + 3)  # with the links that were found
    assert stats.done == 4
    cache.close()


async def test_cached_visits_are_visits_in_slots_that_stages_wrap():
    """D5, J1, J2: as many run at one time as there are slots."""
    running, most, staged = 0, 0, []

    async def stage(visit, go_on):
        staged.append(visit.url)
        return await go_on(visit)

    async def handle(visit):
        nonlocal running, most
        if visit.cached is None:
            return Throttled(3600.0)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return Done(200, from_cache=True)

    cache = ResponseCache(CacheFile(None))
    settings = FAST | {"executor": {"slots": 2}, "limits": {"done": 5}}
    async with Frontier.open(settings=settings) as frontier:
        await add(frontier, cache, URLS[1:])
        visits = CachedVisits(frontier, cache)
        await Executor(frontier, Handlers(handle, [stage]), cached_visits=visits).run()

    assert most == 2
    assert sorted(staged) == URLS
    cache.close()


async def test_cached_page_is_tried_once_for_a_throttle():
    """D5, G1: one whose visit failed waits as others do."""
    cached = []

    async def handle(visit):
        if visit.cached is None:
            return Throttled(3600.0)
        cached.append(visit.url)
        if len(cached) == 3:
            executor.stop()
        return Failed("handler: odd", retry_in=0.0)

    cache = ResponseCache(CacheFile(None))
    async with Frontier.open(settings=FAST) as frontier:
        await add(frontier, cache, URLS[3:])
        visits = CachedVisits(frontier, cache)
        executor = Executor(frontier, Handlers(handle), cached_visits=visits)
        await executor.run()

    assert cached == URLS[3:]
    cache.close()


async def test_stopping_executor_begins_no_cached_visits():
    """J4, D5: a visit that throttles while the executor stops is its last."""
    cache, host = ResponseCache(CacheFile(None)), Host(throttles=URLS[0])

    async def handle(visit):
        executor.stop()
        return await host(visit)

    async with Frontier.open(settings=FAST) as frontier:
        await add(frontier, cache, URLS)
        visits = CachedVisits(frontier, cache)
        executor = Executor(frontier, Handlers(handle), cached_visits=visits)
        await executor.run()
        stats = await frontier.stats()

    assert (host.asked, host.cached) == (URLS[:1], [])
    assert (stats.pending, stats.leased) == (6, 0)
    cache.close()


async def test_types_that_are_not_fetched_are_given_back():
    """D5, J1: the handler of such a type would ask the host."""
    cache = ResponseCache(CacheFile(None))
    async with Frontier.open(settings=FAST) as frontier:
        await add(frontier, cache, URLS[1:], type="own")
        (lease,) = await frontier.claim(1)
        visits = CachedVisits(frontier, cache, lambda kind: kind != "own")
        visits.ended([_throttled(lease)])
        claim = await visits.claim(10)
        stats = await frontier.stats()

    assert claim.leases == []
    assert (stats.leased, stats.pending) == (1, 5)
    cache.close()


async def test_with_every_failure_nothing_is_taken_from_the_cache():
    """G1, D5: the queue is not throttled then, and may hold other hosts."""
    cache = ResponseCache(CacheFile(None))
    settings = FAST | {"retry": {"every_failure": True}}
    async with Frontier.open(settings=settings) as frontier:
        await add(frontier, cache, URLS[1:])
        (lease,) = await frontier.claim(1)
        visits = CachedVisits(frontier, cache)
        visits.ended([_throttled(lease)])

        assert (await visits.claim(10)).leases == []
    cache.close()


async def test_without_a_throttle_nothing_is_taken_from_the_cache():
    """The host is asked as long as it answers."""
    cache, host = ResponseCache(CacheFile(None)), Host(throttles=None)
    async with Frontier.open(settings=FAST) as frontier:
        await add(frontier, cache, URLS)
        await Executor(frontier, Handlers(host), cached_visits=CachedVisits(frontier, cache)).run()

    assert (host.asked, host.cached) == (URLS[:4], [])
    cache.close()


def _throttled(lease):
    visit = Visit(lease)
    visit.outcome = Throttled(3600.0)
    return visit
