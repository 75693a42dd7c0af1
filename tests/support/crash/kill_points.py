"""Kill points: named methods of the embedded store at which a child process kills itself.

They are installed around methods. A method that no longer exists is an error, since its point would
test nothing.
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

# Module, method, and whether to die before it, after it, or at both.
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


def small_constants() -> Iterator[tuple[ModuleType, str, int]]:
    """Yield the modules with a constant of the embedded store, its name and a small value."""
    package = import_module(_EMBEDDED)
    names = [name for _, name, _ in iter_modules(package.__path__, f"{_EMBEDDED}.")]
    modules = [import_module(name) for name in names]
    for constant, value in _TIGHT.items():
        owners = [module for module in modules if constant in vars(module)]
        if not owners:
            raise AttributeError(f"{_EMBEDDED} has no {constant} any more: say what it is now")
        yield from ((module, constant, value) for module in owners)


def use_small_constants() -> None:
    """Set small constants, so that the embedded store does rare things often."""
    for module, constant, value in small_constants():
        setattr(module, constant, value)


class Countdown:
    """Counts arrivals, and kills this process at the last one."""

    def __init__(self, arrivals: int) -> None:
        self._left = arrivals

    def arrive(self) -> None:
        """Count an arrival."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def install(point: str, arrivals: int) -> object:
    """Die at the n-th arrival at a point; keep a reference to the result."""
    countdown = Countdown(arrivals)
    if point in _WRITING:
        from crash.disk import Watched  # noqa: PLC0415 - not every store is SQLite

        return Watched("outrider-watched", _WRITING[point], countdown.arrive)
    module, name, before, after = _AROUND[point]
    owner, method = _find_method(module, name)
    setattr(owner, method, _wrap(getattr(owner, method), countdown, before=before, after=after))
    return countdown


def _find_method(module: str, name: str) -> tuple[type, str]:
    owner, method = name.split(".")
    found = getattr(import_module(module), owner)
    if method not in vars(found):
        raise AttributeError(f"{module}.{name} is gone: say where this point is now")
    return found, method


def _wrap(method: Any, countdown: Countdown, *, before: bool, after: bool) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def run(*args: Any, **kwargs: Any) -> Any:
            result = await method(*args, **kwargs)
            countdown.arrive()
            return result

        return run

    @functools.wraps(method)
    def call(*args: Any) -> Any:
        if before:
            countdown.arrive()
        result = method(*args)
        if after:
            countdown.arrive()
        return result

    return call
