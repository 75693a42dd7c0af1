import asyncio
import json

import pytest

from loop_turns import turns
from outrider import Again, Blocked, Done, Dropped, Event, Failed, Link, Throttled, Unreachable
from outrider.events import BACKLOG

A = "https://a.example/"
B = "https://b.example/"


def heard_by(frontier):
    """A list that every event from now on is appended to."""
    events = []
    frontier.subscribe(events.append)
    return events


def names(events):
    """What happened, in order."""
    return [event.name for event in events]


async def visit(frontier, outcome):
    """Claim one page and finish it."""
    (lease,) = await frontier.claim()
    await frontier.finish(lease, outcome)


# ---- what is told


async def test_event_has_name_crawl_and_time(frontier, clock):
    """O3: name, crawl, at, sequence."""
    events = heard_by(frontier)

    await frontier.add([A])

    (event,) = events
    assert isinstance(event, Event)
    assert (event.name, event.crawl, event.at) == ("added", "default", clock.now())
    assert (event.data["url"], event.data["priority"]) == (A, 12.0)


async def test_adds_and_refusals_emit_events(frontier):
    """O3: link by link, in order."""
    events = heard_by(frontier)

    await frontier.add([A, A, "nonsense", B])

    told = [(event.name, event.data.get("reason")) for event in events]
    assert told == [
        ("added", None),
        ("refused", "duplicate"),
        ("refused", "bad-url"),
        ("added", None),
    ]


async def test_added_event_carries_what_the_task_is(opened):
    """O3: key, type, lane, depth, origin, tag; the breakdown only if the settings ask for it."""
    frontier = await opened()
    events = heard_by(frontier)

    await frontier.add([Link(A, type="article", depth=2, origin="sitemap", tag="t")])

    (event,) = events
    assert {**event.data} == {
        "url": A,
        "priority": event.data["priority"],
        "key": "a.example",
        "type": "article",
        "lane": "acquisition",
        "depth": 2,
        "origin": "sitemap",
        "tag": "t",
    }


async def test_added_event_carries_breakdown_if_asked_for(opened):
    """O3, F2: with events.breakdown, of seeds and of found links; its terms sum to the priority."""
    frontier = await opened({"events": {"breakdown": True}})
    events = heard_by(frontier)

    await frontier.add([A])
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Done(200), links=[B])

    for event in (event for event in events if event.name == "added"):
        terms = event.data["breakdown"]["terms"]
        assert sum(value for _, value in terms) == event.data["priority"]
    assert [event.name for event in events].count("added") == 2


async def test_refused_event_carries_key_if_the_store_refused_the_task(frontier):
    """O3: a link that admission refused has none."""
    events = heard_by(frontier)

    await frontier.add([A, A, "nonsense"])

    assert [event.data.get("key") for event in events[1:]] == ["a.example", None]


async def test_events_of_a_visit_carry_task_worker_and_status(frontier):
    """O3: key, type, attempt and worker from the claim on; the status once it is known."""
    await frontier.add([A])
    events = heard_by(frontier)

    await visit(frontier, Done(203))

    about = {"key": "a.example", "type": "page", "attempt": 1, "worker": frontier.worker}
    claimed, finished = (event.data for event in events)
    assert claimed == {"url": A, **about}
    assert finished == {"url": A, "outcome": "done", "reason": None, **about, "status": 203}


async def test_finish_of_a_run_is_reported_with_counts(frontier):
    """O3, I2: tasks by state, as the store counted them."""
    await frontier.add([A])
    events = heard_by(frontier)
    await visit(frontier, Done(200))
    await frontier.claim()

    event = events[-1]
    assert (event.name, event.data["detail"]) == ("crawl-finished", "run 1")
    assert (event.data["counts"]["done"], event.data["counts"]["known"]) == (1, 1)


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Done(200), "finished"),
        (Done(200, revisit_in=5.0), "finished"),
        (Done(200, from_cache=True), "from-cache"),
        (Failed("x"), "retried"),
        (Blocked("x"), "retried"),
        (Unreachable("x"), "retried"),
        (Throttled(), "throttled"),
        (Dropped("x"), "dropped"),
        (Again("x"), "again"),
    ],
)
async def test_every_end_of_a_visit_has_its_name(frontier, outcome, name):
    """O3: claimed, then what came of it."""
    await frontier.add([A])
    events = heard_by(frontier)

    await visit(frontier, outcome)

    assert names(events) == ["claimed", name]
    assert {event.data["url"] for event in events} == {A}


async def test_death_of_a_task_emits_an_event(opened):
    """O3: died, with the reason."""
    frontier = await opened({"retry": {"max_retries": 0}})
    await frontier.add([A])
    events = heard_by(frontier)

    await visit(frontier, Failed("HTTP 500"))

    assert names(events) == ["claimed", "died"]
    assert events[1].data["reason"] == "HTTP 500"


