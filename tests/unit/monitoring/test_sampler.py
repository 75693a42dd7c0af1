"""What a look at a crawl reads: how much of it, how often, and what it makes of that."""

import pytest

from outrider import Done, Failed, Frontier, Throttled
from outrider.monitoring.dead_letters import MAX_LATEST, MAX_NAMED, MAX_REASONS, OTHERS, DeadLetters
from outrider.monitoring.hosts import KEPT, MAX_HOSTS, Host, HostOrder, Hosts
from outrider.monitoring.rates import Counts, RateHistory
from outrider.monitoring.sampler import RollingReader, Sampler, SampleRequest
from outrider.store.factory import open_store
from outrider.store.protocol import ResultPage
from outrider.testing import FakeClock

RUDE = {
    "politeness": {"delay": 0.0, "max_in_flight": 1000},
    "retry": {"max_retries": 0, "jitter": 0.0},
}


@pytest.fixture
def clock():
    """Time that moves only when a test says so."""
    return FakeClock()


class Distant:
    """A store in another process: the same one, but each call is counted and takes time."""

    is_inline = False

    def __init__(self, store):
        self._store = store
        self.calls = []

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if not callable(found) or name == "subscribe":
            return found

        async def call(*args, **kwargs):
            self.calls.append((name, kwargs.get("limit", 1)))
            return await found(*args, **kwargs)

        return call


@pytest.fixture
async def distant(clock):
    """The store, as seen from a second terminal."""
    return Distant(await open_store("memory://", clock))


@pytest.fixture
async def crawl(distant, clock):
    """The frontier that crawls."""
    async with Frontier.open(distant._store, settings=RUDE, clock=clock) as frontier:
        yield frontier


@pytest.fixture
async def looker(distant, crawl):
    """The frontier that only looks."""
    async with Frontier.attach(distant) as frontier:
        yield frontier


async def visit(crawl, count, outcome):
    """Let some visits end so."""
    await crawl.finish_many([(lease, outcome) for lease in await crawl.claim(count)])


def hosts(count):
    """A URL of each of so many hosts."""
    return [f"https://h{number}.example/" for number in range(count)]


class TestSampler:
    async def test_a_sample_has_the_counters_and_the_queues(self, crawl, looker, clock):
        """By the clock of the store."""
        await crawl.add(hosts(5))
        await visit(crawl, 2, Done(200, bytes=100))
        sample = await Sampler().read(looker, SampleRequest())

        assert (sample.crawl.known, sample.crawl.done, sample.heat.total) == (5, 2, 3)
        assert sample.queues == {"empty": 2, "ready": 3}
        assert (sample.rates, sample.at) == (None, clock.now())

    async def test_rates_are_what_changed_between_samples(self, crawl, looker, clock):
        """A second."""
        sampler = Sampler()
        await crawl.add(hosts(50))
        await sampler.read(looker, SampleRequest())
        clock.advance(4)
        await visit(crawl, 20, Done(200, bytes=1000))
        await visit(crawl, 4, Failed("cut"))
        await visit(crawl, 4, Throttled())
        rates = (await sampler.read(looker, SampleRequest())).rates

        assert (rates.visits, rates.done, rates.failed, rates.bytes) == (7.0, 5.0, 2.0, 5000.0)

    async def test_a_sample_of_many_queues_is_bounded(self, crawl, looker, distant):
        """However many there are; no call asks for more than a few milliseconds' worth."""
        await crawl.add(hosts(6000))
        distant.calls.clear()
        sample = await Sampler().read(looker, SampleRequest())
        asked = {
            name: [n for call, n in distant.calls if call == name] for name, _ in distant.calls
        }

        assert sum(asked["queues"]) <= 1000
        assert max(asked["queues"]) <= 100
        assert not {"tasks", "queue_states"} & set(asked)
        assert sample.queues == {"ready": 6000}

    async def test_every_sample_counts_all_queues(self, crawl, looker):
        """C1: the store counts them, so no queue is read for it."""
        sampler = Sampler()
        await crawl.add(hosts(6000))
        first = await sampler.read(looker, SampleRequest())
        await crawl.queue("h1.example").pause()
        second = await sampler.read(looker, SampleRequest())

        assert first.queues == {"ready": 6000}
        assert second.queues == {"paused": 1, "ready": 5999}

    async def test_hosts_near_are_read_whosever_turn_it_is(self, crawl, looker):
        """The view shows these; a key without tasks is not among them."""
        sampler = Sampler()
        await crawl.add(hosts(3000))
        await sampler.read(looker, SampleRequest(("h2999.example", "never.example")))

        assert sampler.hosts.get("h2999.example").view.pending == 1
        assert sampler.hosts.get("never.example") is None
        assert sampler.hosts.get("h2000.example") is None

    async def test_another_store_resets_the_sampler(self, crawl, looker, clock):
        """A file that was replaced."""
        sampler = Sampler()
        await crawl.add(hosts(5))
        await sampler.read(looker, SampleRequest())
        other = Distant(await open_store("memory://", clock))
        async with Frontier.open(other, clock=clock) as frontier:
            await frontier.add(hosts(2))
            sample = await sampler.read(frontier, SampleRequest())

        assert (sample.queues, len(sampler.hosts)) == ({"ready": 2}, 2)

    async def test_dead_letters_are_read_only_if_asked_for(self, crawl, looker, distant):
        """They are found by reading tasks, so reading stops once all were found."""
        sampler = Sampler()
        await crawl.add(hosts(10))
        await visit(crawl, 3, Failed("cut"))
        await sampler.read(looker, SampleRequest())
        assert sampler.dead_letters.total == 0
        await sampler.read(looker, SampleRequest(dead_letters=True))
        distant.calls.clear()
        await sampler.read(looker, SampleRequest(dead_letters=True))

        assert sampler.dead_letters.reasons == {"cut": 3}
        assert "tasks" not in {name for name, _ in distant.calls}

    async def test_new_dead_letters_are_looked_for_again(self, crawl, looker, clock):
        """The newest first."""
        sampler = Sampler()
        await crawl.add(hosts(10))
        await visit(crawl, 3, Failed("cut"))
        await sampler.read(looker, SampleRequest(dead_letters=True))
        clock.advance(5)
        await visit(crawl, 1, Failed("late"))
        await sampler.read(looker, SampleRequest(dead_letters=True))

        assert sampler.dead_letters.reasons == {"cut": 3, "late": 1}
        assert sampler.dead_letters.latest[0].reason == "late"


