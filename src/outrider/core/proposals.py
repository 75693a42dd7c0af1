"""Proposals: the URLs that a problem cluster suggests to visit, each with a confidence (F5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import SplitResult, urlsplit

from outrider.core.signals import Cluster, Prediction, host_of

MISSING_HUB: Final = "missing-hub"
UNKNOWN_PATTERN: Final = "unknown-pattern"
COVERAGE_GAP: Final = "coverage-gap"
FACTORS: Final = {MISSING_HUB: 0.8, UNKNOWN_PATTERN: 0.6, COVERAGE_GAP: 0.7}
MAX_PROPOSALS: Final = 50  # guesses a cluster may have
_MAX_CONFIDENCE: Final = 0.95
_MIN_CONFIDENCE: Final = 0.3


def propose(cluster: Cluster, threshold: int) -> list[Prediction]:
    """Return the URLs that a cluster proposes, from the threshold on."""
    if cluster.count < threshold or cluster.kind not in FACTORS:
        return []
    confidence = confidence_of(cluster)
    if confidence <= _MIN_CONFIDENCE:
        return []
    guesses = dict(_guesses(cluster))
    return [
        Prediction(url, confidence, lift, by=cluster.name)
        for url, lift in list(guesses.items())[:MAX_PROPOSALS]
    ]


def confidence_of(cluster: Cluster) -> float:
    """Return the confidence of a cluster: it grows with the first ten problems."""
    grown = 0.5 + 0.3 * min(cluster.count / 10, 1.0)
    return min(grown * FACTORS[cluster.kind], _MAX_CONFIDENCE)


def _guesses(cluster: Cluster) -> Iterator[tuple[str, float]]:
    target, root = _parse(cluster.target), _root(cluster)
    match cluster.kind:
        case "missing-hub" if root:
            for segment in _segments(target.path):
                yield f"{root}/{segment}/", 0.10
        case "unknown-pattern" if root:
            for path in _neighbours(target.path):
                yield root + path, 0.05
        case "coverage-gap" if root:
            area = "/".join(_segments(target.path))
            if area:
                yield f"{root}/{area}", 0.08
                yield f"{root}/{area}/latest", 0.06


def _root(cluster: Cluster) -> str | None:
    """Return scheme and host of the proposals: the target's, else the scope's."""
    target = _parse(cluster.target)
    if target.scheme in ("http", "https") and target.netloc:
        return f"{target.scheme}://{target.netloc}"
    scope = _parse(cluster.scope)
    if scope.scheme in ("http", "https") and scope.netloc:
        return f"{scope.scheme}://{scope.netloc}"
    host = host_of(cluster.target) or host_of(cluster.scope)
    return f"https://{host}" if host else None


def _neighbours(path: str) -> Iterator[str]:
    """Yield the page without its query, its parent folder, and the usual names of an index."""
    parent = path.rstrip("/").rpartition("/")[0] + "/"
    yield path or "/"
    yield parent
    yield f"{parent}index.html"
    yield f"{parent}index"


def _segments(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _parse(text: str) -> SplitResult:
    """Parse a path, a host or a URL; anything else has no parts."""
    is_host = "://" not in text and host_of(text) is not None
    try:
        return urlsplit(f"//{text}" if is_host else text)
    except ValueError:
        return urlsplit("")
