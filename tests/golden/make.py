"""Writes the golden files of this release, and what is in them.

    .venv/bin/python tests/golden/make.py

`outrider-VERSION.outrider` was closed, `outrider-VERSION-killed.outrider` was not: its process was
killed, and its log lies beside it. Both hold every state a task, a queue and a crawl can have, a
snapshot and a tail. `outrider-VERSION.json` is what a reader finds in them. A released golden file
is never changed: later releases must read it, and add their own.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from outrider import (
    Again,
    Blocked,
    Done,
    Dropped,
    Failed,
    Frontier,
    Link,
    Throttled,
    Unreachable,
    __version__,
)
from outrider.core.worker_totals import ScalingDecision, WorkerTotals
from outrider.store.embedded import EmbeddedStore
from outrider.store.embedded.file import FORMAT
from outrider.store.embedded.log_pages import VERSION
from outrider.store.protocol import ClaimRequest, Heartbeat, TaskFilter
from outrider.testing import FakeClock

HERE = Path(__file__).parent
START = 1_800_000_000.0
LATER = START + 100_000.0  # when readers open the files
TYPES = ("page", "article", "hub", "nav", "hub-seed")
ENDS = (
    *(
        Done(200, seconds=0.5, bytes=1000, digest="d1", etag='"e"', last_modified="then")
        for _ in "12"
    ),
    Done(304, revisit_in=3600.0),
    Failed("cut"),
    Throttled(retry_after=30.0),
    Blocked("captcha"),
    Unreachable("dns"),
    Dropped("robots"),
)
EAGER = {"politeness": {"delay": 0.0, "max_in_flight": 4}, "retry": {"max_retries": 0}}
BY_TURN = {"queue": {"order": "round-robin"}}
ONE_SLOT = {"politeness": {"delay": 0.0}}

TOTALS = WorkerTotals(
    outcomes={"done": 7}, refusals={"robots": 1}, decisions=(ScalingDecision(START, 1, 2, "ready"),)
)
HEARTBEAT = Heartbeat("golden", "busy", "host", 1, slots=2, busy=1, visits=7, totals=TOTALS)


# ---- writing


async def write(path, *, is_killed):
    """The whole story of a file, ending in order or not."""
    clock, dice = FakeClock(START), random.Random(7).random
    store = EmbeddedStore.open(path, clock)
    await roam(store, clock, dice)
    await take_snapshot(store)
    await store.close()
    store = EmbeddedStore.open(path, clock)
    await steer(store, clock, dice)
    await end_crawls(store, clock, dice)
    if is_killed:
        os.kill(os.getpid(), signal.SIGKILL)
    await store.close()


def opened(store, clock, dice, crawl="default", settings=None):
    """A frontier whose every choice is the same each time."""
    return Frontier.open(
        store, settings=settings, crawl=crawl, clock=clock, worker="golden", dice=dice
    )


def links(rng, count):
    """Links of every kind to a dozen hosts."""
    for number in range(count):
        host = f"h{rng.randrange(12)}.example"
        yield Link(
            f"https://{host}/{rng.choice('abc')}/{number}",
            type=rng.choice(TYPES),
            depth=rng.randrange(6),
            priority=rng.choice((None, None, -5.0, 0.25, "high")),
            forced=rng.random() < 0.05,
            origin=rng.choice((None, "feed", "sitemap")),
            via=rng.choice((None, "https://h0.example/")),
            tag=rng.choice((None, "ß", "t")),
            delay=rng.choice((0.0, 0.0, 0.0, 200_000.0)),
            meta=rng.choice(({}, {"n": number, "é": [1, 2.5, None]})),
        )


async def roam(store, clock, dice):
    """Visits that end in every way, under rules that budgets, lanes and retries go by."""
    rng = random.Random(1)
    settings = EAGER | {"budget": {"balance": 3, "total_budget": 40}, "scope": {"mode": "domain"}}
    async with opened(store, clock, dice, settings=settings) as frontier:
        await frontier.add([Link("https://alone.example/", forced=True), *links(rng, 150)])
        for _ in range(20):
            for lease in await frontier.claim(8):
                found = [f"{lease.url}/{n}" for n in range(rng.randrange(3))]
                await frontier.finish(lease, rng.choice(ENDS), links=found)
                clock.advance(rng.choice((0.0, 1.0, 20.0)))


async def take_snapshot(store):
    """Of what there is now; every verb brings a piece."""
    store._new_items = 1 << 30
    while store._snapshot is not None or store._new_items > 1 << 29:
        await store.crawls()


async def steer(store, clock, dice):
    """After the snapshot: what operators do, and visits that are under way at the end."""
    rng = random.Random(2)
    async with opened(store, clock, dice, settings=EAGER) as frontier:
        await frontier.add(links(rng, 60))
        await frontier.claim(3)
        await frontier.queue("h1.example").pause()
        await frontier.queue("h2.example").retire()
        await frontier.queue("h3.example").snooze(500_000.0)
        await frontier.queue("h4.example").set(precedence=-3, delay=2.5, balance=2)
        await frontier.queue(".example").set(max_in_flight=2)
        await frontier.drop(pattern="/b/1")
        await frontier.configure({"budget": {"balance": 2, "hold_queues": True}, **EAGER})
        dead = [letter async for letter in frontier.dead()]
        await frontier.replay(url=dead[0].url)
        await frontier.purge(url=dead[1].url)
        names = [name for name, _ in await frontier.upcoming("h5.example", limit=3)]
        await frontier.claim_named(names)
        leases = await frontier.claim(10)
        await frontier.finish(leases[0], Done(200), links=["https://h5.example/new"])
        await frontier.release(leases[1:2])
        clock.advance(5.0)
        await frontier.extend(leases[2:3])
        await set_and_forget(frontier)
        await frontier.store.heartbeat("default", HEARTBEAT)


async def set_and_forget(frontier):
    """Known tasks that are set, forgotten and known without a visit; leases of no process."""
    known = [task.url async for task in frontier.tasks(state="done")]
    again = Link(known[0], known="set", delay=50.0, text="as it was given")
    await frontier.add([again, Link(known[1], known="set", done=True)])
    await frontier.add([Link("", identity="elsewhere", done=True)])
    await frontier.forget(url=known[2])
    lasting = await frontier.claim(3, outlives_process=True, lease_for=500_000.0)
    await frontier.finish(lasting[0], Again("later", meta={"again": 1}, priority=-7.0, front=True))
    await frontier.pause(by="ann")
    await frontier.resume(by="ann")


async def end_crawls(store, clock, dice):
    """Over, paused, cancelled, empty; one whose queues take turns, and one that lent a queue."""
    for name in ("over", "paused", "cancelled", "empty", "turns", "lent"):
        settings = {"turns": BY_TURN, "lent": ONE_SLOT}.get(name, EAGER)
        async with opened(store, clock, dice, name, settings) as frontier:
            if name != "empty":
                await frontier.add([f"https://{name}{n % 2}.example/{n}" for n in range(4)])
            for lease in await frontier.claim(4 if name == "over" else 1):
                if name == "over":
                    await frontier.finish(lease, Done(200))
            await end(frontier, name)


async def end(frontier, name):
    """As its name says."""
    if name == "over":
        await frontier.claim(1)
    elif name == "paused":
        await frontier.pause()
    elif name == "cancelled":
        await frontier.cancel()
    elif name == "lent":
        await frontier.claim(4, lend=True)


# ---- reading


async def told(path):
    """Return everything in a file, and what it leases next; opens it, so pass a copy."""
    clock = FakeClock(LATER)
    store = EmbeddedStore.open(path, clock)
    try:
        views = {name: await views_of(store, name) for name in await store.crawls()}
        claims = {name: await claims_of(store, name, clock) for name in views}
        return plain({"views": views, "claims": claims})
    finally:
        await store.close()


async def views_of(store, crawl):
    """What can be seen of a crawl."""
    return {
        "crawl": await store.crawl(crawl),
        "queues": (await store.queues(crawl)).items,
        "tasks": (await store.tasks(crawl, TaskFilter())).items,
        "heatmap": await store.heatmap(crawl),
        "changes": await store.events_since(crawl),
        "leases": [without_store(view) for view in (await store.leases(crawl)).items],
        "workers": await store.workers(crawl),
        "worker totals": await store.worker_totals(crawl),
        "roots": {mode: await store.roots(crawl, mode) for mode in ("host", "domain", "surt")},
    }


def without_store(view):
    """A lease names the store of its file, which is another each time one is made."""
    return msgspec.structs.replace(view, lease=msgspec.structs.replace(view.lease, store=""))


async def claims_of(store, crawl, clock):
    """Return which tasks are leased next, in order, as time passes."""
    lent = []
    for _ in range(20):
        claimed = await store.claim(ClaimRequest(crawl, "reader", 7))
        lent.append(
            [
                claimed.status,
                claimed.wake_in,
                [
                    (lease.url, lease.attempt, lease.priority, lease.manners, lease.last)
                    for lease in claimed.leases
                ],
            ]
        )
        clock.advance(30.0)
    return lent


def plain(value):
    """As JSON has it."""
    builtins = msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)
    return json.loads(json.dumps(builtins, default=bytes.hex))


def copied(name, directory):
    """A golden file with its log, where it may be written to."""
    for end in ("", "-wal"):
        if (HERE / f"{name}{end}").exists():
            shutil.copy(HERE / f"{name}{end}", directory / f"{name}{end}")
    return directory / name


# ---- all of it


def make(name, directory):
    """A file, written by a process of its own."""
    words = [sys.executable, __file__, "--write", str(directory / name)]
    done = subprocess.run(words, check=False)
    assert done.returncode == (-signal.SIGKILL if "killed" in name else 0), done
    for end in ("", "-wal"):
        (HERE / f"{name}{end}").unlink(missing_ok=True)
        if (directory / f"{name}{end}").exists():
            shutil.copy(directory / f"{name}{end}", HERE / f"{name}{end}")


def main():
    """Both files, and what is in them: the same, however they ended."""
    stem = f"outrider-{__version__}"
    names = [f"{stem}.outrider", f"{stem}-killed.outrider"]
    found = []
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            make(name, Path(directory))
        with tempfile.TemporaryDirectory() as directory:
            found.append(asyncio.run(told(copied(name, Path(directory)))))
    assert found[0] == found[1]
    content = {"format": FORMAT, "pages": VERSION, "files": names, "told": found[0]}
    (HERE / f"{stem}.json").write_text(json.dumps(content, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        asyncio.run(write(Path(sys.argv[2]), is_killed="killed" in sys.argv[2]))
    else:
        main()
