"""Operators' commands: steer queues, set the crawl's status, drop, replay and purge tasks (E7).

Also how queues are addressed: the text a person writes, matched to the keys of the crawl (A4).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from msgspec.structs import replace

from outrider.core import queue_action as actions
from outrider.core.admission import fingerprint_of, url_of
from outrider.core.pattern import compile_pattern
from outrider.core.policy.queue_key import address
from outrider.core.policy.rules import covers
from outrider.core.states import UNKNOWN, CrawlStatus
from outrider.core.task import Link
from outrider.core.url import Url
from outrider.errors import InvalidInput
from outrider.frontier.context import FrontierContext
from outrider.frontier.crawls import remember_removal
from outrider.frontier.event_reporter import signature
from outrider.frontier.live_settings import LiveSettings
from outrider.frontier.reports import SuffixView
from outrider.frontier.store_calls import items_of, run_steps, steer_queues
from outrider.settings import override_of
from outrider.store.delete_crawl import delete_crawl
from outrider.store.protocol import QueueView, TaskFilter

MAX_SNOOZE: Final = 10 * 365 * 86_400.0


class QueueAddresses:
    """Finds the key or suffix that the store must match for what a person wrote."""

    def __init__(self, context: FrontierContext, settings: LiveSettings) -> None:
        self._context = context
        self._settings = settings

    async def target_of(self, text: str) -> str:
        """Return a key or suffix for the store; InvalidInput: it can match no queue.

        The exact key of an existing queue always matches it: a link may have named any key.
        """
        try:
            target = address(self._settings.queue_key, text)
        except ValueError as error:
            if await self._exists(text):
                return text
            raise InvalidInput(f"{text!r} reaches no queue: {error}") from None
        if target == text or text.startswith(".") or not await self._exists(text):
            return target
        return text

    async def filter_key(self, key: str | None) -> str | None:
        """Return the target of a task filter, which need not name a key."""
        return await self.target_of(key) if isinstance(key, str) and key else key

    async def _exists(self, key: str) -> bool:
        return is_known(await self._context.store.queue(self._context.crawl, key))


class Admin:
    """Operators' commands; each is durable when it returns."""

    def __init__(self, context: FrontierContext, addresses: QueueAddresses) -> None:
        self._context = context
        self._addresses = addresses

    def queue(self, key: str, by: str | None) -> QueueHandle:
        """See `Frontier.queue`."""
        by = self._context.actor(by)
        return QueueHandle(key, self, self._context, self._addresses, by=by)

    async def steer(self, target: str, action: actions.QueueAction, by: str | None) -> int:
        """See `Frontier.steer`."""
        context = self._context
        by = context.actor(by)
        target = await self._addresses.target_of(target) if target else target
        count = await steer_queues(context.store, context.crawl, target, action, by=by)
        await context.reporter.store_events()
        name = f"queue-{type(action).__name__.lower()}"
        context.reporter.emit(name, target=target, queues=count, **signature(by))
        return count

    async def set_status(self, status: CrawlStatus, by: str | None) -> CrawlStatus:
        """Pause, resume or cancel the crawl (I3); return its status."""
        by = self._context.actor(by)
        now = await self._context.store.set_status(self._context.crawl, status, by=by)
        await self._context.reporter.store_events()
        return now

    async def drop(self, which: TaskFilter, *, dry_run: bool, by: str | None) -> int:
        """See `Frontier.drop` (C10)."""
        which = replace(
            which,
            key=await self._addresses.filter_key(which.key),
            pattern=check_pattern(which.pattern),
            older_than=check_age(which.older_than),
        )
        if which == TaskFilter():
            raise InvalidInput("drop() needs a filter; pattern='' drops everything pending")
        return await self._change_tasks(self._context.store.drop, which, dry_run=dry_run, by=by)

    async def forget(
        self, url: str | Link | None, which: TaskFilter, *, dry_run: bool, by: str | None
    ) -> int:
        """See `Frontier.forget` (C10)."""
        which = replace(
            which,
            fingerprint=self._fingerprint(url),
            key=await self._addresses.filter_key(which.key),
            pattern=check_pattern(which.pattern),
            older_than=check_age(which.older_than),
        )
        if which == TaskFilter():
            raise InvalidInput("forget() needs a URL or a filter; pattern='' forgets every task")
        return await self._change_tasks(self._context.store.forget, which, dry_run=dry_run, by=by)

    async def delete_crawl(self, by: str | None, progress: Callable[[int], object] | None) -> int:
        """See `Frontier.delete_crawl` (I1)."""
        context = self._context
        by, store, crawl = context.actor(by), context.store, context.crawl
        view = await store.crawl(crawl)
        known = 0 if view.reason == UNKNOWN else await remember_removal(store, view, by)
        left = await delete_crawl(store, crawl, by=by, progress=progress or (lambda _: None))
        count = max(known, left)  # more than are left, if it was begun before
        context.reporter.emit("operator-delete", tasks=count, **signature(by))
        return count

    async def replay(
        self,
        url: str | Link | None,
        which: TaskFilter,
        *,
        everything: bool,
        dry_run: bool,
        by: str | None,
    ) -> int:
        """See `Frontier.replay`."""
        which = await self._dead_filter("replay", url, which, everything=everything)
        return await self._change_tasks(self._context.store.replay, which, dry_run=dry_run, by=by)

    async def purge(
        self,
        url: str | Link | None,
        which: TaskFilter,
        *,
        everything: bool,
        dry_run: bool,
        by: str | None,
    ) -> int:
        """See `Frontier.purge`."""
        which = await self._dead_filter("purge", url, which, everything=everything)
        return await self._change_tasks(self._context.store.purge, which, dry_run=dry_run, by=by)

    async def _dead_filter(
        self, verb: str, url: str | Link | None, which: TaskFilter, *, everything: bool
    ) -> TaskFilter:
        which = replace(which, fingerprint=self._fingerprint(url))
        if (which == TaskFilter()) is not everything:
            raise InvalidInput(f"{verb}() needs a URL or a filter, or all=True, and not both")
        return replace(which, key=await self._addresses.filter_key(which.key))

    def _fingerprint(self, named: str | Link | None) -> bytes | None:
        """Return what a task is known by; a text that is no URL is the identity of one."""
        if named is None:
            return None
        link = named if isinstance(named, Link) else Link(named)
        parsed = url_of(link, self._context.policies.settings.url)
        if not isinstance(parsed, Url):
            parsed = Url("", str(link.url), "")
        return fingerprint_of(link, parsed)

    async def _change_tasks(
        self, verb: Callable[..., Any], which: TaskFilter, *, dry_run: bool, by: str | None
    ) -> int:
        context = self._context
        by = context.actor(by)
        count = await run_steps(
            lambda after: verb(context.crawl, which, dry_run=dry_run, after=after, by=by)
        )
        await context.reporter.store_events()
        if not dry_run:
            context.reporter.emit(f"operator-{verb.__name__}", tasks=count, **signature(by))
        return count


