"""The invariant checker: finds broken promises of a store from its calls, answers and views alone.

`InvariantChecker` observes calls and answers, live or replayed from logs of processes. A
`CheckedStore` wraps any store and feeds a checker. `check` compares the views of a store with each
other. All use the store protocol only, so they serve every store. Put a `FaultyStore` outside of
the `CheckedStore`, so that the checker sees what really happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import signature
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec

from outrider.clock import Clock
from outrider.core.policy.rules import CrawlRules, covers
from outrider.core.queue_action import QueueAction, Set, Snooze, Wake
from outrider.core.states import CrawlStatus
from outrider.core.task import Added, LeaseId, Task
from outrider.core.verdict import Finished, Verdict
from outrider.errors import StoreUnavailable
from outrider.store.forwarding import VERBS, ForwardingStore
from outrider.store.protocol import (
    ClaimRequest,
    ClaimResult,
    FullStore,
    Inspect,
    Notifies,
    Step,
    TaskFilter,
)
from outrider.testing.audit import PAGE, check, everything
from outrider.testing.lease_history import (
    MAX_SURELY_EXPIRED,
    Instants,
    InvariantBroken,
    LeaseHistory,
    require,
)
from outrider.testing.visit_history import SharesOrder, VisitHistory

__all__ = ["OBSERVED", "Call", "CheckedStore", "InvariantBroken", "InvariantChecker", "check"]

_ALL: Final = TaskFilter()
_IGNORED: Final = frozenset(["add_roots", "put_values", "heartbeat"])
# The verbs that may change tasks or queues: all but those above and those that only read.
OBSERVED: Final = frozenset(
    verb for verb in VERBS if verb not in _IGNORED and not hasattr(Inspect, verb)
)
_SIGNATURES: Final = {verb: signature(VERBS[verb]) for verb in OBSERVED}


Observer: TypeAlias = Callable[["Call", Any], Awaitable[None]]


class Call(msgspec.Struct, frozen=True):
    """One call of an observed verb."""

    verb: str
    arguments: Mapping[str, Any]  # by the names of the protocol
    number: int  # calls are numbered in the order they began
    at: Instants
    alone: bool  # no other call overlapped it


def bind(verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, defaults included."""
    bound = _SIGNATURES[verb].bind(None, *args, **kwargs)
    bound.apply_defaults()
    _, *named = bound.arguments.items()
    return dict(named)


