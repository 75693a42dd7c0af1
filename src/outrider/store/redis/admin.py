"""Operators' verbs: rules are resolved and filters applied here, changes made by scripts.

A step reads a page of queues or tasks, chooses among them, and changes those by number. Tasks that
changed meanwhile are left alone; if the rules of a queue did, the step is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

import msgspec

from outrider.clock import to_ms
from outrider.core import queue_action as actions
from outrider.core.order import NUMBER_MASK
from outrider.core.policy.rules import CrawlRules, QueueRules, covers, use_actions
from outrider.core.queue_action import QueueAction
from outrider.core.states import OPERATOR_MOVES, CrawlStatus, TaskState
from outrider.core.worker_totals import sum_of_totals
from outrider.store.acts import (
    Act,
    act_of_configure,
    act_of_filter,
    act_of_steer,
    validate_by,
)
from outrider.store.engine.journal import is_same_process, with_later_totals
from outrider.store.event_ring import batch_bytes
from outrider.store.protocol import (
    MAX_WORKERS,
    WORKER_KEPT_SECONDS,
    EventBatch,
    Heartbeat,
    PriorityUpdate,
    Step,
    TaskFilter,
    WhichCrawl,
)
from outrider.store.redis.inspector import (
    QUEUES_PER_CALL,
    TASKS_PER_CALL,
    RedisInspector,
    decode_heartbeat,
    decode_worker,
)
from outrider.store.redis.keys import SINGLE_KEYS
from outrider.store.redis.rows import STATE_NUMBERS, QueueRow, raw
from outrider.store.redis.rules_cache import Batch, RulesCache, crawl_numbers, encode_rules
from outrider.store.redis.script_client import ScriptClient, encode
from outrider.store.redis.task_codec import encode_breakdown, priority_bytes
from outrider.store.validation import (
    validate_batch,
    validate_heartbeat,
    validate_priority_updates,
)

PENDING, DEAD = TaskState.PENDING, TaskState.DEAD

MAX_GONE_WORKERS: Final = 100  # removed workers that are kept one by one until they are added up
_encode_json = msgspec.json.Encoder().encode


class _Action(msgspec.Struct, frozen=True):
    """An operator's action on queues, and the crawl's rules after it."""

    target: str
    act: QueueAction
    rules: CrawlRules
    epoch: int  # of the rules before
    changes_rules: bool  # of the crawl, for future queues
    completes: bool  # after this step every queue has the crawl's current rules

    def for_queue(self, key: str, old: QueueRules) -> QueueRules | None:
        """Return the rules of a queue after the action; None: the queue is left alone."""
        new = self.rules.of(key)
        if not isinstance(self.act, actions.Set):
            return use_actions(old, new)
        return None if not self.target and old == new else new

    def encode(self) -> bytes:
        """Return the action as the script `steer` reads it."""
        act = self.act
        numbers: Any = False
        text = ""
        wait = to_ms(act.seconds) if isinstance(act, actions.Snooze) else 0
        if self.changes_rules:
            numbers, text = crawl_numbers(self.rules), encode_rules(self.rules).decode()
        return encode([type(act).__name__.lower(), wait, numbers, text, self.completes])


class RedisAdmin:
    """Admin, without `restore` and `put_values`."""

    def __init__(self, scripts: ScriptClient, cache: RulesCache, inspector: RedisInspector) -> None:
        self._scripts = scripts
        self._cache = cache
        self._inspector = inspector

    async def configure(
        self,
        crawl: str,
        rules: CrawlRules,
        settings: str = "",
        *,
        only: WhichCrawl = "any",
        by: str = "",
    ) -> bool:
        """See `protocol.Admin`."""
        validate_by(by)
        signature = encode_signature(by, act_of_configure(crawl))
        while True:
            old = await self._cache.refresh_crawl_rules(crawl)
            new = msgspec.structs.replace(rules, runtime=old.rules.runtime)
            text = encode_rules(new)
            is_new = "1" if text != encode_rules(old.rules) else ""
            numbers = encode(crawl_numbers(new))
            values = (numbers, text, settings, is_new, signature, only)
            answer = await self._scripts.run("configure", crawl, *values, epoch=old.epoch)
            if answer is not None:
                must_steer, is_reordered = answer
                if is_reordered:
                    await self._rebuild_ready_list(crawl)
                return bool(must_steer)

    async def _rebuild_ready_list(self, crawl: str) -> None:
        """Compute the ready keys of ready queues under another order among queues."""
        after = 0
        while await self._scripts.run(
            "rebuild_ready_list", crawl, after + 1, after + QUEUES_PER_CALL
        ):
            after += QUEUES_PER_CALL

    async def steer(
        self,
        crawl: str,
        target: str,
        act: QueueAction,
        *,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        validate_by(by)
        signature = encode_signature(by, act_of_steer(target, act, after))
        changes = _rule_changes(act)
        while True:
            old = await self._cache.refresh_crawl_rules(crawl)
            changes_rules = bool(target and changes and after == 0)
            rules = old.rules.with_override(target, changes) if changes_rules else old.rules
            step, queues = await self._targets(crawl, target, after, limit)
            completes = step.after is None and not target and isinstance(act, actions.Set)
            action = _Action(
                target, act, rules, old.epoch, changes_rules=changes_rules, completes=completes
            )
            if await self._apply(crawl, action, queues, signature):
                return step

    async def _targets(
        self, crawl: str, target: str, after: int, limit: int
    ) -> tuple[Step, list[QueueRow]]:
        """Return the queues of one step, at most `limit` that match, and its cursor."""
        if target and not target.startswith("."):
            found = await self._inspector.find_queue(crawl, target)
            return Step(len(found), None), found
        chosen: list[QueueRow] = []
        row, queues = await self._inspector.queue_rows(crawl, after + 1, after + QUEUES_PER_CALL)
        while queues:
            chosen += [queue for queue in queues if covers(target, queue.key)]
            if len(chosen) > limit:
                return Step(limit, chosen[limit - 1].number), chosen[:limit]
            last = queues[-1].number
            if last >= row.last_queue:
                break
            row, queues = await self._inspector.queue_rows(crawl, last + 1, last + QUEUES_PER_CALL)
        return Step(len(chosen), None), chosen

    async def _apply(
        self, crawl: str, action: _Action, queues: list[QueueRow], signature: bytes
    ) -> bool:
        """Apply an action; return False if rules changed meanwhile, and nothing was done."""
        batch = Batch(self._cache.crawl_rules(crawl))
        known = await self._cache.queue_rules(crawl, {queue.rules for queue in queues})
        wanted = [
            (queue.number, queue.rules, batch.rules(rules))
            for queue in queues
            if (rules := action.for_queue(queue.key, known[queue.rules])) is not None
        ]
        answer = await self._scripts.run(
            "steer",
            crawl,
            action.encode(),
            batch.encode(),
            encode(wanted),
            signature,
            epoch=action.epoch,
        )
        return answer is not None

    async def add_roots(self, crawl: str, mode: str, roots: Sequence[str]) -> None:
        """See `protocol.Admin`."""
        await self._scripts.run("add_roots", crawl, mode, *roots)

    async def set_status(
        self, crawl: str, status: CrawlStatus, reason: str = "operator", *, by: str = ""
    ) -> CrawlStatus:
        """See `protocol.Admin`."""
        validate_by(by)
        allowed = [before.value for before, after in OPERATOR_MOVES.items() if status in after]
        found = await self._scripts.run(
            "set_status", crawl, status.value, reason, encode(allowed), encode_signature(by)
        )
        return CrawlStatus(found.decode())

    async def publish(self, crawl: str, batch: EventBatch) -> None:
        """See `protocol.Admin`."""
        validate_batch(batch)
        head = (batch.publisher, batch.serial, len(batch.events), batch_bytes(batch))
        await self._scripts.run("publish", crawl, *head, _encode_json(batch))

    async def heartbeat(self, crawl: str, heartbeat: Heartbeat) -> None:
        """See `protocol.Admin`."""
        validate_heartbeat(heartbeat)
        gone = None
        while gone is None:  # repeated if the worker sent another one meanwhile
            stored = await self._inspector.stored_worker(crawl, heartbeat.worker)
            so_far, alone = heartbeat, b""
            if stored:
                known = decode_worker(stored)
                so_far = with_later_totals(known, heartbeat)
                alone = b"" if is_same_process(known, heartbeat) else _encode_json(heartbeat)
            gone = await self._scripts.run(
                "heartbeat",
                crawl,
                heartbeat.worker,
                stored,
                _encode_json(so_far),
                alone,
                to_ms(WORKER_KEPT_SECONDS),
                MAX_WORKERS,
            )
        if gone >= MAX_GONE_WORKERS:
            await self._fold_gone_workers(crawl)

    async def _fold_gone_workers(self, crawl: str) -> None:
        """Keep the sum of removed workers in place of each."""
        _, texts = await self._inspector.stored_workers(crawl)
        if len(texts) > 1:
            totals = sum_of_totals(decode_heartbeat(text).totals for text in texts)
            together = _encode_json(Heartbeat("", "gone", "", 0, 0, 0, 0, totals=totals))
            arguments = (len(texts), texts[0], texts[-1], together)
            await self._scripts.run("fold_workers", crawl, *arguments)

    # ---- tasks

    async def update_priorities(self, crawl: str, updates: Sequence[PriorityUpdate]) -> int:
        """See `protocol.Admin`."""
        validate_priority_updates(updates)
        rows = [_update_row(one) for one in updates if 0 < one.task <= NUMBER_MASK]
        count = 0
        for start in range(0, max(1, len(rows)), TASKS_PER_CALL):
            part = encode(rows[start : start + TASKS_PER_CALL])
            count += await self._scripts.run("update_priorities", crawl, part)
        return count

    async def drop(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._change("drop", PENDING, crawl, which, (dry_run, after, limit), by)

    async def replay(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._change("replay", DEAD, crawl, which, (dry_run, after, limit), by)

    async def purge(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._change("purge", DEAD, crawl, which, (dry_run, after, limit), by)

    async def forget(
        self,
        crawl: str,
        which: TaskFilter,
        *,
        dry_run: bool,
        after: int = 0,
        limit: int = 1000,
        by: str = "",
    ) -> Step:
        """See `protocol.Admin`."""
        return await self._change("forget", which.state, crawl, which, (dry_run, after, limit), by)

    async def delete(self, crawl: str, *, limit: int = 1000, by: str = "") -> Step:
        """See `protocol.Admin`."""
        validate_by(by)
        removed, has_more = await self._scripts.run(
            "delete", crawl, max(1, limit), encode_signature(by), *SINGLE_KEYS
        )
        return Step(removed, 1 if has_more else None)

    async def _change(
        self,
        verb: str,
        state: TaskState | None,
        crawl: str,
        which: TaskFilter,
        step: tuple[bool, int, int],
        by: str,
    ) -> Step:
        """Change the tasks in a state (None: any) that match, by a function of the script."""
        validate_by(by)
        dry_run, after, limit = step
        act = act_of_filter(verb, which, after, dry_run=dry_run)
        numbers, more = await self._inspector.matching(
            crawl, which, state, after=after, limit=limit
        )
        if dry_run:
            return Step(len(numbers), more)
        count, number = 0, "" if state is None else STATE_NUMBERS[state]
        for start in range(0, max(1, len(numbers)), TASKS_PER_CALL):
            part = encode(numbers[start : start + TASKS_PER_CALL])
            signature = encode_signature(by, None if start else act)
            count += await self._scripts.run("change_tasks", crawl, verb, number, part, signature)
        return Step(count, more)


def encode_signature(by: str, act: Act | None = None) -> bytes:
    """Return who acts, and the act if it is to be logged, as scripts read it (`sign`)."""
    return encode([by, *(act or ())])


def _update_row(update: PriorityUpdate) -> tuple[int, msgspec.Raw, msgspec.Raw, msgspec.Raw]:
    """Return a priority update as the script reads it."""
    seen, new = priority_bytes(update.seen), priority_bytes(update.priority)
    return update.task, raw(seen), raw(new), raw(encode_breakdown(update.breakdown))


def _rule_changes(act: QueueAction) -> dict[str, Any]:
    """Return the changes of rules with which a future queue of the target is created."""
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
