"""Differential tests: several stores run the same operations, and all answers are compared.

`StoreDriver` runs operations on one store. A `DifferentialTest` does so on
several and stops at the first answer that differs; `shrink` finds the least case that still does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, assert_never

import msgspec
from msgspec.structs import asdict, replace

from operations import (
    HOSTS,
    Add,
    Advance,
    Claim,
    ClaimNamed,
    Configure,
    Delete,
    Expire,
    Extend,
    Filter,
    Finish,
    Op,
    Page,
    Publish,
    PutValue,
    Release,
    SendHeartbeat,
    SetStatus,
    Stale,
    Steer,
    UpdatePriorities,
    Wait,
)
from outrider.core.breakdown import Breakdown
from outrider.core.histogram import Histogram, Window
from outrider.core.pick import Streak
from outrider.core.queue_action import QueueAction, Set
from outrider.core.states import TaskState
from outrider.core.task import Lease, LeaseId
from outrider.core.verdict import Finished
from outrider.core.worker_totals import ScalingDecision, WorkerTotals
from outrider.store.protocol import (
    STORE_VALUES,
    ClaimRequest,
    EventBatch,
    FullStore,
    Heartbeat,
    LeaseFilter,
    PriorityUpdate,
    PublishedEvent,
    ResultPage,
    SharedValueWrite,
    Step,
    TaskFilter,
)
from outrider.store.queue_order import QueueOrder
from outrider.testing.builders import OUTCOMES, rules, verdict
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import lease_facts

Answer: TypeAlias = Any  # a store's answer without its tokens, comparable

LEASE_FILTERS: Final = (
    LeaseFilter(worker="w1"),
    LeaseFilter(key=HOSTS[1]),
    LeaseFilter(key=".example", older_than=5.0),
    LeaseFilter(fingerprint=Page(HOSTS[0], 1).task("x").fingerprint),
)
PAST: Final = 12  # ended leases that are kept
_LONGEST: Final = 86_400.0
_PRICED: Final = Breakdown("base", (("again", 1.0),))


class Disagreement(AssertionError):
    """Two stores answered differently: after which operation, and how."""


class StoreDriver:
    """Runs operations on one store, and keeps the leases."""

    def __init__(self, store: FullStore) -> None:
        self.store = store
        self.held: list[Lease] = []
        self.past: list[Lease] = []
        self.wake_in: float | None = None
        self._streaks: dict[tuple[str, int], Streak] = {}

    async def do(self, op: Op) -> Answer:
        """Run an operation; return the store's answer."""
        match op:
            case Add(crawl, pages):
                return await self.store.add([page.task(crawl) for page in pages])
            case Claim() | ClaimNamed():
                return await self._claim(op)
            case Finish() | Extend() | Release() | Stale() | Expire():
                return await self._end(op)
            case Steer() | Configure() | SetStatus() | Filter() | Delete():
                return await self._operate(op)
            case PutValue() | SendHeartbeat() | Publish() | UpdatePriorities():
                return await self._tell(op)
            case Advance() | Wait():
                return None
            case _:
                assert_never(op)

    def seconds(self, op: Op) -> float:
        """Return how long an operation lets time pass."""
        match op:
            case Advance(seconds):
                return seconds
            case Wait():
                return min(self.wake_in or 0.0, _LONGEST)
            case _:
                return 0.0

    async def _claim(self, op: Claim | ClaimNamed) -> Answer:
        streak = self._streaks.get((op.crawl, op.worker), Streak())
        fields = asdict(op) | {"worker": f"w{op.worker}", "streak": streak}
        if isinstance(op, ClaimNamed):
            fields["fingerprints"] = _names(fields.pop("pages"), op.crawl)
        request = ClaimRequest(**fields)
        claimed = await self.store.claim(request)
        self._streaks[op.crawl, op.worker] = claimed.streak
        self.wake_in = claimed.wake_in
        self.held += claimed.leases
        facts = [lease_facts(lease) for lease in claimed.leases]
        return facts, claimed.wake_in, claimed.status, tuple(claimed.streak)

    async def _end(self, op: Finish | Extend | Release | Stale | Expire) -> Answer:
        match op:
            case Finish():
                return await self._finish(op)
            case Extend(index, lease_for):
                ids = [lease.id for lease in self._some(index, 1)]
                return len(await self.store.extend(ids, lease_for=lease_for))
            case Release(index, count):
                return await self._release(self._some(index, count))
            case Stale(index, verb):
                return await self._stale(index, verb)
            case Expire(limit):
                return await self.store.expire(limit=limit)

    def _some(self, index: int, count: int) -> list[Lease]:
        """Return leases by index, modulo their number."""
        if not self.held:
            return []
        start = index % len(self.held)
        return self.held[start : start + count]

    def _forget(self, lease: Lease) -> None:
        self.held.remove(lease)
        self.past = [*self.past, lease][-PAST:]

    async def _finish(self, op: Finish) -> Answer:
        found = self._some(op.index, 1)
        if not found:
            return None
        (lease,) = found
        links = [page.task(lease.crawl) for page in op.links]
        decided = verdict(lease, op.outcome, roll=op.roll, links=links)
        self._forget(lease)
        return lease.url, _comparable(await self.store.finish([decided] * op.times))

    async def _release(self, leases: list[Lease]) -> Answer:
        freed = await self.store.release([lease.id for lease in leases])
        for lease in leases:
            self._forget(lease)
        return [lease.url for lease in leases if lease.id in freed]

    async def _stale(self, index: int, verb: str) -> Answer:
        if not self.past:
            return None
        lease = self.past[index % len(self.past)]
        if verb == "finish":
            return _comparable(await self.store.finish([verdict(lease, OUTCOMES["done"])]))
        ids: Sequence[LeaseId] = [lease.id]
        if verb == "extend":
            return len(await self.store.extend(ids, lease_for=30.0))
        return len(await self.store.release(ids))

    async def _operate(self, op: Steer | Configure | SetStatus | Filter | Delete) -> Answer:
        match op:
            case Steer(crawl, target, act, limit, by):
                return await self._steer(crawl, target, act, limit, by)
            case Configure(crawl, fields, is_swept, by, only):
                changed = await self.store.configure(crawl, rules(**fields), only=only, by=by)
                return changed, await self._steer(crawl, "", Set({}), 2, by) if is_swept else None
            case SetStatus(crawl, status, by):
                return await self.store.set_status(crawl, status, by=by)
            case Filter():
                return await self._filter(op)
            case Delete():
                return await self._delete(op)

    async def _delete(self, op: Delete) -> int:
        """Remove a crawl; return how many tasks it had."""
        count, more = 0, True
        while more:
            step = await self.store.delete(op.crawl, limit=op.limit)
            count, more = count + step.count, step.after is not None
        return count

    async def _tell(self, op: PutValue | SendHeartbeat | Publish | UpdatePriorities) -> Answer:
        match op:
            case PutValue():
                return await self._put_value(op)
            case SendHeartbeat():
                return await self.store.heartbeat(op.crawl, _heartbeat(op))
            case Publish():
                return await self.store.publish(op.crawl, _batch(op))
            case UpdatePriorities():
                return await self._update_priorities(op)

    async def _put_value(self, op: PutValue) -> Answer:
        stand = [note.number for note in await self.store.values_since(op.crawl)]
        seen = None if op.seen is None else max([*stand, op.seen]) - op.seen
        return await self.store.put_values(
            op.crawl, [SharedValueWrite("topic", op.name, op.text, seen)]
        )

    async def _update_priorities(self, op: UpdatePriorities) -> Answer:
        page = await self.store.tasks(op.crawl, TaskFilter(), limit=10_000)
        prices = [
            PriorityUpdate(task.number, task.priority + op.is_stale, op.priority, _PRICED)
            for task in page.items
            if task.number in op.tasks
        ]
        return await self.store.update_priorities(op.crawl, prices)

    async def _steer(self, crawl: str, target: str, act: QueueAction, limit: int, by: str) -> int:
        return await steps(
            lambda after: self.store.steer(crawl, target, act, after=after, limit=limit, by=by)
        )

    async def _filter(self, op: Filter) -> int:
        verb = getattr(self.store, op.verb)
        options = {"dry_run": op.dry_run, "limit": op.limit, "by": op.by}
        return await steps(
            lambda after: verb(op.crawl, op.which, *op.arguments, after=after, **options)
        )


