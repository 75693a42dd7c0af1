"""Signals: the index of gap predictions and problem clusters (F4, F5).

A task looks up its own fingerprint, key, host and text, so signals that do not concern it cost
nothing. The index has no clock: its owner passes the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import inf, log2
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

MAX_TEXT: Final = 512  # letters of a kind, scope or target
SEPARATOR: Final = r"[-/._?&=:%+,;@~!$'()*]"  # whatever parts words in a URL
_NONE: Final[Mapping[str, float]] = {}

State: TypeAlias = Literal["open", "validated", "failed"]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Finder: TypeAlias = Callable[..., "re.Match[str] | None"]  # of a text, and where to begin
Sample: TypeAlias = tuple[int, int]  # when, in milliseconds, and how many
_Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]


class Prediction(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A URL that is predicted to be worth a visit, and the result."""

    url: str
    confidence: Share
    lift: Share
    state: State = "open"
    by: str = ""  # the cluster that proposed it; "": a person or a program

    @property
    def score(self) -> float:
        """Return the bonus before it is capped and weighted (F4)."""
        return self.confidence * 10 + self.lift * 5


class Cluster(msgspec.Struct, frozen=True, omit_defaults=True):
    """Problems of one kind, scope and target within a sliding window."""

    kind: _Text
    scope: Annotated[str, Meta(max_length=MAX_TEXT)]
    target: _Text
    samples: tuple[Sample, ...] = ()  # oldest first

    @property
    def name(self) -> str:
        """Return the identity of the cluster."""
        return msgspec.json.encode([self.kind, self.scope, self.target]).decode()

    @property
    def count(self) -> int:
        """Return the number of problems."""
        return sum(many for _, many in self.samples)

    def since(self, oldest: int) -> Cluster:
        """Return the cluster without samples older than this."""
        if not self.samples or self.samples[0][0] >= oldest:
            return self
        left = tuple(sample for sample in self.samples if sample[0] >= oldest)
        return msgspec.structs.replace(self, samples=left)

    def with_one(self, at: int, most: int) -> Cluster:
        """Return the cluster with one problem more; over the limit, the two oldest are merged."""
        samples = (*self.samples, (at, 1))
        if len(samples) > most:
            (_, first), (later, second), *rest = samples
            samples = ((later, first + second), *rest)
        return msgspec.structs.replace(self, samples=samples)

    def boost(self, factor: float, most: float) -> float:
        """Return the boost (F5): logarithmic, so that a frequent problem does not outweigh all."""
        count = self.count
        return min(log2(count) * factor, most) if count else 0.0


class Clustering(msgspec.Struct, frozen=True):
    """Settings of problem clusters."""

    window: float = 1800.0
    factor: float = 2.5
    most: float = 20.0


