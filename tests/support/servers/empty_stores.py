"""Empty places on shared servers: a schema or a key prefix that nobody else has, left as found.

All of it blocks, and may be called on a thread with a running loop all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


class Places:
    """Places of one test; `servers` names servers that are there, for the others ours are run."""

    def __init__(self, run: str, servers: Mapping[Kind, str]) -> None:
        self._run = run
        self._servers = servers
        self._schemas: dict[str, Schema] = {}  # by the URLs of their places, as below
        self._prefixes: dict[str, tuple[Kind, str]] = {}

    def take(self, kind: Kind) -> str:
        """The URL of an empty place."""
        server, name = self.server(kind), f"test_{os.getpid()}_{next(_numbers)}"
        url = with_parameter(server, _PARAMETER[kind], name)
        if kind == "postgres":
            schema = _apart(lambda: _schema(server, name, url))
            self._schemas[schema.url] = schema
            return schema.url
        if kind == "cluster":
            url = url.replace("redis://", "redis+cluster://", 1)
        self._prefixes[url] = kind, name
        return url

    def server(self, kind: Kind) -> str:
        """The URL of the server itself, which others use too."""
        return self._servers.get(kind) or _apart(lambda: shared_url(kind, self._run))

    def give_back(self, url: str) -> None:
        """Nothing of it is left; a schema is for whoever takes the next one."""
        if url in self._schemas:
            _free.append(self._schemas.pop(url))
        else:
            kind, name = self._prefixes.pop(url)
            _apart(lambda: _delete_keys(kind, self.server(kind), name))

    def clear(self) -> None:
        """Give back all that was taken."""
        for url in [*self._schemas, *self._prefixes]:
            self.give_back(url)


def _schema(server: str, name: str, url: str) -> Schema:
    for schema in reversed(_free):  # the last one is the warmest
        if schema.server == server:
            schema.empty()
            _free.remove(schema)
            return schema
    return Schema(server, name, url)


def with_parameter(url: str, name: str, value: str) -> str:
    """The same URL with one parameter more."""
    parts = urlsplit(url)
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), (name, value)])
    return urlunsplit(parts._replace(query=query))


def _apart(work: Callable[[], T]) -> T:
    """On a thread of its own: what blocks is refused where a loop runs."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def _delete_keys(kind: Kind, url: str, name: str) -> None:
    """One command each: keys of several slots are not deleted by one."""
    with _nodes(kind, url) as nodes:
        for node in nodes:
            commands = node.pipeline(transaction=False)
            for key in node.scan_iter(match=f"*{name}*", count=1000):
                commands.unlink(key)
            commands.execute()


@contextmanager
def _nodes(kind: Kind, url: str) -> Iterator[list[Any]]:
    import redis  # noqa: PLC0415 - an extra, needed once keys were put

    if kind == "redis":
        with redis.Redis.from_url(url) as line:
            yield [line]
    else:
        with redis.RedisCluster.from_url(url) as cluster:
            yield [cluster.get_redis_connection(node) for node in cluster.get_primaries()]
