"""Settings of the scores: weights, bonuses, switches, and the setting of each term (F1, F3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from outrider.core.policy.code_field import CODE
from outrider.core.signals import Clustering

TYPE_WEIGHTS: Final[Mapping[str, float]] = {
    "article": 0.0,
    "hub-seed": 4.0,
    "history": 6.0,
    "nav": 10.0,
    "refresh": 25.0,
    "default": 12.0,
}
# What the scorer `type` knows besides: of a list of goods, the lists come first (003).
LISTING_WEIGHTS: Final[Mapping[str, float]] = {"search": 1.0, "pagination": 1.0, "product": 2.0}
BONUSES: Final[Mapping[str, float]] = {
    "adaptive-seed": 20.0,
    "gap-prediction": 15.0,
    "sitemap": 10.0,
    "hub-validated": 8.0,
    "link": 0.0,
}
DISCOVERY: Final[Mapping[str, str]] = {  # F3: origin → whose bonus it gets; others: "link"
    "intelligent-seed": "adaptive-seed",
    "adaptive-seed": "adaptive-seed",
    "hub-seed": "adaptive-seed",
    "sitemap": "sitemap",
    "validated-hub": "hub-validated",
    "link-discovery": "link",
}
TASK_TYPES: Final = frozenset({"page", "hub", "sitemap", *TYPE_WEIGHTS} - {"default"})
ORIGINS: Final = frozenset(  # those that Outrider gives or knows; links may bring others
    {"opportunistic", "robots", "feed", "redirect", "gap-prediction", *DISCOVERY}
)

_Weight = Annotated[float, Meta(ge=-1e12, le=1e12)]
_Bonus = Annotated[float, Meta(ge=0, le=1e12)]


class Scoring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of scoring."""

    scorer: Annotated[
        str | Any,
        Meta(
            extra=CODE,
            description="default | fifo | type | breadth-first | depth-first | opic | "
            "largest-sites-first | learning | module:name | an object with `score`",
        ),
    ] = "default"
    weights: Annotated[
        dict[str, _Weight],
        Meta(description="priority by task type; `default` for all other types; lower is sooner"),
    ] = {}
    bonuses: Annotated[
        dict[str, _Bonus],
        Meta(
            description="subtracted by how a link was discovered (its origin, or one of your own); "
            "`gap-prediction` is a cap"
        ),
    ] = {}
    base_weight: Annotated[
        float, Meta(ge=0, le=1e6, description="factor of type weight, depth and bias")
    ] = 1.0
    gap_driven: Annotated[
        bool, Meta(description="true: predicted URLs are visited sooner (`predict`)")
    ] = True
    gap_weight: Annotated[
        float, Meta(ge=0, le=1e6, description="factor of a prediction's bonus")
    ] = 1.0
    reuse: Annotated[
        bool, Meta(description="true: `knowledge_reuse` (0 to 1) in a link's meta is a bonus")
    ] = True
    reuse_weight: Annotated[
        float, Meta(ge=0, le=1e6, description="factor of `knowledge_reuse`")
    ] = 8.0
    clustering: Annotated[
        bool, Meta(description="true: pages that match a problem cluster are visited sooner")
    ] = True
    boost_factor: Annotated[
        float, Meta(ge=0, le=1e6, description="a cluster's boost: log2 of its problems times this")
    ] = 2.5
    boost_most: Annotated[float, Meta(ge=0, le=1e6, description="maximum boost of a cluster")] = (
        20.0
    )
    problem_window: Annotated[
        float, Meta(gt=0, le=604_800, description="seconds a reported problem counts")
    ] = 1800.0
    problem_samples: Annotated[
        int, Meta(ge=1, le=1000, description="reports of a cluster that are kept one by one")
    ] = 100
    problem_threshold: Annotated[
        int, Meta(ge=1, le=2**31, description="number of problems at which a cluster proposes URLs")
    ] = 5
    proposals: Annotated[
        bool, Meta(description="true: proposed URLs become tasks; false: predictions only")
    ] = False
    cost_aware: Annotated[
        bool,
        Meta(description="true: `estimated_cost_ms` in a link's meta moves its score by a tenth"),
    ] = False
    exploration: Annotated[
        float,
        Meta(
            ge=0, le=1, description="learning: share of links that are tried whatever was learned"
        ),
    ] = 0.07

    @property
    def problems(self) -> Clustering:
        """Return the settings of problem clusters."""
        return Clustering(self.problem_window, self.boost_factor, self.boost_most)


def weights_of(how: Scoring) -> Mapping[str, float]:
    """Return the weights of task types that the settings give, over the built-in ones."""
    known = LISTING_WEIGHTS if how.scorer == "type" else {}
    return {**TYPE_WEIGHTS, **known, **how.weights}


def bonus_of(origin: str, how: Scoring) -> str:
    """Return the name of the bonus of an origin (F3): its own if one was given."""
    if origin in how.bonuses and origin not in BONUSES:
        return origin
    return DISCOVERY.get(origin, "link")


def setting_of(term: str, kind: str, origin: str, how: Scoring) -> str | None:
    """Return the setting behind the weight of a term; None: it came with the link."""
    match term:
        case "type":
            return f"scoring.weights.{kind if kind in weights_of(how) else 'default'}"
        case "discovery":
            return f"scoring.bonuses.{bonus_of(origin, how)}"
        case _:
            return _SETTINGS.get(term)


_SETTINGS: Final[Mapping[str, str]] = {
    "base_weight": "scoring.base_weight",
    "gap": "scoring.gap_weight",
    "cluster": "scoring.boost_factor",
    "reuse": "scoring.reuse_weight",
    "cost": "scoring.cost_aware",
    "focus": "focus.on",
    "exploration": "scoring.exploration",
}