def _names(pages: Iterable[Page], crawl: str) -> tuple[bytes, ...]:
    return tuple(page.task(crawl).fingerprint for page in pages)


def _comparable(answers: Iterable[Finished]) -> Answer:
    return [(answer.applied, answer.state, [*answer.answers]) for answer in answers]


async def steps(act: Callable[[int], Awaitable[Step]]) -> int:
    """Run all steps of a long operation; return how many items it changed."""
    step = await act(0)
    count = step.count
    while step.after is not None:
        step = await act(step.after)
        count += step.count
    return count


async def quick_view(store: FullStore, crawl: str) -> dict[str, Answer]:
    """Return the views that show most of a crawl at low cost."""
    queues = await _all(lambda after: store.queues(crawl, after=after, limit=3))
    return {
        "crawl": _plain(await store.crawl(crawl)),
        "queues": queues,
        "upcoming": [await store.upcoming(crawl, queue.key, limit=3) for queue in queues],
        "tasks": await _all(lambda after: store.tasks(crawl, TaskFilter(), after=after, limit=7)),
        "heat": _plain(await store.heatmap(crawl)),
        "leases": await lease_views(store, crawl, LeaseFilter(), limit=3),
    }


async def lease_views(store: FullStore, crawl: str, which: LeaseFilter, limit: int = 2) -> Answer:
    """Return the leases that match, without what differs between stores."""
    views = await _all(lambda after: store.leases(crawl, which, after=after, limit=limit))
    return [
        (lease_facts(v.lease), v.claimed_at, v.expires_at, v.named, v.lent, v.lease.task)
        for v in views
    ]


