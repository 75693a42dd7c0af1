"""Reading a crawl: counters, queues, tasks, dead letters; and why a URL is where it is.

Nothing here changes the crawl (E8, G2, O2, O4, O5).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import msgspec

from outrider.core.admission import fingerprint_of, url_of
from outrider.core.breakdown import Breakdown
from outrider.core.pattern import compile_pattern
from outrider.core.policy.link_types import describe_giver
from outrider.core.policy.politeness import (
    Politeness,
    draws_at_start,
    min_delay_between,
    pace,
)
from outrider.core.policy.rules import covers
from outrider.core.policy.score import breakdown_of
from outrider.core.policy.weights import BONUSES, setting_of, weights_of
from outrider.core.states import (
    RETIRED_REASONS,
    SNOOZED_REASONS,
    CrawlStatus,
    QueueState,
    TaskState,
)
from outrider.core.task import Added, Link
from outrider.core.url import Url
from outrider.core.worker_totals import WorkerTotals
from outrider.errors import InvalidInput
from outrider.frontier.add import Adder
from outrider.frontier.admin import QueueAddresses, check_age, check_pattern, is_known
from outrider.frontier.context import FrontierContext
from outrider.frontier.live_settings import LiveSettings
from outrider.frontier.queue_sampler import SAMPLED_BY, QueueSampler
from outrider.frontier.reports import (
    DeadLetter,
    Explanation,
    Heatmap,
    QueueSample,
    Reason,
    Stats,
    Term,
    bounded_groups,
    dead_letter,
)
from outrider.frontier.store_calls import items_of
from outrider.store.protocol import (
    CrawlView,
    LeaseFilter,
    QueuePosition,
    QueueView,
    TaskFilter,
    TaskView,
    Upcoming,
    WorkerView,
)
from outrider.store.queue_order import QueueOrder

MAX_UPCOMING: Final = 1000
MAX_SPAN: Final = 1000  # task numbers that are looked at together
SAMPLE_PAGES: Final = 10  # evenly spread, to estimate a place in the whole crawl
SAMPLE_SIZE: Final = 200  # tasks per page of the sample
MAX_SORTED: Final = 10_000  # queues that are sorted here, by what no store sorts them
FIRST_PAGE: Final = 250  # queues of a list in a store's order; later pages are longer
LAST_PAGE: Final = 2000
ORDERS: Final[dict[str, QueueOrder]] = {"key": "key", "wakes_in": "wake"}
MIN_VISITS: Final = 10  # so few visits say nothing about a crawl's pace


class QueueFilter(msgspec.Struct, frozen=True):
    """Selects the queues that match every field given (E8)."""

    state: str | None = None
    reason: str | None = None
    key: str | None = None  # a key, or a suffix, as in `TaskFilter`
    pattern: str | None = None  # searched in the key
    min_spent: int | None = None
    min_errors: int | None = None  # in a row


class Reader:
    """Reads counters and lists; all long lists are read in bounded pages."""

    def __init__(self, context: FrontierContext, addresses: QueueAddresses, adder: Adder) -> None:
        self._context = context
        self._addresses = addresses
        self._adder = adder
        self._sampler = QueueSampler(context)

    async def stats(self) -> Stats:
        """See `Frontier.stats`."""
        context = self._context
        view = await context.store.crawl(context.crawl)
        fields = {name: getattr(view, name) for name in view.__struct_fields__}
        fields = {
            name: _sort_names(value) for name, value in (fields | bounded_groups(view)).items()
        }
        fields |= {"queues": dict(view.queues), "bands": dict(view.bands)}  # in their own order
        return Stats(
            **fields,
            refused=dict(self._adder.refused),
            bypassed=context.policies.admission.bypassed,
        )

    async def why(self, limit: int) -> list[Reason]:
        """See `Frontier.why` (I2)."""
        view = await self._context.store.crawl(self._context.crawl)
        reasons, unexplained = [], view.pending - view.held
        is_ended = view.status in (CrawlStatus.FINISHED, CrawlStatus.CANCELLED)
        if self._context.policies.settings.crawl.stay_open and not is_ended:
            reasons.append(Reason("open", "", "kept open by crawl.stay_open"))
        if view.leased:
            reasons.append(Reason("leased", "", f"{view.leased} visits are in flight"))
        if not unexplained:
            return reasons
        async for queue in self.queues(QueueFilter(), sort=None, reverse=False, prefix=None):
            if queue.pending and queue.state is not QueueState.RETIRED:
                reasons.append(_reason(queue))
                unexplained -= queue.pending
            if len(reasons) >= limit or unexplained <= 0:
                break
        return reasons

    async def worker_totals(self) -> WorkerTotals:
        """See `Frontier.worker_totals` (M6)."""
        return await self._context.store.worker_totals(self._context.crawl)

    async def workers(self) -> list[WorkerView]:
        """See `Frontier.workers` (M6)."""
        return await self._context.store.workers(self._context.crawl)

    async def heatmap(self) -> Heatmap:
        """See `Frontier.heatmap`."""
        heat = await self._context.store.heatmap(self._context.crawl)
        return Heatmap(heat.total, _sort_names(heat.cells), heat.depth, heat.updated_at)

    async def queues(
        self, which: QueueFilter, *, sort: str | None, reverse: bool, prefix: str | None
    ) -> AsyncIterator[QueueView]:
        """See `Frontier.queues`."""
        _check_sort(sort, prefix)
        fits = _queue_matcher(which)  # raises before anything is read
        target = await self._addresses.filter_key(which.key)
        if sort in ORDERS:
            views = self._in_order(ORDERS[sort], prefix or "")
        elif target and not target.startswith("."):
            views = self._one_queue(target)
        else:
            context = self._context
            views = items_of(lambda after: context.store.queues(context.crawl, after=after))
        matching = _matching_queues(views, lambda view: covers(target or "", view.key), fits)
        async for view in _sorted(matching, sort, reverse=reverse):
            yield view

    async def _one_queue(self, key: str) -> AsyncIterator[QueueView]:
        view = await self._context.store.queue(self._context.crawl, key)
        if is_known(view):
            yield view

    async def _in_order(self, order: QueueOrder, prefix: str) -> AsyncIterator[QueueView]:
        """Read queues in an order of the store; the first pages are short, for the first ones."""
        context, size = self._context, FIRST_PAGE
        after: str | None = ""
        while after is not None:
            page = await context.store.queues_in_order(
                context.crawl, order, prefix=prefix, after=after, limit=size
            )
            after, size = page.after, min(2 * size, LAST_PAGE)
            for view in page.items:
                yield view
            await asyncio.sleep(0)

    async def worst_queues(self, by: str, limit: int) -> QueueSample:
        """See `Frontier.worst_queues`."""
        return await self._sampler.worst(by, limit)

    async def upcoming(self, key: str, limit: int) -> list[Upcoming]:
        """See `Frontier.upcoming`."""
        if type(limit) is not int or not 0 < limit <= MAX_UPCOMING:
            raise InvalidInput(f"upcoming(limit={limit!r}): a whole number, 1 to {MAX_UPCOMING}")
        return await self._context.store.upcoming(self._context.crawl, key, limit=limit)

    async def tasks(self, which: TaskFilter, state: str | None) -> AsyncIterator[TaskView]:
        """See `Frontier.tasks`."""
        which = msgspec.structs.replace(
            which,
            key=await self._addresses.filter_key(which.key),
            state=None if state is None else task_state(state),
            pattern=check_pattern(which.pattern),
            older_than=check_age(which.older_than),
        )
        async for view in self._matching(which):
            yield view

    async def dead(self, which: TaskFilter) -> AsyncIterator[DeadLetter]:
        """See `Frontier.dead`."""
        by_key = await self._addresses.filter_key(which.key)
        async for view in self._matching(
            msgspec.structs.replace(which, state=TaskState.DEAD, key=by_key)
        ):
            yield dead_letter(view)

    async def dead_by_reason(self) -> dict[str, int]:
        """See `Frontier.dead_by_reason`."""
        return dict(Counter([letter.reason async for letter in self.dead(TaskFilter())]))

    def _matching(self, which: TaskFilter) -> AsyncIterator[TaskView]:
        """Return matching tasks; those of one queue are read without looking at others.

        The age of a task is the store's to tell: its clock is not the one of this process.
        """
        context = self._context
        if which.state is TaskState.LEASED:
            return self._leased(which)
        if which.key and not which.key.startswith(".") and which.older_than is None:
            return self._in_queue(which.key, which)
        return items_of(lambda after: context.store.tasks(context.crawl, which, after=after))

    async def _leased(self, which: TaskFilter) -> AsyncIterator[TaskView]:
        """Return leased tasks in order of their numbers; only those near them are looked at."""
        store, crawl = self._context.store, self._context.crawl
        by_key = LeaseFilter(key=which.key)
        views = items_of(lambda after: store.leases(crawl, by_key, after=after))
        numbers = sorted([view.lease.task async for view in views])
        while numbers:
            span = [number for number in numbers[:MAX_SPAN] if number < numbers[0] + MAX_SPAN]
            wanted, after = set(span), span[0] - 1
            while after < span[-1]:
                page = await store.tasks(crawl, which, after=after, limit=span[-1] - after)
                for view in page.items:
                    if view.number in wanted:
                        yield view
                after = span[-1] if page.after is None else page.after
            numbers = numbers[len(span) :]

    async def _in_queue(self, key: str, which: TaskFilter) -> AsyncIterator[TaskView]:
        context, fits = self._context, _matcher(which)
        async for view in items_of(
            lambda after: context.store.queue_tasks(
                context.crawl, key, state=which.state, after=after
            )
        ):
            if view.key == key and fits(view):
                yield view


def _matcher(which: TaskFilter) -> Callable[[TaskView], bool]:
    """Return a test for what a filter asks besides key, state and age."""
    fields = ("type", "tag", "reason")
    wanted = {name: getattr(which, name) for name in fields if getattr(which, name) is not None}
    pattern = None if which.pattern is None else compile_pattern(which.pattern)

    def fits(view: TaskView) -> bool:
        if pattern is not None and not pattern.search(view.url):
            return False
        return all(getattr(view, name) == value for name, value in wanted.items())

    return fits


class Explainer:
    """Explains a URL: identity, admission, every term of its priority, place, time (O4)."""

    def __init__(self, context: FrontierContext, settings: LiveSettings) -> None:
        self._context = context
        self._settings = settings

    async def explain(self, url: str | Link) -> Explanation:
        """See `Frontier.explain`."""
        link = url if isinstance(url, Link) else Link(url)
        parsed = url_of(link, self._context.policies.settings.url)
        if not isinstance(parsed, Url):
            return Explanation(str(link.url)[:200], None, None, parsed.reason, parsed.detail)
        mark = fingerprint_of(link, parsed)
        known = await self._context.store.task(self._context.crawl, mark)
        if known is None:
            return await self._explain_unknown(link, parsed)
        return await self._explain_known(parsed, known)

    async def _explain_unknown(self, link: Link, url: Url) -> Explanation:
        policies = self._context.policies
        # A copy: a question must count neither as a bypass nor as a scored link.
        admission = msgspec.structs.replace(policies.admission, scorer=policies.scorer.inner)
        (answer,) = admission.admit([link], are_seeds=False)
        if isinstance(answer, Added):
            mark, reason = fingerprint_of(link, url).hex(), answer.reason or ""
            return Explanation(url.text, url.identity, mark, reason, answer.detail)
        breakdown = breakdown_of(answer)
        return Explanation(
            url.text,
            url.identity,
            answer.fingerprint.hex(),
            "admissible",
            None,
            breakdown=breakdown,
            queue=await self._context.store.queue(self._context.crawl, answer.key),
            terms=self._terms(breakdown, answer.type, answer.origin),
            type=answer.type,
            typed_by=self._typed_by(answer.typed_by, answer.type),
        )

    async def _explain_known(self, url: Url, task: TaskView) -> Explanation:
        position = await self._context.store.position(self._context.crawl, task.number)
        explanation = Explanation(
            url.text,
            url.identity,
            task.fingerprint.hex(),
            "known",
            task.reason,
            task,
            task.breakdown,
            position.queue,
            terms=self._terms(task.breakdown, task.type, task.origin),
            type=task.type,
            typed_by=self._typed_by(task.typed_by, task.type),
        )
        if task.state is not TaskState.PENDING:
            return explanation
        return await self._with_place(explanation, task, position)

    def _typed_by(self, by: str, kind: str) -> str:
        return describe_giver(by, kind, self._context.policies.settings.types)

    # ---- terms

    def _terms(self, breakdown: Breakdown, kind: str, origin: str) -> tuple[Term, ...]:
        """Return each term with the setting that gave it its weight, and that setting's origin."""
        return tuple(self._term(name, value, kind, origin) for name, value in breakdown.terms)

    def _term(self, name: str, value: float, kind: str, origin: str) -> Term:
        setting = setting_of(name, kind, origin, self._context.policies.settings.scoring)
        if setting is None:
            return Term(name, value)
        path = tuple(setting.split(".", 2))
        said_by = self._settings.origins.get(path, "default")
        return Term(name, value, setting, self._weight(path), said_by)

    def _weight(self, path: tuple[str, ...]) -> Any:
        settings = self._context.policies.settings
        section, name, *entry = path
        if not entry:
            return getattr(getattr(settings, section), name)
        scoring = settings.scoring
        known = weights_of(scoring) if name == "weights" else {**BONUSES, **scoring.bonuses}
        return known.get(entry[0])

    # ---- place and time

    async def _with_place(
        self, explanation: Explanation, task: TaskView, position: QueuePosition
    ) -> Explanation:
        view = await self._context.store.crawl(self._context.crawl)
        across = max(position.ahead, await self._across(task, view))
        return msgspec.structs.replace(
            explanation,
            place=position.ahead,
            across=across,
            expected_in=self._expected_in(task, position, across, view),
        )

    async def _across(self, task: TaskView, view: CrawlView) -> int:
        """Estimate how many pending tasks of the crawl come before it, from a sample."""
        seen = before = 0
        own = (task.precedence, task.priority, task.number)
        for part in range(SAMPLE_PAGES):
            which = TaskFilter(state=TaskState.PENDING)
            page = await self._context.store.tasks(
                self._context.crawl,
                which,
                after=view.known * part // SAMPLE_PAGES,
                limit=SAMPLE_SIZE,
            )
            seen += len(page.items)
            before += sum((o.precedence, o.priority, o.number) < own for o in page.items)
            if view.known <= SAMPLE_SIZE:
                break
        return round(before / seen * view.pending) if seen else 0

    def _expected_in(
        self, task: TaskView, position: QueuePosition, across: int, view: CrawlView
    ) -> float | None:
        """Estimate at its queue's own pace, or at the crawl's so far if that is slower."""
        queue = position.queue
        if queue.state in (QueueState.RETIRED, QueueState.PAUSED):
            return None
        now = self._context.clock.now_ms() / 1000
        rules = self._context.policies.settings.politeness
        alone = _seconds_alone(task, position.ahead, queue, now, rules)
        age = now - view.created_at
        is_known = view.visits > MIN_VISITS and age > 0
        return max(alone, across * age / view.visits) if is_known else alone


