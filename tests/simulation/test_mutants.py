"""Planted bugs: each breaks one rule of the heads in memory or of `decide`, and must be caught."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from outrider.core.decide import decide
from outrider.core.order import NUMBER_BITS
from outrider.core.outcome import Done
from outrider.core.states import TaskState
from outrider.simulation.run import simulate
from outrider.store.heads.records import NEITHER, READY, Queue
from outrider.store.memory import store
from outrider.store.memory.store import MemoryCrawl as Crawl

FOUND_WITHIN = 50  # seeds: every mutant is found by one of the first so many


class AnyToken(Crawl):
    def held_by(self, number, token):
        """H3: whoever once held a lease may finish it."""
        return self.leases.get(number)


class JudgedAtTheLease(Crawl):
    def _lease(self, queue, *rest):
        """E1: a spent session ends at the lease, not when the queue could be served again."""
        lease = super()._lease(queue, *rest)
        if queue.standing == NEITHER and queue.session >= queue.balance and queue.pending:
            self._park(queue)
        return lease


class JudgedOnce(Crawl):
    def _judge(self, queue, now):
        """E1: what was affordable once stays so for ever."""
        total, queue.total = queue.total, -1 if queue.cost_count else queue.total
        super()._judge(queue, now)
        queue.total = total


class MovedBack(Crawl):
    def _visit_ended(self, record, *rest):
        """D1: a visit's end moves next-ready back as well as forward."""
        record.queue.next_ready = 0
        super()._visit_ended(record, *rest)


class NoNewTurn(Crawl):
    def _lease(self, queue, *rest):
        """C3: a lease does not send its queue behind its equals."""
        turn = queue.turn
        lease = super()._lease(queue, *rest)
        queue.turn = turn
        if queue.standing == READY:
            self._rank(queue)
        return lease


class LeasedTwice(Crawl):
    def _lease(self, queue, record, *rest):
        """H1: a leased task stays in line."""
        queue.enter(record.task.lane, record.key, record.due, record.due)
        return super()._lease(queue, record, *rest)


class LostLink(Crawl):
    def finish(self, verdict, now):
        """H6: the last of a page's new links is answered for, and forgotten."""
        answer = super().finish(verdict, now)
        if sum(link.added for link in answer.answers) > 2:
            record = self.record(self.count)
            for shard in self.known:
                shard.pop(record.task.fingerprint, None)
            self.drop(record, now)
        return answer


class FreeCrash(Crawl):
    def _crash(self, record, now):
        """H4: an expired lease does not count as an attempt."""
        super()._crash(record, now)
        if record.state is TaskState.PENDING:
            record.attempts -= 1
            record.crashes -= 1


class FinishedTwice(Crawl):
    def _close_run(self, now):
        """I2: the first run is closed twice."""
        super()._close_run(now)
        if self.status == "finished" and self.runs == 1:
            super()._close_run(now)


class LostDeadline(Crawl):
    def extend(self, record, lease_for, now):
        """H4: the deadline index forgets a lease that was extended."""
        super().extend(record, lease_for, now)
        self.deadlines.remove(record.deadline << NUMBER_BITS | record.number)
        self.deadlines.sort()


class OneSlotMore(Crawl):
    def _new_queue(self, key):
        """D2: one visit at a time more than allowed."""
        queue = super()._new_queue(key)
        queue.slots += 1
        return queue


class LostWake(Crawl):
    def _alarm_at(self, queue, now):
        """C6: a queue that was visited sets no alarm for its retries."""
        return 0 if queue.delayed.head and queue.cost_count > 2 else super()._alarm_at(queue, now)


class LaneForgotten(Crawl):
    def claim(self, request, now):
        """C4: the count of a lane does not travel with the claimer."""
        claimed = super().claim(request, now)
        claimed.streak = request.streak
        return claimed


class LentAndServed(Crawl):
    def _look_at(self, queue, now, judges):
        """C7: others are served of a lent queue while it has a free slot."""
        lent, queue.lent = queue.lent, 0
        super()._look_at(queue, now, judges)
        queue.lent = lent


class AllCrashed(Crawl):
    def _lose(self, record, now):
        """C7: each lease of a lost loan counts a crash."""
        self._crash(record, now)


class LentOnCredit(Crawl):
    def _go_on(self, queue):
        """C7: a queue is lent whole, whatever it may spend."""
        if queue.lane0.head or queue.lane1.head:
            self.standing += 1
            queue.standing = READY


def no_reset(lease, outcome, policy, roll):
    """D4: Done does not end a row of unreachable visits."""
    verdict = decide(lease, outcome, policy, roll)
    return replace(verdict, unreachable_in_row=None) if isinstance(outcome, Done) else verdict


def impatient(lease, outcome, policy, roll):
    """D3: Retry-After is shortened."""
    verdict = decide(lease, outcome, policy, roll)
    return replace(verdict, snooze=min(verdict.snooze, 20.0))


def keep(queue, cost):
    """E3: nothing is refunded."""


def forget_the_last_visit(queue):
    """D1: a wake goes back to the beginning of time."""
    return 0


class Mutant(NamedTuple):
    """Where a bug is planted."""

    name: str
    crawl: type[Crawl] = Crawl
    queue: tuple[str, Callable] | None = None  # a method of a queue, replaced
    decide: Callable = decide


MUTANTS = [
    Mutant("H3-no-token-check", AnyToken),
    Mutant("E1-judged-at-the-lease", JudgedAtTheLease),
    Mutant("E1-judged-once", JudgedOnce),
    Mutant("E3-no-refund", queue=("refund", keep)),
    Mutant("D4-no-streak-reset", decide=no_reset),
    Mutant("D1-next-ready-moves-back", MovedBack),
    Mutant("C3-no-new-turn", NoNewTurn),
    Mutant("H1-leased-twice", LeasedTwice),
    Mutant("H6-lost-link", LostLink),
    Mutant("H4-free-crash", FreeCrash),
    Mutant("I2-finished-twice", FinishedTwice),
    Mutant("H4-lost-deadline", LostDeadline),
    Mutant("D2-one-slot-more", OneSlotMore),
    Mutant("C6-lost-wake", LostWake),
    Mutant("C4-lane-forgotten", LaneForgotten),
    Mutant("C7-lent-and-served", LentAndServed),
    Mutant("C7-all-crashed", AllCrashed),
    Mutant("C7-lent-on-credit", LentOnCredit),
    Mutant("D3-impatient", decide=impatient),
    Mutant("D1-wake-too-early", queue=("earliest", forget_the_last_visit)),
]


def first_caught(mutant):
    """The first seed that catches the bug, and what it says."""
    for seed in range(FOUND_WITHIN):
        result = simulate(seed, decide_with=mutant.decide)
        if result.violation is not None:
            return result
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant, monkeypatch):
    """Within FOUND_WITHIN seeds some promise is seen broken."""
    monkeypatch.setattr(store, "MemoryCrawl", mutant.crawl)
    if mutant.queue is not None:
        monkeypatch.setattr(Queue, *mutant.queue)
    result = first_caught(mutant)

    assert result is not None, f"{mutant.name} survived {FOUND_WITHIN} seeds"
    assert result.command == f"outrider simulate --seed {result.seed}"


@pytest.mark.slow
def test_the_healthy_store_passes_the_same_seeds():
    """What catches a bug accuses nobody else."""
    broken = [simulate(seed).violation for seed in range(FOUND_WITHIN)]

    assert broken == [None] * FOUND_WITHIN
