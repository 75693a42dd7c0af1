"""One visit of a URL: the way in, the page, what it leads to; every end is an outcome (G0)."""

from __future__ import annotations

from typing import Final

import msgspec

from outrider.core.outcome import Blocked, Done, Dropped, Failed, Outcome, Throttled, outcome_of
from outrider.core.task import Link
from outrider.core.url import Refusal, Url, parse_url
from outrider.fetch.block_detector import Detector
from outrider.fetch.cache import ResponseCache, conditional_headers, is_usable, merge_not_modified
from outrider.fetch.pacing import Pacing, RefusalCheck, Visit
from outrider.fetch.page import Page
from outrider.fetch.reader import Reader
from outrider.fetch.response import Response, redirect_target, retry_after_of
from outrider.fetch.robots import Admission, RobotsGate
from outrider.settings import Settings

NOT_MODIFIED: Final = 304
MAX_STALE: Final = (
    86_400.0  # seconds a kept response may be too old to stand in for a throttled one
)


class FetchContext(msgspec.Struct, frozen=True):
    """All that a fetcher needs of others."""

    entrance: RobotsGate
    pacing: Pacing
    reader: Reader
    detector: Detector | None
    cache: ResponseCache | None
    refusal: RefusalCheck


class Fetcher:
    """The default handler: fetches a page and finds its links."""

    def __init__(self, settings: Settings, around: FetchContext) -> None:
        self._settings = settings.fetch
        self._url_rules = settings.url
        self._around = around

    async def __call__(self, visit: Visit) -> Outcome:
        """Robots, then the page."""
        outcome = await self._visit(visit)
        self._around.entrance.told(visit)
        return outcome

    async def _visit(self, visit: Visit) -> Outcome:
        entry = await self._around.entrance.admit(visit)
        if not isinstance(entry, Admission):
            return entry
        outcome = await self._page(visit, entry)
        if entry.crawl_delay is None:
            return outcome
        # The queue did not know the delay: it learns it, whatever the visit came to.
        return msgspec.structs.replace(outcome, crawl_delay=entry.crawl_delay)

    async def _page(self, visit: Visit, entry: Admission) -> Outcome:
        """The page itself; a redirect to the same identity is followed here, after the delay."""
        url, cached, pacing = visit.lease.url, self._cached(visit), self._around.pacing
        headers = conditional_headers(visit.lease.last, cached)
        for left in reversed(range(self._settings.max_redirects + 1)):
            response = await pacing.get(visit, url, headers)
            if not isinstance(response, Response):
                return response
            target = self._same_page(visit, response)
            if target is None:
                return await self._outcome(visit, response, cached)
            if not left:
                return Dropped("redirects: a loop", response.seconds)
            if not entry.allows(target):  # the page is the same, but its URL is not
                return Dropped("robots", response.seconds)
            await pacing.pause(visit, response, entry.crawl_delay)
            url = target
        raise AssertionError("unreachable")

    def _cached(self, visit: Visit) -> Response | None:
        cache = self._around.cache
        return None if cache is None else cache.get(visit.lease.fingerprint)

    def _same_page(self, visit: Visit, response: Response) -> str | None:
        target = redirect_target(response, self._url_rules)
        if not isinstance(target, Url):
            return None
        here = parse_url(visit.lease.url, self._url_rules)
        is_same = isinstance(here, Url) and target.identity == here.identity
        return target.text if is_same else None

    async def _outcome(self, visit: Visit, response: Response, cached: Response | None) -> Outcome:
        """Which is which (G0)."""
        blocked = self._around.detector(response) if self._around.detector else None
        target = redirect_target(response, self._url_rules)
        if target is not None and blocked is None:
            return await self._redirected(visit, response, target)
        judged = outcome_of(
            response.status,
            seconds=response.seconds,
            bytes=len(response.body),
            retry_after=retry_after_of(response, self._around.pacing.now()),
            etag=response.header("etag"),
            last_modified=response.header("last-modified"),
        )
        if isinstance(judged, Throttled):
            return self._throttled(visit, judged, cached)
        if blocked is not None:
            return Blocked(blocked, response.seconds)
        if isinstance(judged, Failed):
            return judged
        return await self._done(visit, response, judged, cached)

    def _throttled(self, visit: Visit, judged: Throttled, cached: Response | None) -> Outcome:
        """D5: what the cache has stands in; the queue is throttled all the same."""
        if cached is None or not is_usable(cached, self._around.pacing.now(), MAX_STALE):
            return judged
        return done_from_cache(visit, cached, judged)

    async def _redirected(self, visit: Visit, response: Response, target: Url | Refusal) -> Outcome:
        """Every hop goes through the frontier: the target has a queue of its own (D7)."""
        if isinstance(target, Refusal):
            return Dropped(f"redirect: {target.reason}", response.seconds)
        lease, meta = visit.lease, visit.lease.meta
        hops = int(meta.get("redirects", 0)) + 1
        if hops > self._settings.max_redirects:
            return Dropped("redirects: too many", response.seconds)
        meta["redirects"] = hops
        link = Link(target, type=lease.type, depth=lease.depth, origin="redirect", meta=meta)
        refused = await self._around.refusal(link, lease)
        if refused is not None:
            return Dropped(f"redirect: {refused}", response.seconds)
        visit.page = Page(lease, response)
        visit.links.append(link)
        return Done(response.status, response.seconds, len(response.body))

    async def _done(
        self, visit: Visit, response: Response, judged: Done, cached: Response | None
    ) -> Outcome:
        if response.status == NOT_MODIFIED:
            # What was kept stands in for the body; its links are known.
            whole = response if cached is None else merge_not_modified(cached, response)
            visit.page = Page(visit.lease, whole, from_cache=cached is not None)
            return judged
        page = Page(visit.lease, response)
        if not self._reads(page.media_type):
            return Dropped("type", response.seconds)
        visit.page = page
        if 200 <= response.status < 300:
            await self._read(visit, page)
            if self._around.cache is not None:
                self._around.cache.keep(visit.lease.fingerprint, response)
        return msgspec.structs.replace(judged, digest=page.digest)

    async def _read(self, visit: Visit, page: Page) -> None:
        """What the page leads to; one list for both, so that a user may change it."""
        await self._around.reader.read(page)
        page.links[:0] = visit.links
        visit.links = page.links

    def _reads(self, media_type: str) -> bool:
        return any(
            media_type == one or (one.endswith("*") and media_type.startswith(one[:-1]))
            for one in self._settings.types
        )


def cached_response(cache: ResponseCache, fingerprint: bytes, now: float) -> Response | None:
    """What the cache has of a page, if it may stand in for a throttled answer."""
    response = cache.get(fingerprint)
    return response if response is not None and is_usable(response, now, MAX_STALE) else None


def done_from_cache(visit: Visit, cached: Response, throttled: Throttled | None) -> Done:
    """D5: a visit that ends with what was kept; the host was asked only if it throttled."""
    page = visit.page = Page(visit.lease, cached, from_cache=True)
    return Done(
        cached.status,
        throttled.seconds if throttled else 0.0,
        len(cached.body),
        page.digest,
        cached.header("etag"),
        cached.header("last-modified"),
        from_cache=True,
        throttled=(throttled.retry_after or 0.0) if throttled else None,
    )
