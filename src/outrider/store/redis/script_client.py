"""Lua scripts: assembled at import from `scripts/`, and run on the server, one per call.

Every file in `scripts/` is a script; its first line names the pieces of `scripts/lib` it includes.
A name in capitals in a script is a constant that is put in here: `Q_TURN` is the position of the
field `turn` in a queue's row, `K_DEADLINES` a key. So rows and keys are named once, and a wrong
name is found at import. Errors of the driver are translated here, so that none of its types leaves
this package.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterator, Mapping
from hashlib import sha1
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from redis import exceptions as driver

from outrider.clock import Clock, is_virtual
from outrider.core.order import ordered
from outrider.core.policy.politeness import MAX_DELAY
from outrider.core.states import DELETING, FORGOTTEN
from outrider.core.task import CRITICAL, HIGH, LOW
from outrider.errors import StoreError, StoreFull, StoreUnavailable, StoreUnusable
from outrider.store.event_ring import RING_BYTES, RING_EVENTS
from outrider.store.export_items import RESTORING
from outrider.store.protocol import STORE_VALUES
from outrider.store.redis import keys
from outrider.store.redis.rows import (
    ADD_DONE,
    FORMAT,
    HEAD_BYTES,
    KNOWN_RULES,
    LIST_STATES,
    ROW,
    SHORT_ROW,
    STATES,
    CrawlRow,
    QueueRow,
    RulesRow,
    TaskRow,
    VerdictRow,
)

# ---- assembling

CHUNK: Final = 4096  # rows of tasks, or of queues, in one hash
BUCKET: Final = 64  # fingerprints in one hash: the server keeps small hashes compact
MAX_EVENTS: Final = 10_000  # of a crawl's log
RING_SECONDS: Final = 86_400  # after which published events are forgotten, if none come
MAX_TIMELINE: Final = 100  # changes of status that are kept
EXPIRE_STEP: Final = 250  # overdue leases one call expires
WAKE_STEP: Final = 512  # queues one call reschedules because their wake time has come
MAX_PROMOTED: Final = 1000  # delayed tasks of a queue that move to its lanes at once
MAX_SCANNED: Final = 256  # tasks of a lane whose due times are compared
MAX_PREFETCHED: Final = 64  # ready queues read at once
MAX_VALUES_BYTES: Final = 1 << 20  # of shared values that one call returns
MAX_DELAYED_COUNTED: Final = 10_000  # delayed tasks of a queue among which a position is counted


# The first line of a file names the pieces of `scripts/lib` that come before it.
_INCLUDE: Final = "-- include: "


class Script(NamedTuple):
    """A script in full, and the digest by which a server that has it can run it."""

    text: str
    digest: str


def _positions(letter: str, row: type[msgspec.Struct], *, after: int = 0) -> dict[str, str]:
    return {
        f"{letter}_{field.upper()}": str(position)
        for position, field in enumerate(row.__struct_fields__, after + 1)
    }


def constants() -> dict[str, str]:
    """Return what is put in for every name in capitals."""
    return {
        **_positions("C", CrawlRow),
        **_positions("Q", QueueRow),
        **_positions("T", TaskRow),
        **_positions("R", RulesRow),
        **_positions("V", VerdictRow, after=1),
        "VERDICT_FIELDS": str(len(VerdictRow.__struct_fields__)),
        **{f"K_{name.upper()}": f"'{key}'" for name, key in keys.CRAWL_KEYS.items()},
        **{state.value.upper(): str(number) for number, state in enumerate(STATES)},
        **{name: str(number) for name, number in LIST_STATES.items()},
        **{f"KNOWN_{name.upper()}": str(number) for name, number in KNOWN_RULES.items()},
        "HEAD_BYTES": str(HEAD_BYTES),
        # The upper half of a priority's bytes tells its band.
        "MAX_CRITICAL": str(ordered(CRITICAL) >> 32),
        "MAX_HIGH": str(ordered(HIGH) >> 32),
        "MIN_LOW": str(ordered(LOW) >> 32),
        "ADD_DONE": str(ADD_DONE),
        "FORGOTTEN": f"'{FORGOTTEN}'",
        "DELETING": f"'{DELETING}'",
        "K_CRAWLS": f"'{keys.CRAWLS}'",
        "K_UPGRADE": f"'{keys.UPGRADE}'",
        "META": f"'{keys.META}'",
        "FORMAT": str(FORMAT),
        "ROW": str(ROW),
        "SHORT_ROW": str(SHORT_ROW),
        "CHUNK": str(CHUNK),
        "BUCKET": str(BUCKET),
        "MAX_EVENTS": str(MAX_EVENTS),
        "RING_EVENTS": str(RING_EVENTS),
        "RING_BYTES": str(RING_BYTES),
        "RING_SECONDS": str(RING_SECONDS),
        "MAX_TIMELINE": str(MAX_TIMELINE),
        "EXPIRE_STEP": str(EXPIRE_STEP),
        "WAKE_STEP": str(WAKE_STEP),
        "MAX_DELAY": str(MAX_DELAY),
        "MAX_PROMOTED": str(MAX_PROMOTED),
        "MAX_SCANNED": str(MAX_SCANNED),
        "MAX_PREFETCHED": str(MAX_PREFETCHED),
        "MAX_DELAYED_COUNTED": str(MAX_DELAYED_COUNTED),
        "MAX_VALUES_BYTES": str(MAX_VALUES_BYTES),
        "NO_RANK": "'" + r"\0" * 10 + "'",
        "RESTORING": f"'{RESTORING}'",
    }


def _included(name: str, texts: Mapping[str, str], found: dict[str, None]) -> dict[str, None]:
    """Return a file and all that it includes, each once and after those it includes itself."""
    first_line = texts[name].partition("\n")[0]
    if first_line.startswith(_INCLUDE):
        for included in first_line.removeprefix(_INCLUDE).split(", "):
            _included(f"lib/{included}", texts, found)
    found[name] = None
    return found


def _assemble() -> Iterator[tuple[str, Script]]:
    directory, values = Path(__file__).parent / "scripts", constants()

    def put_in(found: re.Match[str]) -> str:
        return values[found[0]] if found[0] in values or found[1] else found[0]

    texts = {
        path.relative_to(directory).with_suffix("").as_posix(): re.sub(
            r"\b(?:([CQTRVK]_)[A-Z]\w*|[A-Z]\w*)\b", put_in, path.read_text(encoding="utf-8")
        )
        for path in directory.rglob("*.lua")
    }
    for name in texts:
        if not name.startswith("lib/"):
            text = "".join(texts[part] for part in _included(name, texts, {}))
            yield name, Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


SCRIPTS: Final = dict(_assemble())

# ---- running

Argument: TypeAlias = str | bytes | int

encode: Final = msgspec.msgpack.Encoder().encode
_NEW_CRAWL: Final = encode(CrawlRow())


class Client(Protocol):
    """All that is asked of a driver: `redis.asyncio.Redis` and `SlotClient` have it."""

    def execute_command(self, *args: Any) -> Awaitable[Any]:
        """Send a command and wait for its answer."""
        ...

    def aclose(self) -> Awaitable[None]:
        """Close every connection."""
        ...


class ScriptClient:
    """Runs scripts on one shard; all its keys begin with `base`, which holds a hash tag."""

    def __init__(self, client: Client, base: str, clock: Clock) -> None:
        self.client = client
        self.base = base
        self._clock = clock if is_virtual(clock) else None

    async def run(self, script: str, crawl: str, *args: Argument, epoch: int | None = None) -> Any:
        """Run a script on a crawl; None if its rules are not those of the epoch given."""
        now = "" if self._clock is None else self._clock.now_ms()
        common = (1, self.base, crawl, now, _NEW_CRAWL, "" if epoch is None else epoch)
        return await _translate_errors(self.evaluate(SCRIPTS[script], *common, *args))

    async def evaluate(self, script: Script, *args: Argument) -> Any:
        """Run a script by its digest, or in full if the server does not have it yet."""
        try:
            return await self.client.execute_command("EVALSHA", script.digest, *args)
        except driver.NoScriptError:
            return await self.client.execute_command("EVAL", script.text, *args)

    async def command(self, *words: Argument) -> Any:
        """Run one plain command."""
        return await _translate_errors(self.client.execute_command(*words))

    async def crawl_names(self) -> list[str]:
        """Return the names of all crawls, in the order of their creation."""
        found = await self.command("HGETALL", self.base + keys.CRAWLS)
        numbers = found.items() if isinstance(found, dict) else pairs(found)
        names = [name.decode() for name, _ in sorted(numbers, key=lambda one: int(one[1]))]
        return [name for name in names if name != STORE_VALUES]


def pairs(flat: Any) -> list[tuple[Any, Any]]:
    """Return the pairs of a flat list, as which a script returns a hash."""
    return list(zip(flat[::2], flat[1::2], strict=True))


async def _translate_errors(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except (driver.RedisError, driver.RedisClusterException, OSError) as error:
        raise translate_error(error) from error


def translate_error(error: Exception) -> StoreError:
    """Return the driver's error as one of Outrider's, whose type says if a retry may help."""
    if isinstance(error, driver.OutOfMemoryError) or str(error).startswith(("OOM", "MISCONF")):
        return StoreFull(
            f"Redis cannot write ({error}), so nothing was changed: "
            "raise its maxmemory, or free space on its disk"
        )
    if isinstance(error, driver.AuthenticationError | driver.AuthorizationError):
        return StoreUnusable(
            f"Redis refused the user or the password ({error}): "
            "write them as redis://user:password@host"
        )
    if isinstance(error, driver.NoPermissionError) or "NOPERM" in str(error):
        return StoreUnusable(
            f"this user of Redis lacks a permission ({error}): grant it with ACL SETUSER"
        )
    if str(error).startswith("OUTRIDER format"):
        return StoreUnusable(f"a crawl was written by a newer Outrider ({error}): upgrade this one")
    if isinstance(error, driver.ReadOnlyError):
        return StoreUnavailable(
            f"Redis has become a read-only replica ({error}): name its primary in the URL"
        )
    if isinstance(error, _TRANSIENT):
        return StoreUnavailable(f"Redis did not answer: {error}")
    return StoreError(f"Redis refused the call: {error}")


_TRANSIENT: Final = (
    driver.ConnectionError,
    driver.TimeoutError,
    driver.ClusterError,
    driver.TryAgainError,
    driver.AskError,
    driver.RedisClusterException,
    OSError,
)