def _seconds_alone(
    task: TaskView, ahead: int, queue: QueueView, now: float, rules: Politeness
) -> float:
    """Return the seconds until a task's visit if its queue were the only one."""
    gap = max(queue.delay / queue.max_in_flight, _min_gap(queue, rules))
    starts = max(queue.wakes_in or 0.0, (task.due_at or now) - now)
    return max(0.0, starts) + ahead * gap


def _min_gap(queue: QueueView, rules: Politeness) -> float:
    """Return the seconds between two leases of a queue, however many visits overlap (D1)."""
    if draws_at_start(rules):
        return queue.delay
    # The queue's own rules may be faster than those of the crawl, and its last delay tells so.
    return max(pace(rules), min(queue.delay, min_delay_between(rules, 0.0)))


def _reason(queue: QueueView) -> Reason:
    when = f", {queue.wakes_in:.1f} s to go" if queue.wakes_in else ""
    why = f" ({queue.reason})" if queue.reason else ""
    return Reason(queue.state.value, queue.key, f"{queue.pending} pending{why}{when}")


def _queue_matcher(which: QueueFilter) -> Callable[[QueueView], bool]:
    """Return a test for what a filter asks besides the key; InvalidInput if it is not valid."""
    state = None if which.state is None else _queue_state(which.state)
    pattern = None if which.pattern is None else compile_pattern(which.pattern)
    reason = _queue_reason(which.reason)
    spent = _least("min_spent", which.min_spent)
    errors = _least("min_errors", which.min_errors)

    def fits(view: QueueView) -> bool:
        return (
            (state is None or view.state is state)
            and (reason is None or view.reason == reason)
            and view.spent >= spent
            and view.errors_in_row >= errors
            and (pattern is None or pattern.search(view.key))
        )

    return fits