class TestRolling:
    async def test_it_goes_round_a_stretch_at_a_time(self):
        """And says when a round was made, and when a stretch was all of it."""
        rolling = RollingReader(step=2, limit=4)

        assert await self.stretch(rolling) == ([[0, 1], [2, 3]], 0, False)
        assert await self.stretch(rolling) == ([[4]], 1, False)
        assert await self.stretch(rolling, 2) == ([[0, 1], [2, 3], [4]], 2, True)

    async def test_it_stays_among_the_first_so_many(self):
        """A list too long to be read again and again, unless all of it is wanted once."""
        rolling = RollingReader(step=1, limit=2, upto=4)

        assert [(await self.stretch(rolling))[0] for _ in range(3)] == [
            *([[0], [1]], [[2], [3]], [[0], [1]])
        ]
        assert rolling.rounds == 0
        assert await self.stretch(rolling, 9) == ([[2], [3], [4]], 1, False)

    async def stretch(self, rolling, times=1):
        """The next pages of a list of five, the rounds made, and whether they were all."""

        async def read(*, after, limit):
            upto = min(after + limit, 5)
            return ResultPage(list(range(after, upto)), upto if upto < 5 else None)

        pages = [page.items async for _, page in rolling.stretch(times, read)]
        return pages, rolling.rounds, rolling.is_at_once


class TestHistory:
    def noted(self, *visits):
        """One sample a second."""
        history = RateHistory()
        for at, count in enumerate(visits):
            history.add(Counts(float(at), count, count, 0, 0))
        return history

    def test_one_sample_tells_no_rate(self):
        """There is nothing to compare it with."""
        assert self.noted(5).rates is None
        assert self.noted().rates is None

    def test_a_rate_is_of_the_last_ten_seconds(self):
        """Not of the whole crawl."""
        assert self.noted(*[0] * 20, *range(0, 55, 5)).rates.visits == 5.0

    def test_samples_far_apart_are_compared_all_the_same(self):
        """With --every 1m."""
        history = RateHistory()
        history.add(Counts(0.0, 0, 0, 0, 0))
        history.add(Counts(60.0, 120, 120, 0, 0))

        assert history.rates.visits == 2.0

    def test_counts_that_shrink_are_another_crawl(self):
        """No rate is ever negative."""
        assert self.noted(50, 60, 3).rates is None
        assert self.noted(50, 60, 3, 4).rates.visits == 1.0

    def test_pace_is_even_where_visits_are(self):
        """Whatever the parts' length; the part that is not over is not there."""
        pace = self.noted(*range(0, 101, 2)).pace(20, 30.0)

        assert len(pace) == 20
        assert pace == pytest.approx([2.0] * 20)

    def test_pace_begins_with_the_first_sample(self):
        """Time without samples is not drawn as zero."""
        assert len(self.noted(0, 1, 2, 3).pace(10, 10.0)) == 3
        assert self.noted().pace(10, 10.0) == []
        assert self.noted(7).pace(10, 10.0) == []


