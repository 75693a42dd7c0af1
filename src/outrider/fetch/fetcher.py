"""The fetcher, the default handler: robots.txt, the page, its links. It returns an outcome (G0)."""

from __future__ import annotations

from typing import Final

import msgspec

from outrider.core.outcome import Blocked, Done, Dropped, Failed, Outcome, Throttled, outcome_of
from outrider.core.task import DEFAULT_TYPE, Link
from outrider.core.url import Refusal, Url, parse_url
from outrider.fetch.block_detector import Detector
from outrider.fetch.cache import (
    ResponseCache,
    conditional_headers,
    is_last_answer,
    is_usable,
    merge_not_modified,
    validators_of,
)
from outrider.fetch.pacing import Pacing, RefusalCheck, Visit
from outrider.fetch.page import Page
from outrider.fetch.reader import Reader
from outrider.fetch.response import Response, redirect_target, retry_after_of
from outrider.fetch.robots import Admission, RobotsGate
from outrider.settings import Settings

NOT_MODIFIED: Final = 304
MAX_STALE: Final = 86_400.0  # seconds a cached response may be too old while its queue is throttled


class FetchContext(msgspec.Struct, frozen=True):
    """The collaborators of a fetcher."""

    robots_gate: RobotsGate
    pacing: Pacing
    reader: Reader
    detector: Detector | None
    cache: ResponseCache | None
    refusal_check: RefusalCheck


