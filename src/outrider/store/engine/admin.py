"""Operators' verbs: actions on queues and on filtered tasks, in bounded steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, assert_never

import msgspec

from outrider.clock import to_ms
from outrider.core import queue_action as actions
from outrider.core.pattern import compile_pattern
from outrider.core.policy.rules import QueueRules, covers, use_actions
from outrider.core.states import CrawlStatus, TaskState
from outrider.store.byte_limits import MAX_RESULT_BYTES, task_bytes
from outrider.store.engine.engine import CrawlEngine
from outrider.store.engine.port import TaskTable
from outrider.store.engine.records import UNLISTED, Queue, TaskRecord
from outrider.store.engine.views import HasStatus, shown_state
from outrider.store.protocol import Step, TaskFilter

Matcher: TypeAlias = Callable[[TaskRecord], bool]


def steer(
    crawl: CrawlEngine, target: str, act: actions.QueueAction, now: int, *, after: int, limit: int
) -> Step:
    """E7: record the action for future queues, and apply it to those that match."""
    if target and not target.startswith("."):
        return _steer_one(crawl, target, act, now)
    changes = _rule_changes(act)
    if after == 0 and target and changes:
        crawl.replace_rules(crawl.state.rules.with_override(target, changes))
    return _steer_many(crawl, target, act, now, after, limit)


def _steer_one(crawl: CrawlEngine, target: str, act: actions.QueueAction, now: int) -> Step:
    queue, changes = crawl.queue(target), _rule_changes(act)
    if changes:
        crawl.use_rules(crawl.state.rules.with_override(target, changes))
    if queue is not None:
        _apply(crawl, queue, act, now, everywhere=False)
    return Step(int(queue is not None), None)


def _steer_many(
    crawl: CrawlEngine, target: str, act: actions.QueueAction, now: int, after: int, limit: int
) -> Step:
    count = 0
    last = after
    for queue in crawl.queues.matching(target, after):
        if count == limit:
            return Step(count, last)
        _apply(crawl, queue, act, now, everywhere=not target)
        count, last = count + 1, queue.number
    crawl.state.confirm_rules(all_queues=not target and isinstance(act, actions.Set))
    return Step(count, None)


def _rule_changes(act: actions.QueueAction) -> dict[str, Any]:
    match act:
        case actions.Set(changes):
            return dict(changes)
        case actions.Pause() | actions.Resume():
            return {"paused": isinstance(act, actions.Pause)}
        case actions.Retire() | actions.Revive():
            return {"retired": isinstance(act, actions.Retire)}
        case actions.Snooze() | actions.Wake():
            return {}
        case _:
            assert_never(act)


def _apply(
    crawl: CrawlEngine, queue: Queue, act: actions.QueueAction, now: int, *, everywhere: bool
) -> None:
    rules, schedule = crawl.state.rules.of(queue.key), crawl.schedule
    crawl.state.mark_dirty(queue)
    if isinstance(act, actions.Set):
        if not everywhere or queue.rules != rules:
            _set(crawl, queue, rules, now)
        return
    queue.rules = use_actions(queue.rules, rules)
    match act:
        case actions.Pause() | actions.Resume():
            queue.paused = isinstance(act, actions.Pause)
            schedule.reschedule(queue, now)
        case actions.Retire():
            schedule.retire(queue, "operator", now)
        case actions.Revive():
            _revive(crawl, queue, now)
        case actions.Snooze(seconds):
            queue.postpone(now + to_ms(seconds), "operator")
            schedule.refresh(queue, now)
        case actions.Wake():
            queue.next_ready = min(queue.next_ready, queue.earliest_ready())
            queue.wait_reason = "delay"
            schedule.refresh(queue, now)
        case _:
            assert_never(act)


def _set(crawl: CrawlEngine, queue: Queue, rules: QueueRules, now: int) -> None:
    """E5: `set` applies at once: it retires, revives, or chooses the list of a queue again."""
    old, schedule = queue.rules, crawl.schedule
    queue.use_rules(rules, crawl.state.epoch)
    queue.apply_pace()  # D1: a lower rate counts from the last lease
    if rules.paused != old.paused:
        queue.paused = rules.paused
    if rules.retired != old.retired:
        _retire_by_rule(crawl, queue, now)
    if queue.is_over_budget():
        schedule.retire(queue, "budget", now)
    elif queue.retired == "budget":
        schedule.revive(queue, now)
    schedule.refresh(queue, now)
    if queue.list_state != UNLISTED:
        schedule.choose_list_again(queue, now)


def _retire_by_rule(crawl: CrawlEngine, queue: Queue, now: int) -> None:
    if queue.rules.retired:
        crawl.schedule.retire(queue, "operator", now)
    elif queue.retired == "operator":
        crawl.schedule.revive(queue, now)


def _revive(crawl: CrawlEngine, queue: Queue, now: int) -> None:
    queue.politeness = msgspec.structs.replace(
        queue.politeness, throttles_in_row=0, unreachable_in_row=0, blocks_in_row=0
    )
    queue.errors_in_row = 0
    if queue.retired is not None:
        crawl.schedule.revive(queue, now)


def read_within(
    tasks: TaskTable, numbers: Iterable[int], upto: int
) -> tuple[list[TaskRecord], int]:
    """Return tasks, and the last number read: `upto`, unless their texts fill it before (M2)."""
    found: list[TaskRecord] = []
    room = MAX_RESULT_BYTES
    for record in tasks.read(numbers):
        found.append(record)
        room -= task_bytes(record.task)
        if room <= 0:
            return found, record.number
    return found, upto


def for_each(
    crawl: CrawlEngine,
    which: TaskFilter,
    state: TaskState | None,
    change: Callable[[TaskRecord], None] | None,
    now: int,
    *,
    after: int,
    limit: int,
) -> Step:
    """Change matching tasks of a bounded range of numbers; a cancelled crawl has none (I3).

    `state` is the one they must have; None: any, but those that are forgotten already (C10).
    """
    numbers, more = _span(crawl, which, after, limit)
    count = 0
    if crawl.state.status is not CrawlStatus.CANCELLED:
        matches = matcher(crawl.state, which, now)
        records, last = read_within(crawl.tasks, numbers, numbers.stop - 1)
        for record in records:
            if _has_state(record, state) and _is_asked(record, which) and matches(record):
                count += 1
                if change is not None:
                    change(crawl.tasks.get(record.number))
        more = more if last == numbers.stop - 1 else last
    return Step(count, more)


def _has_state(record: TaskRecord, state: TaskState | None) -> bool:
    return not record.is_forgotten() if state is None else record.state is state


def _is_asked(record: TaskRecord, which: TaskFilter) -> bool:
    return which.state in (None, record.state)


def _span(
    crawl: CrawlEngine, which: TaskFilter, after: int, limit: int
) -> tuple[range, int | None]:
    """Return the task numbers of one step, and the next cursor; a fingerprint needs no scan."""
    if which.fingerprint is not None:
        number = crawl.tasks.find(which.fingerprint)
        return range(number or 1, (number or 0) + 1), None
    upto = min(after + limit, crawl.state.last_task)
    return range(after + 1, upto + 1), upto if upto < crawl.state.last_task else None


def matcher(crawl: HasStatus, which: TaskFilter, now: int) -> Matcher:
    """C10: return a test for tasks that match every given field, as they are shown (I3)."""
    tests = list(_tests(crawl, which, now))
    if not tests:
        return lambda _: True
    return lambda record: all(test(record) for test in tests)


def _tests(crawl: HasStatus, which: TaskFilter, now: int) -> Iterator[Matcher]:
    if which.key is not None:
        key = which.key
        yield lambda record: covers(key, record.task.key)
    for name in ("fingerprint", "url", "type", "tag"):
        wanted = getattr(which, name)
        if wanted is not None:
            yield lambda record, name=name, wanted=wanted: getattr(record.task, name) == wanted  # type: ignore[misc]
    if which.reason is not None:
        yield lambda record: shown_state(crawl, record)[1] == which.reason
    if which.pattern is not None:
        pattern = compile_pattern(which.pattern)
        yield lambda record: pattern.search(record.task.url)
    if which.older_than is not None:
        oldest = now - which.older_than * 1000
        yield lambda record: record.discovered < oldest
