"""Subscriptions: who is notified when a verb of this process may have brought work (C6).

Notifications of one turn of the event loop become one. A store asks `by_crawl` before anything
else, so they cost nothing without subscribers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from typing import Final, final

from outrider.logs import logger_of
from outrider.store.protocol import Inspect

# Verbs after which no claim can find more than before.
SILENT_VERBS: Final = frozenset(
    {name for name, verb in vars(Inspect).items() if iscoroutinefunction(verb)}
    | {"heartbeat", "put_values", "add_roots", "publish"}
)
_log = logger_of(__name__)


@final
class Subscriptions:
    """The subscribers of one store by crawl; each is called on the loop it subscribed on."""

    __slots__ = ("_loop", "_rung", "by_crawl")

    def __init__(self) -> None:
        self.by_crawl: dict[str, dict[object, Callable[[], None]]] = {}
        self._rung: dict[str, None] = {}  # crawls to notify of in the next turn of the loop
        self._loop: asyncio.AbstractEventLoop | None = None

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` after each `ring` of a crawl; return the unsubscriber."""
        self._loop = asyncio.get_running_loop()
        subscription = object()
        self.by_crawl.setdefault(crawl, {})[subscription] = notify

        def unsubscribe() -> None:
            subscribers = self.by_crawl.get(crawl, {})
            subscribers.pop(subscription, None)
            if not subscribers:
                self.by_crawl.pop(crawl, None)

        return unsubscribe

    def ring(self, crawls: Iterable[str]) -> None:
        """Notify the subscribers of these crawls, in the next turn of the loop."""
        wanted = [crawl for crawl in crawls if crawl in self.by_crawl]
        if not wanted or self._loop is None or self._loop.is_closed():
            return
        if not self._rung:
            self._loop.call_soon(self._notify)
        self._rung.update(dict.fromkeys(wanted))

    def _notify(self) -> None:
        rung, self._rung = self._rung, {}
        for crawl in rung:
            for notify in tuple(self.by_crawl.get(crawl, {}).values()):
                try:
                    notify()
                except Exception:  # noqa: BLE001 - the others must hear of it
                    _log.exception("a subscriber to notifications of crawl %s failed", crawl)

    def clear(self) -> None:
        """Forget all subscribers: the store is closed."""
        self.by_crawl.clear()