class Fetcher:
    """Fetches the page of a visit and extracts its links."""

    def __init__(self, settings: Settings, context: FetchContext) -> None:
        self._settings = settings.fetch
        self._url_rules = settings.url
        self._context = context

    async def __call__(self, visit: Visit) -> Outcome:
        """Apply robots.txt, then fetch the page; a visit with a cached response asks nothing."""
        if visit.cached is not None:
            return await self._cached_outcome(visit, visit.cached, None)
        outcome = await self._visit(visit)
        self._context.robots_gate.record_end(visit)
        return outcome

    async def _visit(self, visit: Visit) -> Outcome:
        admission = await self._context.robots_gate.admit(visit)
        if not isinstance(admission, Admission):
            return admission
        outcome = await self._fetch_page(visit, admission)
        if admission.crawl_delay is None:
            return outcome
        # The queue did not know the crawl delay: it is reported with any outcome.
        return msgspec.structs.replace(outcome, crawl_delay=admission.crawl_delay)

    async def _fetch_page(self, visit: Visit, admission: Admission) -> Outcome:
        """Fetch the page; a redirect to the same identity is followed here, after the delay."""
        url, cached, pacing = visit.lease.url, self._cached(visit), self._context.pacing
        headers = conditional_headers(visit.lease.last)
        for left in reversed(range(self._settings.max_redirects + 1)):
            response = pacing.kept_redirect(url) or await pacing.get(visit, url, headers)
            if not isinstance(response, Response):
                return response
            target = self._same_page(visit, response)
            if target is None:
                return await self._outcome(visit, response, cached)
            if not left:
                return Dropped("redirects: a loop", response.seconds)
            if not admission.allows(target):  # robots.txt may treat the other URL differently
                return Dropped("robots", response.seconds)
            again = await pacing.pause(visit, response, admission.crawl_delay)
            if again is not None:
                pacing.keep_redirect(url, response)
                return again
            url = target
        raise AssertionError("unreachable")

    def _cached(self, visit: Visit) -> Response | None:
        cache = self._context.cache
        return None if cache is None else cache.get(visit.lease.fingerprint)

    def _same_page(self, visit: Visit, response: Response) -> str | None:
        target = redirect_target(response, self._url_rules)
        if not isinstance(target, Url):
            return None
        here = parse_url(visit.lease.url, self._url_rules)
        is_same = isinstance(here, Url) and target.identity == here.identity
        return target.text if is_same else None

    async def _outcome(self, visit: Visit, response: Response, cached: Response | None) -> Outcome:
        """Return the outcome of a response (G0)."""
        blocked = self._context.detector(response) if self._context.detector else None
        target = redirect_target(response, self._url_rules)
        if target is not None and blocked is None:
            return await self._redirect_outcome(visit, response, target)
        outcome = outcome_of(
            response.status,
            seconds=response.seconds,
            bytes=len(response.body),
            retry_after=retry_after_of(response, self._context.pacing.now()),
            etag=response.header("etag"),
            last_modified=response.header("last-modified"),
        )
        if isinstance(outcome, Throttled):
            return await self._throttled_outcome(visit, outcome, cached)
        if blocked is not None:
            return Blocked(blocked, response.seconds)
        if isinstance(outcome, Failed):
            return outcome
        return await self._done_outcome(visit, response, outcome, cached)

    async def _throttled_outcome(
        self, visit: Visit, outcome: Throttled, cached: Response | None
    ) -> Outcome:
        """Return the cached response if it is usable; the queue is throttled in any case (D5)."""
        if cached is None or not is_usable(cached, self._context.pacing.now(), MAX_STALE):
            return outcome
        return await self._cached_outcome(visit, cached, outcome)

    async def _cached_outcome(
        self, visit: Visit, cached: Response, throttled: Throttled | None
    ) -> Outcome:
        """End a visit with a cached response (D5); `throttled` if the host was asked.

        Its links are read: the response may be of another crawl, or of a visit that was lost.
        """
        page = Page(visit.lease, cached, from_cache=True)
        if not self._is_wanted_type(page.media_type):  # wanted by the crawl that stored it
            return throttled or Dropped("type", visited=False)
        visit.page = page
        await self._extract_links(visit, page)
        etag, modified = validators_of(cached)
        return Done(
            cached.status,
            throttled.seconds if throttled else 0.0,
            len(cached.body),
            page.digest,
            etag,
            modified,
            from_cache=True,
            throttled=(throttled.retry_after or 0.0) if throttled else None,
        )

    async def _redirect_outcome(
        self, visit: Visit, response: Response, target: Url | Refusal
    ) -> Outcome:
        """Add the target as a link: it has a queue of its own (D7)."""
        if isinstance(target, Refusal):
            return Dropped(f"redirect: {target.reason}", response.seconds)
        lease, meta = visit.lease, visit.lease.meta
        hops = int(meta.get("redirects", 0)) + 1
        if hops > self._settings.max_redirects:
            return Dropped("redirects: too many", response.seconds)
        meta["redirects"] = hops
        # A task of the default type leaves the type of what it leads to to `types`.
        kind = DEFAULT_TYPE if lease.type == DEFAULT_TYPE else lease.type
        link = Link(target, type=kind, depth=lease.depth, origin="redirect", meta=meta)
        refused = await self._context.refusal_check(link, lease)
        if refused is not None:
            return Dropped(f"redirect: {refused}", response.seconds)
        visit.page = Page(lease, response)
        visit.links.append(link)
        return Done(response.status, response.seconds, len(response.body))

    async def _done_outcome(
        self, visit: Visit, response: Response, outcome: Done, cached: Response | None
    ) -> Outcome:
        if response.status == NOT_MODIFIED:
            visit.page = self._unchanged_page(visit, response, cached)
            return outcome
        page = Page(visit.lease, response)
        if not self._is_wanted_type(page.media_type):
            return Dropped("type", response.seconds)
        visit.page = page
        if 200 <= response.status < 300:
            await self._extract_links(visit, page)
            if self._context.cache is not None:
                self._context.cache.put(visit.lease.fingerprint, response)
        return msgspec.structs.replace(outcome, digest=page.digest)

    def _unchanged_page(self, visit: Visit, response: Response, cached: Response | None) -> Page:
        """Return the page that a 304 confirms, with the body of the task's last answer (K1).

        Its links are known: only a task that was done in this crawl is asked about so.
        """
        cache = self._context.cache
        if cache is None or cached is None or not is_last_answer(cached, visit.lease.last):
            return Page(visit.lease, response)
        whole = merge_not_modified(cached, response)
        if validators_of(whole) != validators_of(cached):  # the next 304 is about these
            cache.put(visit.lease.fingerprint, whole)
        return Page(visit.lease, whole, from_cache=True)

    async def _extract_links(self, visit: Visit, page: Page) -> None:
        """Extract links; visit and page share one list, so that a user's function can change it."""
        await self._context.reader.read(page)
        page.links[:0] = visit.links
        visit.links = page.links

    def _is_wanted_type(self, media_type: str) -> bool:
        return any(
            media_type == one or (one.endswith("*") and media_type.startswith(one[:-1]))
            for one in self._settings.types
        )


def cached_response(cache: ResponseCache, fingerprint: bytes, now: float) -> Response | None:
    """Return a page's cached response, if it may be used while its queue is throttled."""
    response = cache.get(fingerprint)
    return response if response is not None and is_usable(response, now, MAX_STALE) else None
