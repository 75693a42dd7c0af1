"""A history of leases and what must hold of it, kept apart from every store's own books.

A ledger is told what was asked and answered, and raises `InvariantBroken` at the first answer that
cannot be true. Where it cannot be sure (overlapping calls, answers lost, rules changed under way)
it believes the store: it may miss a fault, and never invents one.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

from outrider.core.policy.politeness import min_delay_between, pace
from outrider.core.task import Added, Lease, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.testing.history_records import Book, Entry, Line, Visit, whole_ms

__all__ = ["Entry", "InvariantBroken", "Ledger", "require"]

SURELY_TAKEN_BACK: Final = 100  # overdue leases that any claim can be expected to take back


class InvariantBroken(AssertionError):
    """A promise of ARCHITECTURE.md was broken: which one, and by what."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


def require(holds: object, rule: str, detail: str) -> None:
    """Complain unless it holds."""
    if not holds:
        raise InvariantBroken(rule, detail)


class Ledger:
    """What must hold of every lease, whoever asks for it, in whatever order."""

    def __init__(self) -> None:
        self.books: dict[str, Book] = {}

    def book(self, crawl: str) -> Book:
        """The crawl of that name."""
        return self.books.setdefault(crawl, Book())

    # ---- add

    def added(self, crawl: str, pairs: Iterable[tuple[Task, Added]], now: int) -> None:
        """Nothing known is added twice; what is a duplicate is known."""
        book = self.book(crawl)
        for task, answer in pairs:
            entry = book.entries.get(task.fingerprint)
            if not answer.added:
                self._refused(book, task, answer, entry)
            elif entry is None or not (entry.arrival or _may_return(task, entry, now)):
                self._inserted(book, task, entry, now)
            else:
                is_sure = bool(entry.arrival)
                self._revisited(book, task, entry, now)
                entry.is_sure = is_sure

    def _refused(self, book: Book, task: Task, answer: Added, entry: Entry | None) -> None:
        if answer.reason == "duplicate":
            known = entry is not None or not book.is_whole
            require(known, "B3", f"{task.url} is called a duplicate and was never added")
        if entry is not None and task.known == "raise":
            place = (task.precedence, task.priority + 0.0)
            if entry.is_pending and place < entry.place:
                entry.place = place
                self._stand(book, entry)
        elif entry is not None and task.known == "gather":
            entry.is_sure = False  # F10: it moved, if it was pending and its total is a number

    def _inserted(self, book: Book, task: Task, entry: Entry | None, now: int) -> None:
        """A new task; one that was lent before its add was answered is leased already."""
        book.arrivals += 1
        if entry is not None:
            entry.arrival = book.arrivals
            return
        place = (task.precedence, task.priority + 0.0)
        due = now + whole_ms(task.delay)
        entry = Entry(task.url, task.key, task.lane, place, book.arrivals, due)
        book.entries[task.fingerprint] = entry
        self._stand(book, entry)

    def _revisited(self, book: Book, task: Task, entry: Entry, now: int) -> None:
        require(task.known == "revisit", "B3", f"{task.url} is known and was added again")
        in_flight = entry.visit is not None and entry.visit.is_valid(now)
        require(not in_flight, "B3", f"{task.url} is leased and was added again")
        book.arrivals += 1
        entry.key, entry.lane, entry.arrival = task.key, task.lane, book.arrivals
        entry.place, entry.due = (task.precedence, task.priority + 0.0), now + whole_ms(task.delay)
        entry.is_pending = entry.is_sure = True
        self._stand(book, entry)

    def _stand(self, book: Book, entry: Entry) -> None:
        """Put it in its line anew."""
        entry.version += 1
        line = book.line(entry.key)
        waiting = line.unripe.setdefault(entry.lane, [])
        heappush(waiting, (entry.due, entry.arrival, id(entry), entry.version, entry))

    # ---- claim

    def lent(
        self, lease: Lease, now: int, *, alone: bool, named: bool = False, loan: int = 0
    ) -> None:
        """One valid lease a task, budget; concurrency, spacing and order unless it was by name.

        `loan` numbers the claim that lent whole queues (C7); 0: it lent tasks.
        """
        book, line = self.book(lease.crawl), self.book(lease.crawl).line(lease.key)
        entry = self._entry_of(book, lease)
        self._check_single(entry, lease, now)
        self._check_budget(line, lease)
        if not named:
            self._check_concurrency(book, lease, now, loan)
        if alone and not named:
            self._check_order(book, line, entry, now)
            if not loan or loan != line.loan:
                self._check_spacing(line, lease, now)
                self._check_pace(line, lease, now)
        if loan and loan != line.loan:
            line.loan, line.losses = loan, 0
        visit = self._lend(book, line, entry, lease, now)
        visit.named, visit.loan = named, loan
        if not named:
            self._begin(line, lease, now)

    def _entry_of(self, book: Book, lease: Lease) -> Entry:
        entry = book.entries.get(lease.about.fingerprint)
        if entry is None:
            book.is_whole = False
            place = (lease.about.precedence, lease.priority + 0.0)
            entry = Entry(lease.url, lease.key, lease.about.lane, place, 0, 0)
            book.entries[lease.about.fingerprint] = entry
        return book.numbers.setdefault(lease.task, entry)

    def _check_single(self, entry: Entry, lease: Lease, now: int) -> None:
        other = entry.visit
        valid = other is not None and other.is_valid(now)
        require(not valid, "H1", f"{lease.url} is leased twice: {lease.id} while {other}")
        require(other is None or other.id != lease.id, "H1", f"the token of {lease.id} is not new")

    def _check_concurrency(self, book: Book, lease: Lease, now: int, loan: int) -> None:
        """D2; C7: whoever borrowed a queue has it alone, and however much of it, one slot."""
        same = [v for v in book.held(now) if v.key == lease.key and not v.named]
        others = [visit for visit in same if not loan or visit.loan != loan]
        lent = next((visit for visit in others if visit.loan), None)
        require(lent is None, "C7", f"{lease.url} is leased while its queue is lent: {lent}")
        count = 1 + len(others)
        most = lease.rules.politeness.max_in_flight
        require(count <= most, "D2", f"{lease.key} has {count} visits in flight, of {most}")

    def _check_budget(self, line: Line, lease: Lease) -> None:
        """E1, E3: judged after every lease, so it is exceeded by the last task's cost at most.

        Penalties of visits in flight may come on top where there are several slots.
        """
        total = lease.rules.budget.total_budget
        line.was_parallel |= lease.rules.politeness.max_in_flight > 1 or line.loan > 0
        spent = line.charged + (0 if line.was_parallel else line.penalties)
        fine = total < 0 or spent < total
        require(fine, "E1", f"{lease.key} spent {spent} of {total} and is leased: {lease.url}")

    def _check_spacing(self, line: Line, lease: Lease, now: int) -> None:
        early = line.not_before - now
        require(early <= 0, "D1", f"{lease.url} is leased {early} ms before {lease.key} is ready")

    def _check_pace(self, line: Line, lease: Lease, now: int) -> None:
        """D1: visits/s is a promise over all slots: 1/rate between any two leases of a queue."""
        rate = lease.rules.politeness.visits_per_second
        if rate and line.last_lease is not None:
            early = line.last_lease + whole_ms(pace(lease.rules.politeness)) - now
            told = f"{lease.url} is leased {early} ms too soon for {rate} visits a second"
            require(early <= 0, "D1", told)

    def _check_order(self, book: Book, line: Line, entry: Entry, now: int) -> None:
        """C2: nothing due, pending and better stays behind."""
        first = self._first(line, entry.lane, now)
        if first is None or first is entry or not entry.arrival or not entry.is_sure:
            return
        fair = entry.place < first.place
        if entry.place == first.place:
            fair = book.ties != "fifo" or entry.arrival < first.arrival
        require(fair, "C2", f"{entry.url} {entry.place} is leased before {first.url} {first.place}")

    def _first(self, line: Line, lane: int, now: int) -> Entry | None:
        """The first in line; what is outdated or not sure falls out on the way."""
        waiting, ripe = line.unripe.setdefault(lane, []), line.ripe.setdefault(lane, [])
        while waiting and waiting[0][0] <= now:
            _, arrival, number, version, entry = heappop(waiting)
            heappush(ripe, (entry.place, arrival, number, version, entry))
        while ripe and not ripe[0][4].stands_as(ripe[0][3]):
            heappop(ripe)
        return ripe[0][4] if ripe else None

    def _lend(self, book: Book, line: Line, entry: Entry, lease: Lease, now: int) -> Visit:
        until = now + whole_ms(lease.lease_for)
        visit = Visit(lease.id, lease.key, lease.about.cost, now, until)
        if entry.visit is not None and entry.visit.fate in ("held", "unsure"):
            book.mark(entry.visit, "lost")
        entry.visit, entry.is_pending = visit, False
        book.visits[lease.id] = book.open[lease.id] = visit
        line.charged += lease.about.cost
        line.rules, line.crawl_delay = lease.rules, lease.manners.crawl_delay
        if not book.is_whole:  # visits we did not see
            line.last_delay = lease.manners.last_delay
        return visit

    def _begin(self, line: Line, lease: Lease, now: int) -> None:
        """D1: a visit begins; leases are spaced if several may run, or if starts count."""
        line.last_start = line.last_lease = now
        manners = lease.rules.politeness
        if manners.count_from == "start" or manners.max_in_flight > 1:
            line.postpone(now + whole_ms(min_delay_between(manners, lease.manners.crawl_delay)))

    # ---- the ends of a visit

    def closing(self, leases: Iterable[LeaseId]) -> None:
        """An end was asked for; until it is answered nobody knows, and asked again neither."""
        for lease in set(leases):
            visit = self.book(lease.crawl).visits.get(lease)
            if visit is not None and visit.fate in ("held", "closing"):
                visit.fate = "closing" if visit.fate == "held" else "unsure"

    def finished(self, verdict: Verdict, answer: Finished, now: int, *, alone: bool) -> None:
        """H3: applied once, to the lease that holds, and to no other."""
        book = self.book(verdict.crawl)
        id_ = LeaseId(verdict.crawl, verdict.task, verdict.token)
        visit = book.visits.get(id_)
        if visit is None:
            require(not (answer.applied and book.is_whole), "H3", f"{id_} was never given")
        elif not answer.applied:
            self._was_refused(visit, now, alone=alone)
        elif answer.state is None:
            again = visit.fate in ("applied", "unsure")
            require(again, "H3", f"{id_} is called finished before, and was {visit.fate}")
        else:
            fits = visit.fate in ("closing", "unsure")
            require(fits, "H3", f"{id_} is finished, and was {visit.fate}")
            self._apply(book, visit, verdict, now)

    def _was_refused(self, visit: Visit, now: int, *, alone: bool) -> None:
        held = visit.fate == "closing" and visit.deadline > now and alone
        require(not held, "H3", f"{visit.id} was held until {visit.deadline}, and was refused")
        visit.fate = "unsure" if visit.fate == "closing" else visit.fate

    def _apply(self, book: Book, visit: Visit, verdict: Verdict, now: int) -> None:
        book.mark(visit, "applied")
        book.applied += 1
        line = book.line(visit.key)
        line.charged -= 0 if verdict.counts else visit.cost
        line.penalties += verdict.penalty
        if verdict.touched:
            line.last_delay = verdict.delay
            if verdict.crawl_delay is not None:
                line.crawl_delay = verdict.crawl_delay
            line.ended(visit.began(now), now, verdict.delay)
            line.postpone(now + whole_ms(verdict.snooze))
        entry = book.numbers[visit.id.task]
        if entry.visit is visit:
            self._come_back(book, entry, verdict, now)

    def _come_back(self, book: Book, entry: Entry, verdict: Verdict, now: int) -> None:
        entry.is_pending = verdict.state == "pending"
        if not entry.is_pending:
            return
        entry.due = now + whole_ms(verdict.retry_in)
        revisit = verdict.revisit
        if revisit is not None:
            book.arrivals += 1
            entry.arrival, entry.lane = book.arrivals, revisit.lane
            entry.place = (revisit.precedence, revisit.priority + 0.0)
            entry.due = now + whole_ms(revisit.after)
        self._stand(book, entry)

    def extended(self, lease: LeaseId, lease_for: float, now: int) -> None:
        """H2: only what is held can be renewed."""
        visit = self.book(lease.crawl).visits.get(lease)
        if visit is None:
            return
        holds = visit.fate in ("held", "closing", "unsure")
        require(holds, "H2", f"{lease} is renewed, and was {visit.fate}")
        visit.fate, visit.deadline = "held", now + whole_ms(lease_for)

    def released(self, lease: LeaseId, now: int) -> None:
        """H5: only what is held can be given back; the visit's end is now (D7)."""
        book = self.book(lease.crawl)
        visit = book.visits.get(lease)
        if visit is None:
            return
        fits = visit.fate in ("closing", "unsure")
        require(fits, "H5", f"{lease} is released, and was {visit.fate}")
        book.mark(visit, "released")
        line = book.line(visit.key)
        line.charged -= visit.cost
        if not visit.named:
            line.ended(visit.began(now), now, line.usual_delay())
        entry = book.numbers[lease.task]
        if entry.visit is visit:
            entry.is_pending, entry.due = True, now
            self._stand(book, entry)

    def kept(self, lease: LeaseId) -> None:
        """H5: it was not released, so it was lost before, or is no longer known to hold."""
        visit = self.book(lease.crawl).visits.get(lease)
        if visit is not None and visit.fate == "closing":
            visit.fate = "unsure"

    def cancelled(self, crawl: str) -> None:
        """I3: its leases are void."""
        book = self.book(crawl)
        for visit in list(book.open.values()):
            book.mark(visit, "lost")

    def taken_back(self, crawl: str, now: int, *, certain: bool) -> None:
        """H4, D7: overdue leases are lost, their visits end now; whether they live is not ours."""
        book = self.book(crawl)
        for visit in book.overdue(now):
            was_unsure = visit.fate == "unsure"
            book.mark(visit, "lost" if certain else "unsure")
            if was_unsure:
                book.crashes += 1
                continue  # its visit may have ended before
            line = book.line(visit.key)
            self._lose(book, line, visit, certain=certain)
            if not visit.named:
                line.ended(visit.began(now), now, line.usual_delay())
            entry = book.numbers[visit.id.task]
            if entry.visit is visit:
                entry.is_pending = entry.is_sure = False

    def _lose(self, book: Book, line: Line, visit: Visit, *, certain: bool) -> None:
        """H4: a crash; C7: of a loan the first `max_in_flight`, the others are refunded."""
        if not visit.loan:
            book.crashes += 1
            return
        most = line.rules.politeness.max_in_flight if line.rules else None
        is_known = most is not None and visit.loan == line.loan
        may_count = not is_known or line.losses < (most or 0)
        line.losses += 1
        book.crashes += may_count
        if not (certain and is_known and may_count):
            line.charged -= visit.cost

    def closes_run(self, crawl: str, now: int) -> None:
        """I2: nothing is leased anywhere when a run is closed."""
        book = self.book(crawl)
        held = next(book.held(now), None)
        require(held is None, "I2", f"{crawl} finished while {held} holds")
        book.is_finished = True


def _may_return(task: Task, entry: Entry, now: int) -> bool:
    """A task of which only a lease was seen: restored and revisited, or lent before its answer."""
    in_flight = entry.visit is not None and entry.visit.is_valid(now)
    return task.known == "revisit" and not in_flight
