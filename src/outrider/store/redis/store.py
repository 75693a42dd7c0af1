"""A store on one Redis or Valkey, or on one shard of a cluster."""

from __future__ import annotations

from collections.abc import Callable

from outrider.clock import Clock
from outrider.store.redis.calling import Client, Line
from outrider.store.redis.connecting import Address, address_of, client_of
from outrider.store.redis.examining import examined, settled
from outrider.store.redis.keys import base_of
from outrider.store.redis.sharing import Sharing
from outrider.store.redis.watching import Bell


class RedisStore(Sharing):
    """Store, Admin, Inspect and what a shard needs, over scripts.

    `base` begins all its keys and holds their hash tag; `promise` says what outlives a crash.
    """

    is_inline = False

    def __init__(
        self, client: Client, base: str, clock: Clock, store_id: str, promise: str = ""
    ) -> None:
        super().__init__(store_id, Line(client, base, clock))
        self.promise = promise
        self._bell = Bell(client, base)

    @classmethod
    async def open(cls, url: str, clock: Clock) -> RedisStore:
        """Open what a URL names; the server is looked at first, and nothing changed if refused."""
        address = address_of(url)
        client = client_of(address)
        try:
            return await cls._opened(client, address, clock)
        except BaseException:
            await client.aclose()
            raise

    @classmethod
    async def _opened(cls, client: Client, address: Address, clock: Clock) -> RedisStore:
        line = Line(client, base_of(address.prefix), clock)
        promise = await examined(line, address.place)
        store_id = await settled(line, address.place)
        return cls(client, line.base, clock, store_id, promise)

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`."""
        return self._bell.subscribe(crawl, notify)

    async def close(self) -> None:
        """See `protocol.FullStore`."""
        await self._bell.close()
        await self.line.client.aclose()
