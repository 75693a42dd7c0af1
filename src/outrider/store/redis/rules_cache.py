"""Rules, kinds and keys that a process keeps between calls, and how they are stored and sent.

Nothing cached can be wrong: a crawl's rules have an epoch, and the number of a queue's rules, of a
kind or of a queue always means the same. The rules of a queue are resolved in this process and sent
with the call that needs them, as numbers that scripts apply; a script refuses a call that was made
under rules of another epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

from outrider.clock import to_ms
from outrider.core.policy.politeness import Politeness, draws_at_start, pace
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.task import Task
from outrider.errors import StoreUnavailable
from outrider.store.redis.keys import CRAWL_KEYS
from outrider.store.redis.rows import ROW, QueueRow, RulesRow, decode_crawl_row, raw
from outrider.store.redis.script_client import ScriptClient, encode
from outrider.store.redis.task_codec import (
    Kind,
    decode_kind,
    encode_head,
    encode_kind,
    encode_text,
    kind_of,
    priority_bytes,
)

MAX_KEYS: Final = 100_000  # keys whose rules, or queues whose keys, are cached

_to_json: Final = msgspec.json.Encoder(enc_hook=lambda _: "custom").encode
_decode_crawl_rules: Final = msgspec.json.Decoder(CrawlRules).decode
_decode_queue_rules: Final = msgspec.json.Decoder(QueueRules).decode
_NEW_QUEUE: Final = raw(encode(QueueRow(ROW, key="", number=0, rules=0, turn=0)))


# ---- how rules are stored


def encode_rules(rules: CrawlRules) -> bytes:
    """Return a crawl's rules as they are stored; a cost function is stored as "custom"."""
    return _to_json(rules)


def decode_rules(text: bytes) -> CrawlRules:
    """Return the rules that a text holds; empty: the default ones."""
    return _decode_crawl_rules(text) if text else CrawlRules()


def crawl_numbers(rules: CrawlRules) -> list[Any]:
    """Return `by_turn` to `limit_seconds` of a `CrawlRow`, then `opens_below` and `stay_open`."""
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
        raw(b"" if below is None else priority_bytes(below)),
        rules.stay_open,
    ]


@lru_cache(maxsize=4096)
def decode_queue_rules(text: str) -> QueueRules:
    """Return the queue rules that a text holds; millions of leases share them."""
    return _decode_queue_rules(text)


def rules_row(rules: QueueRules) -> RulesRow:
    """Return what scripts apply of a queue's rules."""
    politeness, budget = rules.politeness, rules.budget
    return RulesRow(
        precedence=rules.precedence,
        slots=politeness.max_in_flight,
        balance=budget.balance,
        total=budget.total_budget,
        hold=budget.hold_queues,
        max_done=budget.max_done,
        max_bytes=budget.max_bytes,
        from_start=politeness.count_from == "start",
        min_delay=_min_delay(politeness),
        respect_crawl_delay=politeness.respect_crawl_delay,
        paused=rules.paused,
        retired=rules.retired,
        pace=to_ms(pace(politeness)),
        spread=politeness.delay_to - politeness.delay if draws_at_start(politeness) else 0.0,
    )


def _min_delay(politeness: Politeness) -> float:
    """Return the least delay between two visits, apart from Crawl-delay."""
    return politeness.delay if politeness.delay >= 0 else politeness.min_delay


def digest_of(key: str) -> bytes:
    """Return the 16 bytes under which a queue is indexed, however long its key."""
    return blake2b(key.encode(), digest_size=16).digest()


# ---- what is cached


class VersionedRules:
    """The rules of one crawl, and their epoch."""

    def __init__(self, epoch: int = 0, rules: CrawlRules | None = None) -> None:
        self.epoch = epoch
        self.rules = rules or CrawlRules()
        self.of = lru_cache(maxsize=MAX_KEYS)(self._of)

    def _of(self, key: str) -> tuple[QueueRules, bytes]:
        return self.rules.of(key), digest_of(key)


