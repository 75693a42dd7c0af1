"""A ledger read back: what must be true now, but for the one call that was in flight at the kill.

That call was applied whole or not at all; what the reopened file shows says which.
"""

from __future__ import annotations

from collections.abc import Iterable

from crash.call_log import (
    Asked,
    Begun,
    Claim,
    Ended,
    Line,
    Opening,
    Refused,
    Settled,
    Told,
)
from crash.expected_state import Books, seen_of
from crash.host_log import Servers
from outrider.core.policy.rules import CrawlRules
from outrider.core.states import QueueState, TaskState
from outrider.store.protocol import FullStore, QueueView, TaskFilter, TaskView
from outrider.testing import audit
from outrider.testing.lease_history import InvariantBroken, require


class History:
    """Books kept from lines; after a kill, one for each thing that may have happened."""

    def __init__(self, rules: CrawlRules) -> None:
        self._branches = [Books(rules)]
        self._open: Asked | None = None
        self._opened_at = 0
        self.servers = Servers(rules)

    @property
    def books(self) -> Books:
        """What must be true, once nothing is unsure."""
        require(len(self._branches) == 1, "H6", f"nobody said what became of {self._open}")
        return self._branches[0]

    def read(self, lines: Iterable[Line]) -> None:
        """Follow a whole ledger."""
        for line in lines:
            self.follow(line)

    def follow(self, line: Line) -> None:
        """One line more."""
        match line:
            case Asked():
                self._open = line
            case Told():
                assert self._open is not None
                self.books.apply(self._open.call, self._open.at, line)
                self.servers.answered(refused=False)
                self._open = None
            case Refused():
                self.servers.answered(refused=True)
                self._open = None
            case Opening(at):
                self._reopened(at)
            case Settled():
                self._settled(line)
            case Begun(at, visits):
                self.servers.begun(at, visits)
            case Ended(at, visits):
                self.servers.ended(at, visits)

    def _reopened(self, at: int) -> None:
        if self._open is not None and len(self._branches) == 1:
            self._opened_at = at
            applied = self._branches[0].copy()
            if not isinstance(self._open.call, Claim):  # nobody knows yet what it lent
                applied.apply(self._open.call, self._open.at, None)
            self._branches.append(applied)
        for books in self._branches:
            books.reopen(at)
        self.servers.killed(at)

    def _settled(self, line: Settled) -> None:
        assert self._open is not None
        books = self._branches[line.applied]
        for url in line.lent:
            _lent_unheard(books, url, self._open.at, self._opened_at)
        self._branches, self._open = [books], None

    # ---- comparing

    async def settle(self, store: FullStore, crawl: str, now: int) -> Settled | None:
        """Compare all of it with a reopened store; says what became of the call in flight."""
        await audit.check(store, crawl)
        tasks = await audit.everything(
            lambda after: store.tasks(crawl, TaskFilter(), after=after, limit=audit.PAGE)
        )
        queues = await audit.everything(
            lambda after: store.queues(crawl, after=after, limit=audit.PAGE)
        )
        line = self._what_became(tasks, queues, now)
        if line is not None:
            self.follow(line)
        _compare(self.books, tasks, queues, now)
        return line

    def _what_became(
        self, tasks: list[TaskView], queues: list[QueueView], now: int
    ) -> Settled | None:
        if self._open is None:
            return None
        if isinstance(self._open.call, Claim):
            return Settled(True, self._lent_unheard_of(tasks, self._open.call.limit))
        fits = [_fits(books, tasks, queues, now) for books in self._branches]
        if not any(fits):
            without, applied = (_faults(books, tasks, queues, now) for books in self._branches)
            what = f"{self._open.call} is half there: without it {without}; with it {applied}"
            raise InvariantBroken("H6", what)
        return Settled(not fits[0])

    def _lent_unheard_of(self, tasks: list[TaskView], limit: int) -> list[str]:
        """What a claim lent that nobody heard of: each crashed once, and no more than its limit."""
        facts = self._branches[1].tasks
        lent = [
            view.url
            for view in tasks
            if view.url in facts and seen_of(view) != facts[view.url].seen()
        ]
        require(len(lent) <= limit, "H1", f"a claim of {limit} lent {lent}")
        return lent


def _lent_unheard(books: Books, url: str, asked: int, opened: int) -> None:
    fact = books.tasks[url]
    require(fact.state is TaskState.PENDING, "H1", f"{url} was lent, but is {fact}")
    books.take(url, -1, asked)
    books.crash(url, opened)


def _fits(books: Books, tasks: list[TaskView], queues: list[QueueView], now: int) -> bool:
    return not _faults(books, tasks, queues, now)


def _compare(books: Books, tasks: list[TaskView], queues: list[QueueView], now: int) -> None:
    faults = _faults(books, tasks, queues, now)
    if faults:
        raise InvariantBroken("M3", f"{len(faults)} differ from the ledger: {faults[:5]}")


def _faults(
    books: Books, tasks: list[TaskView], queues: list[QueueView], now: int
) -> list[tuple[object, ...]]:
    found = {view.url: seen_of(view) for view in tasks}
    faults: list[tuple[object, ...]] = []
    faults += [("lost", url, fact) for url, fact in books.tasks.items() if url not in found]
    faults += [("unheard of", url) for url in found if url not in books.tasks]
    faults += [
        ("other", url, fact.seen(), found[url])
        for url, fact in books.tasks.items()
        if url in found and fact.seen() != found[url]
    ]
    for view in queues:
        faults += _queue_faults(books, view, now)
    return faults


def _queue_faults(books: Books, view: QueueView, now: int) -> list[tuple[object, ...]]:
    fact = books.queue(view.key)
    told = (fact.spent, fact.delay, fact.bytes)
    found = (view.spent, round(view.delay * 1000), view.bytes)
    faults: list[tuple[object, ...]] = [("queue", view.key, told, found)] if told != found else []
    is_retired = view.state is QueueState.RETIRED
    if fact.retired and not is_retired:
        faults.append(("retired", view))
    if fact.paused and not is_retired and view.state is not QueueState.PAUSED:
        faults.append(("paused", view))
    if view.wakes_in is not None and now + round(view.wakes_in * 1000) < fact.next_ready:
        faults.append(("too soon", view.key, fact.next_ready - now, view.wakes_in))
    return faults