async def test_links_of_a_page_are_reported_with_its_finish(frontier):
    """O3: added and refused alike, by the admission or the store."""
    await frontier.add([A])
    events = heard_by(frontier)

    (lease,) = await frontier.claim()
    await frontier.finish(lease, Done(200), links=[A + "1", A, "ftp://a.example/"])

    told = [(event.name, event.data.get("reason")) for event in events[1:]]
    assert ("added", None) in told
    assert ("refused", "duplicate") in told
    assert ("refused", "scheme") in told
    assert told[-1] == ("finished", None)


async def test_repeated_or_lost_finish_emits_no_event(rude):
    """H3: it changed nothing."""
    await rude.add([A, B])
    one, other = await rude.claim(2)
    await rude.finish(one, Done(200))
    await rude.release([other])
    events = heard_by(rude)

    await rude.finish(one, Done(200))
    await rude.finish(other, Done(200))

    assert events == []


async def test_expiry_emits_an_event(frontier, clock):
    """O3: the store's own events are reported with the next call."""
    await frontier.add([A])
    await frontier.claim()
    events = heard_by(frontier)
    clock.advance(60)

    await frontier.expire()

    assert "expired" in names(events)


async def test_changes_of_queues_emit_events(frontier):
    """O3: by operators, and by themselves."""
    await frontier.add([A])
    events = heard_by(frontier)

    await frontier.queue("a.example").pause()
    await frontier.queue("a.example").set(total_budget=0)
    await frontier.queue("a.example").set(total_budget=-1)

    assert names(events) == [
        "queue-pause",
        "queue-retired",
        "queue-set",
        "queue-returned",
        "queue-set",
    ]
    assert events[0].data["target"] == "a.example"


async def test_changes_of_the_crawl_emit_events(frontier):
    """O3."""
    events = heard_by(frontier)

    await frontier.pause()
    await frontier.resume()
    await frontier.cancel()

    assert names(events) == ["crawl-paused", "crawl-running", "crawl-cancelled"]


async def test_change_of_settings_emits_an_event(frontier):
    """O3: config."""
    events = heard_by(frontier)

    await frontier.configure({"politeness": {"delay": 1.0}})

    assert "config" in names(events)


async def test_refused_change_of_settings_emits_no_event(frontier):
    """N2: nothing changed."""
    events = heard_by(frontier)

    with pytest.raises(ValueError, match="politeness"):
        await frontier.configure({"politeness": {"delay": -7}})

    assert events == []


async def test_each_run_has_one_completion_event(opened, store):
    """I2: numbered; every listener gets each once, whichever worker closed the run."""
    settings = {"politeness": {"delay": 0.0}}
    one, other = await opened(settings, store), await opened(settings, store)
    first, second = heard_by(one), heard_by(other)

    for run in (1, 2):
        await one.add([f"{A}{run}"])
        await visit(other, Done(200))
        for frontier in (one, other, one, other):
            await frontier.claim()

    for heard in (first, second):
        details = [e.data["detail"] for e in heard if e.name == "crawl-finished"]
        assert details == ["run 1", "run 2"]


async def test_concurrent_calls_report_a_store_event_once(opened, watched):
    """I2: exactly one completion event, though two calls ask the store at the same time."""
    frontier = await opened({"politeness": {"delay": 0.0}}, watched)
    events = heard_by(frontier)
    await frontier.add([A])
    await visit(frontier, Done(200))
    watched.hold("events_since")
    claims = [asyncio.ensure_future(frontier.claim()) for _ in range(3)]
    await turns()
    watched.let_go()
    await asyncio.gather(*claims)

    assert names(events).count("crawl-finished") == 1
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


# ---- sequence


async def test_the_sequence_has_no_gaps(opened, clock):
    """O3: 1, 2, 3, whatever happened."""
    frontier = await opened({"retry": {"max_retries": 0}, "budget": {"total_budget": 2}})
    events = heard_by(frontier)

    await frontier.add([A + str(n) for n in range(5)])
    await visit(frontier, Failed("x"))
    clock.advance(10)
    await frontier.claim()
    clock.advance(100)
    await frontier.claim(3)
    await frontier.configure({"budget": {"total_budget": 9}})
    await frontier.cancel()

    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert len(events) > 10


async def test_all_listeners_get_the_same_events(frontier):
    """O3: one numbering for everybody."""
    first, second = heard_by(frontier), heard_by(frontier)

    await frontier.add([A, B])

    assert first == second


async def test_listener_gets_no_earlier_events(frontier):
    """From now on: an old retirement is no news."""
    await frontier.add([A])
    await frontier.queue("a.example").retire()
    await frontier.pause()
    events = heard_by(frontier)

    await frontier.add([B])

    assert names(events) == ["added"]


# ---- subscribers


async def test_a_subscription_can_be_ended(frontier):
    """The answer of `subscribe` is the way out; twice is fine."""
    events = []
    end = frontier.subscribe(events.append)
    await frontier.add([A])
    end()
    end()

    await frontier.add([B])

    assert len(events) == 1


