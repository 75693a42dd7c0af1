"""Benchmark with delays: the share of allowed visits that is used, and no violation.

The bound: a host that has work takes one visit every (its delay + its mean duration) seconds, and
all hosts together no more than the slots can carry:

    ∫ min(slots ÷ mean duration, Σ over hosts with work of 1 ÷ (delay + mean duration)) dt

All of it is read off the server's record. Every request is a visit, robots.txt too. A host has
work from the end of the answer that first led to it until its last visit begins: in the webs here
each page leads to the next, so there is always another one till then. A visit that begins while
its host has work counts as achieved; so each host's last one does not, as it ends the integral.
A duration is the server's, from a request's first byte to the last byte of its answer; what the
crawler itself needs on top counts against it. The delay is the crawler's own, or Crawl-delay where
that is longer.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from crawlers import counts_of, crawled, killed_at, lost_work, pages_of, polite, started, written
from webs import cores, parent_of, pin, served, spent_by

from outrider.bench.measurement import Measure
from outrider.testing.web import Hit, Shape, Web, WebProcess, violations

DELAY = 1.0  # seconds, the crawler's own
SLOTS = 64
SHARE = 0.95
KILLS = 5
BETWEEN = (4.0, 10.0)  # seconds between two kills
ALLOWED = Shape(seed=7, hosts=250, pages=60, links=20, page_bytes=4096, doubles=0, abroad=0)
TRIED = Shape(seed=8, hosts=60, pages=25, links=20, page_bytes=2048, doubles=0, abroad=0)


class Stay(msgspec.Struct, frozen=True):
    """A host, while it has tasks."""

    since: float
    until: float  # when its last visit begins
    visits: int  # begun before that
    rate: float  # visits a second, at most


def measure(part: float, tell: Any, told: Any) -> dict[str, Any]:
    """Yield the figures of both scenarios, each when it is measured."""
    tell("delays", f"{ALLOWED.hosts} hosts, delays {DELAY:g} s and more")
    used = _used(_sized(ALLOWED, part))
    for one in _allowed_measures(used):
        told(one)
    tell("delays", f"{TRIED.hosts} hosts, 429s and {KILLS} times kill -9")
    tried = _tried(_sized(TRIED, max(part, 0.4)))
    for one in _tried_measures(tried):
        told(one)
    return {"used": used, "tried": tried}


def _sized(shape: Shape, part: float) -> Shape:
    return msgspec.structs.replace(shape, pages=max(6, round(shape.pages * part)), addresses=True)


def _command(web: WebProcess, folder: Path) -> list[str]:
    options = ("--delay", f"{DELAY:g}", "--slots", str(SLOTS))
    return polite(*options)(web.web.seeds()[0], folder)


def _used(shape: Shape) -> dict[str, Any]:
    with served(shape, "mixed") as web, tempfile.TemporaryDirectory() as place:
        pin(web.pid, cores()[0])
        folder, before = Path(place), spent_by(web.pid)
        spent = crawled(_command(web, folder), folder)
        busy, hits, site = spent_by(web.pid) - before, web.hits(), web.web
        return {
            **share_of(hits, site, DELAY, SLOTS),
            "hosts": shape.hosts,
            "hits": len(hits),
            "wall": spent.wall,
            "cpu": spent.cpu,
            "server_cpu": busy,
            "lost": lost_work(hits, site, folder, set(site.urls())),
            "violations": [str(wrong) for wrong in violations(hits, delay=DELAY, web=site)],
        }


def share_of(hits: Sequence[Hit], web: Web, delay: float, slots: int) -> dict[str, float]:
    """Return visits, the allowed visits, and their ratio."""
    stays = list(_stays(hits, web, delay))
    bound = _integral(stays, slots / fmean(hit.seconds for hit in hits))
    achieved = sum(stay.visits for stay in stays)
    return {"achieved": achieved, "bound": bound, "share": achieved / bound}


def _stays(hits: Sequence[Hit], web: Web, delay: float) -> Iterator[Stay]:
    hosts: defaultdict[str, list[Hit]] = defaultdict(list)
    for hit in sorted(hits, key=lambda hit: hit.started_at):
        hosts[hit.host].append(hit)
    names = list(web.sites)
    for number, name in enumerate(names):
        visits = hosts[name]
        since = _led_to(hosts[names[parent_of(number)]]) if number else visits[0].started_at
        took = fmean(hit.seconds for hit in visits[:-1])
        rate = 1 / (max(delay, web.sites[name].crawl_delay or 0.0) + took)
        yield Stay(since, visits[-1].started_at, len(visits) - 1, rate)


def _led_to(parent: Iterable[Hit]) -> float:
    return next(hit.ended_at for hit in parent if hit.path == "/" and hit.status == 200)


def _integral(stays: Iterable[Stay], most: float) -> float:
    """Return the visits that hosts with tasks allow, at most `most` per second."""
    steps = [(stay.since, stay.rate) for stay in stays]
    steps += [(stay.until, -stay.rate) for stay in stays]
    total, rate, last = 0.0, 0.0, 0.0
    for at, change in sorted(steps):
        total += min(rate, most) * (at - last) if last else 0.0
        rate, last = rate + change, at
    return total


def _allowed_measures(used: dict[str, Any]) -> Iterator[Measure]:
    title = f"{used['hosts']} hosts, {used['hits']:,} visits in {used['wall']:.0f} s"
    if used["lost"]:
        yield Measure(f"{title}: lost work: {used['lost']}"[:110], 1, "")
        return
    yield Measure(f"{title}: share of what politeness allows", used["share"], "", SHARE)
    yield _zero("  violations, by the server's record", len(used["violations"]))


def _tried(shape: Shape) -> dict[str, Any]:
    """Measure hosts that throttle, with a crawler that is killed and restarted."""
    dice = random.Random(9)
    with served(shape, "throttling") as web, tempfile.TemporaryDirectory() as place:
        pin(web.pid, cores()[0])
        folder, began = Path(place), time.perf_counter()
        command = _command(web, folder)
        kills = sum(_killed(command, folder, dice.uniform(*BETWEEN)) for _ in range(KILLS))
        spent = crawled(command, folder)
        hits, site, wrote = web.hits(), web.web, written(folder)
        return {
            "hosts": shape.hosts,
            "kills": kills,
            "hits": len(hits),
            "throttled": sum(hit.status == 429 for hit in hits),
            "wall": time.perf_counter() - began,
            "code": spent.code,
            "not_fetched": len(set(site.urls()) - pages_of(hits, site).keys()),
            "not_written": len(set(site.urls()) - wrote.pages.keys()),
            "doubled": sum(count > 1 for count in wrote.pages.values()),
            "torn": wrote.torn,
            "given_up": counts_of(folder)["dead"],
            "violations": [str(wrong) for wrong in violations(hits, delay=DELAY, web=site)],
        }


def _killed(command: Sequence[str], folder: Path, seconds: float) -> bool:
    end = time.perf_counter() + seconds
    return killed_at(started(command, folder), lambda: time.perf_counter() >= end)


def _tried_measures(tried: dict[str, Any]) -> Iterator[Measure]:
    title = f"{tried['throttled']} times 429, {tried['kills']} times kill -9"
    yield _zero(f"{title}: violations", len(tried["violations"]))
    yield _zero("  pages not fetched or not written", tried["not_fetched"] + tried["not_written"])
    yield Measure("  of them given up, in flight three times", tried["given_up"], "")
    yield _zero("  records doubled or torn", tried["doubled"] + tried["torn"])


def _zero(name: str, value: float) -> Measure:
    return Measure(name, value, "", 0, is_most=True)
