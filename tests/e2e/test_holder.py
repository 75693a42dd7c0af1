"""Several workers on one file while its holder dies, ends, or stands still (H4, D7, J4, M3)."""

import asyncio
import signal
from collections import Counter

import pytest

from outrider import Frontier
from outrider.settings import merged, settings_of
from outrider.store.factory import peek_file
from outrider.testing.web import Site, Web, violations
from outrider.testing.web.behaviours import linked, slow
from outrider.wiring import SITES

STORE = "x.outrider"
HOSTS = 10
PAGES = 4
SLOTS = 3  # of a worker: fewer than hosts, so that each has some
VISIT = 0.6  # seconds a page takes
LEASE = 10.0  # seconds; a claim whose answer was lost is expired after that
DELAY = 0.5  # seconds between two visits of a host


def agent(hit):
    """The name of the worker that came."""
    return hit.agent.partition("/")[0]


class Fleet:
    """Workers of one crawl, each known to the hosts by its own name."""

    def __init__(self, outrider, web, until):
        self.outrider, self.web, self._until = outrider, web, until
        self.file = outrider.folder / STORE
        self.workers = {}

    def start(self, *words):
        """One worker more; the first of all holds the file."""
        name = f"worker-{len(self.workers) + 1}"
        self.workers[name] = self.outrider.start(
            *("work", STORE, "--slots", SLOTS, "--set", f"fetch.user_agent={name}", *words)
        )
        return name

    def run(self, count):
        """So many, which begin when all of them are there."""
        for _ in range(count):
            self.start("--quiet", "--json")
            self._until(lambda: self.holder() is not None)
        self._until(lambda: len(self.ask(Frontier.workers)) == count)
        self.ask(Frontier.resume)

    def ask(self, work):
        """Do something with a frontier attached to the crawl."""

        async def done():
            async with Frontier.attach(self.file) as frontier:
                return await work(frontier)

        return asyncio.run(done())

    def holder(self):
        """The name of the worker that holds the file."""
        held = peek_file(self.file)[0]
        names = [name for name, one in self.workers.items() if held and one.pid == held.pid]
        return names[0] if names else None

    def await_hits(self, count):
        """Until every worker was heard of by the hosts, and so many pages were read."""
        self._until(
            lambda: (
                len(self.web.hits()) >= count
                and {agent(hit) for hit in self.web.hits()} >= set(self.workers)
            )
        )

    def kill(self, name):
        """As `kill -9` does."""
        self.workers[name].kill()
        self.outrider.end(self.workers.pop(name))

    def end(self):
        """Wait for all that are left; what each left with, by name."""
        ends = {name: self.outrider.end(one) for name, one in self.workers.items()}
        assert all(end.code in (0, 130) for end in ends.values()), [e.err for e in ends.values()]
        return {name: end.code for name, end in ends.items()}

    def asked_twice(self):
        """Pages that were asked for more than once, and by whom."""
        agents = {}
        for hit in self.web.hits():
            agents.setdefault((hit.host, hit.target), []).append(agent(hit))
        return {page: names for page, names in agents.items() if len(names) > 1}


@pytest.fixture
def fleet(outrider, serve, until):
    """A paused crawl of hosts whose pages take a while, and no worker yet."""
    pages = [f"/{number}" for number in range(PAGES)]
    page = slow(linked("late"), wait=VISIT)
    sites = [Site(f"h{n}.web.test", paths=dict.fromkeys(pages, page)) for n in range(HOSTS)]
    web = serve(Web(sites))

    async def make():
        tree = merged(settings_of(SITES), web.settings())
        tree = merged(tree, {"politeness": {"delay": DELAY}, "fetch": {"robots": False}})
        tree = merged(tree, {"lease": {"seconds": LEASE}})
        async with Frontier.open(outrider.folder / STORE, settings=tree) as frontier:
            await frontier.add([f"http://{site.name}{path}" for site in sites for path in pages])
            await frontier.pause()

    asyncio.run(make())
    return Fleet(outrider, web, until)


@pytest.mark.slow
def test_killed_holder_costs_its_own_visits_and_no_others(fleet):
    """Survivors finish their visits at the next holder; no host is asked too soon or in vain.

    The next holder is killed as well: it loses what it claimed before and after it held the file.
    """
    fleet.run(4)
    killed = set()
    for kill in range(2):
        fleet.await_hits(HOSTS * (kill + 1))
        killed.add(fleet.holder())
        fleet.kill(fleet.holder())
        fleet._until(lambda: fleet.holder() is not None)
    fleet.end()

    assert {names[0] for names in fleet.asked_twice().values()} <= killed, fleet.asked_twice()
    assert violations(fleet.web.hits(), delay=DELAY) == []
    stats = fleet.ask(Frontier.stats)
    assert (stats.done, stats.status) == (HOSTS * PAGES, "finished")
    assert stats.visits == HOSTS * PAGES + stats.outcomes.get("crashed", 0)


