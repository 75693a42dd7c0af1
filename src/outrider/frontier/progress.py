"""Recording the progress of a crawl: whichever worker is at work takes a sample now and then (O1).

There is no leader and no timer: claims and finishes look at the clock. A sample is a shared value
in a slot, written over the one that was seen there, so that of many workers one writes it. The
worker that wrote the last one continues; the others wait somewhat longer, and write only if it is
silent. A sample is taken at every interval, when work begins again and when the crawl stops
running, and when this frontier is closed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from zlib import crc32

from outrider.core.progress import (
    IDLE_INTERVAL,
    INTERVAL,
    Progress,
    ProgressHistory,
    ProgressSample,
    with_now,
)
from outrider.core.states import DELETING, CrawlStatus
from outrider.errors import OutriderError
from outrider.frontier.context import FrontierContext
from outrider.frontier.live_settings import LiveSettings
from outrider.frontier.shared_state import PROGRESS, SharedState, encode, sample_of_value
from outrider.frontier.store_calls import run_inline, values_of
from outrider.store.protocol import CrawlView, FullStore, SharedValueWrite

GRACE: Final = (2500, 7500)  # milliseconds that other workers wait longer, at least and at most
MANY_GROUPS: Final = 1000  # types and tags; of more the counters take long to read
_INTERVAL_MS: Final = round(INTERVAL * 1000)
_MAX_STRETCH: Final = 12  # at least one sample a minute, however many types and tags


class ProgressRecorder:
    """Takes samples while tasks of this frontier are claimed and finished."""

    def __init__(
        self, context: FrontierContext, shared: SharedState, settings: LiveSettings
    ) -> None:
        self._context = context
        self._shared = shared
        self._settings = settings
        low, high = GRACE
        self._grace = low + crc32(context.worker.encode()) % (high - low)
        self._since: int | None = None  # when work began; None: the crawl is not running
        # When to look again whether a sample is due, by this process's clock; 0: work begins.
        self._due = 0
        self._number = 0  # of the last sample that this frontier wrote
        self._is_taking = False
        self._has_news = False  # visits were finished since the last sample
        self._stretch = 1

    # ---- claims and finishes

    def claimed(self, status: CrawlStatus) -> None:
        """Take note of a claim, and of the crawl's status that it returned."""
        if status is CrawlStatus.RUNNING:
            if (now := self._context.clock.now_ms()) >= self._due:
                self._work(now)
        elif self._since is not None:
            since, self._since, self._due = self._since, None, 0
            if self._has_news:
                self._start(since)

    def finished(self) -> None:
        """Take note of visits that were finished."""
        self._has_news = True
        if (now := self._context.clock.now_ms()) >= self._due:
            self._work(now)

    def _work(self, now: int) -> None:
        if self._since is None:
            self._since, self._due = self._shared.store_ms(), now + _INTERVAL_MS
            last = self._shared.progress.last
            if last is not None and self._since - last.at * 1000 > _INTERVAL_MS + GRACE[1]:
                self._start(self._since)  # visits before a kill belong to no time of work
        else:
            self._due = now + self._wait()
            if self._due <= now:
                self._due = now + _INTERVAL_MS * self._stretch
                self._start(self._since)

    def _wait(self) -> int:
        """Return the milliseconds until a sample is due; 0: it is now."""
        last, now = self._shared.progress.last, self._shared.store_ms()
        if last is None:
            return 0
        is_own = self._number == self._shared.last_number(PROGRESS)
        wait = _INTERVAL_MS * self._stretch + (0 if is_own else self._grace)
        elapsed = now - round(last.at * 1000)
        return wait - elapsed if 0 <= elapsed < wait else 0

    def _start(self, since: int) -> None:
        """Take a sample beside the caller, or at once where that needs no task."""
        if self._is_taking or self._context.is_closing or not self._context.is_open:
            return
        work = self._take(since)
        if self._context.store.is_inline:
            run_inline(work)
        else:
            self._context.background.run(work)

    async def close(self) -> None:
        """Take the last sample of this frontier, if it did something since the one before."""
        since, self._since = self._since, None
        if since is not None and self._has_news and self._shared.progress.last is not None:
            await self._take(since)

    # ---- a sample

    async def _take(self, since: int) -> None:
        """Write a sample, unless another worker does; what fails is done at the next interval."""
        self._is_taking = True
        try:
            with suppress(OutriderError):
                await self._write(since)
        finally:
            self._is_taking = False

    async def _write(self, since: int) -> None:
        context, history = self._context, self._shared.progress
        now = await self._shared.store_now()
        view = await context.store.crawl(context.crawl)
        self._stretch = _stretch(view)
        if not view.known or view.reason == DELETING:
            return
        last, at = history.last, now / 1000
        active = (last.active if last else 0.0) + _active(last, since, now)
        sample = sample_of_view(view, at, active)
        if last is not None and sample.is_same(last) and 0 <= at - last.at < IDLE_INTERVAL:
            return
        self._has_news = False
        text, number_of = encode(sample), self._shared.number
        slots = [(slot, number_of(PROGRESS, slot)) for slot in history.slots_of(at)]
        numbers = await self._shared.publish(
            [SharedValueWrite(PROGRESS, slot, text, seen) for slot, seen in slots]
        )
        if numbers[0]:
            self._number = max(numbers)
        else:
            await self._settings.listen()

    # ---- reading

    async def read(self) -> Progress:
        """See `Frontier.progress`."""
        await self._settings.listen()
        store, crawl = self._context.store, self._context.crawl
        view, at = await store.crawl(crawl), (await store.heatmap(crawl)).updated_at
        now = sample_of_view(view, at)
        return with_now(self._shared.progress.samples(), now)


async def read_progress(store: FullStore, view: CrawlView, at: float) -> Progress:
    """Read the progress of any crawl of a store, from its view at that time."""
    history = ProgressHistory()
    async for value in values_of(store, view.crawl, PROGRESS):
        history.put(value.name, sample_of_value(value))
    return with_now(history.samples(), sample_of_view(view, at))


def sample_of_view(view: CrawlView, at: float, active: float = 0.0) -> ProgressSample:
    """Return the counters of a view as a sample of that time."""
    return ProgressSample(
        at,
        active,
        view.status,
        view.known,
        view.pending,
        view.leased,
        view.done,
        view.dead,
        view.dropped,
        view.held,
        view.visits,
        view.bytes,
        view.recovered,
        dict(view.outcomes),
        view.runs,
    )


def _active(last: ProgressSample | None, since: int, now: int) -> float:
    """Return the seconds since the last sample in which work was done, as far as it is known."""
    begin = since
    if last is not None and last.status is CrawlStatus.RUNNING:
        begin = max(since, round(last.at * 1000))
    return max(0, now - begin) / 1000


def _stretch(view: CrawlView) -> int:
    """Return by how much samples are rarer, where a crawl's counters take long to read."""
    return min(_MAX_STRETCH, 1 + (len(view.types) + len(view.tags)) // MANY_GROUPS)
