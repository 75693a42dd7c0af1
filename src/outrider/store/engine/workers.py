"""The workers of one crawl by their last heartbeats; in memory only, the next ones refill it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, final

import msgspec

from outrider.store.protocol import MAX_WORKERS, WORKER_KEPT_SECONDS, Heartbeat, WorkerView

_KEPT_MS: Final = int(WORKER_KEPT_SECONDS * 1000)


class LastHeartbeat(NamedTuple):
    """A worker's last heartbeat, and the times of its first and its last."""

    heartbeat: Heartbeat
    first: int
    last: int


@final
class Workers:
    """Workers by name; the silent are removed after a day, of too many the one silent longest."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, LastHeartbeat] = {}

    def heartbeat(self, heartbeat: Heartbeat, now: int) -> None:
        """Record a heartbeat."""
        known = self._by_name.pop(heartbeat.worker, None)
        first = now if known is None or now - known.last >= _KEPT_MS else known.first
        if len(self._by_name) >= MAX_WORKERS:
            self._remove_silent(now)
        self._by_name[heartbeat.worker] = LastHeartbeat(heartbeat, first, now)

    def _remove_silent(self, now: int) -> None:
        kept = {name: one for name, one in self._by_name.items() if now - one.last < _KEPT_MS}
        if len(kept) >= MAX_WORKERS:
            del kept[min(kept, key=lambda name: (kept[name].last, name))]
        self._by_name = kept

    def views(self, now: int) -> list[WorkerView]:
        """Return the workers by their first heartbeat, then by name."""
        return worker_views(self._by_name.values(), now)


def worker_views(heartbeats: Iterable[LastHeartbeat], now: int) -> list[WorkerView]:
    """Return workers by their first heartbeat, then by name; without those silent for a day."""
    kept = [one for one in heartbeats if now - one.last < _KEPT_MS]
    kept.sort(key=lambda one: (one.first, one.heartbeat.worker))
    return [_view(one, now) for one in kept]


def _view(one: LastHeartbeat, now: int) -> WorkerView:
    """Return a worker's view; a silent one is reported as gone."""
    fields = msgspec.structs.asdict(one.heartbeat)
    if now - one.last >= fields.pop("lasts") * 1000:
        fields["state"] = "gone"
    return WorkerView(**fields, started_at=one.first / 1000, seen_at=one.last / 1000)
