"""The sharded store: a facade that hands every verb to the collaborator that serves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from outrider.store.forwarding import ForwardingStore, verb_table
from outrider.store.protocol import Notifies
from outrider.store.shards.admin import ShardedAdmin
from outrider.store.shards.copies import IdentityCopies
from outrider.store.shards.export import ShardedExport, ShardedRestore
from outrider.store.shards.inspector import ShardedInspector
from outrider.store.shards.shard_set import RunStatus, Shard, ShardSet, shard_of
from outrider.store.shards.verbs import ShardedAdd, ShardedFinish, ShardedLeases
from outrider.store.validation import validate_call


class ShardedStore(ForwardingStore):
    """A `FullStore` over several stores; to its callers one, with the id of its first shard."""

    def __init__(
        self, shards: Sequence[Shard], placement: Callable[[str, int], int] = shard_of
    ) -> None:
        self._shards = together = ShardSet(shards, placement)
        self.id = together.home.id
        self.is_inline = together.is_inline
        inspector = ShardedInspector(together)
        status = RunStatus(together, inspector.counts_at_end)
        copies = IdentityCopies(together)
        adding = ShardedAdd(together, status, copies)
        leases = ShardedLeases(together, status)
        self._verbs = verb_table(
            adding,
            leases,
            ShardedFinish(together, status, adding, leases, copies),
            status,
            ShardedAdmin(together, status, copies),
            inspector,
            ShardedExport(together),
            ShardedRestore(together, status, copies),
        )

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        validate_call(verb, args)
        return await self._verbs[verb](*args, **kwargs)

    @property
    def notifies(self) -> Notifies:  # type: ignore[override] # as its shards do
        """What is true of every shard."""
        of_shards: set[Notifies] = {shard.notifies for shard in self._shards.all}
        return of_shards.pop() if len(of_shards) == 1 else "mostly"

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`."""
        unsubscribers = [shard.subscribe(crawl, notify) for shard in self._shards.all]

        def unsubscribe() -> None:
            for one in unsubscribers:
                one()

        return unsubscribe

    async def close(self) -> None:
        """See `protocol.FullStore`."""
        await self._shards.gather(shard.close() for shard in self._shards.all)

    def shares_order(self, key: str, other: str) -> bool:
        """M1: tell whether two queues are on one shard, and so in the same lists."""
        return self._shards.number_of(key) == self._shards.number_of(other)