@pytest.fixture
async def views(crawl, distant):
    """Views of some hosts, by key."""
    await crawl.add([*hosts(3), "https://h1.example/more"])

    async def read():
        page = await distant.queues("default")
        return {view.key: view for view in page.items}

    return read


class TestHosts:
    def ranked(self, book, order, part=""):
        """The keys."""
        return [host.view.key.removesuffix(".example") for host in book.ranked(order, 9, part)]

    async def test_they_are_ordered_by_what_is_asked(self, crawl, views):
        """Most first, and equals by their keys."""
        book = Hosts()
        await crawl.queue("h2.example").snooze(60)
        await crawl.queue("h0.example").set(delay=5.0)
        book.update((await views()).values(), 0.0)

        assert self.ranked(book, HostOrder.PENDING) == ["h1", "h0", "h2"]
        assert self.ranked(book, HostOrder.SLOWEST) == ["h0", "h1", "h2"]
        assert self.ranked(book, HostOrder.WAITING) == ["h2", "h0", "h1"]
        assert self.ranked(book, HostOrder.KEY) == ["h0", "h1", "h2"]
        assert self.ranked(book, HostOrder.KEY, "H1") == ["h1"]

    async def test_the_busiest_did_most_of_late(self, crawl, views):
        """Not ever."""
        book = Hosts()
        book.update((await views()).values(), 0.0)
        await visit(crawl, 4, Done(200))
        book.update((await views()).values(), 2.0)

        assert self.ranked(book, HostOrder.BUSIEST) == ["h1", "h0", "h2"]
        assert book.get("h1.example").pace == 1.0

    async def test_a_pace_fades(self, crawl, views):
        """A host that is done stops leading."""
        view = (await views())["h1.example"]
        host = Host(view, 100.0, 0.0, pace=2.0)

        assert host.with_view(view, 110.0).pace == pytest.approx(4 / 3)
        assert host.with_view(view, 400.0).pace == 0.0
        assert host.with_view(view, 100.0).pace == 2.0

    async def test_a_million_hosts_are_not_all_kept(self, crawl, distant):
        """Those that lead in something are, and those that are named."""
        book = Hosts()
        await crawl.add(["https://h4999.example/2", *hosts(5000)])
        for start in range(0, 5000, 1000):
            page = await distant.queues("default", after=start, limit=1000)
            book.update(page.items, 0.0)
        book.trim(["h4000.example"])

        assert KEPT <= len(book) < MAX_HOSTS
        assert book.get("h4000.example") is not None
        assert book.ranked(HostOrder.PENDING, 1)[0].view.key == "h4999.example"

    def test_orders_go_round(self):
        """One key shows them all."""
        order, seen = HostOrder.BUSIEST, []
        for _ in HostOrder:
            seen.append(order)
            order = order.next

        assert (seen, order) == (list(HostOrder), HostOrder.BUSIEST)


class TestLetters:
    @pytest.fixture
    async def dead(self, crawl):
        """Makes dead tasks with these reasons."""

        async def die(reasons):
            await crawl.add(hosts(len(reasons)))
            leases = await crawl.claim(len(reasons))
            await crawl.finish_many(
                [(lease, Failed(reason)) for lease, reason in zip(leases, reasons, strict=True)]
            )
            return [view async for view in crawl.tasks(state="dead")]

        return die

    async def test_they_are_few_however_many_there_are(self, dead):
        """Reasons are others' text: there may be as many as tasks."""
        views = await dead([f"reason {number}" for number in range(MAX_REASONS + 50)])
        letters = DeadLetters()
        letters.add_page(0, views, is_last=True)

        assert len(letters.latest) == MAX_LATEST
        assert len(letters.reasons) == MAX_REASONS + 1
        assert letters.reasons[OTHERS] == 50
        assert len(letters.most_common) == MAX_NAMED + 1
        assert sum(count for _, count in letters.most_common) == MAX_REASONS + 50

    async def test_a_later_round_shows_only_when_it_is_whole(self, dead):
        """Counts do not fall to zero at the start of every pass."""
        views = await dead(["cut"] * 4)
        letters = DeadLetters()
        letters.add_page(0, views[:2], is_last=False)
        assert (letters.total, letters.is_whole) == (2, False)
        letters.add_page(250, views[2:], is_last=True)
        assert (letters.total, letters.is_whole) == (4, True)
        letters.add_page(0, views[:1], is_last=False)

        assert letters.total == 4
        assert letters.is_complete(4)
        assert not letters.is_complete(5)