def _queue_reason(name: str | None) -> str | None:
    known = tuple(dict.fromkeys((*RETIRED_REASONS, *SNOOZED_REASONS)))
    if name not in (None, *known):
        raise InvalidInput(f"reason = {name!r}: one of {', '.join(known)}")
    return name


def _least(name: str, value: int | None) -> int:
    if value is not None and (type(value) is not int or value < 0):
        raise InvalidInput(f"queues({name}={value!r}): a whole number, 0 or more")
    return value or 0


async def _matching_queues(
    views: AsyncIterator[QueueView], *tests: Callable[[QueueView], bool]
) -> AsyncIterator[QueueView]:
    async for view in views:
        if all(test(view) for test in tests):
            yield view


def _sorted(
    views: AsyncIterator[QueueView], sort: str | None, *, reverse: bool
) -> AsyncIterator[QueueView]:
    """Sort what the store does not; only queues that match count towards the maximum."""
    if sort in SAMPLED_BY:
        return _sort_views(views, sort, reverse=reverse)
    return _reversed(views, sort) if sort is not None and reverse else views


def _check_sort(sort: str | None, prefix: str | None) -> None:
    if sort not in (None, *ORDERS, *SAMPLED_BY):
        raise InvalidInput(f"queues(sort={sort!r}): one of {', '.join((*ORDERS, *SAMPLED_BY))}")
    if prefix is not None and sort != "key":
        raise InvalidInput(f"queues(prefix={prefix[:50]!r}): it goes with sort='key' alone")