async def all_views(store: FullStore, crawl: str) -> dict[str, Answer]:
    """Return every view of a crawl, in short pages."""
    views = await quick_view(store, crawl)
    views["census"] = await _all(lambda after: store.queue_states(crawl, after=after, limit=2))
    views["places"] = [await store.position(crawl, task.number) for task in views["tasks"]]
    views["notes"] = await store.values_since(crawl, limit=10_000)
    views["workers"] = await store.workers(crawl)
    views["worker totals"] = await store.worker_totals(crawl)
    views["changes"] = await store.events_since(crawl, limit=10_000)
    views["log"] = await store.event_log(crawl, limit=10_000)
    views["by key"] = await _in_order(store, crawl, "key")
    views["by key, some"] = await _in_order(store, crawl, "key", prefix="b")
    views["by wake time"] = await _in_order(store, crawl, "wake")
    views["unborn"] = await store.queue(crawl, "z.example")
    for queue in views["queues"]:
        views[f"queue {queue.key}"] = await store.queue(crawl, queue.key)
        for state in (None, *TaskState):
            views[f"{state} tasks of {queue.key}"] = await _tasks_of(store, crawl, queue.key, state)
    for task in views["tasks"]:
        views[f"task {task.url}"] = await store.task(crawl, task.fingerprint)
    for number, lease in enumerate(views["leases"]):
        task = lease[-1]
        views[f"lease {number}"] = await lease_views(store, crawl, LeaseFilter(task=task))
    for which in LEASE_FILTERS:
        views[f"leases {which}"] = await lease_views(store, crawl, which)
    return views


def _batch(op: Publish) -> EventBatch:
    events = [PublishedEvent(f"e{number}", 1.5, "{}") for number in range(op.count)]
    return EventBatch(f"p{op.worker}", op.serial, f"w{op.worker}", events)


def _heartbeat(op: SendHeartbeat) -> Heartbeat:
    """Return a heartbeat with totals; sums are multiples of 1/4, so that stores agree exactly."""
    series = Histogram({op.bucket: op.done} if op.done else {}, op.done / 4, op.bucket / 4)
    decided = () if op.decided is None else (ScalingDecision(op.decided, 1, 2, "more"),)
    totals = WorkerTotals(
        {"done": op.done, f"of {op.bucket}": 1},
        {"scheme": op.bucket},
        {"fetch": series},
        series,
        decided,
        op.done,
        {"fetch": Window({op.bucket: min(op.done, 1000)}, op.bucket / 4, op.done / 4)},
        {"busy": op.bucket},
    )
    return Heartbeat(f"w{op.worker}", op.state, "north", op.pid, 4, 1, op.done, totals=totals)


async def store_values(store: FullStore, crawl: str) -> dict[str, Answer]:
    """Return the values of the store itself, and the crawls, of which it is none."""
    return {"values": await store.values_since(crawl), "crawls": await store.crawls()}


async def _tasks_of(store: FullStore, crawl: str, key: str, state: TaskState | None) -> list[Any]:
    """Return the tasks of a queue, in short pages."""
    return await _all(
        lambda after: store.queue_tasks(crawl, key, state=state, after=after, limit=2)
    )


