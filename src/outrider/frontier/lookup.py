"""Looking up leases that are held, of whichever worker, ready to be finished here (H1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from outrider.core.admission import fingerprint_of, url_of
from outrider.core.task import Lease, Link
from outrider.core.url import Url
from outrider.errors import InvalidInput
from outrider.frontier.admin import QueueAddresses, check_age
from outrider.frontier.claim import Claimer
from outrider.frontier.context import FrontierContext
from outrider.frontier.store_calls import items_of
from outrider.store.protocol import FINGERPRINT_BYTES, LeaseFilter, LeaseView

MAX_NUMBER: Final = 2**63 - 1  # no task or token has a higher one, and no store is asked for it


class LeaseFinder:
    """Reads leases of the crawl; this frontier can finish, extend and release them."""

    def __init__(
        self, context: FrontierContext, addresses: QueueAddresses, claimer: Claimer
    ) -> None:
        self._context = context
        self._addresses = addresses
        self._claimer = claimer

    async def leased(
        self, key: str | None, worker: str | None, older_than: float | None
    ) -> AsyncIterator[LeaseView]:
        """See `Frontier.leased`."""
        by_key = await self._addresses.filter_key(key)
        which = LeaseFilter(key=by_key, worker=worker, older_than=check_age(older_than))
        async for view in self._views(which):
            yield view

    async def find(
        self,
        url: str | Url | Link | None,
        mark: bytes | None,
        token: int | None,
        task: int | None,
    ) -> Lease | None:
        """See `Frontier.find_lease`."""
        if all(given is None for given in (url, mark, token, task)):
            raise InvalidInput("find_lease() needs a url, a fingerprint, a token or a task")
        if mark is not None and not (isinstance(mark, bytes) and len(mark) == FINGERPRINT_BYTES):
            raise InvalidInput(f"find_lease(fingerprint={mark!r:.60}): {FINGERPRINT_BYTES} bytes")
        if not (_may_exist("token", token) and _may_exist("task", task)):
            return None
        if url is not None:
            named = self._fingerprint_of(url)
            if named is None or mark not in (None, named):
                return None
            mark = named
        async for view in self._views(LeaseFilter(task=task, fingerprint=mark, token=token)):
            return view.lease
        return None

    async def _views(self, which: LeaseFilter) -> AsyncIterator[LeaseView]:
        context = self._context
        views = items_of(lambda after: context.store.leases(context.crawl, which, after=after))
        async for view in views:
            msgspec.structs.force_setattr(view.lease, "holder", self._claimer)
            yield view

    def _fingerprint_of(self, url: str | Url | Link) -> bytes | None:
        """Return what identifies a URL in this crawl; None: it is no URL."""
        link = url if isinstance(url, Link) else Link(url)
        parsed = url_of(link, self._context.policies.settings.url)
        return fingerprint_of(link, parsed) if isinstance(parsed, Url) else None


def _may_exist(name: str, number: int | None) -> bool:
    """Tell whether a store may have a number, if it is given; InvalidInput: it is none."""
    if number is not None and type(number) is not int:
        raise InvalidInput(f"find_lease({name}={number!r:.60}): a whole number")
    return number is None or 0 < number <= MAX_NUMBER