async def test_subscriber_that_raises_is_unsubscribed(frontier):
    """A listener is a user's code; the crawl and the others go on."""
    calls = []

    def broken(event):
        calls.append(event)
        raise RuntimeError("mine")

    frontier.subscribe(broken)
    events = heard_by(frontier)

    assert (await frontier.add([A, B])).added == 2
    assert (len(calls), len(events)) == (1, 2)


async def test_subscriber_may_unsubscribe_while_it_is_called(frontier):
    """The others still get this event."""
    seen = []

    def once(event):
        seen.append(event)
        end()

    end = frontier.subscribe(once)
    events = heard_by(frontier)
    await frontier.add([A, B])

    assert (len(seen), len(events)) == (1, 2)


# ---- streams


async def test_a_stream_yields_events_as_they_happen(frontier):
    """Until the reader leaves."""
    stream = frontier.events()
    waiting = asyncio.ensure_future(anext(stream))
    await turns()

    await frontier.add([A, B])

    assert [(await waiting).data["url"], (await anext(stream)).data["url"]] == [A, B]
    await stream.aclose()


async def test_a_stream_begins_when_it_is_asked_for(frontier):
    """Everything that happens from now on, though the first item is read later."""
    stream = frontier.events()
    await frontier.add([A])

    reading = asyncio.ensure_future(anext(stream))
    await turns()
    is_told = reading.done()
    reading.cancel()

    assert is_told


async def test_a_reader_that_left_costs_nothing(frontier):
    """It is no longer listened for."""
    stream = frontier.events()
    waiting = asyncio.ensure_future(anext(stream))
    await turns()
    await frontier.add([A])
    await waiting
    await stream.aclose()

    assert not frontier._context.reporter.has_listeners


async def test_unread_stream_is_unsubscribed(frontier):
    """Asked for and thrown away: it collects nothing."""
    stream = frontier.events()
    del stream
    await frontier.add([A])

    assert not frontier._context.reporter.has_listeners


async def test_a_slow_reader_loses_the_oldest(frontier):
    """The backlog of a reader is bounded."""
    stream = frontier.events()
    waiting = asyncio.ensure_future(anext(stream))
    await turns()
    surplus = 500

    await frontier.add((f"{A}{n}" for n in range(BACKLOG + surplus + 1)), answers=False)
    first = await waiting
    second = await anext(stream)
    rest = 1
    while rest < BACKLOG:
        event = await anext(stream)
        rest += 1
    await stream.aclose()

    assert first.sequence == 1
    assert second.sequence > 2
    assert event.sequence == BACKLOG + surplus + 1


# ---- JSONL


@pytest.fixture
def path(tmp_path):
    """Where events are written."""
    return tmp_path / "events.jsonl"


def lines(path):
    """What was written, line by line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_events_are_written_as_lines_of_json(opened, path, clock):
    """O3: one line an event, there when the call returns."""
    frontier = await opened({"events": {"jsonl": str(path)}})
    events = heard_by(frontier)
    await frontier.add([A, "nonsense"])
    await visit(frontier, Done(200))

    written = lines(path)

    assert [line["name"] for line in written] == ["added", "refused", "claimed", "finished"]
    assert [line["sequence"] for line in written] == [1, 2, 3, 4]
    assert [line["crawl"] for line in written] == ["default"] * 4
    assert [line["at"] for line in written] == [clock.now()] * 4
    assert [line["data"] for line in written] == [dict(event.data) for event in events]


async def test_a_file_is_continued(opened, path):
    """Nothing of an earlier crawl is lost."""
    for url in (A, B):
        frontier = await opened({"events": {"jsonl": str(path)}})
        await frontier.add([url])
        await frontier.close()

    assert [line["data"]["url"] for line in lines(path)] == [A, B]


async def test_no_hostile_url_stops_the_file(opened, path):
    """O3: lone surrogates cannot be written as they are; later events are."""
    frontier = await opened({"events": {"jsonl": str(path)}})

    await frontier.add(["https://a.example/\ud800", "\x00", "x" * 10**6, A])

    written = lines(path)
    assert [line["name"] for line in written] == ["refused"] * 3 + ["added"]
    assert all(len(line["data"]["url"]) <= 1000 for line in written)


async def test_a_reason_that_cannot_be_written_stops_nothing(opened, path):
    """O3: an outcome's reason is anybody's text."""
    frontier = await opened({"events": {"jsonl": str(path)}})
    await frontier.add([A])

    await visit(frontier, Dropped("\udfff"))
    await frontier.add([B])

    assert lines(path)[-1]["data"]["url"] == B


async def test_crawl_runs_without_listeners(frontier):
    """Events are optional."""
    await frontier.add([Link(A, type="article")])
    await visit(frontier, Done(200))
    await frontier.claim()

    assert (await frontier.stats()).status == "finished"
