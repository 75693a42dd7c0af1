"""Signals from outside and from visits, shared by all workers: predictions, problems, rewards.

Predictions and problems are durable (F4, F5); rewards teach a learning scorer (F10).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from outrider.core.outcome import Done, Outcome
from outrider.core.policy.weights import Scoring
from outrider.core.proposals import MISSING_HUB, propose
from outrider.core.signals import MAX_TEXT, Cluster, Prediction, State
from outrider.core.states import TaskState
from outrider.core.task import Lease, Link
from outrider.core.url import Url, fingerprint, parse_url
from outrider.core.verdict import Finished, Verdict
from outrider.errors import InvalidInput, StoreError
from outrider.frontier.add import Adder
from outrider.frontier.context import FrontierContext
from outrider.frontier.live_settings import LiveSettings
from outrider.frontier.rescore import Rescorer
from outrider.frontier.shared_state import (
    CLUSTER,
    PREDICTION,
    REWARD,
    GroupReward,
    SharedState,
    encode,
    prediction_of,
)
from outrider.frontier.store_calls import NO_CRAWL, exists, values_of
from outrider.store.protocol import SharedValueWrite

MAX_ATTEMPTS: Final = 50  # to write a value that other workers write too
MAX_WRITES: Final = 500  # values per call of the store
MAX_AT_ONCE: Final = 100  # tasks of a queue, or predictions, that are rescored before the return
MAX_CLUSTERS: Final = 1000  # of a crawl: over it the one silent longest is removed
PROPOSED: Final = "gap-prediction"  # the origin of tasks that clusters propose
SHARE_AFTER: Final = 50  # rewards; an executor also shares them every second
_ERROR_STATUS: Final = 400  # responses below it are pages


class Predictions:
    """URLs that were predicted to be worth a visit, and what came of them (F4)."""

    def __init__(self, context: FrontierContext, shared: SharedState, rescorer: Rescorer) -> None:
        self._context = context
        self._shared = shared
        self._rescorer = rescorer

    async def predict_many(self, guesses: Iterable[tuple[str, float, float]]) -> int:
        """See `Frontier.predict_many`."""
        found = [self._prediction(*guess) for guess in guesses]
        await self.publish(found)
        marks = [mark for mark, _ in found]
        if len(marks) <= MAX_AT_ONCE:
            return await self._rescorer.rescore_tasks(marks)
        self._rescorer.rescore_tasks_later(marks)
        return 0

    async def iterate(self, *, state: State | None) -> AsyncIterator[Prediction]:
        """See `Frontier.predictions`."""
        async for value in values_of(self._context.store, self._context.crawl, PREDICTION):
            prediction = prediction_of(value)
            if prediction is not None and state in (None, prediction.state):
                yield prediction

    def _prediction(self, url: str, confidence: float, lift: float) -> tuple[bytes, Prediction]:
        parsed = parse_url(url, self._context.policies.settings.url)
        if not isinstance(parsed, Url):
            raise InvalidInput(f"predict({str(url)[:200]!r}): {parsed.detail}")
        for name, value in (("confidence", confidence), ("lift", lift)):
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise InvalidInput(f"predict({name}={value!r}): a number from 0 to 1")
        prediction = Prediction(parsed.text, float(confidence), float(lift))
        return fingerprint(parsed.identity), prediction

    async def publish(self, found: Sequence[tuple[bytes, Prediction]]) -> None:
        """Write predictions, by the fingerprints of their URLs."""
        for start in range(0, len(found), MAX_WRITES):
            chunk = found[start : start + MAX_WRITES]
            await self._shared.publish(
                [SharedValueWrite(PREDICTION, mark.hex(), encode(one)) for mark, one in chunk]
            )

    @property
    def has_open(self) -> bool:
        """Whether there are predictions whose URL was not visited yet."""
        return bool(self._shared.signals.gaps)

    async def settle(
        self, leases: Sequence[Lease], verdicts: Sequence[Verdict], finished: Sequence[Finished]
    ) -> None:
        """Mark predictions as validated or failed by a visit that was the last of its task."""
        gaps = self._shared.signals.gaps
        settled = [
            (lease.fingerprint, replace(gaps[lease.fingerprint], state=_result_of(verdict)))
            for lease, verdict, answer in zip(leases, verdicts, finished, strict=True)
            if lease.fingerprint in gaps
            and answer.state in (TaskState.DONE, TaskState.DEAD, TaskState.DROPPED)
        ]
        await self.publish(settled)


class Problems:
    """Problems reported from outside, counted in clusters; a cluster boosts what it names (F5)."""

    def __init__(
        self,
        context: FrontierContext,
        shared: SharedState,
        settings: LiveSettings,
        rescorer: Rescorer,
        predictions: Predictions,
        adder: Adder,
    ) -> None:
        self._context = context
        self._shared = shared
        self._settings = settings
        self._rescorer = rescorer
        self._predictions = predictions
        self._adder = adder

    async def report(self, kind: str, scope: str, target: str) -> Cluster:
        """See `Frontier.report_problem`."""
        empty = Cluster(
            _check_text("kind", kind),
            _check_text("scope", scope, shortest=0),
            _check_text("target", target),
        )
        cluster = await self._count(empty)
        await self._propose(cluster)
        await self._rescore(cluster)
        self._context.reporter.emit(
            "problem", kind=kind, scope=scope, target=target, count=cluster.count
        )
        return cluster

    async def current(self) -> list[Cluster]:
        """See `Frontier.problems`."""
        await self._settings.learn()
        self._shared.signals.expire(await self._shared.store_now())
        current = [one for one in self._shared.signals.clusters.values() if one.count]
        return sorted(current, key=lambda one: -one.count)

    async def _count(self, empty: Cluster) -> Cluster:
        """Count one problem more, once, however many workers report at the same time."""
        how, name = self._context.policies.settings.scoring, fingerprint(empty.name).hex()
        shared = self._shared
        for _ in range(MAX_ATTEMPTS):
            now = await shared.store_now()
            seen = shared.number(CLUSTER, name)
            cluster = _with_one_more(shared.clusters.get(name, empty), now, how)
            write = SharedValueWrite(CLUSTER, name, encode(cluster), seen)
            if (await shared.publish([write]))[0]:
                await self._remove_oldest()
                return cluster
            if not await exists(self._context.store, self._context.crawl):
                raise InvalidInput(NO_CRAWL.format(self._context.crawl))
            await self._settings.learn()
        raise StoreError(
            f"report_problem({empty.target!r}): too many workers report it at the same time; retry"
        )

    async def _remove_oldest(self) -> None:
        clusters = self._shared.clusters
        if len(clusters) > MAX_CLUSTERS:
            name = min(clusters, key=lambda one: clusters[one].samples[-1:])
            seen = self._shared.number(CLUSTER, name)
            await self._shared.publish([SharedValueWrite(CLUSTER, name, "", seen)])

    async def _propose(self, cluster: Cluster) -> None:
        """From the threshold on, predict the pages that the problems say are missing."""
        settings = self._context.policies.settings
        found = []
        for guess in propose(cluster, settings.scoring.problem_threshold):
            url = parse_url(guess.url, settings.url)
            mark = fingerprint(url.identity) if isinstance(url, Url) else b""
            old = self._shared.signals.gaps.get(mark)
            is_new = not self._shared.number(PREDICTION, mark.hex())
            if mark and (is_new or (old is not None and old.by == guess.by and old != guess)):
                found.append((mark, guess))
        await self._predictions.publish(found)
        if settings.scoring.proposals and found:
            kind = "hub" if cluster.kind == MISSING_HUB else "page"
            await self._adder.add([Link(one.url, type=kind, origin=PROPOSED) for _, one in found])
        await self._rescorer.rescore_tasks([mark for mark, _ in found])

    async def _rescore(self, cluster: Cluster) -> None:
        """Rescore the first tasks of the host's queue now, all others in the background (C8)."""
        if not self._context.policies.settings.scoring.clustering or self._settings.lacks:
            return
        affected = self._rescorer.affected_by(cluster)
        if affected.key is not None:
            first = await self._context.store.upcoming(
                self._context.crawl, affected.key, limit=MAX_AT_ONCE
            )
            await self._rescorer.rescore_tasks([one.fingerprint for one in first])
        self._rescorer.rescore_later(affected)


