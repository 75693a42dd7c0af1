"""What rules hold, as this process knows them: an epoch tells whether that is still so.

A queue's rules are resolved here and sent with what needs them; scripts go by their numbers, and
refuse a call that was made under rules that hold no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

from outrider.clock import to_ms
from outrider.core.policy.politeness import Politeness, pace
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.task import Task
from outrider.store.redis.calling import encode
from outrider.store.redis.rows import ROW, QueueRow, RulesRow, raw
from outrider.store.redis.texts import Kind, head_of, kind_of, sorted_bytes, text_of, written_kind

KEYS_KEPT: Final = 100_000  # keys whose rules are remembered

_to_json: Final = msgspec.json.Encoder(enc_hook=lambda _: "custom").encode
_crawl_rules: Final = msgspec.json.Decoder(CrawlRules).decode
_queue_rules: Final = msgspec.json.Decoder(QueueRules).decode
_NEW_QUEUE: Final = raw(encode(QueueRow(ROW, "", 0, 0, 0)))


def rules_text(rules: CrawlRules) -> bytes:
    """As they are kept; a cost function is the crawl's own affair."""
    return _to_json(rules)


def rules_of(text: bytes) -> CrawlRules:
    """The rules behind a text; none: the default ones."""
    return _crawl_rules(text) if text else CrawlRules()


def crawl_numbers(rules: CrawlRules) -> list[Any]:
    """From `by_turn` to `limit_seconds` of a `CrawlRow`, then `opens_below`."""
    limits, below = rules.limits, rules.opens_below
    return [
        rules.order == "round-robin",
        rules.tie,
        rules.breadth_discount,
        rules.max_pending,
        rules.max_pending_per_queue,
        rules.burst,
        rules.max_retries,
        rules.max_crashes,
        rules.pause_at_finish,
        limits.tasks,
        limits.done,
        limits.bytes,
        limits.seconds,
        raw(b"" if below is None else sorted_bytes(below)),
    ]


@lru_cache(maxsize=4096)
def queue_rules_of(text: str) -> QueueRules:
    """A queue's rules behind a text; millions of leases share them."""
    return _queue_rules(text)


def queue_rules_text(rules: QueueRules) -> str:
    """As they are kept."""
    return _to_json(rules).decode()


def queue_numbers(rules: QueueRules) -> RulesRow:
    """What scripts go by."""
    manners, budget = rules.politeness, rules.budget
    return RulesRow(
        rules.precedence,
        manners.max_in_flight,
        budget.balance,
        budget.total_budget,
        budget.hold_queues,
        budget.max_done,
        budget.max_bytes,
        manners.count_from == "start",
        least_of(manners),
        manners.respect_crawl_delay,
        rules.paused,
        rules.retired,
        to_ms(pace(manners)),
    )


def least_of(manners: Politeness) -> float:
    """What any two visits keep, but for Crawl-delay."""
    return manners.delay if manners.delay >= 0 else manners.min_delay


def digest_of(key: str) -> bytes:
    """What a queue is known by: 16 bytes, however long its key."""
    return blake2b(key.encode(), digest_size=16).digest()


class Rulebook:
    """The rules of one crawl, and which they are."""

    def __init__(self, epoch: int = 0, rules: CrawlRules | None = None) -> None:
        self.epoch = epoch
        self.rules = rules or CrawlRules()
        self.of = lru_cache(maxsize=KEYS_KEPT)(self._of)

    def _of(self, key: str) -> tuple[QueueRules, bytes]:
        return self.rules.of(key), digest_of(key)


class Batch:
    """What tasks have in common, each said once: keys, rules and kinds; places count from 1."""

    def __init__(self, book: Rulebook) -> None:
        self._book = book
        self._keys: dict[str, int] = {}
        self._digests: list[msgspec.Raw] = []
        self._ruled: list[int] = []
        self._rules: dict[QueueRules, int] = {}
        self._kinds: dict[Kind, int] = {}

    def key(self, key: str) -> int:
        """The place of a key."""
        place = self._keys.get(key)
        if place is None:
            rules, digest = self._book.of(key)
            place = self._keys[key] = len(self._keys) + 1
            self._digests.append(raw(digest))
            self._ruled.append(self.ruling(rules))
        return place

    def ruling(self, rules: QueueRules) -> int:
        """The place of a queue's rules."""
        return self._rules.setdefault(rules, len(self._rules) + 1)

    def kind(self, kind: Kind) -> int:
        """The place of a kind."""
        return self._kinds.setdefault(kind, len(self._kinds) + 1)

    def heads_and_texts(self, tasks: Iterable[Task]) -> tuple[bytes, bytes]:
        """What a script reads of tasks, and what it keeps; texts are found by their places."""
        keys, kinds = self._keys, self._kinds
        heads: list[bytes] = []
        texts: list[bytes] = []
        end = 0
        for task in tasks:
            text, split = text_of(task)
            texts.append(text)
            start, end = end + 1, end + len(text)
            key = keys.get(task.key) or self.key(task.key)
            like = kind_of(task)
            kind = kinds.get(like) or self.kind(like)
            heads.append(head_of(task, key, kind, split, start, end))
        return b"".join(heads), b"".join(texts)

    def written(self) -> bytes:
        """As scripts read it."""
        return encode(
            [
                list(self._keys),
                self._digests,
                self._ruled,
                [queue_rules_text(rules) for rules in self._rules],
                [queue_numbers(rules) for rules in self._rules],
                [written_kind(kind) for kind in self._kinds],
                _NEW_QUEUE,
            ]
        )
