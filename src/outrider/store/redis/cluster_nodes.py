"""Who serves which slot of a cluster, and a client for each node: asked where a slot is, told anew.

A command is sent again only where a node said that it did not do it. While a slot is on its way
(ASK, TRYAGAIN) it is waited for, never asked at its new place: a script would find half its keys
there. A node that does not answer is an error for whoever asked, and the others are asked then who
serves what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from redis import exceptions as driver
from redis.crc import key_slot

from outrider.store.redis.calling import Client
from outrider.store.redis.connecting import Address, client_of

SLOTS: Final = 16_384
_TRIES: Final = 20  # times a command may be sent
_PAUSE: Final = 0.05  # seconds before a slot that is on its way is asked for again
_GONE: Final = (driver.ConnectionError, driver.TimeoutError, driver.ClusterDownError, OSError)


class Node(Client, Protocol):
    """What is asked of the client of one node besides: `redis.asyncio.Redis` has it."""

    @property
    def connection_pool(self) -> Any:
        """Where its connections come from."""
        ...

    def pubsub(self, **said: Any) -> Any:
        """A listener."""
        ...


class Nodes:
    """The nodes of a cluster as they were last heard of."""

    def __init__(self, seeds: list[Address]) -> None:
        self._seeds = {_place_of(seed): seed for seed in seeds}
        self._like = seeds[0]
        self._clients: dict[str, Node] = {}
        self._owners: dict[int, str] = {}  # by slot, of those asked for
        self._ranges: list[tuple[int, int, str]] = []
        self._learning = asyncio.Lock()
        self._turn = 0

    async def at(self, slot: int) -> Node:
        """Who serves a slot."""
        if slot not in self._owners:
            await self.learn()
        return self.client(self._owners.get(slot) or self._found(slot))

    def _found(self, slot: int) -> str:
        for begin, end, place in self._ranges:
            if begin <= slot <= end:
                self._owners[slot] = place
                return place
        raise driver.ClusterDownError(f"no node serves the slot {slot}")

    async def learn(self) -> None:
        """Ask node after node who serves what, until one answers."""
        async with self._learning:
            if self._ranges:
                return
            error: Exception = driver.ConnectionError("no node is known")
            for place in self._places():
                client = self.client(place)
                try:
                    found = await client.execute_command("CLUSTER SLOTS")
                except _GONE as caught:
                    error = caught
                    continue
                self._ranges = list(_ranges(found, client))
                return
            raise error

    def _places(self) -> list[str]:
        """Those that served last, and those that were named."""
        return list(dict.fromkeys([*self._clients, *self._seeds]))

    def forget(self) -> None:
        """What is known may be wrong: the next who asks learns anew."""
        self._owners.clear()
        self._ranges = []

    def moved(self, slot: int, place: str) -> None:
        """A node said who serves a slot now."""
        self._owners[slot] = place

    def client(self, place: str) -> Node:
        """The client of a node."""
        if place not in self._clients:
            like = self._seeds.get(place) or _elsewhere(self._like, place)
            self._clients[place] = client_of(like)
        return self._clients[place]

    def any(self) -> Node:
        """Another node each time."""
        places = self._places()
        self._turn += 1
        return self.client(places[self._turn % len(places)])

    async def masters(self) -> list[str]:
        """The nodes that serve slots."""
        await self.learn()
        return sorted({place for _, _, place in self._ranges})

    async def aclose(self) -> None:
        """Let go of every connection."""
        for client in self._clients.values():
            await client.aclose()


class SlotClient:
    """What a shard speaks to: whoever serves its slot now."""

    def __init__(self, nodes: Nodes, base: str) -> None:
        self._nodes = nodes
        self._slot = key_slot(base.encode())

    async def execute_command(self, *args: Any) -> Any:
        """Send a command to where its keys are; follow them if they moved."""
        for _ in range(_TRIES):
            client = await self._nodes.at(self._slot)
            try:
                return await client.execute_command(*args)
            except driver.MovedError as moved:
                self._nodes.moved(self._slot, _named(moved, client))
            except (driver.AskError, driver.TryAgainError):
                await asyncio.sleep(_PAUSE)
            except _GONE:
                self._nodes.forget()
                raise
        raise driver.ClusterDownError(f"the slot {self._slot} is on its way from node to node")

    def pubsub(self, **said: Any) -> Any:
        """A listener: what is published anywhere is heard on every node."""
        return self._nodes.any().pubsub(**said)

    async def aclose(self) -> None:
        """The nodes are closed by whoever opened them."""


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _place_of(address: Address) -> str:
    parts = urlsplit(address.url)
    return _place(parts.hostname or "localhost", parts.port or 6379)


def _named(error: driver.AskError, asked: Node) -> str:
    """The node an error speaks of; one that gives no host has that of the node that was asked."""
    own = asked.connection_pool.connection_kwargs.get("host", "localhost")
    return _place(error.host or own, error.port)


def _elsewhere(like: Address, place: str) -> Address:
    """The same user, password and options, for another node."""
    parts = urlsplit(like.url)
    user, at, _ = parts.netloc.rpartition("@")
    return like._replace(url=urlunsplit(parts._replace(netloc=f"{user}{at}{place}")), place=place)


def _ranges(found: list[Any], asked: Node) -> Iterator[tuple[int, int, str]]:
    """Slots and their masters as CLUSTER SLOTS tells them."""
    own = asked.connection_pool.connection_kwargs.get("host", "localhost")
    for begin, end, (host, port, *_), *_ in found:
        name = host.decode() if isinstance(host, bytes) else host
        yield int(begin), int(end), _place(name or own, int(port))
