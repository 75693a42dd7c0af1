import asyncio
import json
import re
from pathlib import Path

import pytest

from outrider import Done, Frontier
from outrider.cli import events as events_command
from outrider.core.states import CrawlStatus
from outrider.events import EVENT_NAMES, GAP
from outrider.frontier import event_follower
from outrider.store.protocol import EventBatch, PublishedEvent

A = "https://a.example/"
EVENTS_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "events.md"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    """Read again in the next turn of the loop."""
    monkeypatch.setattr(events_command, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(events_command, "OVER_INTERVAL", 0.0)
    monkeypatch.setattr(event_follower, "POLL_INTERVAL", 0.0)


def published(store, *names, serial=1, key="a.example"):
    """Publish events of a worker, as one does that is followed."""
    data = json.dumps({"url": A, "key": key})
    events = [PublishedEvent(name, 1.5, data) for name in names]
    asyncio.run(store.publish("default", EventBatch("p", serial, "w1", events)))


@pytest.fixture
def finished(store, clock):
    """A crawl that was followed and has finished: its store."""

    async def crawl():
        async with Frontier.open(store, clock=clock) as frontier:
            await frontier.add([A])
            (lease,) = await frontier.claim()
            await frontier.finish(lease, Done(200))

    asyncio.run(crawl())
    published(store, "added", "claimed", "finished")

    async def end():
        async with Frontier.attach(store, clock=clock) as frontier:
            await frontier.claim()

    asyncio.run(end())
    return store


def topics(store):
    """The topics that shared values were written under."""
    return {value.topic for value in asyncio.run(store.values_since("default"))}


def names(answer):
    """What was printed, in order."""
    return [line["name"] for line in answer.lines]


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_number_behind_the_end_of_the_log_is_told_and_all_that_is_kept_printed(
    outrider, finished, follow
):
    """O3: it is of an earlier crawl of that name; silence would hide what this one does."""
    answer = outrider("events", "any", "--since", "99", *follow)

    assert (answer.code, answer.err) == (0, "")
    assert names(answer) == [GAP, "added", "claimed", "finished", "crawl-finished"]
    assert answer.lines[0]["data"] == {"missing": None}


def test_events_that_are_kept_are_printed_as_lines(outrider, finished):
    """O3: of workers and the store, with their numbers."""
    answer = outrider("events", "any")

    assert (answer.code, answer.err) == (0, "")
    assert names(answer) == ["added", "claimed", "finished", "crawl-finished"]
    assert [line["sequence"] for line in answer.lines] == [1, 2, 3, 4]
    assert answer.lines[0] == {
        "name": "added",
        "crawl": "default",
        "at": 1.5,
        "sequence": 1,
        "data": {"url": A, "key": "a.example", "worker": "w1"},
    }


def test_events_are_printed_from_a_number_on(outrider, finished):
    """O3: what an earlier command had is not printed again."""
    assert names(outrider("events", "any", "--since", "2")) == ["finished", "crawl-finished"]
    assert names(outrider("events", "any", "--since", "4")) == []


def test_events_are_selected_by_name_and_key(outrider, finished):
    """O3: names are repeatable."""
    published(finished, "added", serial=2, key="b.org")

    by_name = outrider("events", "any", "--name", "added", "--name", "finished")
    by_key = outrider("events", "any", "--key", ".org")

    assert names(by_name) == ["added", "finished", "added"]
    assert names(by_key) == ["added"]


def test_gap_is_printed_if_events_are_missing_after_since(outrider, store, monkeypatch):
    """O3: not the events before all that is kept, which nobody asked for."""
    monkeypatch.setattr("outrider.store.event_ring.RING_EVENTS", 2)
    outrider("add", "any", A)
    for serial in range(1, 5):
        published(store, "claimed", serial=serial)

    whole, resumed = outrider("events", "any"), outrider("events", "any", "--since", "1")

    assert names(whole) == ["claimed", "claimed"]
    assert names(resumed) == ["gap", "claimed", "claimed"]
    assert resumed.lines[0]["data"] == {"missing": 1}


def test_follower_ends_once_the_crawl_has(outrider, finished):
    """O3: what came after the number is printed before."""
    answer = outrider("events", "any", "--follow", "--since", "2")

    assert (answer.code, names(answer)) == (0, ["finished", "crawl-finished"])


def test_follower_prints_events_as_they_come(outrider, store, monkeypatch):
    """O3: from the moment on in which it starts; workers learn that it is there."""
    outrider("add", "any", A)
    published(store, "claimed")
    reads = 0
    read = event_follower.EventFollower.read

    async def then_more(self, store):
        nonlocal reads
        reads += 1
        found = await read(self, store)
        if reads == 2:
            event = PublishedEvent("finished", 2.5, "{}")
            await store.publish("default", EventBatch("p", 9, "w1", [event]))
        if reads == 9:
            await store.set_status("default", CrawlStatus.CANCELLED)
        return found

    monkeypatch.setattr(event_follower.EventFollower, "read", then_more)

    answer = outrider("events", "any", "--follow")

    assert names(answer) == ["finished", "crawl-cancelled"]
    assert "followed" in topics(store)


def test_printing_what_is_kept_makes_no_worker_publish(outrider, finished):
    """O3: only followers do."""
    outrider("events", "any")

    assert topics(finished) == {"rescore"}


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--name", "finish"], "no event is named 'finish'"),
        (["--crawl", "other"], "no crawl 'other'"),
        (["--key", ""], "key"),
    ],
)
def test_wrong_options_are_refused(outrider, finished, options, part):
    """O3: with code 2 and the reason, also by a follower."""
    for mode in ([], ["--follow"]):
        answer = outrider("events", "any", *mode, *options)

        assert (answer.code, answer.out) == (2, "")
        assert part in answer.err


def test_every_documented_event_may_be_selected():
    """O3: the names of the reference are those that are accepted."""
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\|.*\|$", EVENTS_PAGE.read_text(), re.MULTILINE)

    assert {*rows, GAP} == EVENT_NAMES
