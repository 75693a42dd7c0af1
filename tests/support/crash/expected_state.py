"""What must be true after each acknowledged call, told by the calls alone.

Instants are lower bounds: what the books call too soon was too soon by the store's clock as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from crash.call_log import (
    Add,
    Call,
    Claim,
    End,
    Finish,
    Lent,
    Release,
    Said,
    Steer,
    Sweep,
    Told,
)
from outrider.clock import to_ms
from outrider.core.policy.politeness import min_delay_between, pace
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.states import TaskState
from outrider.core.verdict import Verdict
from outrider.store.protocol import TaskView
from outrider.testing.lease_history import require

PENDING, LEASED, DEAD, DROPPED = (
    TaskState.PENDING,
    TaskState.LEASED,
    TaskState.DEAD,
    TaskState.DROPPED,
)
_SWEEPS = {"drop": PENDING, "replay": DEAD, "purge": DEAD}
_replace = msgspec.structs.replace


class Fact(msgspec.Struct, frozen=True):
    """A task as it must be."""

    number: int
    key: str
    priority: float
    state: TaskState = PENDING
    token: int = -1
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    reason: str | None = None
    claimed: int = 0

    def seen(self) -> tuple[object, ...]:
        """What a reader sees of it."""
        return (
            self.number,
            self.key,
            self.priority,
            self.state,
            self.attempts,
            self.failures,
            self.crashes,
            self.reason,
        )


def seen_of(view: TaskView) -> tuple[object, ...]:
    """The same of what a store shows."""
    return (
        view.number,
        view.key,
        view.priority,
        view.state,
        view.attempts,
        view.failures,
        view.crashes,
        view.reason,
    )


class QueueFact(msgspec.Struct, frozen=True):
    """A queue as it must be; milliseconds."""

    delay: int
    next_ready: int = 0
    last_start: int = 0
    last_end: int = 0
    spent: int = 0
    bytes: int = 0
    paused: bool = False
    retired: bool = False  # by an operator


class Books:
    """Tasks and queues of one crawl of unit costs."""

    def __init__(self, rules: CrawlRules) -> None:
        self._rules = rules
        self.tasks: dict[str, Fact] = {}
        self.queues: dict[str, QueueFact] = {}
        self._born: set[str] = set()  # queues with tasks; of others only standing orders are kept
        self._last_token = 0

    def copy(self) -> Books:
        """The same again, to be led elsewhere."""
        twin = Books(self._rules)
        twin.tasks, twin.queues = dict(self.tasks), dict(self.queues)
        twin._born, twin._last_token = set(self._born), self._last_token
        return twin

    def rules(self, key: str) -> QueueRules:
        """What holds for a queue."""
        return self._rules.of(key)

    def queue(self, key: str) -> QueueFact:
        """A queue; one nobody heard of has its least delay."""
        found = self.queues.get(key)
        if found is None:
            least = to_ms(min_delay_between(self.rules(key).politeness, 0.0))
            found = self.queues[key] = QueueFact(least)
        return found

    def _set_queue(self, key: str, **changes: object) -> None:
        self.queues[key] = _replace(self.queue(key), **changes)

    def _set_task(self, url: str, **changes: object) -> None:
        self.tasks[url] = _replace(self.tasks[url], **changes)

    # ---- calls

    def apply(self, call: Call, at: int, told: Told | None) -> None:
        """What a call did; `told` is None if nobody heard, and then it did what it must have."""
        match call:
            case Add(links):
                self._agree("B3", self.add(links), told)
            case Claim():
                self.lend(told.leases if told else (), at, told.at if told else None)
            case Finish(ends):
                self._agree("H3", [self._finish(end, at) for end in ends], told)
            case Release(urls):
                self._agree("H5", [self._release(url, at) for url in urls], told)
            case Steer(key, act, seconds):
                self._steer(key, act, seconds, at)
            case Sweep(verb, key, after, limit):
                count = self._sweep(verb, key, after, limit)
                require(told is None or told.count == count, "C10", f"{call}: {told} not {count}")

    def _agree(self, rule: str, expected: list[bool], told: Told | None) -> None:
        same = told is None or expected == told.answers
        require(same, rule, f"answered {told and told.answers}, must be {expected}")

    def add(self, links: Iterable[Said]) -> list[bool]:
        """B3; whether each is to be visited."""
        return [self._add(link) for link in links]

    def _add(self, link: Said) -> bool:
        old = self.tasks.get(link.url)
        self.queue(link.key)
        if old is None:
            self._born.add(link.key)
            self.tasks[link.url] = Fact(len(self.tasks) + 1, link.key, link.priority)
            return True
        if link.known == "revisit" and old.state not in (PENDING, LEASED):
            again = Fact(old.number, link.key, link.priority, token=old.token)  # H3: still current
            self.tasks[link.url] = again
            return True
        if link.known == "raise" and old.state is PENDING and link.priority < old.priority:
            self._set_task(link.url, priority=link.priority)
        return False

    def lend(self, leases: Sequence[Lent], asked: int, told: int | None) -> None:
        """H1, D1, D2, D7: who may be lent, and not before when."""
        for lease in leases:
            fact, queue = self.tasks.get(lease.url), self.queue(lease.key)
            require(fact, "B3", f"{lease} was never added")
            assert fact is not None
            require(fact.state is PENDING, "H1", f"{lease} was lent, but is {fact}")
            count = (lease.task, lease.attempt, lease.failures)
            same = count == (fact.number, fact.attempts + 1, fact.failures)
            require(same, "H4", f"{lease} does not follow {fact}")
            require(lease.token > self._last_token, "H1", f"{lease} has a token of old")
            early = 0 if told is None else queue.next_ready - told
            require(early <= 0, "D7", f"{lease} is {early} ms too soon after {queue}")
            self._last_token = lease.token
            self.take(lease.url, lease.token, asked)

    def take(self, url: str, token: int, asked: int) -> None:
        """A task is lent and charged."""
        key = self.tasks[url].key
        queue, gap = self.queue(key), self._gap(key)
        self._set_task(url, state=LEASED, token=token, claimed=asked)
        self._set_queue(
            key,
            spent=queue.spent + 1,
            last_start=asked,
            next_ready=max(queue.next_ready, asked + gap),
        )

    def _gap(self, key: str) -> int:
        """D1: least milliseconds between two leases; visits/s counts however many slots."""
        manners = self.rules(key).politeness
        is_spaced = manners.count_from == "start" or manners.max_in_flight > 1
        return to_ms(max(pace(manners), min_delay_between(manners, 0.0) if is_spaced else 0.0))

    def _finish(self, end: End, at: int) -> bool:
        verdict, fact = end.verdict, self.tasks[end.url]
        if fact.token != verdict.token or fact.state is not LEASED:
            return fact.token == verdict.token
        self.add(end.links)
        refund = 0 if verdict.counts else 1
        queue = self.queue(fact.key)
        size = verdict.answer.bytes if verdict.answer else 0
        self._set_queue(
            fact.key,
            spent=max(0, queue.spent - refund) + verdict.penalty,
            bytes=queue.bytes + size,
        )
        self._settle(end.url, fact, verdict)
        if verdict.touched:
            self._set_queue(fact.key, delay=to_ms(verdict.delay))
            self._visit_ended(fact, at)
            self._postpone(fact.key, at + to_ms(verdict.snooze))
        return True

    def _settle(self, url: str, fact: Fact, verdict: Verdict) -> None:
        if verdict.revisit is not None:
            priority = verdict.revisit.priority
            self.tasks[url] = _replace(
                Fact(fact.number, fact.key, priority), token=fact.token, reason=verdict.reason
            )
            return
        self._set_task(
            url,
            state=verdict.state,
            attempts=fact.attempts + verdict.counts,
            failures=fact.failures + verdict.failed * verdict.counts,
            reason=verdict.reason,
        )

    def _visit_ended(self, fact: Fact, at: int) -> None:
        queue, from_start = self.queue(fact.key), self.rules(fact.key).politeness.count_from
        base = fact.claimed if from_start == "start" else at
        self._postpone(fact.key, base + queue.delay)
        self._set_queue(fact.key, last_end=at)

    def _postpone(self, key: str, until: int) -> None:
        self._set_queue(key, next_ready=max(self.queue(key).next_ready, until))

    def _release(self, url: str, at: int) -> bool:
        fact = self.tasks[url]
        if fact.state is not LEASED:
            return False
        self._set_task(url, state=PENDING, token=-1)
        self._set_queue(fact.key, spent=max(0, self.queue(fact.key).spent - 1))
        self._visit_ended(fact, at)
        return True

    def _steer(self, key: str, act: str, seconds: float, at: int) -> None:
        queue = self.queue(key)
        match act:
            case "pause" | "resume":
                self._set_queue(key, paused=act == "pause")
            case "retire" | "revive":
                self._set_queue(key, retired=act == "retire")
            case "snooze":
                self._postpone(key, at + to_ms(seconds) if key in self._born else 0)
            case "wake":
                self._set_queue(key, next_ready=min(queue.next_ready, self._earliest(key)))
            case _:
                raise ValueError(f"nobody wrote down what {act} does")

    def _earliest(self, key: str) -> int:
        """D1: `wake` goes back to the last visit's end (or start) + delay, no further."""
        queue, manners = self.queue(key), self.rules(key).politeness
        ended = queue.last_start if manners.count_from == "start" else queue.last_end
        return max(ended + queue.delay if queue.last_end else 0, queue.last_start + self._gap(key))

    def _sweep(self, verb: str, key: str, after: int, limit: int) -> int:
        chosen = [
            url
            for url, fact in self.tasks.items()
            if fact.state is _SWEEPS[verb]
            and fact.key == key
            and after < fact.number <= after + limit
        ]
        for url in chosen:
            if verb == "replay":
                self._set_task(url, state=PENDING, attempts=0, failures=0, crashes=0)
            else:
                reason = "operator" if verb == "drop" else "purged"
                self._set_task(url, state=DROPPED, reason=reason)
        return len(chosen)

    # ---- the kill

    def reopen(self, at: int) -> None:
        """H4, D7: whoever held leases is dead; each is a crash, and the visit's end is now."""
        held = [url for url, fact in self.tasks.items() if fact.state is LEASED]
        for url in held:
            self.crash(url, at)

    def crash(self, url: str, at: int) -> None:
        """A lease is taken back from the dead."""
        fact, rules = self.tasks[url], self._rules
        crashes = fact.crashes + 1
        is_dead = fact.failures > rules.max_retries or crashes >= rules.max_crashes
        self._set_task(
            url,
            state=DEAD if is_dead else PENDING,
            token=-1,
            attempts=fact.attempts + 1,
            crashes=crashes,
            reason="lease expired",
        )
        self._visit_ended(fact, at)
