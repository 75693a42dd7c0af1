import asyncio
import importlib
import inspect
import threading
from itertools import islice

import pytest

import blocking_twin
import outrider
from outrider import Closed, Done, Failed, ForeignLease, InvalidInput, Link, SettingsError, blocking
from outrider.core.queue_action import Pause, Resume
from outrider.frontier.admin import QueueHandle
from outrider.testing import FakeClock

A = "https://a.example/"
B = "https://b.example/"
ASYNC_LINKS = "AsyncIterable[str | Url | Link] | "
ASYNC_LINES = " | AsyncIterable[bytes]"
RUDE = {"politeness": {"delay": 0.0, "max_in_flight": 1000}}


def public(kind):
    """The names a user may use of a class."""
    return {name for name in dir(kind) if not name.startswith("_")}


def parameters(method):
    """What a method takes: kind, default and annotation by name."""
    found = inspect.signature(method).parameters.values()
    return {one.name: (one.kind, one.default, str(one.annotation)) for one in found}


def result_of(method):
    """What a method is annotated to return."""
    return inspect.signature(method).return_annotation


@pytest.fixture
def clock():
    """A clock that moves only when a test advances it."""
    return FakeClock()


@pytest.fixture
def frontier(clock):
    """A blocking frontier without delays."""
    with blocking.Frontier.open(settings=RUDE, clock=clock, dice=lambda: 0.0) as frontier:
        yield frontier


# ---- the same names


TWINS = [(outrider.Frontier, blocking.Frontier), (QueueHandle, blocking.QueueHandle)]
VERBS = [
    pytest.param(getattr(one, name), getattr(other, name, None), id=f"{one.__name__}.{name}")
    for one, other in TWINS
    for name in sorted(public(one))
]


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_twin_has_every_public_name(one, other):
    """R4: the same without `await`."""
    assert public(other) == public(one)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "generate"),
    [("frontier", blocking_twin.frontier_source), ("queue", blocking_twin.queue_source)],
)
def test_twin_is_generated_from_the_async_class(name, generate):
    """A new method needs no hand-written twin: `make twin` writes it."""
    module = importlib.import_module(f"outrider.blocking.{name}")

    assert inspect.getsource(module) == generate(), "run `make twin`"


@pytest.mark.parametrize(("one", "other"), VERBS)
def test_twin_of_a_method_takes_the_same_arguments(one, other):
    """R4: names, kinds, defaults and types; only no async iterables."""
    assert isinstance(other, property) == isinstance(one, property)
    if not isinstance(one, property):
        assert parameters(other) == {
            name: (kind, default, annotation.replace(ASYNC_LINKS, "").replace(ASYNC_LINES, ""))
            for name, (kind, default, annotation) in parameters(one).items()
        }


@pytest.mark.parametrize(("one", "other"), VERBS)
def test_twin_of_a_method_returns_the_same(one, other):
    """R4: what is awaited or iterated over with `async for` there, is returned here."""
    if isinstance(one, property):
        one, other = one.fget, other.fget

    assert result_of(other) == result_of(one).replace("AsyncIterator[", "Iterator[")


@pytest.mark.parametrize(("one", "other"), VERBS)
def test_twin_of_a_method_has_the_same_documentation(one, other):
    """R4: `help` and editors show it in both."""
    assert other.__doc__
    assert inspect.getdoc(other) == blocking_twin.blocking_docstring(inspect.getdoc(one))


@pytest.mark.parametrize(("one", "other"), VERBS)
def test_nothing_of_the_twin_has_to_be_awaited(one, other):
    """R4."""
    assert not inspect.iscoroutinefunction(other)
    assert not inspect.isasyncgenfunction(other)


# ---- a crawl without a loop


def test_five_lines_crawl(frontier):
    """R4: five lines in a notebook."""
    frontier.add([A])
    seen = []
    for lease in frontier.leases():
        seen.append(lease.url)
        frontier.finish(lease, Done(200), links=[A + "1", A + "2"] if lease.url == A else [])

    assert seen == [A, A + "1", A + "2"]
    assert frontier.stats().status == "finished"


