"""One call, one script: sent by its name, told in full where the server does not know it yet.

Whatever the driver raises becomes one of our errors here, and no driver's type goes further.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from redis import exceptions as driver

from outrider.clock import Clock, is_virtual
from outrider.errors import StoreError, StoreFull, StoreUnavailable, StoreUnusable
from outrider.store.redis.rows import CrawlRow
from outrider.store.redis.scripts import SCRIPTS, Script

Argument: TypeAlias = str | bytes | int

encode: Final = msgspec.msgpack.Encoder().encode
_NEW_CRAWL: Final = encode(CrawlRow())


class Client(Protocol):
    """All that is asked of a driver: `redis.asyncio.Redis` and its cluster's client have it."""

    def execute_command(self, *args: Any) -> Awaitable[Any]:
        """Send a command and wait for its answer."""
        ...

    def aclose(self) -> Awaitable[None]:
        """Let go of every connection."""
        ...


class Line:
    """Scripts run for one shard: `base` begins all its keys and holds its hash tag."""

    def __init__(self, client: Client, base: str, clock: Clock) -> None:
        self.client = client
        self.base = base
        self._clock = clock if is_virtual(clock) else None

    async def run(self, verb: str, crawl: str, *args: Argument, epoch: int | None = None) -> Any:
        """Run a script on a crawl; with an epoch it answers None if other rules hold."""
        moment = "" if self._clock is None else self._clock.now_ms()
        known = "" if epoch is None else epoch
        head = (1, self.base, crawl, moment, _NEW_CRAWL, known)
        return await told(self.evaluate(SCRIPTS[verb], *head, *args))

    async def evaluate(self, script: Script, *args: Argument) -> Any:
        """Run a script by its name, or tell it in full."""
        try:
            return await self.client.execute_command("EVALSHA", script.name, *args)
        except driver.NoScriptError:
            return await self.client.execute_command("EVAL", script.text, *args)

    async def command(self, *words: Argument) -> Any:
        """One plain command."""
        return await told(self.client.execute_command(*words))


async def told(work: Awaitable[Any]) -> Any:
    """What it answers, or what went wrong in our words."""
    try:
        return await work
    except (driver.RedisError, driver.RedisClusterException, OSError) as error:
        raise ours(error) from error


def ours(error: Exception) -> StoreError:
    """The driver's error as one of ours: whose fault, and may it be tried again."""
    if isinstance(error, driver.OutOfMemoryError) or str(error).startswith(("OOM", "MISCONF")):
        return StoreFull(f"Redis has no room to write, so nothing was changed: {error}")
    if isinstance(error, driver.AuthenticationError | driver.AuthorizationError):
        return StoreUnusable(f"Redis refused the user or the password in the URL: {error}")
    if isinstance(error, driver.NoPermissionError) or "NOPERM" in str(error):
        return StoreUnusable(f"this user of Redis lacks a right; see ACL SETUSER: {error}")
    if str(error).startswith("OUTRIDER format"):
        return StoreUnusable(f"a crawl was written by a newer Outrider ({error}); upgrade this one")
    if isinstance(error, driver.ReadOnlyError):
        return StoreUnavailable(f"Redis is a read-only replica now: {error}")
    if isinstance(error, _PASSING):
        return StoreUnavailable(f"Redis did not answer: {error}")
    return StoreError(f"Redis refused: {error}")


_PASSING: Final = (
    driver.ConnectionError,
    driver.TimeoutError,
    driver.ClusterError,
    driver.TryAgainError,
    driver.AskError,
    driver.RedisClusterException,
    OSError,
)
