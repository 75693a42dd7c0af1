"""A store on a Redis or Valkey cluster: one store over shards, each under a hash tag of its own.

How many shards there are is fixed when the store is made and kept with the first, which is the home
of every crawl. Their tags are chosen so that the slots are spread evenly, on any number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis import exceptions as driver
from redis.crc import key_slot

from outrider.clock import Clock
from outrider.errors import InvalidInput, StoreDamaged, StoreError, StoreUnavailable, StoreUnusable
from outrider.store.redis.calling import Line
from outrider.store.redis.cluster_nodes import SLOTS, Nodes, SlotClient
from outrider.store.redis.connecting import Address, address_of, check_url
from outrider.store.redis.examining import examined, settled
from outrider.store.redis.keys import META, base_of
from outrider.store.redis.store import RedisStore
from outrider.store.redis.watching import Bell
from outrider.store.shards import SHARDS_MOST, ShardedStore

SHARDS_A_MASTER: Final = 4  # unless told: room for a cluster to grow, and few to ask for work
_WHOLE: Final = "whole"  # in the first shard's meta: all others were made


class ClusterStore(ShardedStore):
    """Store, Admin and Inspect over the shards of a cluster; `promise` is its weakest node's."""

    def __init__(self, nodes: Nodes, shards: Sequence[RedisStore], promise: str) -> None:
        super().__init__(shards)
        self.promise = promise
        self._nodes = nodes
        bases = [shard.line.base for shard in shards]
        self._bell = Bell(shards[0].line.client, *bases)

    @classmethod
    async def open(cls, url: str, clock: Clock) -> ClusterStore:
        """Open what a URL names; its masters are looked at first."""
        seeds, wanted = read_url(url)
        nodes = Nodes(seeds)
        try:
            promise = await _examined(nodes, clock)
            shards = await _shards(nodes, seeds[0], clock, wanted)
            return cls(nodes, shards, promise)
        except BaseException:
            await nodes.aclose()
            raise

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`: one listener hears of all shards."""
        return self._bell.subscribe(crawl, notify)

    async def close(self) -> None:
        """See `protocol.FullStore`."""
        await self._bell.close()
        await self._nodes.aclose()


def read_url(url: str) -> tuple[list[Address], int | None]:
    """The nodes a URL names, and how many shards it asks for."""
    check_url(url)
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    options = parse_qsl(parts.query, keep_blank_values=True)
    wanted = dict(options).get("shards")
    rest = urlencode([option for option in options if option[0] != "shards"])
    scheme, query = parts.scheme.removesuffix("+cluster"), f"?{rest}" if rest else ""
    if parts.path.strip("/") not in ("", "0"):
        raise InvalidInput(f"a cluster has no database {parts.path.strip('/')!r}: leave it out")
    seeds = [address_of(f"{scheme}://{user}{at}{host}{query}") for host in hosts.split(",")]
    return seeds, None if wanted is None else _count_of(wanted)


def _count_of(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) <= SHARDS_MOST):
        raise InvalidInput(f"shards={text!r} must be a number from 1 to {SHARDS_MOST}")
    return int(text)


async def _examined(nodes: Nodes, clock: Clock) -> str:
    """What the masters promise; different promises are all said."""
    try:
        masters = await nodes.masters()
    except driver.ResponseError as error:
        raise _no_cluster(error) from error
    except (driver.RedisError, OSError) as error:
        raise StoreUnavailable(
            f"no node of the cluster answers ({error}): is it running?"
        ) from error
    promises = [
        await examined(Line(nodes.client(place), base_of(), clock), place, is_cluster=True)
        for place in masters
    ]
    return "; ".join(dict.fromkeys(promises))


def _no_cluster(error: driver.ResponseError) -> StoreError:
    if "cluster support disabled" in str(error):
        return StoreUnusable("this Redis is no cluster: open it as redis://host:port/0")
    return StoreUnusable(f"the cluster cannot be asked who serves what: {error}")


async def _shards(
    nodes: Nodes, seed: Address, clock: Clock, wanted: int | None
) -> list[RedisStore]:
    """All of them, made if the store is new; one that lacks some of its shards is refused."""
    home = _line(nodes, base_of(seed.prefix), clock)
    kept, is_whole = await _kept(home)
    if kept and wanted and kept != wanted:
        raise InvalidInput(
            f"the store at {seed.place} has {kept} shards since it was made: leave ?shards= out, "
            "or copy it into a new one"
        )
    total = kept or wanted or SHARDS_A_MASTER * len(await nodes.masters())
    lines = [_line(nodes, base, clock) for base in bases_of(seed.prefix, total)]
    if is_whole:
        await _check_whole(lines, seed.place)
    ids = [
        await settled(line, seed.place, shard=number, shards=total)
        for number, line in enumerate(lines)
    ]
    if not is_whole:
        await home.command("HSET", home.base + META, _WHOLE, 1)
    return [
        RedisStore(line.client, line.base, clock, store_id)
        for line, store_id in zip(lines, ids, strict=True)
    ]


def _line(nodes: Nodes, base: str, clock: Clock) -> Line:
    return Line(SlotClient(nodes, base), base, clock)


async def _kept(home: Line) -> tuple[int, bool]:
    """How many shards a store has, and whether all were made; 0: it is not there, or not ours."""
    try:
        shards, whole = await home.command("HMGET", home.base + META, "shards", _WHOLE)
    except StoreUnavailable:
        raise
    except StoreError:
        return 0, False  # of a stranger, which `settled` says with the fix
    return (int(shards) if (shards or b"").isdigit() else 0), whole is not None


async def _check_whole(lines: Sequence[Line], place: str) -> None:
    for number, line in enumerate(lines):
        if not await line.command("EXISTS", line.base + META):
            raise StoreDamaged(
                f"shard {number} of {len(lines)} is missing from the store at {place}: a node has "
                "lost its data; bring it back from a copy, or copy what is left into a new store"
            )


def bases_of(prefix: str, total: int) -> Iterator[str]:
    """What the keys of each shard begin with: the slots of all, put in order, are evenly spread."""
    first = _part_of(base_of(prefix), total)
    yield base_of(prefix)
    for number in range(1, total):
        wanted = (first + number) % total
        tags = (base_of(prefix, tag) for tag in count(1))
        yield next(base for base in tags if _part_of(base, total) == wanted)


def _part_of(base: str, total: int) -> int:
    return key_slot(base.encode()) * total // SLOTS
