import pytest

from outrider.core.outcome import Done, Throttled, Unreachable
from outrider.core.policy.politeness import Politeness
from outrider.core.policy.rules import CrawlRules, QueueRules
from outrider.core.task import Lease, PolitenessState
from outrider.simulation.server_log import ServerLog
from outrider.testing.builders import task
from outrider.testing.invariants import InvariantBroken
from outrider.testing.visit_history import VisitHistory, VisitLease


class Servers:
    """A record written by hand: when each request was claimed, began, ended and was finished."""

    def __init__(self, **manners) -> None:
        self.log = ServerLog()
        self.visits = VisitHistory(CrawlRules())
        self._rules = QueueRules(Politeness(**manners))
        self._calls = 0

    def claim(self, at):
        """A lease, given at this second."""
        self._calls += 1
        lease = Lease(
            "s",
            self._calls,
            self._calls,
            task(),
            1,
            "w",
            60.0,
            0,
            0,
            self._rules,
            PolitenessState(),
        )
        self.visits.leases[lease.id] = VisitLease(lease, int(at * 1000), self._calls)
        return lease

    def visit(self, start, end, outcome=None, *, lease=None):
        """A request from start to end, finished at its end."""
        lease = lease or self.claim(start)
        request = self.log.begin(lease, int(start * 1000))
        request.ended = int(end * 1000)
        if outcome is not None:
            self._calls += 1
            request.outcome = outcome
            self.visits.leases[lease.id].finished_by = self._calls

    def wake(self):
        """An operator ends the snooze."""
        self._calls += 1
        self.visits.wakes.append(("a.example", self._calls))

    def check(self):
        """Check the log."""
        self.log.check(self.visits)


def test_a_patient_visitor_is_not_accused():
    """Five times the duration after the end is what was promised (D1)."""
    servers = Servers()
    servers.visit(0.0, 2.0, Done(200))
    servers.visit(12.0, 13.0, Done(200))
    servers.check()


def test_a_visit_before_the_delay_is_over_is_seen():
    """By the host's own clock, to the millisecond."""
    servers = Servers()
    servers.visit(0.0, 2.0, Done(200))
    servers.visit(11.999, 13.0, Done(200))
    with pytest.raises(InvariantBroken, match="1 ms early"):
        servers.check()


def test_two_visits_at_once_are_seen():
    """One host, one slot (D2)."""
    servers = Servers()
    servers.visit(0.0, 2.0)
    servers.visit(1.0, 3.0)
    with pytest.raises(InvariantBroken, match="D2"):
        servers.check()


def test_several_slots_may_overlap():
    """Up to max_in_flight, and what was claimed before an end need not wait for it."""
    servers = Servers(max_in_flight=2)
    first, second = servers.claim(0.0), servers.claim(1.0)
    servers.visit(0.0, 2.0, Done(200), lease=first)
    servers.visit(2.5, 3.0, Done(200), lease=second)
    servers.check()


@pytest.mark.parametrize(
    ("outcome", "seconds"),
    [(Throttled(200.0), 200.0), (Throttled(0.0), 30.0), (Unreachable("DNS"), 30.0)],
)
def test_patience_is_kept(outcome, seconds):
    """Retry-After is never shortened, and 0 still backs off (D3, D4)."""
    servers = Servers()
    servers.visit(0.0, 0.1, outcome)
    servers.visit(0.099 + seconds, 300.0)
    with pytest.raises(InvariantBroken, match="1 ms early"):
        servers.check()


def test_a_wake_ends_patience_but_not_the_delay():
    """D1: back to the last visit's end + delay, never sooner."""
    servers = Servers()
    servers.visit(0.0, 0.1, Throttled(200.0))
    servers.wake()
    servers.visit(1.1, 2.0)
    servers.check()

    servers = Servers()
    servers.visit(0.0, 0.1, Throttled(200.0))
    servers.wake()
    servers.visit(1.0, 2.0)
    with pytest.raises(InvariantBroken, match="100 ms early"):
        servers.check()


def test_an_operators_snooze_is_kept():
    """E7: left alone for so many seconds."""
    servers = Servers()
    servers.visits.snoozes.append(("a.example", 0, 60_000))
    servers.visit(59.0, 60.0)
    with pytest.raises(InvariantBroken, match="snoozed"):
        servers.check()


def test_counted_from_the_start_claims_are_what_counts():
    """D1: a visitor that is slow to start may come sooner after the end."""
    servers = Servers(count_from="start", delay=10.0)
    servers.visit(0.0, 9.0, Done(200))
    servers.visit(10.0, 11.0, Done(200))
    servers.check()
