"""Rules of a crawl and of its queues: settings layered by key (A4, E5).

Runtime by key > runtime by longest suffix > exact key > longest suffix > crawl; field by field.
Two layers are set at run time: `said` by settings, `runtime` by queue actions. For one key or
suffix an action wins; a setting that is to win takes the action's field back.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from outrider.core.policy.code_field import CODE
from outrider.core.policy.politeness import Politeness
from outrider.core.policy.queue_key import suffixes

_Count = Annotated[int, Meta(ge=0, le=2**53)]


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the budget of one queue."""

    hold_queues: Annotated[
        bool, Meta(description="true: new queues start inactive (site-first)")
    ] = False
    balance: Annotated[
        int, Meta(ge=0, le=2**53, description="cost a session may spend; 0 retires the queue")
    ] = 3000
    total_budget: Annotated[
        int, Meta(ge=-1, le=2**53, description="cost a queue may ever spend; -1: no limit")
    ] = -1
    cost: Annotated[
        str | Any,
        Meta(
            extra=CODE,
            description="zero | unit | wag | anti-calendar | module:function | a function",
        ),
    ] = "unit"
    error_penalty: Annotated[
        int, Meta(ge=0, le=65_535, description="extra cost of a failed or blocked visit")
    ] = 0
    max_done: Annotated[
        _Count, Meta(description="visits done before the queue retires; 0: no limit")
    ] = 0
    max_bytes: Annotated[
        _Count, Meta(description="bytes fetched before the queue retires; 0: no limit")
    ] = 0


class QueueRules(msgspec.Struct, frozen=True):
    """The rules of one queue."""

    politeness: Politeness = Politeness()
    budget: Budget = Budget()
    precedence: int = 0
    paused: bool = False
    retired: bool = False


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a whole crawl pauses by itself (I4)."""

    tasks: Annotated[_Count, Meta(description="known tasks; 0: no limit")] = 0
    done: Annotated[_Count, Meta(description="visits done; 0: no limit")] = 0
    bytes: Annotated[_Count, Meta(description="bytes fetched; 0: no limit")] = 0
    seconds: Annotated[
        float, Meta(ge=0, le=1e10, description="seconds since the first task; 0: no limit")
    ] = 0.0


Override: TypeAlias = Mapping[str, Any]  # field → value; a missing field follows the next layer

POLITENESS_FIELDS: Final = frozenset(Politeness.__struct_fields__)
BUDGET_FIELDS: Final = frozenset(Budget.__struct_fields__)
ACTION_FIELDS: Final = frozenset(
    {"paused", "retired"}
)  # set by queue actions, not by settings alone
QUEUE_FIELDS: Final = ACTION_FIELDS | {"precedence"}


class CrawlRules(msgspec.Struct, frozen=True):
    """The rules that a store applies to one crawl: numbers, and layers by key."""

    queue: QueueRules = QueueRules()
    keys: Mapping[str, Override] = {}
    runtime: Mapping[
        str, Override
    ] = {}  # set by queue actions; the store keeps them through every `configure`
    order: Literal["priority", "round-robin"] = "priority"
    tie: Literal["fifo", "lifo", "shuffle"] = "fifo"
    breadth_discount: float = 0.0
    max_pending: int = 0
    max_pending_per_queue: int = 0
    burst: int = 5
    max_retries: int = 3
    max_crashes: int = 3
    pause_at_finish: bool = False
    limits: Limits = Limits()
    opens_below: float | None = None  # a due task of a lower priority opens its queue's session
    said: Mapping[str, Override] = {}  # set by runtime settings
    stay_open: bool = False  # no claim ends the run

    def of(self, key: str) -> QueueRules:
        """Return the rules of a key (A4); settings have keys in lower case, as hosts are."""
        rules = self.queue
        if self.are_alike:
            return rules
        key = key.lower()
        if self.keys:
            rules = _apply_layers(rules, key, self.keys)
        if self.said or self.runtime:
            rules = _apply_layers(rules, key, self.said, self.runtime)
        return rules

    @property
    def may_draw_at_start(self) -> bool:
        """Whether some queue's leases may draw their delays (D1): uniform, and from the start.

        True if one layer has each half: a queue may get them from different layers.
        """
        layers = [
            change for layer in (self.keys, self.said, self.runtime) for change in layer.values()
        ]
        politeness = self.queue.politeness
        from_start = [politeness.count_from, *(change.get("count_from") for change in layers)]
        longest = [politeness.delay_to, *(change.get("delay_to") or -1.0 for change in layers)]
        return "start" in from_start and max(longest) > 0

    @property
    def are_alike(self) -> bool:
        """Whether all keys have the same rules."""
        return not (self.keys or self.said or self.runtime)

    def with_override(self, target: str, changes: Override) -> CrawlRules:
        """Return these rules with a runtime change for a key or suffix; None removes a field.

        A pause or retirement also replaces those of narrower keys.
        """
        target = target.lower()
        merged = {**self.runtime.get(target, {}), **changes}
        kept = {name: value for name, value in merged.items() if value is not None}
        ended = changes.keys() & ACTION_FIELDS
        others = {
            name: _without(entry, ended) if ended and _is_narrower(name, target) else entry
            for name, entry in self.runtime.items()
        }
        runtime = {**others, target: kept}
        return msgspec.structs.replace(
            self, runtime={name: entry for name, entry in runtime.items() if entry}
        )


def covers(target: str, key: str) -> bool:
    """Tell whether a target reaches a key: the key itself, a suffix of it, or everything."""
    if not target.startswith("."):
        return target in ("", key)
    return target.lower() in suffixes(key.lower())


def _is_narrower(name: str, target: str) -> bool:
    """Tell whether a target reaches every key that a name of a layer matches."""
    if name.startswith(".") and name.endswith(":"):  # a host under SURT, whatever its port
        return name == target or covers(target, name[1:-1])
    return covers(target, name)


def _without(entry: Override, names: AbstractSet[str]) -> Override:
    return {name: value for name, value in entry.items() if name not in names}


def use_actions(rules: QueueRules, now: QueueRules) -> QueueRules:
    """Return a queue's rules with the fields of queue actions updated: those apply at once."""
    if (rules.paused, rules.retired) == (now.paused, now.retired):
        return rules  # millions of queues share them
    return msgspec.structs.replace(rules, paused=now.paused, retired=now.retired)


def _apply_layers(rules: QueueRules, key: str, *layers: Mapping[str, Override]) -> QueueRules:
    """Apply layers of one rank: the nearer name wins; for one name, the later layer."""
    for name in (*reversed(tuple(suffixes(key))), key):
        for layer in layers:
            if name in layer:
                rules = override_rules(rules, layer[name])
    return rules


def override_rules(rules: QueueRules, changes: Override) -> QueueRules:
    """Return the rules with some fields replaced."""
    politeness = {name: changes[name] for name in changes.keys() & POLITENESS_FIELDS}
    budget = {name: changes[name] for name in changes.keys() & BUDGET_FIELDS}
    queue_fields = {name: changes[name] for name in changes.keys() & QUEUE_FIELDS}
    replace = msgspec.structs.replace
    return replace(
        rules,
        politeness=replace(rules.politeness, **politeness) if politeness else rules.politeness,
        budget=replace(rules.budget, **budget) if budget else rules.budget,
        **queue_fields,
    )
