"""Planted bugs: each breaks one rule of the engine or of `decide`, and must be caught."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from outrider.core.decide import decide
from outrider.core.order import NUMBER_BITS
from outrider.core.outcome import Done
from outrider.core.states import TaskState
from outrider.simulation.run import simulate
from outrider.store.engine.add import Adder
from outrider.store.engine.claim import Claimer
from outrider.store.engine.finish import Finisher
from outrider.store.engine.records import READY, UNLISTED, Queue
from outrider.store.engine.schedule import Schedule
from outrider.store.engine.state import CrawlState
from outrider.store.engine.verbs import EngineVerbs

FOUND_WITHIN = 50  # seeds: every mutant is found by one of the first so many


class Bug(NamedTuple):
    """A method of one part of the engine, and the bug that replaces it."""

    part: type
    method: str
    replacement: Callable  # (original, self, *args)


def any_token(original, self, number, token):
    """H3: whoever once held a lease may finish it."""
    return self._held.get(number)


def listed_at_the_lease(original, self, queue, *rest):
    """E1: a spent session ends at the lease, not when the queue could be served again."""
    lease = original(self, queue, *rest)
    if queue.list_state == UNLISTED and queue.session >= queue.balance and queue.pending:
        self._schedule.deactivate(queue)
    return lease


def checked_once(original, self, queue, now):
    """E1: what was affordable once stays so for ever."""
    total, queue.total = queue.total, -1 if queue.cost_count else queue.total
    original(self, queue, now)
    queue.total = total


def moved_back(original, self, record, *rest):
    """D1: a visit's end moves next-ready back as well as forward."""
    record.queue.next_ready = 0
    original(self, record, *rest)


def no_new_turn(original, self, queue, *rest):
    """C3: a lease does not send its queue behind its equals."""
    turn = queue.turn
    lease = original(self, queue, *rest)
    queue.turn = turn
    if queue.list_state == READY:
        self._schedule.update_ready_keys(queue)
    return lease


def leased_twice(original, self, queue, record, *rest):
    """H1: a leased task stays in its lane."""
    queue.enter(record.task.lane, record.key, record.due, record.due)
    return original(self, queue, record, *rest)


def lost_link(original, self, verdict, now):
    """H6: the last of a page's new links is answered for, and forgotten."""
    finished = original(self, verdict, now)
    if sum(link.added for link in finished.answers) > 2:
        record = self._tasks.get(self._state.last_task)
        for shard in self._tasks.known:
            shard.pop(record.task.fingerprint, None)
        record.queue.leave(record.task.lane, record.key, record.due)
        self._transitions.move(record, TaskState.DROPPED)
        self._schedule.refresh(record.queue, now)
    return finished


def free_crash(original, self, record, now):
    """H4: an expired lease does not count as an attempt."""
    original(self, record, now)
    if record.state is TaskState.PENDING:
        record.attempts -= 1
        record.crashes -= 1


def finished_twice(original, self, now):
    """I2: the first run is finished twice."""
    original(self, now)
    if self.status == "finished" and self.runs == 1:
        original(self, now)


def lost_deadline(original, self, leases, *, lease_for):
    """H4: the deadline heap forgets a lease that was extended."""
    extended = original(self, leases, lease_for=lease_for)
    for lease in extended:
        held = self._open(lease.crawl).leases
        record = held.held[lease.task]
        held.deadlines.remove(record.deadline << NUMBER_BITS | record.number)
        held.deadlines.sort()
    return extended


def one_slot_more(original, self, key):
    """D2: one visit at a time more than allowed."""
    queue = original(self, key)
    queue.slots += 1
    return queue


def lost_wake(original, self, queue, now):
    """C6: a queue that was visited sets no wake time for its retries."""
    return 0 if queue.delayed.head and queue.cost_count > 2 else original(self, queue, now)


def lane_forgotten(original, self, request, now):
    """C4: the count of a lane does not travel with the worker."""
    result = original(self, request, now)
    result.streak = request.streak
    return result