def test_add_takes_what_the_other_takes(frontier):
    """One, many, a generator; with answers or without."""
    assert frontier.add(A).added == 1
    assert frontier.add(Link(B)).added == 1
    report = frontier.add((f"{A}{n}" for n in range(2500)), answers=False)
    assert (report.added, list(report.answers)) == (2500, [])
    assert frontier.add([A, "nonsense"]).refused == {"duplicate": 1, "bad-url": 1}


def test_claim_finish_extend_release_expire(frontier, clock):
    """The five verbs of a visit."""
    frontier.add([f"{A}{n}" for n in range(4)])
    one, two, three = frontier.claim(3)

    assert frontier.finish(one, Done(200))
    assert frontier.finish_many([(one, Done(200)), (two, Failed("x"), [B])]) == [True, True]
    assert frontier.extend([three]) == {three}
    assert frontier.release([three]) == {three}
    assert frontier.claim(1, per_queue=1)[0].url == A + "2"
    clock.advance(60)
    assert frontier.expire(limit=5) == 1


def test_upcoming_tasks_are_claimed_by_fingerprint(frontier):
    """D5: for the cache; the lease gives itself back without `await`."""
    frontier.add([f"{A}{n}" for n in range(3)])
    names = [name for name, _ in frontier.upcoming("a.example", limit=2)]
    one, two = frontier.claim_named(names)

    assert (one.url, two.url) == (A + "0", A + "1")
    with pytest.raises(ZeroDivisionError), one:
        raise ZeroDivisionError
    assert [url for _, url in frontier.upcoming("a.example")] == [A + "0", A + "2"]


def test_a_claim_waits_for_another_thread(frontier):
    """A long poll blocks its own thread alone."""
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(frontier.claim(1, wait=600.0)))
    waiting.start()

    frontier.add([A])
    waiting.join(timeout=30)

    assert [lease.url for lease in answers[0]] == [A]


def test_a_claim_waits_on_the_clock_it_was_given(clock):
    """Advanced from another thread."""
    with blocking.Frontier.open(clock=clock) as frontier:
        frontier.add([Link(A, delay=0.5)])
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(frontier.claim(1, wait=600.0)))
        waiting.start()
        for _ in range(10_000):
            clock.advance(0.1)
            waiting.join(timeout=0.001)
            if not waiting.is_alive():
                break

    assert [lease.url for lease in answers[0]] == [A]


def test_crawl_is_steered_and_read(frontier):
    """Operators and readers."""
    frontier.add([A + "1", B + "1", B + "2"])

    assert frontier.pause() == "paused"
    assert frontier.resume() == "running"
    assert frontier.heatmap()["total"] == 3
    assert frontier.explain(A + "1").admission == "known"
    assert [reason.key for reason in frontier.why()] == ["a.example", "b.example"]
    assert [reason.key for reason in frontier.why(limit=1)] == ["a.example"]
    assert frontier.drop(key="b.example", dry_run=True) == 2
    assert frontier.drop(pattern="2$") == 1
    assert frontier.configure({"queue": {"max_depth": 3}}).queue.max_depth == 3
    assert frontier.settings.queue.max_depth == 3
    assert frontier.cancel() == "cancelled"


def test_queues_are_steered(frontier):
    """E7: every action returns the new view."""
    frontier.add([A])
    queue = frontier.queue("a.example")

    assert queue.key == "a.example"
    assert queue.set(balance=5, delay=10.0).grant == 5
    assert queue.pause().state == "paused"
    assert queue.resume().state == "ready"
    assert queue.retire().state == "retired"
    assert queue.revive().state == "ready"
    assert queue.snooze(60).wakes_in == 60.0
    assert queue.wake().state == "ready"
    assert queue.view().pending == 1
    assert frontier.queue(".example").view().queues == {"ready": 1}


def test_every_queue_may_be_steered_at_once(frontier):
    """E7: answers how many it reached."""
    frontier.add([A, B])

    assert frontier.steer("", Pause()) == 2
    assert frontier.steer(".example", Resume()) == 2


