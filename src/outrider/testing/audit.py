"""The audit of a store's views: counters, queues, tasks, heatmap and events must agree (O5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from outrider.core.states import QueueState, TaskState
from outrider.core.task import CRITICAL, HIGH, LOW
from outrider.store.protocol import (
    CrawlView,
    FullStore,
    Heat,
    LeaseView,
    QueueView,
    ResultPage,
    StoreEvent,
    TaskFilter,
    TaskView,
)
from outrider.testing.lease_history import require

PAGE: Final = 500
MAX_LISTED: Final = 20  # queues whose tasks are listed as well


async def everything(read: Callable[[int], Coroutine[Any, Any, ResultPage[Any]]]) -> list[Any]:
    """Return all items of a paged view."""
    items: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = await read(after)
        items += page.items
        after = page.after
    return items


async def check(store: FullStore, crawl: str) -> None:
    """Raise `InvariantBroken` unless all views of the crawl agree."""
    view = await store.crawl(crawl)
    queues: list[QueueView] = await everything(
        lambda after: store.queues(crawl, after=after, limit=PAGE)
    )
    tasks: list[TaskView] = await everything(
        lambda after: store.tasks(crawl, TaskFilter(), after=after, limit=PAGE)
    )
    _counters_add_up(view)
    _tasks_are_counted(view, tasks)
    _queues_are_counted(view, queues, tasks)
    for queue in queues:
        _queue_is_sound(queue)
    await _queues_are_ordered(store, crawl, queues)
    states = await everything(lambda after: store.queue_states(crawl, after=after, limit=PAGE))
    same = Counter(states) == Counter(queue.state for queue in queues)
    require(same, "C1", f"queue_states of {crawl} differs from its queues")
    await _tasks_are_listed(store, crawl, queues[:MAX_LISTED], tasks)
    _queue_states_are_counted(view, Counter(queue.state for queue in queues))
    _bands_are_counted(view, tasks)
    await _leases_are_listed(store, crawl, tasks)
    _heat_adds_up(view, await store.heatmap(crawl))
    _runs_are_numbered(view, await store.events_since(crawl, limit=10_000))


async def _queues_are_ordered(store: FullStore, crawl: str, queues: list[QueueView]) -> None:
    keys: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await store.queues_in_order(crawl, "key", after=after, limit=PAGE)
        keys += [queue.key for queue in page.items]
        after = page.after
    require(
        keys == sorted(queue.key for queue in queues),
        "E8",
        f"queues by key are {keys}, of {[queue.key for queue in queues]}",
    )


async def _queue_tasks(store: FullStore, crawl: str, key: str, after: int) -> ResultPage[TaskView]:
    return await store.queue_tasks(crawl, key, after=after, limit=PAGE)


async def _tasks_are_listed(
    store: FullStore, crawl: str, queues: list[QueueView], tasks: list[TaskView]
) -> None:
    for queue in queues:
        listed = await everything(partial(_queue_tasks, store, crawl, queue.key))
        wanted = [task for task in tasks if task.key == queue.key]
        require(listed == wanted, "E8", f"queue_tasks of {queue.key}: {listed} for {wanted}")


async def _leases_are_listed(store: FullStore, crawl: str, tasks: list[TaskView]) -> None:
    views: list[LeaseView] = await everything(
        lambda after: store.leases(crawl, after=after, limit=PAGE)
    )
    listed = sorted((view.lease.task, view.lease.worker) for view in views)
    leased = [task for task in tasks if task.state is TaskState.LEASED]
    wanted = sorted((task.number, task.worker or "") for task in leased)
    require(listed == wanted, "H1", f"leases of {crawl}: {listed} for {wanted}")


def _counters_add_up(view: CrawlView) -> None:
    total = view.pending + view.leased + view.done + view.dead + view.dropped
    require(view.known == total, "O5", f"known = {view.known}, and the states sum to {total}")
    require(0 <= view.held <= view.pending, "E5", f"{view.held} of {view.pending} are held")
    visits = sum(view.outcomes.values())
    require(view.visits == visits, "O1", f"{view.visits} visits, and {visits} outcomes")
    for state in TaskState:
        typed = sum(counts.get(state.value, 0) for counts in view.types.values())
        count = getattr(view, state.value)
        require(typed == count, "I1", f"{count} {state.value}, and {typed} by type")


def _tasks_are_counted(view: CrawlView, tasks: list[TaskView]) -> None:
    require(len(tasks) == view.known, "O5", f"{len(tasks)} tasks, and known = {view.known}")
    numbers = [task.number for task in tasks]
    require(numbers == sorted(set(numbers)), "Inspect", "tasks are not in order of their numbers")
    require(len({task.fingerprint for task in tasks}) == len(tasks), "B3", "a task is known twice")
    counts = Counter(task.state for task in tasks)
    for state in TaskState:
        shown = getattr(view, state.value)
        require(counts[state] == shown, "O5", f"{counts[state]} tasks are {state}, shown: {shown}")


def _queues_are_counted(view: CrawlView, queues: list[QueueView], tasks: list[TaskView]) -> None:
    counts = Counter((task.key, task.state) for task in tasks)
    names = ("pending", "in_flight", "done", "dead", "dropped")
    for queue in queues:
        for name, state in zip(names, TaskState, strict=True):
            shown, count = getattr(queue, name), counts[queue.key, state]
            require(shown == count, "E8", f"{queue.key} has {count} {state}, shown: {shown}")
    require({task.key for task in tasks} <= {q.key for q in queues}, "E8", "a queue is missing")
    held = sum(q.pending for q in queues if q.state is QueueState.RETIRED)
    require(held == view.held, "E5", f"{held} are held, shown: {view.held}")


def _queue_states_are_counted(view: CrawlView, states: Counter[QueueState]) -> None:
    """C1: counts compare no time, so queues whose time has come may be among the snoozed."""
    counts = {QueueState(name): count for name, count in view.queues.items()}
    what = f"{dict(states)}, counted: {dict(view.queues)}"
    require(set(counts) == set(QueueState), "C1", f"not every state is counted: {what}")
    for state in set(QueueState) - {QueueState.SNOOZED, QueueState.READY}:
        require(counts[state] == states[state], "C1", f"queues are {what}")
    require(counts[QueueState.READY] <= states[QueueState.READY], "C1", f"queues are {what}")
    require(sum(counts.values()) == states.total(), "C1", f"queues are {what}")


def _bands_are_counted(view: CrawlView, tasks: list[TaskView]) -> None:
    """F8: every pending task is in the band of its priority."""
    found: Counter[str] = Counter()
    for task in tasks:
        if task.state is TaskState.PENDING:
            urgent = "critical" if task.priority <= CRITICAL else "high"
            is_normal = HIGH < task.priority < LOW
            found["normal" if is_normal else "low" if task.priority >= LOW else urgent] += 1
    shown = {name: count for name, count in view.bands.items() if count}
    require(shown == dict(found), "F8", f"pending are {dict(found)}, counted: {shown}")
    require(view.recovered <= view.visits, "O1", f"{view.recovered} of {view.visits} recovered")


def _queue_is_sound(queue: QueueView) -> None:
    served_now = queue.state in (QueueState.READY, QueueState.INACTIVE)
    is_empty = not (queue.pending or queue.in_flight)
    facts = {
        "C1 empty": queue.state is not QueueState.EMPTY or is_empty,
        "C1 ready": not served_now or (queue.wakes_in == 0 and queue.pending > queue.delayed),
        "C1 snoozed": queue.state is not QueueState.SNOOZED or (queue.wakes_in or 0) > 0,
        "E1 slot": not served_now or queue.in_flight - queue.named < queue.max_in_flight,
        "D5 named": 0 <= queue.named <= queue.in_flight,
        "C7 lent": 0 <= queue.lent <= queue.in_flight - queue.named,
        "C7 busy": not queue.lent or not (served_now or queue.state is QueueState.SNOOZED),
        "E8 next": (queue.next_url is None) == (queue.pending == 0),
        "E8 delayed": 0 <= queue.delayed <= queue.pending,
        "E2 balance": 0 <= queue.balance <= queue.grant,
        "E3 spent": queue.spent >= 0,
    }
    for fact, holds in facts.items():
        require(holds, fact, f"{queue}")


def _heat_adds_up(view: CrawlView, heat: Heat) -> None:
    cells = sum(sum(row.values()) for row in heat.cells.values())
    sums = {heat.total, cells, sum(heat.depth.values()), view.pending}
    require(len(sums) == 1, "O2", f"{view.pending} pending, and the heatmap is {heat}")


def _runs_are_numbered(view: CrawlView, changes: list[StoreEvent]) -> None:
    sequences = [change.sequence for change in changes]
    require(sequences == sorted(set(sequences)), "O3", "changes are not in order")
    ends = [int(c.detail.split()[1]) for c in changes if c.name == "crawl-finished"]
    is_whole = not changes or changes[0].sequence == 1  # old ones may be forgotten
    first = 1 if is_whole else view.runs - len(ends) + 1
    runs = list(range(first, view.runs + 1))
    require(ends == runs, "I2", f"{view.runs} runs, and their ends are {ends}")
