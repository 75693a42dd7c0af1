"""Where one of several workers writes: files of its own, that no living other has.

A seat is free once its worker is dead, so whoever has its lock may settle what that one left.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from outrider.cli.showing import note
from outrider.errors import InvalidInput, OutputError, StoreError, StoreUnavailable
from outrider.executor.outage import Outage
from outrider.frontier import Frontier
from outrider.output.left import journals_of, settle_left

MOST: Final = 10_000  # workers of one crawl on one machine
END_WITHIN: Final = 5.0  # seconds a store that is away is asked again at the end of a run
EVERY: Final = 60.0  # seconds: a worker may stay for weeks, and others be killed meanwhile
T = TypeVar("T")
_ODD: Final = re.compile(r"[^A-Za-z0-9.-]+")


@contextmanager
def seated(stem: str) -> Iterator[str]:
    """What the names of this worker's files begin with: STEM-HOST-N.

    The lowest N that nobody has: a worker that is started again goes on where it was.
    """
    if not Path(stem).parent.is_dir():
        raise InvalidInput(f"{stem}: there is no directory {Path(stem).parent}; make it first")
    for number in range(1, MOST + 1):
        name = f"{stem}-{_host()}-{number}"
        with _locked(name) as is_ours:
            if is_ours:
                yield name
                return
    raise InvalidInput(f"{stem}: {MOST} workers of this machine write there already")


def _host() -> str:
    return _ODD.sub("-", socket.gethostname())[:64]


@contextmanager
def _locked(name: str) -> Iterator[bool]:
    """Whether the seat is ours meanwhile."""
    with Path(f"{name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def stem_of(seat: str) -> str:
    """What it was named after."""
    return seat.rpartition(f"-{_host()}-")[0]


@asynccontextmanager
async def settling(
    stem: str, frontier: Frontier, *, every: float = EVERY, outage: Outage | None = None
) -> AsyncIterator[None]:
    """What others of this machine leave in doubt when they are killed: before, after, meanwhile.

    Their pages may be visited by anybody, and perhaps nobody writes to those files again.
    """
    settler = _Settler(stem, frontier)
    await (outage or Outage(note)).call(settler.settle)
    often = asyncio.create_task(settler.settle_often(every))
    try:
        yield
    finally:
        often.cancel()
        await asyncio.wait([often])
    with suppress(StoreUnavailable):  # the next worker does it
        await patiently(settler.settle)


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Ask the store at the end of a run: its holder may end in the same moment."""
    outage = Outage(note)
    outage.end_by(asyncio.get_running_loop().time() + END_WITHIN)
    return await outage.call(work)


class _Settler:
    """Knows the store itself, whatever the frontier stands on meanwhile."""

    def __init__(self, stem: str, frontier: Frontier) -> None:
        self._stem, self._store = stem, frontier.store
        self._sync = frontier.settings.store.durability == "sync"
        self._told: set[str] = set()

    async def settle_often(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            with suppress(StoreError):  # later, then
                await self.settle()

    async def settle(self) -> None:
        await self._settle(self._stem)
        for seat in _seats(self._stem):
            if journals_of(seat):  # else it would be kept from one who sits down, for nothing
                with _locked(seat) as is_ours:
                    if is_ours:
                        await self._settle(seat)

    async def _settle(self, name: str) -> None:
        try:
            await settle_left(name, self._store, sync=self._sync)
        except OutputError as error:  # of files that are not ours: told once
            if str(error) not in self._told:
                note(f"left in doubt: {error}")
            self._told.add(str(error))


def _seats(stem: str) -> list[str]:
    """All of this machine, taken or free."""
    first = Path(f"{stem}-{_host()}")
    found = re.compile(rf"({re.escape(first.name)}-[0-9]+)\.lock").fullmatch
    names = [match[1] for path in first.parent.iterdir() if (match := found(path.name))]
    return [str(first.with_name(name)) for name in sorted(names)]