def test_dead_letters_are_replayed_and_purged(clock):
    """G2."""
    settings = {**RUDE, "retry": {"max_retries": 0}}
    with blocking.Frontier.open(settings=settings, clock=clock) as frontier:
        frontier.add([A, B])
        frontier.finish_many([(lease, Failed("x")) for lease in frontier.claim(2)])

        assert [letter.url for letter in frontier.dead(reason="x")] == [A, B]
        assert frontier.dead_by_reason() == {"x": 2}
        assert frontier.replay(A) == 1
        assert frontier.purge(all=True) == 1
        assert (frontier.stats().pending, frontier.stats().dropped) == (1, 1)


def test_names_are_those_of_the_frontier_inside(clock):
    """What it serves, as whom, on which store and clock."""
    with blocking.Frontier.open(crawl="news", worker="me", clock=clock) as frontier:
        assert (frontier.crawl, frontier.worker) == ("news", "me")
        assert frontier.store.id
        assert frontier.clock is clock
        assert "news" in repr(frontier)


def test_two_share_a_store(frontier, clock):
    """Each has its own loop in its own thread."""
    with blocking.Frontier.open(frontier.store, settings=RUDE, clock=clock) as other:
        other.add([A])
        (lease,) = frontier.claim()
        assert other.finish(lease, Done(200))


# ---- iterators


def test_lists_are_iterators(frontier):
    """Queues, tasks and dead letters, item by item."""
    frontier.add([A, B])

    assert [view.key for view in frontier.queues(sort="key", reverse=True)] == [
        "b.example",
        "a.example",
    ]
    assert [task.url for task in frontier.tasks(state="pending")] == [A, B]
    assert list(frontier.dead()) == []
    assert next(frontier.tasks()).url == A


def test_a_list_may_be_left_early(frontier):
    """Nothing is left open."""
    frontier.add(f"{A}{n}" for n in range(2500))

    assert [task.url for task in islice(frontier.tasks(), 2)] == [A + "0", A + "1"]


def test_leases_that_were_not_read_are_released(frontier):
    """What was never seen."""
    frontier.add([f"{A}{n}" for n in range(10)])
    leases = frontier.leases(limit=8)
    next(leases)
    leases.close()

    assert frontier.stats().leased == 1


def test_events_are_an_iterator(frontier):
    """Heard in another thread, from the first item on."""
    ready, heard = threading.Event(), []

    def listen():
        events = frontier.events()
        ready.set()
        heard.append(next(events))
        events.close()

    listening = threading.Thread(target=listen)
    listening.start()
    ready.wait()
    for n in range(10_000):
        frontier.add([f"{A}{n}"])
        listening.join(timeout=0.001)
        if not listening.is_alive():
            break

    assert heard[0].name == "added"


def test_subscribers_are_called(frontier):
    """In the frontier's thread, until ended."""
    heard = []
    end = frontier.subscribe(heard.append)
    frontier.add([A])
    end()
    frontier.add([B])

    assert [event.data["url"] for event in heard] == [A]


# ---- leases


def test_a_lease_is_released_on_an_exception(frontier):
    """As `async with lease`, without `async`."""
    frontier.add([A])
    (lease,) = frontier.claim()

    with pytest.raises(RuntimeError, match="mine"), lease:
        raise RuntimeError("mine")

    assert frontier.stats().leased == 0


def test_lease_is_kept_after_a_block_without_exception(frontier):
    """A lease need not be finished inside the block."""
    frontier.add([A])
    (lease,) = frontier.claim()

    with lease:
        pass

    assert frontier.stats().leased == 1


# ---- inside a running loop


async def test_it_works_where_a_loop_is_running(clock):
    """R4: in a notebook."""
    with blocking.Frontier.open(settings=RUDE, clock=clock) as frontier:
        frontier.add([A])
        (lease,) = frontier.claim()

        assert frontier.finish(lease, Done(200))


