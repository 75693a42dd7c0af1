"""Who works on a crawl, as they last said themselves; kept in memory only, beats bring it back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from outrider.store.protocol import MAX_WORKERS, WORKER_KEPT_SECONDS, Heartbeat, WorkerView

_KEPT_MS: Final = int(WORKER_KEPT_SECONDS * 1000)


class Heard(NamedTuple):
    """A worker's last beat, and when its first and its last were heard."""

    beat: Heartbeat
    first: int
    last: int


class Workers:
    """By name; the silent are forgotten after a day, and of too many the one silent longest."""

    def __init__(self) -> None:
        self._heard: dict[str, Heard] = {}

    def hear(self, beat: Heartbeat, now: int) -> None:
        """A worker says how it is."""
        known = self._heard.pop(beat.worker, None)
        first = now if known is None or now - known.last >= _KEPT_MS else known.first
        if len(self._heard) >= MAX_WORKERS:
            self._forget(now)
        self._heard[beat.worker] = Heard(beat, first, now)

    def _forget(self, now: int) -> None:
        self._heard = {name: one for name, one in self._heard.items() if now - one.last < _KEPT_MS}
        if len(self._heard) >= MAX_WORKERS:
            del self._heard[min(self._heard, key=lambda name: (self._heard[name].last, name))]

    def views(self, now: int) -> list[WorkerView]:
        """By their first beat, then by name."""
        return views_of(self._heard.values(), now)


def views_of(heard: Iterable[Heard], now: int) -> list[WorkerView]:
    """By their first beat, then by name; the long silent are left out."""
    kept = [one for one in heard if now - one.last < _KEPT_MS]
    kept.sort(key=lambda one: (one.first, one.beat.worker))
    return [_view_of(one, now) for one in kept]


def _view_of(one: Heard, now: int) -> WorkerView:
    """What others see of a worker; one that is silent reads as gone."""
    said = msgspec.structs.asdict(one.beat)
    if now - one.last >= said.pop("lasts") * 1000:
        said["state"] = "gone"
    return WorkerView(**said, started_at=one.first / 1000, seen_at=one.last / 1000)
