"""The seeds that a scope is bound to: found again, and shared with every worker (A5)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from outrider.core.url import Url, parse_url
from outrider.frontier.operating import Operator
from outrider.frontier.reading import Reader


class Rooting(Operator, Reader):
    """Which roots the crawl's seeds have."""

    async def _learn_roots(self) -> None:
        """A5: a scope that is bound to the seeds from now on asks which they were."""
        mode, admission = self._settings.scope.mode, self._admission
        if not await self.store.roots(self.crawl, mode):
            admission.roots |= {root async for root in self._roots_of_seeds()}
        await self._share_roots()

    async def _roots_of_seeds(self) -> AsyncIterator[str]:
        async for task in self.tasks():
            url = parse_url(task.url, self._settings.url)
            if not task.depth and task.via is None and isinstance(url, Url):
                yield self._settings.scope.root(url)

    async def _share_roots(self) -> None:
        """What this worker's seeds contribute is every worker's, and theirs is ours."""
        mode, roots = self._settings.scope.mode, self._admission.roots
        if len(roots) > self._roots_seen:
            await self.store.add_roots(self.crawl, mode, sorted(roots))
        fresh = await self.store.roots(self.crawl, mode, after=self._roots_seen)
        self._roots_seen += len(fresh)
        roots.update(fresh)
