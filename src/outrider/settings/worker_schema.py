"""The schema of visits: how workers fetch, run, repeat and write them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from outrider.core.policy.code_field import CODE
from outrider.core.policy.revisit import Revisiting

_DAY: Final = 86_400.0
_Seconds = Annotated[float, Meta(gt=0, le=_DAY)]
_Bytes = Annotated[int, Meta(ge=1024, le=2**31)]


class FetchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How pages are fetched."""

    user_agent: Annotated[
        str, Meta(description="product name in the User-Agent header, and for robots.txt groups")
    ] = "Outrider"
    contact: Annotated[
        str, Meta(description="your e-mail address or page, for owners of hosts; please set it")
    ] = ""
    robots: Annotated[bool, Meta(description="true: robots.txt is obeyed (RFC 9309)")] = True
    robots_max_age: Annotated[_Seconds, Meta(description="seconds a robots.txt is cached")] = _DAY
    robots_cache: Annotated[
        str, Meta(description="path of the cache file of robots.txt; empty: none")
    ] = ""
    sitemaps: Annotated[
        bool, Meta(description="true: sitemaps that robots.txt names are visited too")
    ] = True
    follow: Annotated[
        bool, Meta(description="true: links of pages, feeds and headers are added")
    ] = True
    nofollow: Annotated[
        bool, Meta(description="true: rel=nofollow and robots meta tags and headers are obeyed")
    ] = True
    max_links: Annotated[
        int, Meta(ge=0, le=1_000_000, description="maximum links of one page, feed or sitemap")
    ] = 50_000
    tag_path: Annotated[
        bool,
        Meta(description="true: links carry the tags around their anchor, for scorers that learn"),
    ] = False
    max_redirects: Annotated[int, Meta(ge=0, le=50, description="maximum redirects in a chain")] = 6
    connect_timeout: Annotated[_Seconds, Meta(description="seconds to connect, TLS included")] = (
        10.0
    )
    read_timeout: Annotated[_Seconds, Meta(description="seconds without receiving a byte")] = 15.0
    total_timeout: Annotated[
        _Seconds,
        Meta(
            description="seconds one request may take; less than lease.seconds, and by default "
            "at most three quarters of that"
        ),
    ] = 45.0
    max_body: Annotated[
        _Bytes, Meta(description="bytes of a body, unpacked; longer ones are dropped as `size`")
    ] = 10 * 1024 * 1024
    max_headers: Annotated[
        _Bytes, Meta(description="bytes of one header field, or of all together ×4")
    ] = 16 * 1024
    types: Annotated[
        tuple[str, ...],
        Meta(
            description="media types that are read; `*` may end one; others are dropped as `type`"
        ),
    ] = ("*",)
    dns_max_age: Annotated[_Seconds, Meta(description="seconds a DNS answer is cached")] = 300.0
    connections: Annotated[int, Meta(ge=1, le=100_000, description="maximum idle connections")] = (
        1000
    )
    http2: Annotated[
        bool, Meta(description="true: HTTP/2 where a host supports it; needs the http2 extra")
    ] = False
    connect_to: Annotated[
        dict[str, str],
        Meta(description="host, or suffix with a leading dot → address:port to connect to instead"),
    ] = {}
    detector: Annotated[
        str | Any,
        Meta(
            extra=CODE,
            description="default | none | module:function | a function: response → the reason",
        ),
    ] = "default"
    cache: Annotated[str, Meta(description="path of the cache file of responses; empty: none")] = ""
    cache_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**50,
            description="maximum bytes of the cache; the oldest entries are removed first",
        ),
    ] = 2**30


class ExecutorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many visits run at a time, and how they end."""

    slots: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="visits at one time; with `min_slots` or `max_slots`, the number at the "
            "start, within those bounds",
        ),
    ] = 64
    min_slots: Annotated[
        int,
        Meta(
            ge=0, le=100_000, description="autoscaling: minimum visits at one time; 0: as `slots`"
        ),
    ] = 0
    max_slots: Annotated[
        int,
        Meta(
            ge=0, le=100_000, description="autoscaling: maximum visits at one time; 0: as `slots`"
        ),
    ] = 0
    max_memory: Annotated[
        int,
        Meta(
            ge=0, le=2**50, description="bytes of memory above which no slot is added; 0: no limit"
        ),
    ] = 0
    handler_timeout: Annotated[
        _Seconds, Meta(description="seconds a handler may take for one visit, without waits")
    ] = 120.0
    drain: Annotated[
        float, Meta(ge=0, le=_DAY, description="seconds that visits in flight may take at a stop")
    ] = 30.0
    watchdog: Annotated[
        float,
        Meta(
            ge=0,
            le=_DAY,
            description="`outrider work`: seconds without progress after which the process ends, "
            "to be started again; 0: never",
        ),
    ] = 120.0
    workbench: Annotated[
        bool,
        Meta(
            description="true: borrow whole queues and pace them in the worker; for remote stores"
        ),
    ] = False
    workbench_tasks: Annotated[
        int, Meta(ge=1, le=100_000, description="workbench: tasks borrowed at one time")
    ] = 5000
    workbench_per_queue: Annotated[
        int, Meta(ge=1, le=100_000, description="workbench: tasks borrowed of one queue")
    ] = 50
    poll: Annotated[
        str | Any,
        Meta(
            extra=CODE,
            description="workbench: when it borrows again: generic | module:function | a function",
        ),
    ] = "generic"
    poll_min: Annotated[
        float, Meta(ge=0, le=_DAY, description="generic: minimum seconds between two polls")
    ] = 15.0
    poll_max: Annotated[
        float, Meta(ge=0, le=_DAY, description="generic: maximum seconds between two polls")
    ] = 600.0
    poll_check: Annotated[
        _Seconds, Meta(description="generic: seconds between two checks of what is left")
    ] = 30.0
    poll_tasks_ratio: Annotated[
        float, Meta(ge=0, le=1, description="generic: share of tasks left at which it polls")
    ] = 0.10
    poll_queues_ratio: Annotated[
        float, Meta(ge=0, le=1, description="generic: share of queues left at which it polls")
    ] = 0.25
    pipeline: Annotated[
        tuple[str, ...],
        Meta(extra=CODE, description="stages around every visit, outermost first: module:function"),
    ] = ()


class OutputSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How pages are written."""

    format: Annotated[
        Literal["jsonl", "warc", "none"], Meta(description="how pages are written")
    ] = "jsonl"
    path: Annotated[
        str, Meta(description="prefix of output file names; empty: none is written")
    ] = ""
    body: Annotated[
        bool, Meta(description="true: JSONL records carry the page's text in `body`")
    ] = False
    warc_bytes: Annotated[
        int, Meta(ge=2**20, le=2**50, description="bytes after which a new WARC file is started")
    ] = 10**9
    warc_requests: Annotated[
        bool, Meta(description="true: WARC files also have a record of each request")
    ] = False


__all__ = ["ExecutorSettings", "FetchSettings", "OutputSettings", "Revisiting"]
