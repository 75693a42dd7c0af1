"""The schema: every setting with its type, bounds, default and description.

Sections that the core already has are its own structs, or extend them, so that a section can be
passed to a policy as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from outrider.core.link_validation import DEFAULT_MAX_META, MAX_META
from outrider.core.policy.code_field import CODE
from outrider.core.policy.focus import OPENS_BELOW, Focus
from outrider.core.policy.lanes import Lanes
from outrider.core.policy.link_types import Types
from outrider.core.policy.politeness import Politeness
from outrider.core.policy.queue_key import address
from outrider.core.policy.retry import Retry
from outrider.core.policy.rules import Budget, CrawlRules, Limits, Override, QueueRules
from outrider.core.policy.scope import Mode, Scope
from outrider.core.policy.traps import Traps
from outrider.core.policy.weights import BONUSES, TYPE_WEIGHTS, Scoring
from outrider.core.url import TRACKING, UrlRules
from outrider.settings.worker_schema import (
    ExecutorSettings,
    FetchSettings,
    OutputSettings,
    Revisiting,
)

_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Guard = Annotated[int, Meta(ge=0, le=10_000)]


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the store keeps its data."""

    durability: Annotated[
        Literal["process", "sync"],
        Meta(
            description="what answers survive: the death of the process, or (sync) power loss too"
        ),
    ] = "process"


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How URLs are put into queues, and how long a queue may be."""

    key: Annotated[
        str | Any,
        Meta(
            extra=CODE,
            description="host | domain | surt | buckets:N | module:function | a function",
        ),
    ] = "host"
    order: Annotated[
        Literal["priority", "round-robin"], Meta(description="which queue is served first")
    ] = "priority"
    tie: Annotated[
        Literal["fifo", "lifo", "shuffle"],
        Meta(description="order of tasks of one queue with equal priority"),
    ] = "fifo"
    breadth_discount: Annotated[
        float,
        Meta(ge=0, le=1e12, description="added to the priority per task already taken of a queue"),
    ] = 0.0
    max_depth: Annotated[int, Meta(ge=0, le=1_000_000, description="deeper links are refused")] = 10
    max_meta: Annotated[
        int,
        Meta(ge=0, le=MAX_META, description="bytes of JSON that a link's meta may have"),
    ] = DEFAULT_MAX_META
    max_pending: Annotated[_Count, Meta(description="pending tasks per crawl; 0: no limit")] = 0
    max_pending_per_queue: Annotated[
        _Count, Meta(description="pending tasks per queue; 0: no limit")
    ] = 0
    bypass_depth: Annotated[
        str | Any,
        Meta(
            extra=CODE,
            description="module:function | a function: link → whether to admit it, if too deep",
        ),
    ] = None


class LeaseSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a task is leased."""

    seconds: Annotated[
        float, Meta(gt=0, le=604_800, description="seconds until a lease expires, unless extended")
    ] = 60.0
    max_crashes: Annotated[
        int,
        Meta(ge=0, le=1000, description="expired leases after which a task is dead; 0: no limit"),
    ] = 3


class CrawlSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a crawl ends."""

    pause_at_finish: Annotated[
        bool, Meta(description="true: pause instead of finishing when nothing is left")
    ] = False
    stay_open: Annotated[
        bool,
        Meta(
            description="true: never finish; a crawl with nothing left waits for more, and its"
            " workers run until they are stopped"
        ),
    ] = False


class ScopeSettings(Scope, frozen=True, forbid_unknown_fields=True):
    """Which URLs belong to the crawl."""

    mode: Annotated[Mode, Meta(description="what a URL must share with a seed")] = "all"
    include: Annotated[
        tuple[str, ...],
        Meta(description="regular expressions; if any, one must be found in the URL"),
    ] = ()
    exclude: Annotated[
        tuple[str, ...],
        Meta(description="regular expressions; none may be found in the URL; wins over include"),
    ] = ()
    function: Annotated[
        str | Any,
        Meta(
            extra=CODE,
            description="module:function | a function: URL → True, False, or why it is refused",
        ),
    ] = None


class TrapSettings(Traps, frozen=True, forbid_unknown_fields=True):
    """Guards against endless sites."""

    path_depth: Annotated[_Guard, Meta(description="segments a path may have; 0: any")] = 20
    repeated_segment: Annotated[
        _Guard, Meta(description="times one segment may occur in a path; 0: any")
    ] = 3
    many_parameters: Annotated[_Guard, Meta(description="parameters a query may have; 0: any")] = 30
    calendar: Annotated[
        bool, Meta(description="true: refuse days and calendar words (and many news articles)")
    ] = False


class UrlSettings(UrlRules, frozen=True, forbid_unknown_fields=True):
    """How URLs are parsed."""

    tracking: Annotated[
        tuple[str, ...],
        Meta(description="query parameters ignored in the identity; `*` may end a name"),
    ] = TRACKING
    allow_private: Annotated[
        bool, Meta(description="true: admit literal loopback, private and link-local addresses")
    ] = False
    max_bytes: Annotated[
        int, Meta(ge=1, le=65_536, description="bytes a URL may have; longer ones are refused")
    ] = 8192
    keep_text: Annotated[
        bool, Meta(description="true: keep each URL also as its link gave it, for `lease.text`")
    ] = False


class EventSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where events are written."""

    jsonl: Annotated[
        str, Meta(description="path of a file that gets one JSON line per event; empty: none")
    ] = ""
    breakdown: Annotated[
        bool, Meta(description="whether `added` events carry the breakdown of the priority")
    ] = False


class QueueFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of an override beside politeness and budget."""

    precedence: Annotated[
        int, Meta(ge=-(2**31), le=2**31 - 1, description="of the queue; lower is sooner")
    ] = 0
    paused: Annotated[bool, Meta(description="true: the queue is paused")] = False
    retired: Annotated[bool, Meta(description="true: the queue is retired")] = False


_WEIGHTS: Final = ", ".join(f"{kind} {weight:g}" for kind, weight in TYPE_WEIGHTS.items())
_BONUSES: Final = ", ".join(f"{name} {bonus:g}" for name, bonus in BONUSES.items())


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a crawl; `settings_of` validates one made by hand."""

    store: Annotated[StoreSettings, Meta(description="how the store keeps its data")] = (
        StoreSettings()
    )
    politeness: Annotated[Politeness, Meta(description="delay and concurrency of each queue")] = (
        Politeness()
    )
    budget: Annotated[Budget, Meta(description="how much each queue may spend")] = Budget()
    queue: Annotated[QueueSettings, Meta(description="how URLs are put into queues")] = (
        QueueSettings()
    )
    types: Annotated[Types, Meta(description="what gives a link its type, if it brings none")] = (
        Types()
    )
    lanes: Annotated[Lanes, Meta(description="how content and discovery alternate")] = Lanes()
    retry: Annotated[
        Retry,
        Meta(
            description="when a failed task comes back; `blocked` is for blocked visits; a task "
            "type named in `types` has a whole policy of its own, with the defaults given there"
        ),
    ] = msgspec.field(default_factory=Retry)
    lease: Annotated[LeaseSettings, Meta(description="how long a task is leased")] = LeaseSettings()
    crawl: Annotated[CrawlSettings, Meta(description="how a crawl ends")] = CrawlSettings()
    scope: Annotated[ScopeSettings, Meta(description="which URLs belong to the crawl")] = (
        ScopeSettings()
    )
    traps: Annotated[TrapSettings, Meta(description="guards against endless sites")] = (
        TrapSettings()
    )
    url: Annotated[UrlSettings, Meta(description="how URLs are parsed")] = UrlSettings()
    scoring: Annotated[
        Scoring,
        Meta(
            description=f"how priorities are computed; weights not given are {_WEIGHTS}; "
            f"bonuses not given are {_BONUSES}"
        ),
    ] = msgspec.field(default_factory=Scoring)
    focus: Annotated[Focus, Meta(description="total prioritisation: what the crawl is about")] = (
        Focus()
    )
    limits: Annotated[Limits, Meta(description="limits at which a crawl is paused")] = Limits()
    events: Annotated[EventSettings, Meta(description="where events are written")] = EventSettings()
    revisit: Annotated[Revisiting, Meta(description="when pages are visited again")] = Revisiting()
    fetch: Annotated[FetchSettings, Meta(description="how pages are fetched")] = msgspec.field(
        default_factory=FetchSettings
    )
    executor: Annotated[
        ExecutorSettings, Meta(description="how many visits run at a time, and how they end")
    ] = ExecutorSettings()
    output: Annotated[OutputSettings, Meta(description="how pages are written")] = OutputSettings()
    keys: Annotated[
        dict[str, dict[str, Any]],
        Meta(
            description="overrides for one queue key or host, or a domain suffix that begins with a"
            " dot; what can reach no queue under `queue.key` is refused"
        ),
    ] = {}


class KeyLayers(NamedTuple):
    """Overrides by key: the base ones, and those set at run time, which win (A4)."""

    base: Mapping[str, Override]
    said: Mapping[str, Override]


def crawl_rules(settings: Settings, layers: KeyLayers | None = None) -> CrawlRules:
    """Return the rules that a store applies, from validated settings.

    Without layers, no override by key was set at run time.
    """
    queue = settings.queue
    base, said = layers or KeyLayers(settings.keys, {})
    return CrawlRules(
        queue=QueueRules(politeness=settings.politeness, budget=settings.budget),
        keys=_by_address(queue.key, base),
        said=_by_address(queue.key, said),
        order=queue.order,
        tie=queue.tie,
        breadth_discount=queue.breadth_discount,
        max_pending=queue.max_pending,
        max_pending_per_queue=queue.max_pending_per_queue,
        burst=settings.lanes.burst,
        max_retries=settings.retry.max_retries,
        max_crashes=settings.lease.max_crashes,
        pause_at_finish=settings.crawl.pause_at_finish,
        stay_open=settings.crawl.stay_open,
        limits=settings.limits,
        opens_below=OPENS_BELOW if settings.focus.on else None,
    )


def _by_address(keyed_by: object, overrides: Mapping[str, Override]) -> Mapping[str, Override]:
    """Return overrides by the keys and suffixes that stores match; of two, the later."""
    found: dict[str, Override] = {}
    for name, override in overrides.items():
        try:
            target = address(keyed_by, name)
        except ValueError:  # kept from before such a name was refused: it reaches nothing
            target = name
        found[target] = {**found.get(target, {}), **override}
    return found
