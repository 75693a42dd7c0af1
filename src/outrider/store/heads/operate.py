"""What operators do to a crawl: acts on queues and filters over tasks, in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, assert_never

import msgspec

from outrider.clock import to_ms
from outrider.core import queue_action as actions
from outrider.core.pattern import compile_pattern
from outrider.core.policy.rules import QueueRules, acted, covers
from outrider.core.states import CrawlStatus, TaskState
from outrider.store.heads.crawl import Crawl
from outrider.store.heads.records import NEITHER, Queue, Record
from outrider.store.heads.views import Turned, reads_as
from outrider.store.protocol import Step, TaskFilter

Matcher: TypeAlias = Callable[[Record], bool]


def steer(
    crawl: Crawl, target: str, act: actions.QueueAction, now: int, *, after: int, limit: int
) -> Step:
    """E7: recorded for queues to come, applied to those that match."""
    if target and not target.startswith("."):
        return _steer_one(crawl, target, act, now)
    changes = _standing_order(act)
    if after == 0 and target and changes:
        crawl.turn_over(crawl.rules.ordered(target, changes))
    return _steer_many(crawl, target, act, now, after, limit)


def _steer_one(crawl: Crawl, target: str, act: actions.QueueAction, now: int) -> Step:
    queue, changes = crawl.queue(target), _standing_order(act)
    if changes:
        crawl.obey(crawl.rules.ordered(target, changes))
    if queue is not None:
        _apply(crawl, queue, act, now, everywhere=False)
    return Step(int(queue is not None), None)


def _steer_many(
    crawl: Crawl, target: str, act: actions.QueueAction, now: int, after: int, limit: int
) -> Step:
    count = 0
    last = after
    for queue in crawl.reached(target, after):
        if count == limit:
            return Step(count, last)
        _apply(crawl, queue, act, now, everywhere=not target)
        count, last = count + 1, queue.number
    crawl.told(everyone=not target and isinstance(act, actions.Set))
    return Step(count, None)


def _standing_order(act: actions.QueueAction) -> dict[str, Any]:
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
    crawl: Crawl, queue: Queue, act: actions.QueueAction, now: int, *, everywhere: bool
) -> None:
    rules = crawl.rules.of(queue.key)
    crawl.mark(queue)
    if isinstance(act, actions.Set):
        if not everywhere or queue.rules != rules:
            _set(crawl, queue, rules, now)
        return
    queue.rules = acted(queue.rules, rules)
    match act:
        case actions.Pause() | actions.Resume():
            queue.paused = isinstance(act, actions.Pause)
            crawl.touch(queue, now)
        case actions.Retire():
            crawl.retire(queue, "operator", now)
        case actions.Revive():
            _revive(crawl, queue, now)
        case actions.Snooze(seconds):
            queue.postpone(now + to_ms(seconds), "operator")
            crawl.settle(queue, now)
        case actions.Wake():
            queue.next_ready, queue.why = min(queue.next_ready, queue.earliest()), "delay"
            crawl.settle(queue, now)
        case _:
            assert_never(act)


def _set(crawl: Crawl, queue: Queue, rules: QueueRules, now: int) -> None:
    """E5: `set` acts at once: retires, returns, or judges anew what stands."""
    old = queue.rules
    queue.obey(rules, crawl.epoch)
    queue.keep_pace()  # D1: a lower rate counts from the last lease
    if rules.paused != old.paused:
        queue.paused = rules.paused
    if rules.retired != old.retired:
        _retire_by_rule(crawl, queue, now)
    if queue.over_budget():
        crawl.retire(queue, "budget", now)
    elif queue.retired == "budget":
        crawl.bring_back(queue, now)
    crawl.settle(queue, now)
    if queue.standing != NEITHER:
        crawl.judge_anew(queue, now)


def _retire_by_rule(crawl: Crawl, queue: Queue, now: int) -> None:
    if queue.rules.retired:
        crawl.retire(queue, "operator", now)
    elif queue.retired == "operator":
        crawl.bring_back(queue, now)


def _revive(crawl: Crawl, queue: Queue, now: int) -> None:
    queue.manners = msgspec.structs.replace(
        queue.manners, throttles_in_row=0, unreachable_in_row=0, blocks_in_row=0
    )
    queue.errors = 0
    if queue.retired is not None:
        crawl.bring_back(queue, now)


def each(
    crawl: Crawl,
    which: TaskFilter,
    state: TaskState,
    act: Callable[[Record], None] | None,
    now: int,
    *,
    after: int,
    limit: int,
) -> Step:
    """A bounded step over tasks by number; a cancelled crawl's tasks read as dropped (I3)."""
    numbers, more = _span(crawl, which, after, limit)
    count = 0
    if crawl.status is not CrawlStatus.CANCELLED:
        fits = matcher(crawl, which, now)
        for record in crawl.seen(numbers):
            if record.state is state and which.state in (None, state) and fits(record):
                count += 1
                if act is not None:
                    act(crawl.record(record.number))
    return Step(count, more)


def _span(crawl: Crawl, which: TaskFilter, after: int, limit: int) -> tuple[range, int | None]:
    """The task numbers of one step; one named task is found without a search."""
    if which.fingerprint is not None:
        number = crawl.find(which.fingerprint)
        return range(number or 1, (number or 0) + 1), None
    upto = min(after + limit, crawl.count)
    return range(after + 1, upto + 1), upto if upto < crawl.count else None


def matcher(crawl: Turned, which: TaskFilter, now: int) -> Matcher:
    """C10: all that match every field given, as they read (I3)."""
    tests = list(_tests(crawl, which, now))
    if not tests:
        return lambda _: True
    return lambda record: all(test(record) for test in tests)


def _tests(crawl: Turned, which: TaskFilter, now: int) -> Iterator[Matcher]:
    if which.key is not None:
        key = which.key
        yield lambda record: covers(key, record.task.key)
    for name in ("fingerprint", "url", "type", "tag"):
        wanted = getattr(which, name)
        if wanted is not None:
            yield lambda record, name=name, wanted=wanted: getattr(record.task, name) == wanted  # type: ignore[misc]
    if which.reason is not None:
        yield lambda record: reads_as(crawl, record)[1] == which.reason
    if which.pattern is not None:
        pattern = compile_pattern(which.pattern)
        yield lambda record: pattern.search(record.task.url)
    if which.older_than is not None:
        oldest = now - which.older_than * 1000
        yield lambda record: record.discovered < oldest
