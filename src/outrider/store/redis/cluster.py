"""A store on a Redis or Valkey cluster: one store over shards, each under its own hash tag.

How many shards there are is fixed when the store is made, and stored in the first, the home of
every crawl. Their tags are chosen so that their slots are spread evenly, on any number of nodes.

`ClusterNodes` knows which node serves which slot. A command is sent again only if a node refused
it. While a slot is migrating (ASK, TRYAGAIN) the command waits, and is never sent to the new node,
where a script would find half its keys. A node that does not answer is an error for the caller; the
next call asks the other nodes which slots they serve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis import exceptions as driver
from redis.crc import key_slot

from outrider.clock import Clock
from outrider.errors import InvalidInput, StoreDamaged, StoreError, StoreUnavailable, StoreUnusable
from outrider.store.forwarding import ForwardingStore
from outrider.store.protocol import Notifies
from outrider.store.redis.connect import (
    Address,
    address_of,
    check_server,
    check_url,
    client_of,
    init_store,
)
from outrider.store.redis.keys import META, base_of
from outrider.store.redis.notifications import WorkSubscriber
from outrider.store.redis.script_client import Client, ScriptClient
from outrider.store.redis.store import RedisStore
from outrider.store.shards import MAX_SHARDS, ShardedStore

SHARDS_PER_MASTER: Final = 4  # by default: enough for a cluster to grow, and few to claim from
SLOTS: Final = 16_384
_COMPLETE: Final = "whole"  # field of the first shard's meta: all other shards were made
_MAX_ATTEMPTS: Final = 20  # times a command may be sent
_MIGRATION_PAUSE: Final = 0.05  # seconds before a migrating slot is asked again
_UNREACHABLE: Final = (
    driver.ConnectionError,
    driver.TimeoutError,
    driver.ClusterDownError,
    OSError,
)


class ClusterStore(ForwardingStore):
    """Store, Admin and Inspect over a cluster; `promise` is that of its nodes."""

    is_inline = False
    notifies: Notifies = "mostly"

    def __init__(self, nodes: ClusterNodes, shards: Sequence[RedisStore], promise: str) -> None:
        self.promise = promise
        self.shards = tuple(shards)
        self._nodes = nodes
        self._store = ShardedStore(shards)
        self.id = self._store.id
        bases = [shard.scripts.base for shard in shards]
        self._subscriber = WorkSubscriber(shards[0].scripts.client, *bases)

    @classmethod
    async def open(cls, url: str, clock: Clock) -> ClusterStore:
        """Open the store that a URL names, after checking the masters of the cluster."""
        seeds, wanted = read_url(url)
        nodes = ClusterNodes(seeds)
        try:
            promise = await _check_masters(nodes, clock)
            shards = await _open_shards(nodes, seeds[0], clock, wanted)
            return cls(nodes, shards, promise)
        except BaseException:
            await nodes.aclose()
            raise

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self._store, verb)(*args, **kwargs)

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`: one subscription serves all shards."""
        return self._subscriber.subscribe(crawl, notify)

    async def close(self) -> None:
        """See `protocol.FullStore`."""
        await self._subscriber.close()
        await self._nodes.aclose()

    def shares_order(self, key: str, other: str) -> bool:
        """M1: tell whether two queues are on one shard, and so in the same lists."""
        return self._store.shares_order(key, other)


def read_url(url: str) -> tuple[list[Address], int | None]:
    """Return the nodes a URL names, and how many shards it asks for."""
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
    return seeds, None if wanted is None else _shard_count(wanted)


def _shard_count(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) <= MAX_SHARDS):
        raise InvalidInput(f"shards={text!r} must be a number from 1 to {MAX_SHARDS}")
    return int(text)


async def _check_masters(nodes: ClusterNodes, clock: Clock) -> str:
    """Return what the masters promise; different promises are all named."""
    try:
        masters = await nodes.masters()
    except driver.ResponseError as error:
        raise _not_a_cluster(error) from error
    except (driver.RedisError, OSError) as error:
        raise StoreUnavailable(
            f"no node of the cluster answers ({error}): is it running?"
        ) from error
    promises = [
        await check_server(
            ScriptClient(nodes.client(place), base_of(), clock), place, is_cluster=True
        )
        for place in masters
    ]
    return "; ".join(dict.fromkeys(promises))


