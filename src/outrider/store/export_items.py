"""The items of an export: every value is bounded by its type, so that an import can be trusted.

An export is one `SavedCrawl`, then each `SavedQueue` before the first `SavedTask` of its key, and
one `SavedEnd`. Instants are whole milliseconds of the store's clock and stay as they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from sys import float_info
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from outrider.core.breakdown import Breakdown
from outrider.core.link_validation import MAX_META
from outrider.core.policy.queue_key import valid_key
from outrider.core.policy.rules import (
    BUDGET_FIELDS,
    POLITENESS_FIELDS,
    QUEUE_FIELDS,
    CrawlRules,
    Override,
    QueueRules,
    override_rules,
)
from outrider.core.states import CrawlStatus
from outrider.core.task import DEFAULT_ORIGIN, KnownRule, Task
from outrider.core.url import Refusal, UrlRules, parse_url
from outrider.errors import InvalidInput

RESTORING: Final = "restoring"  # why a crawl is paused between its SavedCrawl and its SavedEnd

_U48: Final = 2**48 - 1
_MAX_COUNT: Final = 2**62
_URLS: Final = UrlRules(allow_private=True, max_bytes=65_536)
_is_plain_url = re.compile(r"https?://[a-z0-9-]+(?:\.[a-z0-9-]+)*/[!-~]*").fullmatch
_QUEUE_FIELDS: Final = POLITENESS_FIELDS | BUDGET_FIELDS | QUEUE_FIELDS

Count: TypeAlias = Annotated[int, Meta(ge=0, le=_MAX_COUNT)]
Turn: TypeAlias = Annotated[int, Meta(ge=0, le=2**52)]  # half of what an order key has room for
Instant: TypeAlias = Annotated[int, Meta(ge=0, le=2**47)]
Finite: TypeAlias = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e11)]
Cost: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
Tie: TypeAlias = Annotated[int, Meta(ge=0, le=_U48)]
Key: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Word: TypeAlias = Annotated[str, Meta(max_length=255)]
Text: TypeAlias = Annotated[str, Meta(max_length=2**20)]
Moment: TypeAlias = tuple[Finite, Text, Text]  # seconds since the epoch, and two words on it


class _Item(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The common base: in JSON, `is` names the kind of item."""


class SavedCrawl(_Item, frozen=True, gc=False, tag_field="is", tag="crawl"):
    """A crawl without its queues, tasks and counters."""

    crawl: Word
    created: Instant
    rules: CrawlRules = CrawlRules()
    is_told: bool = True  # every queue has the current rules
    roots: dict[Word, list[Text]] = {}  # of the scope, by its mode
    settings: Text = ""  # of the owner, for workers that join the crawl


class SavedQueue(_Item, frozen=True, gc=False, tag_field="is", tag="queue"):
    """A queue without its tasks; its leases count as released at the time of the export (H5)."""

    key: Key
    turn: Turn
    standing: Literal["ready", "inactive"] | None = None
    place: Turn = 0  # in the inactive list
    session: Count | None = None  # spent in the open session
    spent: Count = 0
    next_ready: Instant = 0
    why: Literal["delay", "throttled", "unreachable", "blocked", "waiting", "operator"] = "delay"
    last_start: Instant | None = None
    last_end: Instant | None = None
    paused: bool = False
    retired: Literal["budget", "quota", "unreachable", "throttled", "operator"] | None = None
    said: tuple[bool, bool] = (False, False)  # paused, retired: as in the rules it received last
    level: Count = 0
    calm: Count = 0
    throttles_in_row: Count = 0
    unreachable_in_row: Count = 0
    blocks_in_row: Count = 0
    last_delay: Seconds | None = None
    crawl_delay: Seconds = 0.0
    errors: Count = 0
    dones: Count = 0
    bytes: Count = 0
    last_cost: Cost = 0
    cost_sum: Count = 0
    cost_count: Count = 0


class SavedAnswer(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True
):
    """The last answer that a done task keeps."""

    status: Annotated[int, Meta(ge=-_MAX_COUNT, le=_MAX_COUNT)]
    bytes: Count = 0
    digest: Text | None = None
    etag: Text | None = None
    last_modified: Text | None = None
    looks: Count = 0
    changes: Count = 0
    watched: Seconds = 0.0
    planned: Seconds = 0.0