class Signals:
    """Predictions by fingerprint, and the boosts of clusters by host and text."""

    def __init__(self, how: Clustering | None = None) -> None:
        self.gaps: dict[bytes, Prediction] = {}  # the open ones
        self.hosts: Mapping[str, float] = _NONE
        self.find: Finder | None = None  # whether any target that names no host may be in a text
        self.clusters: dict[str, Cluster] = {}
        self._how = how or Clustering()
        self._limited: Mapping[str, list[tuple[str, float]]] = {}  # host → scope's host and boost
        self._texts: list[tuple[Finder, float, str | None]] = []  # the highest boost first
        self._until: float = inf

    def set_prediction(self, fingerprint: bytes, prediction: Prediction | None) -> None:
        """Store the prediction of a URL; only open ones are indexed."""
        if prediction is None or prediction.state != "open":
            self.gaps.pop(fingerprint, None)
        else:
            self.gaps[fingerprint] = prediction

    def set_cluster(self, name: str, cluster: Cluster | None, now: int) -> None:
        """Store a cluster, or remove it."""
        if cluster is None:
            self.clusters.pop(name, None)
        else:
            self.clusters[name] = cluster
        self._index(now)

    def use(self, how: Clustering, now: int) -> None:
        """Use other settings: the boosts of the same problems change."""
        if how != self._how:
            self._how = how
            self._index(now)

    def expire(self, now: int) -> list[Cluster]:
        """Drop samples that left the window; return the clusters whose count changed."""
        if now < self._until:
            return []
        before = {name: one.count for name, one in self.clusters.items()}
        self._index(now)
        return [one for name, one in self.clusters.items() if one.count != before[name]]

    def boost_of(self, key: str, host: str, text: str) -> float:
        """Return the highest matching boost (F5); a scope that is a host limits it to that host."""
        boost = max(self.hosts.get(key, 0.0), self.hosts.get(host, 0.0))
        if self._limited:
            boost = max(boost, self._limited_boost(key, host), self._limited_boost(host, key))
        if self.find is None or self.find(text) is None:
            return boost
        for find, more, scope in self._texts:
            if more <= boost:
                break
            if (scope is None or scope in (key, host)) and find(text) is not None:
                return more
        return boost

    def _limited_boost(self, target: str, other: str) -> float:
        """Return the boost for this target host, within a scope that is either name."""
        limited = self._limited.get(target, ())
        return max((boost for scope, boost in limited if scope in (target, other)), default=0.0)

    def _index(self, now: int) -> None:
        """Rebuild every index: problems are rare, look-ups are many."""
        window = int(self._how.window * 1000)
        self.clusters = {name: one.since(now - window) for name, one in self.clusters.items()}
        oldest = [one.samples[0][0] for one in self.clusters.values() if one.samples]
        self._until = min(oldest) + window + 1 if oldest else inf
        boosts = [
            (one.target, host_of(one.scope), one.boost(self._how.factor, self._how.most))
            for one in self.clusters.values()
        ]
        alive = sorted((one for one in boosts if one[2] > 0), key=lambda one: one[2])
        hosts: dict[str, float] = {}
        limited: dict[str, list[tuple[str, float]]] = {}
        for target, scope, boost in alive:
            if host := host_of(target):
                if scope is None or scope == host:
                    hosts[host] = boost
                else:  # a look-up of the host must find that something concerns it
                    hosts.setdefault(host, 0.0)
                    limited.setdefault(host, []).append((scope, boost))
        self.hosts, self._limited = hosts, limited
        texts = [one for one in reversed(alive) if host_of(one[0]) is None]
        self._texts = [
            (re.compile(pattern_of(target)).search, boost, scope) for target, scope, boost in texts
        ]
        self.find = finder([target for target, *_ in texts]) if texts else None


def host_of(target: str) -> str | None:
    """Return the host that a target names, as a URL or alone; None: it names none."""
    if "://" not in target and ("/" in target or "." not in target):
        return None
    try:
        return urlsplit(target if "://" in target else f"//{target}").hostname
    except ValueError:
        return None


def pattern_of(target: str) -> str:
    """Return a regular expression that finds a target in a URL: a word only where a word begins."""
    return (SEPARATOR if target[0].isalnum() else "") + re.escape(target)


def finder(targets: Iterable[str]) -> Finder:
    """Return a quick search for any of the targets in a URL: at the beginning of a word.

    Common prefixes are compared once. A target that begins with a separator is found after any.
    """
    words = [target if target[0].isalnum() else target[1:] for target in targets]
    return re.compile(SEPARATOR + _pattern(_tree(words))).search


def _tree(words: Iterable[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for word in words:
        branch = tree
        for letter in word:
            branch = branch.setdefault(letter, {})
        branch[""] = {}
    return tree


def _pattern(tree: dict[str, Any]) -> str:
    if "" in tree:  # a word ends here, and longer ones say nothing more
        return ""
    parts = [_branch(letter, rest) for letter, rest in sorted(tree.items())]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


def _branch(text: str, rest: dict[str, Any]) -> str:
    while len(rest) == 1 and "" not in rest:
        ((letter, rest),) = rest.items()
        text += letter
    return re.escape(text) + _pattern(rest)