def _not_a_cluster(error: driver.ResponseError) -> StoreError:
    if "cluster support disabled" in str(error):
        return StoreUnusable("this Redis is no cluster: open it as redis://host:port/0")
    return StoreUnusable(
        f"the cluster does not say which node serves what ({error}): allow CLUSTER SLOTS"
    )


async def _open_shards(
    nodes: ClusterNodes, seed: Address, clock: Clock, wanted: int | None
) -> list[RedisStore]:
    """Open all shards, or make them if the store is new; refuse a store that lacks some."""
    home = _scripts(nodes, base_of(seed.prefix), clock)
    existing, is_complete = await _read_meta(home)
    if existing and wanted and existing != wanted:
        raise InvalidInput(
            f"the store at {seed.place} has {existing} shards since it was made: "
            "leave ?shards= out, or copy it into a new one"
        )
    total = existing or wanted or SHARDS_PER_MASTER * len(await nodes.masters())
    clients = [_scripts(nodes, base, clock) for base in bases_of(seed.prefix, total)]
    if is_complete:
        await check_complete(clients, seed.place)
    ids = [
        await init_store(scripts, seed.place, shard=number, shards=total)
        for number, scripts in enumerate(clients)
    ]
    if not is_complete:
        await home.command("HSET", home.base + META, _COMPLETE, 1)
    return [RedisStore(scripts, store_id) for scripts, store_id in zip(clients, ids, strict=True)]


def _scripts(nodes: ClusterNodes, base: str, clock: Clock) -> ScriptClient:
    return ScriptClient(SlotClient(nodes, base), base, clock)


async def _read_meta(home: ScriptClient) -> tuple[int, bool]:
    """Return how many shards a store has, and whether all were made; 0: there is no store."""
    try:
        shards, complete = await home.command("HMGET", home.base + META, "shards", _COMPLETE)
    except StoreUnavailable:
        raise
    except StoreError:
        return 0, False  # another program's key, which `init_store` reports with the fix
    return (int(shards) if (shards or b"").isdigit() else 0), complete is not None


async def check_complete(clients: Sequence[ScriptClient], place: str) -> None:
    """Raise `StoreDamaged` if a shard is missing."""
    for number, scripts in enumerate(clients):
        if not await scripts.command("EXISTS", scripts.base + META):
            raise StoreDamaged(
                f"shard {number} of {len(clients)} is missing from the store at {place}: a node "
                "has lost its data; restore it from a backup, or copy what is left into a new store"
            )


async def scripts_of_shards(nodes: ClusterNodes, prefix: str, clock: Clock) -> list[ScriptClient]:
    """Return the clients of the shards of a store; none if there is no store."""
    total, _ = await _read_meta(_scripts(nodes, base_of(prefix), clock))
    return [_scripts(nodes, base, clock) for base in bases_of(prefix, total)] if total else []


def bases_of(prefix: str, total: int) -> Iterator[str]:
    """Yield what the keys of each shard begin with; together their slots are spread evenly."""
    first = _part_of(base_of(prefix), total)
    yield base_of(prefix)
    for number in range(1, total):
        wanted = (first + number) % total
        tags = (base_of(prefix, tag) for tag in count(1))
        yield next(base for base in tags if _part_of(base, total) == wanted)


def _part_of(base: str, total: int) -> int:
    return key_slot(base.encode()) * total // SLOTS


# ---- nodes


class Node(Client, Protocol):
    """What is asked of one node's client besides: `redis.asyncio.Redis` has it."""

    @property
    def connection_pool(self) -> Any:
        """The pool of its connections."""
        ...

    def pubsub(self, **options: Any) -> Any:
        """Return a subscription."""
        ...