class SavedTask(_Item, frozen=True, gc=False, tag_field="is", tag="task"):
    """A task with everything that decides its next visit; a leased one is pending (H5)."""

    url: Annotated[str, Meta(max_length=65_536)]  # "": known without one
    key: Key
    fingerprint: Annotated[bytes, Meta(min_length=16, max_length=16)]
    tie: Tie
    discovered: Instant
    due: Instant | None = None  # None: since it was discovered
    state: Literal["pending", "done", "dead", "dropped"] = "pending"
    type: Word = "page"
    lane: Literal[0, 1] = 0
    depth: Count = 0
    precedence: Cost = 1
    priority: Finite = 0.0
    cost: Cost = 1
    delay: Seconds = 0.0
    known: KnownRule = "keep"
    roll: Tie = 0
    origin: Word = DEFAULT_ORIGIN
    via: Text | None = None
    tag: Word | None = None
    meta: Text = ""  # JSON
    breakdown: tuple[Text, tuple[tuple[Text, Finite], ...]] | None = None  # source, terms
    attempts: Count = 0
    failures: Count = 0
    crashes: Count = 0
    throttles: Count = 0
    claimed: Instant | None = None
    finished: Instant | None = None
    reason: Text | None = None
    answer: SavedAnswer | None = None
    answered: Instant | None = None  # when the visit that brought it ended
    history: tuple[Moment, ...] = ()
    text: Annotated[str, Meta(max_length=65_536)] = ""  # the URL as it was given, if it is kept
    blocks: Count = 0  # blocked visits since it was last done
    typed_by: Annotated[str, Meta(max_length=255)] = ""  # what gave it its type, if no link did


class SavedEnd(_Item, frozen=True, gc=False, tag_field="is", tag="end"):
    """The counters of a crawl, and the status it resumes with."""

    status: CrawlStatus = CrawlStatus.RUNNING
    reason: Text | None = None
    at_finish: bool = False
    counter: Turn = 0
    arrivals: Annotated[int, Meta(ge=0, le=2**47)] = 0
    dones: Count = 0
    bytes: Count = 0
    runs: Count = 0
    first: Instant | None = None
    finished: Instant | None = None
    logged: Annotated[int, Meta(ge=0, le=2**52)] = 0  # number of events so far
    outcomes: dict[Word, Count] = {}
    timeline: Annotated[tuple[Moment, ...], Meta(max_length=100)] = ()
    recovered: Count = 0


class SavedNote(_Item, frozen=True, gc=False, tag_field="is", tag="note"):
    """A shared value; it is restored by `put_values`, not by `restore`."""

    topic: Annotated[str, Meta(min_length=1, max_length=64)]
    name: Annotated[str, Meta(max_length=1024)]
    text: Annotated[str, Meta(min_length=1, max_length=65_536)]


Saved: TypeAlias = SavedCrawl | SavedQueue | SavedTask | SavedEnd

_encode = msgspec.msgpack.Encoder(enc_hook=lambda _: "custom").encode
_decode = msgspec.msgpack.Decoder(list[Saved]).decode
_rules_of = msgspec.msgpack.Decoder(CrawlRules).decode
_meta_of = msgspec.json.Decoder(dict[str, Any]).decode


def plain_rules(rules: CrawlRules) -> CrawlRules:
    """Return rules that can be written: cost functions are replaced."""
    return _rules_of(_encode(rules))


def validate_items(saved: Sequence[Saved]) -> None:
    """Raise InvalidInput for a batch that no export could contain."""
    try:
        _decode(_encode(saved))
    except (msgspec.MsgspecError, TypeError, OverflowError) as error:
        raise InvalidInput(f"saved: {error}") from error
    for place, item in enumerate(saved):
        fault = item_error(item)
        if fault is not None:
            raise InvalidInput(f"saved[{place}]: {fault}")