async def _in_order(store: FullStore, crawl: str, order: QueueOrder, prefix: str = "") -> list[Any]:
    """Return the queues in an order, in short pages; and again from the middle on."""
    found: list[Any] = []
    cursors = [""]
    after: str | None = ""
    while after is not None:
        page = await store.queues_in_order(crawl, order, prefix=prefix, after=after, limit=2)
        found += page.items
        cursors += page.cursors
        after = page.after
    middle = cursors[len(cursors) // 2]
    rest = await store.queues_in_order(crawl, order, prefix=prefix, after=middle)
    return [found, rest.items]


async def _all(read: Callable[[int], Awaitable[ResultPage[Any]]]) -> list[Any]:
    page = await read(0)
    found = [*page.items]
    while page.after is not None:
        page = await read(page.after)
        found += page.items
    return found


def _plain(view: msgspec.Struct) -> dict[str, Any]:
    """Return a view without counters that are 0."""
    return {name: _without_zeros(value) for name, value in msgspec.structs.asdict(view).items()}


def _without_zeros(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    inner = {name: _without_zeros(count) for name, count in value.items()}
    return {name: count for name, count in inner.items() if count not in (0, {})}


Look: TypeAlias = Callable[[FullStore, str], Awaitable[dict[str, Answer]]]


class DifferentialTest:
    """Several stores under one clock: all must answer as the first."""

    def __init__(self, stores: Sequence[FullStore], clock: FakeClock) -> None:
        self.clock = clock
        self.hands = [StoreDriver(store) for store in stores]

    async def run(self, ops: Iterable[Op], *, look_every: int = 7) -> None:
        """Run all operations; compare views now and then, and all views at the end."""
        crawls: dict[str, None] = {}
        for number, op in enumerate(ops, 1):
            await self.do(op)
            crawls |= dict.fromkeys([op.crawl] if isinstance(op, Add | Configure) else [])
            if number % look_every == 0:
                await self.look(crawls, quick_view)
        await self.look(crawls, all_views)
        await self.look([STORE_VALUES], store_values)

    async def do(self, op: Op) -> None:
        """Run one operation on each store, then let its time pass."""
        answers = [await hands.do(op) for hands in self.hands]
        for answer in answers[1:]:
            if answer != answers[0]:
                raise Disagreement(f"{op}:\n{_difference(answers[0], answer)}")
        self.clock.advance(self.hands[0].seconds(op))

    async def look(self, crawls: Iterable[str], how: Look) -> None:
        """Compare the views of every crawl."""
        for crawl in crawls:
            first, *others = [await how(hands.store, crawl) for hands in self.hands]
            for other in others:
                if other != first:
                    raise Disagreement(f"views of {crawl}:\n{_difference(first, other)}")


def _difference(first: Answer, other: Answer) -> str:
    """Return where two answers differ, down to the smallest part."""
    if isinstance(first, msgspec.Struct) and type(first) is type(other):
        return _difference(msgspec.structs.asdict(first), msgspec.structs.asdict(other))
    if isinstance(first, dict) and isinstance(other, dict) and first.keys() == other.keys():
        parts = {name: (first[name], other[name]) for name in first if first[name] != other[name]}
    elif isinstance(first, list | tuple) and isinstance(other, list | tuple):
        pairs = enumerate(zip(first, other, strict=False))
        parts = {number: pair for number, pair in pairs if pair[0] != pair[1]}
    else:
        parts = {}
    if not parts:
        return f"  {first!r}\n  {other!r}"
    return "\n".join(f"  [{name}]{_difference(*pair)}" for name, pair in parts.items())


Fails: TypeAlias = Callable[[list[Op]], Awaitable[bool]]


async def shrink(ops: list[Op], fails: Fails) -> list[Op]:
    """Return a shorter case that fails as well, by leaving out parts, large ones first."""
    size = max(1, len(ops) // 2)
    while True:
        shorter = await _leave_out(ops, size, fails)
        if len(shorter) == len(ops) and size == 1:
            return await _shrink_operations(ops, fails)
        size = size if len(shorter) < len(ops) else max(1, size // 2)
        ops = shorter


async def _leave_out(ops: list[Op], size: int, fails: Fails) -> list[Op]:
    start = 0
    while start < len(ops):
        shorter = ops[:start] + ops[start + size :]
        if await fails(shorter):
            ops = shorter
        else:
            start += size
    return ops


async def _shrink_operations(ops: list[Op], fails: Fails) -> list[Op]:
    """Leave out pages of batches, and rules."""
    for place, op in enumerate(ops):
        for slimmer in _smaller_operations(op):
            shorter = [*ops[:place], slimmer, *ops[place + 1 :]]
            if await fails(shorter):
                return await _shrink_operations(shorter, fails)
    return ops


def _smaller_operations(op: Op) -> list[Op]:
    match op:
        case Add(_, pages):
            return [replace(op, pages=left) for left in _less(pages) if left]
        case Claim():
            nothing = {"lend": False, "keys": (), "max_queues": 0, "rolls": ()}
            plainer = (replace(op, **{name: value}) for name, value in nothing.items())
            return [one for one in plainer if one != op]
        case ClaimNamed(pages=named):
            return [replace(op, pages=left) for left in _less(named) if left]
        case Finish(links=links) if links:
            return [replace(op, links=left) for left in _less(links)]
        case Configure(_, fields):
            kept = [{k: fields[k] for k in fields if k != name} for name in fields]
            return [replace(op, fields=left) for left in kept]
        case _:
            return []


def _less(items: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [items[:n] + items[n + 1 :] for n in range(len(items))]
