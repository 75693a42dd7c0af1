"""Named points where a child kills itself: installed around a store's methods, never inside it.

A method that is not there any more is an error: a point nobody reaches would test nothing.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Final

_EMBEDDED: Final = "outrider.store.embedded"

# Where, and whether to die before it, after it, or at either.
_AROUND: Final[dict[str, tuple[str, str, bool, bool]]] = {
    "before-write": (f"{_EMBEDDED}.file", "CrawlFile.append", True, False),
    "after-write": (f"{_EMBEDDED}.file", "CrawlFile.append", False, True),
    "before-reply": (f"{_EMBEDDED}.store", "EmbeddedStore._forward", False, True),
    "during-snapshot": (f"{_EMBEDDED}.file", "CrawlFile.put_piece", True, True),
    "during-growth": (f"{_EMBEDDED}.fingerprint_table", "FingerprintTable._move", True, True),
}
# Which part of the file is written meanwhile: the log by every verb, the rest only by folding it.
_WRITING: Final = {"during-write": "-wal", "during-fold": ""}

POINTS: Final = (*_AROUND, *_WRITING)

# Small, so that a short life sees everything: snapshots of many pieces, queues sent away, folds.
_TIGHT: Final = {
    "SNAPSHOT_AFTER": 400,
    "SNAPSHOT_AT_CLOSE": 50,
    "MAX_CACHED_PAGES": 16,
    "WAL_PAGES": 60,
    "IDLE_KEPT": 10,
    "MAX_RESIDENT": 20,
    "MAX_PACKED_TASKS": 30,
    "MAX_CHECKED": 8,
    "PIECE_BYTES": 2048,
    "SLICE_BYTES": 8192,
    "MAX_PACKED_PER_VERB": 4,
    "UNLOADED_STEP": 20,
    "QUEUE_PAGES_STEP": 64,
    "MOVE_STEP": 16,
    "PIECE_BUCKETS": 32,
}


def tight_places() -> Iterator[tuple[ModuleType, str, int]]:
    """Where a constant of the embedded store stands, and how small it may be."""
    package = import_module(_EMBEDDED)
    names = [name for _, name, _ in iter_modules(package.__path__, f"{_EMBEDDED}.")]
    modules = [import_module(name) for name in names]
    for constant, value in _TIGHT.items():
        owners = [module for module in modules if constant in vars(module)]
        if not owners:
            raise AttributeError(f"{_EMBEDDED} has no {constant} any more: say what it is now")
        yield from ((module, constant, value) for module in owners)


def tighten() -> None:
    """Let the embedded store do often what it does rarely."""
    for module, constant, value in tight_places():
        setattr(module, constant, value)


class Fuse:
    """Burns down one arrival at a time; the last one kills this process at once."""

    def __init__(self, arrivals: int) -> None:
        self._left = arrivals

    def burn(self) -> None:
        """Somebody got here."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def install(point: str, arrivals: int) -> object:
    """Die at a point at the n-th arrival; hold on to what is returned."""
    fuse = Fuse(arrivals)
    if point in _WRITING:
        from crash.disk import Watched  # noqa: PLC0415 - not every store is SQLite

        return Watched("outrider-watched", _WRITING[point], fuse.burn)
    module, name, before, after = _AROUND[point]
    owner, method = _found(module, name)
    setattr(owner, method, _wrapped(getattr(owner, method), fuse, before=before, after=after))
    return fuse


def _found(module: str, name: str) -> tuple[type, str]:
    owner, method = name.split(".")
    found = getattr(import_module(module), owner)
    if method not in vars(found):
        raise AttributeError(f"{module}.{name} is gone: say where this point is now")
    return found, method


def _wrapped(method: Any, fuse: Fuse, *, before: bool, after: bool) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def run(*args: Any, **kwargs: Any) -> Any:
            result = await method(*args, **kwargs)
            fuse.burn()
            return result

        return run

    @functools.wraps(method)
    def call(*args: Any) -> Any:
        if before:
            fuse.burn()
        result = method(*args)
        if after:
            fuse.burn()
        return result

    return call
