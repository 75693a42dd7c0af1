"""Which queues an operator means: what a person writes, as the crawl's keying names it (A4)."""

from __future__ import annotations

from outrider.core.policy.queue_key import address
from outrider.errors import InvalidInput
from outrider.frontier.footing import Footing, keying_of
from outrider.store.protocol import QueueView


async def target_of(frontier: Footing, text: str) -> str:
    """The key or suffix that the store is to match; InvalidInput: it can reach no queue.

    A queue that is there is always reached by its exact key: a link may have brought it.
    """
    try:
        target = address(keying_of(frontier), text)
    except ValueError as error:
        if await _is_there(frontier, text):
            return text
        raise InvalidInput(f"{text!r} reaches no queue: {error}") from None
    if target == text or text.startswith(".") or not await _is_there(frontier, text):
        return target
    return text


async def filter_key_of(frontier: Footing, key: str | None) -> str | None:
    """The same for a filter of tasks, which need not name a key."""
    return await target_of(frontier, key) if isinstance(key, str) and key else key


def is_known(view: QueueView) -> bool:
    """Whether a task of this key was ever added."""
    return bool(view.pending + view.in_flight + view.done + view.dead + view.dropped)


async def _is_there(frontier: Footing, key: str) -> bool:
    return is_known(await frontier.store.queue(frontier.crawl, key))