@pytest.mark.slow
def test_holder_that_ends_in_order_costs_no_visit(fleet):
    """It drains; the others go on with their visits meanwhile and afterwards."""
    fleet.run(3)
    fleet.await_hits(HOSTS)
    fleet.workers[fleet.holder()].send_signal(signal.SIGTERM)
    codes = Counter(fleet.end().values())

    assert codes == {0: 2, 130: 1}
    assert fleet.asked_twice() == {}
    assert violations(fleet.web.hits(), delay=DELAY) == []
    assert fleet.ask(Frontier.stats).outcomes == {"done": HOSTS * PAGES}


@pytest.mark.slow
def test_stop_request_to_all_workers_at_once_stops_all(fleet):
    """J4: also those that have just lost the holder, or hold the file for it."""
    fleet.run(4)
    fleet.await_hits(HOSTS)
    for one in fleet.workers.values():
        one.send_signal(signal.SIGTERM)

    assert set(fleet.end().values()) == {130}
    assert fleet.ask(Frontier.stats).status == "running"
    assert fleet.asked_twice() == {}
    assert violations(fleet.web.hits(), delay=DELAY) == []


@pytest.mark.slow
def test_stop_request_while_the_file_changes_hands_is_not_forgotten(fleet):
    """The holder is killed, and the others are asked to stop in the same moment."""
    fleet.run(4)
    fleet.await_hits(HOSTS)
    holder = fleet.holder()
    survivors = [one for name, one in fleet.workers.items() if name != holder]
    fleet.workers[holder].kill()
    for one in survivors:
        one.send_signal(signal.SIGINT)
    fleet.kill(holder)

    assert set(fleet.end().values()) == {130}
    assert fleet.ask(Frontier.stats).status == "running"
    assert violations(fleet.web.hits(), delay=DELAY) == []


# ---- a holder that stands still


@pytest.mark.slow
def test_commands_name_a_stopped_holder_and_exit(fleet):
    """M3: its number, its command, since when, and what to do; then the file is as it was."""
    name = fleet.start("--quiet", "--stay")
    fleet._until(lambda: fleet.ask(Frontier.workers))
    holder = fleet.workers[name]
    holder.send_signal(signal.SIGSTOP)
    words = [("stats", STORE), ("add", STORE, "http://x.example/"), ("watch", STORE, "--once")]
    ends = [fleet.outrider.end(one) for one in [fleet.outrider.start(*each) for each in words]]
    copied = fleet.outrider("checkpoint", STORE, "copy.outrider")
    holder.send_signal(signal.SIGCONT)

    for end in ends:
        assert end.code == 2, end
        assert f"process {holder.pid} (" in end.err
        assert f"holds {STORE} and does not answer for 3 s: it is stopped" in end.err
        assert f"`kill -CONT {holder.pid}`" in end.err
        assert "last wrote at 20" in end.err
    assert copied.code == 0, copied.err
    assert fleet.outrider("stats", STORE).code == 0
    holder.send_signal(signal.SIGTERM)
    assert fleet.end() == {name: 130}


@pytest.mark.slow
def test_watch_shows_a_stopped_holder_and_recovers(fleet):
    """A line says which process it is; when that goes on, so do the samples."""
    holder = fleet.workers[fleet.start("--quiet", "--stay")]
    fleet._until(lambda: fleet.ask(Frontier.workers))
    watch = fleet.outrider.start("watch", STORE, "--every", 0.2)
    samples = iter(watch.stdout.readline, "")
    assert "paused" in next(samples)
    holder.send_signal(signal.SIGSTOP)
    said = fleet.outrider.heard(watch)
    holder.send_signal(signal.SIGCONT)
    fleet.ask(Frontier.resume)

    assert f"process {holder.pid} (" in said
    assert any("running" in line for line in samples)
    watch.kill()
    fleet.kill("worker-1")


@pytest.mark.slow
def test_workers_wait_for_a_stopped_holder(fleet):
    """M6: one that runs and one that just came say so once, and go on when it does."""
    fleet.run(2)
    fleet.await_hits(4)
    stopped = fleet.workers[fleet.holder()]
    waiting = [one for one in fleet.workers.values() if one is not stopped]
    stopped.send_signal(signal.SIGSTOP)
    waiting.append(fleet.workers[fleet.start("--quiet")])
    said = [fleet.outrider.heard(one) for one in waiting]
    stopped.send_signal(signal.SIGCONT)

    assert all(f"process {stopped.pid} " in line and "waiting" in line for line in said), said
    assert set(fleet.end().values()) == {0}
    assert violations(fleet.web.hits(), delay=DELAY) == []
    assert fleet.ask(Frontier.stats).done == HOSTS * PAGES


@pytest.mark.slow
def test_worker_that_waits_for_a_stopped_holder_can_be_stopped(fleet):
    """J4: before it has begun, and in the midst of its visits."""
    fleet.run(2)
    fleet.await_hits(4)
    stopped = fleet.holder()
    fleet.workers[stopped].send_signal(signal.SIGSTOP)
    fleet.start("--quiet")
    waiting = [one for name, one in fleet.workers.items() if name != stopped]
    assert all("waiting" in fleet.outrider.heard(one) for one in waiting)
    for one in waiting:  # the second differs: a signal that already waits is not sent twice
        one.send_signal(signal.SIGTERM)
        one.send_signal(signal.SIGINT)
    codes = [fleet.outrider.end(one).code for one in waiting]

    assert codes == [130, 130]