class QueueHandle:
    """A queue, or all queues of a suffix: every action is durable and returns the new view."""

    def __init__(
        self,
        key: str,
        admin: Admin,
        context: FrontierContext,
        addresses: QueueAddresses,
        *,
        by: str,
    ) -> None:
        if not isinstance(key, str) or not key.strip("."):
            raise InvalidInput(f"a queue is named by its key or a suffix like '.org', not {key!r}")
        self.key = key
        self._admin = admin
        self._context = context
        self._addresses = addresses
        self._by = by

    async def set(self, **changes: Any) -> QueueView | SuffixView:
        """Change balance, total_budget, delay, max_in_flight, precedence, …; acts at once (E5)."""
        settings = self._context.policies.settings
        return await self._act(actions.Set(override_of(changes, self.key.lower(), settings)))

    async def pause(self) -> QueueView | SuffixView:
        """Lease none of its tasks until resumed."""
        return await self._act(actions.Pause())

    async def resume(self) -> QueueView | SuffixView:
        """End a pause."""
        return await self._act(actions.Resume())

    async def retire(self) -> QueueView | SuffixView:
        """Exclude it from the crawl with its tasks; the crawl can finish without it."""
        return await self._act(actions.Retire())

    async def revive(self) -> QueueView | SuffixView:
        """End a retirement, whatever its reason."""
        return await self._act(actions.Revive())

    async def snooze(self, seconds: float) -> QueueView | SuffixView:
        """Lease none of its tasks for so many seconds."""
        if not (isinstance(seconds, int | float) and math.isfinite(seconds)):
            raise InvalidInput(f"snooze({seconds!r}): seconds must be a finite number")
        if not 0 <= seconds <= MAX_SNOOZE:
            raise InvalidInput(f"snooze({seconds!r}): seconds must be from 0 to ten years")
        return await self._act(actions.Snooze(float(seconds)))

    async def wake(self) -> QueueView | SuffixView:
        """End a snooze; the delay after the last visit still applies."""
        return await self._act(actions.Wake())

    async def view(self) -> QueueView | SuffixView:
        """Return its view (E8); for a suffix, or a host with several queues, their sums."""
        return await self._view(await self._addresses.target_of(self.key))

    async def _act(self, action: actions.QueueAction) -> QueueView | SuffixView:
        target = await self._addresses.target_of(self.key)
        await self._admin.steer(target, action, self._by)
        return await self._view(target)

    async def _view(self, target: str) -> QueueView | SuffixView:
        if not target.startswith("."):
            return await self._context.store.queue(self._context.crawl, target)
        if self.key.startswith("."):
            return await self._sums(target)
        return await self._view_of_host(target)

    async def _view_of_host(self, target: str) -> QueueView | SuffixView:
        """View a host under SURT, which has a queue for each of its ports, mostly one."""
        found = [view async for view in self._covered(target)]
        if len(found) > 1:
            return await self._sums(target)
        if found:
            return found[0]
        return await self._context.store.queue(self._context.crawl, target[1:-1])

    async def _sums(self, suffix: str) -> SuffixView:
        states: Counter[str] = Counter()
        pending = in_flight = spent = 0
        async for view in self._covered(suffix):
            states[view.state.value] += 1
            pending += view.pending
            in_flight += view.in_flight
            spent += view.spent
        return SuffixView(self.key, dict(states), pending, in_flight, spent)

    async def _covered(self, suffix: str) -> AsyncIterator[QueueView]:
        store, crawl = self._context.store, self._context.crawl
        async for view in items_of(lambda after: store.queues(crawl, after=after)):
            if covers(suffix, view.key):
                yield view


def is_known(view: QueueView) -> bool:
    """Tell whether a task of this queue was ever added."""
    return bool(view.pending + view.in_flight + view.done + view.dead + view.dropped)


def check_age(older_than: float | None) -> float | None:
    """Return the seconds; InvalidInput if they are no number."""
    if older_than is not None and not isinstance(older_than, int | float):
        raise InvalidInput(f"older_than = {older_than!r}: seconds")
    return older_than


def check_pattern(pattern: str | None) -> str | None:
    """Return the regular expression; InvalidInput if it does not compile."""
    if pattern is not None:
        compile_pattern(pattern)
    return pattern