class ClusterNodes:
    """Which node serves which slot, as last asked, and a client for each node."""

    def __init__(self, seeds: list[Address]) -> None:
        self._seeds = {_place_of(seed): seed for seed in seeds}
        self._template = seeds[0]  # for nodes that the URL does not name
        self._clients: dict[str, Node] = {}
        self._owners: dict[int, str] = {}  # by slot, of those used so far
        self._ranges: list[tuple[int, int, str]] = []
        self._refreshing = asyncio.Lock()
        self._next = 0

    async def at(self, slot: int) -> Node:
        """Return the client of the node that serves a slot."""
        if slot not in self._owners:
            await self.refresh()
        return self.client(self._owners.get(slot) or self._find_owner(slot))

    def _find_owner(self, slot: int) -> str:
        for begin, end, place in self._ranges:
            if begin <= slot <= end:
                self._owners[slot] = place
                return place
        raise driver.ClusterDownError(f"no node serves the slot {slot}")

    async def refresh(self) -> None:
        """Ask node after node which node serves which slot, until one answers."""
        async with self._refreshing:
            if self._ranges:
                return
            error: Exception = driver.ConnectionError("no node is known")
            for place in self._places():
                client = self.client(place)
                try:
                    found = await client.execute_command("CLUSTER SLOTS")
                except _UNREACHABLE as caught:
                    error = caught
                    continue
                self._ranges = list(_ranges(found, client))
                return
            raise error

    def _places(self) -> list[str]:
        """Return the nodes used so far, and those that the URL names."""
        return list(dict.fromkeys([*self._clients, *self._seeds]))

    def forget(self) -> None:
        """Drop what is known of slots, so that the next call asks again."""
        self._owners.clear()
        self._ranges = []

    def moved(self, slot: int, place: str) -> None:
        """Record which node serves a slot now, as a node reported."""
        self._owners[slot] = place

    def client(self, place: str) -> Node:
        """Return the client of a node."""
        if place not in self._clients:
            address = self._seeds.get(place) or _address_at(self._template, place)
            self._clients[place] = client_of(address)
        return self._clients[place]

    def any(self) -> Node:
        """Return the client of another node each time."""
        places = self._places()
        self._next += 1
        return self.client(places[self._next % len(places)])

    async def masters(self) -> list[str]:
        """Return the nodes that serve slots."""
        await self.refresh()
        return sorted({place for _, _, place in self._ranges})

    async def aclose(self) -> None:
        """Close every connection."""
        for client in self._clients.values():
            await client.aclose()


class SlotClient:
    """The client of a shard: sends commands to the node that serves its slot now."""

    def __init__(self, nodes: ClusterNodes, base: str) -> None:
        self._nodes = nodes
        self._slot = key_slot(base.encode())

    async def execute_command(self, *args: Any) -> Any:
        """Send a command to the node of its keys; follow them if they moved."""
        for _ in range(_MAX_ATTEMPTS):
            client = await self._nodes.at(self._slot)
            try:
                return await client.execute_command(*args)
            except driver.MovedError as moved:
                self._nodes.moved(self._slot, _place_in(moved, client))
            except (driver.AskError, driver.TryAgainError):
                await asyncio.sleep(_MIGRATION_PAUSE)
            except _UNREACHABLE:
                self._nodes.forget()
                raise
        raise driver.ClusterDownError(f"the slot {self._slot} is migrating between nodes")

    def pubsub(self, **options: Any) -> Any:
        """Return a subscription: a message published on any node reaches every node."""
        return self._nodes.any().pubsub(**options)

    async def aclose(self) -> None:
        """Do nothing: the store closes the nodes."""


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _place_of(address: Address) -> str:
    parts = urlsplit(address.url)
    return _place(parts.hostname or "localhost", parts.port or 6379)


def _place_in(error: driver.AskError, asked: Node) -> str:
    """Return the node an error names; without a host, that of the node that was asked."""
    own = asked.connection_pool.connection_kwargs.get("host", "localhost")
    return _place(error.host or own, error.port)


def _address_at(template: Address, place: str) -> Address:
    """Return an address with the same user, password and options, for another node."""
    parts = urlsplit(template.url)
    user, at, _ = parts.netloc.rpartition("@")
    url = urlunsplit(parts._replace(netloc=f"{user}{at}{place}"))
    return template._replace(url=url, place=place)


def _ranges(found: list[Any], asked: Node) -> Iterator[tuple[int, int, str]]:
    """Yield ranges of slots and their masters, as CLUSTER SLOTS returns them."""
    own = asked.connection_pool.connection_kwargs.get("host", "localhost")
    for begin, end, (host, port, *_), *_ in found:
        name = host.decode() if isinstance(host, bytes) else host
        yield int(begin), int(end), _place(name or own, int(port))
