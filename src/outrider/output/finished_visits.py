"""Which of the visits in doubt were finished: the store is asked, which alone knows (H3)."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import LeaseId
from outrider.core.verdict import Verdict
from outrider.store.protocol import FullStore, TaskFilter


async def were_finished(store: FullStore, leases: Sequence[LeaseId]) -> list[bool]:
    """Return one answer per lease; leases still held are released, so no answer changes later."""
    await store.release(leases)
    # After the release, a token is current only if its visit was finished: finishing that one
    # again changes nothing. All other tokens are refused.
    verdicts = [Verdict(*lease, "done", TaskState.DONE) for lease in leases]
    applied = [answer.applied for answer in await store.finish(verdicts)]
    cancelled = [
        name for name in {lease.crawl for lease in leases} if await _is_cancelled(store, name)
    ]
    return [
        await _is_done(store, lease) if lease.crawl in cancelled else was_applied
        for lease, was_applied in zip(leases, applied, strict=True)
    ]


async def _is_cancelled(store: FullStore, crawl: str) -> bool:
    return (await store.crawl(crawl)).status is CrawlStatus.CANCELLED


async def _is_done(store: FullStore, lease: LeaseId) -> bool:
    """I3: a cancelled crawl refuses every lease, and its tasks stay what they were."""
    page = await store.tasks(lease.crawl, TaskFilter(), after=lease.task - 1, limit=1)
    return any(view.state is TaskState.DONE for view in page.items)
