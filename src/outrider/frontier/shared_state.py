"""What the workers of a crawl share about it through shared values (C8, F4, F5, F10, O1).

Predictions, problem clusters, rewards by group, the progress of rescoring, and the samples of the
crawl's own progress. A worker applies its
own values exactly as those of others. A value that cannot be decoded counts as not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from outrider.core.progress import ProgressHistory, ProgressSample
from outrider.core.signals import Cluster, Prediction
from outrider.frontier.context import FrontierContext
from outrider.store.protocol import SharedValue, SharedValueWrite

PREDICTION: Final = "prediction"
CLUSTER: Final = "cluster"
RESCORE: Final = "rescore"
REWARD: Final = "reward"
PROGRESS: Final = "progress"
SKEW_INTERVAL: Final = 600_000  # milliseconds between two readings of the store's clock

_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Sum = Annotated[float, Meta(ge=-1e300, le=1e300)]
T = TypeVar("T")


class Rescoring(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress of scoring all pending tasks again; `digest` is that of the settings in force."""

    digest: str
    state: Literal["wanted", "running", "done"] = "done"
    by: str = ""
    after: _Count = 0
    looked: _Count = 0
    changed: _Count = 0
    pending: _Count = 0  # when it began
    epoch: _Count = 0  # how often a learning scorer asked for it

    @property
    def progress(self) -> float:
        """The share of the pending tasks that was looked at."""
        if self.state == "done":
            return 1.0
        return min(self.looked / self.pending, 1.0) if self.pending else 0.0


class GroupReward(msgspec.Struct, frozen=True):
    """Visits of a group of URLs and the sum of their rewards, over all workers."""

    visits: _Sum
    reward: _Sum


class SharedState:
    """The latest shared value of each prediction, cluster and group, and of rescoring."""

    def __init__(self, context: FrontierContext) -> None:
        self.signals = context.policies.signals
        self.clusters: dict[str, Cluster] = {}
        self.rewards: dict[str, GroupReward] = {}
        self.rescoring = Rescoring("")
        self.rescoring_at = 0  # when that was written, in milliseconds of the store's clock
        self.progress = ProgressHistory()
        self._numbers: dict[str, dict[str, int]] = {
            topic: {} for topic in (PREDICTION, CLUSTER, REWARD, RESCORE, PROGRESS)
        }  # of the last value, by topic and name
        self._last_numbers: dict[str, int] = {}  # of the last value of a topic
        self._context = context
        self._skew = 0  # milliseconds that the store's clock is ahead of this process's
        self._skew_at = -SKEW_INTERVAL

    def number(self, topic: str, name: str) -> int:
        """Return the number of the last value of this name; 0: there is none."""
        return self._numbers[topic].get(name, 0)

    def last_number(self, topic: str) -> int:
        """Return the number of the last value of this topic; 0: there is none."""
        return self._last_numbers.get(topic, 0)

    async def publish(self, writes: Sequence[SharedValueWrite]) -> list[int]:
        """Write values and apply those written; return their numbers, 0 where another was first."""
        numbers = await self._context.store.put_values(self._context.crawl, writes)
        at = self.store_ms() / 1000
        for write, number in zip(writes, numbers, strict=True):
            self.apply_value(SharedValue(number, at, write.topic, write.name, write.text))
        return numbers

    def apply_value(self, value: SharedValue) -> None:
        """Take over a value of any worker, unless a later one of its name was applied.

        Calls may overtake each other: a value written here may be later than one read. Topics of
        other parts of the frontier are ignored.
        """
        numbers = self._numbers.get(value.topic)
        if numbers is None or value.number <= numbers.get(value.name, 0):
            return
        numbers[value.name] = value.number
        self._last_numbers[value.topic] = max(value.number, self.last_number(value.topic))
        match value.topic:
            case "prediction":
                self._apply_prediction(value)
            case "cluster":
                self._apply_cluster(value)
            case "reward":
                reward = _decode(value.text, _reward) or GroupReward(0.0, 0.0)
                self.rewards[value.name] = reward
                self._context.policies.scorer.teach(value.name, reward.visits, reward.reward)
            case "rescore":
                self.rescoring = _decode(value.text, _rescoring) or Rescoring("")
                self.rescoring_at = round(value.at * 1000)
            case "progress":
                self.progress.put(value.name, sample_of_value(value))
            case _:
                raise AssertionError(value.topic)

    def _apply_prediction(self, value: SharedValue) -> None:
        try:
            fingerprint = bytes.fromhex(value.name)
        except ValueError:
            return
        self.signals.set_prediction(fingerprint, prediction_of(value))

    def _apply_cluster(self, value: SharedValue) -> None:
        cluster = _decode(value.text, _cluster)
        self.clusters.pop(value.name, None)
        if cluster is not None:
            self.clusters[value.name] = cluster
        self.signals.set_cluster(value.name, cluster, self.store_ms())

    def scoring_changed(self) -> None:
        """Bring a scorer made from changed settings up to date with what is shared."""
        policies = self._context.policies
        self.signals.use(policies.settings.scoring.problems, self._context.clock.now_ms())
        for group, learnt in self.rewards.items():
            policies.scorer.teach(group, learnt.visits, learnt.reward)

    async def store_now(self) -> int:
        """Return the time of the store's clock (H7), reading it again now and then."""
        store, now = self._context.store, self._context.clock.now_ms()
        if not store.is_inline and now - self._skew_at >= SKEW_INTERVAL:
            shown = (await store.heatmap(self._context.crawl)).updated_at
            self._skew, self._skew_at = round(shown * 1000) - now, now
        return self.store_ms()

    def store_ms(self) -> int:
        """Return the time of the store's clock, by its last reading."""
        return self._context.clock.now_ms() + self._skew


def prediction_of(value: SharedValue) -> Prediction | None:
    """Decode a prediction; None if it cannot be decoded."""
    return _decode(value.text, _prediction)


def sample_of_value(value: SharedValue) -> ProgressSample | None:
    """Decode a sample of the crawl's progress; None if it cannot be decoded."""
    return _decode(value.text, _sample)


def _decode(text: str, decode: Callable[[str], T]) -> T | None:
    try:
        return decode(text) if text else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def encode(value: msgspec.Struct) -> str:
    """Encode the text of a shared value."""
    return msgspec.json.encode(value).decode()


_prediction = msgspec.json.Decoder(Prediction).decode
_cluster = msgspec.json.Decoder(Cluster).decode
_reward = msgspec.json.Decoder(GroupReward).decode
_sample = msgspec.json.Decoder(ProgressSample).decode
_rescoring = msgspec.json.Decoder(Rescoring).decode
