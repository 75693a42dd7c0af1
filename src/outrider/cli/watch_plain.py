"""A sample as a line: for people who read a log, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from outrider.cli.showing import count_words, fields_of, instant, size
from outrider.core.states import CrawlStatus
from outrider.monitoring.hosts import Host, HostOrder, Hosts
from outrider.monitoring.monitor import Observation
from outrider.monitoring.sampler import Sample

LEADERS: Final = 10  # hosts of a JSON sample's lists
TASKS: Final = ("known", "pending", "leased", "done", "dead", "dropped", "held")
ENDED: Final = (CrawlStatus.FINISHED, CrawlStatus.CANCELLED)


def line(sample: Sample) -> str:
    """All of it in some hundred letters."""
    return "  ".join(_parts(sample))


def _parts(sample: Sample) -> Iterator[str]:
    crawl, rates = sample.crawl, sample.rates
    yield instant(sample.at)
    yield crawl.status + (f" ({crawl.reason})" if crawl.reason else "")
    for name in TASKS:
        yield f"{name} {getattr(crawl, name):,}"
    if rates is not None:
        yield f"{rates.visits:,.1f} visits/s"
        yield f"{rates.done:,.1f} done/s"
        yield f"{rates.failed:,.1f} failed/s"
        yield f"{size(round(rates.bytes))}/s"
    seen = "" if sample.is_whole else " seen"
    yield f"queues{seen}: {count_words(sample.queues)}"


def shape(seen: Observation, hosts: Hosts) -> dict[str, Any]:
    """The same for programs, with the hosts that lead."""
    sample = seen.sample
    return {
        "at": sample.at,
        "presence": seen.presence,
        **fields_of(sample.crawl),
        "queues": sample.queues,
        "is_whole": sample.is_whole,
        "rates": sample.rates,
        "busiest": [_host(host) for host in hosts.ranked(HostOrder.BUSIEST, LEADERS)],
        "slowest": [_host(host) for host in hosts.ranked(HostOrder.SLOWEST, LEADERS)],
        "heatmap": sample.heat,
    }


def _host(host: Host) -> dict[str, Any]:
    return fields_of(host.view, at=host.at, pace=host.pace)
