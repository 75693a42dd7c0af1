from outrider import Done, Frontier, Link, Throttled
from outrider.executor.cached_visits import CachedVisits
from outrider.executor.executor import Executor
from outrider.executor.handlers import Handlers
from outrider.fetch.cache import CacheFile, ResponseCache
from outrider.fetch.response import Response

FAST = {"politeness": {"delay": 0.0}, "limits": {"done": 4}, "executor": {"slots": 1}}
URLS = [f"https://a.example/{n}" for n in range(6)]


async def test_while_a_host_throttles_its_next_pages_come_from_the_cache():
    """D5: those that were kept, without asking the host again; the others wait."""
    cache, asked = ResponseCache(CacheFile(None)), []

    async def handle(visit):
        asked.append(visit.url)
        return Throttled(3600.0) if len(asked) == 2 else Done(200)

    async with Frontier.open(settings=FAST) as frontier:
        await frontier.add([Link(url, priority=float(n)) for n, url in enumerate(URLS)])
        now = frontier.clock.now_ms() / 1000
        for fingerprint, url in await frontier.upcoming("a.example"):
            if url in URLS[2:5]:
                cache.put(fingerprint, Response(url, 200, (), b"kept", 0.1, now))
        seen = []
        executor = Executor(
            frontier,
            Handlers(handle),
            observer=seen.extend,
            cached_visits=CachedVisits(frontier, cache),
        )
        await executor.run()
        view = await frontier.queue("a.example").view()
        stats = await frontier.stats()

    assert asked == URLS[:2]
    kept = [visit for visit in seen if isinstance(visit.outcome, Done) and visit.outcome.from_cache]
    assert [visit.url for visit in kept] == URLS[2:5]
    assert all(visit.page.body == b"kept" for visit in kept)
    assert (view.reason, view.pending) == ("throttled", 2)
    assert stats.done == 4
    cache.close()


async def test_without_a_throttle_nothing_is_taken_from_the_cache():
    """The host is asked as long as it answers."""
    cache = ResponseCache(CacheFile(None))
    async with Frontier.open(settings=FAST) as frontier:
        await frontier.add(URLS[:2])
        for fingerprint, url in await frontier.upcoming("a.example"):
            cache.put(fingerprint, Response(url, 200, (), b"kept", 0.1, 0.0))
        asked = []

        async def handle(visit):
            asked.append(visit.url)
            return Done(200)

        await Executor(
            frontier, Handlers(handle), cached_visits=CachedVisits(frontier, cache)
        ).run()

    assert asked == URLS[:2]
    cache.close()
