"""Empty stores on shared servers: each a new schema or key prefix, removed after its test.

The calls block, and work on threads with a running event loop too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from servers.schemas import Schema
from servers.shared import Kind, shared_url

T = TypeVar("T")

_PARAMETER: Final[Mapping[Kind, str]] = {
    "postgres": "schema",
    "redis": "prefix",
    "cluster": "prefix",
}
_numbers: Final = count()
_free: Final[list[Schema]] = []  # of this process


class EmptyStores:
    """Empty stores of one test; `servers` has URLs of running servers, others are started."""

    def __init__(self, run: str, servers: Mapping[Kind, str]) -> None:
        self._run = run
        self._servers = servers
        self._schemas: dict[str, Schema] = {}  # by URL, as below
        self._prefixes: dict[str, tuple[Kind, str]] = {}

    def take(self, kind: Kind) -> str:
        """Return the URL of an empty store."""
        server, name = self.server(kind), f"test_{os.getpid()}_{next(_numbers)}"
        url = with_parameter(server, _PARAMETER[kind], name)
        if kind == "postgres":
            schema = _in_thread(lambda: _schema(server, name, url))
            self._schemas[schema.url] = schema
            return schema.url
        if kind == "cluster":
            url = url.replace("redis://", "redis+cluster://", 1)
        self._prefixes[url] = kind, name
        return url

    def server(self, kind: Kind) -> str:
        """Return the URL of the shared server itself."""
        return self._servers.get(kind) or _in_thread(lambda: shared_url(kind, self._run))

    def give_back(self, url: str) -> None:
        """Remove a store; its schema is reused."""
        if url in self._schemas:
            _free.append(self._schemas.pop(url))
        else:
            kind, name = self._prefixes.pop(url)
            _in_thread(lambda: _delete_keys(kind, self.server(kind), name))

    def clear(self) -> None:
        """Remove all stores of this test."""
        for url in [*self._schemas, *self._prefixes]:
            self.give_back(url)


def _schema(server: str, name: str, url: str) -> Schema:
    for schema in reversed(_free):  # the last one is in the server's caches
        if schema.server == server:
            schema.empty()
            _free.remove(schema)
            return schema
    return Schema(server, name, url)


def with_parameter(url: str, name: str, value: str) -> str:
    """Return a URL with one more parameter."""
    parts = urlsplit(url)
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), (name, value)])
    return urlunsplit(parts._replace(query=query))


def _in_thread(work: Callable[[], T]) -> T:
    """Run blocking work on another thread, since it is refused where a loop runs."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def _delete_keys(kind: Kind, url: str, name: str) -> None:
    """Delete the keys of a prefix, one command per key because of cluster slots."""
    with _nodes(kind, url) as nodes:
        for node in nodes:
            commands = node.pipeline(transaction=False)
            for key in node.scan_iter(match=f"*{name}*", count=1000):
                commands.unlink(key)
            commands.execute()


@contextmanager
def _nodes(kind: Kind, url: str) -> Iterator[list[Any]]:
    import redis  # noqa: PLC0415 - an extra, needed only for Redis

    with ExitStack() as stack:
        first = stack.enter_context(redis.Redis.from_url(url))
        if kind == "redis":
            yield [first]
            return
        # Plain clients, because `RedisCluster` leaves a connection to its first node open.
        parts = urlsplit(url)
        user = "".join(parts.netloc.rpartition("@")[:2])
        slots = first.execute_command("CLUSTER SLOTS")  # each: first, last, primary, replicas
        primaries = {f"{host.decode()}:{port}" for _, _, (host, port, *_), *_ in slots}
        yield [
            stack.enter_context(redis.Redis.from_url(parts._replace(netloc=user + node).geturl()))
            for node in sorted(primaries)
        ]