async def _all_of(views: AsyncIterator[QueueView], asked: str, fix: str) -> list[QueueView]:
    """Return all queues; raise if they are too many to be sorted here."""
    every: list[QueueView] = []
    async for view in views:
        every.append(view)
        if len(every) > MAX_SORTED:
            raise InvalidInput(f"{asked} sorts at most {MAX_SORTED:,} queues; {fix}")
    return every


async def _reversed(views: AsyncIterator[QueueView], sort: str) -> AsyncIterator[QueueView]:
    asked = f"queues(sort={sort!r}, reverse=True)"
    for view in reversed(await _all_of(views, asked, "leave reverse out")):
        yield view


async def _sort_views(
    views: AsyncIterator[QueueView], sort: str, *, reverse: bool
) -> AsyncIterator[QueueView]:
    every = await _all_of(views, f"queues(sort={sort!r})", f"use worst_queues({sort!r})")
    for view in sorted(every, key=SAMPLED_BY[sort], reverse=reverse):
        yield view


def _queue_state(name: str) -> QueueState:
    try:
        return QueueState(name)
    except ValueError:
        raise InvalidInput(f"state = {name!r}: one of {', '.join(QueueState)}") from None


def task_state(name: str) -> TaskState:
    """Return the state of that name; InvalidInput if there is none."""
    try:
        return TaskState(name)
    except ValueError:
        raise InvalidInput(f"state = {name!r}: one of {', '.join(TaskState)}") from None


def _sort_names(value: Any) -> Any:
    """Sort counters by name, so that reports of different stores can be compared."""
    if not isinstance(value, Mapping):
        return value
    return {name: _sort_names(value[name]) for name in sorted(value)}