def item_error(item: Saved) -> str | None:
    """Return what is wrong with an item whose single values are within their bounds, or None."""
    if isinstance(item, SavedTask):
        return _task_error(item)
    if isinstance(item, SavedQueue):
        return _queue_error(item)
    if isinstance(item, SavedCrawl):
        return next(_rule_errors(item.rules), None)
    if item.reason == RESTORING:
        return "end.reason: it was saved while it was being restored itself, so it is not whole"
    return None


def _task_error(task: SavedTask) -> str | None:
    if valid_key(task.key) is None:
        return f"task.key = {task.key!r} must be printable"
    if not task.url and task.state in ("pending", "dead"):
        return f"task.url: a {task.state} task has one"
    if task.url and _is_plain_url(task.url) is None:
        url = parse_url(task.url, _URLS)
        if isinstance(url, Refusal):
            return f"task.url = {task.url[:200]!r}: {url.detail}"
    if (task.answer is None) != (task.answered is None):
        return "task.answered: an answer has one, and nothing else"
    if task.meta:
        return _meta_error(task.meta)
    return None


def _meta_error(meta: str) -> str | None:
    try:
        _meta_of(meta)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return f"task.meta must be a JSON object: {error}"
    size = len(meta.encode())
    return f"task.meta: {size} bytes of JSON, over {MAX_META}" if size > MAX_META else None


def _queue_error(queue: SavedQueue) -> str | None:
    if valid_key(queue.key) is None:
        return f"queue.key = {queue.key!r} must be printable"
    if queue.standing == "ready" and queue.session is None:
        return "queue.session: a ready queue has one"
    if queue.standing == "inactive" and (queue.session is not None or not queue.place):
        return "queue.place: an inactive queue has one, and no session"
    return None


def _rule_errors(rules: CrawlRules) -> Iterator[str]:
    yield from _layer_errors("keys", rules.keys)
    yield from _layer_errors("runtime", rules.runtime)
    yield from _layer_errors("said", rules.said)
    yield from _queue_rule_errors("queue", rules.queue)
    counts = {"max_pending": 0, "max_pending_per_queue": 0, "max_retries": 0}
    for name, least in {**counts, "burst": 1, "max_crashes": 0}.items():
        if not least <= getattr(rules, name) <= _MAX_COUNT:
            yield f"crawl.rules.{name} = {getattr(rules, name)} must be {least} or more"
    if not 0 <= rules.breadth_discount <= float_info.max:
        yield f"crawl.rules.breadth_discount = {rules.breadth_discount} must be finite and ≥ 0"


def _layer_errors(layer: str, overrides: Mapping[str, Override]) -> Iterator[str]:
    for target, changes in overrides.items():
        unknown = changes.keys() - _QUEUE_FIELDS
        if unknown:
            yield f"crawl.rules.{layer}.{target}.{min(unknown)}: no such setting"
            return
        yield from _queue_rule_errors(f"{layer}.{target}", override_rules(QueueRules(), changes))


def _queue_rule_errors(name: str, rules: QueueRules) -> Iterator[str]:
    try:
        msgspec.convert(msgspec.to_builtins(rules), QueueRules)
    except (msgspec.MsgspecError, TypeError) as error:
        yield f"crawl.rules.{name}: {error}"
        return
    if not -(2**31) <= rules.precedence < 2**31:
        yield f"crawl.rules.{name}.precedence = {rules.precedence} must have 32 bits"
    if not isinstance(rules.budget.cost, str):
        yield f"crawl.rules.{name}.cost must be a name"


# All but the crawl, and what an add only asks for.
_TASK_FIELDS: Final = [n for n in Task.__struct_fields__ if n in SavedTask.__struct_fields__]
_META, _BREAKDOWN = map(_TASK_FIELDS.index, ("meta", "breakdown"))
_task_values: Final = attrgetter(*_TASK_FIELDS)


def task_of(crawl: str, saved: SavedTask) -> Task:
    """Return the task as it was added."""
    values = [*_task_values(saved)]
    values[_META] = saved.meta.encode()
    values[_BREAKDOWN] = None if saved.breakdown is None else Breakdown(*saved.breakdown)
    return Task(crawl, **dict(zip(_TASK_FIELDS, values, strict=True)))