def loaned_and_served(original, self, queue, now, may_list):
    """C7: others are served of a queue on loan while it has a free slot."""
    loaned, queue.loaned = queue.loaned, 0
    original(self, queue, now, may_list)
    queue.loaned = loaned


def all_crashed(original, self, record, now):
    """C7: each lease of a lost loan counts a crash."""
    self._crash(record, now)


def loaned_on_credit(original, self, queue):
    """C7: a queue is lent whole, whatever it may spend."""
    if queue.lane0.head or queue.lane1.head:
        self._schedule.listed += 1
        queue.list_state = READY


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
    bug: Bug | None = None
    queue: tuple[str, Callable] | None = None  # a method of a queue, replaced
    decide: Callable = decide


MUTANTS = [
    Mutant("H3-no-token-check", Bug(Finisher, "lease_by_token", any_token)),
    Mutant("E1-listed-at-the-lease", Bug(Claimer, "_lease", listed_at_the_lease)),
    Mutant("E1-checked-once", Bug(Schedule, "choose_list", checked_once)),
    Mutant("E3-no-refund", queue=("refund", keep)),
    Mutant("D4-no-streak-reset", decide=no_reset),
    Mutant("D1-next-ready-moves-back", Bug(Finisher, "_end_visit", moved_back)),
    Mutant("C3-no-new-turn", Bug(Claimer, "_lease", no_new_turn)),
    Mutant("H1-leased-twice", Bug(Claimer, "_lease", leased_twice)),
    Mutant("H6-lost-link", Bug(Finisher, "finish", lost_link)),
    Mutant("H4-free-crash", Bug(Finisher, "_crash", free_crash)),
    Mutant("I2-finished-twice", Bug(CrawlState, "finish_run", finished_twice)),
    Mutant("H4-lost-deadline", Bug(EngineVerbs, "extend", lost_deadline)),
    Mutant("D2-one-slot-more", Bug(Adder, "new_queue", one_slot_more)),
    Mutant("C6-lost-wake", Bug(Schedule, "next_wake", lost_wake)),
    Mutant("C4-lane-forgotten", Bug(Claimer, "claim", lane_forgotten)),
    Mutant("C7-loaned-and-served", Bug(Schedule, "_refresh", loaned_and_served)),
    Mutant("C7-all-crashed", Bug(Finisher, "expire_lease", all_crashed)),
    Mutant("C7-loaned-on-credit", Bug(Claimer, "_continue_loan", loaned_on_credit)),
    Mutant("D3-impatient", decide=impatient),
    Mutant("D1-wake-too-early", queue=("earliest_ready", forget_the_last_visit)),
]


def plant(bug, monkeypatch):
    """Replace the method of a part by its bug."""
    original = getattr(bug.part, bug.method)

    def broken(self, *args, **kwargs):
        return bug.replacement(original, self, *args, **kwargs)

    monkeypatch.setattr(bug.part, bug.method, broken)


def first_caught(mutant):
    """The first seed that catches the bug, and what it says."""
    for seed in range(FOUND_WITHIN):
        result = simulate(seed, decide_with=mutant.decide)
        if result.violation is not None:
            return result
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bug_is_found(mutant, monkeypatch):
    """Within FOUND_WITHIN seeds some promise is seen broken."""
    if mutant.bug is not None:
        plant(mutant.bug, monkeypatch)
    if mutant.queue is not None:
        monkeypatch.setattr(Queue, *mutant.queue)
    result = first_caught(mutant)

    assert result is not None, f"{mutant.name} survived {FOUND_WITHIN} seeds"
    assert result.command == f"outrider simulate --seed {result.seed}"


@pytest.mark.slow
def test_correct_engine_passes_the_same_seeds():
    """What catches a bug accuses nobody else."""
    broken = [simulate(seed).violation for seed in range(FOUND_WITHIN)]

    assert broken == [None] * FOUND_WITHIN
