"""Planted bugs: each breaks one rule of the memory store or of `decide`, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from outrider.core.decide import decide
from outrider.core.outcome import Done
from outrider.core.states import TaskState
from outrider.store.memory import store
from outrider.store.memory.crawl import Crawl
from outrider.store.memory.records import NEITHER, READY, Queue


class Mutant(NamedTuple):
    """A bug: how to plant it, and the rule it breaks."""

    name: str
    rule: str
    crawl: type[Crawl] = Crawl
    queue: tuple[tuple[str, Callable], ...] = ()  # methods of a queue, replaced
    decide: Callable = decide

    def plant(self, monkeypatch) -> None:
        """Let stores opened from now on have the bug."""
        monkeypatch.setattr(store, "Crawl", self.crawl)
        for name, method in self.queue:
            monkeypatch.setattr(Queue, name, method)


class AnyToken(Crawl):
    """H3: whoever once held a lease may finish it."""

    def held_by(self, number, token):
        return self.task(number)


class JudgedAtTheLease(Crawl):
    """E1: a spent session ends at the lease, not when the queue could be served again."""

    def _lease(self, queue, *rest):
        lease = super()._lease(queue, *rest)
        if queue.standing == NEITHER and queue.session >= queue.balance and queue.pending:
            self._park(queue)
        return lease


class JudgedOnce(Crawl):
    """E1: what was affordable once stays ready for ever."""

    def _judge(self, queue, now):
        total, queue.total = queue.total, -1 if queue.cost_count else queue.total
        super()._judge(queue, now)
        queue.total = total


class NoNewTurn(Crawl):
    """C3: a lease does not send its queue behind its equals."""

    def _lease(self, queue, *rest):
        turn = queue.turn
        lease = super()._lease(queue, *rest)
        queue.turn = turn
        if queue.standing == READY:
            self._rank(queue)
        return lease


class LeasedTwice(Crawl):
    """H1: a leased task stays in line."""

    def _lease(self, queue, record, *rest):
        queue.line_up(record.task.lane, record.key)
        return super()._lease(queue, record, *rest)


class LostLink(Crawl):
    """H6: a page's last link is answered for, and forgotten."""

    def finish(self, verdict, now):
        answer = super().finish(verdict, now)
        added = [a for a in answer.answers if a.added]
        if len(added) > 2:
            record = self.task(self.count)
            shard = next(shard for shard in self.known if record.task.fingerprint in shard)
            del shard[record.task.fingerprint]
            self.drop(record, now)
        return answer


class FreeCrash(Crawl):
    """H4: an expired lease does not count as an attempt."""

    def _crash(self, record, now):
        super()._crash(record, now)
        if record.state is TaskState.PENDING:
            record.attempts -= 1
            record.crashes -= 1


class FinishedTwice(Crawl):
    """I2: a run is closed by every claim that finds nothing left."""

    def _close_run(self, now):
        super()._close_run(now)
        if self.status == "finished" and self.runs == 1:
            super()._close_run(now)


class LostDeadline(Crawl):
    """H4: the deadline index forgets a lease that was extended."""

    def extend(self, record, lease_for, now):
        push = len(self.deadlines)
        super().extend(record, lease_for, now)
        entry = record.deadline << 40 | record.number
        assert len(self.deadlines) == push + 1
        self.deadlines.remove(entry)
        self.deadlines.sort()


class OneSlotMore(Crawl):
    """D2: one visit more than allowed."""

    def _new_queue(self, key):
        queue = super()._new_queue(key)
        queue.slots += 1
        return queue


class LostWake(Crawl):
    """C6: a queue that was busy sets no alarm for its retries."""

    def _alarm_at(self, queue, now):
        return 0 if queue.delayed and queue.cost_count > 2 else super()._alarm_at(queue, now)


class LaneForgotten(Crawl):
    """C4: the count of a lane does not travel with the claimer."""

    def claim(self, request, now):
        claimed = super().claim(request, now)
        claimed.streak = request.streak
        return claimed


def unreset(lease, outcome, policy, roll):
    """D4: Done does not end a row of unreachable visits."""
    verdict = decide(lease, outcome, policy, roll)
    return replace(verdict, unreachable_in_row=None) if isinstance(outcome, Done) else verdict


def impatient(lease, outcome, policy, roll):
    """D3: Retry-After is shortened."""
    verdict = decide(lease, outcome, policy, roll)
    return replace(verdict, snooze=min(verdict.snooze, 20.0))


def _move_back(queue, until, why):
    queue.next_ready, queue.why = until, why


def _keep(queue, cost):
    pass


MUTANTS = [
    Mutant("no token check", "H3", AnyToken),
    Mutant("judged at the lease", "E1", JudgedAtTheLease),
    Mutant("judged once", "E1", JudgedOnce),
    Mutant("no refund", "E3", queue=(("refund", _keep),)),
    Mutant("no streak reset", "D4", decide=unreset),
    Mutant("next-ready moves back", "D1", queue=(("postpone", _move_back),)),
    Mutant("no new turn", "C3", NoNewTurn),
    Mutant("leased twice", "H1", LeasedTwice),
    Mutant("lost link", "H6", LostLink),
    Mutant("free crash", "H4", FreeCrash),
    Mutant("finished twice", "I2", FinishedTwice),
    Mutant("lost deadline", "H4", LostDeadline),
    Mutant("one slot more", "D2", OneSlotMore),
    Mutant("lost wake", "C6", LostWake),
    Mutant("lane forgotten", "C4", LaneForgotten),
    Mutant("impatient", "D3", decide=impatient),
    Mutant("wake too early", "D1", queue=(("earliest", lambda _: 0),)),
]