class RulesCache:
    """Rules of crawls and queues, kinds of tasks and keys of queues, by number."""

    def __init__(self, scripts: ScriptClient) -> None:
        self._scripts = scripts
        self._crawl_rules: dict[str, VersionedRules] = {}
        self._queue_rules: dict[tuple[str, int], QueueRules] = {}
        self._kinds: dict[tuple[str, int], Kind] = {}
        self._keys: dict[tuple[str, int], str] = {}
        self._ids: dict[str, int] = {}  # numbers of crawls by name

    def use_crawl(self, crawl: str, number: int) -> None:
        """Forget what was cached of a crawl of this name that has been removed since (I1)."""
        if number and self._ids.get(crawl, number) != number:
            self._crawl_rules.pop(crawl, None)
            for cached in (self._queue_rules, self._kinds, self._keys):
                for key in [key for key in cached if key[0] == crawl]:
                    cached.pop(key, None)
        if number:
            self._ids[crawl] = number

    def crawl_rules(self, crawl: str) -> VersionedRules:
        """Return the rules of a crawl as last read; a script tells if there are newer ones."""
        return self._crawl_rules.get(crawl) or self._crawl_rules.setdefault(crawl, VersionedRules())

    async def refresh_crawl_rules(self, crawl: str) -> VersionedRules:
        """Read and return the current rules of a crawl."""
        row, _, *text = await self._scripts.run("read", crawl, "GET", CRAWL_KEYS["rules"])
        epoch = decode_crawl_row(row).epoch if row else 0
        current = self._crawl_rules.get(crawl)
        if current is None or current.epoch != epoch:
            rules = decode_rules(text[0] if text else b"")
            current = self._crawl_rules[crawl] = VersionedRules(epoch, rules)
        return current

    async def queue_rules(self, crawl: str, numbers: AbstractSet[int]) -> Mapping[int, QueueRules]:
        """Return queue rules by their numbers."""
        missing = [number for number in numbers if (crawl, number) not in self._queue_rules]
        if missing:
            key = CRAWL_KEYS["rules_texts"]
            texts = await self._read_texts(crawl, key, missing)
            for number, text in zip(missing, texts, strict=True):
                self._queue_rules[crawl, number] = decode_queue_rules(text.decode())
        return {number: self._queue_rules[crawl, number] for number in numbers}

    async def load_kinds(self, crawl: str, numbers: AbstractSet[int]) -> None:
        """Make sure that these kinds are cached."""
        missing = [number for number in numbers if (crawl, number) not in self._kinds]
        if missing:
            key = CRAWL_KEYS["kinds"]
            texts = await self._read_texts(crawl, key, missing)
            for number, text in zip(missing, texts, strict=True):
                self._kinds[crawl, number] = decode_kind(text)

    def kind(self, crawl: str, number: int) -> Kind:
        """Return a kind that `load_kinds` loaded."""
        return self._kinds[crawl, number]

    async def keys(self, crawl: str, numbers: AbstractSet[int]) -> Mapping[int, str]:
        """Return the keys of queues by their numbers."""
        if len(self._keys) > MAX_KEYS:
            self._keys.clear()
        missing = [number for number in numbers if (crawl, number) not in self._keys]
        if missing:
            found = await self._scripts.run("read_keys", crawl, encode(missing))
            if found is None:
                raise _was_removed(crawl)
            for number, key in zip(missing, found, strict=True):
                self._keys[crawl, number] = key.decode()
        return {number: self._keys[crawl, number] for number in numbers}

    async def _read_texts(self, crawl: str, key: str, numbers: Sequence[int]) -> list[bytes]:
        _, _, *texts = await self._scripts.run("read", crawl, "HMGET", key, *numbers)
        if not texts or None in texts[0]:
            raise _was_removed(crawl)
        return list(texts[0])


def _was_removed(crawl: str) -> StoreUnavailable:
    return StoreUnavailable(f"crawl {crawl!r} was removed while it was read: read it again")


# ---- what is sent


class Batch:
    """What the tasks of a call share, each sent once: keys, rules and kinds, numbered from 1."""

    def __init__(self, rules: VersionedRules) -> None:
        self._crawl_rules = rules
        self._keys: dict[str, int] = {}
        self._digests: list[msgspec.Raw] = []
        self._rules_of_keys: list[int] = []
        self._rules: dict[QueueRules, int] = {}
        self._kinds: dict[Kind, int] = {}

    def key(self, key: str) -> int:
        """Return the number of a key in this batch."""
        number = self._keys.get(key)
        if number is None:
            rules, digest = self._crawl_rules.of(key)
            number = self._keys[key] = len(self._keys) + 1
            self._digests.append(raw(digest))
            self._rules_of_keys.append(self.rules(rules))
        return number

    def rules(self, rules: QueueRules) -> int:
        """Return the number of a queue's rules in this batch."""
        return self._rules.setdefault(rules, len(self._rules) + 1)

    def kind(self, kind: Kind) -> int:
        """Return the number of a kind in this batch."""
        return self._kinds.setdefault(kind, len(self._kinds) + 1)

    def heads_and_texts(self, tasks: Iterable[Task]) -> tuple[bytes, bytes]:
        """Return what a script reads of tasks, and what it stores; heads hold texts' positions."""
        keys, kinds = self._keys, self._kinds
        heads: list[bytes] = []
        texts: list[bytes] = []
        end = 0
        for task in tasks:
            text, split = encode_text(task)
            texts.append(text)
            start, end = end + 1, end + len(text)
            key = keys.get(task.key) or self.key(task.key)
            like = kind_of(task)
            kind = kinds.get(like) or self.kind(like)
            heads.append(encode_head(task, key, kind, split, start, end))
        return b"".join(heads), b"".join(texts)

    def encode(self) -> bytes:
        """Return the batch as `read_batch` of the scripts reads it."""
        return encode(
            [
                list(self._keys),
                self._digests,
                self._rules_of_keys,
                [_to_json(rules).decode() for rules in self._rules],
                [rules_row(rules) for rules in self._rules],
                [encode_kind(kind) for kind in self._kinds],
                _NEW_QUEUE,
            ]
        )
