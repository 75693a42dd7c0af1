"""One seed from curtain to curtain: the real core and store against an imagined web (S1, S3).

Safety is judged at every call and by the servers' own record; liveness by the clock: once healed,
the crawl finishes within `BOUND` of virtual time, and every URL ever added is accounted for.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

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
from outrider.simulation.checker import Umpire
from outrider.simulation.operators import Operator, Seeder
from outrider.simulation.scenario import Habits, Scenario, scenario_of
from outrider.simulation.server_log import Record
from outrider.simulation.trace import Trace
from outrider.simulation.virtual_loop import Stage
from outrider.simulation.web import Found, Temper, split
from outrider.simulation.worker import Worker
from outrider.store.opening import open_store
from outrider.store.protocol import CrawlView, FullStore
from outrider.testing.faults import FaultyStore, seeded
from outrider.testing.lease_history import InvariantBroken, require

CRAWL: Final = "simulated"
BOUND: Final = 86_400.0  # virtual seconds from healing to `finished`

Opener: TypeAlias = Callable[[Clock], Awaitable[FullStore]]
Decide: TypeAlias = Callable[[Lease, Outcome, Policy, float], Verdict]


class Violation(msgspec.Struct, frozen=True):
    """A promise broken: which rule, how, and when in virtual seconds."""

    rule: str
    detail: str
    at: float


class SimulationResult(msgspec.Struct, frozen=True):
    """What one seed came to."""

    seed: int
    violation: Violation | None
    finished_in: float  # virtual seconds from healing to the end
    hosts: int
    requests: int  # that hosts saw
    acts: int  # of the operator
    faults: Mapping[str, int]
    view: CrawlView | None  # of the crawl at its end; None if it broke before
    trace: Sequence[str] = ()

    @property
    def command(self) -> str:
        """What repeats this seed exactly."""
        return f"outrider simulate --seed {self.seed}"

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Visits by how they ended."""
        return self.view.outcomes if self.view else {}


async def memory(clock: Clock) -> FullStore:
    """The store that seeds run against unless told otherwise."""
    return await open_store("memory://", clock)


def simulate(
    seed: int, *, opener: Opener = memory, decided: Decide = decide, trace: bool = False
) -> SimulationResult:
    """Play one seed; a violation is in the result, never raised."""
    return Run(scenario_of(seed), opener, decided, trace=trace).play()