class Rewards:
    """Rewards of visits, learnt by a learning scorer and shared with the other workers (F10)."""

    def __init__(
        self,
        context: FrontierContext,
        shared: SharedState,
        settings: LiveSettings,
        rescorer: Rescorer,
    ) -> None:
        self._context = context
        self._shared = shared
        self._settings = settings
        self._rescorer = rescorer
        self._count = 0  # rewards since they were last shared
        self._unwritten: dict[str, tuple[float, float]] = {}  # visits and reward, by group
        self._is_sharing = False

    def learn(self, leases: list[Lease], outcomes: list[Outcome], finished: list[Finished]) -> None:
        """Give a learning scorer the rewards of visits; share them when there are many."""
        reward = self._context.policies.scorer.reward
        if reward is None:
            return
        for lease, outcome, answer in zip(leases, outcomes, finished, strict=True):
            if (
                answer.state is not None
                and isinstance(outcome, Done)
                and outcome.reward is not None
            ):
                reward(lease, outcome.reward)
                self._count += 1
        if self._count >= SHARE_AFTER:
            self._count = 0
            self._context.background.run(self.share())

    async def share(self) -> None:
        """Add what was learnt since to what all workers know; what is not written is kept."""
        scorer = self._context.policies.scorer
        if self._is_sharing:
            return
        learnt = scorer.take_learnt()
        if learnt is None:
            return
        self._is_sharing = True
        try:
            await self._share_all(learnt)
        finally:
            self._is_sharing = False
        if self._context.policies.scorer.is_stale:
            await self._rescorer.request(again=True)

    async def _share_all(self, learnt: Mapping[str, tuple[float, float]]) -> None:
        unwritten = self._unwritten
        for group, (visits, reward) in learnt.items():
            before = unwritten.get(group, (0.0, 0.0))
            unwritten[group] = (before[0] + visits, before[1] + reward)
        for _ in range(MAX_ATTEMPTS):
            if not unwritten:
                return
            if not await self._write(dict(islice(unwritten.items(), MAX_WRITES))):
                await self._settings.learn()

    async def _write(self, learnt: Mapping[str, tuple[float, float]]) -> bool:
        """Return whether all was written, that is, no other worker wrote in between."""
        writes = []
        for group, (visits, reward) in learnt.items():
            old = self._shared.rewards.get(group, GroupReward(0.0, 0.0))
            total = GroupReward(old.visits + visits, old.reward + reward)
            seen = self._shared.number(REWARD, group)
            writes.append(SharedValueWrite(REWARD, group, encode(total), seen))
        numbers = await self._shared.publish(writes)
        for write, number in zip(writes, numbers, strict=True):
            if number:
                del self._unwritten[write.name]
        return all(numbers)


def _with_one_more(cluster: Cluster, now: int, how: Scoring) -> Cluster:
    recent = cluster.since(now - int(how.problem_window * 1000))
    return recent.with_one(now, how.problem_samples)


def _result_of(verdict: Verdict) -> State:
    is_page = verdict.state is TaskState.DONE and (
        verdict.answer is None or verdict.answer.status < _ERROR_STATUS
    )
    return "validated" if is_page else "failed"


def _check_text(name: str, value: object, *, shortest: int = 1) -> str:
    if isinstance(value, str) and shortest <= len(value) <= MAX_TEXT and value.isprintable():
        return value
    raise InvalidInput(
        f"report_problem({name}={value!r:.80}): printable text, {shortest} to {MAX_TEXT} long"
    )
