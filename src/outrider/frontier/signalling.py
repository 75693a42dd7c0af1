"""Signals in: predictions and problems, durable and heard by every worker of the crawl (F4, F5)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from outrider.core.policy.weights import Scoring
from outrider.core.proposals import MISSING_HUB, propose
from outrider.core.signals import MAX_TEXT, Cluster, Prediction, State, host_of, pattern_of
from outrider.core.states import TaskState
from outrider.core.task import Lease, Link
from outrider.core.url import Url, fingerprint, parse_url
from outrider.core.verdict import Finished, Verdict
from outrider.errors import InvalidInput, StoreError
from outrider.frontier.heard import CLUSTER, PREDICTION, REWARD, Learnt, prediction_of, written
from outrider.frontier.pages import noted
from outrider.frontier.rescoring import Rescorer
from outrider.store.protocol import SharedValue, SharedValueWrite, TaskFilter

TRIES: Final = 50  # of a note that others write too
NOTES: Final = 500  # of one call
AT_ONCE: Final = 100  # tasks of a queue, or predictions, that are rescored before the answer
CLUSTERS_MOST: Final = 1000  # of a crawl: over it the one silent longest is forgotten
PROPOSED: Final = "gap-prediction"  # the origin of tasks that clusters propose
_FINE: Final = 400  # answers below it are pages


class Signalling(Rescorer):
    """What a crawl is told about itself."""

    async def predict(self, url: str, confidence: float, lift: float) -> bool:
        """Say that a URL is worth a visit; True if it waits already, and so moved."""
        return bool(await self.predict_many([(url, confidence, lift)]))

    async def predict_many(self, guesses: Iterable[tuple[str, float, float]]) -> int:
        """Say so of many; answers how many of them wait already, and moved.

        Of more than a hundred the priorities are found in the background.
        """
        found = [self._prediction(*guess) for guess in guesses]
        await self._note_predictions(found)
        marks = [mark for mark, _ in found]
        if len(marks) <= AT_ONCE:
            return await self._rescore_marks(marks)
        self._behind(self._rescore_marks_later(marks))
        return 0

    async def predictions(self, *, state: State | None = None) -> AsyncIterator[Prediction]:
        """What was predicted, and what came of it."""
        async for note in noted(self.store, self.crawl, PREDICTION):
            prediction = prediction_of(note)
            if prediction is not None and state in (None, prediction.state):
                yield prediction

    async def report_problem(self, kind: str, scope: str, target: str) -> Cluster:
        """Say that something is wrong somewhere; answers with the cluster it belongs to (F5).

        `target` is a host, a URL, a path or a word; pages it matches are visited sooner. A `scope`
        that is a host limits that to its pages.
        """
        empty = Cluster(
            _text("kind", kind), _text("scope", scope, least=0), _text("target", target)
        )
        cluster = await self._report(empty)
        await self._propose(cluster)
        await self._rescore_touched(cluster)
        self._teller.tell("problem", kind=kind, scope=scope, target=target, count=cluster.count)
        return cluster

    async def problems(self) -> list[Cluster]:
        """The clusters of now, the largest first."""
        await self.learn()
        self._heard.signals.expire(await self._store_now())
        alive = [one for one in self._heard.signals.clusters.values() if one.count]
        return sorted(alive, key=lambda one: -one.count)

    async def _open(self) -> None:
        await super()._open()
        if not self._is_attached:
            await self._want_rescoring()

    async def _leave_word(self) -> None:
        await self._share_rewards()

    # ---- what is heard

    def _hear(self, note: SharedValue) -> None:
        """A note of any worker, this one too."""
        is_news = self._heard.hear(note, self._store_ms())
        if is_news and note.topic == REWARD:
            learnt = self._heard.rewards[note.name]
            self._teach(note.name, learnt.visits, learnt.reward)

    def _slide(self) -> None:
        """F5: time passes; where problems were forgotten, what waits is rescored."""
        for cluster in self._heard.signals.expire(self._store_ms()):
            self._rescore_later(self._touched(cluster))

    # ---- predictions

    def _prediction(self, url: str, confidence: float, lift: float) -> tuple[bytes, Prediction]:
        parsed = parse_url(url, self._settings.url)
        if not isinstance(parsed, Url):
            raise InvalidInput(f"predict({str(url)[:200]!r}): {parsed.detail}")
        for name, value in (("confidence", confidence), ("lift", lift)):
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise InvalidInput(f"predict({name}={value!r}): a number from 0 to 1")
        prediction = Prediction(parsed.text, float(confidence), float(lift))
        return fingerprint(parsed.identity), prediction

    async def _note_predictions(self, found: Sequence[tuple[bytes, Prediction]]) -> None:
        for start in range(0, len(found), NOTES):
            chunk = found[start : start + NOTES]
            await self._tell(
                [SharedValueWrite(PREDICTION, mark.hex(), written(one)) for mark, one in chunk]
            )

    async def _judge_predictions(
        self, leases: Sequence[Lease], verdicts: Sequence[Verdict], finished: Sequence[Finished]
    ) -> None:
        """F4: validated or failed by the visit's outcome; one that comes again stays open."""
        gaps = self._heard.signals.gaps
        judged = [
            (lease.fingerprint, replace(gaps[lease.fingerprint], state=_came_of(verdict)))
            for lease, verdict, answer in zip(leases, verdicts, finished, strict=True)
            if lease.fingerprint in gaps
            and answer.state in (TaskState.DONE, TaskState.DEAD, TaskState.DROPPED)
        ]
        await self._note_predictions(judged)

    # ---- problems

    async def _report(self, empty: Cluster) -> Cluster:
        """Counted once, however many workers report at the same time."""
        how, name = self._settings.scoring, fingerprint(empty.name).hex()
        for _ in range(TRIES):
            now = await self._store_now()
            number = self._heard.numbers[CLUSTER].get(name, 0)
            cluster = _counted(self._heard.clusters.get(name, empty), now, how)
            (number,) = await self._tell(
                [SharedValueWrite(CLUSTER, name, written(cluster), number)]
            )
            if number:
                await self._forget_oldest()
                return cluster
            await self.learn()
        raise StoreError(f"report_problem({empty.target!r}): too many report it at one time")

    async def _forget_oldest(self) -> None:
        clusters = self._heard.clusters
        if len(clusters) > CLUSTERS_MOST:
            name = min(clusters, key=lambda one: clusters[one].samples[-1:])
            await self._tell(
                [SharedValueWrite(CLUSTER, name, "", self._heard.numbers[CLUSTER][name])]
            )

    async def _propose(self, cluster: Cluster) -> None:
        """From the threshold on: what the problems say is missing."""
        found = []
        for guess in propose(cluster, self._settings.scoring.problem_threshold):
            url = parse_url(guess.url, self._settings.url)
            mark = fingerprint(url.identity) if isinstance(url, Url) else b""
            old = self._heard.signals.gaps.get(mark)
            is_new = mark.hex() not in self._heard.numbers[PREDICTION]
            if mark and (is_new or (old is not None and old.by == guess.by and old != guess)):
                found.append((mark, guess))
        await self._note_predictions(found)
        if self._settings.scoring.proposals and found:
            kind = "hub" if cluster.kind == MISSING_HUB else "page"
            await self.add([Link(one.url, type=kind, origin=PROPOSED) for _, one in found])
        await self._rescore_marks([mark for mark, _ in found])

    async def _rescore_touched(self, cluster: Cluster) -> None:
        """C8: the first of its host's queue at once, all others in the background."""
        if not self._settings.scoring.clustering or self.lacks:
            return
        touched = self._touched(cluster)
        if touched.key is not None:
            first = await self.store.upcoming(self.crawl, touched.key, limit=AT_ONCE)
            await self._rescore_marks([one.fingerprint for one in first])
        self._rescore_later(touched)

    def _touched(self, cluster: Cluster) -> TaskFilter:
        """The tasks a cluster may boost; by key only where hosts are the keys."""
        host = host_of(cluster.target)
        if host is None:
            return TaskFilter(pattern=pattern_of(cluster.target))
        is_key = self._settings.queue.key == "host"
        return TaskFilter(key=host) if is_key else TaskFilter(pattern=f"://{re.escape(host)}[:/]")

    # ---- rewards

    async def keep(self) -> None:
        """Behind what runs: rewards are shared, and what is to be rescored is gone on with.

        For whoever keeps a crawl, every second or so.
        """
        self._behind(self._share_rewards())
        self._behind(self._keep_rescored())

    async def _share_rewards(self) -> None:
        """F10: what a learner learnt since, added to what all know; what is not told is kept."""
        heard, told = self._heard, getattr(self._scorer.inner, "told", None)
        if told is None or heard.is_sharing:
            return
        heard.is_sharing = True
        try:
            await self._share_all(told())
        finally:
            heard.is_sharing = False
        if getattr(self._scorer.inner, "is_stale", False):
            await self._want_rescoring(again=True)

    async def _share_all(self, more: Mapping[str, tuple[float, float]]) -> None:
        untold = self._heard.untold
        for group, (visits, reward) in more.items():
            before = untold.get(group, (0.0, 0.0))
            untold[group] = (before[0] + visits, before[1] + reward)
        for _ in range(TRIES):
            if not untold:
                return
            if not await self._share(dict(islice(untold.items(), NOTES))):
                await self.learn()

    async def _share(self, learnt: Mapping[str, tuple[float, float]]) -> bool:
        """Whether nobody else wrote meanwhile; what was written is told."""
        notes = []
        for group, (visits, reward) in learnt.items():
            old = self._heard.rewards.get(group, Learnt(0.0, 0.0))
            total = Learnt(old.visits + visits, old.reward + reward)
            number = self._heard.numbers[REWARD].get(group, 0)
            notes.append(SharedValueWrite(REWARD, group, written(total), number))
        numbers = await self._tell(notes)
        for note, number in zip(notes, numbers, strict=True):
            if number:
                del self._heard.untold[note.name]
        return all(numbers)


def _counted(cluster: Cluster, now: int, how: Scoring) -> Cluster:
    recent = cluster.since(now - int(how.problem_window * 1000))
    return recent.with_one(now, how.problem_samples)


def _came_of(verdict: Verdict) -> State:
    is_page = verdict.state is TaskState.DONE and (
        verdict.answer is None or verdict.answer.status < _FINE
    )
    return "validated" if is_page else "failed"


def _text(name: str, value: object, *, least: int = 1) -> str:
    if isinstance(value, str) and least <= len(value) <= MAX_TEXT and value.isprintable():
        return value
    raise InvalidInput(
        f"report_problem({name}={value!r:.80}): printable text, {least} to {MAX_TEXT} long"
    )
