"""What a client sends is bounded: the server refuses the rest, and its store does not change."""

from dataclasses import dataclass
from math import inf, nan
from typing import Any

import pytest
from msgspec.structs import replace

from outrider.core.breakdown import Breakdown
from outrider.core.outcome import Answer
from outrider.core.pick import Streak
from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import Set, Snooze
from outrider.core.states import CrawlStatus
from outrider.core.task import LeaseId
from outrider.errors import InvalidInput
from outrider.store.forwarding import VERBS
from outrider.store.memory import MemoryStore
from outrider.store.protocol import ClaimRequest, Heartbeat, PriorityUpdate, TaskFilter
from outrider.store.remote import RemoteStore, StoreServer
from outrider.store.remote.signatures import SIGNATURES
from outrider.testing import FakeClock
from outrider.testing.audit import check
from outrider.testing.builders import done, task

LONG = "x" * 2_000_000
WHICH = TaskFilter()
BEAT = Heartbeat("w", "idle", "host", 1, 1, 0, 0)
UPDATE = PriorityUpdate(1, 0.0, 1.0)
CLAIM = ClaimRequest("default", "w", 1)
GOOD = task("https://a.example/9")


@dataclass(frozen=True)
class Sent:
    """A call with one value out of its bounds."""

    verb: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.verb} {self.args!r} {self.kwargs!r}"[:90]


def sent(verb, *args, **kwargs):
    """A call."""
    return Sent(verb, args, kwargs)


def changed(verb, struct, wrap=lambda one: one, /, **fields):
    """One call for each value of each field."""
    return [
        sent(verb, *wrap(replace(struct, **{name: value})))
        for name, values in fields.items()
        for value in values
    ]


BAD = [
    *changed(
        "add",
        GOOD,
        lambda one: ([one],),
        crawl=[LONG],
        fingerprint=[b"", b"x" * 17],
        url=["u" * 70_000],
        key=["k" * 2000],
        type=["t" * 300],
        lane=[-1, 2],
        depth=[-1, 2**60],
        precedence=[-1, 70_000],
        priority=[nan, inf, -inf],
        cost=[-1, 70_000],
        delay=[-1.0, nan, inf, 1e300],
        roll=[-1, 2**48],
        origin=["o" * 300],
        via=["v" * 70_000],
        tag=["t" * 300],
        meta=[b"m" * 3_000_000],
        text=["t" * 70_000],
        breakdown=[Breakdown("base", (("term", nan),))],
    ),
    *changed(
        "claim",
        CLAIM,
        lambda one: (one,),
        crawl=["c" * 2000],
        worker=["w" * 2000],
        limit=[-1, 2**60],
        lease_for=[-1.0, nan, inf, 1e300],
        per_queue=[-1],
        streak=[Streak(2**64 - 1, 0)],
        fingerprints=[(b"short",)],
    ),
    *changed(
        "heartbeat",
        BEAT,
        lambda one: ("default", one),
        worker=["w" * 2000],
        host=["h" * 2000],
        pid=[-1],
        slots=[-1, 2**60],
        busy=[-1],
        visits=[-1],
        lasts=[-1.0, nan, inf],
    ),
    *changed(
        "update_priorities",
        UPDATE,
        lambda one: ("default", [one]),
        seen=[nan, inf],
        priority=[nan, -inf],
        breakdown=[Breakdown("base", (("term", inf),))],
    ),
    *changed(
        "drop",
        WHICH,
        lambda one: ("default", one),
        key=["k" * 5000],
        url=["u" * 70_000],
        pattern=["p" * 70_000],
        type=["t" * 300],
        tag=["t" * 300],
        older_than=[nan, inf],
        fingerprint=[b"short"],
    ),
    sent("extend", [LeaseId("default", 1, 1)], lease_for=nan),
    sent("extend", [LeaseId("default", 1, 1)], lease_for=1e300),
    sent("release", [LeaseId("c" * 2000, 1, 1)]),
    sent("expire", limit=-1),
    sent("configure", "c" * 2000, CrawlRules()),
    sent("configure", "default", CrawlRules(), LONG),
    sent("configure", "default", CrawlRules(opens_below=nan)),
    sent("configure", "default", CrawlRules(max_pending=-1)),
    *[
        sent("configure", "default", CrawlRules(**{layer: {"a.example": override}}))
        for layer in ("keys", "said", "runtime")
        for override in ({"delay": "soon"}, {"delay": nan}, {"balance": -5}, {"unknown": 1})
    ],
    sent("steer", "default", "t" * 5000, Set({})),
    sent("steer", "default", "a.example", Set({"delay": "soon"})),
    sent("steer", "default", "a.example", Set({"max_in_flight": 10**9})),
    sent("steer", "default", "a.example", Set({"nothing": 1})),
    sent("steer", "default", "a.example", Snooze(nan)),
    sent("steer", "default", "a.example", Snooze(1e300)),
    sent("add_roots", "default", "m" * 300, ["a"]),
    sent("add_roots", "default", "host", ["r" * 5000]),
    sent("set_status", "default", CrawlStatus.PAUSED, "r" * 70_000),
    sent("tasks", "default", WHICH, limit=-1),
    sent("events_since", "default", limit=2**60),
    sent("queue", "default", "k" * 5000),
    sent("task", "default", b"short"),
    sent("roots", "default", "m" * 300),
]