class Run:
    """Everything the actors of one seed share."""

    def __init__(
        self, scenario: Scenario, opener: Opener, decided: Decide, *, trace: bool = False
    ) -> None:
        self.scenario = scenario
        self.crawl = CRAWL
        self.stage = Stage()
        self.dice = random.Random(scenario.seed + 1)
        self.record = Record()
        self.habits = scenario.habits
        self.is_seeded = False
        self.is_healed = False
        self.is_over = False
        self.decide = decided
        settings = scenario.settings
        self._admission = admission_for(
            settings, CRAWL, scorer_of(settings.scoring), self.dice.random
        )
        self.policy = policy_for(settings, self._admission)
        self._urls: dict[str, Url] = {}
        self._operator = Operator(self)
        self._opener = opener
        self._trace = trace
        self._view: CrawlView | None = None

    # ---- what actors ask

    def tasks(self, found: Iterable[Found], *, on: Lease) -> Iterator[Task]:
        """What a page links to, admitted by the real core."""
        depth = on.depth + 1
        links = [Link(self._url(url), type=kind, depth=depth) for url, kind in found]
        return (task for task in self._admission.admit(links, found_on=on) if type(task) is Task)

    def tasks_of(self, links: Sequence[Link]) -> Iterator[Task]:
        """Links of a person, admitted by the real core."""
        return (task for task in self._admission.admit(links) if type(task) is Task)

    def keys(self) -> list[str]:
        """The keys of the queues there are, in the order of their birth."""
        return list(self.umpire.ledger.book(CRAWL).lines)

    def heal(self) -> None:
        """Nothing goes wrong any more: neither on the line nor with the workers."""
        self.store.heal()
        self.habits = Habits(extend=1.0)

    async def audit(self) -> None:
        """All books against all views."""
        await self.umpire.check(CRAWL)

    def _url(self, text: str) -> Url:
        url = self._urls.get(text)
        if url is None:
            url = self._urls[text] = _parsed(text)
        return url

    # ---- the play

    def play(self) -> SimulationResult:
        """Raise the curtain; whatever breaks ends the play."""
        self.stage.enter(self._open())
        self.stage.play(until=0.0)
        violation: Violation | None = None
        try:
            self._act()
        except InvariantBroken as broken:
            violation = Violation(broken.rule, broken.detail, self.stage.elapsed())
        except Exception as error:  # noqa: BLE001 - a store that breaks down has broken a promise
            violation = Violation("breakdown", _place_of(error), self.stage.elapsed())
        finally:
            self.stage.close()
        return self._result(violation)

    async def _open(self) -> None:
        scenario, stage = self.scenario, self.stage
        rules = crawl_rules(scenario.settings)
        store = await self._opener(stage)
        self.umpire = Umpire(store, stage, random.Random(scenario.seed + 2), rules)
        self.umpire.trace = Trace(stage) if self._trace else None
        watched = cast("FullStore", self.umpire)  # a witness keeps what `configure` answers
        self.store = FaultyStore(watched, stage, seeded(scenario.faults, self.dice))
        await self.umpire.configure(CRAWL, rules)

    def _act(self) -> None:
        self.stage.enter(Seeder(self).live())
        self.stage.enter(self._operator.live())
        for number in range(self.scenario.workers):
            self.stage.enter(Worker(self, number + 1).live())
        in_time = self.stage.play(self.scenario.heal_at + BOUND)
        require(in_time and self.is_over, "liveness", f"not over {BOUND:.0f} s after healing")
        self.stage.enter(self._epilogue())
        self.stage.play(self.stage.elapsed())
        self.record.judge(self.umpire)

    async def _epilogue(self) -> None:
        """Every URL is accounted for: done, dead, dropped, or held where nobody answers."""
        await self.audit()
        self._view = view = await self.umpire.crawl(CRAWL)
        over = view.status in (CrawlStatus.FINISHED, CrawlStatus.CANCELLED)
        require(over, "liveness", f"the crawl is {view.status}")
        require(not view.leased, "I2", f"{view.leased} are leased at the end")
        require(
            view.pending == view.held, "I2", f"{view.pending - view.held} are pending at the end"
        )
        gone = self._gone_keys()
        page = await self.umpire.queues(CRAWL)
        for queue in page.items:
            excused = queue.state is not QueueState.RETIRED or queue.key in gone
            require(
                excused, "liveness", f"{queue.key} is left retired ({queue.reason}), and is alive"
            )

    def _gone_keys(self) -> set[str]:
        entries = self.umpire.ledger.book(CRAWL).entries.values()
        return {e.key for e in entries if self._temper(e.url) is Temper.GONE}

    def _temper(self, url: str) -> Temper:
        return self.scenario.web.host(split(url)[0]).temper

    def _result(self, violation: Violation | None) -> SimulationResult:
        trace = self.umpire.trace
        return SimulationResult(
            seed=self.scenario.seed,
            violation=violation,
            finished_in=max(0.0, self.stage.elapsed() - self.scenario.heal_at),
            hosts=len(self.scenario.web.hosts),
            requests=len(self.record.requests),
            acts=self._operator.acts,
            faults=dict(self.store.counts),
            view=self._view,
            trace=trace.lines if trace else (),
        )


def _parsed(text: str) -> Url:
    url = parse_url(text)
    if isinstance(url, Url):
        return url
    raise ValueError(f"the synthetic web made a bad URL: {url}")


def _place_of(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__}: {error}{where}"