class InvariantChecker:
    """Checks calls and answers of one store, and raises `InvariantBroken` at a contradiction.

    Tell it of every call with `begin`, then with `answered`, or `unanswered` if no answer came.
    With `rules` it also checks what can only be known of a crawl whose whole history is observed
    under these rules: see `VisitHistory`.
    """

    def __init__(
        self, rules: CrawlRules | None = None, *, shares_order: SharesOrder | None = None
    ) -> None:
        self.leases = LeaseHistory()
        self.visits = None if rules is None else VisitHistory(rules, shares_order)
        self._is_sharded = shares_order is not None  # M1: some promises hold within each shard
        self._loans = 0
        self._ended_runs: set[str] = set()
        # Of any other verb it is only known that it may have changed tasks.
        self._answers: dict[str, Callable[..., None]] = {
            "add": self._added,
            "claim": self._claimed,
            "extend": self._extended,
            "finish": self._finished,
            "release": self._released,
            "expire": self._expired,
            "configure": self._configured,
            "steer": self._steered,
            "set_status": self._status_set,
            "restore": self._restored,
            "forget": self._forgotten,
            "delete": self._deleted,
        }

    def begin(self, verb: str, arguments: Mapping[str, Any]) -> None:
        """Observe that a call is about to be made."""
        match verb:
            case "add":
                self.leases.begin_add(arguments["tasks"])
            case "finish":
                verdicts: Sequence[Verdict] = arguments["verdicts"]
                self.leases.begin_end(_lease_of(verdict) for verdict in verdicts)
                for verdict in verdicts:
                    self.leases.begin_add(verdict.tasks)
            case "release":
                self.leases.begin_end(arguments["leases"])
            case _:
                pass  # nothing can be concluded from it before its answer

    def answered(self, call: Call, answer: Any) -> None:
        """Observe the answer of a call."""
        observe = self._answers.get(call.verb, self._tasks_changed)
        observe(call, answer, **call.arguments)

    def unanswered(self, verb: str, arguments: Mapping[str, Any]) -> None:
        """Observe that a call got no answer: it may have been applied, so less is sure now."""
        for crawl in _crawls_of(verb, arguments):
            record = self.leases.crawl(crawl)
            record.is_complete, record.ties = False, "unknown"
            record.is_kept_open = record.stays_open = False
        self._doubt_tasks(arguments.get("tasks", ()))
        for verdict in arguments.get("verdicts", ()):
            self._doubt_lease(_lease_of(verdict))
            self._doubt_tasks(verdict.tasks)
        for lease in arguments["leases"] if verb == "release" else ():
            self._doubt_lease(lease)
        if isinstance(arguments.get("act"), Wake | Set):
            self._steer_queues(arguments["crawl"], arguments["target"], arguments["act"])
        if "which" in arguments:
            self._doubt(arguments["crawl"], arguments["which"])
        if verb == "forget":
            self._doubt_leases(arguments["crawl"], arguments["which"])
        if verb == "delete":
            self._doubt_leases(arguments["crawl"], _ALL)
            self.visits = None

    def not_applied(self, verb: str, arguments: Mapping[str, Any]) -> None:
        """Observe that a call was refused and changed nothing."""
        self.leases.end_add(arguments.get("tasks", ()))
        for verdict in arguments.get("verdicts", ()):
            self.leases.end_add(verdict.tasks)
            self.leases.end_refused(_lease_of(verdict))
        for lease in arguments["leases"] if verb == "release" else ():
            self.leases.end_refused(lease)

    def reopened(self, crawl: str, now: int) -> None:
        """Observe that a file is opened again after its holder died: its leases expire (H4)."""
        self.leases.reopened(crawl, now)

    def take_ended_run(self, crawl: str) -> bool:
        """Return whether a run of the crawl was seen to end since this was last asked."""
        has_ended = crawl in self._ended_runs
        self._ended_runs.discard(crawl)
        return has_ended

    # ---- Store

    def _added(self, call: Call, answers: Sequence[Added], tasks: Sequence[Task]) -> None:
        """Check that no known task is added twice (B3)."""
        require(len(answers) == len(tasks), "B4", f"{len(tasks)} asked, {len(answers)} answered")
        self.leases.end_add(tasks)
        pairs = zip(tasks, answers, strict=True)
        for crawl, group in groupby(pairs, key=lambda pair: pair[0].crawl):
            self._order_is_known(crawl, known=call.alone)
            self.leases.added(crawl, group, call.at, alone=call.alone)
        if self.visits is not None:
            self.visits.added(tasks, answers)

    def _order_is_known(self, crawl: str, *, known: bool) -> None:
        if not known:
            self.leases.crawl(crawl).ties = "unknown"

    def _claimed(self, call: Call, result: ClaimResult, request: ClaimRequest) -> None:
        """Check leases (H1, D1, D2, E1, C2), and that a run ends only when it may (I2)."""
        record, at = self.leases.crawl(request.crawl), call.at
        is_partial = self._is_sharded and len(result.leases) >= request.limit
        few = len(record.overdue(at.began)) <= MAX_SURELY_EXPIRED
        self.leases.expired(request.crawl, at.began, certain=call.alone and few and not is_partial)
        require(len(result.leases) <= request.limit, "C6", f"{len(result.leases)} leases")
        _check_queues(request, result)
        self._loans += 1
        named = bool(request.fingerprints)
        loan = self._loans if request.lend and not named else 0
        for lease in result.leases:
            chosen = not named or lease.fingerprint in request.fingerprints
            require(chosen, "D5", f"{lease.url} was claimed by fingerprint, and was not named")
            self.leases.leased(lease, at, alone=call.alone, named=named, loan=loan)
            if request.outlives_process:
                self.leases.outlives(lease.id)
        if result.status is not CrawlStatus.FINISHED:
            record.is_finished = False
            is_running = call.alone and result.status is CrawlStatus.RUNNING
            record.stays_open = record.stays_open or (record.is_kept_open and is_running)
        elif call.alone and not record.is_finished:
            self.leases.run_ended(request.crawl, at.ended)
            self._ended_runs.add(request.crawl)
        if self.visits is not None:
            self.visits.claimed(request, result, call.number, at.ended)

    def _extended(
        self, call: Call, kept: set[LeaseId], leases: Sequence[LeaseId], lease_for: float
    ) -> None:
        """Check that only valid leases are extended (H2)."""
        require(kept <= set(leases), "H2", "a lease was extended that was not asked for")
        for lease in kept:
            self.leases.extended(lease, lease_for, call.at.began)

    def _finished(self, call: Call, answers: Sequence[Finished], verdicts: list[Verdict]) -> None:
        """Check that a verdict is applied once (H3), and that its links are added (H6)."""
        for verdict, answer in zip(verdicts, answers, strict=True):
            self.leases.end_add(verdict.tasks)
            if answer.state is not None:  # H6: links first
                in_order = len(verdicts) == 1 or not self._is_sharded  # else by shard
                self._order_is_known(verdict.crawl, known=call.alone and in_order)
                pairs = zip(verdict.tasks, answer.answers, strict=True)
                self.leases.added(verdict.crawl, pairs, call.at, alone=call.alone)
            self.leases.finished(verdict, answer, call.at, alone=call.alone)
            if self.visits is not None and answer.state is not None:
                self.visits.added(verdict.tasks, answer.answers)
                self.visits.finished(verdict, call.number)

    def _released(self, call: Call, freed: set[LeaseId], leases: Sequence[LeaseId]) -> None:
        """Check that only valid leases are released (H5)."""
        require(freed <= set(leases), "H5", "a lease was released that was not asked for")
        for lease in freed:
            self.leases.released(lease, call.at)
            if self.visits is not None:
                self.visits.released(lease)
        for lease in set(leases) - freed:
            self.leases.not_released(lease)

    def _expired(self, call: Call, count: int, limit: int) -> None:
        """Check that only overdue leases expire (H4)."""
        records = self.leases.crawls.values()
        overdue = sum(len(record.overdue(call.at.ended)) for record in records)
        is_sure = call.alone and all(record.is_complete for record in records)
        holds = count <= min(limit, overdue) or not is_sure
        require(holds, "H4", f"{count} leases expired, and {overdue} were overdue")
        if count:
            for crawl in self.leases.crawls:
                self.leases.expired(crawl, call.at.began, certain=call.alone and count == overdue)

    # ---- Admin

    def _configured(
        self, call: Call, _changed: object, crawl: str, rules: CrawlRules, **options: object
    ) -> None:
        """Record the order of ties; after a change of it, ties may be in any order."""
        record = self.leases.crawl(crawl)
        if options["only"] != "any":  # the answer does not say whether it was applied
            record.is_kept_open, record.stays_open, record.ties = False, False, "unknown"
            return
        record.is_kept_open, record.stays_open = rules.stay_open and call.alone, False
        if record.arrivals and rules.tie != record.ties:
            record.ties = "unknown"
        elif record.ties != "unknown":
            record.ties = rules.tie

    def _steered(self, call: Call, step: Step, **arguments: Any) -> None:
        """Record what an operator's action changes of the expected spacing."""
        crawl, target, act = (arguments[name] for name in ("crawl", "target", "act"))
        is_whole = (arguments["after"], step.after) == (0, None)
        if is_whole or not isinstance(act, Snooze):
            self._steer_queues(crawl, target, act, call.at.began)
        if self.visits is not None:
            self.visits.steered(target, act, call.number, call.at.ended)

    def _steer_queues(self, crawl: str, target: str, act: QueueAction, now: int = 0) -> None:
        for key, queue in self.leases.crawl(crawl).queues.items():
            if covers(target, key):
                if isinstance(act, Set):
                    queue.rules = None
                if isinstance(act, Snooze):
                    queue.postpone(now + int(act.seconds * 1000))
                if isinstance(act, Wake):
                    queue.wake()

    def _status_set(self, _call: Call, answer: CrawlStatus, crawl: str, **_: object) -> None:
        """Record that a cancelled crawl's leases are void (I3)."""
        if answer is CrawlStatus.CANCELLED:
            self.leases.cancelled(crawl)

    def _tasks_changed(
        self,
        call: Call,
        answer: object,
        *,
        crawl: str,
        which: TaskFilter = _ALL,
        dry_run: bool = False,
        **_: object,
    ) -> None:
        """Record that tasks may have changed: the answer counts them, and does not name them."""
        count = answer.count if isinstance(answer, Step) else answer
        if count != 0 and not dry_run:
            self._doubt(crawl, which)
            if call.verb == "replay" and self.visits is not None:
                self.visits.replayed()

    def _forgotten(
        self, _call: Call, step: Step, crawl: str, which: TaskFilter, *, dry_run: bool, **_: object
    ) -> None:
        """Record that leases may have ended unpunished: the answer does not name the tasks."""
        if step.count and not dry_run:
            self._doubt(crawl, which)
            self._doubt_leases(crawl, which)
            if self.visits is not None:
                self.visits.forgotten()

    def _deleted(self, call: Call, step: Step, crawl: str, **_: object) -> None:
        """Record that a crawl is cancelled, or that nothing is left of it (I1)."""
        self.visits = None
        if step.after is None:
            self.leases.removed(crawl, alone=call.alone)
        else:
            self.leases.cancelled(crawl)

    def _restored(self, _call: Call, count: int, crawl: str, saved: object) -> None:
        """Record that restored tasks have a history that was not observed."""
        del saved
        record = self.leases.crawl(crawl)
        record.is_complete &= not count
        record.is_kept_open = record.stays_open = False
        record.ties = "unknown"

    # ---- doubt

    def _doubt(self, crawl: str, which: TaskFilter) -> None:
        """Stop relying on the state of tasks that may match a filter."""
        for task in self.leases.crawl(crawl).tasks.values():
            if which.key is None or covers(which.key, task.key):
                task.is_sure = False

    def _doubt_leases(self, crawl: str, which: TaskFilter) -> None:
        """Stop relying on leases whose tasks may match a filter: they may have ended."""
        record = self.leases.crawl(crawl)
        for lease in list(record.open.values()):
            if which.key is None or covers(which.key, lease.key):
                self.leases.doubt_lease(record, lease)

    def _doubt_tasks(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            record = self.leases.crawl(task.crawl)
            known = record.tasks.get(task.fingerprint)
            if known is not None:
                known.is_sure = False
                if task.known == "set" and known.lease is not None:
                    self.leases.doubt_lease(record, known.lease)

    def _doubt_lease(self, lease: LeaseId) -> None:
        """Stop relying on a lease whose end may have been applied, with a refund of its cost."""
        record = self.leases.crawl(lease.crawl)
        known = record.leases.get(lease)
        if known is not None and known.fate in ("closing", "unsure"):
            queue = record.queue(known.key)
            queue.charged -= known.cost
            queue.last_delay, known.cost = -1.0, 0
            record.numbers[lease.task].is_sure = False


def _check_queues(request: ClaimRequest, result: ClaimResult) -> None:
    """Check that a claim leased only from its keys, and from no more queues than asked for (C5)."""
    leased = {lease.key for lease in result.leases}
    others = leased.difference(request.keys, map(str.lower, request.keys))
    require(not (request.keys and others), "C5", f"a claim of {request.keys} leased of {others}")
    fits = not request.max_queues or len(leased) <= request.max_queues
    require(fits, "C5", f"a claim of {request.max_queues} queues leased of {leased}")


def _lease_of(verdict: Verdict) -> LeaseId:
    return LeaseId(verdict.crawl, verdict.task, verdict.token)


def _crawls_of(verb: str, arguments: Mapping[str, Any]) -> set[str]:
    """Return the crawls that a call may change."""
    match verb:
        case "add":
            return {task.crawl for task in arguments["tasks"]}
        case "finish":
            return {verdict.crawl for verdict in arguments["verdicts"]}
        case "release" | "extend":
            return {lease.crawl for lease in arguments["leases"]}
        case "claim":
            return {arguments["request"].crawl}
        case _:
            return {arguments["crawl"]} if "crawl" in arguments else set()


class CheckedStore(ForwardingStore):
    """Forwards every call to a store, and raises `InvariantBroken` at a wrong answer.

    `rules` are for the `InvariantChecker`; `observe` is called with every observed call after it.
    """

    def __init__(
        self,
        store: FullStore,
        clock: Clock,
        rules: CrawlRules | None = None,
        observe: Observer | None = None,
    ) -> None:
        self.store = store
        self.checker = InvariantChecker(rules, shares_order=getattr(store, "shares_order", None))
        self._clock = clock
        self._observe = observe
        self._calls = self._open = 0

    @property
    def id(self) -> str:
        """The id of the store inside."""
        return self.store.id

    @property
    def is_inline(self) -> bool:
        """Whether the store inside is."""
        return self.store.is_inline

    @property
    def notifies(self) -> Notifies:  # type: ignore[override] # as the store inside does
        """As the store inside."""
        return self.store.notifies

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the store inside."""
        return self.store.subscribe(crawl, notify)

    async def close(self) -> None:
        """Close the store inside."""
        await self.store.close()

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        send = getattr(self.store, verb)
        if verb not in OBSERVED:
            return await send(*args, **kwargs)
        arguments = bind(verb, args, kwargs)
        self.checker.begin(verb, arguments)
        self._calls += 1
        began, number, was_alone = self._clock.now_ms(), self._calls, self._open == 0
        self._open += 1
        try:
            answer = await send(*args, **kwargs)
        except (StoreUnavailable, asyncio.CancelledError):
            self.checker.unanswered(verb, arguments)
            raise
        finally:
            self._open -= 1
        alone = was_alone and self._calls == number
        at = Instants(began, self._clock.now_ms())
        call = Call(verb, arguments, self._calls, at, alone)
        self.checker.answered(call, answer)
        if verb == "claim":
            await self._check_ended_run(arguments["request"].crawl)
        if self._observe is not None:
            await self._observe(call, answer)
        return answer

    async def _check_ended_run(self, crawl: str) -> None:
        """Check that no unretired task is left when a run ends (I2)."""
        if self.checker.take_ended_run(crawl):
            view = await self.store.crawl(crawl)
            left = view.pending - view.held + view.leased
            require(left == 0, "I2", f"{crawl} finished with {left} unretired tasks left")

    async def check(self, crawl: str) -> None:
        """Check all views, that no added task is lost, and that every verdict counted once."""
        await check(self.store, crawl)
        await self._check_tasks(crawl)
        if self.checker.visits is not None:
            views = await everything(
                lambda after: self.store.queues(crawl, after=after, limit=PAGE)
            )
            events = await self.store.events_since(crawl, limit=10_000)
            self.checker.visits.check_end(views, events)

    async def _check_tasks(self, crawl: str) -> None:
        record, view = self.checker.leases.crawl(crawl), await self.store.crawl(crawl)
        if not record.is_complete:
            return
        known = len(record.tasks)
        require(known == view.known, "B3", f"{known} were added to {crawl}, known: {view.known}")
        for fingerprint, task in record.tasks.items():
            found = await self.store.task(crawl, fingerprint)
            require(found is not None, "B3", f"{task.url} was added and is lost")
        crashed = view.outcomes.get("crashed", 0)
        applied = view.visits - crashed
        require(applied == record.applied, "H3", f"{record.applied} applied, counted: {applied}")
        few = crashed <= record.crashes
        detail = f"{crashed} crashes were counted, and {record.crashes} can have been"
        require(few, "C7", detail)