async def test_it_works_from_threads_of_a_loop(frontier):
    """`asyncio.to_thread`, many at a time."""
    await asyncio.gather(
        *(asyncio.to_thread(frontier.add, [f"{A}{n}", f"{B}{n}"]) for n in range(20))
    )

    assert frontier.stats().known == 40


def test_many_threads_may_share_one(frontier):
    """Nothing is lost or doubled."""
    frontier.add([f"https://h{n}.example/" for n in range(200)])
    visited, lock = [], threading.Lock()

    def work():
        while leases := frontier.claim(3):
            with lock:
                visited.extend(lease.url for lease in leases)
            frontier.finish_many([(lease, Done(200)) for lease in leases])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(visited) == len(set(visited)) == 200
    assert frontier.stats().done == 200


# ---- closing and errors


def test_closing_twice_is_fine(clock):
    """And ends the thread."""
    before = threading.active_count()
    frontier = blocking.Frontier.open(clock=clock)
    assert threading.active_count() == before + 1
    frontier.close()
    frontier.close()

    assert threading.active_count() == before


def test_closed_frontier_raises_closed(clock):
    """Whatever is asked of it."""
    with blocking.Frontier.open(clock=clock) as frontier:
        queue = frontier.queue("a.example")

    for call in (
        frontier.stats,
        frontier.claim,
        queue.view,
        lambda: frontier.add([A]),
        lambda: list(frontier.queues()),
        lambda: next(frontier.leases()),
        lambda: frontier.subscribe(print),
    ):
        with pytest.raises(Closed):
            call()


def test_leaving_on_an_exception_closes_too(clock):
    """And the exception is the caller's own."""
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="mine"), blocking.Frontier.open(clock=clock):
        raise RuntimeError("mine")

    assert threading.active_count() == before


def test_a_store_that_cannot_be_opened_leaves_no_thread():
    """The error is the caller's to see."""
    before = threading.active_count()

    with pytest.raises(InvalidInput, match="nonsense"):
        blocking.Frontier.open("nonsense://")

    assert threading.active_count() == before


def test_errors_keep_type_and_message(frontier, clock):
    """With their own type and message."""
    frontier.add([A])
    (lease,) = frontier.claim()
    with blocking.Frontier.open(clock=clock) as other, pytest.raises(ForeignLease):
        other.finish(lease, Done(200))
    with pytest.raises(InvalidInput, match="limit"):
        frontier.claim(-1)
    with pytest.raises(SettingsError, match="politeness"):
        frontier.configure({"politeness": {"delay": "x"}})
    with pytest.raises(SettingsError, match="balance"):
        frontier.queue("a.example").set(balance=-1)
    with pytest.raises(InvalidInput, match="one of"):
        list(frontier.queues(state="asleep"))
    with pytest.raises(InvalidInput, match="filter"):
        frontier.drop()
    with pytest.raises(TypeError):
        frontier.tasks(colour="red")
    with pytest.raises(SettingsError):
        blocking.Frontier.open(settings={"no": 1})


def test_error_of_a_source_is_raised(frontier):
    """The generator's own error."""

    def source():
        yield A
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        frontier.add(source())


def test_blocking_frontier_is_made_by_open():
    """Not from whatever is at hand."""
    with pytest.raises(InvalidInput, match="open"):
        blocking.Frontier("memory://")


def test_settings_are_changed_watched_and_listed(frontier, tmp_path):
    """N1 to N5, without `await`."""
    file, seen = tmp_path / "crawl.toml", []
    file.write_text("[lanes]\nburst = 2\n")
    end = frontier.watch_settings(lambda old, new: seen.append((old.lanes.burst, new.lanes.burst)))
    stop = frontier.follow(file)
    frontier.configure({"lanes": {"burst": 3}}, by="me")
    rows = {row.path: row.origin for row in frontier.config()}
    frontier.unset("lanes.burst")
    stop()
    end()
    frontier.configure({"lanes": {"burst": 4}})
    frontier.listen()

    assert seen == [(5, 2), (2, 3), (3, 2)]
    assert rows["lanes.burst"].startswith("runtime (me, ")
    assert [change.new for change in frontier.config_history()] == [2, 3, 2, 4]