def bad_verdicts(lease):
    """Verdicts of a lease, each with one value out of its bounds."""
    good = done(lease)
    fields = {
        "delay": [-1.0, nan, inf, 1e300],
        "outcome": ["o" * 300],
        "crawl_delay": [nan, -1.0],
        "retry_in": [nan, 1e300],
        "reason": ["r" * 70_000],
        "penalty": [-1, 2**60],
        "snooze": [inf],
        "retire": ["r" * 300],
        "failed": [-1],
        "answer": [Answer(200, 2**64 - 1, None, None, None)],
        "tasks": [(replace(GOOD, priority=nan),), (replace(GOOD, url="u" * 70_000),)],
    }
    return [replace(good, **{name: value}) for name, values in fields.items() for value in values]


@pytest.fixture
async def served(tmp_path):
    """A store, and a client of the process that holds it."""
    store = MemoryStore(FakeClock())
    server = await StoreServer.open(store, str(tmp_path / "crawl"))
    client = await RemoteStore.connect(str(tmp_path / "crawl"))
    await store.configure("default", CrawlRules())
    await store.add([task("https://a.example/1"), task("https://b.example/1")])
    yield store, client
    await client.close()
    await server.close()


async def everything(store):
    """All that can be seen of the store."""
    return (
        await store.crawls(),
        await store.crawl("default"),
        (await store.queues("default")).items,
        (await store.tasks("default", WHICH)).items,
        await store.workers("default"),
        await store.settings("default"),
        await store.roots("default", "host"),
        await store.events_since("default"),
    )


@pytest.mark.parametrize("call", BAD, ids=str)
async def test_value_out_of_bounds_is_refused(served, call):
    """M3: before the store sees it; the error names the place."""
    store, client = served
    before = await everything(store)
    needed = {"dry_run": False} if call.verb == "drop" else {}

    with pytest.raises(InvalidInput, match=call.verb):
        await getattr(client, call.verb)(*call.args, **needed, **call.kwargs)

    assert await everything(store) == before
    await check(store, "default")


async def test_verdict_out_of_bounds_is_refused(served):
    """M3: the lease stays, and can be finished."""
    store, client = served
    (lease,) = (await store.claim(CLAIM)).leases
    before = await everything(store)
    for verdict in bad_verdicts(lease):
        with pytest.raises(InvalidInput, match="finish"):
            await client.finish([verdict])
        assert await everything(store) == before

    assert [one.applied for one in await client.finish([done(lease)])] == [True]


async def test_values_within_bounds_are_sent(served):
    """M3: the largest that the checks of links and settings let pass."""
    _, client = served
    large = replace(
        GOOD,
        key="k" * 255,
        type="t" * 64,
        url="https://a.example/" + "u" * 8000,
        via="v" * 8192,
        tag="t" * 255,
        meta=b'{"a":"' + b"m" * 2**20 + b'"}',
        priority=-1.7e308,
        depth=1_000_000,
        delay=10 * 365 * 86_400.0,
    )
    changes = {"delay": 2.0, "balance": 5, "cost": "unit", "precedence": -3, "max_bytes": None}
    rules = CrawlRules(keys={".example": changes}, said={"a.example": changes})

    assert [one.added for one in await client.add([large])] == [True]
    await client.configure("default", rules, "s" * 2**20)
    await client.steer("default", "a.example", Set(changes), by="ann")
    await client.heartbeat("default", BEAT)


def test_every_verb_has_bounds():
    """M3: also those that are added later."""
    assert SIGNATURES.keys() == VERBS.keys()
