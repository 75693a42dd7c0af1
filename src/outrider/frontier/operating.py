"""What operators do through a frontier: steer queues, turn the crawl, drop, replay, purge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from outrider.core.pattern import compile_pattern
from outrider.core.queue_action import QueueAction
from outrider.core.states import CrawlStatus
from outrider.core.url import Url, fingerprint, parse_url
from outrider.errors import InvalidInput
from outrider.frontier.addressing import filter_key_of, target_of
from outrider.frontier.footing import Footing
from outrider.frontier.pages import stepped
from outrider.store.protocol import TaskFilter


class Operator(Footing):
    """The steering half of a frontier; every act is durable before it is answered."""

    async def steer(self, target: str, act: QueueAction) -> int:
        """Apply an operator's act in bounded steps; answers how many queues it reached.

        `target` is a key, a host or a suffix, or empty for every queue; one that can reach none
        under the crawl's keying is refused.
        """
        target = await target_of(self, target) if target else target
        count = 0
        async for step in stepped(
            lambda after: self.store.steer(self.crawl, target, act, after=after)
        ):
            count += step.count
        self._stirred.set()
        await self._teller.changed()
        self._teller.tell(f"queue-{type(act).__name__.lower()}", target=target, queues=count)
        return count

    async def pause(self) -> CrawlStatus:
        """Lend nothing until resumed; answers the status."""
        return await self._turn(CrawlStatus.PAUSED)

    async def resume(self) -> CrawlStatus:
        """Go on; answers the status."""
        return await self._turn(CrawlStatus.RUNNING)

    async def cancel(self) -> CrawlStatus:
        """End the crawl for good: what is pending or leased reads as dropped (I3)."""
        return await self._turn(CrawlStatus.CANCELLED)

    async def _turn(self, status: CrawlStatus) -> CrawlStatus:
        now = await self.store.set_status(self.crawl, status)
        self._stirred.set()
        await self._teller.changed()
        return now

    async def drop(
        self,
        *,
        key: str | None = None,
        pattern: str | None = None,
        type: str | None = None,
        tag: str | None = None,
        older_than: float | None = None,
        dry_run: bool = False,
    ) -> int:
        """Drop the pending tasks that match everything given; answers how many (C10)."""
        which = TaskFilter(
            key=await filter_key_of(self, key),
            pattern=checked_pattern(pattern),
            type=type,
            tag=tag,
            older_than=checked_age(older_than),
        )
        if which == TaskFilter():
            raise InvalidInput("drop() needs a filter; pattern='' drops everything pending")
        return await self._each(self.store.drop, which, dry_run=dry_run)

    async def replay(
        self,
        url: str | None = None,
        *,
        reason: str | None = None,
        type: str | None = None,
        key: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> int:
        """Dead tasks become pending again, attempts at 0; answers how many."""
        which = await self._which_dead("replay", url, reason, type, key, everything=all)
        return await self._each(self.store.replay, which, dry_run=dry_run)

    async def purge(
        self,
        url: str | None = None,
        *,
        reason: str | None = None,
        type: str | None = None,
        key: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> int:
        """Dead tasks become dropped; answers how many."""
        which = await self._which_dead("purge", url, reason, type, key, everything=all)
        return await self._each(self.store.purge, which, dry_run=dry_run)

    async def _which_dead(
        self,
        verb: str,
        url: str | None,
        reason: str | None,
        kind: str | None,
        key: str | None,
        *,
        everything: bool,
    ) -> TaskFilter:
        which = TaskFilter(reason=reason, type=kind, key=key, fingerprint=self._fingerprint(url))
        if (which == TaskFilter()) is not everything:
            raise InvalidInput(f"{verb}() needs a URL or a filter, or all=True, and not both")
        return replace(which, key=await filter_key_of(self, key))

    def _fingerprint(self, url: str | None) -> bytes | None:
        if url is None:
            return None
        parsed = parse_url(url, self._settings.url)
        return fingerprint(parsed.identity if isinstance(parsed, Url) else url)

    async def _each(self, call: Callable[..., Any], which: TaskFilter, *, dry_run: bool) -> int:
        count = 0
        async for step in stepped(
            lambda after: call(self.crawl, which, dry_run=dry_run, after=after)
        ):
            count += step.count
        self._stirred.set()
        await self._teller.changed()
        if not dry_run:
            self._teller.tell(f"operator-{call.__name__}", tasks=count)
        return count


def checked_age(older_than: float | None) -> float | None:
    """Seconds, or a clear refusal."""
    if older_than is not None and not isinstance(older_than, int | float):
        raise InvalidInput(f"older_than = {older_than!r}: seconds")
    return older_than


def checked_pattern(pattern: str | None) -> str | None:
    """A regular expression that compiles, or a clear refusal."""
    if pattern is not None:
        compile_pattern(pattern)
    return pattern
