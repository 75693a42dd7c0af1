"""What the keys of the live view do to a crawl; every action returns a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider.cli.terminal import format_count, format_duration
from outrider.core.states import CrawlStatus, QueueState
from outrider.errors import InvalidInput
from outrider.frontier.reports import SuffixView
from outrider.store.protocol import QueueView

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.frontier.admin import QueueHandle


SNOOZE: Final = 600.0  # seconds
MIN_DELAY: Final = 1.0  # seconds
MAX_DELAY: Final = 86_400.0


async def toggle_crawl(frontier: Frontier) -> str:
    """Pause the crawl if it runs, resume it if it is paused."""
    view = await frontier.store.crawl(frontier.crawl)
    if view.status is CrawlStatus.PAUSED:
        return f"the crawl is {await frontier.resume()}"
    status = await frontier.pause()
    if status is CrawlStatus.PAUSED:
        return "the crawl is paused: no tasks are leased until P is pressed again"
    raise InvalidInput(f"a crawl that is {status} cannot be paused")


async def toggle_host(frontier: Frontier, key: str) -> str:
    """Pause a host, or resume it."""
    queue = _queue_of(frontier, key)
    if _queue_view(await queue.view()).state is QueueState.PAUSED:
        return f"{key}: resumed, {_state_text(await queue.resume())}"
    return f"{key}: paused, {_state_text(await queue.pause())}"


async def retire_host(frontier: Frontier, key: str) -> str:
    """Retire a host."""
    view = _queue_view(await _queue_of(frontier, key).retire())
    return f"{key}: {_state_text(view)}; {format_count(view.pending, 'task')} held, R revives it"


async def revive_host(frontier: Frontier, key: str) -> str:
    """Revive a host."""
    return f"{key}: revived, {_state_text(await _queue_of(frontier, key).revive())}"


async def snooze_host(frontier: Frontier, key: str) -> str:
    """Snooze a host for ten minutes."""
    view = _queue_view(await _queue_of(frontier, key).snooze(SNOOZE))
    return f"{key}: snoozed for {format_duration(SNOOZE)}, {_state_text(view)}"


async def wake_host(frontier: Frontier, key: str) -> str:
    """End a host's snooze; the delay after its last visit still applies."""
    view = _queue_view(await _queue_of(frontier, key).wake())
    soon = f", in {format_duration(view.wakes_in)}" if view.wakes_in else ""
    return f"{key}: woken, {_state_text(view)}{soon}"


class HostDelays:
    """Delays that keys have set; a queue shows a new delay only after its next visit."""

    def __init__(self) -> None:
        self._usual: dict[str, float] = {}
        self._slowed: dict[str, float] = {}

    async def slow(self, frontier: Frontier, key: str) -> str:
        """Double the delay, to at least a second."""
        queue = _queue_of(frontier, key)
        usual = self._usual.setdefault(key, _queue_view(await queue.view()).delay)
        delay = 2 * self._slowed.get(key, usual)
        return await self._set(queue, min(MAX_DELAY, max(MIN_DELAY, delay)))

    async def speed_up(self, frontier: Frontier, key: str) -> str:
        """Halve the delay that was set; never below the crawl's own rules."""
        queue, delay = _queue_of(frontier, key), self._slowed.get(key, 0.0) / 2
        if delay > max(MIN_DELAY, self._usual.get(key, 0.0)):
            return await self._set(queue, delay)
        await queue.set(delay=None, delay_to=None)
        self._usual.pop(key, None)
        self._slowed.pop(key, None)
        return f"{key}: back to the delay of the crawl's rules"

    async def _set(self, queue: QueueHandle, delay: float) -> str:
        await queue.set(delay=delay, delay_to=-1.0)
        self._slowed[queue.key] = delay
        return f"{queue.key}: {format_duration(delay)} between visits, from the next one on"


def _queue_of(frontier: Frontier, key: str) -> QueueHandle:
    """The handle of one queue; raises InvalidInput for a key that addresses several."""
    if key.startswith("."):
        raise InvalidInput(f"{key}: begins with a dot, so it would address more than this queue")
    return frontier.queue(key)


def _queue_view(view: QueueView | SuffixView) -> QueueView:
    assert isinstance(view, QueueView)  # noqa: S101 - a key, not a suffix
    return view


def _state_text(view: QueueView | SuffixView) -> str:
    one = _queue_view(view)
    return f"{one.state}" + (f" ({one.reason})" if one.reason else "")
