"""The store on one Redis or Valkey server, or one shard of a cluster: a facade over its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.clock import Clock
from outrider.core.states import CrawlStatus
from outrider.store.forwarding import ForwardingStore, verb_table
from outrider.store.protocol import ClaimRequest, ClaimResult, Notifies, ResultPage
from outrider.store.redis.admin import RedisAdmin, encode_signature
from outrider.store.redis.connect import address_of, check_server, client_of, init_store
from outrider.store.redis.export import RedisExport, RedisRestore
from outrider.store.redis.inspector import RedisInspector
from outrider.store.redis.keys import CRAWL_KEYS, base_of
from outrider.store.redis.notifications import WorkSubscriber
from outrider.store.redis.rows import CrawlRow, decode_crawl_row
from outrider.store.redis.rules_cache import RulesCache
from outrider.store.redis.script_client import ScriptClient, encode
from outrider.store.redis.shared_values import SharedValues
from outrider.store.redis.verbs import RedisVerbs
from outrider.store.shards import CrawlTotals, RunEnd, ShardSummary
from outrider.store.validation import validate_call, validate_crawls


class RedisStore(ForwardingStore):
    """Store, Admin, Inspect and what a shard needs; `promise` says what survives a crash."""

    is_inline = False
    notifies: Notifies = "mostly"

    def __init__(self, scripts: ScriptClient, store_id: str, promise: str = "") -> None:
        self.id = store_id
        self.promise = promise
        self.scripts = scripts
        cache = RulesCache(scripts)
        inspector = RedisInspector(store_id, scripts, cache)
        self._store_verbs = RedisVerbs(store_id, scripts, cache)
        self._export = RedisExport(scripts, cache, inspector)
        self._subscriber = WorkSubscriber(scripts.client, scripts.base)
        self._verbs = verb_table(
            self._store_verbs,
            RedisAdmin(scripts, cache, inspector),
            inspector,
            SharedValues(scripts),
            self._export,
            RedisRestore(scripts, cache),
        )

    @classmethod
    async def open(cls, url: str, clock: Clock) -> RedisStore:
        """Open the store that a URL names; a server that is refused is left unchanged."""
        address = address_of(url)
        client = client_of(address)
        scripts = ScriptClient(client, base_of(address.prefix), clock)
        try:
            promise = await check_server(scripts, address.place)
            store_id = await init_store(scripts, address.place)
            return cls(scripts, store_id, promise)
        except BaseException:
            await client.aclose()
            raise

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        validate_call(verb, args)
        return await self._verbs[verb](*args, **kwargs)

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`."""
        return self._subscriber.subscribe(crawl, notify)

    async def close(self) -> None:
        """See `protocol.FullStore`."""
        await self._subscriber.close()
        await self.scripts.client.aclose()

    # ---- what a shard does besides

    async def claim(self, request: ClaimRequest, *, closes: bool = True) -> ClaimResult:
        """See `shards.Shard`."""
        validate_crawls((request.crawl,))
        return await self._store_verbs.claim(request, closes=closes)

    async def summary(self, crawl: str) -> ShardSummary:
        """See `shards.Shard`: reads one key."""
        found, *_ = await self.scripts.run("read", crawl, "EXISTS", CRAWL_KEYS["crawl"])
        row = CrawlRow(name=crawl) if found is None else decode_crawl_row(found)
        limits = (row.limit_tasks, row.limit_done, row.limit_bytes, row.limit_seconds)
        return ShardSummary(
            status=CrawlStatus(row.status),
            reason=None if row.reason is False else row.reason,
            known=row.last_task,
            queues=row.last_queue,
            leased=row.leased,
            open=row.pending - row.retired_pending,
            dones=row.visits_done,
            bytes=row.bytes,
            revision=row.last_token + row.last_arrival + row.visits + row.last_event,
            has_started=row.started >= 0,
            is_idle=row.at_finish or row.started < 0 or row.status == CrawlStatus.FINISHED,
            max_pending=row.max_pending,
            is_limited=any(limits),
            stays_open=row.stay_open,
            exists=found is not None,
        )

    async def apply_totals(
        self, crawl: str, totals: CrawlTotals, end: RunEnd | None
    ) -> CrawlStatus:
        """See `shards.Shard`."""
        revision, counts = ("", {}) if end is None else end
        status = await self.scripts.run(
            "apply_totals", crawl, encode(totals), revision, encode(counts)
        )
        return CrawlStatus(status.decode())

    async def start_run(self, crawl: str, by: str = "") -> None:
        """See `shards.Shard`."""
        await self.scripts.run("start_run", crawl, encode_signature(by))

    async def export_items(self, crawl: str, *, after: int, limit: int) -> ResultPage[Any]:
        """See `shards.Shard`."""
        return await self._export.export_items(crawl, after=after, limit=limit)
