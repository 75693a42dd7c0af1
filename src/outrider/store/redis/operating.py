"""What operators do: rules are resolved here, acts and filters applied there, in bounded steps.

A step reads a page, chooses, and applies by number; what changed meanwhile is not touched, or the
step is done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec

from outrider.clock import to_ms
from outrider.core import queue_action as actions
from outrider.core.order import NUMBER_MASK
from outrider.core.policy.rules import CrawlRules, QueueRules, acted, covers
from outrider.core.queue_action import QueueAction
from outrider.core.states import OPERATOR_MOVES, CrawlStatus, TaskState
from outrider.store.noting import checked_prices
from outrider.store.protocol import (
    MAX_WORKERS,
    WORKER_KEPT_SECONDS,
    Heartbeat,
    PriorityUpdate,
    Step,
    TaskFilter,
)
from outrider.store.redis.calling import encode
from outrider.store.redis.reading import Reading
from outrider.store.redis.rows import QueueRow, raw
from outrider.store.redis.ruling import Batch, crawl_numbers, rules_text
from outrider.store.redis.texts import breakdown_text, sorted_bytes

QUEUES_A_CALL: Final = 250
TASKS_A_CALL: Final = 500

_Verb: TypeAlias = Literal["drop", "replay", "purge"]


class _Order(msgspec.Struct, frozen=True):
    """An act, under the rules that hold once it is said."""

    target: str
    act: QueueAction
    rules: CrawlRules
    epoch: int  # of the rules before
    says: bool  # it changes the crawl's rules, for queues to come
    is_told: bool  # with this step every queue has heard of them

    def for_queue(self, key: str, old: QueueRules) -> QueueRules | None:
        """The rules a queue shall go by; None: it is left alone."""
        new = self.rules.of(key)
        if not isinstance(self.act, actions.Set):
            return acted(old, new)
        return None if not self.target and old == new else new

    def written(self) -> bytes:
        """As the script reads it: its name, milliseconds, new rules if any, who has heard."""
        act = self.act
        numbers: Any = False
        text = ""
        wait = to_ms(act.seconds) if isinstance(act, actions.Snooze) else 0
        if self.says:
            numbers, text = crawl_numbers(self.rules), rules_text(self.rules).decode()
        return encode([type(act).__name__.lower(), wait, numbers, text, self.is_told])


class Operating(Reading):
    """Live and durable."""

    async def configure(self, crawl: str, rules: CrawlRules, settings: str = "") -> bool:
        """See `protocol.Admin`."""
        while True:
            book = await self.learn_rules(crawl)
            new = msgspec.structs.replace(rules, runtime=book.rules.runtime)
            text = rules_text(new)
            is_other = "1" if text != rules_text(book.rules) else ""
            numbers = encode(crawl_numbers(new))
            answer = await self.line.run(
                "configure", crawl, numbers, text, settings, is_other, epoch=book.epoch
            )
            if answer is not None:
                is_untold, is_reordered = answer
                if is_reordered:
                    await self._rank_anew(crawl)
                return bool(is_untold)

    async def _rank_anew(self, crawl: str) -> None:
        """Another order among queues holds at once: those that stand ready stand anew."""
        after = 0
        while await self.line.run("rerank", crawl, after + 1, after + QUEUES_A_CALL):
            after += QUEUES_A_CALL

    async def steer(
        self, crawl: str, target: str, act: QueueAction, *, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        changes = _standing_order(act)
        while True:
            book = await self.learn_rules(crawl)
            says = bool(target and changes and after == 0)
            rules = book.rules.ordered(target, changes) if says else book.rules
            step, queues = await self._steered(crawl, target, after, limit)
            is_told = step.after is None and not target and isinstance(act, actions.Set)
            order = _Order(target, act, rules, book.epoch, says=says, is_told=is_told)
            if await self._apply(crawl, order, queues):
                return step

    async def _steered(
        self, crawl: str, target: str, after: int, limit: int
    ) -> tuple[Step, list[QueueRow]]:
        """The queues of one step: those that match, up to `limit`, and where to go on."""
        if target and not target.startswith("."):
            found = await self.find_queue(crawl, target)
            return Step(len(found), None), found
        chosen: list[QueueRow] = []
        row, queues = await self.queue_rows(crawl, after + 1, after + QUEUES_A_CALL)
        while queues:
            chosen += [queue for queue in queues if covers(target, queue.key)]
            if len(chosen) > limit:
                return Step(limit, chosen[limit - 1].number), chosen[:limit]
            last = queues[-1].number
            if last >= row.queues:
                break
            row, queues = await self.queue_rows(crawl, last + 1, last + QUEUES_A_CALL)
        return Step(len(chosen), None), chosen

    async def _apply(self, crawl: str, order: _Order, queues: list[QueueRow]) -> bool:
        """False: something changed meanwhile, and nothing was done."""
        batch = Batch(self.book(crawl))
        known = await self.rulings(crawl, {queue.rules for queue in queues})
        wanted = [
            (queue.number, queue.rules, batch.ruling(rules))
            for queue in queues
            if (rules := order.for_queue(queue.key, known[queue.rules])) is not None
        ]
        said, common = order.written(), batch.written()
        answer = await self.line.run(
            "steer", crawl, said, common, encode(wanted), epoch=order.epoch
        )
        return answer is not None

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """See `protocol.Admin`."""
        await self.line.run("roots", crawl, mode, *roots)

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator"
    ) -> CrawlStatus:
        """See `protocol.Admin`."""
        allowed = [before.value for before, after in OPERATOR_MOVES.items() if status in after]
        found = await self.line.run("turn", crawl, status.value, reason, encode(allowed))
        return CrawlStatus(found.decode())

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """See `protocol.Admin`."""
        await self.line.run(
            "beat",
            crawl,
            heartbeat.worker,
            msgspec.json.encode(heartbeat),
            to_ms(WORKER_KEPT_SECONDS),
            MAX_WORKERS,
        )

    # ---- tasks

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """See `protocol.Admin`."""
        checked_prices(updates)
        rows = [_priced(price) for price in updates if 0 < price.task <= NUMBER_MASK]
        count = 0
        for start in range(0, max(1, len(rows)), TASKS_A_CALL):
            part = encode(rows[start : start + TASKS_A_CALL])
            count += await self.line.run("reprice", crawl, part)
        return count

    async def drop(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._each("drop", crawl, which, dry_run=dry_run, after=after, limit=limit)

    async def replay(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._each("replay", crawl, which, dry_run=dry_run, after=after, limit=limit)

    async def purge(
        self, crawl: str, which: TaskFilter, *, dry_run: bool, after: int = 0, limit: int = 1000
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._each("purge", crawl, which, dry_run=dry_run, after=after, limit=limit)

    async def _each(
        self, verb: _Verb, crawl: str, which: TaskFilter, *, dry_run: bool, after: int, limit: int
    ) -> Step:
        state = TaskState.PENDING if verb == "drop" else TaskState.DEAD
        numbers, more = await self.matching(crawl, which, state, after=after, limit=limit)
        if dry_run:
            return Step(len(numbers), more)
        count = 0
        for start in range(0, max(1, len(numbers)), TASKS_A_CALL):
            part = encode(numbers[start : start + TASKS_A_CALL])
            count += await self.line.run("each", crawl, verb, part)
        return Step(count, more)


def _priced(price: PriorityUpdate) -> tuple[int, msgspec.Raw, msgspec.Raw, msgspec.Raw]:
    """As the script reads it."""
    seen, new = sorted_bytes(price.seen), sorted_bytes(price.priority)
    return price.task, raw(seen), raw(new), raw(breakdown_text(price.breakdown))


def _standing_order(act: QueueAction) -> dict[str, Any]:
    """What a later queue of the same key or suffix is born with."""
    match act:
        case actions.Set(changes):
            return dict(changes)
        case actions.Pause() | actions.Resume():
            return {"paused": isinstance(act, actions.Pause)}
        case actions.Retire() | actions.Revive():
            return {"retired": isinstance(act, actions.Retire)}
        case actions.Snooze() | actions.Wake():
            return {}
        case _:
            assert_never(act)
