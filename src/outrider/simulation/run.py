"""One simulated crawl: the real core and store against a synthetic web, from one seed (S1, S3).

Safety is checked at every call and by the log of the servers; liveness by the clock: once healed,
the crawl finishes within `BOUND` of virtual time, and every URL ever added is accounted for.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from outrider.clock import Clock
from outrider.core.decide import Policy, decide
from outrider.core.outcome import Outcome
from outrider.core.policy.scorers import scorer_of
from outrider.core.states import CrawlStatus, QueueState
from outrider.core.task import Lease, Link, Task
from outrider.core.url import Url, parse_url
from outrider.core.verdict import Verdict
from outrider.frontier.policies import admission_for, policy_for
from outrider.settings import crawl_rules
from outrider.simulation.checker import ClaimSampler
from outrider.simulation.operators import Operator, Seeder
from outrider.simulation.scenario import Habits, Scenario, scenario_of
from outrider.simulation.server_log import ServerLog
from outrider.simulation.trace import Trace
from outrider.simulation.virtual_loop import VirtualLoop
from outrider.simulation.web import Found, HostKind, split
from outrider.simulation.worker import Worker
from outrider.store.factory import open_store
from outrider.store.protocol import CrawlView, FullStore
from outrider.testing.faults import FaultyStore, seeded
from outrider.testing.invariants import Call, CheckedStore, InvariantBroken
from outrider.testing.lease_history import require
from outrider.testing.visit_history import VisitHistory

CRAWL: Final = "simulated"
BOUND: Final = 86_400.0  # virtual seconds from healing to `finished`

Opener: TypeAlias = Callable[[Clock], Awaitable[FullStore]]
Decide: TypeAlias = Callable[[Lease, Outcome, Policy, float], Verdict]


class Violation(msgspec.Struct, frozen=True):
    """A broken invariant: the rule, the facts, and when in virtual seconds."""

    rule: str
    detail: str
    at: float


class SimulationResult(msgspec.Struct, frozen=True):
    """The result of one seed."""

    seed: int
    violation: Violation | None
    finished_in: float  # virtual seconds from healing to the end
    hosts: int
    requests: int  # received by hosts
    acts: int  # actions of the operator
    faults: Mapping[str, int]
    view: CrawlView | None  # of the crawl at its end; None if an invariant broke before
    trace: Sequence[str] = ()

    @property
    def command(self) -> str:
        """The command that repeats this seed."""
        return f"outrider simulate --seed {self.seed}"

    @property
    def outcomes(self) -> Mapping[str, int]:
        """The number of visits by outcome."""
        return self.view.outcomes if self.view else {}


async def memory(clock: Clock) -> FullStore:
    """Open the store that seeds run against by default."""
    return await open_store("memory://", clock)


def simulate(
    seed: int, *, opener: Opener = memory, decide_with: Decide = decide, trace: bool = False
) -> SimulationResult:
    """Run one seed; a violation is in the result, never raised."""
    return Run(scenario_of(seed), opener, decide_with, trace=trace).run()


class Run:
    """Everything that the actors of one seed share."""

    def __init__(
        self, scenario: Scenario, opener: Opener, decide_with: Decide, *, trace: bool = False
    ) -> None:
        self.scenario = scenario
        self.crawl = CRAWL
        self.loop = VirtualLoop()
        self.dice = random.Random(scenario.seed + 1)
        self.server_log = ServerLog()
        self.habits = scenario.habits
        self.is_seeded = False
        self.is_healed = False
        self.is_over = False
        self.decide = decide_with
        settings = scenario.settings
        self._admission = admission_for(
            settings, CRAWL, scorer_of(settings.scoring), self.dice.random
        )
        self.policy = policy_for(settings, self._admission)
        self._urls: dict[str, Url] = {}
        self._operator = Operator(self)
        self._opener = opener
        self._trace = Trace(self.loop) if trace else None
        self._view: CrawlView | None = None

    # ---- for the actors

    def tasks(self, found: Iterable[Found], *, on: Lease) -> Iterator[Task]:
        """Yield the tasks of a page's links, admitted by the real core."""
        depth = on.depth + 1
        links = [Link(self._url(url), type=kind, depth=depth) for url, kind in found]
        return (task for task in self._admission.admit(links, found_on=on) if type(task) is Task)

    def tasks_of(self, links: Sequence[Link]) -> Iterator[Task]:
        """Yield the tasks of added links, admitted by the real core."""
        return (task for task in self._admission.admit(links) if type(task) is Task)

    def keys(self) -> list[str]:
        """Return the keys of all queues, in the order of their creation."""
        return list(self.checked.checker.leases.crawl(CRAWL).queues)

    def heal(self) -> None:
        """End all faults: of the connection to the store and of the workers."""
        self.store.heal()
        self.habits = Habits(extend=1.0)

    async def audit(self) -> None:
        """Check all views against the whole history."""
        await self.checked.check(CRAWL)

    def _url(self, text: str) -> Url:
        url = self._urls.get(text)
        if url is None:
            url = self._urls[text] = _parsed(text)
        return url

    # ---- the run

    def run(self) -> SimulationResult:
        """Run the crawl to its end, or to the first violation."""
        self.loop.start(self._open())
        self.loop.run(until=0.0)
        violation: Violation | None = None
        try:
            self._run_actors()
        except InvariantBroken as broken:
            violation = Violation(broken.rule, broken.detail, self.loop.elapsed())
        except Exception as error:  # noqa: BLE001 - an error of the store is a violation
            violation = Violation("breakdown", _place_of(error), self.loop.elapsed())
        finally:
            self.loop.close()
        return self._result(violation)

    async def _open(self) -> None:
        scenario, loop = self.scenario, self.loop
        rules = crawl_rules(scenario.settings)
        store = await self._opener(loop)
        self.may_draw = rules.may_draw_at_start
        self.checked = CheckedStore(store, loop, rules, self._observe)
        dice = random.Random(scenario.seed + 2)
        self._sampler = ClaimSampler(store, loop, self.checked.checker, dice)
        self.store = FaultyStore(self.checked, loop, seeded(scenario.faults, self.dice))
        await self.checked.configure(CRAWL, rules)

    async def _observe(self, call: Call, answer: Any) -> None:
        if self._trace is not None:
            self._trace.write(call, answer)
        if call.verb == "claim":
            await self._sampler.claimed(call.arguments["request"], answer)

    def _run_actors(self) -> None:
        self.loop.start(Seeder(self).run())
        self.loop.start(self._operator.run())
        for number in range(self.scenario.workers):
            self.loop.start(Worker(self, number + 1).run())
        in_time = self.loop.run(self.scenario.heal_at + BOUND)
        require(in_time and self.is_over, "liveness", f"not over {BOUND:.0f} s after healing")
        self.loop.start(self._check_end())
        self.loop.run(self.loop.elapsed())
        self.server_log.check(self._visits)

    async def _check_end(self) -> None:
        """Check that every URL is done, dead, dropped, or held by a host that does not answer."""
        await self.audit()
        self._view = view = await self.checked.crawl(CRAWL)
        over = view.status in (CrawlStatus.FINISHED, CrawlStatus.CANCELLED)
        require(over, "liveness", f"the crawl is {view.status}")
        require(not view.leased, "I2", f"{view.leased} are leased at the end")
        require(
            view.pending == view.held, "I2", f"{view.pending - view.held} are pending at the end"
        )
        gone = self._gone_keys()
        page = await self.checked.queues(CRAWL)
        for queue in page.items:
            excused = queue.state is not QueueState.RETIRED or queue.key in gone
            require(
                excused, "liveness", f"{queue.key} is left retired ({queue.reason}), and is alive"
            )

    @property
    def _visits(self) -> VisitHistory:
        visits = self.checked.checker.visits
        assert visits is not None  # noqa: S101 - the checker was given rules
        return visits

    def _gone_keys(self) -> set[str]:
        tasks = self.checked.checker.leases.crawl(CRAWL).tasks.values()
        return {task.key for task in tasks if self._kind(task.url) is HostKind.GONE}

    def _kind(self, url: str) -> HostKind:
        return self.scenario.web.host(split(url)[0]).kind

    def _result(self, violation: Violation | None) -> SimulationResult:
        return SimulationResult(
            seed=self.scenario.seed,
            violation=violation,
            finished_in=max(0.0, self.loop.elapsed() - self.scenario.heal_at),
            hosts=len(self.scenario.web.hosts),
            requests=len(self.server_log.requests),
            acts=self._operator.acts,
            faults=dict(self.store.counts),
            view=self._view,
            trace=self._trace.lines if self._trace else (),
        )


def _parsed(text: str) -> Url:
    url = parse_url(text)
    if isinstance(url, Url):
        return url
    raise ValueError(f"the synthetic web has an invalid URL: {url}")


def _place_of(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__}: {error}{where}"
