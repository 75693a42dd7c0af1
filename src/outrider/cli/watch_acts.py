"""What the keys of the view do to a crawl; every act answers with a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider.cli.showing import duration, many
from outrider.core.states import CrawlStatus, QueueState
from outrider.errors import InvalidInput
from outrider.frontier.reports import SuffixView
from outrider.store.protocol import QueueView

if TYPE_CHECKING:
    from outrider.frontier import Frontier
    from outrider.frontier.admin import QueueHandle

SNOOZE: Final = 600.0  # seconds
LEAST_SLOW: Final = 1.0  # seconds
MOST_SLOW: Final = 86_400.0


async def turn(frontier: Frontier) -> str:
    """Pause the crawl if it runs, resume it if it is paused."""
    view = await frontier.store.crawl(frontier.crawl)
    if view.status is CrawlStatus.PAUSED:
        return f"the crawl is {await frontier.resume()}"
    status = await frontier.pause()
    if status is CrawlStatus.PAUSED:
        return "the crawl is paused: it lends nothing until P is pressed again"
    raise InvalidInput(f"a crawl that is {status} cannot be paused")


async def pause(frontier: Frontier, key: str) -> str:
    """Pause a host, or resume it."""
    queue = _one(frontier, key)
    if _view(await queue.view()).state is QueueState.PAUSED:
        return f"{key}: resumed, {_is(await queue.resume())}"
    return f"{key}: paused, {_is(await queue.pause())}"


async def retire(frontier: Frontier, key: str) -> str:
    """Set a host aside."""
    view = _view(await _one(frontier, key).retire())
    return f"{key}: {_is(view)}; {many(view.pending, 'task')} held, R revives it"


async def revive(frontier: Frontier, key: str) -> str:
    """Bring a host back."""
    return f"{key}: revived, {_is(await _one(frontier, key).revive())}"


async def snooze(frontier: Frontier, key: str) -> str:
    """Leave a host alone for ten minutes."""
    view = _view(await _one(frontier, key).snooze(SNOOZE))
    return f"{key}: left alone for {duration(SNOOZE)}, {_is(view)}"


async def wake(frontier: Frontier, key: str) -> str:
    """End a host's snooze; the delay after its last visit is still kept."""
    view = _view(await _one(frontier, key).wake())
    soon = f", in {duration(view.wakes_in)}" if view.wakes_in else ""
    return f"{key}: woken, {_is(view)}{soon}"


class Pace:
    """Hosts slowed and let go again; a queue shows a new delay only after its next visit."""

    def __init__(self) -> None:
        self._usual: dict[str, float] = {}
        self._slowed: dict[str, float] = {}

    async def slow(self, frontier: Frontier, key: str) -> str:
        """Twice its delay, at least a second."""
        queue = _one(frontier, key)
        usual = self._usual.setdefault(key, _view(await queue.view()).delay)
        delay = 2 * self._slowed.get(key, usual)
        return await self._set(queue, min(MOST_SLOW, max(LEAST_SLOW, delay)))

    async def hasten(self, frontier: Frontier, key: str) -> str:
        """Half of what it was slowed to; never faster than the crawl's own rules."""
        queue, delay = _one(frontier, key), self._slowed.get(key, 0.0) / 2
        if delay > max(LEAST_SLOW, self._usual.get(key, 0.0)):
            return await self._set(queue, delay)
        await queue.set(delay=None, delay_to=None)
        self._usual.pop(key, None)
        self._slowed.pop(key, None)
        return f"{key}: back to the delay that the crawl's rules say"

    async def _set(self, queue: QueueHandle, delay: float) -> str:
        await queue.set(delay=delay, delay_to=-1.0)
        self._slowed[queue.key] = delay
        return f"{queue.key}: {duration(delay)} between visits, from the next one on"


def _one(frontier: Frontier, key: str) -> QueueHandle:
    """A dot before a key would mean all hosts under it."""
    if key.startswith("."):
        raise InvalidInput(f"{key}: begins with a dot, so acts would reach more than this queue")
    return frontier.queue(key)


def _view(view: QueueView | SuffixView) -> QueueView:
    assert isinstance(view, QueueView)  # noqa: S101 - of a key, not of a suffix
    return view


def _is(view: QueueView | SuffixView) -> str:
    one = _view(view)
    return f"{one.state}" + (f" ({one.reason})" if one.reason else "")
