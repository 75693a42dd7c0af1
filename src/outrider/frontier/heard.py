"""What workers of a crawl told each other about it, as this one heard it (C8, F4, F5, F10).

Notes are anybody's: one that cannot be read is taken as not written, and never believed by half.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from outrider.core.signals import Cluster, Prediction, Signals
from outrider.settings import Settings
from outrider.store.protocol import SharedValue, TaskFilter

PREDICTION: Final = "prediction"
CLUSTER: Final = "cluster"
RESCORE: Final = "rescore"
REWARD: Final = "reward"

_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Sum = Annotated[float, Meta(ge=-1e300, le=1e300)]
T = TypeVar("T")


class Rescoring(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far it is with thinking again of all that waits; `digest` says under which settings."""

    digest: str
    state: Literal["wanted", "running", "done"] = "done"
    by: str = ""
    after: _Count = 0
    looked: _Count = 0
    changed: _Count = 0
    pending: _Count = 0  # when it began
    epoch: _Count = 0  # how often a learner asked for it

    @property
    def progress(self) -> float:
        """The share of what waited that was looked at."""
        if self.state == "done":
            return 1.0
        return min(self.looked / self.pending, 1.0) if self.pending else 0.0


class Learnt(msgspec.Struct, frozen=True):
    """What visits of a group of URLs were worth, all workers together."""

    visits: _Sum
    reward: _Sum


class Heard:
    """The last word on each prediction, cluster, group, and on rescoring."""

    def __init__(self) -> None:
        self.signals = Signals()
        self.clusters: dict[str, Cluster] = {}
        self.rewards: dict[str, Learnt] = {}
        self.rescoring = Rescoring("")
        self.rescoring_at = 0  # the store's milliseconds when that was said
        self.numbers: dict[str, dict[str, int]] = {
            topic: {} for topic in (PREDICTION, CLUSTER, REWARD, RESCORE)
        }  # of the last note of every name
        self.digest: tuple[Settings | None, str] = (None, "")  # of settings, as scoring has them
        self.unshared = 0  # rewards since they were last shared
        self.untold: dict[str, tuple[float, float]] = {}  # what could not be shared yet
        self.is_sharing = False
        self.later: dict[TaskFilter, None] = {}  # what is to be rescored in the background
        self.is_rescoring = False

    def hear(self, note: SharedValue, now: int) -> bool:
        """Take a note in, if it is news; other topics are others' business.

        Answers overtake each other: what was written here may be newer than what is read.
        """
        known = self.numbers.get(note.topic)
        if known is None or note.number <= known.get(note.name, 0):
            return False
        known[note.name] = note.number
        match note.topic:
            case "prediction":
                self._hear_prediction(note)
            case "cluster":
                self._hear_cluster(note, now)
            case "reward":
                self.rewards[note.name] = _read(note.text, _learnt) or Learnt(0.0, 0.0)
            case "rescore":
                self.rescoring = _read(note.text, _rescoring) or Rescoring("")
                self.rescoring_at = round(note.at * 1000)
            case _:
                raise AssertionError(note.topic)
        return True

    def _hear_prediction(self, note: SharedValue) -> None:
        try:
            mark = bytes.fromhex(note.name)
        except ValueError:
            return
        self.signals.set_prediction(mark, prediction_of(note))

    def _hear_cluster(self, note: SharedValue, now: int) -> None:
        cluster = _read(note.text, _cluster)
        self.clusters.pop(note.name, None)
        if cluster is not None:
            self.clusters[note.name] = cluster
        self.signals.set_cluster(note.name, cluster, now)


def prediction_of(note: SharedValue) -> Prediction | None:
    """What a note predicts, if that can be read."""
    return _read(note.text, _prediction)


def _read(text: str, decode: Callable[[str], T]) -> T | None:
    try:
        return decode(text) if text else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def written(value: msgspec.Struct) -> str:
    """A value as a note says it."""
    return msgspec.json.encode(value).decode()


_prediction = msgspec.json.Decoder(Prediction).decode
_cluster = msgspec.json.Decoder(Cluster).decode
_learnt = msgspec.json.Decoder(Learnt).decode
_rescoring = msgspec.json.Decoder(Rescoring).decode
